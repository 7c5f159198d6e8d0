"""An empty store of sandboxes, for tests of sandboxes and of hosts; and counters of round trips to Redis."""

import contextlib
from collections.abc import Iterator

import pytest
from redis.exceptions import ResponseError

from store import Limits
from tests.conftest import store_of


@pytest.fixture
def sandboxes(redis_url):
    """A store with no sandbox and one living host "h", on which three may run."""
    return fresh_sandboxes(redis_url)


def fresh_sandboxes(
    url: str, *, pause_idlest: bool = False, most: int = 3, host_seconds: float = 60, start_seconds: float = 120
):
    limits = Limits(most=most, pause_idlest=pause_idlest, host_seconds=host_seconds, start_seconds=start_seconds)
    store = store_of(url, limits)
    redis = store.sandboxes._redis
    for key in redis.scan_iter("{sandboxes}*"):
        redis.delete(key)
    assert store.sandboxes.beat("h", "supervisor")
    return store.sandboxes


def running_sandbox(sandboxes, host: str = "h"):
    """A sandbox that its host has brought to RUNNING."""
    started = sandboxes.start("spec")
    assert sandboxes.claim(host) == started.id
    assert sandboxes.report(
        started.id, host, "supervisor", "RUNNING", handle={"pid": 1}, urls=[], agent_url="http://agent"
    )
    return sandboxes.get(started.id)


def hook_key_of(sandboxes, sandbox) -> str:
    """The hook key of a new start of a running sandbox's processes."""
    hook_key = sandboxes.begin(sandbox.id, "h", "supervisor", "scripted")
    assert sandboxes.report(sandbox.id, "h", "supervisor", "", handle={"pid": 2}, agent_url="http://agent")
    return hook_key


def in_status(sandboxes, status: str):
    sandbox = sandboxes.start("spec") if status == "STARTING" else running_sandbox(sandboxes)
    if status == "STARTING":
        sandboxes.claim("h")
    elif status == "PAUSED":
        sandboxes.ask(sandbox.id, "pause")
        assert sandboxes.report(sandbox.id, "h", "supervisor", "PAUSED")
    elif status != "RUNNING":
        assert sandboxes.report(sandbox.id, "h", "supervisor", status)
    return sandboxes.get(sandbox.id)


def silent_for(sandboxes, seconds: float, host: str = "h"):
    """Set the last heartbeat of a host to so many seconds ago, by Redis' clock."""
    sandboxes._redis.zincrby("{sandboxes}:hosts", -round(seconds * 1e6), host)


@contextlib.contextmanager
def round_trips(redis, monkeypatch) -> Iterator[list[str]]:
    """The commands and pipelines that one client sends within the block, each a round trip."""
    sent: list[str] = []
    execute, pipeline = redis.execute_command, redis.pipeline

    def counted(*words, **options):
        sent.append(str(words[0]))
        return execute(*words, **options)

    def counted_pipeline(*args, **options):
        sent.append("pipeline")
        return pipeline(*args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(redis, "execute_command", counted)
        patch.setattr(redis, "pipeline", counted_pipeline)
        yield sent


def hashes_read(redis) -> int | None:
    """The number of whole hashes that a Redis has read so far; None where it does not count them (fakeredis)."""
    try:
        stats = redis.info("commandstats")
    except ResponseError:
        return None
    return int(stats.get("cmdstat_hgetall", {"calls": 0})["calls"])
