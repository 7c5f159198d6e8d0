"""Hosts in the store: heartbeats, claims, sandboxes of a lost host, and the clock of Redis, which alone decides."""

from concurrent.futures import ThreadPoolExecutor

import pytest

import wire
from store.errors import NoSupervisor
from store.sandboxes.hosts import Hosts
from tests.store.conftest import fresh_sandboxes, running_sandbox, silent_for

HOUR = 3600


def test_a_start_without_a_living_host_is_refused(redis_url):
    sandboxes = fresh_sandboxes(redis_url)
    silent_for(sandboxes, 61)
    with pytest.raises(NoSupervisor):
        sandboxes.start("spec")


@pytest.mark.parametrize("reader", ["search", "get_many", "of_host", "use"])
def test_the_sandboxes_of_a_lost_host_are_missing_for_every_reader(sandboxes, reader):
    reads = {
        "search": lambda sandboxes, *_: sandboxes.search(status=None, spec_id=None, limit=9, start=None)[0],
        "get_many": lambda sandboxes, *ids: sandboxes.get_many(ids),
        "of_host": lambda sandboxes, *_: sandboxes.of_host("h"),
        "use": lambda sandboxes, *ids: [sandboxes.use(one) for one in ids],
    }
    one, two, three = [running_sandbox(sandboxes) for _ in range(3)]
    sandboxes.report(two.id, "h", "supervisor", "ERROR")
    sandboxes.ask(three.id, "delete")
    silent_for(sandboxes, 61)

    found = {one.id: one.status for one in reads[reader](sandboxes, one.id, two.id)}

    assert found == {one.id: "MISSING", two.id: "ERROR"}
    assert "does not answer" in sandboxes.get(one.id).detail
    assert sandboxes.beat("h", "supervisor")
    assert sandboxes.report(one.id, "h", "supervisor", "RUNNING", detail="")


def test_a_sandbox_that_no_host_claims_in_time_fails(redis_url):
    sandboxes = fresh_sandboxes(redis_url, start_seconds=1)
    started = sandboxes.start("spec")
    sandboxes._redis.zincrby("{sandboxes}:unclaimed", -2_000_000, started.id)

    failed = sandboxes.get(started.id)

    assert failed.status == "ERROR"
    assert "No supervisor has taken it" in failed.detail
    assert sandboxes.claim("h") is None


def test_a_host_has_one_supervisor_until_its_heartbeats_end(sandboxes):
    assert sandboxes.beat("h", "supervisor")
    assert not sandboxes.beat("h", "another")
    assert sandboxes.beat("other", "another")
    silent_for(sandboxes, 61)
    assert sandboxes.beat("h", "another")
    assert not sandboxes.beat("h", "supervisor")


def test_a_supervisor_that_lost_its_host_to_another_one_reports_nothing(sandboxes):
    running = running_sandbox(sandboxes)
    silent_for(sandboxes, 4)
    assert sandboxes.beat("h", "another")

    for status in ("", "ERROR", "GONE"):
        assert not sandboxes.report(running.id, "h", "supervisor", status, detail="of the one before")

    assert sandboxes.get(running.id) == running
    assert sandboxes.report(running.id, "h", "another", "PAUSED")


def test_a_supervisor_that_gave_its_host_up_reports_until_another_one_speaks_for_it(sandboxes):
    running = running_sandbox(sandboxes)
    sandboxes.release("h", "supervisor")
    assert sandboxes.report(running.id, "h", "supervisor", "PAUSED")
    assert sandboxes.beat("h", "another")
    assert not sandboxes.report(running.id, "h", "supervisor", "ERROR")


def test_a_lost_host_leaves_no_trace_of_its_supervisor(sandboxes):
    assert sandboxes.beat("other", "supervisor")
    silent_for(sandboxes, 61, "other")
    assert sandboxes.beat("h", "supervisor")
    assert sandboxes._redis.hkeys("{sandboxes}:supervisors") == [b"h"]


