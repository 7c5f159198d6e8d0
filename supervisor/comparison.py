"""One comparison of a conversation with its agent, which lives: what was never posted, and whether it still runs."""

from typing import Any
from uuid import uuid4

import wire
from agents.link import AgentServer
from store import Store
from store.sandboxes.checks import Check
from supervisor.agent_log import Mark, catch_up, posted_of
from wire import EXECUTION_STATUSES, own_event

#: pages of an agent's log that one comparison reads; the next one goes on where it ended
_MOST_PAGES = 50

#: events by which both logs may grow in a run before they are compared by ids too
_MOST_GROWN = 1000

#: statuses of an agent that are worth showing
_STATUSES = {*EXECUTION_STATUSES} - {"deleting"}

#: seconds in which an agent server that does not stand still tells the number of its events
_COUNT_SECONDS = 3.0

#: what `Mark.reported` has of an agent server that does not know the conversation
_UNKNOWN = "unknown"

#: seconds until the next comparison: while the conversation runs or differs from its agent, and of a log read in part
_SOON, _AT_ONCE = 3.0, 0.0


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
        self._set_status(str(theirs))
        self._note(settled, ended=interrupted)
        return _SOON if theirs == "running" else None

    def _set_status(self, status: str) -> None:
        """Show the agent's status. One that waits no longer says so as the agent does, which tells what was resumed."""
        waited = self._status == "waiting_for_confirmation"
        change: dict[str, Any] = {"key": "execution_status", "value": status}
        if waited:
            change = {"key": "full_state", "value": {"execution_status": status}}
        event = own_event(str(uuid4()), "ConversationStateUpdateEvent", wire.now(), **change)
        self._store.events.append(self._id, [event], sandbox_id=self._sandbox_id, made_here=not waited)

    def _note(self, mark: Mark, *, ended: bool = False) -> None:
        if mark != self._mark or ended:
            before = self._state["agent_log"] or ()
            self._store.checks.note(self._id, before, mark, ended=ended)
