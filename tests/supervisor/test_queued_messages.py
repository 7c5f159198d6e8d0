"""A supervisor's deliveries of queued messages: once each, whatever ends in between, and an event where one fails."""

import json
import threading
from types import SimpleNamespace
from uuid import uuid4

import pytest

from agents.commands import Commands
from agents.deletions import delete
from store.approvals.audit import DecisionActor
from store.conversations.queued_messages import QueuedMessage
from store.errors import LogTooLong
from supervisor import queued_messages
from supervisor.queued_messages import GIVEN_UP, MessageDriver, deliver
from tests.agents import SPECS, agent_client, propose, running_sandbox, scripted_agent
from tests.conftest import as_events, event, message, no_threads, status
from tests.servers import wait_until


@pytest.fixture
def commands(store):
    return Commands(store, agent_client(2), SPECS)


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
    sender = DecisionActor("message", "someone", may_decide=may_decide)
    return store.conversations.queued_messages.put(conversation, content=[{"type": "text", "text": text}], actor=sender)


def claimed(store, conversation) -> QueuedMessage | None:
    """The first message of a conversation's queue, whoever has its lease; queues of other tests are passed over."""
    redis = store.start_tasks._redis
    if redis.zscore("{starts}:queues", conversation) is None:
        return None
    redis.zadd("{starts}:queues", {conversation: 0})
    while (queued := store.conversations.queued_messages.claim()) and queued.conversation_id != conversation:
        pass
    return queued


def drive(store, commands, conversation):
    """Deliver until the queue rests or is empty."""
    if queued := claimed(store, conversation):
        deliver(store, commands, queued)


def drive_due(monkeypatch, driver: MessageDriver, claims: list) -> None:
    """Have a driver find these queues, the last one first, and none of other tests."""
    with monkeypatch.context() as patch:
        patch.setattr(driver._store.conversations.queued_messages, "claim", claims.pop)
        driver.drive_due()


def texts(agent):
    return [body["content"][0]["text"] for body in agent.posted("/events")]


def errors(store, conversation):
    found, _ = store.events.search(conversation, kind="ConversationErrorEvent")
    return [json.loads(raw)["detail"] for raw in found]


def test_a_message_that_an_agent_has_received_is_not_sent_again_after_a_kill(store, commands, agent, conversation):
    put(store, conversation, "earlier")
    killed = claimed(store, conversation)
    store.conversations.queued_messages.note_sent(killed, agent.logs[conversation][-1]["id"])
    agent.logs[conversation].append(message("earlier"))  # it was received, then the supervisor was killed

    drive(store, commands, conversation)

    assert texts(agent) == []
    assert claimed(store, conversation) is None


def test_a_message_that_an_agent_has_not_received_is_sent_after_a_kill(store, commands, agent, conversation):
    put(store, conversation, "earlier")  # as an older message said
    killed = claimed(store, conversation)
    store.conversations.queued_messages.note_sent(killed, agent.logs[conversation][-1]["id"])

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


def receives(agent, conversation):
    """Have the agent's own log take each message that it is sent."""

    def take(path):
        if path.endswith("/events") and (sent := agent.posted("/events")):
            agent.logs[conversation].append(message(sent[-1]["content"][0]["text"]))

    agent.on_request = take


def test_a_driver_that_was_stopped_before_it_sent_sends_nothing_after_another_one(
    store, commands, agent, conversation, monkeypatch
):
    put(store, conversation)
    receives(agent, conversation)
    late, open_delivery = claimed(store, conversation), store.approvals.deliveries.open

    def stopped(*args):
        """Its lease ends, another driver delivers, and then it goes on."""
        monkeypatch.setattr(store.approvals.deliveries, "open", open_delivery)
        drive(store, commands, conversation)
        return open_delivery(*args)

    monkeypatch.setattr(store.approvals.deliveries, "open", stopped)
    deliver(store, commands, late)

    assert texts(agent) == ["hello"]
    assert claimed(store, conversation) is None


