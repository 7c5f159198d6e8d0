"""The reference agent with a model: a scripted one on a real socket."""

import json
import re
import subprocess
import sys
import threading
from uuid import uuid4

import pytest

from reference_agent import events
from reference_agent.api import working_folder
from reference_agent.conversation import AgentConversation
from reference_agent.log import AgentWebhooks, Journal, KeptLog, Log
from reference_agent.mind import Response
from reference_agent.shell import ShellTerminal
from reference_agent.toolbox import Toolbox
from reference_agent.tools import Files
from tests.agents import scripted_agent
from tests.agents.scripted_model import calls, edit, finish, run, scripted_model, text
from tests.reference_agent.program import reference_agent
from tests.servers import PROJECT, wait_until

MODEL_KEY = "a-models-key-2f6f6a1f"

START = {"id": str(uuid4()), "confirmation_policy": {"kind": "NeverConfirm"}, "initial_message": None, "agent": None}
START |= {"created_at": events.now(), "workspace": None, "title": None, "tags": {}}

pytestmark = [pytest.mark.usefixtures("fresh"), pytest.mark.process("starts an agent")]


@pytest.fixture(scope="module")
def agent(tmp_path_factory, model):
    home = tmp_path_factory.mktemp("thinks")
    with reference_agent(home, LLM_MODEL="scripted", LLM_API_KEY=MODEL_KEY, LLM_BASE_URL=model.url) as agent:
        yield agent


def kinds(agent, conversation):
    return [event.get("key") or event["kind"] for event in agent.events(conversation)]


def said(agent, conversation):
    """The texts of all messages."""
    return [one["llm_message"]["content"][0]["text"] for one in agent.events(conversation, kind="MessageEvent")]


def test_a_question_beside_the_conversation_is_answered_and_changes_nothing(agent, model):
    model.script += [calls(run("touch waits")), text("We touch a file."), calls(finish("Nothing else."))]
    conversation = agent.begin("AlwaysConfirm")
    agent.send(conversation, "touch it")
    agent.until(conversation, "waiting_for_confirmation")
    before, state = agent.events(conversation), agent.client.get(conversation).json()

    asked = agent.client.post(f"{conversation}/ask_agent", json={"question": "What do we do?"})
    refused = agent.client.post(f"{conversation}/ask_agent", json={"question": "And then?"})

    assert (asked.status_code, asked.json()) == (200, {"response": "We touch a file."})
    assert "What do we do?" in model.asked[-2]["messages"][-1]["content"]
    assert (refused.status_code, "Ask again" in refused.json()["detail"]) == (504, True)
    assert (agent.events(conversation), agent.client.get(conversation).json()) == (before, state)


def test_a_conversation_begins_with_the_prompt_and_a_reply_ends_the_run(agent, model):
    model.script += [text("hello to you")]
    conversation = agent.begin()
    agent.send(conversation, "hello")
    agent.until(conversation, "finished")

    assert kinds(agent, conversation) == [
        "SystemPromptEvent",
        "MessageEvent",
        "execution_status",
        "MessageEvent",
        "stats",
        "execution_status",
    ]
    assert said(agent, conversation) == ["hello", "hello to you"]
    assert [message["role"] for message in model.asked[0]["messages"]] == ["system", "user"]
    assert model.keys == [f"Bearer {MODEL_KEY}"]


def test_a_file_is_created_edited_and_shown(agent, model):
    model.script += [
        calls(edit("create", "notes/plan.txt", file_text="one\ntwo\n"), said="I make a plan."),
        calls(edit("str_replace", "notes/plan.txt", old_str="two", new_str="2")),
        calls(edit("insert", "notes/plan.txt", insert_line=0, new_str="zero")),
        calls(edit("view", "notes/plan.txt")),
        calls(run("cat notes/plan.txt")),
        calls(finish("the plan stands")),
    ]
    conversation = agent.begin()
    agent.send(conversation, "make a plan")
    agent.until(conversation, "finished")

    assert (agent.home / "notes/plan.txt").read_text() == "zero\none\n2\n"
    seen = [event["observation"] for event in agent.events(conversation, kind="ObservationEvent")]
    assert [one["kind"] for one in seen] == [*["FileEditorObservation"] * 4, "TerminalObservation", "FinishObservation"]
    assert seen[0]["prev_exist"] is False
    assert (seen[1]["old_content"], seen[1]["new_content"]) == ("one\ntwo\n", "one\n2\n")
    assert seen[3]["content"][0]["text"].split() == ["1", "zero", "2", "one", "3", "2"]
    assert seen[4]["content"][0]["text"] == "zero\none\n2\n"
    [first, *_, last] = agent.events(conversation, kind="ActionEvent")
    assert first["thought"] == [{"type": "text", "text": "I make a plan."}]
    assert (first["security_risk"], first["summary"]) == ("LOW", "create notes/plan.txt")
    assert last["action"] == {"message": "the plan stands", "kind": "FinishAction"}


