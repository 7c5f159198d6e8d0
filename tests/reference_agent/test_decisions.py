"""The reference agent takes single decisions: what is stale is refused, and a kill neither loses nor doubles one."""

import json
import random
import threading
from contextlib import suppress
from uuid import UUID, uuid4

import httpx
import pytest

from reference_agent.api import ReferenceServer
from reference_agent.log import AgentWebhooks
from tests.agents import scripted_agent
from tests.reference_agent.program import reference_agent
from tests.servers import wait_until

pytestmark = pytest.mark.process("starts an agent")


@pytest.fixture(scope="module")
def agent(tmp_path_factory):
    with reference_agent(tmp_path_factory.mktemp("agent")) as agent:
        yield agent


@pytest.fixture
def waiting(agent, effects):
    """A conversation that waits for decisions about three actions, and their ids."""
    conversation = agent.begin("AlwaysConfirm")
    agent.send(conversation, "\n".join(f"run: echo {name} >> {effects}" for name in "abc"))
    agent.until(conversation, "waiting_for_confirmation")
    return conversation, [event["id"] for event in agent.events(conversation, kind="ActionEvent")]


def decide(agent, conversation, *decisions, **members):
    body = {"accept": True, "decisions": list(decisions), **members}
    return agent.post(f"{conversation}/events/respond_to_confirmation", body)


def approve(action_id):
    return {"action_id": action_id, "decision": "approve"}


def reject(action_id, **members):
    return {"action_id": action_id, "decision": "reject", **members}


def edit(action_id, command, **members):
    return {"action_id": action_id, "decision": "edit", "arguments": {"command": command, **members}}


def kinds(agent, conversation):
    return list(agent.results(conversation).values())


def unchanged(agent, conversation):
    return agent.events(conversation), agent.client.get(conversation).json()


def test_a_run_that_accepts_nothing_is_refused_while_an_action_waits(agent, waiting, effects):
    conversation, _ = waiting
    before = unchanged(agent, conversation)

    refused = agent.post(f"{conversation}/run", {"accepts": False})

    assert (refused.status_code, unchanged(agent, conversation)) == (409, before)
    agent.post(f"{conversation}/run")
    agent.until(conversation, "finished")
    assert effects.read_text().split() == ["a", "b", "c"]


@pytest.mark.parametrize("accept", [True, False])
def test_approved_and_edited_actions_are_executed_and_rejected_ones_are_closed(agent, effects, waiting, accept):
    conversation, (a, b, c) = waiting

    response = decide(
        agent, conversation, reject(a, reason="no"), edit(b, f"echo B >> {effects}"), approve(c), accept=accept
    )

    assert response.json() == {"success": True}
    agent.until(conversation, "finished")
    assert effects.read_text().split() == ["B", "c"]
    assert kinds(agent, conversation) == [["UserRejectObservation"], ["ObservationEvent"], ["ObservationEvent"]]
    [rejected] = agent.events(conversation, kind="UserRejectObservation")
    assert (rejected["action_id"], rejected["rejection_reason"]) == (a, "no")


def test_the_observation_of_an_edited_action_says_what_was_executed(agent, waiting):
    conversation, (a, b, c) = waiting

    decide(agent, conversation, edit(a, "echo changed", is_input=False), reject(b), reject(c))

    agent.until(conversation, "finished")
    [seen] = agent.events(conversation, kind="ObservationEvent")
    notice, output = seen["observation"]["content"]
    assert json.loads(notice["text"].partition(": ")[2]) == {"command": "echo changed", "is_input": False}
    assert (output["text"], seen["observation"]["command"]) == ("changed\n", "echo changed")


def test_a_conversation_whose_actions_were_all_rejected_is_idle(agent, effects, waiting):
    conversation, ids = waiting

    decide(agent, conversation, *map(reject, ids), reason="none of these")

    agent.until(conversation, "idle")
    reasons = [one["rejection_reason"] for one in agent.events(conversation, kind="UserRejectObservation")]
    assert (reasons, effects.read_text()) == (["none of these"] * 3, "")


def test_a_conversation_goes_on_when_the_last_action_is_decided(agent, effects, waiting):
    conversation, (a, b, c) = waiting

    decide(agent, conversation, approve(b))
    decide(agent, conversation, reject(c))
    assert agent.status(conversation) == "waiting_for_confirmation"
    assert (effects.read_text(), kinds(agent, conversation)) == ("", [[], [], ["UserRejectObservation"]])

    decide(agent, conversation, edit(a, f"echo A >> {effects}"))
    agent.until(conversation, "finished")
    assert effects.read_text().split() == ["A", "b"]


