"""The reference agent on its own: an agent server without webhooks."""

import json
import os
import signal
import sys
from uuid import uuid4

import httpx
import pytest

from runtimes import filled
from settings.specs import Specs
from tests.reference_agent.program import reference_agent
from tests.servers import PROJECT, TIMEOUT, free_port, running, wait_until

pytestmark = pytest.mark.process("starts an agent")


@pytest.fixture(scope="module")
def agent(tmp_path_factory):
    """A reference agent that needs a key."""
    with reference_agent(tmp_path_factory.mktemp("agent"), SECRET="the server's") as agent:
        yield agent


@pytest.fixture
def conversation(agent):
    """The path of a new conversation, whose actions wait for a decision."""
    return agent.begin("AlwaysConfirm")


def test_every_path_of_the_api_needs_the_key(agent, conversation):
    for headers in ({}, {"X-Session-API-Key": "another"}):
        response = httpx.get(str(agent.client.base_url).rstrip("/") + conversation, headers=headers)
        assert response.status_code == 401
        assert response.json() == {"detail": "Unauthorized"}
    assert httpx.get(f"{agent.client.base_url}/alive").status_code == 200


def test_a_path_that_only_other_agent_servers_have_is_refused_in_a_plain_sentence(agent, conversation):
    for method, path, status in (("GET", f"{conversation}/vscode/url", 404), ("PUT", conversation, 405)):
        refused = agent.client.request(method, path)
        assert (refused.status_code, refused.json()) == (
            status,
            {"detail": f"The bundled agent does not serve {method} {path}. The OpenHands agent may: make openhands."},
        )


def test_a_question_and_a_condensation_without_a_model_are_409_and_say_what_is_missing(agent, conversation):
    asked = agent.client.post(f"{conversation}/ask_agent", json={"question": "What?"})
    assert (asked.status_code, "Set LLM_MODEL" in asked.json()["detail"]) == (409, True)
    condensed = agent.client.post(f"{conversation}/condense")
    assert (condensed.status_code, "Set LLM_MODEL" in condensed.json()["detail"]) == (409, True)
    for body in ({}, {"question": " "}, {"question": 3}):
        assert agent.client.post(f"{conversation}/ask_agent", json=body).status_code == 422
    assert agent.client.post(f"/api/conversations/{uuid4()}/ask_agent", json={"question": "x"}).status_code == 404


def test_a_conversation_is_started_once_per_id(agent):
    body = {"conversation_id": str(uuid4())}
    statuses = [agent.post("/api/conversations", body).status_code for _ in range(2)]
    assert statuses == [201, 200]


def test_conversations_are_listed_from_the_newest_a_page_at_a_time(tmp_path):
    with reference_agent(tmp_path, SECRET="the server's") as agent:
        ids = [agent.begin().rpartition("/")[2] for _ in range(3)]

        first = agent.client.get("/api/conversations/search?limit=2").json()
        second = agent.client.get(f"/api/conversations/search?limit=2&page_id={first['next_page_id']}").json()

        assert [one["id"] for one in first["items"] + second["items"]] == ids[::-1]
        assert second["next_page_id"] is None
        assert agent.client.get("/api/conversations/search?limit=0").status_code == 422


def test_the_first_message_comes_with_the_start_request(agent):
    message = {"role": "user", "content": [{"type": "text", "text": "hello"}]}
    conversation = agent.begin(initial_message=message)

    agent.until(conversation, "finished")
    assert [event["source"] for event in agent.events(conversation, kind="MessageEvent")] == ["user", "agent"]


def test_an_accepted_action_is_executed(agent, conversation):
    agent.send(conversation, "run: echo one\nrun: (exit 3)")
    agent.until(conversation, "waiting_for_confirmation")
    assert agent.events(conversation, kind="ObservationEvent") == []

    assert agent.decide(conversation, True).json() == {"success": True}

    agent.until(conversation, "finished")
    seen = [event["observation"] for event in agent.events(conversation, kind="ObservationEvent")]
    assert [(one["exit_code"], one["content"][0]["text"]) for one in seen] == [(0, "one\n"), (3, "")]


def test_a_rejected_action_is_not_executed(agent, conversation):
    agent.send(conversation, "run: echo one")
    agent.until(conversation, "waiting_for_confirmation")

    agent.decide(conversation, False, reason="no")

    agent.until(conversation, "idle")
    [rejected] = agent.events(conversation, kind="UserRejectObservation")
    assert rejected["rejection_reason"] == "no"
    assert agent.events(conversation, kind="ObservationEvent") == []


