"""A supervisor's deliveries: many agents at once, each given up when it never receives its decision."""

import json
import threading
from contextlib import ExitStack
from types import SimpleNamespace
from uuid import uuid4

import pytest

from agents.commands import Commands
from store.approvals.audit import SERVER
from store.errors import LogTooLong
from supervisor.deliveries import DeliveryDriver, deliver
from tests.agents import DUE, SPECS, agent_client, claimed, end_leases, propose, running_sandbox, scripted_agent
from tests.conftest import as_events, no_threads, status
from tests.servers import wait_until


@pytest.fixture
def commands(store):
    return Commands(store, agent_client(2), SPECS)


def decided(store, agent, sandbox_id, conversation=None, *, accept=False) -> str:
    """A conversation whose agent has not received the decision."""
    conversation = conversation or str(uuid4())
    agent.latest = propose(store, conversation, sandbox_id)["id"]
    claim = store.approvals.deliveries.open(conversation, sandbox_id, 30)
    assert claim.is_of(
        store.approvals.deliveries.decide(claim, "approve" if accept else "reject", actor=SERVER, reason="no")[1]
    )
    store.approvals.deliveries.close(claim, again_in=0)
    return conversation


def drive(store, commands, conversation):
    end_leases(store, conversation)
    deliver(store, commands, claimed(store, conversation))


def drive_due(monkeypatch, driver: DeliveryDriver, claims: list) -> None:
    """Have a driver find these claims, the last one first, and none of other tests."""
    with monkeypatch.context() as patch:
        patch.setattr(driver._store.approvals.deliveries, "claim", lambda _seconds: claims.pop())
        driver.drive_due()


def errors(store, conversation) -> list[dict]:
    found, _ = store.events.search(conversation, kind="ConversationErrorEvent")
    return [json.loads(raw) for raw in found]


def tried_for(store, conversation, sandbox_id, seconds: float, *, apart: float = 0.0, status: str = ""):
    """Let a decision have been tried without success for so many seconds, the last time so many ago.

    status: of the sandbox meanwhile; the one that it has.
    """
    delivery, sandbox = store.approvals.deliveries.get(conversation), store.sandboxes.get(sandbox_id)
    noted = f"{status or sandbox.status} {round(seconds * 1e6)} {sandbox.seen_at - round(apart * 1e6)}"
    store.events._redis.hset("{sandboxes}:tried", f"{delivery.id} {conversation} {sandbox_id}", noted)


@pytest.mark.process("waits for what threads do")
def test_a_hanging_agent_delays_no_other(store, monkeypatch):
    for module in ("agents.commands", "supervisor.deliveries"):
        monkeypatch.setattr(f"{module}.ACCEPTED_SECONDS", 0.05)
    commands, go_on = Commands(store, agent_client(60), SPECS), threading.Event()
    with scripted_agent() as hung, scripted_agent() as quick, running_sandbox(store, hung.url) as box:
        hung.on_request = lambda _: go_on.wait(60)
        stuck = [decided(store, hung, box.id) for _ in range(3)]
        driver = DeliveryDriver(store, commands)
        driver.drive_due()
        wait_until(lambda: hung.requests, "the call of the agent that hangs")

        for _ in range(2):
            with running_sandbox(store, quick.url) as other:
                conversation = decided(store, quick, other.id)
                driver.drive_due()
                wait_until(lambda one=conversation: store.approvals.deliveries.get(one) is None, "a delivery meanwhile")

        assert len(quick.decisions) == 2
        assert len(hung.requests) == 1  # its other deliveries wait for the first
        go_on.set()
        for conversation in stuck:

            def is_settled(one=conversation):
                end = store.approvals.deliveries.get(one) is None
                for entry in store.events._redis.zrange(DUE, 0, -1):
                    store.events._redis.zadd(DUE, {entry: 0}, xx=True)  # not a second later, as its agent was busy
                driver.drive_due()
                return end

            delivery = store.approvals.deliveries.get(conversation)  # None where it has ended meanwhile
            hung.latest = delivery.actions[0] if delivery else ""
            wait_until(is_settled, "the deliveries of the agent that hung")


@pytest.mark.process("waits for what threads do")
def test_the_number_of_concurrent_calls_to_agents_reaches_its_bound_and_no_more(store, monkeypatch):
    monkeypatch.setattr("supervisor.deliveries.MOST_AGENTS", 2)
    commands, go_on = Commands(store, agent_client(60), SPECS), threading.Event()
    with scripted_agent() as hung, ExitStack() as stack:
        hung.on_request = lambda _: go_on.wait(60)
        boxes = [stack.enter_context(running_sandbox(store, hung.url)) for _ in range(3)]
        conversations = [decided(store, hung, box.id) for box in boxes]
        driver = DeliveryDriver(store, commands)

        wait_until(lambda: driver.drive_due() or len(hung.requests) == 2, "the calls of two agents")
        for _ in range(5):
            driver.drive_due()
        assert len(hung.requests) == 2

        go_on.set()
        hung.state = {"execution_status": "running"}  # the agents have left the status

        def are_settled():
            driver.drive_due()
            return not any(store.approvals.deliveries.get(one) for one in conversations)

        wait_until(are_settled, "the deliveries of all three")


