"""A temporary refusal of Redis is 503 with Retry-After for every reason; afterwards requests succeed again."""

import contextlib
import threading
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import RedisError

from app import create_app
from config import Config
from tests.conftest import message
from tests.servers import redis_program, redis_server, running, valkey_program, wait_until

PROGRAMS = {"redis": redis_program, "valkey": valkey_program}


@pytest.fixture(params=PROGRAMS)
def program(request):
    return PROGRAMS[request.param]()


@pytest.fixture
def server(tmp_path, program):
    """A client of the app on a real server, and a connection to that server."""
    with redis_server(tmp_path, program) as (url, _):
        yield create_app(Config(redis_url=url)).test_client(), Redis.from_url(url)


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


@contextlib.contextmanager
def noreplicas(redis: Redis):
    redis.config_set("min-replicas-to-write", 1)
    yield
    redis.config_set("min-replicas-to-write", 0)


@contextlib.contextmanager
def oom(redis: Redis):
    redis.config_set("maxmemory", 1)
    yield
    redis.config_set("maxmemory", 0)


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


@pytest.mark.parametrize("cause", [misconf, noreplicas, oom, busy], ids=lambda cause: cause.__name__)
def test_a_write_that_redis_refuses_for_now_is_503_and_succeeds_afterwards(server, conversation, cause):
    client, redis = server
    append, batch = f"/api/v1/webhooks/events/{conversation}", [message("once")]
    client.post(append, json=[message("before")])

    with cause(redis):
        assert_try_again(client.post(append, json=batch))  # by a script
        assert_try_again(client.post("/api/v1/app-conversations", json={}))  # by a pipeline
    assert client.post(append, json=batch).status_code == 200
    assert client.get(f"/api/conversations/{conversation}/events/count").get_json() == 2


def test_a_busy_redis_is_503_for_reads_and_readiness_too(server, conversation):
    client, redis = server

    with busy(redis):
        assert_try_again(client.get("/ready"))
        assert_try_again(client.get(f"/api/conversations/{conversation}/events/count"))
        assert client.get("/server_info").get_json()["store"] is None


def test_a_redis_that_loads_its_file_is_503(tmp_path, program, conversation):
    with redis_server(tmp_path, program) as (url, _):
        redis = Redis.from_url(url)
        for number in range(400):
            redis.set(f"key {number}", "x" * 4096)
        redis.save()
    words = ["--port", "0", "--unixsocket", url.removeprefix("unix://"), "--dir", str(tmp_path)]
    words += ["--key-load-delay", "50000", "--loading-process-events-interval-bytes", "1024"]
    with running([program, *words]):
        wait_until(lambda: Redis.from_url(url, retry=None).info("persistence")["loading"], "the load")

        client = create_app(Config(redis_url=url)).test_client()
        assert_try_again(client.post(f"/api/v1/webhooks/events/{conversation}", json=[message("early")]))
        assert_try_again(client.get("/ready"))
