"""Deliveries of decisions to an agent, against a scripted agent server on real sockets."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from agents.client import AgentRefused, AgentUnreachable
from agents.commands import Commands, NotReachable
from store.approvals.audit import SERVER
from store.errors import ActionsWait
from supervisor.deliveries import deliver
from tests.agents import DUE, SPECS, agent_client, claimed, end_leases, lease_key, propose
from tests.conftest import action, as_events, status
from tests.servers import wait_until


def drive(store, commands, conversation):
    """Drive the delivery of a conversation as a supervisor does after the lease has ended."""
    end_leases(store, conversation)
    claim = claimed(store, conversation)
    if claim is not None:
        deliver(store, commands, claim)


def entries(store, conversation):
    """The due times of a conversation's deliveries."""
    stored = store.events._redis.zrange(DUE, 0, -1, withscores=True)
    return [at for entry, at in stored if conversation.encode() in entry]


def lease(store, sandbox):
    return store.events._redis.get(lease_key(sandbox.id))


def test_a_decision_is_delivered_once(store, commands, waiting, sandbox, agent):
    assert commands.decide(waiting, accept=True, reason="fine")
    assert not commands.decide(waiting, accept=True, reason="fine")
    assert agent.decisions == [{"accept": True, "reason": "fine"}]
    store.events.append(waiting, as_events([status("running")]), sandbox_id=sandbox.id)
    agent.state = {"execution_status": "running"}
    drive(store, commands, waiting)  # a moment later: the agent has left the status
    assert len(agent.decisions) == 1
    assert store.approvals.deliveries.get(waiting) is None
    assert lease(store, sandbox) is None


@pytest.mark.faults("a race of threads")
def test_an_agent_that_takes_longer_than_the_old_timeout_receives_a_decision_once(store, waiting, sandbox, agent):
    # Given an agent that responds after a supervisor has polled for due deliveries
    commands, polled = Commands(store, agent_client(60), SPECS), threading.Event()
    agent.on_request = lambda _: polled.wait(30)
    with ThreadPoolExecutor(1) as pool:
        deciding = pool.submit(commands.decide, waiting, accept=False, reason="no")
        wait_until(lambda: agent.decisions, "the call of the agent")

        # When the supervisor polls seconds later
        seconds, micros = store.events._redis.time()
        [due_at] = entries(store, waiting)
        left = due_at / 1e6 - seconds - micros / 1e6

        # Then the delivery is not due before the deadline of the call
        assert left > 60
        assert claimed(store, waiting) is None
        polled.set()
        assert deciding.result(30) is True
    assert agent.decisions == [{"accept": False, "reason": "no"}]
    assert store.approvals.deliveries.get(waiting) is None


def test_the_lease_of_a_delivery_is_longer_than_a_call_that_is_tried_twice(store):
    for seconds in (0.1, 10, 600):
        timeout = agent_client(seconds).timeout
        assert timeout.read < Commands(store, agent_client(seconds), SPECS).courier.lease_seconds <= timeout.read + 5


def test_a_delivery_whose_worker_was_killed_before_the_agent_was_called_reaches_it(store, commands, waiting, agent):
    sandbox_id = store.conversations.sandbox_of(waiting)
    claim = store.approvals.deliveries.open(waiting, sandbox_id, commands.courier.lease_seconds)
    store.approvals.deliveries.decide(claim, "reject", actor=SERVER, reason="no")

    drive(store, commands, waiting)

    assert agent.decisions == [{"accept": False, "reason": "no"}]
    assert store.approvals.deliveries.get(waiting) is None


def test_a_worker_that_stalled_for_longer_than_its_lease_delivers_nothing(store, commands, waiting, agent, monkeypatch):
    decide, opened = store.approvals.deliveries.decide, store.approvals.deliveries.open

    def decide_and_stand_still(claim, verb, **decision):
        delivery = decide(claim, verb, **decision)
        drive(store, commands, waiting)
        return delivery

    def open_long_ago(*words):
        claim = opened(*words)
        return claim._replace(asked_at=claim.asked_at - 60)

    monkeypatch.setattr(store.approvals.deliveries, "decide", decide_and_stand_still)
    monkeypatch.setattr(store.approvals.deliveries, "open", open_long_ago)

    assert commands.decide(waiting, accept=False, reason="no")

    assert len(agent.decisions) == 1
    assert store.approvals.deliveries.get(waiting) is None


def test_a_delivery_whose_worker_was_killed_before_it_decided_is_forgotten(store, commands, waiting, sandbox, agent):
    store.approvals.deliveries.open(waiting, sandbox.id, commands.courier.lease_seconds)

    drive(store, commands, waiting)

    assert agent.requests == []
    assert len(store.approvals.confirmations.pending(waiting)) == 1
    assert commands.decide(waiting, accept=True, reason="")


