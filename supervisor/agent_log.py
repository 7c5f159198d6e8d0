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

One comparison with an agent that lives finds what was never posted, and whether the conversation still runs.
"""

import logging
import time
from collections.abc import Mapping
from typing import Any, NamedTuple
from uuid import uuid4

from agents.client import AgentRefused, AgentServer, AgentUnreachable, ResponseTooLong
from core import wire
from core.wire import EXECUTION_STATUSES, ConversationId, Event, own_event, read_event
from store import Store
from store.approvals.effects import is_kept
from store.errors import Outdated, TooManyKinds
from store.sandboxes.checks import Check

log = logging.getLogger("supervisor")

#: events of one page, and seconds for which one comparison reads pages: an agent's may have no end
_PAGE, _READ_SECONDS = 100, 30.0

#: kinds of the events that this server makes about a conversation in a sandbox
_OWN_KINDS = ("ConversationErrorEvent", "ConversationStateUpdateEvent", "AgentErrorEvent")


#: pages of an agent's log that one comparison reads; the next one goes on where it ended
_MOST_PAGES = 50

#: events by which both logs may grow in a run before they are compared by ids too
_MOST_GROWN = 1000

#: statuses of an agent that are worth showing
_STATUSES = {*EXECUTION_STATUSES} - {"deleting"}

#: seconds in which an agent server that is not suspended tells the number of its events
_COUNT_SECONDS = 3.0

#: what `Mark.reported` has of an agent server that does not know the conversation
_UNKNOWN = "unknown"

#: seconds until the next comparison: while the conversation runs or differs from its agent, and of a log read in part
_SOON, _AT_ONCE = 3.0, 0.0


class Mark(NamedTuple):
    """How far both logs of a conversation were compared, as the conversation's field `agent_log` has it."""

    start: int = -1  #: the start of the sandbox's processes after which they were compared last; -1: never
    length: int = 0  #: events of the agent's log up to `last`, which are all in ours
    posted: int = 0  #: events of our log at that time that the agent has too
    last: str = ""  #: id of the last of them
    forgotten: bool = False  #: the agent server had forgotten the conversation, and the log says so
    seen: int = -1  #: events of the agent's log when their numbers were compared last; -1: not since
    reported: str = ""  #: the agent's status if that comparison found it to differ from ours
    resumed: str = ""  #: the last message of a user before the run that went on by itself after a crash

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> "Mark":
        """Of a conversation's state."""
        return cls(*(state["agent_log"] or ()))

    def compared(self, length: int, posted: int, last: str) -> "Mark":
        """The mark after a comparison; what only belongs to the one before is gone."""
        return Mark(self.start, length, posted, last, resumed=self.resumed)

    def ahead(self, count: int, posted: int) -> int:
        """By how many events more the agent's log has grown since the mark than ours; negative: by fewer."""
        return count - self.length - (posted - self.posted)


def posted_of(state: Mapping[str, Any]) -> int:
    """The number of a conversation's events that the agent has too."""
    return int(state.get("posted", 0))


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
            return mark.compared(count, posted, newest[0].id), True
    begin = mark if grown >= 0 else mark.compared(0, 0, "")
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
    count, last, is_whole = mark.length - 1 if mark.last else 0, mark.last, True
    until = time.monotonic() + _READ_SECONDS
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
        if len(seen) == most_pages or time.monotonic() > until:  # the next comparison goes on from here
            is_whole = False
            break
    return mark.compared(count, posted_of(store.conversations.get(conversation_id)), last), is_whole


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


def _append(store: Store, conversation_id: ConversationId, sandbox_id: str, events: list[Event]) -> None:
    if events:
        try:
            store.events.append(conversation_id, events, sandbox_id=sandbox_id, fetched=True)
        except TooManyKinds as refusal:  # which the agent would be told too if it posted them
            log.warning("conversation %s: %d events are left out: %s", conversation_id, len(events), refusal)