@pytest.mark.parametrize("accept", [True, False])
def test_a_decision_about_all_decides_those_that_no_other_has(agent, effects, waiting, accept):
    conversation, (a, b, _) = waiting
    decide(agent, conversation, edit(a, f"echo A >> {effects}"), reject(b))

    agent.decide(conversation, accept)

    agent.until(conversation, "finished")
    assert effects.read_text().split() == (["A", "c"] if accept else ["A"])


def test_a_message_rejects_what_is_undecided_and_keeps_what_was_approved(agent, effects, waiting):
    conversation, (a, _, _) = waiting
    decide(agent, conversation, approve(a))

    agent.send(conversation, "hello")

    agent.until(conversation, "finished")
    assert effects.read_text().split() == ["a"]
    assert kinds(agent, conversation) == [["ObservationEvent"], ["UserRejectObservation"], ["UserRejectObservation"]]


@pytest.mark.parametrize("first", [approve, reject], ids=["approved", "rejected"])
def test_an_exact_repeat_changes_nothing_and_another_decision_is_refused(agent, waiting, first):
    """The response to the first request may have been lost."""
    conversation, (a, b, _) = waiting
    decide(agent, conversation, first(a))
    before = unchanged(agent, conversation)

    assert decide(agent, conversation, first(a)).status_code == 200
    other = reject if first is approve else approve
    for decisions in ([other(a)], [edit(a, "echo x")], [approve(b), other(a)]):
        response = decide(agent, conversation, *decisions)
        assert (response.status_code, a in response.json()["detail"]) == (409, True)

    assert unchanged(agent, conversation) == before


def test_unknown_actions_are_refused_and_the_others_of_the_request_are_not_decided(agent, effects, waiting):
    conversation, ids = waiting
    before = unchanged(agent, conversation)

    response = decide(agent, conversation, *map(approve, ids), approve("unknown"))

    assert (response.status_code, "unknown" in response.json()["detail"]) == (409, True)
    assert unchanged(agent, conversation) == before
    assert effects.read_text() == ""


def test_actions_that_wait_no_longer_are_refused(agent, effects, waiting):
    conversation, (a, b, c) = waiting
    agent.decide(conversation, True)
    agent.until(conversation, "finished")

    for decision in (approve(a), edit(b, f"echo x >> {effects}"), reject(c)):
        assert decide(agent, conversation, decision).status_code == 409

    assert effects.read_text().split() == ["a", "b", "c"]
    assert agent.status(conversation) == "finished"


MALFORMED = [
    [],
    {},
    "approve",
    [5],
    [{"action_id": 5, "decision": "approve"}],
    [{"decision": "approve"}],
    [{"action_id": "a"}],
    [{"action_id": "a", "decision": "accept"}],
    [{"action_id": "a", "decision": ["approve"]}],
    [{"action_id": "a", "decision": "edit"}],
    [{"action_id": "a", "decision": "edit", "arguments": ["ls"]}],
    [{"action_id": "a", "decision": "reject", "reason": 5}],
    [approve("a"), reject("a")],
]


def test_malformed_decisions_are_refused_and_nothing_is_decided(agent, waiting):
    conversation, _ = waiting
    before = unchanged(agent, conversation)

    for decisions in MALFORMED:
        body = {"accept": True, "decisions": decisions}
        response = agent.post(f"{conversation}/events/respond_to_confirmation", body)
        assert (response.status_code, len(response.json()["detail"])) == (422, 1), decisions

    assert unchanged(agent, conversation) == before


@pytest.mark.parametrize("arguments", [{}, {"command": 5}, {"path": "x"}, {"command": None}])
def test_edited_arguments_that_fit_no_tool_close_their_action_and_the_run_goes_on(agent, effects, waiting, arguments):
    conversation, (a, b, c) = waiting

    decide(agent, conversation, {"action_id": a, "decision": "edit", "arguments": arguments}, approve(b), approve(c))

    agent.until(conversation, "finished")
    assert kinds(agent, conversation) == [["AgentErrorEvent"], ["ObservationEvent"], ["ObservationEvent"]]
    [error] = agent.events(conversation, kind="AgentErrorEvent")
    assert error["error"].startswith("A person has edited the arguments, and they are invalid.")
    assert effects.read_text().split() == ["b", "c"]


@pytest.mark.faults("kills an agent")
def test_the_agent_says_that_it_takes_single_decisions_and_edits_at_the_start_and_after_a_kill(tmp_path):
    with scripted_agent() as webhook, reference_agent(tmp_path, OH_WEBHOOKS_0_BASE_URL=webhook.url) as agent:
        conversation = agent.begin()
        wait_until(lambda: webhook.posted("/conversations"), "the report")
        agent.restart()
        assert agent.client.get(conversation).json()["capabilities"] == ["decide_each", "edit", "history"]

        agent.send(conversation, "hello")
        agent.until(conversation, "finished")
        reports = webhook.posted("/conversations")
        assert {tuple(report["capabilities"]) for report in reports} == {("decide_each", "edit", "history")}


