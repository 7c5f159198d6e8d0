"""A conversation with the bundled spec's agent and a model, through the whole server: what `make run` gives."""

import json
import re
import threading
from uuid import UUID, uuid4

import pytest

from settings.specs import BUNDLED
from tests.agents.scripted_model import ScriptedReply, calls, chunk, edit, finish, run, scripted_model, text
from tests.servers import supervised_server, wait_until
from tests.sockets import socket
from tests.v1 import WireApi
from tests.v1.processes import agents, in_sandboxes

pytestmark = pytest.mark.faults("starts a server whose agents have a model, and kills them")

MODEL_KEY = f"a-models-key-{uuid4().hex}"


@pytest.fixture(scope="module")
def model():
    with scripted_model() as model:
        yield model


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("model")


@pytest.fixture(scope="module")
def server(home, model):
    """A server with the bundled specs, not isolated: an isolated sandbox reaches no model on the host's loopback."""
    specs = home / "specs.toml"
    specs.write_text(re.sub(r'\negress = "named"\n(#.*\n)hosts = .*\n', '\nisolation = "none"\n', BUNDLED.read_text()))
    variables = {"LLM_MODEL": "openai/scripted", "LLM_API_KEY": MODEL_KEY, "LLM_BASE_URL": model.url}
    with supervised_server(home, SANDBOX_SPECS=str(specs), **variables) as (client, _):
        yield client
    assert not in_sandboxes(home)


@pytest.fixture
def api(server, model):
    model.script.clear()
    model.asked.clear()
    api = WireApi(server)
    yield api
    api.clean()


def begun(api, **members):
    """A conversation whose user has asked for something, and its id with dashes."""
    message = {"content": [{"type": "text", "text": "make a plan"}], "run": False}
    conversation = api.app_conversation(initial_message=message, **members)["id"]
    return conversation, str(UUID(conversation))


def go(api, conversation):
    api.call("POST", f"/conversations/{UUID(conversation)}/run")


def observed(api, conversation):
    events = api.events(conversation, kind__eq="ObservationEvent")
    return [event["observation"]["content"][0]["text"] for event in events]


def test_a_file_is_created_edited_and_shown_with_approval_and_one_call_is_rejected(api, model, server):
    model.script += [
        calls(edit("create", "plan.txt", file_text="one\ntwo\n"), said="First a plan."),
        calls(run("rm plan.txt", "HIGH")),
        calls(edit("str_replace", "plan.txt", old_str="two", new_str="2")),
        calls(edit("view", "plan.txt")),
        calls(finish("The plan stands.")),
    ]
    conversation, identity = begun(api)

    with socket(server, identity) as listener:
        go(api, conversation)
        for number, decision in enumerate((True, False, True, True), 1):
            wait_until(lambda count=number: api.count(conversation, kind="ActionEvent") == count, "the next action")
            api.until(conversation, "waiting_for_confirmation")
            if decision:
                api.decide(conversation, True)
            else:
                api.decide(conversation, False, reason="keep the plan")
                api.until(conversation, "idle")
                go(api, conversation)
        api.until(conversation, "finished")
        frames = listener.receive_until(kind="ConversationStateUpdateEvent", key="execution_status", value="finished")

    *_, shown, done = observed(api, conversation)
    assert shown.split() == ["1", "one", "2", "2"]
    assert done == "The plan stands."
    risks = [action["security_risk"] for action in api.events(conversation, kind__eq="ActionEvent")]
    assert risks == ["LOW", "HIGH", "LOW", "LOW", "UNKNOWN"]
    [rejected] = api.events(conversation, kind__eq="UserRejectObservation")
    assert rejected["rejection_reason"] == "keep the plan"
    assert "keep the plan" in model.told("tool")[1]
    deltas = [frame for frame in frames if frame["kind"] == "StreamingDeltaEvent"]
    assert "First a plan." in "".join(delta.get("content") or "" for delta in deltas)
    assert api.count(conversation, kind="StreamingDeltaEvent") == 0
    usage = api.conversation(conversation)["metrics"]["accumulated_token_usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (500, 50)
    stats = api.call("GET", f"/conversations/{identity}")["stats"]["usage_to_metrics"]["agent"]
    assert (stats["model_name"], stats["accumulated_token_usage"]["per_turn_token"]) == ("openai/scripted", 110)
    everything = [api.events(conversation), api.call("GET", "/v1/sandboxes/search"), frames]
    everything += [api.call("GET", "/v1/sandbox-specs/search"), api.call("GET", f"/conversations/{identity}")]
    assert MODEL_KEY not in json.dumps(everything)
    assert model.keys[-1] == f"Bearer {MODEL_KEY}"


def test_an_agent_that_is_killed_while_its_model_thinks_asks_again_after_the_restart(api, model, home):
    never = threading.Event()
    model.script += [ScriptedReply([chunk({"content": "half"}), never]), text("whole")]
    conversation, _ = begun(api)
    go(api, conversation)
    wait_until(lambda: model.asked, "the request")

    for process in agents(home):
        process.kill()

    api.until(conversation, "paused")
    wait_until(lambda: api.sandbox(api.conversation(conversation)["sandbox_id"])["status"] == "RUNNING", "the restart")
    go(api, conversation)
    api.until(conversation, "finished")
    never.set()
    messages = api.events(conversation, kind__eq="MessageEvent")
    assert [one["llm_message"]["content"][0]["text"] for one in messages] == ["make a plan", "whole"]


def test_an_agent_that_is_killed_by_its_own_tool_tells_the_model_and_goes_on(api, model):
    model.script += [calls(run("echo once >> effects; kill -9 $PPID")), calls(run("cat effects"))]
    conversation, identity = begun(api)
    policy = {"policy": {"kind": "NeverConfirm"}}
    api.call("POST", f"/conversations/{identity}/confirmation_policy", json=policy)
    go(api, conversation)

    wait_until(lambda: api.events(conversation, kind__eq="AgentErrorEvent"), "the end of the action")
    api.until(conversation, "finished")  # a run that nothing holds back goes on by itself

    assert observed(api, conversation)[0] == "once\n"
    assert "It is unknown whether it took effect" in model.told("tool")[0]


def test_the_model_of_a_start_request_reaches_the_agent_and_its_key_no_response(api, model):
    key, identity = f"given-{uuid4().hex}", str(uuid4())
    llm = {"model": "theirs", "api_key": key, "base_url": model.url}
    message = {"role": "user", "content": [{"type": "text", "text": "hello"}], "run": True}
    body = {"conversation_id": identity, "agent": {"kind": "Agent", "llm": llm}, "initial_message": message}
    workspace = {"kind": "LocalWorkspace", "working_dir": "workspace/project"}
    model.script += [calls(edit("create", "made", file_text="x"))]

    started = api.call("POST", "/conversations", status=201, json={**body, "workspace": workspace})
    wait_until(lambda: api.count(identity, kind="ObservationEvent") == 2, "the end of the run")

    assert model.keys[-1] == f"Bearer {key}"
    assert model.asked[-1]["model"] == "theirs"
    [made] = [one["observation"] for one in api.events(identity, kind__eq="ObservationEvent")][:1]
    assert "workspace/project/made" in made["content"][0]["text"]
    info = api.call("GET", f"/conversations/{identity}")
    assert key not in json.dumps([started, info, api.events(identity), api.call("GET", "/v1/sandboxes/search")])
