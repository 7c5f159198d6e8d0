"""The presence of a supervisor: its lease of the host, other leases, and for how long it has observed something.

One supervisor at a time holds the lease of a host name. A lease is renewed while its work continues, by a process
that may be stopped meanwhile.

Times are in µs by Redis' clock. A gap between two polls counts for nothing: the supervisor was stopped, its machine
suspended, or a clock stepped. What a supervisor before this one saw of a gap is not known. Source: docs/durability.md.
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


#: µs after which a thing that nobody checked is forgotten; gaps that are known
_FORGOTTEN, _GAPS = 3600e6, 100


class HostTaken(Exception):
    """Another supervisor holds the lease of this host."""


class HostLease:
    """Two locks: a file excludes supervisors of the same folder, a heartbeat in Redis excludes all others."""

    def __init__(self, sandboxes: Sandboxes, host: str, folder: Path) -> None:
        """folder: that of the host's sandboxes. Raises OSError."""
        self.host = host
        self._sandboxes = sandboxes
        self._place = f"{_machine()} {folder.resolve()}"
        self.folder = ""  #: since `take`: an id that no other folder has
        self.identity = ""  #: since `take`: the next supervisor of this folder has the same one, and no other one has
        self._lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def take(self) -> bool:
        """Take the lease, or renew it; False while another supervisor has it. Raises OSError, or one of UNAVAILABLE."""
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        self.folder = self.folder or self._folder_id()
        self.identity = f"{self._place} {self.folder}"
        return self._sandboxes.beat(self.host, self.identity)

    def renew(self) -> None:
        """Raises HostTaken, or one of UNAVAILABLE."""
        if not self.take():
            raise HostTaken

    def release(self) -> None:
        """Let another supervisor take the lease at once. Raises one of UNAVAILABLE."""
        self._sandboxes.release(self.host, self.identity)

    def _folder_id(self) -> str:
        """What tells the folder from all others, written once. The caller holds the lock.

        Containers of one machine have its boot id, and their volumes the same path.
        """
        known = os.pread(self._lock, _ID_BYTES, 0)
        if len(known) < _ID_BYTES:
            known = uuid.uuid4().hex.encode()
            os.pwrite(self._lock, known, 0)
            os.fsync(self._lock)
        return known.decode()


def _machine() -> str:
    """A name that no other machine has: the id of this boot, elsewhere the address of the network card."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:  # not Linux
        return f"{uuid.getnode():x}"


class Presence:
    """Whether this process was there all the time."""

    def __init__(self, most_apart: float) -> None:
        """most_apart: seconds between two looks, of which more were an absence."""
        self._most_apart = most_apart
        self._last = time.monotonic()
        self._was_away = False

    def was_away(self) -> bool:
        """Whether the process was stopped since the beginning. A look."""
        now = time.monotonic()
        self._was_away = self._was_away or now - self._last > self._most_apart
        self._last = now
        return self._was_away


class LeaseLost(Exception):
    """Another driver has what was leased by now, or it is finished or gone."""


def in_thread(act: Callable[..., None], *args: Any, name: str, undo: Callable[[], object]) -> None:
    """Run a task in a thread that ends with the process.

    Raises RuntimeError where the system has no more threads, after `undo`, which takes back what counts on the thread.
    """
    try:
        threading.Thread(target=act, args=args, name=name, daemon=True).start()
    except RuntimeError:
        undo()
        raise


@contextmanager
def renewed(renew: Callable[[], bool], seconds: float) -> Iterator[Presence]:
    """Renew a lease of so many seconds until the block ends, or until the lease is another driver's."""
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
    """Counts from the look that finds something silent. Any number of threads may use it, each for another thing."""

    def __init__(self, most_apart: float) -> None:
        """most_apart: seconds between two looks of which the time between them counts."""
        self._most_apart = most_apart * 1e6
        self._known: dict[Hashable, tuple[float, Micros]] = {}  #: thing → µs of silence, and the last look

    def found(self, thing: Hashable, at: Micros) -> float:
        """Note that a thing is silent at a time by Redis' clock; for how many seconds it has been seen to be so."""
        if thing not in self._known:
            known = list(self._known.items())
            self._known = {one: span for one, span in known if abs(at - span[1]) < _FORGOTTEN}
        silent, last = self._known.get(thing, (0.0, at))
        if 0 <= at - last <= self._most_apart:
            silent += at - last
        self._known[thing] = (silent, at)
        return silent / 1e6

    def ended(self, thing: Hashable) -> None:
        """Note that a thing is not silent, or that nobody checks it any more."""
        self._known.pop(thing, None)


class Gaps:
    """The last gaps between looks. Any number of threads may use it."""

    def __init__(self, most_apart: float) -> None:
        """most_apart: seconds between two polls that are not a gap."""
        self._most_apart = most_apart * 1e6
        self._lock = threading.Lock()
        self._last: Micros | None = None
        self._gaps: deque[tuple[Micros, int]] = deque(maxlen=_GAPS)  #: when each ended, and its length

    def look(self, at: Micros) -> None:
        """Note that this supervisor is there."""
        with self._lock:
            if self._last is not None and at - self._last > self._most_apart:
                self._gaps.append((at, at - self._last))
            self._last = at

    def seconds(self, since: int, at: Micros) -> float:
        """Seconds from one time to another, without the gaps in between."""
        with self._lock:
            absent = sum(min(length, ended - since) for ended, length in self._gaps if since < ended <= at)
        return (at - since - absent) / 1e6