@pytest.mark.process("waits for what threads do")
def test_a_supervisor_whose_clock_steps_while_an_agent_is_slow_sends_a_message_once(
    store, commands, agent, conversation, monkeypatch
):
    put(store, conversation)
    go_on = threading.Event()
    agent.on_request = lambda path: path.endswith("/events") and go_on.wait(60)
    driver = MessageDriver(store, commands)
    drive_due(monkeypatch, driver, [None, claimed(store, conversation)])
    wait_until(lambda: texts(agent), "the message")
    drive_due(monkeypatch, driver, [None, claimed(store, conversation)])  # its lease has ended

    assert len(driver._driven) == 1
    agent.logs[conversation].append(message("hello"))
    go_on.set()
    wait_until(lambda: not driver._driven, "the end of the driver")
    drive(store, commands, conversation)
    assert texts(agent) == ["hello"]
    assert claimed(store, conversation) is None


@pytest.mark.process("waits for what threads do")
def test_messages_to_an_agent_that_is_slow_leave_threads_to_those_of_other_sandboxes(
    store, commands, agent, box, conversation, monkeypatch
):
    # Given two conversations of an agent that hangs, of which one may be sent to at a time
    monkeypatch.setattr(queued_messages, "MOST_OF_ONE", 1)
    second = str(uuid4())
    store.conversations.create(second, sandbox_id=box.id, app={})
    agent.logs[second] = [event("PauseEvent")]
    go_on = threading.Event()
    agent.on_request = lambda _: go_on.wait(60)
    with scripted_agent() as other, running_sandbox(store, other.url) as other_box:
        elsewhere = str(uuid4())
        store.conversations.create(elsewhere, sandbox_id=other_box.id, app={})
        other.state, other.logs[elsewhere] = {"execution_status": "idle"}, [event("PauseEvent")]
        for one in (conversation, second, elsewhere):
            put(store, one)
        driver = MessageDriver(store, commands)

        # When all are due
        drive_due(monkeypatch, driver, [None, *(claimed(store, one) for one in (elsewhere, second, conversation))])

        # Then the other sandbox's agent gets its message, and the second queue is due again
        wait_until(lambda: texts(other) == ["hello"], "the message of the other sandbox")
        assert second not in driver._driven
        # Nobody has tried: no time until its next turn counts toward giving it up
        assert store.start_tasks._redis.hget(f"{{starts}}:queued:{second}", "tried") == b"0 0"
        go_on.set()
        wait_until(lambda: not driver._driven, "the end of the drivers")
        agent.on_request = lambda _: None
        drive(store, commands, second)
        assert len(texts(agent)) == 2


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


@pytest.mark.parametrize("status", [409, 429])
def test_a_message_that_an_agent_puts_off_is_sent_again(store, commands, agent, conversation, status):
    put(store, conversation)
    agent.on_request = lambda path: path.endswith("/events") and agent.statuses.append(status)
    drive(store, commands, conversation)
    agent.on_request = lambda _: None
    drive(store, commands, conversation)

    assert texts(agent)[-1] == "hello"
    assert errors(store, conversation) == []


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


def test_an_error_that_nobody_foresaw_gives_a_message_up_and_the_next_is_sent(
    store, commands, agent, conversation, monkeypatch
):
    put(store, conversation, "bad")
    put(store, conversation, "good")
    with monkeypatch.context() as patch:
        patch.setattr(Commands, "send_to_agent", lambda *_, **__: {}["absent"])
        drive(store, commands, conversation)
        assert errors(store, conversation) == []
        _, last = map(int, store.events._redis.hget(f"{{starts}}:queued:{conversation}", "tried").split())
        store.events._redis.hset(f"{{starts}}:queued:{conversation}", "tried", f"31000000 {last}")
        drive(store, commands, conversation)

    drive(store, commands, conversation)

    [detail] = errors(store, conversation)
    assert "unforeseen KeyError" in detail
    assert "bad" in detail
    assert texts(agent) == ["good"]


def test_a_message_that_is_given_up_leaves_its_queue_though_the_log_takes_no_event(
    store, commands, agent, conversation, monkeypatch, caplog
):
    def refuse(*_, **__):
        raise LogTooLong(1)

    put(store, conversation, "bad")
    put(store, conversation, "good")
    with monkeypatch.context() as patch:
        patch.setattr(store.events, "append", refuse)
        agent.on_request = lambda path: path.endswith("/events") and agent.statuses.append(422)
        drive(store, commands, conversation)
    agent.on_request = lambda _: None

    drive(store, commands, conversation)

    assert texts(agent) == ["bad", "good"]
    assert "its log refuses the event of this" in caplog.text


