"""Detects an orphan: a launcher polls a lock to find that its supervisor has been gone for too long.

Every supervisor holds a shared lock on a file of its folder of sandboxes for as long as it lives. The kernel ends the
lock with the process, however that ended: no process writes a heartbeat, and no clock of another process counts. When a
launcher's poll gets the lock for itself, no supervisor lives.
"""

import fcntl
import os
import time
from pathlib import Path

from runtimes.folder import lock

#: the file in a folder of sandboxes that each supervisor of the folder holds
_SUPERVISORS = ".supervisors"

#: polls in a row that must find no supervisor
_POLLS = 60


def supervise(folder: Path) -> int:
    """Hold a folder as one of its supervisors, until the process ends or the file that is returned is closed.

    Raises RuntimeFailure.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    held = os.open(folder / _SUPERVISORS, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    lock(held, fcntl.LOCK_SH)  # a launcher's poll holds it for microseconds
    return held


def is_supervised(folder: Path) -> bool:
    """Whether a supervisor of the folder lives."""
    try:
        file = os.open(folder / _SUPERVISORS, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


class OrphanWatch:
    """Counts the polls that found no supervisor. Time in which the machine was suspended counts as at most one poll."""

    def __init__(self, folder: Path, seconds: float) -> None:
        """seconds: for which no supervisor may live."""
        self._folder = folder
        self._interval = seconds / _POLLS
        self._due = time.monotonic() + self._interval
        self._missed = 0

    @property
    def seconds_left(self) -> float:
        """Seconds until the next poll."""
        return max(0.0, self._due - time.monotonic())

    def is_orphan(self) -> bool:
        """Whether the supervisor has been gone for too long. Polls when a poll is due."""
        if not self.seconds_left:
            self._due = time.monotonic() + self._interval
            self._missed = 0 if is_supervised(self._folder) else self._missed + 1
        return self._missed >= _POLLS
