"""What bounds the reference agent when it thinks, and what a model does wrong; nobody learns the model's key."""

import json
import os
import re
import signal
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest

from tests.agents import scripted_agent
from tests.agents.scripted_model import USAGE, calls, edit, refusal, run, text
from tests.reference_agent.program import reference_agent
from tests.servers import wait_until

MODEL_KEY = "a-models-key-5c3a90ff"

OR_THEN = "or `agent.llm` of the start. Then send a message to go on."

pytestmark = [pytest.mark.usefixtures("fresh"), pytest.mark.process("starts an agent")]


@pytest.fixture(scope="module")
def agent(tmp_path_factory, model):
    home = tmp_path_factory.mktemp("limits")
    with reference_agent(home, LLM_MODEL="scripted", LLM_API_KEY=MODEL_KEY, LLM_BASE_URL=model.url) as agent:
        yield agent


def errors(agent, conversation):
    return [event["code"] for event in agent.events(conversation, kind="ConversationErrorEvent")]


def played(server, status="finished", **members):
    """A conversation of one message, at the end of its run."""
    conversation = server.begin(**members)
    server.send(conversation, "go")
    server.until(conversation, status)
    return conversation


def test_a_call_that_cannot_be_executed_is_told_to_the_model_and_the_run_goes_on(agent, model):
    model.script += [calls(("terminal", '{"command": "ls'))]
    conversation = played(agent, confirmation_policy={"kind": "AlwaysConfirm"})

    [bad, _] = agent.events(conversation, kind="ActionEvent")
    [error] = agent.events(conversation, kind="AgentErrorEvent")
    assert bad["action"] is None
    assert error["tool_call_id"] == bad["tool_call_id"]
    assert error["error"].startswith("The arguments of terminal are not JSON")
    assert error["error"] in model.told("tool")[0]
    [asked] = model.asked[1]["messages"][2]["tool_calls"]
    assert isinstance(json.loads(asked["function"]["arguments"]), dict)


def test_a_run_ends_after_its_most_responses_and_the_next_one_goes_on(agent, model):
    model.script += [calls(run("echo one"))] * 3
    conversation = played(agent, "error", max_iterations=2)
    assert errors(agent, conversation) == ["MaxIterationsReached"]
    assert len(model.asked) == 2

    agent.post(f"{conversation}/run")
    agent.until(conversation, "finished")
    assert len(model.asked) == 4


def test_max_iterations_is_a_number_from_1_on(agent):
    for given in (0, "x", True):
        assert agent.post("/api/conversations", {"max_iterations": given}).status_code == 422


def test_a_conversation_goes_on_beyond_a_million_tokens(agent, model):
    usage = {**USAGE, "prompt_tokens": 600_000}
    model.script += [calls(run("echo one"), usage=usage)] * 3
    conversation = played(agent)
    assert errors(agent, conversation) == []
    stats = agent.client.get(conversation).json()["stats"]["usage_to_metrics"]["agent"]["accumulated_token_usage"]
    assert stats["prompt_tokens"] == 1_800_100


@pytest.mark.parametrize(
    ("reply", "then"),
    [
        (refusal(401, "no such key"), f"Correct LLM_API_KEY, {OR_THEN}"),
        (refusal(404, "no such model"), f"Correct LLM_MODEL, {OR_THEN}"),
        (refusal(429, "no", "insufficient_quota"), "Send a message to try again."),
        (refusal(400, "maximum context length"), "The last step is left out from now on. Send a message to go on."),
    ],
)
def test_an_error_that_ends_a_run_says_how_to_go_on_and_that_works(agent, model, reply, then):
    model.script += [calls(run("echo one")), reply]
    conversation = played(agent, "error")
    [error] = agent.events(conversation, kind="ConversationErrorEvent")
    assert error["detail"].endswith(f". {then}")

    agent.send(conversation, "go on")
    agent.until(conversation, "finished")


def test_a_run_that_ends_after_its_most_responses_says_how_to_go_on_and_that_works(agent, model):
    model.script += [calls(run("echo one"))] * 3
    conversation = played(agent, "error", max_iterations=2)
    [error] = agent.events(conversation, kind="ConversationErrorEvent")
    assert error["detail"] == "The agent stopped after 2 responses (max_iterations). Send a message for 2 more."

    agent.send(conversation, "go on")
    agent.until(conversation, "finished")


def test_a_conversation_that_is_too_long_for_the_model_is_summarized_and_goes_on(agent, model):
    model.script += [calls(run(f"printf '%2000s' {number}")) for number in range(6)]
    model.script += [refusal(400, "maximum context length"), text("DONE: numbers"), calls(run("echo after"))]
    conversation = played(agent)

    [condensation] = agent.events(conversation, kind="Condensation")
    actions = agent.events(conversation, kind="ActionEvent")
    forgotten = {*condensation["forgotten_event_ids"]}
    assert [action["id"] in forgotten for action in actions[:7]] == [True] * 5 + [False] * 2
    roles = [message["role"] for message in model.asked[-1]["messages"]]
    assert roles == ["system", "user", "user", *["assistant", "tool"] * 2]
    assert model.told("user")[0] == "go"
    assert model.told("user")[1].endswith("DONE: numbers")


