"""Conversations whose agent server ends and starts again, against a scripted agent server on real sockets.

What a status, an action and a decision become; `test_agent_log.py` has the comparison of the logs.
"""

from dataclasses import replace

import pytest

from agents.client import AgentUnreachable
from agents.commands import Commands
from supervisor.deliveries import deliver
from tests.agents import SPECS, agent_client, claimed, end_leases
from tests.conftest import action, event, message, observation, status
from tests.supervisor.logs import all_of, codes, of, pending, state

# the end of an agent server


def test_a_run_is_paused_when_its_agent_server_ends_and_the_conversation_says_why(store, recovery, sandbox, begin):
    conversation = begin(status("running"))

    for _ in range(2):  # the supervisor may be killed in between
        recovery.interrupted(sandbox, "AgentServerRestarted", "It was killed (signal 9)\nlast line")

    assert state(store, conversation) == "paused"
    [told] = of(store, conversation, "ConversationErrorEvent")
    assert (told["code"], told["source"]) == ("AgentServerRestarted", "environment")
    paused = "The run is paused: send a message or resume it to go on"
    assert told["detail"] == f"It was killed (signal 9). {paused}\nlast line"
    changes = of(store, conversation, "ConversationStateUpdateEvent")
    assert [one["value"] for one in sorted(changes, key=lambda one: one["timestamp"])] == ["running", "paused"]

    recovery.interrupted(replace(sandbox, start=2), "AgentServerEnded", "again")
    assert codes(store, conversation) == ["AgentServerRestarted", "AgentServerEnded"]


def test_a_waiting_conversation_still_waits_after_its_agent_server_ends(store, recovery, sandbox, begin):
    proposed = action()
    conversation = begin(proposed, status("waiting_for_confirmation"))

    recovery.interrupted(sandbox, "AgentServerEnded", "so it is")

    assert state(store, conversation) == "waiting_for_confirmation"
    assert pending(store, conversation) == [proposed["id"]]


@pytest.mark.parametrize("present", ["idle", "finished", "error", "stuck", "paused"])
def test_the_end_of_an_agent_server_keeps_the_status_of_a_conversation_without_a_run(
    store, recovery, sandbox, begin, present
):
    conversation = begin(status(present))
    recovery.interrupted(sandbox, "AgentServerEnded", "so it is")
    assert state(store, conversation) == present


def test_a_planned_end_pauses_runs_and_is_no_error(store, recovery, sandbox, begin):
    ran, rested = begin(status("running")), begin(status("finished"))

    recovery.stopped(sandbox)

    assert (state(store, ran), state(store, rested)) == ("paused", "finished")
    assert codes(store, ran) == codes(store, rested) == []


def test_the_end_of_an_agent_server_is_appended_to_each_conversation_but_no_deleted_one(
    store, recovery, sandbox, begin
):
    conversations = [begin(status("running")) for _ in range(130)]
    store.conversations.delete(conversations[7])

    recovery.interrupted(sandbox, "AgentServerEnded", "so it is")

    del conversations[7]
    assert {state(store, one) for one in conversations} == {"paused"}
    assert len(store.conversations.get_many(conversations)) == 129


# the restart: statuses


@pytest.mark.parametrize(
    ("reported", "expected"),
    [("running", "paused"), ("paused", "paused"), ("error", "error"), ("finished", "finished"), ("new", "idle")],
)
def test_the_status_becomes_the_one_that_the_agent_reports(store, begin, settle, agent, reported, expected):
    conversation = begin(message("hello"))
    agent.reported[conversation] = reported
    settle()
    assert state(store, conversation) == expected


def test_a_conversation_is_settled_once_per_start(store, begin, settle, agent):
    conversation = begin(message("hello"))
    settle(2)
    agent.requests.clear()
    settle(2)
    assert agent.requests == []
    agent.reported[conversation] = "finished"
    settle(3)
    assert state(store, conversation) == "finished"


def test_a_conversation_that_began_after_its_start_was_settled_is_left_alone(store, begin, settle, agent):
    """A sandbox that is paused in memory and resumed goes through STARTING too, and its agents work on."""
    settle(2)
    conversation = begin(action(), status("running"))
    agent.reported[conversation] = "running"

    settle(2)

    assert (state(store, conversation), agent.requests) == ("running", [])


