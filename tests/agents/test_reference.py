"""The reference agent on its own: an agent server without webhooks."""

import os
import signal
import sys

import httpx
import pytest

from tests.servers import PROJECT, free_port, running, wait_until

KEY = "a key"


@pytest.fixture(scope="module")
def agent(tmp_path_factory):
    """A client of a reference agent that needs a key."""
    port = free_port()
    environment = {**os.environ, "PYTHONPATH": str(PROJECT), "OH_SESSION_API_KEYS_0": KEY, "SECRET": "the server's"}
    command = [sys.executable, "-m", "agents.reference", "--port", str(port)]
    url = f"http://127.0.0.1:{port}"
    with running(command, env=environment), httpx.Client(base_url=url, headers={"X-Session-API-Key": KEY}) as client:
        wait_until(lambda: client.get("/alive").is_success, "the agent")
        yield client


@pytest.fixture
def conversation(agent):
    """The path of a new conversation, whose actions wait for a decision."""
    body = {"confirmation_policy": {"kind": "AlwaysConfirm"}}
    started = agent.post("/api/conversations", json=body)
    assert started.status_code == 201
    return f"/api/conversations/{started.json()['id']}"


def send(agent, conversation, text, run=True):
    body = {"role": "user", "content": [{"type": "text", "text": text}], "run": run}
    assert agent.post(f"{conversation}/events", json=body).json() == {"success": True}


def until(agent, conversation, status):
    wait_until(lambda: agent.get(conversation).json()["execution_status"] == status, status)


def events(agent, conversation, kind):
    return agent.get(f"{conversation}/events/search", params={"kind": kind}).json()["items"]


def decide(agent, conversation, accept, **members):
    path = f"{conversation}/events/respond_to_confirmation"
    assert agent.post(path, json={"accept": accept, **members}).json() == {"success": True}


def test_every_path_of_the_api_needs_the_key(agent, conversation):
    for headers in ({}, {"X-Session-API-Key": "another"}):
        response = httpx.get(str(agent.base_url).rstrip("/") + conversation, headers=headers)
        assert response.status_code == 401
        assert response.json() == {"detail": "Unauthorized"}
    assert httpx.get(f"{agent.base_url}/alive").status_code == 200


def test_a_conversation_is_started_once_per_id(agent):
    identity = "5f1c8a52-7d0e-4c39-9a41-2f6f6a1f0009"
    statuses = [agent.post("/api/conversations", json={"conversation_id": identity}).status_code for _ in range(2)]
    assert statuses == [201, 200]


def test_an_accepted_action_is_executed(agent, conversation):
    send(agent, conversation, "run: echo one\nrun: exit 3")
    until(agent, conversation, "waiting_for_confirmation")
    assert events(agent, conversation, "ObservationEvent") == []

    decide(agent, conversation, True)

    until(agent, conversation, "finished")
    seen = [event["observation"] for event in events(agent, conversation, "ObservationEvent")]
    assert [(one["exit_code"], one["content"][0]["text"]) for one in seen] == [(0, "one\n"), (3, "")]


def test_a_rejected_action_is_not_executed(agent, conversation):
    send(agent, conversation, "run: echo one")
    until(agent, conversation, "waiting_for_confirmation")

    decide(agent, conversation, False, reason="no")

    until(agent, conversation, "idle")
    [rejected] = events(agent, conversation, "UserRejectObservation")
    assert rejected["rejection_reason"] == "no"
    assert events(agent, conversation, "ObservationEvent") == []


def test_a_message_supersedes_pending_actions(agent, conversation):
    send(agent, conversation, "run: echo one")
    until(agent, conversation, "waiting_for_confirmation")
    send(agent, conversation, "never mind")

    until(agent, conversation, "finished")
    assert len(events(agent, conversation, "UserRejectObservation")) == 1
    assert [event["source"] for event in events(agent, conversation, "MessageEvent")] == ["user", "user", "agent"]


def test_a_conversation_has_one_run_at_a_time(agent, conversation):
    agent.post(f"{conversation}/confirmation_policy", json={"policy": {"kind": "NeverConfirm"}})
    send(agent, conversation, "run: sleep 30")
    until(agent, conversation, "running")

    assert agent.post(f"{conversation}/run").status_code == 409
    assert agent.get("/server_info").json()["idle_time"] == 0

    assert agent.post(f"{conversation}/interrupt").json() == {"success": True}
    until(agent, conversation, "paused")
    wait_until(lambda: events(agent, conversation, "AgentErrorEvent"), "the end of the action")


def test_a_command_knows_secrets_and_no_key(agent, conversation):
    agent.post(f"{conversation}/secrets", json={"secrets": {"GIVEN": "value"}})
    send(agent, conversation, "run: echo $GIVEN; env | grep -c -e 'a key' -e PYTHONPATH")
    until(agent, conversation, "waiting_for_confirmation")
    decide(agent, conversation, True)
    until(agent, conversation, "finished")

    [seen] = events(agent, conversation, "ObservationEvent")
    assert seen["observation"]["content"][0]["text"] == "value\n0\n"


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/api/conversations/x", None, 422),
        ("GET", "/api/conversations/5f1c8a52-7d0e-4c39-9a41-2f6f6a1f0aaa", None, 404),
        ("POST", "/api/conversations", {"conversation_id": "x"}, 422),
        ("POST", "/api/conversations", [1], 422),
        ("GET", "/api/nope", None, 404),
    ],
)
def test_bad_input_gets_an_error_with_a_detail(agent, method, path, body, status):
    response = agent.request(method, path, json=body)
    assert response.status_code == status
    assert isinstance(response.json()["detail"], str)


def test_sigterm_ends_the_agent():
    port = free_port()
    with running([sys.executable, "-m", "agents.reference", "--port", str(port)]) as process:
        wait_until(lambda: httpx.get(f"http://127.0.0.1:{port}/alive").is_success, "the agent")
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
