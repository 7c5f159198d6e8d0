"""Starts of app conversations in the store: a lease each, ends that stay, and none that is unfinished for ever."""

from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest

import wire
from store.errors import SecretsRefused
from store.sandboxes import Limits
from tests.conftest import store_of

LIMITS = Limits(most=20, pause_idlest=False, host_seconds=3600, start_seconds=120)


@pytest.fixture
def store(redis_url):
    """A store without starts, with one living host."""
    return fresh(redis_url)


def fresh(url, secret_key="a key for tests only"):
    store = store_of(url, LIMITS, secret_key)
    for key in store.start_tasks._redis.scan_iter("{starts}*"):
        store.start_tasks._redis.delete(key)
    store.sandboxes.beat("h", "supervisor")
    return store


def made(store, **request):
    return store.start_tasks.create(request, echo={"shown": True})


def expire(store, start):
    """Let the lease of a start have ended."""
    store.start_tasks._redis.zadd("{starts}:due", {start.id: wire.now() - 1_000_000})


def test_a_new_one_is_readable_at_once_and_shows_what_it_may(store):
    start = made(store, title="x")

    assert store.start_tasks.get_many([start.id, "unknown"]) == [start, None]
    assert (start.status, start.request, start.app_conversation_id) == ("WORKING", {"shown": True}, None)
    claimed, _ = store.start_tasks.claim()
    assert claimed.request == {"title": "x"}


def test_one_driver_at_a_time_holds_its_lease(store):
    for _ in range(4):
        made(store)
    with ThreadPoolExecutor(8) as pool:
        claimed = [one for one in pool.map(lambda _: store.start_tasks.claim(), range(12)) if one]
    assert len({start.id for start, _ in claimed}) == len(claimed) == 4


def test_a_lease_that_ends_is_anothers_and_the_first_can_write_no_more(store):
    start = made(store)
    _, first = store.start_tasks.claim()
    assert store.start_tasks.claim() is None
    assert store.start_tasks.advance(start.id, first, status="WAITING_FOR_SANDBOX", sandbox_id="box", own_sandbox="1")
    expire(store, start)

    again, second = store.start_tasks.claim()

    assert (again.status, again.sandbox_id, again.own_sandbox) == ("WAITING_FOR_SANDBOX", "box", True)
    assert not store.start_tasks.advance(start.id, first, status="READY")
    assert store.start_tasks.advance(start.id, second, status="READY")
    assert store.start_tasks.get_many([start.id])[0].status == "READY"


@pytest.mark.parametrize("end", ["READY", "ERROR"])
def test_an_end_is_driven_no_further(store, end):
    start = made(store)
    _, lease = store.start_tasks.claim()
    store.start_tasks.advance(start.id, lease, status=end)
    assert store.start_tasks.claim() is None
    assert store.start_tasks.advance(start.id, lease, status=end)  # a repeat after a lost reply


def test_one_that_nobody_goes_on_with_fails_for_whoever_reads(store):
    start, other = made(store), made(store)
    store.start_tasks._redis.zadd("{starts}:due", {start.id: wire.now() - 121_000_000})

    failed, untouched = store.start_tasks.get_many([start.id, other.id])

    assert (failed.status, untouched.status) == ("ERROR", "WORKING")
    assert "No supervisor" in failed.detail
    again, lease = store.start_tasks.claim()  # a supervisor that comes again clears away what it left
    assert (again.id, again.status) == (start.id, "ERROR")
    assert store.start_tasks.advance(again.id, lease, status="ERROR")


def test_secrets_are_sealed_and_come_out_for_the_driver_alone(store):
    start = made(store, secrets={"TOKEN": "hidden"})
    stored = store.start_tasks._redis.hgetall(f"{{starts}}:task:{start.id}")
    assert b"hidden" not in b"".join(stored.values())
    claimed, _ = store.start_tasks.claim()
    assert store.start_tasks.secrets_of(claimed) == {"TOKEN": "hidden"}


def test_secrets_without_a_key_are_refused_and_leave_nothing(redis_url):
    store = fresh(redis_url, secret_key="")
    with pytest.raises(SecretsRefused):
        made(store, secrets={"TOKEN": "hidden"})
    assert store.start_tasks.count() == 0


def test_pages_in_both_orders_reach_each_once(store):
    starts = [made(store) for _ in range(7)]
    for by, descending in (("created", False), ("created", True), ("updated", False)):
        seen, place = [], None
        while True:
            page, place = store.start_tasks.search(by=by, descending=descending, limit=3, start=place)
            seen += [start.id for start in page]
            if place is None:
                break
        expected = [start.id for start in sorted(starts, key=lambda one: (one.created_at, one.id), reverse=descending)]
        assert seen == expected


def test_filters(store):
    conversation = str(uuid4())
    mine, other = made(store, conversation_id=conversation), made(store)
    assert store.start_tasks.count() == 2
    assert store.start_tasks.count(conversation_id=conversation) == 1
    assert store.start_tasks.count(since=other.created_at) == 1
    assert [
        one.id
        for one in store.start_tasks.search(by="created", descending=True, limit=9, conversation_id=conversation)[0]
    ] == [mine.id]
    store.start_tasks.forget(mine.id)
    assert store.start_tasks.get_many([mine.id, other.id]) == [None, other]