def test_a_settled_conversation_keeps_the_time_of_its_last_change(store, begin, settle):
    conversation = begin(message("hello"))
    before = store.conversations.get(conversation)
    settle()
    after = store.conversations.get(conversation)
    assert {before[name] == after[name] for name in ("updated_at", "revision", "seq")} == {True}


def test_an_agent_that_becomes_unreachable_is_settled_from_there_on(store, begin, settle, agent):
    first, *others = [begin(message("hello")) for _ in range(3)]
    agent.broken |= dict.fromkeys(others, 0)
    with pytest.raises(AgentUnreachable):
        settle()

    agent.broken.clear()
    agent.requests.clear()
    settle()

    assert not any(first in path for path, _ in agent.requests)
    assert agent.count("/events/count") == 2


@pytest.mark.parametrize("refusal", [401, 429, 503])
def test_a_refusal_for_now_is_retried(begin, settle, agent, refusal):
    conversation = begin(message("hello"))
    agent.broken[conversation] = refusal
    with pytest.raises(AgentUnreachable):
        settle()


def test_a_conversation_that_its_agent_server_cannot_load_says_so_and_delays_no_other(store, begin, settle, agent):
    broken, good = begin(message("hello")), begin(message("hello"), message("there"), posted=1)
    agent.broken[broken] = 500

    settle()
    settle()

    assert codes(store, broken) == ["ConversationNotRestored"]
    assert store.events.count(good) == 2


def test_an_agent_server_without_a_log_is_settled_by_its_status(store, begin, settle, agent):
    conversation = begin(message("hello"))
    agent.reported[conversation] = "finished"
    agent.statuses = [200, 404]  # its state, its number of events
    settle()
    assert state(store, conversation) == "finished"


def test_secrets_are_sent_again(store, begin, settle, agent, monkeypatch):
    conversation = begin(message("hello"))
    monkeypatch.setattr(store.conversations, "secrets_of", lambda _: {"TOKEN": "hidden"})
    settle()
    assert agent.posted("/secrets") == [{"secrets": {"TOKEN": "hidden"}}]
    assert conversation in agent.requests[0][0]


# the restart: actions


def test_a_pending_action_is_pending_again_after_a_restart(store, begin, settle, agent):
    proposed = action()
    conversation = begin(proposed, status("waiting_for_confirmation"))
    agent.reported[conversation] = "waiting_for_confirmation"

    settle()

    assert state(store, conversation) == "waiting_for_confirmation"
    assert pending(store, conversation) == [proposed["id"]]
    assert agent.decisions == []


def test_an_action_that_was_not_posted_before_a_restart_becomes_pending(store, begin, settle, agent):
    proposed = action()
    conversation = begin(status("running"), proposed, status("waiting_for_confirmation"), posted=1)
    agent.reported[conversation] = "waiting_for_confirmation"
    settle()
    assert pending(store, conversation) == [proposed["id"]]


def test_an_approved_action_that_had_begun_is_closed_although_the_agent_waits_for_it_again(
    store, begin, settle, agent, recovery, sandbox
):
    """The published agent server writes its status to its file after a step, and the change to its log before it."""
    proposed, ran = action(), status("running") | {"timestamp": "2026-11-20T20:37:23"}
    conversation = begin(proposed, status("waiting_for_confirmation"), ran, posted=2)
    Commands(store, agent_client(5), SPECS).decide(conversation, accept=True, reason="")
    recovery.interrupted(sandbox, "AgentServerRestarted", "killed")
    agent.reported[conversation] = "waiting_for_confirmation"

    settle()

    assert codes(store, conversation) == ["AgentServerRestarted", "ActionInterrupted"]
    assert [body["accept"] for body in agent.decisions] == [True, False]
    assert (pending(store, conversation), state(store, conversation)) == ([], "idle")
    assert store.approvals.deliveries.get(conversation) is None  # nothing accepts it again


def test_an_action_whose_decision_was_given_up_may_be_decided_again(store, begin, settle, agent):
    proposed = action()
    conversation = begin(proposed, status("waiting_for_confirmation"))
    agent.statuses = [0]
    Commands(store, agent_client(5), SPECS).decide(conversation, accept=True, reason="")
    store.approvals.deliveries.settle(conversation, store.approvals.deliveries.get(conversation))
    agent.reported[conversation] = "waiting_for_confirmation"

    settle()

    assert pending(store, conversation) == [proposed["id"]]


