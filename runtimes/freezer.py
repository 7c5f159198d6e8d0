"""Freezes a sandbox: all of its processes, and its log, which its launcher copies in bounded size.

A marker file exists from before the first process is stopped until after the last one goes on: so a caller
that dies in between leaves the wanted state on disk. While the marker exists the launcher, which is not frozen, writes
nothing into the log. The gate is a lock on the folder, held while the marker is made and while the launcher writes.
"""

import contextlib
import fcntl
import os
import select
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from core.cuts import last_lines
from runtimes import RuntimeFailure
from runtimes.cgroup import Cgroup
from runtimes.folder import LOCK_TIMEOUT, lock
from runtimes.tree import Tree

#: the marker file of a sandbox that is to be frozen
PAUSED = "paused"


@contextlib.contextmanager
def gate(folder: Path, timeout: float = LOCK_TIMEOUT) -> Iterator[None]:
    """Hold the gate between a sandbox's output and its log. Raises RuntimeFailure after so many seconds."""
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        lock(file, fcntl.LOCK_EX, timeout)
        yield
    finally:
        os.close(file)


@dataclass(frozen=True)
class Freezer:
    """Stops and continues one sandbox."""

    folder: Path
    processes: Cgroup | Tree

    @property
    def is_wanted(self) -> bool:
        """Whether the sandbox is to be frozen."""
        return (self.folder / PAUSED).exists()

    def is_frozen(self) -> bool:
        return self.processes.is_frozen()

    def freeze(self) -> None:
        """Stop every process and the log. Raises RuntimeFailure; then every process that has not ended goes on."""
        if not self.is_wanted:  # a launcher that is frozen too may hold the gate
            with gate(self.folder):
                (self.folder / PAUSED).touch()
        try:
            self.processes.freeze()
        except RuntimeFailure:
            with contextlib.suppress(RuntimeFailure):  # the sandbox has ended
                self.thaw()
            raise

    def thaw(self) -> None:
        """Let every process and the log go on; does nothing unless the marker exists."""
        if self.is_wanted:
            try:
                self.processes.thaw()
            finally:
                (self.folder / PAUSED).unlink(missing_ok=True)


#: the files of a sandbox's folder: its log, its older log, and the number of the lines before them
_LOG, _OLDER_LOG, _DROPPED = "log", "log.1", "log.dropped"

#: bytes copied from the sandbox's output at once
CHUNK = 65536

#: seconds between two polls of a copier whose sandbox is frozen
_PAUSED_POLL = 0.1

#: seconds between two pieces, for which a sandbox that prints more than 13 MB a second waits: the work of its launcher
#: does not count towards its limits
_COPY_INTERVAL = 0.005


def printed(folder: Path, tail: int) -> str:
    """The last lines of a sandbox's log, at most `tail`, below one that counts the earlier ones; empty if none are.

    Limitation: a copier that is killed while it drops an older log may count its lines twice.
    """
    text, missing = b"", 0
    with contextlib.suppress(OSError), (folder / _LOG).open("rb") as log:
        # The newer log first: if it becomes the older one meanwhile, that is detected and it is not read twice.
        text = log.read()
        with (folder / _OLDER_LOG).open("rb") as older:
            if not os.path.samestat(os.fstat(log.fileno()), os.fstat(older.fileno())):
                text = older.read() + text
        missing = _dropped(folder)
    return last_lines(text.decode(errors="replace"), tail, missing=missing)


def copy(output: int, folder: Path, log_bytes: int) -> None:
    """Append output to the log until every writer has closed it; a full log takes the place of the older one.

    While the sandbox is frozen nothing is copied. Limitation: output that cannot be written is lost, for a full disk
    must not stop the sandbox.
    """
    while True:
        select.select([output], [], [])
        with gate(folder, float("inf")):
            is_paused = (folder / PAUSED).exists()
            if not is_paused:
                text = os.read(output, min(log_bytes, CHUNK))
                if not text:
                    return
                with contextlib.suppress(OSError):
                    _append(text, folder, log_bytes)
        time.sleep(_PAUSED_POLL if is_paused else _COPY_INTERVAL)


def _dropped(folder: Path) -> int:
    """Lines of the log that are kept no more; 0 where the file is not whole, as after a power cut."""
    with contextlib.suppress(OSError, ValueError):
        return int((folder / _DROPPED).read_text())
    return 0


def _append(text: bytes, folder: Path, log_bytes: int) -> None:
    log = folder / _LOG
    if log.exists() and log.stat().st_size + len(text) > log_bytes:
        with contextlib.suppress(FileNotFoundError):
            number = _dropped(folder) + (folder / _OLDER_LOG).read_bytes().count(b"\n")
            (folder / _DROPPED).write_text(str(number))
        log.replace(folder / _OLDER_LOG)
    with log.open("ab", buffering=0) as file:
        file.write(text)
