"""What a supervisor does for all sandboxes of its host: removes what is left over, resumes, keeps the pools full, and
finds strays.

Every supervisor fills the pools of warm sandboxes, beside what clients ask for, and one script decides: so however many
hosts there are, no pool gets more than its number. The specs of the supervisor that has begun last hold: one with other
specs fills nothing, and ends nothing.

Strays are conversations that a client began at a sandbox's own agent server. This server does not show them until they
are adopted (`agents/adoption.py`), and takes no webhook of theirs. So an agent server is asked for its conversations
now and then, and the sandbox names those that are not in the store. One that was deleted here is no stray: its deletion
has not reached the agent, and is repeated.

Cost: for each sandbox that runs, one request in _AGAIN seconds that asks how long its agent server has been idle. Its
conversations are listed only when it was used since the last list, while it has strays, and after _ANYWAY seconds.
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
from runtimes import Handle, Runtime, RuntimeFailure, State
from settings.specs import Spec, Specs
from store import Store
from store.errors import KeyUnreadable, SandboxNotFound, SandboxRefuses, TooManySandboxes
from store.sandboxes.sandboxes import Sandbox, SandboxId
from store.sandboxes.start_tasks import Pool
from supervisor.endings import SandboxHost

log = logging.getLogger("supervisor")


#: seconds before what failed twice is tried again, each time twice as many, and at most. After a first failure it is
#: with the next call
_RETRY, LONGEST_RETRY = 40.0, 3600.0

#: tries after which a removal is given up: about four hours
MOST_REMOVALS = 12


#: seconds between two looks at a sandbox, and between two lists of its conversations whether it was used or not
_AGAIN, _ANYWAY = 10.0, 60.0

#: conversations of one page, and pages of one look
_PAGE, _MOST_PAGES = 100, 10

#: strays that a sandbox names, the newest; and deletions that one look repeats
MOST_NAMED, _MOST_DELETIONS = 20, 10


class Upkeep:
    """The upkeep of one host."""

    def __init__(
        self,
        store: Store,
        runtimes: Mapping[str, Runtime],
        host: str,
        *,
        folder: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """folder: id of the host's folder. clock: seconds, for the pauses between tries."""
        self._store = store
        self._runtimes = runtimes
        self._host, self._folder = host, folder
        self._clock = clock
        self._tries: dict[str, tuple[int, float]] = {}  #: of what failed: how often, and when it is tried again

    def tidy(self) -> None:
        """Remove what was deleted while this host was lost; end processes of sandboxes that the store does not know.

        The files of an unknown sandbox stay: a store that has lost its data must not take the work of agents with it.
        A later call retries a failure, each time later. A removal that fails MOST_REMOVALS times is given up, and the
        log names it; processes that nobody may have are ended whenever that takes effect.
        """
        self._store.sandboxes.expire_failed()
        self._store.sandboxes.workspaces.expire()
        removals = self._store.sandboxes.removals(self._host, self._folder)
        for name, identity in removals:
            if self._is_removed(name, identity):
                self._store.sandboxes.removed(self._host, name, identity, self._folder)
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


class Strays:
    """One thread asks what is `due`; any number may `look`, each at another sandbox."""

    def __init__(
        self, store: Store, client: httpx.Client, host: SandboxHost, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """client: for the agent servers. clock: seconds."""
        self._store = store
        self._client = client
        self._host = host
        self._clock = clock
        self._due: dict[tuple[SandboxId, int], float] = {}  #: sandbox and its start → when it is looked at again
        self._listed: dict[tuple[SandboxId, int], float] = {}  #: the same → when its conversations were listed last

    def due(self, sandboxes: list[Sandbox]) -> list[Sandbox]:
        """Those of a host's sandboxes that are to be looked at now. Warm ones have no client yet."""
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
        """Note the strays of a sandbox, if its agent server tells. Raises only UNAVAILABLE."""
        with suppress(AgentUnreachable, AgentRefused, KeyUnreadable):
            agent = AgentServer(self._client, sandbox.agent_url, sandbox.session_api_key)
            if self._is_unused(sandbox, agent):
                return
            begun = self._clock()
            infos = list(_conversations(agent))
            self._note(sandbox, agent, infos)
            self._listed[sandbox.id, sandbox.start] = begun

    def _is_unused(self, sandbox: Sandbox, agent: AgentServer) -> bool:
        """Whether nothing can have changed since the conversations were listed."""
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
        """infos: listed before the store is read, so that a conversation which starts meanwhile is known there."""
        present, deleted = self._store.sandboxes.places.known(sandbox.id)
        by_id = {identity: info for info in infos if (identity := _id_of(info))}
        for identity in [one for one in by_id if one in deleted][:_MOST_DELETIONS]:
            log.info("conversation %s was deleted here: its agent deletes it now", identity)
            with suppress(AgentRefused):
                agent.delete(identity)
        strays = [_named(identity, info) for identity, info in by_id.items() if identity not in present | deleted]
        found = {"count": len(strays), "newest": strays[:MOST_NAMED]}
        if found != sandbox.strays:
            self._store.sandboxes.report(sandbox.id, self._host.id, self._host.supervisor, strays=found)


def _conversations(agent: AgentServer) -> Iterator[dict[str, Any]]:
    """What the agent server says of its conversations, the newest first; at most _MOST_PAGES pages of them."""
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
    """The id of a conversation that its agent server is not about to remove; None if it has none that could be one."""
    if info.get("execution_status") == "deleting":
        return None
    return conversation_id_of(info.get("id"))


def _named(identity: ConversationId, info: dict[str, Any]) -> dict[str, Any]:
    status = info.get("execution_status")
    return {
        "id": identity,
        "title": title_of(info),
        "execution_status": status if status in EXECUTION_STATUSES else None,
    }
