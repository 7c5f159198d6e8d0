"""A supervisor's deliveries of queued messages: once each, whatever ends in between, and an event where one fails."""

import json
from uuid import uuid4

import pytest

from agents.commands import Commands
from agents.deletions import delete
from agents.link import http_client
from store.approvals.audit import Actor
from store.conversations.queued_messages import QueuedMessage
from supervisor import queued_messages
from supervisor.queued_messages import deliver
from tests.agents import SPECS, propose, running_sandbox, scripted_agent
from tests.conftest import as_events, event, message, status


@pytest.fixture
def commands(store):
    return Commands(store, http_client(2), SPECS)


@pytest.fixture
def agent():
    with scripted_agent() as agent:
        agent.state = {"execution_status": "idle"}
        yield agent


@pytest.fixture
def box(store, agent):
    with running_sandbox(store, agent.url) as box:
        yield box


@pytest.fixture
def conversation(store, agent, box):
    """A conversation in the sandbox, with a log of its own at the agent."""
    conversation = str(uuid4())
    store.conversations.create(conversation, sandbox_id=box.id, app={})
    agent.logs[conversation] = [message("earlier"), event("PauseEvent")]
    return conversation


def put(store, conversation, text="hello", *, may_decide=True):
    sender = Actor("message", "someone", may_decide=may_decide)
    return store.queued_messages.put(conversation, content=[{"type": "text", "text": text}], actor=sender)


def claimed(store, conversation) -> QueuedMessage | None:
    """The first message of a conversation's queue, whoever has its lease; queues of other tests are passed over."""
    redis = store.start_tasks._redis
    if redis.zscore("{starts}:queues", conversation) is None:
        return None
    redis.zadd("{starts}:queues", {conversation: 0})
    while (queued := store.queued_messages.claim()) and queued.conversation_id != conversation:
        pass
    return queued


def drive(store, commands, conversation):
    """Deliver until the queue rests or is empty."""
    if queued := claimed(store, conversation):
        deliver(store, commands, queued)


def texts(agent):
    return [body["content"][0]["text"] for body in agent.posted("/events")]


def errors(store, conversation):
    found, _ = store.events.search(conversation, kind="ConversationErrorEvent")
    return [json.loads(raw)["detail"] for raw in found]


def test_a_message_that_an_agent_has_received_is_not_sent_again_after_a_kill(store, commands, agent, conversation):
    put(store, conversation, "earlier")
    killed = claimed(store, conversation)
    store.queued_messages.note_sent(killed, agent.logs[conversation][-1]["id"])
    agent.logs[conversation].append(message("earlier"))  # it was received, then the supervisor was killed

    drive(store, commands, conversation)

    assert texts(agent) == []
    assert claimed(store, conversation) is None


def test_a_message_that_an_agent_has_not_received_is_sent_after_a_kill(store, commands, agent, conversation):
    put(store, conversation, "earlier")  # as an older message said
    killed = claimed(store, conversation)
    store.queued_messages.note_sent(killed, agent.logs[conversation][-1]["id"])

    drive(store, commands, conversation)

    assert texts(agent) == ["earlier"]
    assert claimed(store, conversation) is None


def test_a_message_without_a_response_is_sent_once(store, commands, agent, conversation):
    put(store, conversation)
    agent.on_request = lambda path: (
        path.endswith("/events") and (agent.statuses.append(0), agent.logs[conversation].append(message("hello")))
    )
    drive(store, commands, conversation)
    assert texts(agent) == ["hello"]

    agent.on_request = lambda _: None
    drive(store, commands, conversation)

    assert texts(agent) == ["hello"]
    assert claimed(store, conversation) is None
    assert errors(store, conversation) == []


def test_a_message_that_the_agent_refuses_leaves_an_event_and_the_next_is_sent(store, commands, agent, conversation):
    put(store, conversation, "bad")
    put(store, conversation, "good")
    agent.on_request = lambda path: path.endswith("/events") and agent.statuses.append(422)
    drive(store, commands, conversation)
    agent.on_request = lambda _: None
    drive(store, commands, conversation)

    assert texts(agent) == ["bad", "good"]
    [detail] = errors(store, conversation)
    assert "its agent did not receive it: The agent server answered 422" in detail
    assert "bad" in detail


def test_messages_to_a_sandbox_that_was_deleted_leave_an_event_each(store, commands, box, conversation):
    put(store, conversation, "a")
    put(store, conversation, "b")
    store.sandboxes.report(box.id, "scripted", "supervisor", "GONE")
    for _ in range(2):
        drive(store, commands, conversation)

    assert ["MISSING" in detail for detail in errors(store, conversation)] == [True, True]
    assert claimed(store, conversation) is None


def test_a_message_that_cannot_be_delivered_for_long_is_given_up(store, commands, agent, conversation, monkeypatch):
    put(store, conversation)
    agent.broken[conversation] = 500
    drive(store, commands, conversation)
    assert errors(store, conversation) == []

    monkeypatch.setattr(queued_messages, "GIVEN_UP", 0.0)
    drive(store, commands, conversation)

    [detail] = errors(store, conversation)
    assert "answered 500" in detail
    assert claimed(store, conversation) is None


def test_a_message_whose_sender_may_not_decide_waits_for_the_decision(store, commands, agent, box, monkeypatch):
    monkeypatch.setattr(queued_messages, "GIVEN_UP", 0.0)
    conversation = str(uuid4())
    proposed = propose(store, conversation, box.id)
    put(store, conversation, may_decide=False)
    drive(store, commands, conversation)
    assert texts(agent) == []
    assert errors(store, conversation) == []

    ends = event("ObservationEvent", "environment", action_id=proposed["id"], tool_name="terminal")
    store.events.append(conversation, as_events([ends, status("idle")]), sandbox_id=box.id)
    drive(store, commands, conversation)

    assert texts(agent) == ["hello"]


def test_a_message_whose_sender_may_decide_rejects_what_waits_first(store, commands, agent, box):
    conversation = str(uuid4())
    agent.latest = propose(store, conversation, box.id)["id"]
    put(store, conversation, may_decide=True)
    drive(store, commands, conversation)

    assert [body["accept"] for body in agent.decisions] == [False]
    assert texts(agent) == ["hello"]


def test_a_message_to_a_paused_sandbox_wakes_it_and_waits(store, commands, box, conversation):
    put(store, conversation)
    store.sandboxes.report(box.id, "scripted", "supervisor", "PAUSED")
    drive(store, commands, conversation)

    assert store.sandboxes.get(box.id).wanted == "running"
    assert claimed(store, conversation) is not None
    assert errors(store, conversation) == []


def test_a_deleted_conversation_takes_its_messages_along(store, commands, agent, conversation):
    put(store, conversation)
    late = claimed(store, conversation)
    delete(commands, conversation)
    deliver(store, commands, late)

    assert texts(agent) == []
    assert claimed(store, conversation) is None


def test_a_conversation_that_its_agent_has_forgotten_is_started_again_for_the_message(
    store, commands, agent, conversation
):
    agent.forgotten.add(conversation)
    put(store, conversation)
    drive(store, commands, conversation)

    assert [body["conversation_id"] for body in agent.posted("/api/conversations")] == [conversation]
    assert texts(agent)[-1] == "hello"
    assert claimed(store, conversation) is None