def test_a_message_that_is_too_long_for_the_model_is_left_out_and_the_next_one_goes_on(agent, model):
    model.script += [refusal(400, "maximum context length")]
    conversation = played(agent, "error")
    [error] = agent.events(conversation, kind="ConversationErrorEvent")
    assert error["code"] == "LLMContextWindowExceedError"
    assert error["detail"].endswith("The last message is left out from now on. Send a shorter one.")

    agent.send(conversation, "short")
    agent.until(conversation, "finished")
    assert [message["role"] for message in model.asked[-1]["messages"]] == ["system", "user", "user"]
    assert model.told("user")[-1] == "short"


def test_a_model_that_fails_ends_the_run_with_an_error_and_a_message_begins_another(agent, model):
    model.script += [refusal(401, f"no such key: {MODEL_KEY}"), text("hello again")]
    conversation = played(agent, "error")
    assert errors(agent, conversation) == ["LLMAuthenticationError"]

    agent.send(conversation, "again")
    agent.until(conversation, "finished")
    assert model.told("user") == ["go", "again"]


def test_a_long_output_is_cut_for_the_log_and_shorter_for_the_model(agent, model):
    model.script += [calls(run("seq 1000000; echo the end"))]
    conversation = played(agent)
    seen = agent.events(conversation, kind="ObservationEvent")[0]["observation"]["content"][0]["text"]
    assert len(seen) <= 100_000
    assert seen.startswith("1\n2\n")
    assert seen.endswith("the end\n")
    [where] = re.findall(r"^… [\d,]+ of [\d,]+ bytes are not shown here\. The whole output is in (\S+) …$", seen, re.M)
    assert Path(where).read_text().splitlines()[999_999] == "1000000"
    [told] = model.told("tool")
    assert len(told) < 31_000
    assert where in told
    assert told.endswith("the end\n")


@pytest.mark.process("waits for a timeout")
def test_a_command_is_handed_back_at_its_timeout(agent, model):
    model.script += [calls(run("sleep 600", timeout=1)), calls(run("C-c", is_input=True))]
    conversation = played(agent)
    seen, ended = [event["observation"] for event in agent.events(conversation, kind="ObservationEvent")[:2]]
    assert (seen["exit_code"], seen["is_error"], ended["exit_code"]) == (-1, False, 130)
    assert "No end within 1 s" in seen["content"][0]["text"]


def test_a_command_that_leaves_a_process_behind_does_not_wait_for_it(agent, model):
    model.script += [calls(run("sleep 600 & echo $!"))]
    conversation = played(agent)
    seen = agent.events(conversation, kind="ObservationEvent")[0]["observation"]
    with suppress(ProcessLookupError):
        os.kill(int(seen["content"][0]["text"].split()[-1]), signal.SIGKILL)
    assert seen["exit_code"] == 0


@pytest.mark.process("looks through an agent's memory and files")
def test_the_models_key_is_nowhere_but_in_the_request(tmp_path, model):
    """Neither in events, info, files and webhooks, nor in what a command sees of itself and of the agent."""
    given, secret = f"given-{uuid4().hex}", uuid4().hex
    environment = {"LLM_MODEL": "scripted", "LLM_BASE_URL": model.url, "LLM_API_KEY": MODEL_KEY}
    llm = {"model": "scripted", "api_key": given, "base_url": model.url}
    look = "env; tr '\\0' '\\n' < /proc/$PPID/environ; tr '\\0' ' ' < /proc/$PPID/cmdline"
    with (
        scripted_agent() as webhook,
        reference_agent(tmp_path, OH_WEBHOOKS_0_BASE_URL=webhook.url, OH_SECRET_KEY=secret, **environment) as agent,
    ):
        for key, members in (
            (MODEL_KEY, {}),
            (given, {"agent": {"llm": llm}}),
            (given, {"agent_settings": {"llm": llm}}),
        ):
            model.script += [calls(run(look)), refusal(400, f"bad key {key}")]
            conversation = played(agent, "error", **members)
            seen = json.dumps([agent.events(conversation), agent.client.get(conversation).json()])
            assert "OH_CONVERSATIONS_PATH" in seen  # the command has seen the environment
            assert not [key for key in (given, MODEL_KEY, secret) if key in seen]
        wait_until(lambda: webhook.posted("/conversations")[-1]["execution_status"] == "error", "the end")
        kept = "".join(file.read_text() for file in agent.conversations.rglob("*.json*"))
        agent.process.kill()
        printed = agent.process.stderr.read().decode()
        for key in (given, MODEL_KEY, secret):
            assert key not in str(webhook.requests) + kept + printed


def test_file_tools_refuse_the_agents_own_files(agent, model):
    model.script += [calls(edit("view", str(agent.conversations)), edit("create", "conversations/x", file_text="x"))]
    conversation = played(agent)
    seen = [event["observation"] for event in agent.events(conversation, kind="ObservationEvent")][:2]
    assert [one["is_error"] for one in seen] == [True, True]
    assert "belongs to the agent server" in seen[0]["content"][0]["text"]
