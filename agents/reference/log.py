"""What has happened in a conversation of the reference agent, and what is left to do."""

from typing import Any, NamedTuple
from uuid import UUID

from agents.reference import events
from agents.reference.events import Event
from agents.reference.journal import Journal, Kept
from agents.reference.webhooks import Webhooks

#: `max_iterations` of a conversation whose start request has none; source: the agent-server wire
MOST_RESPONSES = 500


#: what this agent understands of decisions. Source: docs/agents.md
CAPABILITIES = ["decide_each", "edit"]


class State(NamedTuple):
    """What is left to do after a step. The lists hold ids of events; a list is replaced, never changed.

    The open actions are approved, unless the status is `waiting_for_confirmation`: then those in `decided` are.
    """

    policy: dict[str, Any]
    status: str = "idle"
    unanswered: list[str] = []  # messages
    open: list[str] = []  # actions without a result
    started: bool = False  # the first open action is about to be executed, is, or was cut short
    decided: dict[str, dict[str, Any]] = {}  # by id the single decisions about open actions; see `decisions.py`
    stats: dict[str, Any] = {}  # the usage of the model, as the wire has the metrics of one


class Log:
    """The events and the state of a conversation, which change by steps; each is written before it is shown or posted.

    Not thread-safe: the conversation's lock guards every write.
    """

    def __init__(self, kept: Kept, journal: Journal, webhooks: Webhooks) -> None:
        self.start = kept.start
        self.events = kept.events
        self.state = State(**kept.state) if kept.state else State(kept.start["confirmation_policy"])
        self._journal = journal
        self._webhooks = webhooks
        self._unsaid: list[Event] = []  # has happened, but the disk refused it: the next step writes it first

    @property
    def most_responses(self) -> int:
        """Responses of the agent in one run after which the run ends."""
        return int(self.start.get("max_iterations", MOST_RESPONSES))

    def info(self) -> dict[str, Any]:
        """The ConversationInfo of the agent-server wire."""
        updated_at = self.events[-1]["timestamp"] if self.events else self.start["created_at"]
        return {
            **{name: self.start[name] for name in ("id", "agent", "workspace", "title", "tags")},
            "execution_status": self.state.status,
            "confirmation_policy": self.state.policy,
            "max_iterations": self.most_responses,
            "capabilities": CAPABILITIES,
            "stats": usage(self.state.stats),
            "created_at": f"{self.start['created_at']}Z",
            "updated_at": f"{updated_at}Z",
        }

    def find(self, event_id: str) -> Event | None:
        return next((event for event in reversed(self.events) if event["id"] == event_id), None)

    def known(self, event_id: str) -> Event:
        """An event that the state names."""
        event = self.find(event_id)
        assert event is not None, f"no event {event_id} in {self.start['id']}"
        return event

    def first_open(self) -> Event:
        return self.known(self.state.open[0])

    def step(self, state: State, step: list[Event]) -> None:
        """Write a step, then show and post it. Raises DiskError; then nothing has changed."""
        step = [*self._unsaid, *step]
        self._journal.append(step, state._asdict())
        self._unsaid = []
        self.state = state
        self.events += step
        conversation = UUID(self.start["id"]).hex
        for event in step:
            self._webhooks.put(f"/events/{conversation}", [event])
        if any(event["kind"] == "ConversationStateUpdateEvent" for event in step):
            self.post_info()

    def record(self, state: State, step: list[Event]) -> None:
        """As `step`, of what cannot be undone: after a DiskError the state is the new one; the next step writes it."""
        self.state = state
        self._unsaid += step
        self.step(state, [])

    def show(self, event: Event) -> None:
        """Post an event that is not kept, to those who follow the conversation now."""
        self._webhooks.put(f"/events/{UUID(self.start['id']).hex}", [event], is_kept=False)

    def remove(self) -> None:
        """Remove everything from the disk. Raises DiskError; then nothing has changed."""
        self._journal.remove()
        self.state = self.state._replace(status="deleting")
        self.post_info()

    def post_info(self) -> None:
        self._webhooks.put("/conversations", self.info())


def usage(stats: dict[str, Any]) -> dict[str, Any]:
    """The `stats` of the wire: one model's metrics, once it has been used."""
    return {"usage_to_metrics": {"agent": stats} if stats else {}}


def moved(state: State, status: str, step: list[Event]) -> State:
    """The state with another status; the event that tells the change is added to the step."""
    step.append(events.change("execution_status", status))
    return state._replace(status=status)
