"""The round trips that a meter counts are those that the connections send, on every backend."""

import pytest

from config import Config
from meter import Meter
from store.errors import UNAVAILABLE, FellBehind
from tests.conftest import SECRET_KEY, as_events, event
from tests.round_trips import counted
from tests.servers import free_port
from wiring import open_store_of


def opened(url, **settings):
    """A store of its own, as another process has it, and its meter."""
    meter = Meter()
    return open_store_of(Config(redis_url=url, redis_timeout=10, secret_key=SECRET_KEY, **settings), meter), meter


def process(meter):
    return meter.read()[1][0]


OPERATIONS = {
    "a script": lambda store, conversation: store.conversations.get(conversation),
    "a pipeline": lambda store, _: store.outboxes.states(),
    "a command": lambda store, conversation: store.conversations._redis.exists(conversation),
    "several": lambda store, conversation: store.events.append(conversation, as_events([event()])),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_counts_as_many_round_trips_as_it_sends(redis_url, conversation, name):
    store, meter = opened(redis_url)
    store.conversations.create(conversation)
    OPERATIONS[name](store, conversation)  # loads scripts and connects
    before = sum(process(meter).trips.counts)

    with counted() as sent:
        OPERATIONS[name](store, conversation)

    assert sum(process(meter).trips.counts) - before == sent.number > 0
    assert process(meter).trips.sum > 0
    assert process(meter).failed_trips == 0


def test_a_request_counts_its_own_round_trips(redis_url, conversation):
    store, meter = opened(redis_url)
    meter.add_routes([("/route", "GET")])
    store.outboxes.states()

    meter.begin_request()
    store.outboxes.states()
    store.outboxes.states()
    meter.end_request("/route", "GET", 200)

    [route] = meter.read()[0]
    assert (route.route, route.trips, route.by_class["2xx"]) == ("/route", 2, 1)


@pytest.mark.parametrize("scheme", ["redis", "redis+cluster", "redis+sentinel"])
def test_a_round_trip_without_a_reply_is_a_failure(scheme):
    store, meter = opened(f"{scheme}://127.0.0.1:{free_port()}" + ("/name" if "sentinel" in scheme else ""))

    with pytest.raises(UNAVAILABLE):
        store.conversations._redis.get("x")
    with pytest.raises(UNAVAILABLE):
        store.outboxes.states()

    assert process(meter).failed_trips == 2


def test_followers_are_counted_while_they_follow_and_when_they_are_dropped(redis_url, conversation):
    store, meter = opened(redis_url, follower_bytes=65_536)
    store.conversations.create(conversation)
    with store.followers.follow(conversation, None) as slow, store.followers.follow(conversation, None) as quick:
        assert process(meter).followers == 2
        assert slow.next(0) == quick.next(0) == []
        for _ in range(4):
            store.events.append(conversation, as_events([event(filler="x" * 30_000)]))
            assert quick.next(20.0)

        with pytest.raises(FellBehind):
            slow.next(0)

        assert process(meter).dropped == 1
    assert process(meter).followers == 0


def test_a_start_task_that_ends_is_counted_once_by_its_outcome(redis_url):
    store, meter = opened(redis_url, host_seconds=3600)
    store.sandboxes.beat("h", "supervisor")
    for end in ("READY", "ERROR", "ERROR"):
        start = store.start_tasks.create({}, echo={})
        while (claimed := store.start_tasks.claim())[0].id != start.id:
            pass  # one of another test
        assert store.start_tasks.finish(start.id, claimed[1], end)
        assert not store.start_tasks.finish(start.id, "another", end)

    assert process(meter).starts == {"READY": 1, "ERROR": 2}
