"""The bounds of a conversation over HTTP: each has a status, and a sentence that names the setting."""

import io
import random

import pytest
from redis import Redis

from app import create_app
from settings.config import Config
from tests.conftest import SECRET_KEY, action, event, message
from tests.servers import store_server, wait_until

ALWAYS = {"kind": "AlwaysConfirm"}


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    """A client of a server with small bounds."""
    with store_server(tmp_path_factory.mktemp("redis")) as (url, _):
        bounds = {"max_pending_actions": 2, "max_event_kinds": 3, "max_reason_bytes": 64}
        bounds |= {"max_conversation_bytes": 1 << 20, "max_sandbox_bytes": 1 << 20, "rate_limit_hook_bytes": "none"}
        yield create_app(Config.of(redis_url=url, redis_timeout=10, secret_key=SECRET_KEY, **bounds)).test_client()


@pytest.fixture
def url(client, conversation):
    client.post("/api/conversations", json={"conversation_id": conversation, "confirmation_policy": ALWAYS})
    return f"/api/conversations/{conversation}"


@pytest.fixture
def webhook(url, conversation):
    return f"/api/v1/webhooks/events/{conversation}"


def test_a_batch_with_too_many_pending_actions_gets_409(client, url, webhook):
    response = client.post(webhook, json=[action(), action(), action()])

    assert response.status_code == 409
    assert response.get_json()["detail"] == (
        "At most 2 actions of a conversation may wait for a decision (MAX_PENDING_ACTIONS): "
        "none of these events was appended. Decide some first"
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


def test_a_log_that_would_be_too_long_gets_413(client, url, webhook):
    noise = random.Random(1)  # which gets no shorter by packing
    response = client.post(webhook, json=[event("Kind", text=noise.randbytes(100_000).hex()) for _ in range(12)])

    assert response.status_code == 413
    assert "MAX_CONVERSATION_BYTES" in response.get_json()["detail"]
    assert client.get(f"{url}/events/count").get_json() == 0


def test_a_log_from_before_its_bytes_were_counted_is_estimated(client, url, webhook, conversation):
    # Given a log of an earlier release, which has nearly all its bytes
    noise = random.Random(2)
    parts = [event("Kind", text=noise.randbytes(50_000).hex()) for _ in range(16)]
    assert client.post(webhook, json=parts).status_code == 200
    redis = client.application.extensions["server"].store.conversations._redis
    redis.hdel(f"conv:{{{conversation}}}", "log_bytes")

    # Then its bytes count
    response = client.post(webhook, json=[event("Kind", text=noise.randbytes(250_000).hex())])
    assert response.status_code == 413
    assert client.get(f"{url}/events/count").get_json() == 16


@pytest.fixture
def hook_key(client):
    """The header with the hook key of a sandbox."""
    sandboxes = client.application.extensions["server"].store.sandboxes
    sandboxes.beat("bounded", "supervisor")
    sandbox = sandboxes.start("spec", host="bounded")
    return {"Authorization": f"Bearer {sandboxes.begin(sandbox.id, 'bounded', 'supervisor', 'process')}"}


def test_a_sandbox_that_has_posted_its_bytes_gets_507(client, conversation, hook_key):
    url = f"/api/v1/webhooks/events/{conversation}"
    response = client.post(url, data=b" " * (1 << 20) + b"[]", headers=hook_key)

    assert response.status_code == 507
    assert "MAX_SANDBOX_BYTES" in response.get_json()["detail"]


@pytest.mark.parametrize("path", ["events/{}", "conversations"])
def test_a_sandbox_whose_body_has_no_length_gets_411(client, conversation, hook_key, path):
    url = f"/api/v1/webhooks/{path.format(conversation)}"
    chunked = hook_key | {"Transfer-Encoding": "chunked"}
    response = client.post(url, input_stream=io.BytesIO(b"[]"), headers=chunked)

    assert response.status_code == 411
    assert "Content-Length" in response.get_json()["detail"]
    assert client.post(url, json={}, headers=hook_key).status_code == 422


@pytest.mark.process("waits for what threads do")
def test_a_redis_that_is_nearly_full_serves_what_makes_room_and_nothing_more(tmp_path, conversation):
    with store_server(tmp_path) as (url, _), Redis.from_url(url) as redis:
        client = create_app(Config.of(redis_url=url, secret_key=SECRET_KEY)).test_client()
        path, webhook = f"/api/conversations/{conversation}", f"/api/v1/webhooks/events/{conversation}"
        rule = {"tool_name": "browser", "decision": "reject"}
        client.post("/api/conversations", json={"conversation_id": conversation, "confirmation_policy": ALWAYS})
        assert client.post(webhook, json=[message("kept"), action()]).status_code == 200
        rules = client.post("/api/v1/approval-rules", json=rule)
        key = client.post("/api/v1/keys", json={"name": "a", "scopes": ["read"]})
        assert (rules.status_code, key.status_code) == (201, 201), (rules.get_data(), key.get_data())
        client.application.extensions["server"].store.sandboxes.beat("h", "supervisor")
        redis.setrange("ballast", 30 << 20, b"x")  # so that the last percent has room for what is served
        redis.config_set("maxmemory", redis.info("memory")["used_memory"] * 100 // 97)

        def is_refused(method: str, url: str, body: object) -> bool:
            refused = client.open(url, method=method, json=body)
            return refused.status_code == 507 and "MAX_STORE_BYTES" in refused.get_json()["detail"]

        # Then every write that brings something is refused
        wait_until(lambda: is_refused("POST", webhook, [message("more")]), "the refusal")
        start = {"initial_message": {"content": [{"type": "text", "text": "begin"}]}}
        assert [
            (method, url)
            for method, url, body in (
                ("POST", "/api/conversations", {}),
                ("PATCH", path, {"title": "longer"}),
                ("POST", f"{path}/events", {"role": "user", "content": [{"type": "text", "text": "hello"}]}),
                ("POST", f"{path}/secrets", {"secrets": {"TOKEN": "value"}}),
                ("POST", f"{path}/fork", {}),
                ("POST", "/api/v1/app-conversations", start),
                ("POST", "/api/v1/approval-rules", rule | {"tool_name": "editor"}),
            )
            if not is_refused(method, url, body)
        ] == []
        assert client.get("/ready").status_code == 503
        assert "maxmemory" in client.get("/ready").get_json()["detail"]

        # And reads, decisions, pauses, revocations and deletes are served, also once per Idempotency-Key
        once = {"Idempotency-Key": "one"}
        assert client.get(f"{path}/events/count").get_json() >= 1
        decided = client.post(f"{path}/events/respond_to_confirmation", json={"accept": True}, headers=once)
        assert decided.get_json() == {"success": True}
        assert client.post(f"{path}/pause").status_code == 200
        for made in (f"/api/v1/approval-rules/{rules.get_json()['id']}", f"/api/v1/keys/{key.get_json()['id']}", path):
            assert client.delete(made).status_code in (200, 204)
