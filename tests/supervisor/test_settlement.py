"""A restart of the agent server: what it has forgotten, what goes on by itself, and decisions it did not receive."""

import json
from dataclasses import replace

import pytest

from agents.client import AgentUnreachable
from agents.commands import Commands
from store.approvals.decisions import Decision, StaleDecision
from store.keys import ConversationKeys
from supervisor.deliveries import deliver
from supervisor.endings import IN_FLIGHT
from tests.agents import SPECS, agent_client, claimed, end_leases
from tests.conftest import action, as_events, event, message, observation, status
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
    Commands(store, agent_client(5), SPECS).decide(conversation, accept=True, reason="")
    sandbox_id = store.conversations.sandbox_of(conversation)
    store.events.append(conversation, as_events([waiting]), sandbox_id=sandbox_id)

    settle()

    assert pending(store, conversation) == store.approvals.confirmations.open_ids(conversation) == []
    assert store.approvals.deliveries.get(conversation) is None
    end_leases(store, conversation)
    claimed(store, conversation)
    closed = {one["tool_call_id"] for one in of(store, conversation, "AgentErrorEvent")}
    assert waiting["tool_call_id"] in closed


def test_a_conversation_that_is_forgotten_twice_says_so_twice(store, forgotten, settle, agent):
    conversation = forgotten(message("hello"))
    settle(2)
    Commands(store, agent_client(5), SPECS).change_status(conversation, "run")  # starts it
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


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_an_agent_that_begins_to_run_while_its_status_is_read_keeps_the_later_status(
    store, begin, settle, agent, sandbox, is_forgotten
):
    conversation = begin(message("hello"), status("idle"))
    agent.reported[conversation] = "paused"
    if is_forgotten:
        agent.forgotten.add(conversation)
    reads = []

    def begin_to_run(path: str) -> None:
        reads.append(path)
        if path.endswith(conversation) and sum(one.endswith(conversation) for one in reads) == 2 - is_forgotten:
            store.events.append(conversation, as_events([status("running")]), sandbox_id=sandbox.id)

    agent.on_request = begin_to_run
    settle()

    assert state(store, conversation) == "running"


# runs that go on


@pytest.fixture
def interrupted(begin, recovery, sandbox):
    """Begin a conversation that ran when its agent server ended."""

    def do(*events: dict, code: str = "AgentServerRestarted", resume_runs: bool | None = None) -> str:
        conversation = begin(*events, status("running"))
        recovery.interrupted(sandbox, code, "killed", resume_runs=resume_runs)
        return conversation

    return do


@pytest.mark.parametrize("reported", ["paused", "error", "idle", "stuck"])
def test_an_interrupted_run_resumes_if_the_spec_allows_it(begin, interrupted, settle, agent, reported):
    ran, rested = interrupted(message("hello")), begin(message("hello"), status("paused"))
    agent.reported |= {ran: reported, rested: reported}

    settle(2, resume_runs=True)
    settle(2, resume_runs=True)
    settle(3, resume_runs=True)

    assert [path for path, _ in agent.requests if path.endswith("/run")] == [f"POST /api/conversations/{ran}/run"]


def test_an_interrupted_run_stays_paused_if_the_spec_forbids_resuming(store, interrupted, settle, agent):
    conversation = interrupted(message("hello"), resume_runs=False)
    agent.reported[conversation] = "paused"
    settle(2)
    settle(3, resume_runs=True)  # it was paused by then
    assert agent.posted("/run") == []


@pytest.fixture
def crash(store, recovery, settle, sandbox, agent):
    """Have the agent run, crash and start again; returns the codes and details of the errors that this appends."""
    starts = iter(range(1, 99))

    def do(conversation: str) -> dict[str, str]:
        start, before = next(starts), {one["id"] for one in of(store, conversation, "ConversationErrorEvent")}
        store.events.append(conversation, as_events([status("running")]), sandbox_id=sandbox.id)
        recovery.interrupted(replace(sandbox, start=start), "AgentServerRestarted", "killed", resume_runs=None)
        agent.reported[conversation] = "paused"
        settle(start + 1, resume_runs=None)
        errors = of(store, conversation, "ConversationErrorEvent")
        return {one["code"]: one["detail"] for one in errors if one["id"] not in before}

    return do