def test_single_decisions_survive_a_kill_and_the_rest_still_waits(agent, effects, waiting):
    conversation, (a, b, c) = waiting
    decide(agent, conversation, edit(a, f"echo A >> {effects}"), reject(b))
    before = unchanged(agent, conversation)

    agent.restart()

    assert unchanged(agent, conversation) == before
    assert effects.read_text() == ""
    assert decide(agent, conversation, edit(a, f"echo A >> {effects}"), reject(b)).status_code == 200
    assert decide(agent, conversation, approve(a)).status_code == 409
    decide(agent, conversation, approve(c))
    agent.until(conversation, "finished")
    assert effects.read_text().split() == ["A", "c"]


@pytest.mark.faults("kills an agent at each of its steps")
@pytest.mark.parametrize("seed", range(20))
def test_decisions_that_are_repeated_until_they_are_answered_take_effect_once_whenever_the_agent_is_killed(
    agent, effects, waiting, seed
):
    """As the server delivers: it repeats a decision while the agent waits, and runs on what was paused by the kill."""
    conversation, (a, b, c) = waiting
    requests = [[edit(a, f"echo A >> {effects}; sleep 0.01")], [reject(b)], [approve(c)]]
    chance = random.Random(seed)
    chance.shuffle(requests)
    killer = threading.Timer(chance.uniform(0, 0.08), agent.process.kill)
    killer.start()
    for request in requests:
        answered = False
        while not answered:
            try:
                answered = decide(agent, conversation, *request).status_code == 200
                assert answered
            except httpx.TransportError:
                agent.restart()
    killer.join()
    agent.restart()

    with suppress(httpx.HTTPStatusError):
        agent.post(f"{conversation}/run").raise_for_status()
    agent.until(conversation, "finished")
    first, second, third = kinds(agent, conversation)
    assert second == ["UserRejectObservation"]
    assert (len(first), len(third)) == (1, 1)
    done = effects.read_text().split()
    assert done in (["A", "c"], ["A"], ["c"], [])
    assert len(done) >= 2 - [first, third].count(["AgentErrorEvent"])
    assert [first, third].count(["AgentErrorEvent"]) <= 1


@pytest.mark.process("starts an agent after each line of its file")
def test_a_file_that_ends_after_any_line_keeps_every_decision_that_was_written(tmp_path, effects):
    identity = uuid4()
    given = {"confirmation_policy": {"kind": "AlwaysConfirm"}, "agent": None, "workspace": None}
    given |= {"title": None, "tags": {}}
    text = "\n".join(f"run: echo {name} >> {effects}" for name in "abc")
    given["initial_message"] = {"content": [{"type": "text", "text": text}], "run": True}
    played, _ = ReferenceServer("", tmp_path / "played", AgentWebhooks("", {})).start(identity, given, {})
    wait_until(lambda: not played.is_running, "the actions")
    a, b, c = played.log.state.open
    requests = [[edit(a, f"echo A >> {effects}")], [reject(b, reason="no")], [approve(c)]]
    for request in requests:
        played.decide_each(request)
    wait_until(lambda: played.log.state.status == "finished", "the end of the run")
    assert effects.read_text().split() == ["A", "c"]
    played.end()
    folder = tmp_path / "played" / identity.hex
    lines = (folder / "events.jsonl").read_bytes().splitlines(keepends=True)
    begin = next(number for number, line in enumerate(lines) if b"waiting_for_confirmation" in line)

    for number in range(begin + 2, len(lines) + 1):
        cut = tmp_path / f"cut-{number}" / identity.hex
        cut.mkdir(parents=True)
        (cut / "start.json").write_bytes((folder / "start.json").read_bytes())
        (cut / "events.jsonl").write_bytes(b"".join(lines[:number]))
        effects.write_text("")
        conversation = ReferenceServer("", cut.parent, AgentWebhooks("", {})).find(UUID(identity.hex))
        was = conversation.log.state
        if was.status == "waiting_for_confirmation":
            for request in requests:
                conversation.decide_each(request)
        elif was.status != "finished":
            conversation.run()
        wait_until(lambda found=conversation: found.log.state.status == "finished", "the end of the run")
        conversation.end()

        assert effects.read_text().split() == [name for one, name in ((a, "A"), (c, "c")) if one in was.open]
        closed = [event.get("action_id") for event in conversation.log.events if "rejection_reason" in event]
        assert closed == [b]
