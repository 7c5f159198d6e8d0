"""The bounds of a conversation over HTTP: each has a status, and a sentence that names the setting."""

import pytest

from app import create_app
from config import Config
from tests.conftest import action, event
from tests.servers import redis_server


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    """A client of a server with small bounds."""
    with redis_server(tmp_path_factory.mktemp("redis")) as (url, _):
        bounds = {"max_pending_actions": 2, "max_event_kinds": 3, "max_reason_bytes": 64}
        yield create_app(Config(redis_url=url, redis_timeout=10, **bounds)).test_client()


@pytest.fixture
def url(client, conversation):
    policy = {"kind": "AlwaysConfirm"}
    client.post("/api/conversations", json={"conversation_id": conversation, "confirmation_policy": policy})
    return f"/api/conversations/{conversation}"


@pytest.fixture
def webhook(url, conversation):
    return f"/api/v1/webhooks/events/{conversation}"


def test_a_batch_with_too_many_pending_actions_gets_409(client, url, webhook):
    response = client.post(webhook, json=[action(), action(), action()])

    assert response.status_code == 409
    assert response.get_json()["detail"] == (
        "At most 2 actions of a conversation may wait for a decision (MAX_PENDING_ACTIONS): "
        "none of these events was appended"
    )
    assert client.get(f"{url}/events/count").get_json() == 0


def test_a_batch_of_too_many_kinds_and_sources_gets_422(client, url, webhook):
    response = client.post(webhook, json=[event(f"Kind{number}") for number in range(4)])

    assert response.status_code == 422
    [fault] = response.get_json()["detail"]
    assert (fault["loc"], fault["type"]) == (["body"], "too_long")
    assert "at most 3 pairs of kind and source (MAX_EVENT_KINDS)" in fault["msg"]
    assert client.get(f"{url}/events/count").get_json() == 0


@pytest.mark.parametrize("accept", [True, False])
def test_a_reason_that_is_too_long_gets_422(client, url, webhook, accept):
    client.post(webhook, json=[action()])

    response = client.post(f"{url}/events/respond_to_confirmation", json={"accept": accept, "reason": "é" * 33})

    assert response.status_code == 422
    [fault] = response.get_json()["detail"]
    assert fault["loc"] == ["body", "reason"]
    assert fault["msg"] == "A reason should have at most 64 bytes of UTF-8 (MAX_REASON_BYTES)"
    assert len(client.get(f"{url}/pending_actions").get_json()) == 1


@pytest.mark.parametrize("member", ["tool_name", "tool_call_id", "llm_response_id"])
def test_an_action_whose_names_are_too_long_gets_422(client, url, webhook, member):
    assert client.post(webhook, json=[action(**{member: "n" * 4096})]).status_code == 200

    response = client.post(webhook, json=[action(**{member: "é" * 2049})])

    assert response.status_code == 422
    [fault] = response.get_json()["detail"]
    assert fault["loc"] == ["body", 0, member]
    assert "4096 bytes" in fault["msg"]