def test_a_run_without_approvals_resumes_once_per_message(store, begin, crash, agent, sandbox):
    conversation = begin()
    store.events.append(conversation, as_events([message("hello")]), sandbox_id=sandbox.id, made_here=True)

    assert crash(conversation) == {"AgentServerRestarted": "killed. The run goes on by itself"}
    assert len(agent.posted("/run")) == 1

    again = crash(conversation)["AgentServerRestarted"]
    assert again.startswith("killed. The run stays paused: it has gone on by itself once since the last message. Send ")
    assert (len(agent.posted("/run")), state(store, conversation)) == (1, "paused")

    store.events.append(conversation, as_events([message("once more")]), sandbox_id=sandbox.id, made_here=True)
    assert crash(conversation) == {"AgentServerRestarted": "killed. The run goes on by itself"}
    assert len(agent.posted("/run")) == 2


@pytest.mark.parametrize("policy", ["AlwaysConfirm", "ConfirmRisky"])
def test_a_run_with_approvals_stays_paused_after_a_crash(store, commands, begin, crash, agent, policy):
    conversation = begin(message("hello"))
    commands.set_policy(conversation, {"kind": policy})
    told = crash(conversation)["AgentServerRestarted"]
    assert told == "killed. The run is paused: send a message or resume it to go on"
    assert (agent.posted("/run"), state(store, conversation)) == ([], "paused")


def test_a_run_that_a_limit_has_ended_does_not_go_on_when_its_sandbox_is_used_again(interrupted, settle, agent):
    conversation = interrupted(message("hello"), code="AgentServerEnded")
    agent.reported[conversation] = "paused"
    settle(2, resume_runs=None)
    assert agent.posted("/run") == []


@pytest.mark.parametrize("reported", ["finished", "waiting_for_confirmation"])
def test_a_run_that_the_agent_reports_as_ended_is_not_resumed(interrupted, settle, agent, reported):
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
    assert codes(store, conversation) == ["AgentServerRestarted", "RunNotResumed"]


def test_an_action_in_flight_is_closed_before_its_run_goes_on(store, interrupted, settle, agent):
    one, two = action("first", llm_response_id="r"), action("second", llm_response_id="r")
    conversation = interrupted(one, two, observation(one))
    agent.reported[conversation] = "error"

    settle(2, resume_runs=True)

    commands = [path.rpartition("/")[2] for path, _ in agent.requests if path.startswith("POST")]
    assert commands == ["respond_to_confirmation", "run"]
    assert codes(store, conversation) == ["AgentServerRestarted", "ActionInterrupted"]


WAITS = status("waiting_for_confirmation")
CAPABLE = event("ConversationStateUpdateEvent", "environment", key="capabilities", value=["decide_each", "edit"])


@pytest.fixture
def commands(store):
    return Commands(store, agent_client(5), SPECS)


@pytest.fixture
def waiting(begin, agent):
    """Begin a conversation whose agent takes single decisions and waits for those of two actions."""

    def do(*more: dict) -> tuple[str, dict, dict]:
        first, second = action("first", llm_response_id="one"), action("second", llm_response_id="one")
        conversation = begin(CAPABLE, first, second, WAITS, *more)
        agent.reported[conversation] = "waiting_for_confirmation"
        return conversation, first, second

    return do


def decide(commands, conversation, one, verb="approve", **members):
    commands.decide_each(conversation, [Decision(one["id"], verb, **members)])


def open_decisions(store, conversation):
    return {one["action_id"]: one["decision"] for one in store.approvals.confirmations.decided(conversation)}


def end(store, conversation, sandbox, one):
    """Have the agent end an action by itself."""
    error = event("AgentErrorEvent", "agent", tool_name="terminal", tool_call_id=one["tool_call_id"], error="Gone.")
    store.events.append(conversation, as_events([error]), sandbox_id=sandbox.id)


def retry(store, commands, conversation):
    """Have a supervisor drive the conversation's delivery, if one is due."""
    end_leases(store, conversation)
    claim = claimed(store, conversation)
    if claim is not None:
        deliver(store, commands, claim)
    return claim is not None