def test_a_message_that_is_no_unicode_is_for_its_agent_to_refuse_and_the_next_is_sent(
    store, commands, agent, conversation
):
    put(store, conversation, "lone \ud83d")  # as a release queued it that took any text
    put(store, conversation, "good")
    agent.on_request = lambda path: path.endswith("/events") and agent.statuses.append(422)
    drive(store, commands, conversation)
    agent.on_request = lambda _: None
    drive(store, commands, conversation)

    assert texts(agent) == ["lone \ud83d", "good"]
    [detail] = errors(store, conversation)
    assert detail.endswith("lone \ud83d")


@pytest.mark.parametrize("apart", [300, 3600, -3600])
def test_time_in_which_nobody_tried_and_a_step_of_the_clock_give_no_message_up(
    store, commands, agent, conversation, apart
):
    put(store, conversation)
    agent.broken[conversation] = 500
    drive(store, commands, conversation)
    key = f"{{starts}}:queued:{conversation}"
    _, last = map(int, store.events._redis.hget(key, "tried").split())
    store.events._redis.hset(key, "tried", f"{598_000_000} {last - apart * 1_000_000}")

    drive(store, commands, conversation)
    assert errors(store, conversation) == []

    agent.broken.clear()
    drive(store, commands, conversation)
    assert texts(agent) == ["hello"]


def test_time_in_which_a_message_only_waits_gives_it_up_at_no_failure_after_it(store, commands, agent, box):
    conversation = str(uuid4())
    propose(store, conversation, box.id)
    put(store, conversation, may_decide=False)
    store.events._redis.hset(f"{{starts}}:queued:{conversation}", "tried", f"{GIVEN_UP * 1e6:.0f} 0")
    drive(store, commands, conversation)

    assert store.events._redis.hget(f"{{starts}}:queued:{conversation}", "tried") == b""
    assert errors(store, conversation) == []


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


def test_a_message_to_a_sandbox_of_a_lost_host_waits_for_the_host_and_starts_nothing(
    store, commands, agent, box, conversation, monkeypatch
):
    monkeypatch.setattr(queued_messages, "GIVEN_UP", 0.0)
    put(store, conversation)
    store.sandboxes.report(box.id, "scripted", "supervisor", "MISSING")
    for _ in range(2):
        drive(store, commands, conversation)
    assert (errors(store, conversation), store.sandboxes.get(box.id).status) == ([], "MISSING")

    store.sandboxes.report(box.id, "scripted", "supervisor", "RUNNING")
    drive(store, commands, conversation)

    assert texts(agent) == ["hello"]


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


@pytest.mark.parametrize("record", [b"{", b"[]", b'{"content": []}', b"\xff\xfe", b""])
def test_a_message_whose_record_cannot_be_read_is_given_up_and_the_next_one_goes_on(
    store, commands, agent, conversation, record
):
    put(store, conversation, "lost")
    put(store, conversation, "next")
    redis, queue = store.start_tasks._redis, f"{{starts}}:queue:{conversation}"
    identity = redis.lindex(queue, 0).partition(b" ")[0]
    redis.lset(queue, 0, identity + b" " + record if record else b"")

    drive(store, commands, conversation)
    drive(store, commands, conversation)

    assert texts(agent) == ["next"]
    assert store.conversations.queued_messages.waiting_for(conversation) == 0
    [raw], _ = store.events.search(conversation, kind="ConversationErrorEvent")
    assert json.loads(raw)["code"] == "MessageNotDelivered"
    assert "its record in the queue cannot be read" in json.loads(raw)["detail"]


def test_a_queue_that_gets_no_thread_keeps_no_place(store, commands, monkeypatch):
    driver, queued = MessageDriver(store, commands), SimpleNamespace(conversation_id=str(uuid4()))
    with no_threads(), pytest.raises(RuntimeError, match="new thread"):
        drive_due(monkeypatch, driver, [None, queued])

    assert driver._driven == {}