def test_a_delivery_of_a_dead_supervisor_is_driven_when_its_lease_ends(store, commands, agent, sandbox):
    conversation = decided(store, agent, sandbox.id)
    assert claimed(store, conversation) is not None  # by the dead supervisor

    drive(store, commands, conversation)

    assert agent.decisions == [{"accept": False, "reason": "no"}]
    assert store.approvals.deliveries.get(conversation) is None


def test_a_decision_reaches_an_agent_that_waits_though_its_log_says_that_it_does_not(store, commands, agent, sandbox):
    conversation = decided(store, agent, sandbox.id, accept=True)
    store.events.append(conversation, as_events([status("idle")]), sandbox_id=sandbox.id)  # of an agent before this one

    drive(store, commands, conversation)

    assert agent.decisions == [{"accept": True, "reason": "no"}]


@pytest.mark.faults("two supervisors race many times")
def test_two_supervisors_deliver_a_decision_once(store, commands, agent, sandbox):
    drivers = [DeliveryDriver(store, commands) for _ in range(2)]
    for number in range(1, 11):
        conversation = decided(store, agent, sandbox.id)

        def is_settled(one=conversation):
            threads = [threading.Thread(target=driver.drive_due) for driver in drivers]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return store.approvals.deliveries.get(one) is None

        wait_until(is_settled, "the delivery")
        assert len(agent.decisions) == number


def test_the_supervisor_gives_up_an_agent_that_keeps_waiting_and_logs_it(store, commands, agent, sandbox):
    conversation = decided(store, agent, sandbox.id, accept=True)
    tried_for(store, conversation, sandbox.id, 601)

    drive(store, commands, conversation)

    assert store.approvals.deliveries.get(conversation) is None
    assert claimed(store, conversation) is None
    [error] = errors(store, conversation)
    assert "it is still waiting" in error["detail"]


def test_paused_time_does_not_count_as_silence_of_the_agent(store, commands, agent, sandbox):
    conversation = decided(store, agent, sandbox.id, accept=True)
    tried_for(store, conversation, sandbox.id, 100_000, status="PAUSED")

    drive(store, commands, conversation)

    assert len(agent.decisions) == 1
    assert store.approvals.deliveries.get(conversation) is not None
    assert errors(store, conversation) == []


@pytest.mark.parametrize("apart", [300, 3600, -3600])
def test_time_in_which_no_supervisor_tried_and_a_step_of_the_clock_do_not_count(store, commands, agent, sandbox, apart):
    conversation = decided(store, agent, sandbox.id, accept=True)
    tried_for(store, conversation, sandbox.id, 598, apart=apart)

    drive(store, commands, conversation)

    assert store.approvals.deliveries.get(conversation) is not None
    assert errors(store, conversation) == []


@pytest.mark.parametrize("why", ["refused", "deleted"])
def test_a_decision_that_can_never_be_delivered_is_logged(store, commands, agent, sandbox, why):
    conversation = decided(store, agent, sandbox.id, accept=True)
    if why == "refused":
        agent.statuses = [404]
    else:
        store.sandboxes.report(sandbox.id, "scripted", "supervisor", "GONE")

    drive(store, commands, conversation)

    assert store.approvals.deliveries.get(conversation) is None
    [error] = errors(store, conversation)
    assert error["code"] == "AnswerNotDelivered"
    assert "accepted" in error["detail"]


def test_a_delivery_to_a_failed_sandbox_waits_for_its_resume_and_is_given_up_later(store, commands, agent, sandbox):
    conversation = decided(store, agent, sandbox.id, accept=True)
    store.sandboxes.report(sandbox.id, "scripted", "supervisor", "ERROR", detail="it ended")
    drive(store, commands, conversation)
    assert store.approvals.deliveries.get(conversation) is not None

    tried_for(store, conversation, sandbox.id, 601)
    drive(store, commands, conversation)

    assert store.approvals.deliveries.get(conversation) is None
    [error] = errors(store, conversation)
    assert (error["code"], "ERROR" in error["detail"]) == ("AnswerNotDelivered", True)


def test_a_delivery_to_a_sandbox_of_a_lost_host_waits_for_the_host(store, commands, agent, sandbox):
    conversation = decided(store, agent, sandbox.id)
    store.sandboxes.report(sandbox.id, "scripted", "supervisor", "MISSING")
    tried_for(store, conversation, sandbox.id, 100_000)
    drive(store, commands, conversation)
    assert store.approvals.deliveries.get(conversation) is not None
    assert errors(store, conversation) == []

    store.sandboxes.report(sandbox.id, "scripted", "supervisor", "RUNNING")
    drive(store, commands, conversation)

    assert len(agent.decisions) == 1
    assert store.approvals.deliveries.get(conversation) is None


