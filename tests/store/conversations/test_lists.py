"""The streams of the lists: each item's newest change, and nothing that is missed, whatever happens between."""

import json
from types import SimpleNamespace
from uuid import uuid4

import pytest

from settings.config import Config
from store.conversations import lists
from store.conversations.lists import ListFollower
from store.errors import FellBehind, Stopping, TooManyFollowers
from store.keys import MOST_CHANGES, ConversationKeys, ListingKeys
from tests.conftest import SECRET_KEY, action, as_events, message, status
from tests.round_trips import counted
from tests.servers import wait_until
from tests.store.conftest import ALWAYS, poll, running_sandbox, silent_for
from wiring import open_store_of

pytestmark = pytest.mark.usefixtures("alone")


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """A reader waits no quarter of a second between two readings."""
    monkeypatch.setattr(lists, "READ_SECONDS", 0.0)


@pytest.fixture
def make(store):
    """Create a conversation; its id."""

    def make(**members):
        identity = str(uuid4())
        store.conversations.create(identity, **members)
        return identity

    return make


@pytest.fixture
def follow(store):
    """Follow the list of conversations, or another stream, until the end of the test."""
    followers = []

    def follow(after=None, of=None, show=lambda item: item) -> ListFollower:
        followers.append((of or store.streams.conversations).follow(after, show))
        return followers[-1]

    yield follow
    for one in followers:
        one.close()


def small_store(redis_url, **settings):
    """A store of its own, as another process has it."""
    return open_store_of(Config.of(redis_url=redis_url, redis_timeout=10, secret_key=SECRET_KEY, **settings))


def taken(follower, *wanted: tuple[str, str]) -> list[tuple[str, str, int]]:
    """The changes until all of these have come: name, id of the item, number."""
    changes = []

    def have_come():
        changes.extend(follower.next(1.0))
        return set(wanted) <= {(one.name, json.loads(one.raw)["id"]) for one in changes}

    wait_until(have_come, f"{wanted}")
    return [(one.name, json.loads(one.raw)["id"], int(one.id)) for one in changes]


def begun(follower) -> tuple[str, int]:
    """The reason of the reset that a stream begins with, and the number that `ready` bears."""
    reset, ready = follower.next(0)
    assert (reset.name, reset.id, ready.name, ready.raw) == ("reset", "", "ready", b"{}")
    return json.loads(reset.raw)["reason"], int(ready.id)


def told(changes) -> list[tuple[str, str]]:
    return [change[:2] for change in changes]


def test_a_stream_begins_with_a_reset_and_a_number_that_is_usable_at_once(follow, make):
    reason, number = begun(follow())
    resumed = follow(number)
    one = make()

    assert reason == "new"
    assert told(taken(resumed, ("changed", one))) == [("changed", one)]


def test_what_changes_after_ready_is_told_also_where_the_page_was_read_before(store, follow, make):
    stream = follow()
    begun(stream)
    one = make(title="One")  # between `ready` and the client's page

    [(_, _, number)] = taken(stream, ("changed", one))
    store.conversations.update(one, title="Two")
    [changed] = stream.next(5.0)
    store.conversations.delete(one)

    assert (json.loads(changed.raw)["title"], int(changed.id) > number) == ("Two", True)
    assert told(taken(stream, ("deleted", one))) == [("deleted", one)]


def test_a_change_has_the_item_as_the_list_has_it(store, follow, make):
    stream = follow()
    begun(stream)
    one = make(title="One", tags={"team": "red"}, confirmation_policy=ALWAYS)
    store.events.append(one, as_events([message("hi"), action(), status("waiting_for_confirmation")]))
    taken(stream, ("changed", one))

    [changed] = follow(0).next(5.0)

    [item] = store.conversations.summaries.get_many([one])
    assert json.loads(changed.raw) == item
    assert (item["pending"], item["execution_status"]) == (1, "waiting_for_confirmation")


@pytest.mark.parametrize("record", ["{", "1", b"\xff"])
def test_a_pending_action_that_cannot_be_read_keeps_no_other_conversation_off_the_list(store, make, caplog, record):
    broken, other = (make(confirmation_policy=ALWAYS) for _ in range(2))
    for one in (broken, other):
        store.events.append(one, as_events([action(), status("waiting_for_confirmation")]))
    store.events._redis.hset(ConversationKeys(broken).pending, "some", record)

    [none, item] = store.conversations.summaries.get_many([broken, other])

    store.events._redis.hdel(ConversationKeys(broken).pending, "some")
    assert (none, item["pending"]) == (None, 1)
    assert f"the conversation {broken} cannot be read" in caplog.text


def test_a_conversation_that_changes_many_times_is_one_change(store, follow, make):
    first, second = make(), make()
    place = begun(follow())[1]

    for number in range(200):
        store.conversations._listing.note(first, number + 2**60, "idle", *("2026-11-20T20:37:22Z",) * 2)
    store.conversations.delete(second)

    assert told(taken(follow(place), ("deleted", second))) == [("changed", first), ("deleted", second)]


