"""Finds the strays of a host's sandboxes: conversations that a client began at a sandbox's own agent server.

This server does not show them until they are adopted (`agents/adoption.py`), and takes no webhook of theirs. So an
agent server is asked for its conversations now and then, and the sandbox names those that are not in the store. One
that was deleted here is no stray: its deletion has not reached the agent, and is repeated.

Cost: for each sandbox that runs, one request in _AGAIN seconds that asks how long its agent server has been idle. Its
conversations are listed only when it was used since the last list, while it has strays, and after _ANYWAY seconds.
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import httpx

from agents.adoption import title_of
from agents.client import AgentRefused, AgentServer, AgentUnreachable, ResponseTooLong
from core.wire import EXECUTION_STATUSES, ConversationId, conversation_id_of
from store import Store
from store.errors import KeyUnreadable
from store.sandboxes.sandboxes import Sandbox, SandboxId
from supervisor.endings import Host

log = logging.getLogger("supervisor")

#: seconds between two looks at a sandbox, and between two lists of its conversations whether it was used or not
_AGAIN, _ANYWAY = 10.0, 60.0

#: conversations of one page, and pages of one look
_PAGE, _MOST_PAGES = 100, 10

#: strays that a sandbox names, the newest; and deletions that one look repeats
MOST_NAMED, _MOST_DELETIONS = 20, 10


class Strays:
    """One thread asks what is `due`; any number may `look`, each at another sandbox."""

    def __init__(
        self, store: Store, client: httpx.Client, host: Host, *, clock: Callable[[], float] = time.monotonic
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
