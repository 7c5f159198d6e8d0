"""Every route that writes a detached conversation does with a cold one what it does with a warm one, or nothing."""

import json
from uuid import uuid4

import pytest

from tests.cold import Objects, archiving_client
from tests.conftest import action, event, message

C = "/api/conversations/{id}"

#: method, path and body of each write
WRITES = {
    "message": ("POST", f"{C}/events", {"content": [{"type": "text", "text": "hello"}]}),
    "message that runs": ("POST", f"{C}/events", {"content": [{"type": "text", "text": "hello"}], "run": True}),
    "append": ("POST", "/api/v1/webhooks/events/{id}", [message("new"), event(), action()]),
    "respond": ("POST", f"{C}/events/respond_to_confirmation", {"accept": True}),
    "decide": (
        "POST",
        "/api/v1/conversation/{id}/pending-actions/decisions",
        {"decisions": [{"action_id": "none", "decision": "reject"}]},
    ),
    "create": ("POST", "/api/conversations", {"conversation_id": "{id}"}),
    "rename": ("PATCH", C, {"title": "other"}),
    "tag": ("PATCH", C, {"tags": {"a": "b"}}),
    "run": ("POST", f"{C}/run", None),
    "pause": ("POST", f"{C}/pause", None),
    "interrupt": ("POST", f"{C}/interrupt", None),
    "policy": ("POST", f"{C}/confirmation_policy", {"policy": {"kind": "AlwaysConfirm"}}),
    "analyzer": ("POST", f"{C}/security_analyzer", {"security_analyzer": None}),
    "secrets": ("POST", f"{C}/secrets", {"secrets": {"A": "b"}}),
    "fork": ("POST", f"{C}/fork", {}),
    "delete": ("DELETE", C, None),
    "send to its agent": ("POST", "/api/v1/app-conversations/{id}/send-message", {"content": []}),
    "queue": ("POST", "/api/v1/conversations/{id}/pending-messages", {"role": "user", "content": []}),
}

#: writes that need no log
NEED_NONE = {"create", "delete"}

EVENTS = [message("first"), event(), message("second", "agent")]


@pytest.fixture(scope="module")
def objects():
    return Objects()


@pytest.fixture(scope="module")
def keeper(redis_url, objects):
    return archiving_client(redis_url, objects)


@pytest.fixture
def twins(keeper):
    """Two conversations that are alike; the second one is cold."""
    ids = [str(uuid4()), str(uuid4())]
    for identity in ids:
        keeper.post("/api/conversations", json={"conversation_id": identity, "title": "twin"})
        assert keeper.post(f"/api/v1/webhooks/events/{identity}", json=EVENTS).status_code == 200
    assert keeper.application.extensions["store"].cold.freeze(ids[1])
    return ids


def write(client, name: str, identity: str):
    method, path, body = WRITES[name]
    data = None if body is None else json.dumps(body).replace("{id}", identity)
    return client.open(path.format(id=identity), method=method, data=data, content_type="application/json")


def state(client, identity: str) -> list:
    """What a conversation has come to, without ids and times of its own."""
    found = client.get(f"/api/conversations/{identity}")
    if found.status_code != 200:
        return [found.status_code]
    body, items = found.get_json(), client.get(f"/api/conversations/{identity}/events/search").get_json()["items"]
    told = [(one["kind"], one["source"], one.get("key"), one.get("value")) for one in items]
    return [told, *(body.get(name) for name in ("execution_status", "title", "tags", "confirmation_policy"))]


@pytest.mark.parametrize("name", WRITES)
def test_a_write_does_with_a_cold_conversation_what_it_does_with_a_warm_one(keeper, twins, name):
    warm, cold = twins

    expected, found = write(keeper, name, warm), write(keeper, name, cold)

    assert found.status_code == expected.status_code
    assert found.status_code < 500
    assert state(keeper, cold) == state(keeper, warm)


@pytest.mark.parametrize("name", WRITES)
def test_a_write_that_needs_a_log_that_is_away_is_503_and_writes_nothing(keeper, twins, objects, name):
    warm, cold = twins
    before = state(keeper, warm)
    expected = write(keeper, name, warm).status_code
    objects.is_away = True
    try:
        found = write(keeper, name, cold)
    finally:
        objects.is_away = False

    if found.status_code == 503:
        assert name not in NEED_NONE
        assert f"{cold} are in the archive (ARCHIVE_URL)" in found.get_json()["detail"]
        assert found.headers["Retry-After"]
        assert state(keeper, cold) == before
    else:
        assert found.status_code == expected
        assert state(keeper, cold) == state(keeper, warm)
