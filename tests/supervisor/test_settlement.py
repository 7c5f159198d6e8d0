"""A conversation that its agent server has forgotten, and runs that go on by themselves after a restart."""

import pytest

from agents.commands import Commands
from agents.link import AgentUnreachable, http_client
from tests.agents import SPECS, claimed, end_leases
from tests.conftest import action, as_events, message, observation, status
from tests.supervisor.logs import all_of, codes, of, pending, state


@pytest.fixture
def forgotten(begin, agent):
    """Begin a conversation with these events, which its agent server has forgotten."""

    def do(*events: dict) -> str:
        conversation = begin(*events)
        agent.forgotten.add(conversation)
        return conversation

    return do


def test_a_forgotten_conversation_says_so_once_and_is_paused(store, forgotten, settle):
    conversation = forgotten(message("hello"), status("finished"))

    settle(2)
    settle(2)
    settle(3)

    [told] = of(store, conversation, "ConversationErrorEvent")
    assert told["code"] == "ConversationForgotten"
    assert f"/api/conversations/{conversation}/run" in told["detail"]
    assert state(store, conversation) == "paused"
    assert store.events.count(conversation) == 4  # nothing is lost


def test_the_actions_and_the_decision_of_a_forgotten_conversation_are_closed(store, forgotten, settle, agent):
    decided, waiting = action("decided"), action("waiting")
    conversation = forgotten(decided, status("waiting_for_confirmation"))
    Commands(store, http_client(5), SPECS).decide(conversation, accept=True, reason="")
    sandbox_id = store.conversations.sandbox_of(conversation)
    store.events.append(conversation, as_events([waiting]), sandbox_id=sandbox_id)

    settle()

    assert pending(store, conversation) == store.confirmations.open_ids(conversation) == []
    assert store.deliveries.get(conversation) is None
    end_leases(store, conversation)
    claimed(store, conversation)
    closed = {one["tool_call_id"] for one in of(store, conversation, "AgentErrorEvent")}
    assert waiting["tool_call_id"] in closed


def test_a_forgotten_conversation_that_began_again_says_so_again_when_it_is_forgotten_again(
    store, forgotten, settle, agent
):
    conversation = forgotten(message("hello"))
    settle(2)
    Commands(store, http_client(5), SPECS).change_status(conversation, "run")  # starts it
    fresh = message("anew", "agent")
    agent.logs[conversation] = [fresh]
    store.events.append(conversation, as_events([fresh]), sandbox_id=store.conversations.sandbox_of(conversation))
    agent.forgotten.add(conversation)

    settle(3)

    assert codes(store, conversation) == ["ConversationForgotten"] * 2


def test_a_forgotten_conversation_that_began_again_is_compared_from_its_new_beginning(store, forgotten, settle, agent):
    conversation = forgotten(*(message(f"old {number}") for number in range(5)))
    settle(2)
    agent.forgotten.clear()
    agent.logs[conversation] = [message(f"new {number}") for number in range(5)]

    settle(3)

    assert sum(one["kind"] == "MessageEvent" for one in all_of(store, conversation)) == 10


def test_a_conversation_whose_start_goes_on_is_not_forgotten_yet(store, sandbox, settle, agent):
    task = store.start_tasks.create({}, echo={})
    conversation = task.conversation_id
    store.conversations.create(conversation, sandbox_id=sandbox.id, app={"start_id": task.id})
    agent.forgotten.add(conversation)

    settle()

    assert codes(store, conversation) == []
    store.start_tasks.forget(task.id)


# runs that go on


@pytest.fixture
def interrupted(begin, recovery, sandbox):
    """Begin a conversation that ran when its agent server ended."""

    def do(*events: dict) -> str:
        conversation = begin(*events, status("running"))
        recovery.interrupted(sandbox, "AgentServerRestarted", "killed")
        return conversation

    return do


@pytest.mark.parametrize("reported", ["paused", "error", "idle", "stuck"])
def test_an_interrupted_run_goes_on_by_itself_where_the_spec_says_so(begin, interrupted, settle, agent, reported):
    ran, rested = interrupted(message("hello")), begin(message("hello"), status("paused"))
    agent.reported |= {ran: reported, rested: reported}

    settle(2, resume_runs=True)
    settle(2, resume_runs=True)
    settle(3, resume_runs=True)

    assert [path for path, _ in agent.requests if path.endswith("/run")] == [f"POST /api/conversations/{ran}/run"]


def test_an_interrupted_run_stays_paused_where_the_spec_does_not_say_so(store, interrupted, settle, agent):
    conversation = interrupted(message("hello"))
    agent.reported[conversation] = "paused"
    settle(2)
    settle(3, resume_runs=True)  # it was paused by then
    assert agent.posted("/run") == []


@pytest.mark.parametrize("reported", ["finished", "waiting_for_confirmation"])
def test_a_run_that_had_ended_is_not_run_again(interrupted, settle, agent, reported):
    conversation = interrupted(action())
    agent.logs[conversation].append(status(reported) | {"timestamp": "2026-11-20T20:37:23"})
    agent.reported[conversation] = reported
    settle(2, resume_runs=True)
    assert agent.posted("/run") == []


def test_a_run_whose_response_was_lost_approves_nothing_when_it_is_repeated(store, interrupted, settle, agent):
    # Given an agent that received the run, and waits for a decision before it could respond
    conversation = interrupted(message("hello"))
    agent.reported[conversation] = "paused"

    def run(path):
        if path.endswith("/run"):
            agent.reported[conversation] = "waiting_for_confirmation"
            agent.broken[conversation] = 0

    agent.on_request = run
    with pytest.raises(AgentUnreachable):
        settle(2, resume_runs=True)

    agent.broken.clear()
    settle(2, resume_runs=True)

    assert len(agent.posted("/run")) == 1


def test_a_refused_run_leaves_the_conversation_paused(store, interrupted, settle, agent):
    conversation = interrupted(message("hello"))
    agent.reported[conversation] = "paused"
    agent.on_request = lambda path: path.endswith("/run") and agent.statuses.append(429)
    for _ in range(2):
        settle(2, resume_runs=True)
    assert len(agent.posted("/run")) == 1
    assert state(store, conversation) == "paused"


def test_an_action_in_flight_is_closed_before_its_run_goes_on(store, interrupted, settle, agent):
    one, two = action("first", llm_response_id="r"), action("second", llm_response_id="r")
    conversation = interrupted(one, two, observation(one))
    agent.reported[conversation] = "error"

    settle(2, resume_runs=True)

    commands = [path.rpartition("/")[2] for path, _ in agent.requests if path.startswith("POST")]
    assert commands == ["respond_to_confirmation", "run"]
    assert codes(store, conversation) == ["AgentServerRestarted", "ActionInterrupted"]
