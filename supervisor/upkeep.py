"""What a supervisor does for all sandboxes of its host: it removes what is left over, and resumes after a restart."""

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from runtimes import Runtime, RuntimeFailure, State
from store import Store
from store.errors import SandboxNotFound, SandboxRefuses, TooManySandboxes
from store.sandboxes.sandbox_record import SandboxId

log = logging.getLogger("supervisor")


class Upkeep:
    """The upkeep of one host."""

    def __init__(self, store: Store, runtimes: Mapping[str, Runtime], host: str) -> None:
        self._store = store
        self._runtimes = runtimes
        self._host = host

    def tidy(self) -> None:
        """Remove what was deleted while this host was lost; end processes of sandboxes that the store does not know.

        The files of an unknown sandbox stay: a store that has lost its data must not take the work of agents with it.
        The next call retries a failure.
        """
        self._store.sandboxes.expire_failed()
        for name, identity in self._store.sandboxes.removals(self._host):
            if _attempt(self._runtimes[name].remove, identity, identity):
                self._store.sandboxes.removed(self._host, name, identity)
        for runtime in self._runtimes.values():
            handles = runtime.known()
            ids = [SandboxId(handle["sandbox_id"]) for handle in handles]
            for handle, identity, sandbox in zip(handles, ids, self._store.sandboxes.get_many(ids), strict=True):
                is_ours = sandbox is not None and sandbox.host == self._host
                if not is_ours and runtime.observe(handle).state in (State.RUNNING, State.PAUSED):
                    log.warning("sandbox %s is unknown to the store: its processes are ended, its files stay", identity)
                    _attempt(runtime.stop, handle, identity)

    def resume_all(self) -> None:
        """Ask for the resume of every sandbox that ran when its server ended."""
        for sandbox in self._store.sandboxes.of_host(self._host):
            if sandbox.resumes and sandbox.status == "PAUSED":
                with suppress(SandboxNotFound, SandboxRefuses, TooManySandboxes):
                    self._store.sandboxes.ask(sandbox.id, "resume")


def _attempt(act: Callable[[Any], None], subject: Any, sandbox_id: str) -> bool:
    """Stop or remove a sandbox; True if that was done. A failure is logged."""
    try:
        act(subject)
    except Exception as error:
        trace = not isinstance(error, RuntimeFailure)
        log.warning("sandbox %s: %s", sandbox_id, error, exc_info=error if trace else None)
        return False
    return True
