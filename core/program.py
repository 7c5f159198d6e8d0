"""How programs of this server begin and end: whose files they write, what gevent looks up, and the exit status."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import metadata
from typing import NoReturn

#: the exit status that a shell shows for a program that SIGPIPE ended
READER_GONE = 128 + signal.SIGPIPE


def run(main: Callable[[], int | None]) -> NoReturn:
    """Run a command and exit with the status that it returns; with READER_GONE, without a word, where the reader of its
    output has ended, as `| head` does.

    SIGPIPE stays ignored: it would also end a command whose store closes a connection.
    """
    try:
        try:
            status = main()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # What is left in the buffer goes nowhere: else the interpreter reports it at its own end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = READER_GONE
    sys.exit(status)


def keep_private() -> None:
    """Have this process and those that it starts write files for their owner alone, and no bytecode.

    Bytecode would lie beside the packages, unreadable for the users of sandboxes: each start of an agent would compile
    them again, two thirds of its time.
    """
    os.umask(0o077)
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"


@contextmanager
def plugins_looked_up_once() -> Iterator[None]:
    """While the block patches: gevent asks for its plugins twenty-five times, and gets them from one look.

    Each time Python would read the metadata of every installed package: a third of a second of a start where there are
    170 of them.
    """
    look_up, found = metadata.entry_points, metadata.entry_points()
    metadata.entry_points = found.select
    try:
        yield
    finally:
        metadata.entry_points = look_up
