"""A supervisor's lease of its host: one supervisor at a time speaks for a host name."""

import fcntl
import os
import uuid
from pathlib import Path

from store.sandboxes import Sandboxes


class HostTaken(Exception):
    """Another supervisor speaks for this host."""


class HostLease:
    """Two locks: a file, against supervisors with the same folder, and a heartbeat in Redis, against all others."""

    def __init__(self, sandboxes: Sandboxes, host: str, folder: Path) -> None:
        """folder: the host's sandboxes are in it. Raises OSError."""
        self.host = host
        self._sandboxes = sandboxes
        self.identity = f"{_machine()} {folder.resolve()}"  # that of the next supervisor of this folder too
        self._lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def take(self) -> bool:
        """Take the lease, or renew it; False while another supervisor has it. Raises one of UNAVAILABLE."""
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return self._sandboxes.beat(self.host, self.identity)

    def renew(self) -> None:
        """Raises HostTaken, or one of UNAVAILABLE."""
        if not self.take():
            raise HostTaken

    def release(self) -> None:
        """Let another supervisor take the lease at once. Raises one of UNAVAILABLE."""
        self._sandboxes.release(self.host, self.identity)


def _machine() -> str:
    """A name of this machine that no other has: that of its boot, or of its network card where there is none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:  # not Linux
        return f"{uuid.getnode():x}"