def test_a_stream_resumes_after_any_change_and_at_another_process(redis_url, follow, make):
    place = begun(follow())[1]
    ids = [make() for _ in range(5)]
    changes = taken(follow(place), ("changed", ids[-1]))
    assert told(changes) == [("changed", one) for one in ids]

    other = small_store(redis_url)
    for index, (_, _, number) in enumerate(changes[:-1]):
        rest = changes[index + 1 :]
        assert taken(follow(number, of=other.streams.conversations), rest[-1][:2]) == rest
    assert follow(changes[-1][2], of=other.streams.conversations).next(0.1) == []


@pytest.mark.process("waits for what threads do")
def test_many_conversations_come_once_each_and_in_the_order_of_their_changes(store, follow):
    stream = follow()
    begun(stream)
    stream.next(0)
    ids = [str(uuid4()) for _ in range(3 * lists.PAGE)]
    for one in ids:
        store.conversations._listing.note(one, 1, "idle", *("2026-11-20T20:37:22Z",) * 2)

    changes = taken(stream, ("deleted", ids[-1]))  # the records of these notes are gone

    assert [identity for _, identity, _ in changes] == ids
    assert [number for *_, number in changes] == sorted({number for *_, number in changes})


def test_numbers_grow_also_where_the_clock_stands_or_goes_back(store, follow, make):
    one = make()
    redis, root = store.approvals.inbox._redis, ListingKeys.root
    future = 2_000_000_000_000_000
    redis.zadd(f"{root}:changes", {one: future})

    two = make()

    assert redis.zscore(f"{root}:changes", two) == future + 1


# what is no longer held


def test_a_client_whose_place_was_dropped_reads_the_list_again(store, follow, make):
    stream = follow()
    place = begun(stream)[1]
    stream.close()
    first = make()
    redis, root = store.approvals.inbox._redis, ListingKeys.root
    redis.set(f"{root}:changes:floor", 0)
    planted = {str(number): number + 1 for number in range(MOST_CHANGES - 1)}
    for start in range(0, len(planted), 5000):
        redis.zadd(f"{root}:changes", dict([*planted.items()][start : start + 5000]))

    second = make()

    assert redis.zcard(f"{root}:changes") == MOST_CHANGES
    assert (place, begun(follow(place))[0]) == (0, "dropped")
    before = int(redis.zscore(f"{root}:changes", first)) - 1
    assert told(taken(follow(before), ("changed", second))) == [("changed", first), ("changed", second)]
    assert follow(1).next(5.0)[0].id == "2"


@pytest.mark.parametrize("number", [1, 9_999_999_999_999_999])
def test_a_number_that_the_store_never_gave_is_a_reset(follow, make, number):
    make()

    reason, ready = begun(follow(number))

    assert (reason, ready > 1) == ("dropped", True)


def test_a_reader_whose_place_is_dropped_ends_its_streams(store, follow, make):
    make()
    stream = follow()
    begun(stream)
    assert stream.next(0) == []
    store.approvals.inbox._redis.set(f"{ListingKeys.root}:changes:floor", 9_999_999_999_999_999)
    poll(stream)

    def has_ended():
        try:
            stream.next(1.0)
        except FellBehind:
            return True

    wait_until(has_ended, "the end of the stream")


# signals, readers and quotas


def test_a_lost_signal_delays_a_change_and_never_loses_it(store, follow, make):
    one = make()
    stream = follow()
    number = begun(stream)[1]

    store.approvals.inbox._redis.zadd(f"{ListingKeys.root}:changes", {one: number + 1})
    poll(stream)

    assert taken(stream, ("changed", one)) == [("changed", one, number + 1)]


def test_all_streams_of_a_process_read_a_change_once(store, follow, make, monkeypatch):
    read = []
    load = store.streams.conversations._load
    monkeypatch.setattr(store.streams.conversations, "_load", lambda ids: read.extend(ids) or load(ids))
    streams = [follow() for _ in range(10)]
    for stream in streams:
        begun(stream)
        stream.next(0)

    one = make()

    assert all(told(taken(stream, ("changed", one))) == [("changed", one)] for stream in streams)
    assert read.count(one) == 1


def test_a_reader_waits_between_two_readings_so_that_many_changes_are_one_reading(store, follow, make, monkeypatch):
    waits = []
    monkeypatch.setattr(lists, "READ_SECONDS", 0.25)
    monkeypatch.setattr(lists, "time", SimpleNamespace(sleep=waits.append, monotonic=lambda: 100.0))
    stream = follow()
    begun(stream)

    for _ in range(2):
        one = make()
        taken(stream, ("changed", one))

    assert lists.READ_SECONDS in waits