class Comparison:
    """Every method raises AgentUnreachable, AgentRefused, ConversationNotFound and NotItsSandbox."""

    def __init__(self, store: Store, agent: AgentServer, check: Check) -> None:
        self._store = store
        self._agent = agent
        self._id = check.conversation_id
        self._sandbox_id = check.sandbox_id
        self._state = store.conversations.get(self._id)
        self._mark = Mark.of(self._state)

    def compare(self) -> float | None:
        """Seconds until the next comparison; None: when something happens in the conversation."""
        posted, count = posted_of(self._state), self._agent.count_events(self._id, seconds=_COUNT_SECONDS)
        ahead, grown = self._mark.ahead(count, posted), count - self._mark.length
        if ahead and not self._stays_so(count, posted):
            self._note(self._mark._replace(seen=count, reported=""))
            return _SOON
        if ahead or (grown and (self._status != "running" or grown > _MOST_GROWN)):
            return self._fetch(count)
        if count != self._mark.seen and self._status == "running":  # it works
            self._note(self._mark._replace(seen=count, reported=""))
            return _SOON
        return self._compare_status(count)

    def is_forgotten(self) -> bool:
        """Whether the last comparison has found the conversation unknown to its agent server too."""
        if self._mark.reported == _UNKNOWN:
            return True
        self._note(self._mark._replace(reported=_UNKNOWN))
        return False

    @property
    def _status(self) -> str:
        return str(self._state["execution_status"])

    def _stays_so(self, count: int, posted: int) -> bool:
        """Whether our log lacks what the last comparison has seen at the agent, or has what the agent still lacks."""
        seen = self._mark.seen
        return seen >= 0 and (self._mark.ahead(seen, posted) > 0 or seen == count)

    def _fetch(self, count: int) -> float | None:
        """Compare the logs by ids, and append what is missing."""
        mark, is_whole = catch_up(
            self._store, self._agent, self._id, self._sandbox_id, self._mark, most_pages=_MOST_PAGES
        )
        now = self._agent.count_events(self._id)
        if not is_whole:
            self._note(mark._replace(seen=now))
            return _AT_ONCE
        if now != count:  # the agent works: what the mark has of both logs may be of two times
            self._note(mark._replace(seen=now))
            return _SOON
        self._note(mark._replace(length=now, seen=now))  # an event that no webhook would take counts too
        return _AT_ONCE

    def _compare_status(self, count: int) -> float | None:
        theirs, ours = self._agent.state(self._id).get("execution_status"), self._status
        interrupted = bool(self._state["interrupted"])
        settled = self._mark._replace(seen=count, reported="")
        if theirs == ours or theirs not in _STATUSES:
            self._note(settled, ended=interrupted)
            return _SOON if ours == "running" else None
        if theirs == "running" and not interrupted:  # nothing bears it out: an agent may not know of its own end
            self._note(settled)
            return None
        if not interrupted and self._mark.reported != theirs:
            self._note(settled._replace(reported=str(theirs)))
            return _SOON
        if self._agent.count_events(self._id) != count:
            return _SOON
        try:
            self._set_status(str(theirs))
        except Outdated:  # the agent has gone on since it was asked
            return _SOON
        self._note(settled, ended=interrupted)
        return _SOON if theirs == "running" else None

    def _set_status(self, status: str) -> None:
        """Show the agent's status. One that waits no longer says so as the agent does, which tells what was resumed."""
        waited = self._status == "waiting_for_confirmation"
        change: dict[str, Any] = {"key": "execution_status", "value": status}
        if waited:
            change = {"key": "full_state", "value": {"execution_status": status}}
        event = own_event(str(uuid4()), "ConversationStateUpdateEvent", wire.now(), **change)
        posted = posted_of(self._state)
        self._store.events.append(self._id, [event], sandbox_id=self._sandbox_id, made_here=not waited, posted=posted)

    def _note(self, mark: Mark, *, ended: bool = False) -> None:
        if mark != self._mark or ended:
            before = self._state["agent_log"] or ()
            self._store.sandboxes.checks.note(self._id, before, mark, ended=ended)
