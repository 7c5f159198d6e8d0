"""The trace of a batch waits in the records of its actions for their decision, and then for the agent's next batch."""

import json
from contextlib import nullcontext
from dataclasses import dataclass, field

import pytest

from store.approvals.audit import SERVER
from store.keys import ConversationKeys
from telemetry import traces
from tests.agents import propose, running_sandbox
from tests.conftest import action, as_events, event, observation, status

BATCH = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
LATER = "00-11111111111111111111111111111111-2222222222222222-01"


@dataclass
class NotedTraces:
    """A trace that keeps what it is told."""

    traceparent: str = ""
    decided: list[dict] = field(default_factory=list)
    followed: list[str] = field(default_factory=list)

    def call(self, _method):
        return nullcontext({})

    def note_decided(self, _conversation_id, actions):
        self.decided += actions

    def fail(self, _error):
        pass

    def note_next(self, _conversation_id, traceparent):
        self.followed.append(traceparent)


@pytest.fixture
def held(store, conversation):
    """A conversation whose policy holds every action."""
    store.conversations.create(conversation)
    store.approvals.confirmations.set_policy(conversation, {"kind": "AlwaysConfirm"})
    return conversation


def append(store, conversation, *events, traceparent=""):
    """Append a batch in a trace; what the trace was told of an earlier decision."""
    noted = NotedTraces(traceparent)
    with traces.entered(noted):
        store.events.append(conversation, as_events(list(events)))
    return noted.followed


def records(store, conversation):
    stored = store.approvals.confirmations._redis.hvals(ConversationKeys(conversation).pending)
    return [json.loads(record) for record in stored]


def test_a_decision_is_told_the_trace_of_each_action_and_the_next_batch_that_of_the_decision(store, held):
    first, second = action("one"), action("two")
    append(store, held, first, second, traceparent=BATCH)
    deciding = NotedTraces(LATER)

    with traces.entered(deciding):
        assert store.approvals.confirmations.decide(held, accept=True, reason="")

    assert [one["trace"] for one in deciding.decided] == [BATCH, BATCH]
    assert {one["verb"] for one in deciding.decided} == {"approve"}
    assert [json.loads(one["tool"]) for one in deciding.decided] == ["terminal", "terminal"]
    assert [json.loads(one["call"]) for one in deciding.decided] == [first["tool_call_id"], second["tool_call_id"]]
    assert append(store, held, observation(first)) == [BATCH]
    assert append(store, held, observation(second)) == []


def test_a_rejected_action_leaves_its_trace_too(store, held):
    append(store, held, action(), traceparent=BATCH)
    store.approvals.confirmations.decide(held, accept=False, reason="no")

    assert append(store, held, event()) == [BATCH]


@pytest.mark.parametrize("overtake", ["message", "run"])
def test_a_message_and_a_run_leave_the_trace_of_what_they_decide(store, held, overtake):
    append(store, held, action(), traceparent=BATCH)

    if overtake == "message":
        store.events.send(held, content=[{"type": "text", "text": "stop"}], run=False)
    else:
        store.conversations.change_status(held, "run")

    assert append(store, held, event()) == [BATCH]


def test_a_batch_that_brings_nothing_new_leaves_the_trace_to_the_next_one(store, held):
    known = event()
    append(store, held, known, action(), traceparent=BATCH)
    store.approvals.confirmations.decide(held, accept=True, reason="")

    assert append(store, held, known) == []
    assert append(store, held, event()) == [BATCH]


def test_nothing_is_kept_where_nothing_is_traced(store, held):
    store.events.append(held, as_events([action()]))
    assert ["trace" in record for record in records(store, held)] == [False]
    store.approvals.confirmations.decide(held, accept=True, reason="")

    assert store.approvals.confirmations._redis.hget(ConversationKeys(held).root, "decided_trace") is None
    assert append(store, held, event()) == []


def test_a_repeated_decision_is_told_nothing(store, held):
    append(store, held, action(), traceparent=BATCH)
    store.approvals.confirmations.decide(held, accept=True, reason="")
    late = NotedTraces(LATER)

    with traces.entered(late):
        assert not store.approvals.confirmations.decide(held, accept=True, reason="")

    assert late.decided == []


def test_a_decision_for_the_agent_of_a_sandbox_leaves_its_trace_too(store, conversation):
    with running_sandbox(store, "http://127.0.0.1:9") as sandbox:
        with traces.entered(NotedTraces(BATCH)):
            propose(store, conversation, sandbox.id)
        claim, deciding, following = (
            store.approvals.deliveries.open(conversation, sandbox.id, 30),
            NotedTraces(LATER),
            NotedTraces(),
        )

        with traces.entered(deciding):
            won, delivery = store.approvals.deliveries.decide(claim, "approve", actor=SERVER)
        with traces.entered(following):
            store.events.append(conversation, as_events([status("running")]), sandbox_id=sandbox.id)
        store.approvals.deliveries.settle(conversation, delivery)
        store.approvals.deliveries.close(claim)

    assert won
    assert [one["trace"] for one in deciding.decided] == [BATCH]
    assert following.followed == [BATCH]
