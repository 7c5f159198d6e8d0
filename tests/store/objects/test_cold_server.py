"""Cold storage on the whole server, in a bucket of a real S3 server: a conversation rests, becomes cold, is read, is
appended to and is deleted; the bucket goes away and comes back."""

import os
import subprocess
import sys

import pytest
from redis import Redis

from tests.conftest import event, message
from tests.s3 import BUCKET, s3_server
from tests.scrapes import scrape
from tests.servers import PROJECT, TIMEOUT, free_port, store_server, supervised_server, wait_until

pytestmark = pytest.mark.process("starts the whole server")


@pytest.fixture
def whole(aws, tmp_path):
    """A client of a server with its supervisor, its Redis, and its S3 server."""
    with store_server(tmp_path) as (url, _), s3_server(tmp_path) as s3:
        settings = {
            "REDIS_URL": url,
            "COLD_URL": f"s3://{BUCKET}/agents",
            "COLD_S3_ENDPOINT": s3.url,
            "COLD_DAYS": "0.00001",
        }
        with supervised_server(tmp_path, **settings) as (client, _):
            yield client, Redis.from_url(url), s3


def shown(client, path: str) -> list:
    """What a conversation's reads answer that need its log."""
    found = [
        client.get(f"{path}/events/count"),
        client.get(f"{path}/events/count", params={"body": "needle"}),
        client.get(f"{path}/events/search", params={"limit": 100}),
        client.get(path),
    ]
    assert {one.status_code for one in found} == {200}, [one.text for one in found]
    return [one.content for one in found]


def test_a_conversation_becomes_cold_and_is_read_appended_to_and_deleted(whole, tmp_path):
    client, redis, s3 = whole
    identity = client.post("/api/conversations", json={}).json()["id"]
    path, root = f"/api/conversations/{identity}", f"conv:{{{identity}}}"
    posted = client.post(f"/api/v1/webhooks/events/{identity}", json=[event(), message("a needle"), event()])
    assert posted.status_code == 200, posted.text

    def becomes_cold() -> bool:
        redis.hset(root, "aside_until", 0)  # as if it had been thawed long ago
        redis.delete("{cold}:turn:turn")
        return redis.hexists(root, "cold")

    before = shown(client, path)
    wait_until(becomes_cold, "a cold conversation")
    assert not redis.exists(f"{root}:log")
    [key] = s3.keys()
    assert key.startswith(f"agents/{identity}-")

    assert shown(client, path) == before
    assert redis.exists(f"{root}:log")

    wait_until(becomes_cold, "a cold conversation again")
    assert client.post(f"/api/v1/webhooks/events/{identity}", json=[event()]).status_code == 200
    assert client.get(f"{path}/events/count").json() == 4

    wait_until(becomes_cold, "a cold conversation once more")
    before, contents = [client.get(path).content], s3.contents()
    s3.kill()
    assert client.get(f"{path}/events/count").json() == 4
    for query in ("events/count?kind=MessageEvent", "events/search"):
        away = client.get(f"{path}/{query}")
        assert away.status_code == 503
        assert identity in away.json()["detail"]
        assert "COLD_URL" in away.json()["detail"]
        assert away.headers["Retry-After"]
    assert client.post(f"/api/v1/webhooks/events/{identity}", json=[event()]).status_code == 503
    assert [client.get(path).content] == before
    assert client.get("/api/conversations/search").json()["items"][0]["id"] == identity
    assert client.get("/ready").status_code == 200

    with s3_server(tmp_path, s3.port, contents) as s3:
        assert client.get(f"{path}/events/count", params={"kind": "MessageEvent"}).json() == 1
        calls = scrape(client)
        name = "agent_server_cold_calls_total"
        assert calls.value(name, verb="put", outcome="ok") >= 3
        assert calls.value(name, verb="get", outcome="ok") >= 3
        assert calls.value(name, verb="get", outcome="failed") >= 3
        assert calls.value("agent_server_cold_objects") >= 3

        assert client.delete(path).status_code == 200
        assert client.get(path).status_code == 404

        def is_empty() -> bool:
            for one in redis.zrange("{cold}:objects", 0, -1):
                redis.zadd("{cold}:objects", {one: 0})  # an hour passes
            redis.delete("{cold}:turn:turn")
            return not s3.keys()

        wait_until(is_empty, "an empty bucket")


@pytest.mark.parametrize("url", ["file:///dev/null/cold", "s3:/bucket"])
def test_a_place_that_cannot_be_used_stops_the_start(tmp_path, url):
    with store_server(tmp_path) as (redis_url, _):
        settings = {"COLD_URL": url, "REDIS_URL": redis_url, "DATA_DIR": str(tmp_path), "PORT": str(free_port())}
        start = subprocess.run(
            [sys.executable, "-m", "gunicorn", "-c", "gunicorn.conf.py", "app:create_app()"],
            cwd=PROJECT,
            env={**os.environ, **settings},
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
        )

    assert start.returncode != 0
    [sentence] = [line for line in start.stderr.splitlines() if "COLD_URL" in line]
    assert "agent-server: " in sentence
