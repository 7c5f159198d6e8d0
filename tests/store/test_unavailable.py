"""A temporary refusal of Redis is 503 with Retry-After for every reason; afterwards requests succeed again."""

import contextlib
import subprocess
import threading
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import RedisError

from app import create_app
from settings.config import Config
from tests.backends import EVERY_PROGRAM, PROGRAMS
from tests.conftest import message
from tests.servers import running, store_server, wait_until

pytestmark = pytest.mark.faults("has a store refuse, stall and load")


@pytest.fixture(scope="module", params=EVERY_PROGRAM)
def program(request):
    return PROGRAMS[request.param]()


@pytest.fixture(scope="module")
def server(tmp_path_factory, program):
    """A client of the app on a real server, and a connection to that server."""
    with store_server(tmp_path_factory.mktemp("store"), program) as (url, _), Redis.from_url(url) as redis:
        yield create_app(Config.of(redis_url=url)).test_client(), redis


@contextlib.contextmanager
def misconf(redis: Redis):
    """A snapshot that cannot be written: its file's name is that of a folder."""
    folder = Path(redis.config_get("dir")["dir"])
    (folder / "dump.rdb").mkdir()
    redis.config_set("save", "3600 1")
    redis.bgsave()
    wait_until(lambda: redis.info("persistence")["rdb_last_bgsave_status"] == "err", "the failed snapshot")
    yield
    redis.config_set("save", "")
    (folder / "dump.rdb").rmdir()
    redis.bgsave()
    wait_until(lambda: redis.info("persistence")["rdb_last_bgsave_status"] == "ok", "the snapshot")


@contextlib.contextmanager
def noreplicas(redis: Redis):
    redis.config_set("min-replicas-to-write", 1)
    yield
    redis.config_set("min-replicas-to-write", 0)


@contextlib.contextmanager
def busy(redis: Redis):
    """A script that does not end."""
    redis.config_set("lua-time-limit", 10)

    def spin() -> None:
        with contextlib.suppress(RedisError):
            Redis.from_url(f"unix://{redis.get_connection_kwargs()['path']}", retry=None).eval("while true do end", 0)

    spinning = threading.Thread(target=spin)
    spinning.start()
    wait_until(lambda: refuses(redis), "the busy script")
    yield
    redis.execute_command("SCRIPT", "KILL")
    spinning.join()


def refuses(redis: Redis) -> bool:
    try:
        redis.ping()
    except RedisError:
        return True
    return False


def assert_try_again(response) -> None:
    assert response.status_code == 503, response.get_data(as_text=True)
    assert response.headers["Retry-After"] == "1"
    assert list(response.get_json()) == ["detail"]


@pytest.mark.parametrize("cause", [misconf, noreplicas, busy], ids=lambda cause: cause.__name__)
def test_a_write_that_redis_refuses_for_now_is_503_and_succeeds_afterwards(server, conversation, cause):
    client, redis = server
    append, batch = f"/api/v1/webhooks/events/{conversation}", [message("once")]
    client.post(append, json=[message("before")])

    with cause(redis):
        assert_try_again(client.post(append, json=batch))  # by a script
        assert_try_again(client.post("/api/v1/app-conversations", json={}))  # by a pipeline
    assert client.post(append, json=batch).status_code == 200
    assert client.get(f"/api/conversations/{conversation}/events/count").get_json() == 2


def test_a_full_redis_is_507_until_it_has_room(server, conversation):
    client, redis = server
    append = f"/api/v1/webhooks/events/{conversation}"
    client.post(append, json=[message("before")])

    redis.config_set("maxmemory", 1)
    try:
        for refused in (client.post(append, json=[message("more")]), client.post("/api/v1/app-conversations", json={})):
            assert refused.status_code == 507
            assert "maxmemory" in refused.get_json()["detail"]
        assert client.get(f"/api/conversations/{conversation}/events/count").get_json() == 1
    finally:
        redis.config_set("maxmemory", 0)
    wait_until(lambda: client.post(append, json=[message("once")]).status_code == 200, "room")


def test_a_busy_redis_is_503_for_reads_and_readiness_too(server, conversation):
    client, redis = server

    with busy(redis):
        assert_try_again(client.get("/ready"))
        assert_try_again(client.get(f"/api/conversations/{conversation}/events/count"))
        assert client.get("/server_info").get_json()["store"] is None


@pytest.mark.process("starts a server whose file takes long to load")
def test_a_redis_that_loads_its_file_is_503(tmp_path, program, conversation):
    with store_server(tmp_path, program) as (url, _), Redis.from_url(url) as redis:
        redis.mset({f"key {number}": "x" * 2048 for number in range(30_000)})
        redis.save()
    client = create_app(Config.of(redis_url=url)).test_client()
    words = ["--port", "0", "--unixsocket", url.removeprefix("unix://"), "--dir", str(tmp_path)]
    words += ["--key-load-delay", "1000", "--loading-process-events-interval-bytes", "1024"]
    with running([program, *words], stdout=subprocess.DEVNULL), Redis.from_url(url, retry=None) as redis:
        wait_until(lambda: redis.info("persistence")["loading"], "the load")

        assert_try_again(client.post(f"/api/v1/webhooks/events/{conversation}", json=[message("early")]))
        assert_try_again(client.get("/ready"))
