"""Data that an older release wrote: a store of version 0, with one of everything, is migrated and loses nothing.

`tests/recorded/version_0/` is the folder of an embedded store as release e309848 left it when it was killed, and the
responses of its server (`facts.json`).
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from redis import Redis

from app import create_app
from config import Config
from store.data_version import VERSION
from tests.conftest import RECORDED, action
from tests.servers import PROJECT, agent_server, redis_program, redis_server, running, wait_until

OLD = RECORDED / "version_0"
FACTS = json.loads((OLD / "facts.json").read_text())
WAITING, FREE, IN_SANDBOX = (f"00000000-0000-4000-8000-{number:012}" for number in (3, 4, 7))

SECRET_KEY = "a key for tests only"


@pytest.fixture
def redis(tmp_path):
    """The old store."""
    shutil.copytree(OLD / "appendonlydir", tmp_path / "appendonlydir")
    path = tmp_path / "redis.sock"
    words = ["--port", "0", "--unixsocket", str(path), "--dir", str(tmp_path), "--appendonly", "yes", "--save", ""]
    with running([redis_program(), *words], stdout=subprocess.DEVNULL):
        client = Redis(unix_socket_path=str(path), retry=None)
        wait_until(client.ping, "redis-server")
        yield client


@pytest.fixture
def client(redis):
    return client_of(redis)


def client_of(redis):
    """A client of a server that has just been started."""
    url = f"unix://{redis.connection_pool.connection_kwargs['path']}"
    return create_app(Config(redis_url=url, redis_timeout=10, secret_key=SECRET_KEY)).test_client()


def get(client, path, **query):
    response = client.get(f"/api{path}", query_string=query)
    assert response.status_code == 200, response.get_data(as_text=True)
    return response.get_json()


def test_every_count_page_and_state_is_unchanged(client):
    for conversation, count in FACTS["counts"].items():
        assert get(client, f"/conversations/{conversation}/events/count") == count
    for conversation, items in FACTS["pages"].items():
        assert get(client, f"/conversations/{conversation}/events/search")["items"] == items
    for conversation, state in FACTS["states"].items():
        assert get(client, f"/conversations/{conversation}") == {**state, **LATER}


def test_pending_actions_are_pending_and_can_be_decided(client):
    for conversation, pending in FACTS["pending"].items():
        assert get(client, f"/conversations/{conversation}/pending_actions") == pending

    url = f"/api/conversations/{WAITING}/events"
    decided = client.post(f"{url}/respond_to_confirmation", json={"accept": False, "reason": "no"})

    assert decided.get_json() == {"success": True}
    items = client.get(f"{url}/search", query_string={"kind": "UserRejectObservation"}).get_json()["items"]
    assert [(one["action_id"], one["tool_name"]) for one in items] == [
        ("act-1", 'terminal\n"x"'),
        ("act-2", "terminal"),
    ]


def test_open_actions_that_were_never_pending_can_be_observed_and_others_appended(client):
    webhook = f"/api/v1/webhooks/events/{FREE}"
    assert client.post(webhook, json=[action(id="free-3")]).status_code == 200
    assert (
        client.post(
            f"/api/conversations/{FREE}/events", json={"content": [{"type": "text", "text": "again"}]}
        ).status_code
        == 200
    )


def test_the_final_response_and_a_replay_since_a_time_are_found(client, redis):
    for conversation, final in FACTS["final"].items():
        assert get(client, f"/conversations/{conversation}/agent_final_response") == final
    store = client.application.extensions["store"]
    assert store.events.cursor_before(FREE, 0) == 0


def test_app_conversations_keep_their_members_and_are_found_by_title(client):
    known = {one["id"]: one for one in FACTS["apps"]["items"]}
    listed = get(client, "/v1/app-conversations/search", include_sub_conversations=True)["items"]

    assert {one["id"] for one in listed} == set(known)
    for one in listed:
        assert {**one, **volatile(known[one["id"]])} == {**known[one["id"]], **LATER}
    [found] = get(client, "/v1/app-conversations/search", title__contains="SANDKASTEN")["items"]
    assert found["selected_repository"] == "a/b"


#: members that a conversation has only since then
LATER = {"unapproved_resumes": 0, "capabilities": [], "confirmation_seconds": None}


def volatile(one: dict) -> dict:
    """The members that change because the host of the sandbox is lost."""
    return {name: one[name] for name in ("sandbox_status", "session_api_key", "conversation_url", "execution_status")}


def test_sandboxes_and_start_tasks_are_listed_and_the_log_of_a_failed_sandbox_is_kept(client):
    sandboxes = get(client, "/v1/sandboxes/search")["items"]
    assert [one["id"] for one in sandboxes] == [one["id"] for one in FACTS["sandboxes"]["items"]]
    assert "no key given" in get(client, f"/v1/sandboxes/{FACTS['failed_sandbox']}/logs")["log"]
    assert get(client, "/v1/app-conversations/start-tasks/search") == FACTS["tasks"]
    [task] = get(client, "/v1/app-conversations/start-tasks/search", conversation_id__eq=IN_SANDBOX)["items"]
    assert task["status"] == "READY"


def test_a_ghost_of_a_sandbox_goes_and_a_heartbeat_is_not_ahead_of_the_clock_of_redis(client, redis):
    redis.hset("{sandboxes}:box:ghost", "active_at", "1")
    redis.zadd("{sandboxes}:hosts", {"ahead": 1e16})

    get(client, "/conversations/count")

    seconds, _ = redis.time()
    assert not redis.exists("{sandboxes}:box:ghost")
    assert redis.zscore("{sandboxes}:hosts", "ahead") <= (seconds + 1) * 1e6


def test_a_decision_that_the_agent_had_not_received_is_still_due(client, redis):
    get(client, "/conversations/count")

    store = client.application.extensions["store"]
    delivery = store.deliveries.get(IN_SANDBOX)
    assert delivery.accept
    assert delivery.actions
    assert [entry.split()[1:] for entry in redis.zrange("{sandboxes}:deliveries", 0, -1)] == [
        [IN_SANDBOX.encode(), FACTS["sandbox"].encode()]
    ]


def test_a_migration_that_was_interrupted_is_repeated_and_writes_the_same(client, redis):
    get(client, "/conversations/count")
    migrated = everything(redis)
    redis.delete("data_version")

    get(client_of(redis), "/conversations/count")

    assert everything(redis) == migrated


def everything(redis) -> dict:
    """Every key and its value, without the notes of readers about lost hosts; of the changes of the lists only which
    items changed, as a repeat changes them later."""
    readers = {
        b"string": redis.get,
        b"hash": redis.hgetall,
        b"set": redis.smembers,
        b"list": lambda key: redis.lrange(key, 0, -1),
        b"zset": lambda key: redis.zrange(key, 0, -1, withscores=True),
    }
    found = {key: readers[redis.type(key)](key) for key in redis.scan_iter() if not key.startswith(b"{sandboxes}:host")}
    changes = {key: {one for one, _ in found[key]} for key in found if key.endswith(b":changes")}
    return found | changes


def test_the_server_migrates_the_folder_of_an_older_start(tmp_path):
    data = tmp_path / "data"
    shutil.copytree(OLD, data)

    with agent_server(tmp_path / "log", REDIS_URL="", DATA_DIR=str(data), SECRET_KEY=SECRET_KEY) as (
        server,
        _,
    ):
        for conversation, count in FACTS["counts"].items():
            assert server.get(f"/api/conversations/{conversation}/events/count").json() == count
        assert server.get("/ready").json()["store"]["durable"] is True

    assert "of version 1" in (tmp_path / "log").read_text()


def test_a_newer_store_is_refused_with_a_sentence_and_stays_unchanged(tmp_path):
    with redis_server(tmp_path) as (url, _):
        redis = Redis.from_url(url)
        redis.set("data_version", VERSION + 1)
        command = [sys.executable, "-m", "gunicorn", "-c", "gunicorn.conf.py", "app:create_app()"]
        environment = {**os.environ, "REDIS_URL": url, "SUPERVISOR": "0", "DATA_DIR": str(tmp_path)}

        ended = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=60)

        assert ended.returncode == 1
        assert f"agent-server: The stored data are of version {VERSION + 1} and this server knows" in ended.stderr
        response = create_app(Config(redis_url=url)).test_client().get("/api/conversations/count")
        assert response.status_code == 503
        assert "run a newer release" in response.get_json()["detail"]
        assert redis.keys() == [b"data_version"]


def test_an_empty_store_gets_the_present_version(tmp_path: Path):
    with redis_server(tmp_path) as (url, _):
        create_app(Config(redis_url=url)).test_client().get("/api/conversations/count")

        assert Redis.from_url(url).get("data_version") == str(VERSION).encode()


def test_what_waited_before_the_inbox_was_there_is_found_by_the_sweep(client, redis):
    assert get(client, "/v1/pending-actions/count") == 0
    checks = client.application.extensions["store"].approval_checks

    checks.sweep()

    items = get(client, "/v1/pending-actions")["items"]
    assert WAITING in {one["conversation_id"] for one in items}


def test_conversations_that_an_older_release_listed_without_a_title_are_found_by_it(tmp_path: Path):
    with redis_server(tmp_path) as (url, _):
        redis, client = Redis.from_url(url), create_app(Config(redis_url=url)).test_client()
        mine = client.post("/api/conversations", json={"title": "Mine"}).get_json()["id"]
        redis.delete("conversations:{all}:title", "conversations:{all}:titles")
        redis.set("data_version", 4)

        migrated = create_app(Config(redis_url=url)).test_client()

        for query in ("text=mine", "sort_order=TITLE"):
            items = migrated.get(f"/api/v1/conversations/search?{query}").get_json()["items"]
            assert [item["id"] for item in items] == [mine]
