"""Redis becomes full between an effect and what is written behind it: what was taken is acknowledged and listed."""

from uuid import uuid4

import pytest
from redis import Redis

from app import create_app
from settings.config import Config
from tests.conftest import action
from tests.servers import store_server

pytestmark = pytest.mark.process("has stores of its own become full")


@pytest.fixture(scope="module")
def app_and_redis(tmp_path_factory):
    with store_server(tmp_path_factory.mktemp("store")) as (url, _), Redis.from_url(url) as redis:
        yield create_app(Config.of(redis_url=url)), redis


@pytest.fixture
def full_behind(app_and_redis, monkeypatch):
    """Have Redis be full from the effect of a script on."""
    app, redis = app_and_redis

    def fill(name: str) -> None:
        scripts = app.extensions["server"].store.events._scripts
        effect = getattr(scripts, f"_{name}")

        def filling(keys, args):
            reply = effect(keys, args)
            redis.config_set("maxmemory", 1)
            return reply

        for part in (
            app.extensions["server"].store.events,
            app.extensions["server"].store.conversations,
            app.extensions["server"].store.approvals.confirmations,
        ):
            monkeypatch.setattr(part._scripts, f"_{name}", filling)

    yield fill
    redis.config_set("maxmemory", 0)


def _message(client, conversation, key=""):
    headers = {"Idempotency-Key": key} if key else {}
    body = {"role": "user", "content": [{"type": "text", "text": "word"}], "run": False}
    return client.post(f"/api/conversations/{conversation}/events", json=body, headers=headers)


def test_a_message_that_was_taken_is_acknowledged_and_listed(app_and_redis, full_behind):
    app, redis = app_and_redis
    client, conversation, key = app.test_client(), str(uuid4()), str(uuid4())
    client.post("/api/conversations", json={"conversation_id": conversation})

    full_behind("send_message")
    sent = _message(client, conversation, key)
    again = _message(client, conversation, key)
    redis.config_set("maxmemory", 0)

    assert (sent.status_code, again.status_code) == (200, 200)
    assert client.get(f"/api/conversations/{conversation}/events/count?body=word").json == 1
    listed = client.get("/api/conversations/search?limit=1").json["items"][0]
    assert listed["id"] == conversation


def test_a_conversation_that_was_created_is_acknowledged_and_listed(app_and_redis, full_behind):
    app, redis = app_and_redis
    client, conversation = app.test_client(), str(uuid4())

    full_behind("create_conversation")
    created = client.post("/api/conversations", json={"conversation_id": conversation})
    redis.config_set("maxmemory", 0)

    assert created.status_code == 201
    assert client.get("/api/conversations/search?limit=1").json["items"][0]["id"] == conversation


def test_an_action_that_waits_is_acknowledged_and_in_the_inbox(app_and_redis, full_behind):
    app, redis = app_and_redis
    client, conversation, proposed = app.test_client(), str(uuid4()), action("ls")
    policy = {"conversation_id": conversation, "confirmation_policy": {"kind": "AlwaysConfirm"}}
    client.post("/api/conversations", json=policy)

    full_behind("append_events")
    posted = client.post(f"/api/v1/webhooks/events/{conversation}", json=[proposed])
    redis.config_set("maxmemory", 0)

    assert posted.status_code == 200
    waiting = client.get(f"/api/v1/pending-actions?conversation_id={conversation}").json["items"]
    assert [one["action_id"] for one in waiting] == [proposed["id"]]