@pytest.mark.parametrize("verb", ["approve", "reject", "edit"])
def test_a_single_decision_counts_on_where_the_agent_waits_for_the_same_actions(
    store, commands, waiting, settle, agent, verb
):
    conversation, first, second = waiting()
    members = {"arguments": {"command": "edited"}} if verb == "edit" else {}
    decide(commands, conversation, first, verb, **members)

    settle(2)
    settle(2)
    settle(3)

    assert (agent.decisions, state(store, conversation)) == ([], "waiting_for_confirmation")
    assert [one["id"] for one in store.approvals.index.read_approvals(conversation).pending] == [second["id"]]
    with pytest.raises(StaleDecision):
        decide(commands, conversation, first, "reject")
    decide(commands, conversation, second)
    [body] = agent.decisions
    by_id = {one["action_id"]: one["decision"] for one in body["decisions"]}
    assert by_id == {first["id"]: verb, second["id"]: "approve"}
    assert len(store.approvals.index.read_approvals(conversation).audit) == 2


def test_approvals_are_void_where_another_action_has_ended_meanwhile(store, commands, waiting, settle, agent):
    conversation, first, second = waiting()
    decide(commands, conversation, second)
    tool = {"tool_name": "terminal", "tool_call_id": first["tool_call_id"]}
    agent.logs[conversation].append(event("AgentErrorEvent", "agent", **tool, error="ended"))

    settle()

    assert (agent.decisions, open_decisions(store, conversation)) == ([], {})
    assert pending(store, conversation) == [second["id"]]
    decide(commands, conversation, second, "reject")
    assert [body["accept"] for body in agent.decisions] == [False]


def test_an_approval_is_not_delivered_before_a_further_action_of_the_agent_is_decided(
    store, commands, waiting, settle, agent
):
    conversation, first, second = waiting()
    decide(commands, conversation, first)
    third = action("third", llm_response_id="one")
    agent.logs[conversation].append(third)

    settle()

    decide(commands, conversation, second)
    assert agent.decisions == []
    assert [one["id"] for one in store.approvals.index.read_approvals(conversation).pending] == [third["id"]]
    decide(commands, conversation, third, "reject")
    [body] = agent.decisions
    assert {one["action_id"] for one in body["decisions"]} == {first["id"], second["id"], third["id"]}


@pytest.mark.parametrize("reported", ["paused", "idle", "running", "error"])
def test_approvals_of_an_agent_that_waits_no_longer_are_void_and_its_actions_are_closed(
    store, commands, waiting, settle, agent, reported
):
    conversation, first, second = waiting()
    decide(commands, conversation, first)
    agent.reported[conversation] = reported

    settle()

    assert [(body["accept"], body["reason"]) for body in agent.decisions] == [(False, IN_FLIGHT)]
    assert (open_decisions(store, conversation), pending(store, conversation)) == ({}, [])
    assert {one["action_id"] for one in of(store, conversation, "UserRejectObservation")} == {
        first["id"],
        second["id"],
    }
    assert not retry(store, commands, conversation)
    assert len(agent.decisions) == 1


def test_approvals_of_a_forgotten_conversation_are_void(store, commands, waiting, settle, agent):
    conversation, first, _ = waiting()
    decide(commands, conversation, first)
    agent.forgotten.add(conversation)

    settle()

    assert (open_decisions(store, conversation), pending(store, conversation)) == ({}, [])
    agent.forgotten.clear()
    assert not retry(store, commands, conversation)
    assert agent.decisions == []


def test_decisions_that_were_not_delivered_reach_the_agent_that_waits_for_them_once(
    store, commands, waiting, settle, agent
):
    conversation, first, second = waiting()
    decide(commands, conversation, first, "reject", reason="no")
    agent.statuses = [0, 0]  # the worker gets no response
    decide(commands, conversation, second, "edit", arguments={"command": "edited"})
    lost = len(agent.decisions)

    settle()
    assert pending(store, conversation) == []
    assert retry(store, commands, conversation)

    assert agent.decisions[lost:] == [
        {
            "accept": True,
            "reason": "no",
            "decisions": [
                {"action_id": first["id"], "decision": "reject", "reason": "no"},
                {"action_id": second["id"], "decision": "edit", "arguments": {"command": "edited"}},
            ],
        }
    ]
    agent.reported[conversation] = "running"
    assert retry(store, commands, conversation)
    assert not retry(store, commands, conversation)
    assert len(agent.decisions) == lost + 1


