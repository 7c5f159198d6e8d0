"""Copies of a conversation in a sandbox, which its agent server makes too: over HTTP, with a scripted agent server."""

import threading
from uuid import uuid4

import pytest

from app import create_app
from config import Config
from tests.conftest import SECRET_KEY, as_events, event


def url(conversation: str) -> str:
    return f"/api/conversations/{conversation}/fork"


@pytest.fixture
def linked(store, conversation, sandbox, agent):
    """A conversation in a sandbox, with three events."""
    folder = {"working_dir": "/work"}
    store.conversations.create(
        conversation, sandbox_id=sandbox.id, app={"llm_model": "some", "start_id": "s"}, workspace=folder, title="First"
    )
    store.events.append(conversation, as_events([event() for _ in range(3)]), sandbox_id=sandbox.id)
    return conversation


def ids_of(client, conversation: str) -> list[str]:
    return [one["id"] for one in client.get(f"/api/conversations/{conversation}/events/search").get_json()["items"]]


# ends come first


@pytest.mark.parametrize("refused", [409, 422, 429])
def test_a_copy_that_the_agent_server_refuses_leaves_nothing_and_says_why(
    client, store, agent, sandbox, linked, refused
):
    agent.broken[linked], target = refused, str(uuid4())

    response = client.post(url(linked), json={"id": target})

    assert (response.status_code, response.get_json()["detail"]) == (refused, "as scripted")
    assert store.conversations.get_many([target]) == [None]
    assert store.app_conversations.in_sandbox(sandbox.id) == 1


def test_a_copy_whose_open_actions_cannot_be_closed_leaves_nothing_on_either_side(client, store, agent, linked):
    target = str(uuid4())
    agent.broken[target] = 500

    response = client.post(url(linked), json={"id": target})

    assert response.status_code == 502
    assert store.conversations.get_many([target]) == [None]
    assert f"DELETE /api/conversations/{target}" in [path for path, _ in agent.requests]


def test_a_copy_of_an_event_that_only_the_agent_has_leaves_nothing_on_either_side(client, store, agent, linked):
    target = str(uuid4())
    response = client.post(url(linked), json={"id": target, "from_event_id": "unknown"})

    assert (response.status_code, response.get_json()["detail"]) == (404, "Event not found")
    assert store.conversations.get_many([target]) == [None]
    assert agent.requests[-1][0] == f"DELETE /api/conversations/{target}"


def test_an_id_in_use_is_409_and_no_agent_is_asked(client, store, agent, linked):
    taken = str(uuid4())
    store.conversations.create(taken)
    assert client.post(url(linked), json={"id": taken}).status_code == 409
    assert agent.requests == []


def test_a_sandbox_without_room_refuses_a_copy_before_its_agent_makes_one(redis_url, store, agent, sandbox, linked):
    crowded = create_app(
        Config(redis_url=redis_url, redis_timeout=10, secret_key=SECRET_KEY, max_conversations_per_sandbox=1)
    ).test_client()

    response = crowded.post(url(linked))

    assert response.status_code == 429
    assert "MAX_CONVERSATIONS_PER_SANDBOX" in response.get_json()["detail"]
    assert agent.requests == []


def test_an_agent_server_that_makes_no_copies_leaves_the_copy_detached(client, store, agent, linked):
    target = str(uuid4())
    agent.statuses = [404]  # for the copy; it knows the conversation

    response = client.post(url(linked), json={"id": target})

    assert response.status_code == 201
    assert store.conversations.sandbox_of(target) is None
    assert len(ids_of(client, target)) == 3


def test_an_agent_server_that_has_forgotten_the_conversation_is_404(client, store, agent, linked):
    agent.forgotten.add(linked)
    target = str(uuid4())
    assert client.post(url(linked), json={"id": target}).status_code == 404
    assert store.conversations.get_many([target]) == [None]


# the copy