def test_a_message_supersedes_pending_actions(agent, conversation):
    agent.send(conversation, "run: echo one")
    agent.until(conversation, "waiting_for_confirmation")
    agent.send(conversation, "never mind")

    agent.until(conversation, "finished")
    assert len(agent.events(conversation, kind="UserRejectObservation")) == 1
    messages = agent.events(conversation, kind="MessageEvent")
    assert [event["source"] for event in messages] == ["user", "user", "agent"]


def test_a_conversation_has_one_run_at_a_time(agent):
    conversation = agent.begin()
    agent.send(conversation, "run: sleep 30")
    agent.until(conversation, "running")

    assert agent.post(f"{conversation}/run").status_code == 409
    assert agent.client.get("/server_info").json()["idle_time"] == 0

    assert agent.post(f"{conversation}/interrupt").json() == {"success": True}
    agent.until(conversation, "paused")


@pytest.mark.parametrize(("begin", "kept"), [("", "Interrupted."), ("echo half", "half\nInterrupted.")])
def test_what_an_interrupted_command_has_printed_is_kept(agent, begin, kept):
    conversation, begun = agent.begin(), agent.home / f"begun-{len(begin)}"
    agent.send(conversation, f"run: {begin or ':'}; touch {begun}; sleep 30")
    wait_until(begun.exists, "the command")

    agent.post(f"{conversation}/interrupt")

    wait_until(lambda: agent.events(conversation, kind="ObservationEvent"), "the end of the action")
    [result] = agent.events(conversation, kind="ObservationEvent")
    [action] = agent.events(conversation, kind="ActionEvent")
    seen = result["observation"]
    assert (seen["content"][0]["text"], seen["is_error"], seen["exit_code"]) == (kept, True, -9)
    assert (result["action_id"], result["tool_call_id"]) == (action["id"], action["tool_call_id"])


def test_a_command_that_cannot_be_executed_is_observed_and_the_run_goes_on(agent):
    conversation = agent.begin()
    agent.send(conversation, "run: echo a\0b\nrun: echo next")

    agent.until(conversation, "finished")
    seen = [event["observation"]["exit_code"] for event in agent.events(conversation, kind="ObservationEvent")]
    assert seen == [126, 0]


def test_a_command_knows_secrets_and_no_key(agent, conversation):
    agent.post(f"{conversation}/secrets", {"secrets": {"GIVEN": "value"}})
    agent.send(conversation, "run: echo $GIVEN; env | grep -c -e 'a key' -e PYTHONPATH")
    agent.until(conversation, "waiting_for_confirmation")
    agent.decide(conversation, True)
    agent.until(conversation, "finished")

    [seen] = agent.events(conversation, kind="ObservationEvent")
    assert seen["observation"]["content"][0]["text"] == "value\n0\n"


@pytest.mark.parametrize("order", ["TIMESTAMP", "TIMESTAMP_DESC"])
@pytest.mark.parametrize("kind", [None, "MessageEvent"])
def test_pages_of_every_size_give_the_whole_log(agent, conversation, order, kind):
    for text in "abc":
        agent.send(conversation, text)
        agent.until(conversation, "finished")
    query = {"sort_order": order, **({"kind": kind} if kind else {})}
    whole = agent.events(conversation, **query)
    assert len(whole) == agent.client.get(f"{conversation}/events/count", params=query).json() > 5
    timestamps = [event["timestamp"] for event in whole]
    assert timestamps == sorted(timestamps, reverse=order == "TIMESTAMP_DESC")

    for limit in (1, 2, len(whole) - 1, len(whole), 100):
        assert agent.events(conversation, limit=limit, **query) == whole


def test_a_page_of_large_events_ends_before_it_is_larger_than_a_client_reads(agent, conversation):
    for _ in range(5):
        agent.send(conversation, "x" * 300_000, run=False)

    page = agent.client.get(f"{conversation}/events/search")
    assert len(page.content) < 2 << 20
    assert len(page.json()["items"]) == 3
    assert len(agent.events(conversation)) == 5


def test_a_page_begins_with_the_event_that_page_id_names(agent, conversation):
    agent.send(conversation, "hello")
    agent.until(conversation, "finished")
    first, second, *_ = agent.events(conversation)

    page = agent.client.get(f"{conversation}/events/search", params={"limit": 1}).json()
    assert page == {"items": [first], "next_page_id": second["id"]}
    unknown = agent.client.get(f"{conversation}/events/search", params={"limit": 1, "page_id": "unknown"}).json()
    assert unknown == page


def test_an_event_is_found_by_its_id(agent, conversation):
    agent.send(conversation, "hello", run=False)
    [event] = agent.events(conversation)

    assert agent.client.get(f"{conversation}/events/{event['id']}").json() == event
    assert agent.client.get(f"{conversation}/events/{uuid4()}").status_code == 404


SOME = "/api/conversations/{}"


