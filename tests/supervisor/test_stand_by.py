"""Two supervisors of one host name on one Redis: one is active, the other stands by, takes over, ends on SIGTERM."""

import signal
import threading
from contextlib import contextmanager

import pytest
from redis import Redis

from tests.conftest import limits_of, store_of
from tests.servers import store_server, wait_until
from tests.supervisor import says, supervisor

pytestmark = pytest.mark.process("starts supervisors one after the other")

#: seconds in which a supervisor must end after SIGTERM
END_TIMEOUT = 10

ROUNDS = 20


@pytest.fixture
def redis(tmp_path):
    with store_server(tmp_path) as (url, _):
        yield Redis.from_url(url)


@contextmanager
def another_supervisor(redis: Redis):
    """This process sends heartbeats for the host `twin` within the block, once a second as a supervisor does."""
    limits = limits_of(most=1, pause_idlest=False, host_seconds=10, start_seconds=60)
    url = f"unix://{redis.get_connection_kwargs()['path']}"
    sandboxes, ended = store_of(url, limits).sandboxes, threading.Event()
    assert sandboxes.beat("twin", "the active one")

    def beat() -> None:
        while not ended.wait(1):
            assert sandboxes.beat("twin", "the active one")

    beating = threading.Thread(target=beat)
    beating.start()
    try:
        yield
    finally:
        ended.set()
        beating.join()


def scripts_called(redis: Redis) -> int:
    return redis.info("commandstats").get("cmdstat_evalsha", {}).get("calls", 0)


def test_a_standby_supervisor_opens_no_connection_in_later_rounds(redis, tmp_path):
    with another_supervisor(redis), supervisor(redis, tmp_path / "b", "--stand-by") as (_, log):
        wait_until(lambda: says(log, "standing by"), "the one that stands by")
        first, opened = scripts_called(redis), redis.info("stats")["total_connections_received"]

        # every round is a script, and the active one's are less frequent than these
        wait_until(lambda: scripts_called(redis) >= first + ROUNDS, f"{ROUNDS} heartbeats")
        assert redis.info("stats")["total_connections_received"] <= opened + 1  # of the thread for what expires


def test_a_standby_supervisor_ends_on_sigterm_and_leaves_no_trace(redis, tmp_path):
    with another_supervisor(redis), supervisor(redis, tmp_path / "b", "--stand-by") as (process, log):
        wait_until(lambda: says(log, "standing by"), "the one that stands by")
        process.terminate()
        assert process.wait(END_TIMEOUT) == 0
        assert not says(log, "Traceback")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_standby_supervisor_takes_over_when_the_active_one_ends(redis, tmp_path, number):
    with (
        supervisor(redis, tmp_path / "a", "--stand-by") as (active, log_a),
        supervisor(redis, tmp_path / "b", "--stand-by") as (other, log_b),
    ):
        wait_until(lambda: says(log_a, "supervising") or says(log_b, "supervising"), "the active one")
        if says(log_b, "supervising"):
            active, other, log_a, log_b = other, active, log_b, log_a
        wait_until(lambda: says(log_b, "standing by"), "the one that stands by")

        active.send_signal(number)
        active.wait(END_TIMEOUT)
        wait_until(lambda: says(log_b, "supervising"), "the other")
        other.terminate()
        assert other.wait(END_TIMEOUT) == 0