def test_concurrent_claims_give_each_sandbox_to_one_host(sandboxes):
    ids = {sandboxes.start("spec").id for _ in range(3)}
    with ThreadPoolExecutor(6) as pool:
        claimed = [one for one in pool.map(lambda n: sandboxes.claim(f"h{n % 2}"), range(6)) if one]
    assert len(claimed) == 3
    assert set(claimed) == ids


@pytest.mark.parametrize("seconds", [61, -61, HOUR, -HOUR])
def test_a_reader_whose_clock_is_wrong_loses_no_living_host(sandboxes, monkeypatch, seconds):
    running, waiting = running_sandbox(sandboxes), sandboxes.start("spec")
    clock = wire.now

    monkeypatch.setattr(wire, "now", lambda: clock() + seconds * 1_000_000)

    assert sandboxes.get(running.id).status == "RUNNING"
    assert sandboxes.use(running.id).status == "RUNNING"
    assert [one.status for one in sandboxes.of_host("h")] == ["RUNNING"]
    found, _ = sandboxes.search(status=None, spec_id=None, limit=9, start=None)
    assert {one.id: one.status for one in found} == {running.id: "RUNNING", waiting.id: "STARTING"}
    assert sandboxes.start("spec").status == "STARTING"


@pytest.mark.parametrize("seconds", [61, -61, HOUR, -HOUR])
def test_a_supervisor_whose_clock_is_wrong_keeps_its_host_and_a_lost_host_is_found(sandboxes, monkeypatch, seconds):
    sandbox = running_sandbox(sandboxes)
    clock = wire.now
    with monkeypatch.context() as patch:
        patch.setattr(wire, "now", lambda: clock() + seconds * 1_000_000)
        assert sandboxes.beat("h", "supervisor")
        assert sandboxes.beat("other", "whose clock is wrong")
    assert not sandboxes.beat("other", "another")
    assert sandboxes.get(sandbox.id).status == "RUNNING"

    silent_for(sandboxes, 61)

    assert sandboxes.get(sandbox.id).status == "MISSING"
    assert sandboxes.beat("h", "another")


@pytest.mark.parametrize("seconds", [HOUR, -HOUR])
def test_ages_are_measured_by_the_clock_of_redis(sandboxes, monkeypatch, seconds):
    clock = wire.now
    monkeypatch.setattr(wire, "now", lambda: clock() + seconds * 1_000_000)
    sandbox = running_sandbox(sandboxes)
    sandboxes._redis.hincrby(f"{{sandboxes}}:box:{sandbox.id}", "active_at", -60_000_000)

    seen = sandboxes.get(sandbox.id)

    assert 0 <= seen.seen_at - seen.created_at < HOUR * 1_000_000 / 2
    assert 0 <= seen.seen_at - seen.active_at - 60_000_000 < HOUR * 1_000_000 / 2


def test_an_id_of_no_sandbox_in_an_index_stops_no_reader_and_no_claim(sandboxes):
    sandboxes._redis.zadd("{sandboxes}:unclaimed", {"ghost": 1})
    sandboxes._redis.sadd("{sandboxes}:host:h", "ghost")

    assert sandboxes.claim("h") is None
    silent_for(sandboxes, 61)
    assert sandboxes.of_host("h") == []
    assert sandboxes.beat("h", "supervisor")
    assert sandboxes.of_host("h") == []


def test_a_host_says_how_many_sandboxes_it_has_and_a_lost_one_is_forgotten(sandboxes, redis_url):
    hosts = Hosts(sandboxes._redis)
    running = running_sandbox(sandboxes)
    sandboxes.report(running_sandbox(sandboxes).id, "h", "supervisor", "ERROR")
    assert sandboxes.beat("other", "another")
    hosts.note("other", {"kind": "none"}, "0.9")

    assert [(one.id, one.sandboxes, one.said, one.version) for one in hosts.all()] == [
        ("h", 2, None, None),
        ("other", 0, {"kind": "none"}, "0.9"),
    ]
    assert hosts.all()[0].seen_at <= sandboxes.get(running.id).seen_at

    silent_for(sandboxes, 61, "other")
    assert sandboxes.beat("h", "supervisor")
    hosts.note("h", {"kind": "bubblewrap"}, "1.0")
    assert [(one.id, one.version) for one in hosts.all()] == [("h", "1.0")]
