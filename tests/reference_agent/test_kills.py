"""The reference agent, killed with SIGKILL and started again: its conversations go on from their files."""

import random
import threading
import time
from contextlib import suppress
from uuid import uuid4

import httpx
import pytest

from reference_agent.conversation import UNKNOWN
from tests.agents import scripted_agent
from tests.chance import often
from tests.reference_agent.program import reference_agent
from tests.servers import TIMEOUT, wait_until

pytestmark = pytest.mark.faults("kills an agent at each of its steps")

#: seconds between two looks at a conversation
POLL = 0.01


@pytest.fixture(scope="module")
def agent(tmp_path_factory):
    with reference_agent(tmp_path_factory.mktemp("agent")) as agent:
        yield agent


def finish(agent, conversation):
    """Run a conversation to its end through the API."""
    assert agent.post(f"{conversation}/run").is_success
    agent.until(conversation, "finished")


def restarted(agent, conversation):
    """The log of a conversation that the agent finds again after a kill; what was told of it before is unchanged."""
    before = agent.events(conversation)
    agent.restart()
    after = agent.events(conversation)
    assert after[: len(before)] == before
    return after


def test_a_command_that_ran_at_the_kill_is_closed_as_unknown_and_never_repeated(agent, effects):
    conversation = agent.begin()
    agent.send(conversation, f"run: echo one >> {effects}; sleep 60\nrun: echo two >> {effects}")
    wait_until(effects.read_text, "the command")

    *_, error, status = restarted(agent, conversation)

    assert (error["kind"], error["error"]) == ("AgentErrorEvent", UNKNOWN)
    assert (status["key"], status["value"]) == ("execution_status", "paused")
    assert agent.status(conversation) == "paused"
    finish(agent, conversation)
    assert effects.read_text().split() == ["one", "two"]
    assert sorted(agent.results(conversation).values()) == [["AgentErrorEvent"], ["ObservationEvent"]]


def test_a_conversation_that_waits_at_the_kill_still_waits_for_a_decision_about_the_same_actions(agent, effects):
    conversation = agent.begin("AlwaysConfirm")
    agent.send(conversation, f"run: echo one >> {effects}\nrun: echo two >> {effects}")
    agent.until(conversation, "waiting_for_confirmation")
    before = agent.events(conversation), agent.client.get(conversation).json()

    agent.restart()

    assert (agent.events(conversation), agent.client.get(conversation).json()) == before
    agent.decide(conversation, True)
    agent.until(conversation, "finished")
    assert effects.read_text().split() == ["one", "two"]


def test_actions_that_wait_at_the_kill_can_be_rejected(agent, effects):
    conversation = agent.begin("AlwaysConfirm")
    agent.send(conversation, f"run: echo one >> {effects}")
    agent.until(conversation, "waiting_for_confirmation")
    agent.restart()

    agent.decide(conversation, False, reason="no")
    finish(agent, conversation)

    assert list(agent.results(conversation).values()) == [["UserRejectObservation"]]
    assert effects.read_text() == ""


def test_actions_that_were_accepted_before_the_kill_need_no_second_decision(agent, effects):
    conversation = agent.begin("AlwaysConfirm")
    names = [str(number) for number in range(5)]
    agent.send(conversation, "\n".join(f"run: echo {name} >> {effects}; sleep 0.05" for name in names))
    agent.until(conversation, "waiting_for_confirmation")

    assert agent.decide(conversation, True).is_success
    restarted(agent, conversation)

    assert agent.status(conversation) == "paused"
    finish(agent, conversation)
    results = list(agent.results(conversation).values())
    assert all(len(result) == 1 for result in results)
    done = effects.read_text().split()
    assert done == sorted(set(done))
    assert results.count(["AgentErrorEvent"]) <= 1
    assert len(done) >= len(names) - results.count(["AgentErrorEvent"])


def test_a_kill_between_two_commands_of_a_message_leaves_the_second_to_the_next_run(agent, effects):
    conversation = agent.begin()
    agent.send(conversation, f"run: echo one >> {effects}\nrun: sleep 0.3; echo two >> {effects}")
    wait_until(lambda: agent.events(conversation, kind="ObservationEvent"), "the end of the first command")

    restarted(agent, conversation)
    finish(agent, conversation)

    first, second = agent.results(conversation).values()
    assert first == ["ObservationEvent"]
    done = effects.read_text().split()
    assert done == ["one", "two"] or (done == ["one"] and second == ["AgentErrorEvent"])