BAD = [
    ("GET", "/api/conversations/x", None, 422),
    ("GET", "/api/conversations/5f1c8a52-7d0e-4c39-9a41-2f6f6a1f0aaa", None, 404),
    ("DELETE", "/api/conversations/5f1c8a52-7d0e-4c39-9a41-2f6f6a1f0aaa", None, 404),
    ("POST", "/api/conversations", {"conversation_id": "x"}, 422),
    ("POST", "/api/conversations", [1], 422),
    ("POST", "/api/conversations", {"initial_message": "hello"}, 422),
    ("POST", "/api/conversations", {"tags": ["a"]}, 422),
    ("POST", f"{SOME}/events", {"content": "hello"}, 422),
    ("POST", f"{SOME}/events", {"content": ["hello"]}, 422),
    ("POST", f"{SOME}/events", {"content": [{"text": 1}]}, 422),
    ("POST", f"{SOME}/events", {"content": [{"type": "text", "text": "lone \ud83d"}]}, 422),
    ("POST", f"{SOME}/secrets", {"secrets": {"\ud83d": "x"}}, 422),
    ("POST", f"{SOME}/events/respond_to_confirmation", {"reason": 1}, 422),
    ("POST", f"{SOME}/confirmation_policy", {"policy": "NeverConfirm"}, 422),
    ("POST", f"{SOME}/secrets", {"secrets": ["a"]}, 422),
    ("GET", f"{SOME}/events/search?limit=0", None, 422),
    ("GET", f"{SOME}/events/search?limit=101", None, 422),
    ("GET", f"{SOME}/events/search?limit=x", None, 422),
    ("GET", f"{SOME}/events/search?limit=000000001999", None, 422),
    ("GET", f"{SOME}/events/search?limit=0000000001", None, 422),
    ("GET", "/api/conversations/search?limit=000000001999", None, 422),
    ("GET", "/api/bash/bash_events/search?limit=000000001999", None, 422),
    ("GET", "/api/git/commits?path=.&limit=000000001999", None, 422),
    ("GET", f"{SOME}/events/search?sort_order=x", None, 422),
    ("GET", "/api/nope", None, 404),
]


def test_bad_input_gets_an_error_with_a_detail(agent, conversation):
    for method, path, body, status in BAD:
        content = None if body is None else json.dumps(body)
        response = agent.client.request(method, path.format(conversation.rpartition("/")[2]), content=content)
        detail = response.json()["detail"]
        said = detail[0]["msg"] if status == 422 else detail  # a fault as the OpenAPI document has it, or a sentence
        assert (response.status_code, type(said)) == (status, str), (method, path, body)


@pytest.mark.process("starts an agent and waits for its end")
def test_sigterm_ends_the_agent():
    port = free_port()
    with running([sys.executable, "-m", "reference_agent", "--port", str(port)]) as process:
        wait_until(lambda: httpx.get(f"http://127.0.0.1:{port}/alive").is_success, "the agent")
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0


@pytest.mark.process("starts an agent")
def test_no_module_of_the_working_folder_takes_the_place_of_the_agents_own(tmp_path):
    for name in ("core", "reference_agent", "json", "flask"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit(1)")
    port, spec = free_port(), Specs.load("").get(None)
    words = [filled(word, {"PYTHON": sys.executable, "AGENT_SERVER": port}) for word in spec.command]
    with running(["env", "-C", str(tmp_path), *words], env={**os.environ, "PYTHONPATH": str(PROJECT)}):
        wait_until(lambda: httpx.get(f"http://127.0.0.1:{port}/alive").is_success, "the agent")


def test_the_folder_of_a_shell_lies_in_agent_tmpdir_and_ends_with_its_conversation_or_the_agent(tmp_path):
    own, temporary = tmp_path / "own", tmp_path / "temporary"
    own.mkdir()
    temporary.mkdir()
    with reference_agent(tmp_path, AGENT_TMPDIR=str(own), TMPDIR=str(temporary)) as agent:
        deleted, kept = agent.begin(), agent.begin()
        for conversation in (deleted, kept):
            agent.send(conversation, "run: true")
            agent.until(conversation, "finished")
        assert [one.name.startswith("agent-shell-") for one in own.iterdir()] == [True, True]

        # When one conversation is deleted, then its folder is gone
        agent.client.delete(deleted)
        [left] = own.iterdir()

        # When the agent is killed, then the folder that stays is one that the runtime removes
        agent.restart()
        agent.send(kept, "run: true")
        agent.until(kept, "finished")
        assert left in own.iterdir()
        assert len([*own.iterdir()]) == 2

        # When the agent ends, then it leaves nothing of its own
        agent.process.terminate()
        agent.process.communicate(timeout=TIMEOUT)
        assert [*own.iterdir()] == [left]
        assert [*temporary.iterdir()] == []
