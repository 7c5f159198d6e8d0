"""Upkeep of a host's sandboxes: removes orphans, resumes, keeps the warm pools full, and finds stray conversations.

Every supervisor fills the pools of warm sandboxes, beside the requests of clients. A script decides, so that no pool
exceeds its number, however many hosts there are. The specs of the supervisor that started last apply. A supervisor with
other specs neither fills nor ends anything.

Strays are conversations that a client began at a sandbox's own agent server. This server hides them until they are
adopted (`agents/adoption.py`), and refuses their webhooks. So each agent server is polled for its conversations, and
the sandbox lists those that are not in the store. A conversation that was deleted here is not a stray: its deletion has
not reached the agent, and is repeated.

Cost: for each running sandbox, a request every _AGAIN seconds for the idle time of its agent server. Its conversations
are only listed if it was used since the last list, while it has strays, and after _ANYWAY seconds.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import httpx

from agents.adoption import title_of
from agents.client import AgentRefused, AgentServer, AgentUnreachable, ResponseTooLong
from core.wire import EXECUTION_STATUSES, ConversationId, conversation_id_of
from runtimes import Handle, ProcessState, Runtime, RuntimeCallFailed
from settings.specs import Spec, Specs
from store import Store
from store.errors import KeyUnreadable, SandboxNotFound, SandboxRefuses, TooManySandboxes
from store.sandboxes.sandboxes import Sandbox, SandboxId
from store.sandboxes.start_tasks import Pool
from supervisor.endings import SandboxHost

log = logging.getLogger("supervisor")


#: Delay in seconds after the second failure, which doubles with each failure, and its maximum. The first failure is
#: retried at the next call.
_RETRY, LONGEST_RETRY = 40.0, 3600.0

#: Number of attempts after which a removal is given up: about four hours.
MOST_REMOVALS = 12


#: Intervals in seconds: between two polls of a sandbox, and between two lists of an unused sandbox's conversations.
_AGAIN, _ANYWAY = 10.0, 60.0

#: Number of conversations of a page, and maximum number of pages of a poll.
_PAGE, _MOST_PAGES = 100, 10

#: Maximum number of strays that a sandbox lists, the newest, and of deletions that a poll repeats.
MOST_NAMED, _MOST_DELETIONS = 20, 10


class Upkeep:
    """The upkeep of a host."""

    def __init__(
        self,
        store: Store,
        runtimes: Mapping[str, Runtime],
        host: str,
        *,
        folder: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """folder: id of the host's folder. clock: in seconds, for retry delays."""
        self._store = store
        self._runtimes = runtimes
        self._host, self._folder = host, folder
        self._clock = clock
        self._tries: dict[str, tuple[int, float]] = {}  #: failed attempts: their number, and the time of the next

    def tidy(self) -> None:
        """Remove sandboxes that were deleted while this host was lost, and end processes of unknown sandboxes.

        The files of an unknown sandbox stay, because a store that lost its data must not cost the work of agents. A
        failure is retried with backoff. A removal that fails MOST_REMOVALS times is given up, and the log names it.
        Ending unknown processes is retried forever.
        """
        self._store.sandboxes.expire_failed()
        self._store.sandboxes.workspaces.expire()
        removals = self._store.sandboxes.removals(self._host, self._folder)
        for name, identity in removals:
            if self._is_removed(name, identity):
                self._store.sandboxes.removed(self._host, name, identity, self._folder)
        seen = {identity for _, identity in removals}
        for runtime in self._runtimes.values():
            handles = _handles_of(runtime)
            ids = [SandboxId(handle["sandbox_id"]) for handle in handles]
            for handle, identity, sandbox in zip(handles, ids, self._store.sandboxes.get_many(ids), strict=True):
                if sandbox is None or sandbox.host != self._host:
                    seen.add(identity)
                    if self._is_due(identity):
                        self._note(identity, _attempt(partial(_end_unknown, runtime), handle, identity))
        self._tries = {identity: tries for identity, tries in self._tries.items() if identity in seen}

    def _is_removed(self, name: str, identity: SandboxId) -> bool:
        """Return whether the named runtime has removed a sandbox, or the removal is given up."""
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
        """Remove a sandbox from the named runtime. Raises RuntimeCallFailed, and KeyError for an unknown name."""
        self._runtimes[name].remove(identity)

    def _is_due(self, identity: str) -> bool:
        _, at = self._tries.get(identity, (0, 0.0))
        return self._clock() >= at

    def _note(self, identity: str, is_done: bool) -> int:
        """Record an attempt. Return the number of consecutive failures."""
        failed, _ = self._tries.pop(identity, (0, 0.0))
        if is_done:
            return 0
        pause = min(_RETRY * 2 ** (failed - 1), LONGEST_RETRY) if failed else 0.0
        self._tries[identity] = (failed + 1, self._clock() + pause)
        return failed + 1

    def resume_all(self) -> None:
        """Resume every sandbox that was running when its server ended."""
        for sandbox in self._store.sandboxes.of_host(self._host):
            if sandbox.resumes and sandbox.status == "PAUSED":
                with suppress(SandboxNotFound, SandboxRefuses, TooManySandboxes):
                    self._store.sandboxes.ask(sandbox.id, "resume")


def _handles_of(runtime: Runtime) -> list[Handle]:
    """Return the handles of a runtime; empty, with a line in the log, if it fails."""
    try:
        return runtime.known()
    except Exception:
        log.exception("the sandboxes of a runtime are not known")
        return []