def test_an_acceptance_that_the_agent_did_not_receive_is_delivered_after_the_restart_once(store, begin, settle, agent):
    proposed = action()
    conversation = begin(proposed, status("waiting_for_confirmation"))
    agent.reported[conversation] = "waiting_for_confirmation"
    commands = Commands(store, agent_client(5), SPECS)
    agent.statuses = [0]
    commands.decide(conversation, accept=True, reason="")  # the agent server is killed before it responds

    settle()

    assert pending(store, conversation) == []  # it is decided
    for _ in range(3):
        end_leases(store, conversation)
        if claim := claimed(store, conversation):
            deliver(store, commands, claim)
        agent.reported[conversation] = "running"
    assert [body["accept"] for body in agent.decisions] == [True, True]
    assert store.approvals.deliveries.get(conversation) is None


def test_an_action_in_flight_is_closed_as_unknown_here_and_at_the_agent(store, begin, settle, agent, recovery, sandbox):
    one, two = action("first", llm_response_id="r"), action("second", llm_response_id="r")
    conversation = begin(one, two, status("running"), observation(one))
    recovery.interrupted(sandbox, "AgentServerRestarted", "killed")
    agent.reported[conversation] = "error"

    settle(2)
    settle(3)

    [told] = of(store, conversation, "UserRejectObservation")  # the agent's own, fetched
    assert told["action_id"] == two["id"]
    assert "in flight" in told["rejection_reason"]
    assert codes(store, conversation) == ["AgentServerRestarted", "ActionInterrupted"]
    assert len(agent.decisions) == 1
    assert of(store, conversation, "AgentErrorEvent") == []
    assert store.approvals.confirmations.open_ids(conversation) == []
    assert state(store, conversation) == "error"


def test_an_action_that_the_agent_knows_and_keeps_open_stays_open_for_its_next_run(
    store, begin, settle, agent, monkeypatch
):
    one = action("first")
    conversation = begin(one, status("running"))
    monkeypatch.setattr(agent, "reject", lambda *_: None)
    agent.reported[conversation] = "paused"

    settle(2)
    settle(3)

    assert of(store, conversation, "AgentErrorEvent") == []
    assert codes(store, conversation) == []
    assert pending(store, conversation) == []


def test_an_action_in_flight_that_the_agent_does_not_know_is_closed_by_an_error_of_its_tool_call(
    store, begin, settle, agent
):
    one = action("first")
    conversation = begin(one, status("running"))
    agent.logs[conversation].remove(one)
    agent.reported[conversation] = "paused"

    settle(2)
    settle(3)

    [closed] = of(store, conversation, "AgentErrorEvent")
    assert (closed["tool_call_id"], closed["tool_name"]) == (one["tool_call_id"], "terminal")
    assert codes(store, conversation) == ["ActionInterrupted"]


def test_an_action_that_the_agent_closed_itself_is_not_told_again(store, begin, settle, agent):
    one = action("first")
    ended = event("AgentErrorEvent", "agent", tool_name="terminal", tool_call_id=one["tool_call_id"], error="restart")
    conversation = begin(one, status("running"), ended, posted=2)
    agent.reported[conversation] = "error"

    settle()

    assert [told["id"] for told in of(store, conversation, "AgentErrorEvent")] == [ended["id"]]
    assert (codes(store, conversation), agent.decisions) == ([], [])


@pytest.mark.faults("settles again and again, cut off at each request")
def test_a_settlement_interrupted_at_any_request_and_repeated_has_the_same_result(store, begin, settle, agent):
    one, two = action("first", llm_response_id="r"), action("second", llm_response_id="r")
    seen = []
    for cut in range(20):
        conversation = begin(one, two, status("running"), observation(one), posted=2)
        agent.reported[conversation] = "error"
        agent.statuses = [200] * cut + [0, 0]
        try:
            settle(cut + 2)
        except AgentUnreachable:
            agent.statuses = []
            settle(cut + 2)
        agent.statuses = []
        seen.append((*codes(store, conversation), *sorted(one["kind"] for one in all_of(store, conversation))))
        store.conversations.delete(conversation)

    assert len({*seen}) == 1
    assert seen[0].count("UserRejectObservation") == 1
