"""The loop of a supervisor: wakes by signal, and by itself a few times a second."""

import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from agents.commands import Commands
from store import Store
from store.errors import UNAVAILABLE
from store.sandboxes import SandboxId
from store.start_tasks import StartTask
from supervisor.deliveries import DeliveryDriver
from supervisor.sandboxes import Reconciler
from supervisor.start_tasks import StartDriver

log = logging.getLogger("supervisor")

#: seconds between two heartbeats; between two looks at all sandboxes, and at those that start; between two looks for
#: what runs here and nobody knows
_BEAT, _LOOK, _SHORT_LOOK, _ORPHANS = 1.0, 0.5, 0.1, 20.0

#: seconds between two tries while Redis does not answer
_PATIENCE = 0.5

#: starts of app conversations that one supervisor drives at once
_MOST_STARTS = 64


class HostTaken(Exception):
    """Another supervisor speaks for this host."""


class Loop:
    """One host's supervisor."""

    def __init__(
        self,
        store: Store,
        commands: Commands,
        reconciler: Reconciler,
        driver: StartDriver,
        *,
        host: str,
        identity: str,
        most_starts: int,
    ) -> None:
        """identity: who this supervisor is, the same for one that follows it on this machine.

        most_starts: sandboxes that may be starting here at once.
        """
        self._store = store
        self._deliveries = DeliveryDriver(store, commands)
        self._reconciler = reconciler
        self._driver = driver
        self._host, self._identity, self._most_starts = host, identity, most_starts
        self._pool = ThreadPoolExecutor(max(16, 2 * most_starts), "sandbox")
        self._drivers = ThreadPoolExecutor(_MOST_STARTS, "start")
        self._busy: set[str] = set()  #: sandboxes, and other names of things, that a thread sees to
        self._driven: set[str] = set()  #: leases of starts that a thread drives
        self._stopping = False
        self._due: dict[str, float] = {}

    def run(self) -> None:
        """Supervise until `stop`. Raises HostTaken."""
        while not self._stopping:
            try:
                hurried = self._round()
                for asked in self._store.wakeups.wait(_SHORT_LOOK if hurried else _LOOK):
                    self._pool.submit(self._tell_log, asked)
            except UNAVAILABLE as error:
                log.warning("the store does not answer: %s", error)
                with suppress(*UNAVAILABLE):
                    self._store.wakeups.close()
                time.sleep(_PATIENCE)
        self._drivers.shutdown(wait=False, cancel_futures=True)
        self._pool.shutdown(cancel_futures=True)  # waits for those at work: nothing is started behind the end

    def stop(self) -> None:
        """Have `run` return soon; what runs in sandboxes goes on."""
        self._stopping = True

    def _round(self) -> bool:
        """One look at everything; whether the next one should follow soon."""
        self._after("beat", _BEAT, self._beat)
        self._after("orphans", _ORPHANS, lambda: self._submit("orphans", self._reconciler.end_unknown))
        sandboxes = self._store.sandboxes.of_host(self._host)
        starting = sum(sandbox.status == "STARTING" for sandbox in sandboxes)
        for sandbox in sandboxes:
            self._submit(sandbox.id, self._look_at, sandbox.id)
        while starting < self._most_starts and (claimed := self._store.sandboxes.claim(self._host)):
            starting += 1
            self._submit(claimed, self._look_at, claimed)
        while len(self._driven) < _MOST_STARTS and (claimed_start := self._store.start_tasks.claim()):
            start, lease = claimed_start
            self._driven.add(lease)
            self._drivers.submit(self._drive, start, lease)
        self._submit("failed start tasks", self._driver.clear_failed)
        self._submit("deliveries", self._deliveries.drive_due)
        return starting > 0

    def _submit(self, name: str, act: Callable[..., None], *args: Any) -> None:
        """Have a thread do something, unless one does it already."""
        if name in self._busy:
            return
        self._busy.add(name)

        def do() -> None:
            try:
                _logged(act, *args)
            finally:
                self._busy.discard(name)

        self._pool.submit(do)

    def _after(self, name: str, seconds: float, act: Callable[[], None]) -> None:
        """Do what is done once in so many seconds, when it is time."""
        now = time.monotonic()
        if now >= self._due.get(name, 0.0):
            self._due[name] = now + seconds
            act()

    def _beat(self) -> None:
        if not self._store.sandboxes.beat(self._host, self._identity):
            raise HostTaken

    def _look_at(self, sandbox_id: SandboxId) -> None:
        [sandbox] = self._store.sandboxes.get_many([sandbox_id])
        if sandbox is not None and sandbox.host == self._host:
            self._reconciler.look_at(sandbox)

    def _drive(self, start: StartTask, lease: str) -> None:
        try:
            _logged(self._driver.drive, start, lease)
        finally:
            self._driven.discard(lease)

    def _tell_log(self, asked: dict[str, Any]) -> None:
        _logged(self._reconciler.tell_log, SandboxId(asked["log"]), asked["tail"], asked["reply"])


def _logged(act: Callable[..., None], *args: Any) -> None:
    """Run what a thread does; a failure that nobody foresaw is told and ends only this one."""
    try:
        act(*args)
    except UNAVAILABLE as error:
        log.warning("the store does not answer: %s", error)
    except Exception:
        log.exception("%s failed", getattr(act, "__qualname__", act))