def test_the_calls_of_one_response_are_one_group_and_their_results_follow_it_in_the_next_request(agent, model):
    model.script += [calls(run("echo one"), run("(exit 3)"), said="two things")]
    conversation = agent.begin()
    agent.send(conversation, "go")
    agent.until(conversation, "finished")

    first, second, last = agent.events(conversation, kind="ActionEvent")
    assert first["llm_response_id"] == second["llm_response_id"] != last["llm_response_id"]
    assert (first["thought"][0]["text"], second["thought"]) == ("two things", [])
    assert first["tool_call"]["arguments"] == json.dumps(run("echo one")[1])
    response, *results = model.asked[1]["messages"][2:]
    assert [call["id"] for call in response["tool_calls"]] == [first["tool_call_id"], second["tool_call_id"]]
    assert [result["tool_call_id"] for result in results] == [first["tool_call_id"], second["tool_call_id"]]
    assert [result["content"] for result in results] == ["one\n", "\n(exit code 3)"]


def test_a_rejected_call_is_not_executed_and_the_model_is_told_the_reason(agent, model):
    model.script += [calls(run(f"touch {agent.home}/rejected")), text("then not")]
    conversation = agent.begin("AlwaysConfirm")
    agent.send(conversation, "go")
    agent.until(conversation, "waiting_for_confirmation")

    agent.decide(conversation, False, reason="not on a Sunday")
    agent.until(conversation, "idle")
    agent.post(f"{conversation}/run")
    agent.until(conversation, "finished")

    assert not (agent.home / "rejected").exists()
    assert "not on a Sunday" in model.told("tool")[0]


def test_a_message_supersedes_what_waits_and_the_model_reads_both(agent, model):
    model.script += [calls(run("echo one")), text("as you wish")]
    conversation = agent.begin("AlwaysConfirm")
    agent.send(conversation, "go")
    agent.until(conversation, "waiting_for_confirmation")
    agent.send(conversation, "do something else")
    agent.until(conversation, "finished")

    assert "Superseded" in model.told("tool")[0]
    assert model.told("user") == ["go", "do something else"]


def test_a_lone_finish_thought_or_task_list_never_waits(agent, model):
    model.script += [calls(("think", {"thought": "hm"})), calls(("task_tracker", {"command": "plan", "task_list": []}))]
    conversation = agent.begin("AlwaysConfirm")
    agent.send(conversation, "go")
    agent.until(conversation, "finished")


def test_a_thought_and_a_task_list_never_wait_beside_another_call_nor_does_a_lone_wait_for_output(agent, model):
    notes = (("think", {"thought": "hm"}), ("task_tracker", {"command": "plan", "task_list": [{"title": "Look"}]}))
    model.script += [calls(*notes, run("sleep 2; echo late", timeout=1)), calls(run("", is_input=True))]
    conversation = agent.begin("AlwaysConfirm")
    agent.send(conversation, "go")
    agent.until(conversation, "waiting_for_confirmation")

    kinds = [one["observation"]["kind"] for one in agent.events(conversation, kind="ObservationEvent")]
    assert kinds == ["ThinkObservation", "TaskTrackerObservation"]
    agent.decide(conversation, True)
    agent.until(conversation, "finished")

    response, *results = model.asked[1]["messages"][2:]
    assert [call["function"]["name"] for call in response["tool_calls"]] == ["think", "task_tracker", "terminal"]
    assert [one["content"].partition("\n")[0] for one in results[:2]] == [
        "The thought is noted.",
        "0 of 1 tasks are done.",
    ]
    assert model.told("tool")[-1] == "late\n"


@pytest.mark.parametrize(
    ("policy", "risks", "waits"),
    [
        ({"kind": "ConfirmRisky"}, ["MEDIUM"], False),
        ({"kind": "ConfirmRisky"}, ["LOW", "HIGH"], True),
        ({"kind": "ConfirmRisky", "threshold": "MEDIUM"}, ["MEDIUM"], True),
        ({"kind": "ConfirmRisky", "threshold": "LOW"}, ["LOW"], True),
        ({"kind": "ConfirmRisky"}, ["nonsense"], True),
        ({"kind": "ConfirmRisky", "confirm_unknown": False}, ["nonsense"], False),
        ({"kind": "ConfirmRisky", "threshold": "nonsense"}, ["LOW"], True),
        ({"kind": "NeverConfirm"}, ["HIGH"], False),
        ({"kind": "OfAnotherRelease"}, ["LOW"], True),
    ],
)
def test_a_response_waits_if_the_policy_holds_back_one_of_its_calls(agent, model, policy, risks, waits):
    model.script += [calls(*(run("echo one", risk) for risk in risks))]
    conversation = agent.begin(confirmation_policy=policy)
    agent.send(conversation, "go")
    agent.until(conversation, "waiting_for_confirmation" if waits else "finished")


