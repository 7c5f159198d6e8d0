"""A supervisor continues after any error in a round, on a real server."""

import threading
from collections import deque
from contextlib import suppress

import pytest
from redis import Redis
from redis.exceptions import RedisError

from store.link.health import VERSION
from store.link.signals import SupervisorRequest
from store.sandboxes.files import FILE_TIMEOUT
from supervisor.loop import MOST_OF_ONE, MOST_WAITING, Requests
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


# requests of workers


class FakePool:
    """Threads that a test lets go on, one after the other; and what became of the requests."""

    def __init__(self) -> None:
        self.at_work: deque = deque()
        self.served: list[SupervisorRequest] = []
        self.refused: list[SupervisorRequest] = []
        self.now = 0.0
        run = lambda act, sandbox_id: self.at_work.append((act, sandbox_id))  # noqa: E731
        self.requests = Requests(run, self.served.append, self.refused.append, clock=lambda: self.now)

    def ask(self, sandbox_id: str, count: int) -> list[SupervisorRequest]:
        asked = [SupervisorRequest("files", sandbox_id, {"reply": str(number)}) for number in range(count)]
        for one in asked:
            self.requests.take(one)
        return asked

    def go_on(self) -> None:
        while self.at_work:
            act, sandbox_id = self.at_work.popleft()
            act(sandbox_id)


def test_requests_that_a_sandbox_makes_slow_leave_the_threads_to_those_of_others():
    pool = FakePool()
    slow = pool.ask("slow", 40)
    other = pool.ask("other", 1)

    # While its first ones go on, it has few threads, and the other sandbox has one
    assert [sandbox_id for _, sandbox_id in pool.at_work] == ["slow"] * MOST_OF_ONE + ["other"]

    # Once they end, its next ones come after those of others, and each is served once
    pool.go_on()
    assert pool.served == [*slow[:MOST_OF_ONE], *other, *slow[MOST_OF_ONE:]]
    assert pool.refused == []
    assert pool.requests._turns == {}


def test_a_request_for_whose_reply_nobody_waits_any_more_is_not_served():
    pool = FakePool()
    late = pool.ask("slow", 40)
    pool.now = FILE_TIMEOUT
    in_time = pool.ask("slow", 1)

    pool.go_on()

    assert [one is in_time[0] for one in pool.served] == [True]
    assert len(late) == 40
    assert pool.requests._turns == {}


def test_requests_beyond_those_that_may_wait_are_refused_and_those_of_others_are_not():
    pool = FakePool()
    asked = pool.ask("slow", MOST_WAITING + 3)
    other = pool.ask("other", 1)

    assert pool.refused == asked[-3:]
    pool.go_on()
    assert pool.served == [*asked[:MOST_OF_ONE], *other, *asked[MOST_OF_ONE:-3]]
    assert pool.requests._turns == {}
