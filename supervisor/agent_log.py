"""Compares our log of a conversation with the agent server's own, and fetches the events that were never posted.

An agent server that is killed has not posted its last events, one whose queue is full has dropped its oldest, and a
webhook may be refused. Both logs only grow, and ours has events of this server's own beside the agent's. So a mark is
kept of the last comparison, and since then both must have grown alike: the agent's log by as many events as were posted
to us, the newest among them. Where they have not, the agent's log is read on from the mark, oldest first, a page at a
time.

An event that was posted and never written to the agent's file, as by a kill in between, is only here, and makes up for
one that is missing. It is one of the last before the end of the agent server. So after a restart the newest of our
events are looked up in the agent's newest too, and one that only we have causes the read as well.

Guarantee: memory is bounded by one page, whatever the length of a log. Limitation: an event that only the agent has is
overlooked where as many others are only here, and each of those lies more than a hundred events before the end.
"""

import logging
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from agents.link import AgentRefused, AgentServer, AgentUnreachable, ResponseTooLong
from store import Store
from store.approvals.effects import CLOSING_KINDS, is_kept
from store.errors import TooManyKinds
from wire import ConversationId, Event, Micros, read_event

log = logging.getLogger("supervisor")

#: events of one page
_PAGE = 100

#: kinds of the events that this server makes about a conversation in a sandbox
_OWN_KINDS = ("ConversationErrorEvent", "ConversationStateUpdateEvent", "AgentErrorEvent")


class Mark(NamedTuple):
    """How far both logs of a conversation were compared, as the conversation's field `agent_log` has it."""

    start: int = -1  #: the start of the sandbox's processes after which they were compared last; -1: never
    length: int = 0  #: events of the agent's log up to `last`, which are all in ours
    posted: int = 0  #: events of our log at that time that the agent has too
    last: str = ""  #: id of the last of them
    forgotten: bool = False  #: the agent server had forgotten the conversation, and the log says so
    seen: int = -1  #: events of the agent's log when their numbers were compared last; -1: not since
    reported: str = ""  #: the agent's status if that comparison found it to differ from ours

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> "Mark":
        """Of a conversation's state."""
        return cls(*(state["agent_log"] or ()))

    def ahead(self, count: int, posted: int) -> int:
        """By how many events more the agent's log has grown since the mark than ours; negative: by fewer."""
        return count - self.length - (posted - self.posted)


def posted_of(state: Mapping[str, Any]) -> int:
    """The number of a conversation's events that the agent has too."""
    return int(state.get("posted") or 0)


def catch_up(
    store: Store,
    agent: AgentServer,
    conversation_id: ConversationId,
    sandbox_id: str,
    mark: Mark,
    *,
    most_pages: int | None = None,
) -> tuple[Mark, bool]:
    """Append the events that only the agent's log has, in its order.

    Returns the mark of this comparison, and whether the log was read to its end: not if it has more than most_pages.
    A repeat appends nothing twice. Raises AgentUnreachable, AgentRefused, ConversationNotFound, NotItsSandbox.
    """
    posted, count = posted_of(store.conversations.get(conversation_id)), agent.count_events(conversation_id)
    grown = count - mark.length
    if grown == 0 or mark.ahead(count, posted) == 0:
        try:
            newest, _ = agent.events(conversation_id, limit=min(_PAGE, max(1, grown)), newest_first=True)
        except ResponseTooLong:
            newest = []
        if newest and not _missing(store, conversation_id, newest) and not _has_others(store, conversation_id, newest):
            return Mark(mark.start, count, posted, newest[0].id), True
    begin = mark if grown >= 0 else Mark(mark.start)
    return _read_on(store, agent, conversation_id, sandbox_id, begin, most_pages)


def _read_on(
    store: Store,
    agent: AgentServer,
    conversation_id: ConversationId,
    sandbox_id: str,
    mark: Mark,
    most_pages: int | None,
) -> tuple[Mark, bool]:
    """Read the agent's log from the mark to its end, or all of it where the agent does not know the mark's event."""
    page_id, limit, seen = mark.last or None, _PAGE, {mark.last}
    count, last, appended, is_whole = mark.length - 1 if mark.last else 0, mark.last, False, True
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
        appended |= _append(store, conversation_id, sandbox_id, _missing(store, conversation_id, events))
        count, last = count + len(events), events[-1].id if events else last
        if following is None:
            break
        if following in seen:
            raise AgentUnreachable("The agent server's pages of events repeat themselves")
        seen.add(following)
        page_id = following
        if len(seen) == most_pages:
            is_whole = False
            break
    if appended:
        _drop_ended(store, conversation_id)
    return Mark(mark.start, count, posted_of(store.conversations.get(conversation_id)), last), is_whole


def _has_others(store: Store, conversation_id: ConversationId, newest: list[Event]) -> bool:
    """Whether our log has events as new as these of the agent's that are not among them, and not this server's own."""
    oldest = min(event.at for event in newest)
    raws, _ = store.events.search(conversation_id, since=oldest, descending=True, limit=_PAGE)
    ids = {event.id for event in newest}
    ours = [event for event in map(read_event, raws) if event.at > oldest and event.id not in ids]
    return any(event.kind not in _OWN_KINDS for event in ours)


def _missing(store: Store, conversation_id: ConversationId, events: list[Event]) -> list[Event]:
    kept = [event for event in events if is_kept(event)]
    unknown = store.events.unknown(conversation_id, [event.id for event in kept])
    return [event for event in kept if event.id in unknown]


def _append(store: Store, conversation_id: ConversationId, sandbox_id: str, events: list[Event]) -> bool:
    """Whether there were any."""
    if events:
        try:
            store.events.append(conversation_id, events, sandbox_id=sandbox_id, fetched=True)
        except TooManyKinds as refusal:  # which the agent would be told too if it posted them
            log.warning("conversation %s: %d events are left out: %s", conversation_id, len(events), refusal)
    return bool(events)


def _drop_ended(store: Store, conversation_id: ConversationId) -> None:
    """Close the actions that were fetched after their ends had been posted."""
    ids = store.confirmations.open_ids(conversation_id)
    open_actions = [read_event(store.events.get(conversation_id, action_id)) for action_id in ids]
    since = min((action.at for action in open_actions), default=None)
    if since is None:
        return
    calls = {str(action.fields.get("tool_call_id")): action.id for action in open_actions}
    ended = set()
    for kind in CLOSING_KINDS:
        for event in _each(store, conversation_id, kind, since):
            ended.add(event.fields.get("action_id") or calls.get(str(event.fields.get("tool_call_id"))))
    store.confirmations.drop(conversation_id, [action_id for action_id in ids if action_id in ended])


def _each(store: Store, conversation_id: ConversationId, kind: str, since: Micros) -> Iterator[Event]:
    """Every event of a kind since a time, a page at a time."""
    page_id: str | None = None
    while True:
        raws, page_id = store.events.search(conversation_id, kind=kind, since=since, limit=_PAGE, page_id=page_id)
        yield from map(read_event, raws)
        if page_id is None:
            return