def test_the_usage_of_the_model_is_in_the_stats_and_in_an_event_after_each_response(agent, model):
    model.script += [calls(run("echo one")), text("done", usage=None)]
    conversation = agent.begin()
    agent.send(conversation, "go")
    agent.until(conversation, "finished")

    stats = agent.client.get(conversation).json()["stats"]
    metrics = stats["usage_to_metrics"]["agent"]
    usage = metrics["accumulated_token_usage"]
    assert (metrics["model_name"], usage["model"], usage["context_window"]) == ("scripted", "scripted", 0)
    assert usage["prompt_tokens"] > 100  # the second response was not counted by the endpoint, but estimated
    assert (usage["cache_read_tokens"], usage["reasoning_tokens"], usage["cache_write_tokens"]) == (40, 3, 0)
    assert usage["per_turn_token"] == usage["prompt_tokens"] + usage["completion_tokens"] - 110
    [_, last] = [event for event in agent.events(conversation) if event.get("key") == "stats"]
    assert last["value"] == stats
    [_, reply] = agent.events(conversation, kind="MessageEvent")
    assert usage["response_id"] == reply["llm_response_id"]


@pytest.mark.process("a response that comes slowly")
def test_a_response_is_shown_while_it_comes_and_the_parts_are_not_kept(tmp_path, model):
    goes_on = threading.Event()
    reply = text("a slow reply", reasoning="hm")
    reply.parts[2:2] = [goes_on]
    model.script += [reply]

    def shown():
        return [one for [one] in webhook.posted(identity.hex) if one["kind"] == "StreamingDeltaEvent"]

    identity, environment = uuid4(), {"LLM_MODEL": "scripted", "LLM_BASE_URL": model.url}
    with (
        scripted_agent() as webhook,
        reference_agent(tmp_path, OH_WEBHOOKS_0_BASE_URL=webhook.url, **environment) as agent,
    ):
        conversation = agent.begin(conversation_id=str(identity))
        agent.send(conversation, "go")
        goes_on.set()
        agent.until(conversation, "finished")
        wait_until(lambda: webhook.posted(identity.hex)[-1][0].get("value") == "finished", "the end of the run")

        assert "".join(one.get("reasoning_content", "") for one in shown()) == "hm"
        assert "".join(one.get("content", "") for one in shown()) == "a slow reply"
        assert "StreamingDeltaEvent" not in kinds(agent, conversation)
        [_, message] = agent.events(conversation, kind="MessageEvent")
        assert message["llm_message"]["reasoning_content"] == "hm"


def test_a_message_during_a_response_is_read_after_it(agent, model):
    goes_on, reply = threading.Event(), text("first")
    reply.parts.insert(0, goes_on)
    model.script += [reply, text("second")]
    conversation = agent.begin()
    agent.send(conversation, "one")
    wait_until(lambda: model.asked, "the request")
    agent.send(conversation, "two")
    goes_on.set()
    agent.until(conversation, "finished")

    roles = [(message["role"], message["content"]) for message in model.asked[1]["messages"][1:]]
    assert roles == [("user", "one"), ("assistant", "first"), ("user", "two")]


def test_a_pause_during_a_response_keeps_the_response_for_the_next_run(agent, model):
    goes_on, reply = threading.Event(), calls(run(f"touch {agent.home}/after-the-pause"))
    reply.parts.insert(0, goes_on)
    model.script += [reply]
    conversation = agent.begin()
    agent.send(conversation, "go")
    wait_until(lambda: model.asked, "the request")
    agent.post(f"{conversation}/pause")
    goes_on.set()
    wait_until(lambda: agent.events(conversation, kind="ActionEvent"), "the response")

    assert agent.status(conversation) == "paused"
    assert not (agent.home / "after-the-pause").exists()
    agent.post(f"{conversation}/run")
    agent.until(conversation, "finished")
    assert (agent.home / "after-the-pause").exists()