def test_decisions_are_not_sent_to_an_agent_that_now_waits_for_another_action(store, commands, waiting, settle, agent):
    conversation, first, second = waiting()
    decide(commands, conversation, first)
    agent.statuses = [0, 0]
    decide(commands, conversation, second)
    lost = len(agent.decisions)
    ended = [
        event("AgentErrorEvent", "agent", tool_name="terminal", tool_call_id=one["tool_call_id"], error="ended")
        for one in (first, second)
    ]
    later = action("later", llm_response_id="two")
    agent.logs[conversation] += [*ended, message("again", "agent"), later]

    settle()
    retry(store, commands, conversation)

    assert len(agent.decisions) == lost
    assert pending(store, conversation) == [later["id"]]
    assert store.approvals.deliveries.get(conversation) is None


@pytest.mark.parametrize("verb", ["approve", "reject"])
def test_a_single_decision_reaches_an_agent_that_ended_the_other_action_by_itself(
    store, commands, waiting, sandbox, agent, verb
):
    conversation, first, second = waiting()
    decide(commands, conversation, first, verb)
    end(store, conversation, sandbox, second)

    assert conversation in store.approvals.checks.due()
    commands.expire(conversation)
    assert retry(store, commands, conversation)

    [decided] = agent.decisions
    assert decided["accept"] is (verb == "approve")
    assert [(one["action_id"], one["decision"]) for one in decided["decisions"]] == [(first["id"], verb)]
    store.approvals.rule_decisions.refresh(conversation)
    assert conversation not in store.approvals.checks.due()
    assert len(store.approvals.audit.of(conversation, limit=10)) == 1


def test_a_run_approves_no_action_that_was_rejected_before_the_agent_ended_the_other(
    store, commands, waiting, sandbox, agent
):
    conversation, first, second = waiting()
    decide(commands, conversation, first, "reject")
    end(store, conversation, sandbox, second)

    commands.change_status(conversation, "run")

    paths = [path.rpartition("/")[2] for path, _ in agent.requests if path.startswith("POST")]
    assert paths == ["respond_to_confirmation", "run"]
    assert agent.decisions[0]["accept"] is False


def test_an_expiry_reaches_an_agent_that_ended_its_latest_action_by_itself(store, commands, waiting, sandbox, agent):
    conversation, first, second = waiting()
    end(store, conversation, sandbox, second)
    key = ConversationKeys(conversation).pending
    record = json.loads(store.events._redis.hget(key, first["id"]))
    store.events._redis.hset(key, first["id"], json.dumps(record | {"expires": "1"}))  # its deadline has passed

    commands.expire(conversation)
    assert retry(store, commands, conversation)

    assert [one["accept"] for one in agent.decisions] == [False]


@pytest.mark.parametrize("verb", ["reject", "edit"])
def test_an_agent_that_no_longer_takes_single_decisions_executes_no_unapproved_action(
    store, commands, waiting, sandbox, agent, verb
):
    conversation, first, second = waiting()
    decide(commands, conversation, first, verb, **({"arguments": {"command": "edited"}} if verb == "edit" else {}))
    incapable = event("ConversationStateUpdateEvent", "environment", key="capabilities", value=[])
    store.events.append(conversation, as_events([incapable]), sandbox_id=sandbox.id)

    decide(commands, conversation, second, "approve")

    assert [(one["accept"], "decisions" in one) for one in agent.decisions] == [(False, False)]


def test_a_message_that_overtakes_an_edit_rejects_the_action_without_its_arguments(store, commands, waiting, agent):
    conversation, first, _ = waiting()
    decide(commands, conversation, first, "edit", arguments={"command": "edited"})

    commands.send(conversation, content=[], run=False)

    assert all("arguments" not in one for one in agent.decisions[0]["decisions"])
    entries = [json.loads(entry) for entry in store.approvals.audit.of(conversation, limit=10)]
    assert [(one["decision"], "edited" in one) for one in entries] == [("edit", True), ("reject", False)]
