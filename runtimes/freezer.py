"""Freezes a sandbox: all of its processes, and its log.

A marker file exists from before the first process is stopped until after the last one goes on: so a caller
that dies in between leaves the wanted state on disk. While the marker exists the launcher, which is not frozen, writes
nothing into the log. The gate is a lock on the folder, held while the marker is made and while the launcher writes.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from runtimes import RuntimeFailure
from runtimes.cgroup import Cgroup
from runtimes.folder import LOCK_TIMEOUT, lock
from runtimes.tree import Tree

#: the marker file of a sandbox that is to stand still
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
        """Whether the sandbox is to stand still."""
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
