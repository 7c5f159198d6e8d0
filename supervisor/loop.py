"""The main loop of a supervisor: makes a round after each poll interval, and handles signals at once.

A signal about a sandbox with processes handles only that sandbox, and a signal about a start task only start tasks. So
a pause, a resume and a start need not wait for the rest of the host.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from core.pauses import Backoff
from store import Store
from store.errors import UNAVAILABLE, NewerData
from store.link.signals import SupervisorRequest
from store.sandboxes.files import FILE_TIMEOUT, LookupResult
from store.sandboxes.sandboxes import Sandbox, SandboxId
from store.sandboxes.start_tasks import StartTask
from supervisor.archives import HostArchives, HostFiles
from supervisor.checks import Checker
from supervisor.deliveries import DeliveryDriver
from supervisor.go_aheads import GoAheadDriver
from supervisor.keeping import ColdSweep, Retention
from supervisor.presence import HostLease, HostTaken
from supervisor.queued_messages import MessageDriver
from supervisor.sandboxes import Reconciler
from supervisor.start_tasks import StartDriver
from supervisor.upkeep import Strays, Upkeep, WarmPools

log = logging.getLogger("supervisor")

#: Intervals in seconds: between two heartbeats, two checks of warm sandboxes, two searches for orphans, two retention
#: sweeps, and two passes of cold storage.
_BEAT, _FILL, _TIDY, _RETENTION, _COLD = 1.0, 0.5, 20.0, 10.0, 2.0

#: Interval in seconds between two rounds without a signal: normally, and while a sandbox starts.
_POLL, _SHORT_POLL = 0.5, 0.1

#: Shortest and longest delay after a failed round, in seconds. The longest is shorter than the host's lease.
_SHORTEST_DELAY, _LONGEST_DELAY = 0.1, 1.0

#: Timeout in seconds for running threads when the loop ends.
_DRAIN_TIMEOUT = 5.0

#: Maximum number of start tasks that a supervisor drives at once.
_MOST_STARTS = 64

#: Maximum number of concurrent requests for logs and files, so that a slow sandbox delays no other sandbox's tasks.
_MOST_SERVED = 16

#: Maximum number of a sandbox's requests that are served at once, and that wait.
MOST_OF_ONE, MOST_WAITING = 2, 64

_FULL = (
    f"{MOST_WAITING} requests for the files of this sandbox are already waiting, which is the maximum, and "
    f"{MOST_OF_ONE} are served at once: try again shortly"
)

#: Requests whose handlers return at once and use their own threads.
_HANDED_ON = ("archive", "record")


@dataclass
class _Turns:
    """The requests of a sandbox: the number being served, and those waiting, with their arrival times."""

    served: int = 0
    waiting: deque[tuple[float, SupervisorRequest]] = field(default_factory=deque)


class Requests:
    """The requests of workers. Each sandbox gets few threads, so a slow sandbox only delays its own requests."""

    def __init__(
        self,
        run: Callable[[Callable[[str], None], str], None],
        serve: Callable[[SupervisorRequest], None],
        refuse: Callable[[SupervisorRequest], None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """run: calls a function in a thread of a pool. refuse: replies to a request beyond the limit."""
        self._run, self._serve, self._refuse, self._clock = run, serve, refuse, clock
        self._lock = threading.Lock()  #: guards `_turns`
        self._turns: dict[str, _Turns] = {}  #: sandboxes with requests

    def take(self, asked: SupervisorRequest) -> None:
        """Serve a request as soon as its sandbox has a free thread."""
        with self._lock:
            turns = self._turns.setdefault(asked.sandbox_id, _Turns())
            begins = turns.served < MOST_OF_ONE
            if is_full := len(turns.waiting) >= MOST_WAITING:
                begins = False
            else:
                turns.waiting.append((self._clock(), asked))
            turns.served += begins
        if is_full:
            self._refuse(asked)
        elif begins:
            self._run(self._serve_next, asked.sandbox_id)

    def _serve_next(self, sandbox_id: str) -> None:
        """Serve the oldest waiting request of a sandbox. Its next request comes after those of other sandboxes."""
        try:
            if asked := self._next(sandbox_id):
                self._serve(asked)
        finally:
            with self._lock:
                turns = self._turns[sandbox_id]
                if not (goes_on := bool(turns.waiting)):
                    turns.served -= 1
                    if not turns.served:
                        del self._turns[sandbox_id]
            if goes_on:
                self._run(self._serve_next, sandbox_id)

    def _next(self, sandbox_id: str) -> SupervisorRequest | None:
        """Return the next request whose worker still waits for the reply."""
        with self._lock:
            waiting = self._turns[sandbox_id].waiting
            while waiting:
                came, asked = waiting.popleft()
                if self._clock() - came < FILE_TIMEOUT:
                    return asked
        return None


@dataclass(frozen=True, slots=True)
class Tasks:
    """The tasks of a supervisor for its host, and of all supervisors for the store."""

    sandboxes: Reconciler
    upkeep: Upkeep
    archives: HostArchives
    files: HostFiles
    starts: StartDriver
    deliveries: DeliveryDriver
    messages: MessageDriver
    go_aheads: GoAheadDriver
    checks: Checker
    strays: Strays
    pools: WarmPools
    retention: Retention
    cold: ColdSweep


class Loop:
    """A host's supervisor, while it holds the host's lease."""

    def __init__(
        self, store: Store, tasks: Tasks, lease: HostLease, *, stop: threading.Event, most_starts: int
    ) -> None:
        """stop: ends `run` when it is set. most_starts: maximum number of sandboxes that start here at once."""
        self._store, self._tasks, self._lease = store, tasks, lease
        self._host, self._stop, self._most_starts = lease.host, stop, most_starts
        self._pool = ThreadPoolExecutor(max(16, 2 * most_starts), "sandbox")
        self._drivers = ThreadPoolExecutor(_MOST_STARTS, "start")
        self._servers = ThreadPoolExecutor(_MOST_SERVED, "request")
        self._requests = Requests(partial(self._run_in, self._servers), self._serve, self._refuse)
        self._at_work: set[Future[None]] = set()  #: futures of the pool and of the servers
        self._lock = threading.Lock()  #: guards `_busy` and `_again`
        self._busy: set[str] = set()  #: names of running tasks, such as ids of sandboxes
        self._again: set[str] = set()  #: names of running tasks to repeat, because a signal arrived meanwhile
        self._driven: set[str] = set()  #: leases of start tasks in threads
        self._due: dict[str, float] = {}

    def run(self) -> None:
        """Supervise until `stop` is set. Sandboxes keep running after that. Raises HostTaken, NewerData."""
        backoff, next_round = Backoff(_SHORTEST_DELAY, _LONGEST_DELAY), 0.0
        try:
            while not self._stop.is_set():
                try:
                    if time.monotonic() < next_round:
                        self._claim_starts()
                    else:
                        poll = _SHORT_POLL if self._round() else _POLL
                        next_round = time.monotonic() + poll
                    woken = self._store.link.wakeups.wait(max(0.0, next_round - time.monotonic()))
                    for asked in woken.requests:
                        if asked.verb in _HANDED_ON:
                            self._run_in(self._servers, self._serve, asked)
                        else:
                            self._requests.take(asked)
                    for identity in woken.sandboxes:
                        self._submit(identity, self._reconcile, SandboxId(identity), repeats=True)
                        next_round = min(next_round, time.monotonic() + _SHORT_POLL)
                    if woken.others:
                        next_round = 0.0
                    backoff.reset()
                except (HostTaken, NewerData):
                    raise
                except Exception as error:
                    _log_failure("a round of the supervisor", error)
                    with suppress(Exception):
                        self._store.link.wakeups.close()
                    self._stop.wait(backoff.delay())
        finally:
            self._drain()

    def _drain(self) -> None:
        """Start no more tasks, and wait at most _DRAIN_TIMEOUT for running threads."""
        self._tasks.archives.end()
        self._drivers.shutdown(wait=False, cancel_futures=True)
        self._servers.shutdown(wait=False, cancel_futures=True)
        self._pool.shutdown(wait=False, cancel_futures=True)
        _, late = wait(set(self._at_work), _DRAIN_TIMEOUT)
        if late:
            log.warning("%d tasks did not end in time: the next supervisor repeats them", len(late))

    def _round(self) -> bool:
        """Give every due sandbox, start task and delivery to a thread.

        Return true if the next round should follow soon.
        """
        self._after("beat", _BEAT, self._beat)
        self._after("fill", _FILL, lambda: self._submit("fill", self._tasks.pools.fill))
        self._after("tidy", _TIDY, lambda: self._submit("tidy", self._tasks.upkeep.tidy))
        self._after("retention", _RETENTION, lambda: self._submit("retention", self._tasks.retention.sweep))
        self._after("cold", _COLD, lambda: self._submit("cold", self._tasks.cold.sweep))
        # First the tasks without a claim, because a failed claim ends a round.
        self._submit("failed start tasks", self._tasks.starts.clear_failed)
        self._submit("deliveries", self._tasks.deliveries.drive_due)
        self._submit("go-aheads", self._tasks.go_aheads.drive_due)
        self._submit("checks", self._tasks.checks.check_due)
        self._submit("approvals", self._store.approvals.checks.sweep)
        now, sandboxes = self._store.sandboxes.seen_on(self._host)
        self._tasks.sandboxes.look(now)
        starting = sum(one.status == "STARTING" and one.handle is not None for one in sandboxes)
        for sandbox in sandboxes:
            if sandbox.handle is None and sandbox.wanted != "deleted":
                if sandbox.status in ("PAUSED", "ERROR") or sandbox.is_delayed:
                    continue  # it is stopped: a host may have many such sandboxes
                if not (self._tasks.archives.is_filling(sandbox.id) or self._tasks.sandboxes.lacks(sandbox)):
                    if starting >= self._most_starts:
                        continue
                    starting += 1
            self._submit(sandbox.id, self._reconcile, sandbox.id)
        for sandbox in self._tasks.strays.due(sandboxes):
            self._submit(f"strays of {sandbox.id}", self._tasks.strays.look, sandbox)
        while starting < self._most_starts and (claimed := self._store.sandboxes.claim(self._host)):
            starting += 1
            self._submit(claimed, self._reconcile, claimed)
        self._claim_starts()
        return starting > 0

    def _beat(self) -> None:
        """Renew the lease of the host, unless a newer release has changed the data. Raises HostTaken, NewerData."""
        self._store.data_version.ensure()
        self._lease.renew()

    def _claim_starts(self) -> None:
        """Give every start task without a driver, and every due message queue, to a thread."""
        self._submit("queued messages", self._tasks.messages.drive_due)
        while len(self._driven) < _MOST_STARTS and (claimed := self._store.start_tasks.claim()):
            start, lease = claimed
            self._driven.add(lease)
            self._drivers.submit(self._drive, start, lease)

    def _submit(self, name: str, act: Callable[..., None], *args: Any, repeats: bool = False) -> None:
        """Run a task in a thread, unless a task of that name is running.

        repeats: repeat the running task, because its subject has changed.
        """
        with self._lock:
            if name in self._busy:
                if repeats:
                    self._again.add(name)
                return
            self._busy.add(name)

        def do() -> None:
            is_left = True
            while is_left:
                _logged(act, *args)
                with self._lock:
                    is_left = name in self._again and not self._stop.is_set()
                    self._again.discard(name)
                    if not is_left:
                        self._busy.discard(name)

        self._run_in(self._pool, do)

    def _run_in(self, pool: ThreadPoolExecutor, act: Callable[..., None], *args: Any) -> None:
        """Run a task in a thread of a pool. `_drain` waits for it."""
        future = pool.submit(act, *args)
        self._at_work.add(future)
        future.add_done_callback(self._at_work.discard)

    def _after(self, name: str, seconds: float, act: Callable[[], None]) -> None:
        """Call `act` unless the last call under this name was less than `seconds` ago."""
        now = time.monotonic()
        if now >= self._due.get(name, 0.0):
            self._due[name] = now + seconds
            act()

    def _own(self, sandbox_id: SandboxId) -> Sandbox | None:
        """Return a sandbox if it belongs to this host."""
        [sandbox] = self._store.sandboxes.get_many([sandbox_id])
        return sandbox if sandbox is not None and sandbox.host == self._host else None

    def _reconcile(self, sandbox_id: SandboxId) -> None:
        if sandbox := self._own(sandbox_id):
            self._tasks.sandboxes.reconcile(sandbox)

    def _drive(self, start: StartTask, lease: str) -> None:
        try:
            _logged(self._tasks.starts.drive, start, lease)
        finally:
            self._driven.discard(lease)

    def _serve(self, asked: SupervisorRequest) -> None:
        served: dict[str, Callable[..., None]] = {
            "log": self._tasks.sandboxes.send_log,
            "archive": self._tasks.archives.send,
            "files": self._tasks.files.send_names,
            "file": self._tasks.files.send_content,
            "record": self._tasks.files.record,
            "moments": self._tasks.files.send_moments,
            "changes": self._tasks.files.send_changes,
            "difference": self._tasks.files.send_difference,
        }
        try:
            if sandbox := self._own(SandboxId(asked.sandbox_id)):
                served[asked.verb](sandbox, **asked.details)
        except Exception as error:
            _log_failure(f"a request for the {asked.verb} of a sandbox", error)

    def _refuse(self, asked: SupervisorRequest) -> None:
        """Reply that too many requests wait. A log request gets no reply, because its replies have no errors."""
        if asked.verb != "log":
            self._store.sandboxes.files.answer(asked.details["reply"], LookupResult.BUSY, _FULL.encode())


def _logged(act: Callable[..., None], *args: Any) -> None:
    """Run a thread's task. A failure ends only this task."""
    try:
        act(*args)
    except Exception as error:
        _log_failure(getattr(act, "__qualname__", str(act)), error)


def _log_failure(what: str, error: Exception) -> None:
    if isinstance(error, UNAVAILABLE):
        log.warning("the store does not answer: %s", error)
    else:
        log.error("%s failed", what, exc_info=error)
