"""Two supervisors of one host name on one Redis: one is active, the other stands by, takes over, and ends when told."""

import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from redis import Redis

from store import Limits
from tests.conftest import store_of
from tests.servers import PROJECT, free_port, redis_server, running, wait_until

#: seconds in which a supervisor must end after SIGTERM, and another one must take over
END_TIMEOUT, TAKE_OVER_TIMEOUT = 10, 5

ROUNDS = 20


@pytest.fixture
def redis_at(tmp_path):
    with redis_server(tmp_path) as (url, _):
        yield url


def words_of(url: str, folder: Path, **environment: str) -> dict[str, str]:
    settings = {"REDIS_URL": url, "HOST_ID": "twin", "DATA_DIR": str(folder), "STOP_SANDBOXES": "0"}
    return {**os.environ, **settings, **environment}


@contextmanager
def supervisor(url: str, folder: Path, *words: str, **environment: str):
    """A supervisor of the host `twin` with a folder of its own; its process and the file of its log."""
    folder.mkdir(exist_ok=True)
    log = folder / "log"
    command = [sys.executable, "-m", "supervisor", *words]
    with (
        log.open("ab") as output,
        running(command, env=words_of(url, folder, **environment), stdout=output, stderr=output) as process,
    ):
        yield process, log


def says(log: Path, sentence: str) -> bool:
    return sentence in log.read_text()


@contextmanager
def another_supervisor(url: str):
    """This process speaks for the host `twin` within the block, once a second as a supervisor does."""
    limits = Limits(most=1, pause_idlest=False, host_seconds=10, start_seconds=60)
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


def test_a_supervisor_that_stands_by_opens_no_connection_in_later_rounds(redis_at, tmp_path):
    redis = Redis.from_url(redis_at)
    with another_supervisor(redis_at), supervisor(redis_at, tmp_path / "b", "--stand-by") as (_, log):
        wait_until(lambda: says(log, "standing by"), "the one that stands by")
        first, opened = scripts_called(redis), redis.info("stats")["total_connections_received"]

        # every round is a script, and the active one's are less frequent than these
        wait_until(lambda: scripts_called(redis) >= first + ROUNDS, f"{ROUNDS} heartbeats")
        assert redis.info("stats")["total_connections_received"] == opened


def test_a_supervisor_that_stands_by_ends_on_sigterm_and_leaves_no_trace(redis_at, tmp_path):
    with another_supervisor(redis_at), supervisor(redis_at, tmp_path / "b", "--stand-by") as (process, log):
        wait_until(lambda: says(log, "standing by"), "the one that stands by")
        process.terminate()
        assert process.wait(END_TIMEOUT) == 0
        assert not says(log, "Traceback")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_when_the_active_supervisor_ends_the_other_takes_over(redis_at, tmp_path, number):
    with (
        supervisor(redis_at, tmp_path / "a", "--stand-by") as (active, log_a),
        supervisor(redis_at, tmp_path / "b", "--stand-by") as (other, log_b),
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
