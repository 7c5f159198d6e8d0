"""Compares our log of a conversation with the agent server's own, and fetches the events that were never posted.

An agent server that is killed has not posted its last events, and posts nothing about what it does while it loads a
conversation. Both logs only grow, and ours has events of this server's own beside the agent's. So a mark is kept of the
last comparison, and since then both must have grown alike: the agent's log by as many events as were posted to us, the
newest among them. Where they have not, the agent's log is read on from the mark, oldest first, a page at a time.

Guarantee: memory is bounded by one page, whatever the length of a log. Limitation: an event that only the agent has is
overlooked where as many others, posted and never written to its file, are only here, and a hundred events follow it.
"""

import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

from agents.link import AgentRefused, AgentServer, AgentUnreachable, ResponseTooLong
from store import Store
from store.effects import is_kept
from store.errors import TooManyKinds
from wire import ConversationId, Event

log = logging.getLogger("supervisor")

#: events of one page
_PAGE = 100


class Mark(NamedTuple):
    """How far both logs of a conversation were compared, as the conversation's field `agent_log` has it."""

    start: int = -1  #: the start of the sandbox's processes after which they were compared last; -1: never
    length: int = 0  #: events of the agent's log up to `last`, which are all in ours
    posted: int = 0  #: events of our log at that time that the agent has too
    last: str = ""  #: id of the last of them
    forgotten: bool = False  #: the agent server had forgotten the conversation, and the log says so

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> "Mark":
        """Of a conversation's state."""
        return cls(*(state["agent_log"] or ()))


def catch_up(store: Store, agent: AgentServer, conversation_id: ConversationId, sandbox_id: str, mark: Mark) -> Mark:
    """Append the events that only the agent's log has, in its order, and return the mark of this comparison.

    A repeat appends nothing twice. Raises AgentUnreachable, AgentRefused, ConversationNotFound, NotItsSandbox.
    """
    posted, count = _posted(store, conversation_id), agent.count_events(conversation_id)
    grown = count - mark.length
    if grown in (0, posted - mark.posted):
        try:
            newest, _ = agent.events(conversation_id, limit=min(_PAGE, max(1, grown)), newest_first=True)
        except ResponseTooLong:
            newest = []
        if newest and not _missing(store, conversation_id, newest):
            return mark._replace(length=count, posted=posted, last=newest[0].id)
    return _read_on(store, agent, conversation_id, sandbox_id, mark if grown >= 0 else Mark())


def _read_on(store: Store, agent: AgentServer, conversation_id: ConversationId, sandbox_id: str, mark: Mark) -> Mark:
    """Read the agent's log from the mark to its end, or all of it where the agent does not know the mark's event."""
    page_id, limit, seen = mark.last or None, _PAGE, {mark.last}
    count, last = mark.length - 1 if mark.last else 0, mark.last
    while True:
        try:
            events, following = agent.events(conversation_id, limit=limit, page_id=page_id)
        except ResponseTooLong:
            if limit == 1:
                log.warning(
                    "conversation %s: an event of its agent is too long, and ends the comparison", conversation_id
                )
                break
            limit //= 2
            continue
        except AgentRefused:
            if page_id is None or page_id != mark.last:
                raise
            page_id, count = None, 0
            continue
        if page_id == mark.last and (not events or events[0].id != mark.last):
            count = 0
        _append(store, conversation_id, sandbox_id, _missing(store, conversation_id, events))
        count, last = count + len(events), events[-1].id if events else last
        if following is None:
            break
        if following in seen:
            raise AgentUnreachable("The agent server's pages of events repeat themselves")
        seen.add(following)
        page_id = following
    return Mark(mark.start, count, _posted(store, conversation_id), last)


def _missing(store: Store, conversation_id: ConversationId, events: list[Event]) -> list[Event]:
    kept = [event for event in events if is_kept(event)]
    unknown = store.events.unknown(conversation_id, [event.id for event in kept])
    return [event for event in kept if event.id in unknown]


def _append(store: Store, conversation_id: ConversationId, sandbox_id: str, events: list[Event]) -> None:
    if not events:
        return
    try:
        store.events.append(conversation_id, events, sandbox_id=sandbox_id)
    except TooManyKinds as refusal:  # which the agent would be told too if it posted them
        log.warning("conversation %s: %d events of its agent are left out: %s", conversation_id, len(events), refusal)


def _posted(store: Store, conversation_id: ConversationId) -> int:
    return int(store.conversations.get(conversation_id).get("posted") or 0)
