"""A supervisor's lease of its host: one supervisor at a time speaks for a host name."""

import fcntl
import os
import uuid
from pathlib import Path

from store.sandboxes.sandboxes import Sandboxes


class HostTaken(Exception):
    """Another supervisor speaks for this host."""


class HostLease:
    """Two locks: a file excludes supervisors of the same folder, a heartbeat in Redis excludes all others."""

    def __init__(self, sandboxes: Sandboxes, host: str, folder: Path) -> None:
        """folder: that of the host's sandboxes. Raises OSError."""
        self.host = host
        self._sandboxes = sandboxes
        self.identity = f"{_machine()} {folder.resolve()}"  # the next supervisor of this folder has the same one
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
    """A name that no other machine has: the id of this boot, elsewhere the address of the network card."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:  # not Linux
        return f"{uuid.getnode():x}"
