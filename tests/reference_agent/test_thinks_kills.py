"""The reference agent with a model, killed with SIGKILL and started again: it goes on from the events alone."""

import random
import threading
import time
from contextlib import suppress
from uuid import uuid4

import httpx
import pytest

from reference_agent.conversation import UNKNOWN
from tests.agents.scripted_model import calls, edit, finish, refusal, run, text
from tests.chance import often
from tests.reference_agent.program import CLOSING, reference_agent
from tests.servers import wait_until

pytestmark = [pytest.mark.usefixtures("fresh"), pytest.mark.faults("kills an agent at each of its steps")]


@pytest.fixture(scope="module")
def agent(tmp_path_factory, model):
    environment = {"LLM_MODEL": "scripted", "LLM_BASE_URL": model.url, "OH_SECRET_KEY": "a secret of tests"}
    with reference_agent(tmp_path_factory.mktemp("kills"), **environment) as agent:
        yield agent


def test_a_model_that_was_asked_at_the_kill_is_asked_again_by_the_next_run(agent, model):
    never, reply = threading.Event(), text("too late")
    reply.parts.insert(2, never)
    model.script += [reply, text("in time")]
    conversation = agent.begin()
    agent.send(conversation, "go")
    wait_until(lambda: model.asked, "the request")

    agent.restart()
    assert agent.status(conversation) == "paused"
    agent.post(f"{conversation}/run")
    agent.until(conversation, "finished")
    never.set()

    assert model.asked[0]["messages"] == model.asked[1]["messages"]
    said = [event["llm_message"]["content"][0]["text"] for event in agent.events(conversation, kind="MessageEvent")]
    assert said == ["go", "in time"]


def test_a_tool_that_worked_at_the_kill_is_not_repeated_and_the_model_is_told(agent, model):
    effects = agent.home / f"effects-{uuid4()}"
    model.script += [calls(run(f"echo one >> {effects}; sleep 60"), run(f"echo two >> {effects}"))]
    conversation = agent.begin()
    agent.send(conversation, "go")
    wait_until(lambda: effects.read_text() == "one\n", "the command")

    agent.restart()
    assert agent.status(conversation) == "paused"
    agent.post(f"{conversation}/run")
    agent.until(conversation, "finished")

    assert effects.read_text() == "one\ntwo\n"
    assert model.told("tool") == [f"Error: {UNKNOWN}", "(no output)"]


def test_what_waits_at_the_kill_can_be_decided_after_it(agent, model):
    model.script += [calls(edit("create", f"{(name := str(uuid4()))}", file_text="x"))]
    conversation = agent.begin("AlwaysConfirm")
    agent.send(conversation, "go")
    agent.until(conversation, "waiting_for_confirmation")
    before = agent.events(conversation), agent.client.get(conversation).json()

    agent.restart()

    assert (agent.events(conversation), agent.client.get(conversation).json()) == before
    agent.decide(conversation, True)
    agent.until(conversation, "finished")
    assert (agent.home / name).read_text() == "x"


def test_the_messages_for_the_model_are_the_same_after_a_kill(agent, model):
    model.script += [
        calls(run("echo one"), ("browser", {}), said="two"),
        refusal(400, "maximum context length"),
        text("done"),
    ]
    conversation = agent.begin()
    agent.send(conversation, "go")
    agent.until(conversation, "error")
    agent.post(f"{conversation}/run")
    agent.until(conversation, "finished")
    model.script += [text("once more")] * 2
    agent.send(conversation, "again")
    agent.until(conversation, "finished")

    agent.restart()
    agent.send(conversation, "and again")
    agent.until(conversation, "finished")

    before, after = (asked["messages"] for asked in model.asked[-2:])
    assert after == [*before, {"role": "assistant", "content": "once more"}, {"role": "user", "content": "and again"}]


def test_the_key_of_a_start_request_survives_a_kill_sealed(agent, model):
    key = f"given-{uuid4().hex}"
    model.script += [text("one"), text("two")]
    conversation = agent.begin(agent={"llm": {"model": "theirs", "api_key": key, "base_url": model.url}})
    agent.send(conversation, "go")
    agent.until(conversation, "finished")
    agent.restart()
    agent.send(conversation, "again")
    agent.until(conversation, "finished")

    assert model.keys == [f"Bearer {key}"] * 2
    assert [asked["model"] for asked in model.asked] == ["theirs"] * 2
    assert key not in "".join(file.read_text() for file in agent.folder(conversation).iterdir())


def test_without_a_secret_the_key_of_a_start_request_ends_with_the_process(tmp_path, model):
    with reference_agent(tmp_path, OH_SECRET_KEY="") as agent:
        conversation = agent.begin(agent={"llm": {"model": "theirs", "api_key": "given", "base_url": model.url}})
        agent.restart()
        agent.send(conversation, "go")
        agent.until(conversation, "finished")
    assert model.keys == ["Bearer none"]


def test_a_conversation_of_the_rule_goes_on_with_a_model(tmp_path, model):
    with reference_agent(tmp_path) as agent:
        conversation = agent.begin()
        agent.send(conversation, "run: echo one")
        agent.until(conversation, "finished")
        home, conversations = agent.home, agent.conversations
    with reference_agent(home, conversations, LLM_MODEL="scripted", LLM_BASE_URL=model.url) as agent:
        agent.send(conversation, "what did it say?")
        agent.until(conversation, "finished")
    assert [message["role"] for message in model.asked[0]["messages"]] == [
        "system",
        "user",
        "assistant",
        "tool",
        "user",
    ]
    assert model.asked[0]["messages"][3]["content"] == "one\n"


@pytest.mark.parametrize("helper", [False, True])
@pytest.mark.parametrize("seed", range(often(3, 8)))
def test_a_conversation_ends_whenever_the_agent_is_killed_and_does_nothing_twice(agent, model, seed, helper):
    effects = agent.home / f"effects-{uuid4()}"
    effects.touch()
    steps = [[run(f"echo {number} >> {effects}; sleep 0.01")] for number in range(6)] + [[finish()]]
    if helper:
        steps = [[("delegate", {"task": "Write the numbers."})], *steps, [finish()]]
    conversation = agent.begin("AlwaysConfirm")
    killer = threading.Timer(random.Random(seed).uniform(0, 1.5), agent.process.kill)
    killer.start()
    deadline = time.monotonic() + 60
    while True:
        assert time.monotonic() < deadline, "the conversation does not end"
        try:
            status, log = agent.status(conversation), agent.events(conversation)
            done = sum(event["kind"] == "ActionEvent" for event in log)
            model.script[:] = [calls(*steps[min(done, len(steps) - 1)])]
            if status == "waiting_for_confirmation":
                agent.decide(conversation, True)
            elif status == "paused" or (status == "idle" and len(log) > 1):
                agent.post(f"{conversation}/run")
            elif status == "idle":
                agent.send(conversation, "go")
            elif status == "finished":
                break
        except httpx.TransportError:
            agent.restart()
    killer.join()
    with suppress(httpx.TransportError):
        agent.status(conversation)
    agent.restart()

    log = agent.events(conversation)
    # By call, not by command: after a kill between the finish and its observation the model finishes once more.
    opened = [event["tool_call_id"] for event in log if event["kind"] == "ActionEvent"]
    closed = [event["tool_call_id"] for event in log if event["kind"] in CLOSING]
    assert sorted(closed) == sorted(opened)
    written = effects.read_text().split()
    assert len(written) == len(set(written))
    assert len([event for event in log if event["kind"] == "MessageEvent" and event["source"] == "user"]) == 1
    assert len({event["id"] for event in log}) == len(log)
