"""A worker is killed after the effect of a POST and before its response: the client's repeat finds the effect."""

from uuid import uuid4

import httpx
import pytest
from redis import Redis

from settings.config import Config
from tests.conftest import SECRET_KEY, action, limits_of, message, store_of
from tests.killed_app import WorkerKilled, killed_here
from tests.servers import agent_server, store_server, wait_until

LIMITS = limits_of(most=1000, pause_idlest=False, host_seconds=3600, start_seconds=3600)
SETTINGS = {"secret_key": SECRET_KEY, "rate_limit_starts": "none", "redis_timeout": 10}
TEXT = {"content": [{"type": "text", "text": "hello"}]}


@pytest.fixture(
    scope="module",
    params=["here", pytest.param("servers", marks=pytest.mark.faults("waits for a new worker after each kill"))],
)
def whole(request, tmp_path_factory):
    """A server whose workers a request can kill, its store, and its Redis; or an app whose requests can end so."""
    folder = tmp_path_factory.mktemp("lost")
    with store_server(folder) as (url, _), Redis.from_url(url) as redis:
        store = store_of(url, LIMITS)
        store.sandboxes.beat("h", "supervisor")
        if request.param == "here":
            with killed_here(Config.of(redis_url=url, host_seconds=3600, max_sandboxes=1000, **SETTINGS)) as client:
                yield client, store, redis
            return
        settings = {"HOST_SECONDS": "3600", "MAX_SANDBOXES": "1000", "REDIS_URL": url, "DATA_DIR": str(folder)}
        with agent_server(folder / "log", "tests.killed_app:create_app()", **settings) as (client, _):
            yield client, store, redis


@pytest.fixture
def url(whole, conversation):
    whole[0].post("/api/conversations", json={"conversation_id": conversation})
    return f"/api/conversations/{conversation}"


def lost(whole, path: str, **request) -> httpx.Response:
    """The response to the repeat of a request whose worker was killed, after its lease has ended."""
    client, _, redis = whole
    headers = {"Idempotency-Key": str(uuid4())}
    wait_until(lambda: client.get("/alive").status_code == 200, "a worker")
    with pytest.raises((httpx.TransportError, WorkerKilled)):
        client.post(path, headers={**headers, "Kill-After": "1"}, **request)
    wait_until(lambda: client.get("/alive").status_code == 200, "a worker")

    early = client.post(path, headers=headers, **request)
    assert (early.status_code, early.headers["Retry-After"]) == (409, "1")
    end_leases(redis)
    repeated = client.post(path, headers=headers, **request)
    assert "Idempotency-Replayed" not in repeated.headers
    again = client.post(path, headers=headers, **request)
    assert (again.status_code, again.headers["Idempotency-Replayed"]) == (repeated.status_code, "true")
    return repeated


def end_leases(redis: Redis) -> None:
    for key in redis.scan_iter("once:*:key:*"):
        if redis.hexists(key, "token"):
            redis.hset(key, "lease", 1)


def events(whole, url: str) -> list[dict]:
    return whole[0].get(f"{url}/events/search").json()["items"]


@pytest.mark.parametrize("body", [{}, {"title": "t"}, {"initial_message": TEXT}], ids=["bare", "title", "message"])
def test_a_conversation_is_found_again(whole, body):
    client = whole[0]
    before = client.get("/api/conversations/count").json()

    found = lost(whole, "/api/conversations", json=body)

    assert found.status_code == 201
    assert client.get("/api/conversations/count").json() == before + 1
    kinds = [one["kind"] for one in events(whole, f"/api/conversations/{found.json()['id']}")]
    assert kinds == (["MessageEvent", "ConversationStateUpdateEvent"] if "initial_message" in body else [])


def test_a_fork_is_found_again(whole, url, conversation):
    client = whole[0]
    client.post(f"/api/v1/webhooks/events/{conversation}", json=[message("a"), message("b")])
    before = client.get("/api/conversations/count").json()

    found = lost(whole, f"{url}/fork", json={})

    assert found.status_code == 201
    assert client.get("/api/conversations/count").json() == before + 1
    assert len(events(whole, f"/api/conversations/{found.json()['id']}")) == 2


def test_a_message_is_found_again(whole, url):
    assert lost(whole, f"{url}/events", json={**TEXT, "run": True}).status_code == 200

    assert [one["kind"] for one in events(whole, url)] == ["MessageEvent", "ConversationStateUpdateEvent"]


def test_a_pause_is_found_again(whole, url):
    assert lost(whole, f"{url}/pause").status_code == 200

    assert [one["kind"] for one in events(whole, url)] == ["PauseEvent", "ConversationStateUpdateEvent"]


@pytest.mark.parametrize("accept", [True, False])
def test_a_decision_is_found_again_as_the_one_that_won(whole, url, conversation, accept):
    client = whole[0]
    client.post(f"{url}/confirmation_policy", json={"policy": {"kind": "AlwaysConfirm"}})
    client.post(f"/api/v1/webhooks/events/{conversation}", json=[action()])
    before = len(events(whole, url))

    found = lost(whole, f"{url}/events/respond_to_confirmation", json={"accept": accept})

    assert found.json() == {"success": True}
    assert len(events(whole, url)) == before + (1 if accept else 2)


def test_an_appended_batch_is_found_again(whole, url, conversation):
    found = lost(whole, f"/api/v1/webhooks/events/{conversation}", json=[message("once")])

    assert found.status_code == 200
    assert len(events(whole, url)) == 1


def test_a_start_of_an_app_conversation_is_found_again(whole):
    client = whole[0]
    before = client.get("/api/v1/app-conversations/start-tasks/count").json()

    found = lost(whole, "/api/v1/app-conversations", json={"title": "t"})

    assert found.status_code == 200
    assert client.get("/api/v1/app-conversations/start-tasks/count").json() == before + 1


def test_a_sandbox_is_found_again_with_its_key(whole):
    client, store, _ = whole
    before = len(client.get("/api/v1/sandboxes/search", params={"limit": 100}).json()["items"])

    found = lost(whole, "/api/v1/sandboxes")

    assert found.status_code == 200
    assert found.json()["session_api_key"] in (None, store.sandboxes.get(found.json()["id"]).session_api_key)
    assert len(client.get("/api/v1/sandboxes/search", params={"limit": 100}).json()["items"]) == before + 1
