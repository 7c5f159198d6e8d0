"""What a supervisor does for all sandboxes of its host: removes what is left over, resumes, and keeps the pools full.

Every supervisor fills the pools of warm sandboxes, beside what clients ask for, and one script decides: so however many
hosts there are, no pool gets more than its number. The specs of the supervisor that has begun last hold: one with other
specs fills nothing, and ends nothing.
"""

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from runtimes import Handle, Runtime, RuntimeFailure, State
from settings.specs import Spec, Specs
from store import Store
from store.errors import SandboxNotFound, SandboxRefuses, TooManySandboxes
from store.sandboxes.sandboxes import SandboxId
from store.sandboxes.start_tasks import Pool

log = logging.getLogger("supervisor")


#: seconds before what failed twice is tried again, each time twice as many, and at most. After a first failure it is
#: with the next call
_RETRY, LONGEST_RETRY = 40.0, 3600.0

#: tries after which a removal is given up: about four hours
MOST_REMOVALS = 12


class Upkeep:
    """The upkeep of one host."""

    def __init__(
        self,
        store: Store,
        runtimes: Mapping[str, Runtime],
        host: str,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """clock: seconds, for the pauses between tries."""
        self._store = store
        self._runtimes = runtimes
        self._host = host
        self._clock = clock
        self._tries: dict[str, tuple[int, float]] = {}  #: of what failed: how often, and when it is tried again

    def tidy(self) -> None:
        """Remove what was deleted while this host was lost; end processes of sandboxes that the store does not know.

        The files of an unknown sandbox stay: a store that has lost its data must not take the work of agents with it.
        A later call retries a failure, each time later. A removal that fails MOST_REMOVALS times is given up, and the
        log names it; processes that nobody may have are ended whenever that takes effect.
        """
        self._store.sandboxes.expire_failed()
        removals = self._store.sandboxes.removals(self._host)
        for name, identity in removals:
            if self._is_removed(name, identity):
                self._store.sandboxes.removed(self._host, name, identity)
        seen = {identity for _, identity in removals}
        for runtime in self._runtimes.values():
            handles = _known(runtime)
            ids = [SandboxId(handle["sandbox_id"]) for handle in handles]
            for handle, identity, sandbox in zip(handles, ids, self._store.sandboxes.get_many(ids), strict=True):
                if sandbox is None or sandbox.host != self._host:
                    seen.add(identity)
                    if self._is_due(identity):
                        self._note(identity, _attempt(partial(_end_unknown, runtime), handle, identity))
        self._tries = {identity: tries for identity, tries in self._tries.items() if identity in seen}

    def _is_removed(self, name: str, identity: SandboxId) -> bool:
        """Whether the runtime of that name has removed a sandbox, or it is given up."""
        if not identity:
            log.error("an entry of the removals of host %s cannot be read, and is given up: %r", self._host, name)
            return True
        if not self._is_due(identity):
            return False
        is_done = _attempt(partial(self._remove, name), identity, identity)
        if self._note(identity, is_done) < MOST_REMOVALS:
            return is_done
        log.error(
            "sandbox %s: its removal failed %d times and is given up: what is left of it on host %s must be removed by "
            "hand",
            *(identity, MOST_REMOVALS, self._host),
        )
        return True

    def _remove(self, name: str, identity: SandboxId) -> None:
        """Remove a sandbox from the runtime of that name. Raises RuntimeFailure, and KeyError of an unknown name."""
        self._runtimes[name].remove(identity)

    def _is_due(self, identity: str) -> bool:
        _, at = self._tries.get(identity, (0, 0.0))
        return self._clock() >= at

    def _note(self, identity: str, is_done: bool) -> int:
        """Note a try; how many have failed in a row."""
        failed, _ = self._tries.pop(identity, (0, 0.0))
        if is_done:
            return 0
        pause = min(_RETRY * 2 ** (failed - 1), LONGEST_RETRY) if failed else 0.0
        self._tries[identity] = (failed + 1, self._clock() + pause)
        return failed + 1

    def resume_all(self) -> None:
        """Ask for the resume of every sandbox that ran when its server ended."""
        for sandbox in self._store.sandboxes.of_host(self._host):
            if sandbox.resumes and sandbox.status == "PAUSED":
                with suppress(SandboxNotFound, SandboxRefuses, TooManySandboxes):
                    self._store.sandboxes.ask(sandbox.id, "resume")


def _known(runtime: Runtime) -> list[Handle]:
    """The handles of a runtime; none, and a line of the log, where it cannot be asked: the others can."""
    try:
        return runtime.known()
    except Exception:
        log.exception("what a runtime has is not known")
        return []


def _end_unknown(runtime: Runtime, handle: Handle) -> None:
    """End the processes of a sandbox that the store does not know, if any live. Raises RuntimeFailure."""
    if runtime.observe(handle).state in (State.RUNNING, State.PAUSED):
        log.warning("sandbox %s is unknown to the store: its processes are ended, its files stay", handle["sandbox_id"])
        runtime.stop(handle)


def _attempt(act: Callable[[Any], None], subject: Any, sandbox_id: str) -> bool:
    """Stop or remove a sandbox; True if that was done. A failure is logged."""
    try:
        act(subject)
    except Exception as error:
        trace = not isinstance(error, RuntimeFailure)
        log.warning("sandbox %s: %s", sandbox_id, error, exc_info=error if trace else None)
        return False
    return True


def pool_of(spec: Spec) -> Pool:
    """What a spec keeps warm."""
    return Pool(spec.id, spec.version, spec.warm)


class WarmPools:
    """The pools of one supervisor's specs."""

    def __init__(self, store: Store, specs: Specs) -> None:
        self._store = store
        self._pools = [pool_of(spec) for spec in specs.all if spec.warm]
        self._is_declared = False
        self._told: set[str] = set()  #: specs of which the log says that another supervisor's hold

    def fill(self) -> None:
        """Start what is missing; the first call also ends what the specs no longer keep."""
        if not self._is_declared:
            self._store.sandboxes.warm.declare(self._pools)
            self._is_declared = True
        for pool in self._pools:
            outcome = self._store.sandboxes.warm.fill(pool)
            if outcome == "undeclared":  # the store has lost its data
                self._is_declared = False
            elif outcome == "other" and pool.spec_id not in self._told:
                self._told.add(pool.spec_id)
                log.warning(
                    "The warm sandboxes of spec %s are kept by a supervisor that began later, on which the spec or a "
                    "variable that it names with {env:…} has another value: this one fills none of them",
                    pool.spec_id,
                )
