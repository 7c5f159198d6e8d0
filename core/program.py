"""Start and exit of this server's programs: file permissions, gevent's plugins, and the exit status."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import metadata
from typing import NoReturn

#: The exit status that a shell shows for a program that SIGPIPE killed.
READER_GONE = 128 + signal.SIGPIPE


def run(main: Callable[[], int | None]) -> NoReturn:
    """Run a command and exit with its status.

    If the reader of its output is gone, as with `| head`, exit with READER_GONE and print nothing. SIGPIPE stays
    ignored, because it would also kill a command whose store closes a connection.
    """
    try:
        try:
            status = main()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # Discard the buffer. Otherwise the interpreter reports the closed pipe at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = READER_GONE
    sys.exit(status)


def keep_private() -> None:
    """Make this process and its children write files that only their owner can read, and no bytecode.

    The users of sandboxes could not read such bytecode, and each start of an agent would compile its packages again,
    for two thirds of its time.
    """
    os.umask(0o077)
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"


@contextmanager
def plugins_looked_up_once() -> Iterator[None]:
    """Cache the lookup of gevent's plugins while the block patches.

    gevent looks them up twenty-five times, and each time Python reads the metadata of every installed package: a third
    of a second with 170 packages.
    """
    look_up, found = metadata.entry_points, metadata.entry_points()
    metadata.entry_points = found.select
    try:
        yield
    finally:
        metadata.entry_points = look_up