def test_a_delivery_to_a_paused_sandbox_asks_for_its_resume_and_is_never_given_up(store, commands, agent, sandbox):
    conversation = decided(store, agent, sandbox.id, accept=False)
    store.sandboxes.ask(sandbox.id, "pause")
    store.sandboxes.report(sandbox.id, "scripted", "supervisor", "PAUSED")
    tried_for(store, conversation, sandbox.id, 100_000)

    drive(store, commands, conversation)

    assert agent.decisions == []
    assert store.sandboxes.get(sandbox.id).wanted == "running"
    store.sandboxes.report(sandbox.id, "scripted", "supervisor", "RUNNING")
    drive(store, commands, conversation)
    assert agent.decisions == [{"accept": False, "reason": "no"}]
    assert store.approvals.deliveries.get(conversation) is None


def test_an_internal_error_is_not_retried_for_ever(store, commands, agent, sandbox, monkeypatch):
    conversation = decided(store, agent, sandbox.id)
    monkeypatch.setattr(commands.courier, "redeliver", lambda *_: {}["absent"])

    drive(store, commands, conversation)
    assert store.approvals.deliveries.get(conversation) is not None
    tried_for(store, conversation, sandbox.id, 31)
    drive(store, commands, conversation)

    assert store.approvals.deliveries.get(conversation) is None
    assert "KeyError" in errors(store, conversation)[0]["detail"]


def test_a_decision_that_is_given_up_leaves_its_queue_though_the_log_takes_no_event(
    store, commands, agent, sandbox, monkeypatch, caplog
):
    def refuse(*_, **__):
        raise LogTooLong(1)

    conversation = decided(store, agent, sandbox.id)
    agent.broken[conversation] = 404
    monkeypatch.setattr(store.events, "append", refuse)

    drive(store, commands, conversation)

    assert store.approvals.deliveries.get(conversation) is None
    assert "its log refuses the event of this" in caplog.text


def test_the_delivery_of_a_conversation_that_was_deleted_is_forgotten(store, commands, agent, sandbox):
    conversation = decided(store, agent, sandbox.id)
    store.conversations.delete(conversation)

    drive(store, commands, conversation)

    assert agent.requests == []
    assert claimed(store, conversation) is None


@pytest.mark.process("waits for what threads do")
def test_a_supervisor_whose_clock_steps_while_an_agent_is_slow_sends_a_decision_once(store, monkeypatch):
    """A second acceptance would start the action that the agent proposes next."""
    commands, go_on = Commands(store, agent_client(60), SPECS), threading.Event()
    with scripted_agent() as agent, running_sandbox(store, agent.url) as box:
        agent.on_request = lambda path: path.endswith("/respond_to_confirmation") and go_on.wait(60)
        conversation = decided(store, agent, box.id, accept=True)
        driver = DeliveryDriver(store, commands)
        drive_due(monkeypatch, driver, [None, claimed(store, conversation)])
        wait_until(lambda: agent.decisions, "the decision")
        end_leases(store, conversation)
        drive_due(monkeypatch, driver, [None, claimed(store, conversation)])

        assert len(driver._driven) == 1
        go_on.set()
        wait_until(lambda: not driver._driven, "the end of the driver")
        assert len(agent.decisions) == 1


@pytest.mark.parametrize("field", ["delivery_reason", "delivery_actions", "delivery_decisions"])
def test_a_decision_whose_record_cannot_be_read_is_given_up_and_said(store, commands, agent, sandbox, field):
    conversation = decided(store, agent, sandbox.id)
    store.events._redis.hset(f"conv:{{{conversation}}}", field, "{")

    drive(store, commands, conversation)

    [error] = errors(store, conversation)
    assert error["code"] == "AnswerNotDelivered"
    assert "was decided, but its agent did not receive the decision: its record cannot be read" in error["detail"]
    assert store.approvals.deliveries.get(conversation) is None
    assert agent.decisions == []


@pytest.mark.parametrize("entry", [b"of-two words", b"four words in it", b"\xff \xff \xff", b"ends with a space "])
def test_an_entry_of_the_deliveries_that_cannot_be_read_holds_up_no_other(store, agent, sandbox, entry, caplog):
    conversation, redis = decided(store, agent, sandbox.id), store.events._redis
    redis.zadd("{sandboxes}:deliveries", {entry: 0})

    claims = []
    while claim := store.approvals.deliveries.claim(30):
        claims.append(claim.conversation_id)

    assert conversation in claims
    assert redis.zscore("{sandboxes}:deliveries", entry) is None
    assert "cannot be read, and is given up" in caplog.text


def test_a_delivery_that_gets_no_thread_keeps_no_place(store, commands, monkeypatch):
    driver, claim = DeliveryDriver(store, commands), SimpleNamespace(sandbox_id="box")
    with no_threads(), pytest.raises(RuntimeError, match="new thread"):
        drive_due(monkeypatch, driver, [None, claim])

    assert driver._driven == set()
