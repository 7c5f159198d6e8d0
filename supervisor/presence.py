"""The presence of a supervisor: its lease of the host, other leases, and the duration of observed conditions.

One supervisor at a time holds the lease of a host name. A lease is renewed while its work continues, by a process that
may be suspended meanwhile.

Times are in µs by Redis' clock. A gap between two polls does not count: the supervisor or its machine was suspended, or
a clock stepped. The observations of an earlier supervisor are unknown. Source: docs/durability.md.
"""

import fcntl
import os
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from core.wire import Micros
from store.errors import UNAVAILABLE
from store.sandboxes.sandboxes import Sandboxes

_ID_BYTES = 32


#: Time in µs after which an unchecked subject is forgotten, and maximum number of stored gaps.
_FORGOTTEN, _GAPS = 3600e6, 100


class HostTaken(Exception):
    """Raised if another supervisor holds the lease of this host."""


class HostLease:
    """Two locks: a file lock between supervisors of the same folder, and a heartbeat in Redis between all others."""

    def __init__(self, sandboxes: Sandboxes, host: str, folder: Path) -> None:
        """folder: of the host's sandboxes. Raises OSError."""
        self.host = host
        self._sandboxes = sandboxes
        self._place = f"{_machine()} {folder.resolve()}"
        self.folder = ""  #: unique id of the folder, after `take`
        self.identity = ""  #: after `take`: unique, and equal for all supervisors of this folder
        self._lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def take(self) -> bool:
        """Take or renew the lease. Return false if another supervisor has it. Raises OSError, or one of UNAVAILABLE."""
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        self.folder = self.folder or self._folder_id()
        self.identity = f"{self._place} {self.folder}"
        return self._sandboxes.beat(self.host, self.identity)

    def renew(self) -> None:
        """Renew the lease. Raises HostTaken, or one of UNAVAILABLE."""
        if not self.take():
            raise HostTaken

    def release(self) -> None:
        """Release the lease, so that another supervisor can take it at once. Raises one of UNAVAILABLE."""
        self._sandboxes.release(self.host, self.identity)

    def _folder_id(self) -> str:
        """Return the unique id of the folder, which is created once. The caller holds the lock.

        Containers of a machine share its boot id, and their volumes may have the same path.
        """
        known = os.pread(self._lock, _ID_BYTES, 0)
        if len(known) < _ID_BYTES:
            known = uuid.uuid4().hex.encode()
            os.pwrite(self._lock, known, 0)
            os.fsync(self._lock)
        return known.decode()


def _machine() -> str:
    """Return a unique name of the machine: the id of this boot, or else the address of the network card."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:  # not Linux
        return f"{uuid.getnode():x}"


class Presence:
    """Detects whether this process was suspended."""

    def __init__(self, most_apart: float) -> None:
        """most_apart: longest time in seconds between two checks without a suspension."""
        self._most_apart = most_apart
        self._last = time.monotonic()
        self._was_away = False

    def was_away(self) -> bool:
        """Return whether the process was suspended since the start. Also records a check."""
        now = time.monotonic()
        self._was_away = self._was_away or now - self._last > self._most_apart
        self._last = now
        return self._was_away


class LeaseLost(Exception):
    """Raised if another driver holds the lease, or its subject is finished or gone."""


def in_thread(act: Callable[..., None], *args: Any, name: str, undo: Callable[[], object]) -> None:
    """Run a task in a daemon thread.

    undo: reverts the caller's bookkeeping if no thread starts. Raises RuntimeError then.
    """
    try:
        threading.Thread(target=act, args=args, name=name, daemon=True).start()
    except RuntimeError:
        undo()
        raise


@contextmanager
def renewed(renew: Callable[[], bool], seconds: float) -> Iterator[Presence]:
    """Renew a lease until the block ends, or until another driver holds the lease. seconds: length of the lease."""
    done, presence = threading.Event(), Presence(seconds)

    def go_on() -> None:
        is_ours = True
        while is_ours and not done.wait(seconds / 3):
            presence.was_away()
            with suppress(*UNAVAILABLE):
                is_ours = renew()

    thread = threading.Thread(target=go_on, daemon=True)
    thread.start()
    try:
        yield presence
    finally:
        done.set()
        thread.join()


class Silences:
    """Measures how long subjects have been silent. Threads may use it for different subjects at the same time."""

    def __init__(self, most_apart: float) -> None:
        """most_apart: longest time in seconds between two checks that counts as silence."""
        self._most_apart = most_apart * 1e6
        self._known: dict[Hashable, tuple[float, Micros]] = {}  #: subject → µs of silence, and the last check

    def found(self, thing: Hashable, at: Micros) -> float:
        """Record a subject as silent at a time by Redis' clock. Return the seconds of its observed silence."""
        if thing not in self._known:
            known = list(self._known.items())
            self._known = {one: span for one, span in known if abs(at - span[1]) < _FORGOTTEN}
        silent, last = self._known.get(thing, (0.0, at))
        if 0 <= at - last <= self._most_apart:
            silent += at - last
        self._known[thing] = (silent, at)
        return silent / 1e6

    def ended(self, thing: Hashable) -> None:
        """Record that a subject is not silent, or not checked any more."""
        self._known.pop(thing, None)


class Gaps:
    """The last gaps between checks. Thread-safe."""

    def __init__(self, most_apart: float) -> None:
        """most_apart: longest time in seconds between two polls without a gap."""
        self._most_apart = most_apart * 1e6
        self._lock = threading.Lock()
        self._last: Micros | None = None
        self._gaps: deque[tuple[Micros, int]] = deque(maxlen=_GAPS)  #: end of each gap, and its length

    def look(self, at: Micros) -> None:
        """Record that this supervisor is running."""
        with self._lock:
            if self._last is not None and at - self._last > self._most_apart:
                self._gaps.append((at, at - self._last))
            self._last = at

    def seconds(self, since: int, at: Micros) -> float:
        """Return the seconds between two times, without the gaps."""
        with self._lock:
            absent = sum(min(length, ended - since) for ended, length in self._gaps if since < ended <= at)
        return (at - since - absent) / 1e6