def test_a_change_costs_no_round_trip_and_a_reading_of_a_hundred_two(store, follow, make):
    ids = [make() for _ in range(100)]
    follow(0).next(5.0)
    stream = follow(0)

    with counted() as trips:
        changes = stream.next(5.0)

    assert ([json.loads(one.raw)["id"] for one in changes], trips.number) == (ids, 2)


def test_a_client_that_is_too_slow_is_ended_and_resumes(redis_url, follow, make):
    other = small_store(redis_url, follower_bytes=65_536).streams.conversations
    slow, quick = follow(of=other), follow(of=other)
    place = begun(slow)[1]
    begun(quick)
    assert slow.next(0) == quick.next(0) == []  # both take from the ring

    ids = []
    for number in range(4):
        ids.append(make(title=str(number), tags={f"tag{index}": "y" * 250 for index in range(150)}))
        taken(quick, ("changed", ids[-1]))

    with pytest.raises(FellBehind):
        slow.next(0)
    assert told(taken(follow(place, of=other), ("changed", ids[-1]))) == [("changed", one) for one in ids]


def test_streams_count_as_followers_and_end_when_the_process_stops(redis_url, follow):
    store = small_store(redis_url, max_followers=1)
    stream = follow(of=store.streams.conversations)
    begun(stream)

    with pytest.raises(TooManyFollowers):
        follow(of=store.streams.sandboxes)
    store.streams.events.stop()

    with pytest.raises(Stopping):
        stream.next(5.0)


# sandboxes


def shown_of(sandbox) -> dict:
    return {"id": sandbox.id, "status": sandbox.status, "detail": sandbox.detail}


def paused(sandboxes, one):
    sandboxes.ask(one.id, "pause")
    sandboxes.report(one.id, "h", "supervisor", "PAUSED")


def test_every_change_of_a_sandbox_that_clients_see_is_told(store, sandboxes, follow):
    stream = follow(of=store.streams.sandboxes, show=shown_of)
    begun(stream)

    def number() -> int:
        return int(sandboxes._redis.zscore("{sandboxes}:changes", one.id))

    def seen():
        """The sandbox as its last change has it."""
        shown = []
        wait_until(lambda: shown.extend(stream.next(1.0)) or (shown and int(shown[-1].id) == number()), "a change")
        assert {json.loads(change.raw)["id"] for change in shown} == {one.id}
        return shown[-1]

    one = running_sandbox(sandboxes)
    assert json.loads(seen().raw)["status"] == "RUNNING"
    for change, expected in (
        (lambda: sandboxes.report(one.id, "h", "supervisor", detail="measured"), ("RUNNING", "measured")),
        (lambda: paused(sandboxes, one), ("PAUSED", "measured")),
        (lambda: sandboxes.ask(one.id, "resume"), ("STARTING", "")),
        (lambda: sandboxes.begin(one.id, "h", "supervisor", "scripted"), ("STARTING", "")),
        (lambda: sandboxes.report(one.id, "h", "supervisor", "ERROR", detail="broke"), ("ERROR", "broke")),
    ):
        before = number()
        change()
        shown = json.loads(seen().raw)
        assert (shown["status"], shown["detail"], number() > before) == (*expected, True)
    sandboxes.ask(one.id, "delete")
    sandboxes.report(one.id, "h", "supervisor", "GONE")

    assert seen().name == "deleted"


def test_the_host_that_takes_a_sandbox_is_told(store, sandboxes, follow):
    stream = follow(of=store.streams.sandboxes, show=lambda item: {"id": item.id, "host": item.host})
    begun(stream)

    one = sandboxes.start("spec")
    hosts = []
    wait_until(lambda: hosts.extend(json.loads(change.raw)["host"] for change in stream.next(1.0)) or hosts, "a start")
    sandboxes.claim("h")

    [changed] = stream.next(5.0)
    assert (hosts, json.loads(changed.raw)) == ([""], {"id": one.id, "host": "h"})


def test_a_sandbox_whose_host_is_lost_is_told_as_missing(store, sandboxes, follow):
    one = running_sandbox(sandboxes)
    stream = follow(of=store.streams.sandboxes, show=shown_of)
    begun(stream)

    silent_for(sandboxes, 100)
    sandboxes.get_many([one.id])  # every reader does the work of lost supervisors

    [changed] = stream.next(5.0)
    shown = json.loads(changed.raw)
    assert (shown["id"], shown["status"], "does not answer" in shown["detail"]) == (one.id, "MISSING", True)


def test_what_no_client_sees_of_a_sandbox_is_no_change(store, sandboxes):
    one = running_sandbox(sandboxes)
    before = sandboxes._redis.zscore("{sandboxes}:changes", one.id)

    sandboxes.use(one.id)
    sandboxes.note_settled(one.id, 1)
    sandboxes.beat("h", "supervisor")

    assert sandboxes._redis.zscore("{sandboxes}:changes", one.id) == before