def test_an_unanswered_message_is_answered_after_the_kill(agent):
    conversation = agent.begin()
    agent.send(conversation, "hello", run=False)
    restarted(agent, conversation)

    finish(agent, conversation)

    assert [event["source"] for event in agent.events(conversation, kind="MessageEvent")] == ["user", "agent"]


def test_a_message_runs_on_what_the_kill_left(agent, effects):
    conversation = agent.begin()
    agent.send(conversation, f"run: echo one >> {effects}; sleep 60\nrun: echo two >> {effects}")
    wait_until(effects.read_text, "the command")
    restarted(agent, conversation)

    agent.send(conversation, f"run: echo three >> {effects}")

    agent.until(conversation, "finished")
    assert effects.read_text().split() == ["one", "two", "three"]


def test_a_paused_conversation_whose_command_ran_at_the_kill_stays_paused_and_tells_the_unknown_command(agent, effects):
    conversation = agent.begin()
    agent.send(conversation, f"run: echo one >> {effects}; sleep 60")
    wait_until(effects.read_text, "the command")
    agent.post(f"{conversation}/pause")

    *_, last = restarted(agent, conversation)

    assert last["kind"] == "AgentErrorEvent"
    assert agent.status(conversation) == "paused"


@pytest.mark.parametrize("milliseconds", [0, 1, 2, 3, 4, 6, 8, 12])
def test_a_start_that_is_repeated_after_a_kill_begins_the_conversation_once(agent, effects, milliseconds):
    content = [{"type": "text", "text": f"run: echo one >> {effects}"}]
    body = {"conversation_id": str(uuid4()), "initial_message": {"content": content}}
    conversation = f"/api/conversations/{body['conversation_id']}"
    killer = threading.Timer(milliseconds / 1000, agent.process.kill)
    killer.start()
    with suppress(httpx.TransportError):
        agent.post("/api/conversations", body)
    killer.join()
    agent.restart()

    assert agent.post("/api/conversations", body).is_success
    wait_until(lambda: agent.status(conversation) != "running", "the run")
    finish(agent, conversation)

    assert len(agent.events(conversation, kind="MessageEvent")) == 1
    [[result]] = agent.results(conversation).values()
    assert effects.read_text().split() == ["one"] or result == "AgentErrorEvent"


def test_a_second_kill_writes_nothing_again(agent, effects):
    conversation = agent.begin()
    agent.send(conversation, f"run: echo one >> {effects}; sleep 60")
    wait_until(effects.read_text, "the command")
    settled = restarted(agent, conversation)

    assert restarted(agent, conversation) == settled


def test_the_policy_title_and_tags_survive_a_kill_and_secrets_do_not(agent, effects):
    secrets = {"GIVEN": "a-secret-value"}
    tool = {"name": "t", "params": {"api_key": "a-secret-value"}}
    conversation = agent.begin(title="Mine", tags={"a": "b"}, secrets=secrets, agent={"kind": "Agent", "tools": [tool]})
    agent.post(f"{conversation}/confirmation_policy", {"policy": {"kind": "AlwaysConfirm"}})
    before = agent.client.get(conversation).json()
    assert before["agent"]["tools"] == [{"name": "t", "params": {}}]

    agent.restart()

    assert agent.client.get(conversation).json() == before
    for file in agent.folder(conversation).iterdir():
        assert "a-secret-value" not in file.read_text()
    agent.post(f"{conversation}/secrets", {"secrets": secrets})
    agent.post(f"{conversation}/confirmation_policy", {"policy": {"kind": "NeverConfirm"}})
    agent.send(conversation, f"run: echo $GIVEN >> {effects}")
    agent.until(conversation, "finished")
    assert effects.read_text() == "a-secret-value\n"


def test_a_deleted_conversation_leaves_no_folder_and_stays_unknown(agent, effects):
    conversation = agent.begin()
    agent.send(conversation, f"run: echo one >> {effects}; sleep 60")
    wait_until(effects.read_text, "the command")
    folder = agent.folder(conversation)
    assert folder.is_dir()

    assert agent.client.delete(conversation).is_success

    assert not folder.exists()
    agent.restart()
    assert agent.client.get(conversation).status_code == 404
    assert agent.client.delete(conversation).status_code == 404