def test_a_pause_during_a_response_that_needs_a_person_leads_to_the_wait_for_that_person(agent, model):
    goes_on, reply = threading.Event(), calls(run("echo one"))
    reply.parts.insert(0, goes_on)
    model.script += [reply]
    conversation = agent.begin("AlwaysConfirm")
    agent.send(conversation, "go")
    wait_until(lambda: model.asked, "the request")
    agent.post(f"{conversation}/pause")
    goes_on.set()
    agent.until(conversation, "waiting_for_confirmation")


def test_an_interrupt_drops_a_response_at_once_and_the_next_run_asks_again(agent, model):
    never, reply = threading.Event(), text("too late")
    reply.parts.insert(1, never)
    model.script += [reply, text("in time")]
    conversation = agent.begin()
    agent.send(conversation, "go")
    wait_until(lambda: model.asked, "the request")
    agent.post(f"{conversation}/interrupt")
    assert agent.status(conversation) == "paused"

    agent.post(f"{conversation}/run")
    agent.until(conversation, "finished")
    never.set()

    assert said(agent, conversation) == ["go", "in time"]


def test_the_model_of_a_start_request_wins_over_the_environments(agent, model):
    with scripted_model() as other:
        other.script += [text("I am another")]
        llm = {"model": "openai/other", "api_key": "their-key-77", "base_url": other.url, "max_input_tokens": 9000}
        conversation = agent.begin(agent={"kind": "Agent", "llm": llm})
        agent.send(conversation, "who are you?")
        agent.until(conversation, "finished")

        assert (other.asked[0]["model"], other.keys) == ("other", ["Bearer their-key-77"])
    info = agent.client.get(conversation).json()
    assert info["stats"]["usage_to_metrics"]["agent"]["accumulated_token_usage"]["context_window"] == 9000
    assert info["agent"]["llm"] == {name: llm[name] for name in ("model", "base_url", "max_input_tokens")}
    assert model.asked == []


def test_the_environments_key_is_not_sent_to_an_endpoint_of_a_start_request(agent, model):
    with scripted_model() as other:
        conversation = agent.begin(agent={"llm": {"base_url": other.url}})
        agent.send(conversation, "go")
        agent.until(conversation, "finished")
        assert other.keys == ["Bearer none"]
        assert MODEL_KEY not in str(other.asked)


def test_clients_are_told_of_an_agent_that_the_sdk_can_read(agent):
    for given in (None, {}, {"tools": []}):
        told = agent.client.get(agent.begin(agent=given)).json()["agent"]
        assert (told["kind"], told["llm"]) == ("Agent", {"model": "scripted", "usage_id": "agent"})


def test_a_conversation_has_its_working_folder_inside_the_agents(agent, model):
    for given in ("workspace/project", "/etc/their/host/path", "../../outside"):
        model.script += [calls(run("pwd"), edit("create", "here", file_text="x"))]
        conversation = agent.begin(workspace={"kind": "LocalWorkspace", "working_dir": given})
        agent.send(conversation, "go")
        agent.until(conversation, "finished")
        [folder] = [
            event["observation"]["content"][0]["text"].strip()
            for event in agent.events(conversation, kind="ObservationEvent")
            if event["tool_name"] == "terminal"
        ]
        assert folder == f"{agent.home}/{given.replace('../', '').strip('/')}"
        assert (agent.home / folder / "here").read_text() == "x"


def test_a_folder_that_is_named_by_way_of_a_link_is_the_one_that_is_there(agent, tmp_path, monkeypatch):
    (tmp_path / "real/project").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    monkeypatch.chdir(tmp_path / "real")

    assert working_folder({"working_dir": f"{tmp_path}/link/project"}) == tmp_path / "real/project"


def test_an_agent_without_a_model_loads_no_client_of_models():
    code = "import reference_agent.__main__, sys; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"pydantic", "cryptography"} & {*loaded}


def test_the_mind_of_the_tour_works_in_the_place_of_the_rule(tmp_path):
    [page] = re.findall(r"```python\n(.*?)```", (PROJECT / "docs" / "tour.md").read_text(), re.DOTALL)
    made: dict = {"uuid4": uuid4, "events": events, "Response": Response}
    exec(page, made)
    log = Log(KeptLog(START, [], None), Journal(tmp_path / "one"), AgentWebhooks("", {}))
    Journal(tmp_path / "one").create(START)
    files, terminal = Files(tmp_path, tmp_path / "one"), ShellTerminal(tmp_path)
    conversation = AgentConversation(log, made["Greeter"](), terminal, Toolbox(log, files, files), {})

    conversation.send(events.parts("hello"), run=True)

    wait_until(lambda: log.state.status == "finished", "the end of the run")
    [seen] = [event for event in log.events if event["kind"] == "ObservationEvent"]
    assert seen["observation"]["content"][0]["text"] == "one\n"
    conversation.end()
