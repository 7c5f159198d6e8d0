"""Redis stalls, restarts, is out of memory: clear errors, no hung worker, no acknowledged write lost or doubled."""

import signal
import subprocess
import threading

import httpx
import pytest
from redis import Redis

from app import create_app
from settings.config import Config
from tests.conftest import message
from tests.servers import agent_server, free_port, running, store_server, valkey_program, wait_until

pytestmark = pytest.mark.faults("stalls, fills and ends a Redis")


@pytest.fixture
def server(tmp_path):
    with store_server(tmp_path) as (url, redis), agent_server(tmp_path / "log", REDIS_URL=url) as (client, _):
        yield client, redis


@pytest.mark.faults("starts a server, and stalls or ends its Redis")
def test_a_stalled_redis_gives_503_and_then_everything_works_again(server, conversation):
    client, redis = server
    url = f"/api/v1/webhooks/events/{conversation}"
    assert client.post(url, json=[message("before")]).status_code == 200

    # When Redis stalls, all requests are refused but those that need no store
    redis.send_signal(signal.SIGSTOP)
    refused = client.get(f"/api/conversations/{conversation}/events/count")
    assert refused.status_code == 503
    assert "Retry-After" in refused.headers
    assert client.get("/ready").status_code == 503
    assert client.get("/alive").status_code == 200
    assert client.get("/server_info").json()["store"] is None

    # And when Redis continues, so does the server
    redis.send_signal(signal.SIGCONT)
    wait_until(lambda: client.get("/ready").status_code == 200, "the store")
    assert client.get(f"/api/conversations/{conversation}/events/count").json() == 1


@pytest.mark.faults("starts a server, and stalls or ends its Redis")
def test_a_write_during_a_stall_of_redis_is_stored_once(server, conversation):
    client, redis = server
    url = f"{client.base_url}/api/v1/webhooks/events/{conversation}"
    batch = [message("once")]
    client.post(url, json=[message("before")])

    # Given a write whose first try times out, and which its sender retries
    redis.send_signal(signal.SIGSTOP)
    first = threading.Thread(target=lambda: httpx.post(url, json=batch, timeout=20))
    first.start()
    first.join()
    redis.send_signal(signal.SIGCONT)
    wait_until(lambda: client.get("/ready").status_code == 200, "the store")

    assert client.post(url, json=batch).status_code == 200
    assert client.get(f"/api/conversations/{conversation}/events/count", params={"body": "once"}).json() == 1


def test_a_redis_without_memory_refuses_writes_and_serves_reads(tmp_path, conversation):
    with store_server(tmp_path) as (url, _), Redis.from_url(url) as redis:
        client = create_app(Config.of(redis_url=url)).test_client()
        client.post(f"/api/v1/webhooks/events/{conversation}", json=[message("kept")])
        redis.config_set("maxmemory", "1mb")

        assert client.post(f"/api/v1/webhooks/events/{conversation}", json=[message("lost")]).status_code == 507
        assert client.get(f"/api/conversations/{conversation}/events/count").get_json() == 1
        assert client.get(f"/api/conversations/{conversation}").status_code == 200


@pytest.mark.faults("starts a server, and stalls or ends its Redis")
def test_a_conversation_survives_the_restart_of_its_redis(tmp_path, conversation):
    with agent_server(tmp_path / "log", REDIS_URL=f"unix://{tmp_path}/redis.sock") as (client, _):
        assert client.get("/ready").status_code == 503
        for rounds in (1, 2):
            with store_server(tmp_path):
                wait_until(lambda: client.get("/ready").status_code == 200, "the store")
                client.post(f"/api/v1/webhooks/events/{conversation}", json=[message("again")])
                assert client.get(f"/api/conversations/{conversation}/events/count").json() == rounds


@pytest.mark.process("starts a server and a sentinel")
def test_sentinels_name_the_primary(tmp_path, conversation):
    port, sentinel_port = free_port(), free_port()
    settings = tmp_path / "sentinel.conf"
    settings.write_text(f"port {sentinel_port}\ndir {tmp_path}\nsentinel monitor main 127.0.0.1 {port} 1\n")
    silent = {"stdout": subprocess.DEVNULL}
    with (
        running([valkey_program(), "--port", str(port), "--save", ""], **silent),
        running([valkey_program(), str(settings), "--sentinel"], **silent),
    ):
        wait_until(Redis(port=sentinel_port, retry=None).ping, "the sentinel")
        wait_until(Redis(port=port, retry=None).ping, "redis-server")
        with agent_server(tmp_path / "log", REDIS_URL=f"redis+sentinel://127.0.0.1:{sentinel_port}/main") as (
            client,
            _,
        ):
            client.post(f"/api/v1/webhooks/events/{conversation}", json=[message("by sentinel")])
            assert client.get(f"/api/conversations/{conversation}/events/count", params={"body": "BY"}).json() == 1