def test_an_acceptance_that_the_agent_took_and_dropped_is_delivered_again(store, commands, waiting, sandbox, agent):
    """A published agent server drops decisions between its report that it waits and the end of its run."""
    commands.decide(waiting, accept=True, reason="")

    drive(store, commands, waiting)

    assert len(agent.decisions) == 2
    assert store.approvals.deliveries.get(waiting) is not None
    store.events.append(waiting, as_events([status("running")]), sandbox_id=sandbox.id)
    agent.state = {"execution_status": "running"}
    drive(store, commands, waiting)
    assert len(agent.decisions) == 2
    assert store.approvals.deliveries.get(waiting) is None


@pytest.mark.parametrize("failure", [0, 500, 503])
def test_a_decision_that_the_agent_did_not_take_is_delivered_again(store, commands, waiting, sandbox, agent, failure):
    agent.statuses = [failure]

    assert commands.decide(waiting, accept=False, reason="no")

    assert store.approvals.deliveries.get(waiting) is not None
    assert lease(store, sandbox) is None
    agent.statuses = [
        200,
        200,
        failure,
    ]  # the state, the latest action, the decision
    drive(store, commands, waiting)
    assert store.approvals.deliveries.get(waiting) is not None
    drive(store, commands, waiting)
    assert store.approvals.deliveries.get(waiting) is None
    assert agent.decisions == [{"accept": False, "reason": "no"}] * 3


@pytest.mark.parametrize("moved_on", ["no longer waits", "waits for another action"])
def test_a_received_decision_does_not_apply_to_later_actions(store, commands, waiting, agent, moved_on):
    agent.statuses = [0]  # received, but the response was lost
    commands.decide(waiting, accept=True, reason="")
    if moved_on == "no longer waits":
        agent.state = {"execution_status": "running"}
    else:
        agent.latest = "another"

    drive(store, commands, waiting)

    assert len(agent.decisions) == 1
    assert store.approvals.deliveries.get(waiting) is None


def test_a_driver_whose_lease_ends_while_the_agent_responds_delivers_nothing(store, commands, waiting, sandbox, agent):
    agent.statuses = [500]
    commands.decide(waiting, accept=False, reason="no")
    agent.on_request = lambda _: store.events._redis.delete(lease_key(sandbox.id))

    drive(store, commands, waiting)

    assert len(agent.decisions) == 1
    assert store.approvals.deliveries.get(waiting) is not None


@pytest.mark.faults("a race of threads")
def test_conversations_of_one_agent_that_are_decided_at_once_are_delivered_one_after_the_other(
    store, commands, waiting, sandbox, agent
):
    others = [f"{waiting[:-1]}{digit:x}" for digit in range(16) if not waiting.endswith(f"{digit:x}")][:5]
    for conversation in others:
        propose(store, conversation, sandbox.id)
    inside, most, guard = 0, 0, threading.Lock()

    def count(_):
        nonlocal inside, most
        with guard:
            inside += 1
            most = max(most, inside)
        time.sleep(0.02)
        with guard:
            inside -= 1

    agent.on_request = count
    with ThreadPoolExecutor(6) as pool:
        won = pool.map(lambda one: commands.decide(one, accept=False, reason=""), [waiting, *others])

    assert list(won) == [True] * 6
    for conversation in (waiting, *others):
        drive(store, commands, conversation)
    assert most == 1
    assert len(agent.decisions) == 6


# Messages and runs: an agent server takes either for the approval of pending actions


def test_a_message_rejects_pending_actions_before_it_is_sent(commands, waiting, agent):
    commands.send(waiting, content=[], run=True)
    paths = [path.rpartition("/")[2] for path, _ in agent.requests]
    assert paths == ["respond_to_confirmation", "events"]
    assert agent.decisions[0]["accept"] is False


def test_a_message_that_is_to_reject_nothing_is_not_sent_while_an_action_waits(
    store, commands, waiting, sandbox, agent
):
    for send in (commands.send, commands.send_to_agent):
        with pytest.raises(ActionsWait):
            send(waiting, content=[], run=True, rejects=False)
    assert len(store.approvals.confirmations.pending(waiting)) == 1
    assert lease(store, sandbox) is None
    assert [path for path, _ in agent.requests if path.startswith("POST")] == []

    commands.decide(waiting, accept=False, reason="no")
    agent.state = {"execution_status": "idle"}
    commands.send_to_agent(waiting, content=[], run=True, rejects=False)
    assert len(agent.posted("/events")) == 1


def test_a_run_that_is_to_accept_nothing_is_not_sent_while_an_action_waits(store, commands, waiting, sandbox, agent):
    with pytest.raises(ActionsWait):
        commands.change_status(waiting, "run", accepts=False)
    assert len(store.approvals.confirmations.pending(waiting)) == 1
    assert lease(store, sandbox) is None
    assert [path for path, _ in agent.requests if path.startswith("POST")] == []

    commands.decide(waiting, accept=False, reason="no")
    agent.state = {"execution_status": "idle"}
    commands.change_status(waiting, "run", accepts=False)
    assert len(agent.posted("/run")) == 1