def _end_unknown(runtime: Runtime, handle: Handle) -> None:
    """End running processes of a sandbox that the store does not know. Raises RuntimeCallFailed."""
    if runtime.observe(handle).state in (ProcessState.RUNNING, ProcessState.PAUSED):
        log.warning("sandbox %s is unknown to the store: its processes are ended, its files stay", handle["sandbox_id"])
        runtime.stop(handle)


def _attempt(act: Callable[[Any], None], subject: Any, sandbox_id: str) -> bool:
    """Stop or remove a sandbox. Return whether that succeeded; a failure is logged."""
    try:
        act(subject)
    except Exception as error:
        trace = not isinstance(error, RuntimeCallFailed)
        log.warning("sandbox %s: %s", sandbox_id, error, exc_info=error if trace else None)
        return False
    return True


def pool_of(spec: Spec) -> Pool:
    """Return the warm pool of a spec."""
    return Pool(spec.id, spec.version, spec.warm)


class WarmPools:
    """The warm pools of a supervisor's specs."""

    def __init__(self, store: Store, specs: Specs) -> None:
        self._store = store
        self._pools = [pool_of(spec) for spec in specs.all if spec.warm]
        self._is_declared = False
        self._told: set[str] = set()  #: specs with a logged conflict with another supervisor

    def fill(self) -> None:
        """Start missing warm sandboxes. The first call also ends those that the specs no longer keep."""
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


class Strays:
    """Finds stray conversations. One thread calls `due`; any threads may call `look` for different sandboxes."""

    def __init__(
        self, store: Store, client: httpx.Client, host: SandboxHost, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """client: for the agent servers. clock: in seconds."""
        self._store = store
        self._client = client
        self._host = host
        self._clock = clock
        self._due: dict[tuple[SandboxId, int], float] = {}  #: sandbox and its start → time of the next poll
        self._listed: dict[tuple[SandboxId, int], float] = {}  #: as `_due` → time of its last list

    def due(self, sandboxes: list[Sandbox]) -> list[Sandbox]:
        """Return the sandboxes to poll now. Warm sandboxes have no client yet."""
        now = self._clock()
        running = {
            (one.id, one.start): one
            for one in sandboxes
            if one.status == "RUNNING" and one.wanted == "running" and not one.warm
        }
        self._due = {key: at for key, at in self._due.items() if key in running}
        for key in self._listed.keys() - running.keys():
            self._listed.pop(key, None)
        found = [key for key in running if now >= self._due.get(key, 0.0)]
        self._due |= dict.fromkeys(found, now + _AGAIN)
        return [running[key] for key in found]

    def look(self, sandbox: Sandbox) -> None:
        """Record the strays of a sandbox, if its agent server responds. Raises only UNAVAILABLE."""
        with suppress(AgentUnreachable, AgentRefused, KeyUnreadable):
            agent = AgentServer(self._client, sandbox.agent_url, sandbox.session_api_key)
            if self._is_unused(sandbox, agent):
                return
            begun = self._clock()
            infos = list(_conversations(agent))
            self._note(sandbox, agent, infos)
            self._listed[sandbox.id, sandbox.start] = begun

    def _is_unused(self, sandbox: Sandbox, agent: AgentServer) -> bool:
        """Return whether nothing can have changed since the conversations were listed."""
        listed = self._listed.get((sandbox.id, sandbox.start))
        if listed is None or (sandbox.strays or {}).get("count"):
            return False
        try:
            idle = agent.idle_seconds()
        except AgentRefused:
            return False
        since = self._clock() - listed
        return idle is not None and since < idle and since < _ANYWAY

    def _note(self, sandbox: Sandbox, agent: AgentServer, infos: list[dict[str, Any]]) -> None:
        """Record strays, and repeat deletions.

        infos: listed before the store is read, so that the store knows any conversation that starts meanwhile.
        """
        present, deleted = self._store.sandboxes.places.known(sandbox.id)
        by_id = {identity: info for info in infos if (identity := _id_of(info))}
        for identity in [one for one in by_id if one in deleted][:_MOST_DELETIONS]:
            log.info("conversation %s was deleted here: its agent deletes it now", identity)
            with suppress(AgentRefused):
                agent.delete(identity)
        strays = [_stray(identity, info) for identity, info in by_id.items() if identity not in present | deleted]
        found = {"count": len(strays), "newest": strays[:MOST_NAMED]}
        if found != sandbox.strays:
            self._store.sandboxes.report(sandbox.id, self._host.id, self._host.supervisor, strays=found)


def _conversations(agent: AgentServer) -> Iterator[dict[str, Any]]:
    """Yield the agent server's conversations, the newest first, from at most _MOST_PAGES pages."""
    page_id, limit = None, _PAGE
    for _ in range(_MOST_PAGES):
        try:
            infos, page_id = agent.conversations(limit=limit, page_id=page_id)
        except ResponseTooLong:
            if limit == 1:
                raise
            limit = max(1, limit // 4)
            continue
        yield from infos
        if page_id is None:
            return


def _id_of(info: dict[str, Any]) -> ConversationId | None:
    """Return the id of a conversation; None if it is invalid or its agent server is about to remove it."""
    if info.get("execution_status") == "deleting":
        return None
    return conversation_id_of(info.get("id"))


def _stray(identity: ConversationId, info: dict[str, Any]) -> dict[str, Any]:
    status = info.get("execution_status")
    return {
        "id": identity,
        "title": title_of(info),
        "execution_status": status if status in EXECUTION_STATUSES else None,
    }
