"""Compares our log of a conversation with the agent server's own log, and fetches events that were never posted.

A killed agent server has not posted its last events, a full queue has dropped its oldest, and a webhook may be refused.
Both logs only grow, and ours also has events of this server. So a mark of the last comparison is kept. Since the mark
both logs must have grown equally: the agent's log by the number of events posted to us, with its newest event among
them. Otherwise the agent's log is read from the mark, oldest first, a page at a time.

An event may be posted but never written to the agent's file, for instance at a kill. It is then only in our log, and
hides a missing event in the count. Such an event is one of the last before the agent server ended. So after a restart
the newest of our events are also looked up in the agent's newest events. An event that only we have starts the read.

Guarantee: memory is limited to one page, whatever the length of a log. Limitation: an event that only the agent has is
missed if equally many events are only here, each more than a hundred events before the end.

A comparison with a running agent finds events that were never posted, and whether the conversation still runs.
"""

import logging
import time
from collections.abc import Mapping
from typing import Any, NamedTuple
from uuid import uuid4

from agents.client import AgentRefused, AgentServer, AgentUnreachable, ResponseTooLong
from core import wire
from core.wire import EXECUTION_STATUSES, ConversationId, ReceivedEvent, own_event, read_event
from store import Store
from store.approvals.effects import is_kept
from store.errors import Outdated, TooManyKinds
from store.sandboxes.checks import Check

log = logging.getLogger("supervisor")

#: Number of events of a page, and maximum time of a comparison in seconds: an agent's pages may be endless.
_PAGE, _READ_SECONDS = 100, 30.0

#: Kinds of events that this server generates in a sandbox's conversation.
_OWN_KINDS = ("ConversationErrorEvent", "ConversationStateUpdateEvent", "AgentErrorEvent")


#: Maximum number of an agent's pages in a comparison. The next comparison continues there.
_MOST_PAGES = 50

#: Growth of both logs in a run, in events, after which ids are compared too.
_MOST_GROWN = 1000

#: Statuses of an agent that are shown.
_STATUSES = {*EXECUTION_STATUSES} - {"deleting"}

#: Timeout for the number of an agent server's events, in seconds. A running agent server meets it.
_COUNT_SECONDS = 3.0

#: Value of `LogMark.reported` if the agent server does not know the conversation.
_UNKNOWN = "unknown"

#: Delays of the next comparison in seconds: while the conversation runs or differs, and after a partial read.
_SOON, _AT_ONCE = 3.0, 0.0


class LogMark(NamedTuple):
    """Progress of the comparison of a conversation's logs, stored in its field `agent_log`."""

    start: int = -1  #: start number of the sandbox's processes at the last comparison; -1: never compared
    length: int = 0  #: events of the agent's log up to `last`, which our log has too
    posted: int = 0  #: events of our log at that time that the agent has too
    last: str = ""  #: id of the last of these events
    forgotten: bool = False  #: the agent server had forgotten the conversation, and the log says so
    seen: int = -1  #: events of the agent's log at the last comparison of numbers; -1: not since
    reported: str = ""  #: the agent's status if it differed from ours at that comparison
    resumed: str = ""  #: the user's last message before a run that resumed automatically after a crash

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> "LogMark":
        """Return the mark in a conversation's state."""
        return cls(*(state["agent_log"] or ()))

    def compared(self, length: int, posted: int, last: str) -> "LogMark":
        """Return the mark after a comparison, without the fields of the previous comparison."""
        return LogMark(self.start, length, posted, last, resumed=self.resumed)

    def ahead(self, count: int, posted: int) -> int:
        """Return how many more events the agent's log has gained since the mark than ours; negative: fewer."""
        return count - self.length - (posted - self.posted)


def posted_of(state: Mapping[str, Any]) -> int:
    """Return the number of a conversation's events that the agent has too."""
    return int(state.get("posted", 0))


def catch_up(
    store: Store,
    agent: AgentServer,
    conversation_id: ConversationId,
    sandbox_id: str,
    mark: LogMark,
    *,
    most_pages: int | None = None,
) -> tuple[LogMark, bool]:
    """Append the events that only the agent's log has, in its order.

    Return the new mark, and whether the log was read to its end: false if it has more than most_pages. A repeat appends
    nothing twice. Raises AgentUnreachable, AgentRefused, ConversationNotFound, NotItsSandbox.
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
    mark: LogMark,
    most_pages: int | None,
) -> tuple[LogMark, bool]:
    """Read the agent's log from the mark to its end, or the whole log if the agent does not know the mark's event."""
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
        if len(seen) == most_pages or time.monotonic() > until:  # the next comparison continues here
            is_whole = False
            break
    return mark.compared(count, posted_of(store.conversations.get(conversation_id)), last), is_whole


def _has_others(store: Store, conversation_id: ConversationId, newest: list[ReceivedEvent]) -> bool:
    """Return whether our log has newer posted events that are not among the agent's newest events."""
    oldest = min(event.at for event in newest)
    raws, _ = store.events.search(conversation_id, since=oldest, descending=True, limit=_PAGE)
    ids = {event.id for event in newest}
    ours = [event for event in map(read_event, raws) if event.at > oldest and event.id not in ids]
    return any(event.kind not in _OWN_KINDS for event in ours)