def test_a_message_after_an_acceptance_accepts_no_later_action(commands, waiting, agent):
    commands.decide(waiting, accept=True, reason="")
    agent.latest = "another"

    commands.send(waiting, content=[], run=True)

    assert [body["accept"] for body in agent.decisions] == [True]
    assert len(agent.posted("/events")) == 1


@pytest.mark.parametrize("failure", [0, 500])
def test_a_message_whose_rejection_the_agent_did_not_receive_is_not_sent(store, commands, waiting, agent, failure):
    # The next message is not sent either: the agent still waits, and would take it for an approval.
    for statuses in ([failure], [200, 200, failure]):  # the requests for the state and the latest action are first
        agent.statuses = statuses
        with pytest.raises((AgentUnreachable, AgentRefused)):
            commands.send(waiting, content=[], run=True)
        assert agent.posted("/events") == []

    commands.send(waiting, content=[], run=True)

    assert [body["accept"] for body in agent.decisions] == [False] * 3
    assert len(agent.posted("/events")) == 1
    assert store.approvals.deliveries.get(waiting) is None


@pytest.mark.parametrize("act", ["run", "message"])
def test_neither_a_run_nor_a_message_approves_a_rejected_action(store, commands, waiting, agent, act):
    agent.statuses = [500]
    commands.decide(waiting, accept=False, reason="no")  # The agent has not received the rejection.

    if act == "run":
        commands.change_status(waiting, "run")
    else:
        commands.send(waiting, content=[], run=True)

    paths = [path.rpartition("/")[2] for path, _ in agent.requests if path.startswith("POST")]
    assert paths == ["respond_to_confirmation", "respond_to_confirmation", "run" if act == "run" else "events"]
    assert [body["accept"] for body in agent.decisions] == [False, False]
    assert store.approvals.deliveries.get(waiting) is None


@pytest.mark.faults("a race of threads")
@pytest.mark.parametrize("act", ["run", "message"])
def test_neither_a_run_nor_a_message_overtakes_a_rejection_on_its_way(store, waiting, agent, monkeypatch, act):
    monkeypatch.setattr("agents.commands._LEASE_TIMEOUT", 60)
    commands = Commands(store, agent_client(30), SPECS)
    go_on = threading.Event()
    agent.on_request = lambda path: path.endswith("/respond_to_confirmation") and go_on.wait(30)
    with ThreadPoolExecutor(2) as pool:
        deciding = pool.submit(commands.decide, waiting, accept=False, reason="no")
        wait_until(lambda: agent.decisions, "the call of the agent")
        if act == "run":
            acting = pool.submit(commands.change_status, waiting, "run")
        else:
            acting = pool.submit(commands.send, waiting, content=[], run=True)
        wait_until(lambda: len(entries(store, waiting)) == 2, "the second to wait for the agent")
        assert len(agent.requests) == 1

        go_on.set()

        assert deciding.result(30) is True
        acting.result(30)
    assert [path.rpartition("/")[2] for path, _ in agent.requests] == [
        "respond_to_confirmation",
        "run" if act == "run" else "events",
    ]


def test_a_run_accepts_pending_actions(store, commands, waiting, agent):
    commands.change_status(waiting, "run")
    assert [path.rpartition("/")[2] for path, _ in agent.requests] == ["respond_to_confirmation"]
    assert agent.decisions[0]["accept"] is True


def test_a_run_after_an_acceptance_that_was_dropped_accepts_again_and_runs_nothing_else(commands, waiting, agent):
    commands.decide(waiting, accept=True, reason="")
    commands.change_status(waiting, "run")
    assert [body["accept"] for body in agent.decisions] == [True, True]
    assert agent.posted("/run") == []


def test_a_message_to_a_sandbox_that_is_paused_rejects_nothing(store, commands, waiting, sandbox, agent):
    store.sandboxes.ask(sandbox.id, "pause")
    store.sandboxes.report(sandbox.id, "scripted", "supervisor", "PAUSED")
    for act in (lambda: commands.send(waiting, content=[], run=True), lambda: commands.change_status(waiting, "run")):
        with pytest.raises(NotReachable, match="PAUSED"):
            act()
    assert len(store.approvals.confirmations.pending(waiting)) == 1
    assert agent.requests == []


def test_a_later_action_is_decided_while_an_older_delivery_is_due(store, commands, waiting, sandbox, agent):
    commands.decide(waiting, accept=True, reason="")
    following = action("next")
    agent.latest = following["id"]
    batch = as_events([status("running"), following, status("waiting_for_confirmation")])
    store.events.append(waiting, batch, sandbox_id=sandbox.id)

    assert commands.decide(waiting, accept=False, reason="no")

    drive(store, commands, waiting)
    drive(store, commands, waiting)
    assert [body["accept"] for body in agent.decisions] == [True, False]
    assert store.approvals.deliveries.get(waiting) is None