def test_a_webhook_is_told_of_the_pause_and_of_no_event_that_is_not_in_the_file(tmp_path, effects):
    untold, path, told = [], None, lambda: [event for [event] in webhook.posted(path.parent.name)]

    def check(url):
        written = path.read_text()
        untold.extend(event for event in told() if event["id"] not in written)

    with scripted_agent() as webhook, reference_agent(tmp_path, OH_WEBHOOKS_0_BASE_URL=webhook.url) as agent:
        path = agent.folder(f"/{(identity := uuid4())}") / "events.jsonl"
        webhook.on_request = check
        content = [{"type": "text", "text": f"run: echo one >> {effects}; sleep 60"}]
        conversation = agent.begin(conversation_id=str(identity), initial_message={"content": content})
        wait_until(effects.read_text, "the command")
        agent.restart()
        assert agent.status(conversation) == "paused"
        wait_until(lambda: told()[-1:] == agent.events(conversation)[-1:], "the pause")

        assert told()[-1]["value"] == "paused"
        wait_until(lambda: webhook.posted("/conversations")[-1]["execution_status"] == "paused", "its report")
        assert untold == []


def script(effects):
    """Messages with ten commands, each with the policy that it is sent under."""
    commands = [f"run: echo {number} >> {effects}; sleep 0.01" for number in range(10)]
    return [
        ("AlwaysConfirm", "\n".join(commands[:3])),
        ("NeverConfirm", "hello"),
        ("NeverConfirm", "\n".join(commands[3:7])),
        ("AlwaysConfirm", "\n".join(commands[7:])),
    ]


def advance(agent, conversation, messages):
    """Do the next thing that the state of a conversation asks for; False when all is done. The log so far: second."""
    status, log = agent.status(conversation), agent.events(conversation)
    sent = sum((event["kind"], event["source"]) == ("MessageEvent", "user") for event in log)
    if status == "waiting_for_confirmation":
        agent.decide(conversation, True)
    elif status == "running":
        time.sleep(POLL)
    elif status == "paused" or (status == "idle" and sent):
        agent.post(f"{conversation}/run")
    elif sent == len(messages):
        return False, log
    else:
        policy, text = messages[sent]
        agent.post(f"{conversation}/confirmation_policy", {"policy": {"kind": policy}})
        agent.send(conversation, text)
    return True, log


def play(agent, conversation, messages):
    """Play a script to its end, however often the agent is killed; the logs that were seen."""
    logs, goes_on, deadline = [], True, time.monotonic() + 2 * TIMEOUT
    while goes_on:
        assert time.monotonic() < deadline, "the script does not end"
        try:
            goes_on, log = advance(agent, conversation, messages)
            logs.append(log)
        except httpx.TransportError:
            agent.restart()
    return logs


@pytest.fixture(scope="module")
def seconds(agent, tmp_path_factory):
    """How long the script takes when nothing is killed."""
    messages = script(tmp_path_factory.mktemp("undisturbed") / "effects")
    begun = time.monotonic()
    play(agent, agent.begin("AlwaysConfirm"), messages)
    return time.monotonic() - begun


@pytest.mark.parametrize("seed", range(often(6, 20)))
def test_a_script_of_ten_commands_ends_whenever_the_agent_is_killed(agent, effects, seconds, seed):
    messages, conversation = script(effects), agent.begin("AlwaysConfirm")
    killer = threading.Timer(random.Random(seed).uniform(0, seconds), agent.process.kill)
    killer.start()
    logs = play(agent, conversation, messages)
    killer.join()
    agent.restart()

    log = agent.events(conversation)
    assert all(seen == log[: len(seen)] for seen in logs)
    ids = [event["id"] for event in log]
    assert len(ids) == len(set(ids))
    texts = [event["llm_message"]["content"][0]["text"] for event in log if event["source"] == "user"]
    assert texts == [text for _, text in messages]
    results = agent.results(conversation)
    assert len(results) == 10
    assert all(len(result) == 1 for result in results.values())
    done = effects.read_text().split()
    assert len(done) == len(set(done))
    unknown = {command.split()[1] for command, result in results.items() if result == ["AgentErrorEvent"]}
    assert len(unknown) <= 1
    assert {str(number) for number in range(10)} - set(done) <= unknown