def test_a_copy_is_an_app_conversation_of_the_same_sandbox_with_its_events(client, store, agent, sandbox, linked):
    body = {"title": "Second", "tags": {"a": "b"}, "reset_metrics": False}
    made = client.post(url(linked), json=body)

    assert made.status_code == 201
    target = made.get_json()["id"]
    [sent] = agent.posted(f"{linked}/fork")
    assert sent == {**body, "id": target}
    assert made.get_json()["title"] == "Second"
    assert made.get_json()["execution_status"] == "idle"
    assert made.get_json()["forked_from_conversation_id"] == linked
    assert ids_of(client, target) == ids_of(client, linked)
    state = store.app_conversations.get(target)
    assert (state["sandbox_id"], state["app"], state["groups"]) == (
        sandbox.id,
        {"llm_model": "some"},
        store.conversations.get(linked)["groups"],
    )
    assert state["workspace"] == {"working_dir": "/work"}
    assert store.app_conversations.in_sandbox(sandbox.id) == 2


def test_a_copy_runs_by_its_agent_and_takes_its_webhooks(client, store, agent, sandbox, linked):
    target = client.post(url(linked)).get_json()["id"]

    assert client.post(f"/api/conversations/{target}/run").status_code == 200
    store.events.append(target, as_events([event()]), sandbox_id=sandbox.id)

    assert agent.posted(f"{target}/run") == [{}]
    assert (len(ids_of(client, target)), len(ids_of(client, linked))) == (4, 3)


def test_what_waits_in_the_source_is_rejected_in_the_copy_before_anybody_can_run_it(
    client, store, agent, sandbox, waiting
):
    target = client.post(url(waiting)).get_json()["id"]

    asked = [path.removeprefix("POST /api/conversations/") for path, _ in agent.requests]
    assert asked == [f"{waiting}/fork", f"{target}/events/respond_to_confirmation"]
    assert agent.decisions[0]["accept"] is False
    assert store.confirmations.pending(target) == []
    assert len(store.confirmations.pending(waiting)) == 1

    # The agent says so in the person's name, which is right for that action, and for no other.
    rejection = event("UserRejectObservation", "environment", action_id=agent.latest, tool_name="terminal")
    other = event("UserRejectObservation", "environment", action_id="another", tool_name="terminal")
    store.events.append(target, as_events([rejection, other]), sandbox_id=sandbox.id)
    items = client.get(f"/api/conversations/{target}/events/search").get_json()["items"]
    assert [one.get("rejection_source") for one in items[-2:]] == [None, "hook"]


def test_concurrent_copies_into_one_id_make_one(app, client, store, agent, sandbox, linked):
    target, found, taken = str(uuid4()), [], threading.Lock()

    def status(path: str) -> int:
        """As an agent server: a second copy into one id is refused."""
        return 409 if path.endswith("/fork") and not taken.acquire(blocking=False) else 200

    agent.status_of = status
    threads = [
        threading.Thread(target=lambda: found.append(app.test_client().post(url(linked), json={"id": target})))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(response.status_code for response in found) == [201, 409, 409, 409]
    assert len(ids_of(client, target)) == 3
    assert store.app_conversations.in_sandbox(sandbox.id) == 2


def test_a_repeat_with_the_same_idempotency_key_finds_the_copy(client, store, agent, sandbox, linked):
    headers = {"Idempotency-Key": str(uuid4())}
    first = client.post(url(linked), headers=headers)
    again = client.post(url(linked), headers=headers)

    assert first.get_json()["id"] == again.get_json()["id"]
    assert len(agent.posted("/fork")) == 1


def test_an_attempt_after_a_crash_ends_the_copy_that_an_earlier_one_began(client, store, agent, sandbox, linked):
    headers, target = {"Idempotency-Key": str(uuid4())}, str(uuid4())
    agent.statuses = [200, 500]  # its copy is made, and what follows fails, as does its removal
    agent.on_request = lambda path: agent.statuses.append(500) if path.endswith("respond_to_confirmation") else None
    assert client.post(url(linked), json={"id": target}, headers=headers).status_code == 502
    agent.on_request = lambda _path: None
    agent.statuses = [409]  # the copy is there

    response = client.post(url(linked), json={"id": target}, headers=headers)

    assert response.status_code == 201
    assert ids_of(client, target) == ids_of(client, linked)


def test_a_detached_conversation_is_copied_as_before(client, store, conversation, agent):
    store.conversations.create(conversation)
    assert client.post(url(conversation)).status_code == 201
    assert agent.requests == []
