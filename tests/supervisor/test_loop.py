"""A supervisor continues after any error in a round, on a real server."""

import threading
from contextlib import suppress

import pytest
from redis import Redis
from redis.exceptions import RedisError

from store.link.health import VERSION
from tests.servers import store_server, wait_until
from tests.supervisor import says, supervisor

pytestmark = pytest.mark.process("starts supervisors, and waits for rounds of them")


@pytest.fixture
def redis(tmp_path):
    with store_server(tmp_path) as (url, _):
        yield Redis.from_url(url)


def last_heartbeat(redis: Redis) -> float:
    return redis.zscore("{sandboxes}:hosts", "twin") or 0


def test_an_unexpected_error_in_every_round_neither_ends_a_supervisor_nor_stops_its_heartbeat(redis, tmp_path):
    with supervisor(redis, tmp_path / "a") as (process, log):
        wait_until(lambda: last_heartbeat(redis), "the first heartbeat")
        redis.set("{starts}:due", "no sorted set")

        wait_until(lambda: log.read_text().count("WRONGTYPE") >= 5, "rounds that fail")
        last = last_heartbeat(redis)
        wait_until(lambda: last_heartbeat(redis) > last, "a heartbeat")

        redis.delete("{starts}:due")
        failures = log.read_text().count("WRONGTYPE")
        wait_until(lambda: redis.pubsub_numsub("{sandboxes}:signal")[0][1] == 1, "a round that succeeds")
        assert log.read_text().count("WRONGTYPE") <= failures + 1
        assert process.poll() is None


def test_a_supervisor_ends_once_a_newer_release_has_changed_the_data(redis, tmp_path):
    with supervisor(redis, tmp_path / "a") as (process, log):
        wait_until(lambda: last_heartbeat(redis), "the first heartbeat")
        redis.set("data_version", VERSION + 1)

        assert process.wait(20) == 2
        assert says(log, "this server knows version")


def test_a_busy_redis_does_not_end_a_supervisor(redis, tmp_path):
    with supervisor(redis, tmp_path / "a") as (process, log):
        wait_until(lambda: last_heartbeat(redis), "the first heartbeat")
        last = last_heartbeat(redis)

        redis.config_set("lua-time-limit", 10)
        spinning = threading.Thread(target=spin, args=(redis,))
        spinning.start()
        wait_until(lambda: says(log, "busy running a script"), "a refusal")
        redis.execute_command("SCRIPT", "KILL")
        spinning.join()

        wait_until(lambda: last_heartbeat(redis) > last, "a heartbeat")
        assert process.poll() is None
        assert not says(log, "Traceback")


def spin(redis: Redis) -> None:
    path = redis.get_connection_kwargs()["path"]
    with suppress(RedisError):
        Redis.from_url(f"unix://{path}", retry=None).eval("while true do end", 0)