def _missing(store: Store, conversation_id: ConversationId, events: list[ReceivedEvent]) -> list[ReceivedEvent]:
    kept = [event for event in events if is_kept(event)]
    unknown = store.events.unknown(conversation_id, [event.id for event in kept])
    return [event for event in kept if event.id in unknown]


def _append(store: Store, conversation_id: ConversationId, sandbox_id: str, events: list[ReceivedEvent]) -> None:
    if events:
        try:
            store.events.append(conversation_id, events, sandbox_id=sandbox_id, fetched=True)
        except TooManyKinds as refusal:  # the agent would be refused too if it posted them
            log.warning("conversation %s: %d events are left out: %s", conversation_id, len(events), refusal)


class Comparison:
    """A comparison of a conversation's logs and statuses.

    Every method raises AgentUnreachable, AgentRefused, ConversationNotFound and NotItsSandbox.
    """

    def __init__(self, store: Store, agent: AgentServer, check: Check) -> None:
        self._store = store
        self._agent = agent
        self._id = check.conversation_id
        self._sandbox_id = check.sandbox_id
        self._state = store.conversations.get(self._id)
        self._mark = LogMark.of(self._state)

    def compare(self) -> float | None:
        """Compare. Return the seconds until the next comparison; None: after the next activity in the conversation."""
        posted, count = posted_of(self._state), self._agent.count_events(self._id, seconds=_COUNT_SECONDS)
        ahead, grown = self._mark.ahead(count, posted), count - self._mark.length
        if ahead and not self._stays_so(count, posted):
            self._note(self._mark._replace(seen=count, reported=""))
            return _SOON
        if ahead or (grown and (self._status != "running" or grown > _MOST_GROWN)):
            return self._fetch(count)
        if count != self._mark.seen and self._status == "running":  # the agent is working
            self._note(self._mark._replace(seen=count, reported=""))
            return _SOON
        return self._compare_status(count)

    def is_forgotten(self) -> bool:
        """Return whether the previous comparison also found that the agent server does not know the conversation."""
        if self._mark.reported == _UNKNOWN:
            return True
        self._note(self._mark._replace(reported=_UNKNOWN))
        return False

    @property
    def _status(self) -> str:
        return str(self._state["execution_status"])

    def _stays_so(self, count: int, posted: int) -> bool:
        """Return whether the difference persists since the last comparison, so that no webhook explains it."""
        seen = self._mark.seen
        return seen >= 0 and (self._mark.ahead(seen, posted) > 0 or seen == count)

    def _fetch(self, count: int) -> float | None:
        """Compare the logs by ids, and append missing events."""
        mark, is_whole = catch_up(
            self._store, self._agent, self._id, self._sandbox_id, self._mark, most_pages=_MOST_PAGES
        )
        now = self._agent.count_events(self._id)
        if not is_whole:
            self._note(mark._replace(seen=now))
            return _AT_ONCE
        if now != count:  # the agent is working: the mark may mix two states
            self._note(mark._replace(seen=now))
            return _SOON
        self._note(mark._replace(length=now, seen=now))  # also count an event that no webhook would accept
        return _AT_ONCE

    def _compare_status(self, count: int) -> float | None:
        theirs, ours = self._agent.state(self._id).get("execution_status"), self._status
        interrupted = bool(self._state["interrupted"])
        settled = self._mark._replace(seen=count, reported="")
        if theirs == ours or theirs not in _STATUSES:
            self._note(settled, ended=interrupted)
            return _SOON if ours == "running" else None
        if theirs == "running" and not interrupted:  # unconfirmed: an agent may not know of its own end
            self._note(settled)
            return None
        if not interrupted and self._mark.reported != theirs:
            self._note(settled._replace(reported=str(theirs)))
            return _SOON
        if self._agent.count_events(self._id) != count:
            return _SOON
        try:
            self._set_status(str(theirs))
        except Outdated:  # the agent has continued since it was asked
            return _SOON
        self._note(settled, ended=interrupted)
        return _SOON if theirs == "running" else None

    def _set_status(self, status: str) -> None:
        """Show the agent's status.

        If the conversation waited, the event is like the agent's, which says what was resumed.
        """
        waited = self._status == "waiting_for_confirmation"
        change: dict[str, Any] = {"key": "execution_status", "value": status}
        if waited:
            change = {"key": "full_state", "value": {"execution_status": status}}
        event = own_event(str(uuid4()), "ConversationStateUpdateEvent", wire.now(), **change)
        posted = posted_of(self._state)
        self._store.events.append(self._id, [event], sandbox_id=self._sandbox_id, made_here=not waited, posted=posted)

    def _note(self, mark: LogMark, *, ended: bool = False) -> None:
        if mark != self._mark or ended:
            before = self._state["agent_log"] or ()
            self._store.sandboxes.checks.note(self._id, before, mark, ended=ended)
