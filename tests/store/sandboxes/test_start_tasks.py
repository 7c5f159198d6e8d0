"""Start tasks in the store: one driver at a time, final ends, pages of flat cost, and none that stays for ever."""

import itertools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from uuid import uuid4

import pytest

from core import wire
from store.errors import ConversationNotFound, SecretsRefused, StartIsReady, StartTaskNotFound
from store.link import attempts
from store.link.attempts import Attempt
from store.sandboxes import start_tasks
from store.sandboxes.start_tasks import ENDED, MOST_ATTEMPTS, Failure
from tests.conftest import limits_of, store_of
from tests.servers import wait_until
from tests.store.conftest import forget, hashes_read, keys, present_for, round_trips, stepped

LIMITS = limits_of(most=20, pause_idlest=False, host_seconds=3600, start_seconds=120, start_task_days=7)
DAY = 86_400

#: seconds of a lease here: none ends by itself while a test runs on a busy machine
LEASE = 3600.0


@pytest.fixture
def store(redis_url, monkeypatch):
    """A store without start tasks, with one living host."""
    monkeypatch.setattr(start_tasks, "LEASE", LEASE)
    return fresh(redis_url)


def fresh(url, secret_key="a key for tests only", limits=LIMITS):
    store = store_of(url, limits, secret_key)
    forget(store.start_tasks._redis, "{starts}*")
    store.sandboxes.beat("h", "supervisor")
    return store


def made(store, **request):
    return store.start_tasks.create(request, echo={"shown": True})


def let_pass(store, start, seconds=LEASE + 1, queue="due"):
    """Make a start task older, in its queue or in its last change, by so much time."""
    store.start_tasks._redis.zincrby(f"{{starts}}:{queue}", -round(seconds * 1e6), start.id)


def claimed_id(store) -> str | None:
    """The start task that a claim takes; None: there is none."""
    claim = store.start_tasks.claim()
    return claim and claim[0].id


def finished(store, end="READY", detail="why", **request):
    """A start task that its driver has finished, and the lease of that driver."""
    start = made(store, **request)
    claimed, lease = store.start_tasks.claim()
    assert claimed.id == start.id
    assert store.start_tasks.finish(start.id, lease, end, detail)
    return store.start_tasks.get_many([start.id])[0], lease


def due(store):
    return [identity.decode() for identity in store.start_tasks._redis.zrange("{starts}:due", 0, -1)]


def test_a_new_start_task_is_readable_at_once_and_shows_its_echo(store):
    start = made(store, title="x")

    assert store.start_tasks.get_many([start.id, "unknown"]) == [start, None]
    assert (start.status, start.request, start.app_conversation_id) == ("WORKING", {"shown": True}, None)
    claimed, _ = store.start_tasks.claim()
    assert claimed.request == {"title": "x"}


@pytest.mark.faults("a race of threads")
def test_concurrent_claims_give_each_start_task_to_one_driver(store):
    for _ in range(4):
        made(store)
    with ThreadPoolExecutor(8) as pool:
        claimed = [one for one in pool.map(lambda _: store.start_tasks.claim(), range(12)) if one]
    assert len({start.id for start, _ in claimed}) == len(claimed) == 4


def test_a_driver_whose_lease_has_ended_writes_nothing_after_the_next_claim(store):
    start = made(store)
    _, first = store.start_tasks.claim()
    assert store.start_tasks.claim() is None
    assert store.start_tasks.advance(start.id, first, status="WAITING_FOR_SANDBOX", sandbox_id="box", own_sandbox="1")
    let_pass(store, start)

    again, second = store.start_tasks.claim()

    assert (again.status, again.sandbox_id, again.own_sandbox) == ("WAITING_FOR_SANDBOX", "box", True)
    assert not store.start_tasks.advance(start.id, first, status="STARTING_CONVERSATION")
    assert not store.start_tasks.renew(start.id, first)
    assert not store.start_tasks.finish(start.id, first, "ERROR", "late")
    assert store.start_tasks.finish(start.id, second, "READY")
    assert store.start_tasks.get_many([start.id])[0].status == "READY"


def test_a_renewal_keeps_a_start_task_from_other_drivers(store):
    start = made(store)
    _, lease = store.start_tasks.claim()
    let_pass(store, start)
    assert store.start_tasks.renew(start.id, lease)
    assert store.start_tasks.claim() is None


@pytest.mark.parametrize("end", ["READY", "ERROR"])
def test_a_late_renewal_or_advance_of_a_finished_start_task_changes_nothing(store, end):
    start, lease = finished(store, end)

    assert not store.start_tasks.renew(start.id, lease)
    assert not store.start_tasks.advance(start.id, lease, status="STARTING_CONVERSATION")
    assert not store.start_tasks.finish(start.id, lease, "READY" if end == "ERROR" else "ERROR", "late")

    assert due(store) == []
    assert store.start_tasks.claim() is None
    assert store.start_tasks.get_many([start.id]) == [start]


@pytest.mark.parametrize("end", ["READY", "ERROR"])
def test_a_repeated_finish_returns_success_and_changes_nothing(store, end):
    start, lease = finished(store, end)
    assert store.start_tasks.finish(start.id, lease, end, "another reason")
    assert store.start_tasks.get_many([start.id]) == [start]


@pytest.mark.parametrize("end", ["READY", "ERROR"])
def test_a_claim_removes_the_id_of_a_finished_start_task_from_the_queue(store, end):
    start, _ = finished(store, end)
    store.start_tasks._redis.zadd("{starts}:due", {start.id: 0})

    assert store.start_tasks.claim() is None

    assert due(store) == []
    assert store.start_tasks.get_many([start.id]) == [start]


def test_a_claim_skips_ids_without_a_start_task_and_removes_them_from_the_queue(store):
    store.start_tasks._redis.zadd("{starts}:due", {"nothing": 0, "a ghost": 1})
    store.start_tasks._redis.hset("{starts}:task:a ghost", "lease", "old")
    start = made(store)

    claimed, _ = store.start_tasks.claim()

    assert claimed.id == start.id
    assert due(store) == [start.id]


def test_ids_without_a_start_task_harm_no_reader(store):
    start = made(store)
    for queue in ("due", "created", "updated", "failed"):
        store.start_tasks._redis.zadd(f"{{starts}}:{queue}", {"nothing": 0})

    assert store.start_tasks.get_many(["nothing"]) == [None]
    assert store.start_tasks.search(by="updated", descending=False, limit=5) == ([start], None)
    assert store.start_tasks.claim_failed() is None
    assert not store.start_tasks.renew("nothing", "lease")
    assert not store.start_tasks._redis.exists("{starts}:task:nothing")


def test_a_start_task_whose_drivers_are_stopped_or_killed_again_and_again_goes_on(store):
    start = made(store)
    for _ in range(MOST_ATTEMPTS + 1):
        assert claimed_id(store) == start.id
        let_pass(store, start)


def test_a_start_task_that_fails_too_often_ends(store):
    start = made(store)
    for attempt in range(MOST_ATTEMPTS):
        claimed, lease = store.start_tasks.claim()
        assert claimed.attempts == attempt
        assert store.start_tasks.postpone(start.id, lease, 0, counter="attempts")

    assert store.start_tasks.claim() is None

    [failed] = store.start_tasks.get_many([start.id])
    assert failed.status == "ERROR"
    assert "unforeseen error" in failed.detail
    assert store.start_tasks.claim_failed().id == start.id


@pytest.mark.process("waits for what threads do")
@pytest.mark.parametrize("seconds", [1, 10, 60, 300, 3600, -3600])
@pytest.mark.parametrize("is_driven", [True, False], ids=["under way", "new"])
def test_a_start_task_waits_while_no_supervisor_is_there(store, seconds, is_driven):
    assert store.start_tasks.claim() is None
    start = made(store)
    lease = store.start_tasks.claim()[1] if is_driven else ""

    stepped(store.start_tasks._redis, seconds)

    [waits] = store.start_tasks.get_many([start.id])
    assert waits.status == "WORKING"
    if is_driven:
        assert store.start_tasks.advance(start.id, lease, status="WAITING_FOR_SANDBOX")
    else:
        wait_until(lambda: claimed_id(store) == start.id, "the start task, whose time is right to a second")


def test_a_start_task_that_is_made_while_no_supervisor_is_there_is_taken_by_the_first_that_comes(store):
    present_for(store.start_tasks._redis, "{starts}", 121)
    stepped(store.start_tasks._redis, 60)

    start = made(store)

    assert claimed_id(store) == start.id


@pytest.mark.parametrize("read", ["get_many", "search"])
def test_a_start_task_that_no_supervisor_takes_fails_for_every_reader(store, read):
    start, other = made(store), made(store)
    let_pass(store, start, 121)
    present_for(store.start_tasks._redis, "{starts}", 121)

    if read == "search":
        store.start_tasks.search(by="created", descending=True, limit=1)
    failed, untouched = store.start_tasks.get_many([start.id, other.id])

    assert (failed.status, untouched.status) == ("ERROR", "WORKING")
    assert "No supervisor" in failed.detail
    claimed, _ = store.start_tasks.claim()
    assert claimed.id == other.id
    assert store.start_tasks.claim_failed().id == start.id


def test_a_failed_start_task_is_cleared_by_a_single_driver_at_a_time_until_it_succeeds(store):
    finished(store, "READY")
    start, _ = finished(store, "ERROR")

    assert store.start_tasks.claim_failed().id == start.id
    assert store.start_tasks.claim_failed() is None
    let_pass(store, start, 60, "failed")
    assert store.start_tasks.claim_failed().id == start.id
    store.start_tasks.cleared(start.id)
    let_pass(store, start, 0, "created")
    assert store.start_tasks.claim_failed() is None


def test_secrets_are_sealed_and_read_by_the_driver_alone(store):
    start = made(store, secrets={"TOKEN": "hidden"})
    stored = store.start_tasks._redis.hgetall(f"{{starts}}:task:{start.id}")
    assert b"hidden" not in b"".join(stored.values())
    claimed, _ = store.start_tasks.claim()
    assert store.start_tasks.secrets_of(claimed) == {"TOKEN": "hidden"}


@pytest.mark.parametrize("end", ["READY", "ERROR", "forgotten"])
def test_secrets_are_removed_when_their_start_task_is_finished(store, end):
    if end == "forgotten":
        start = made(store, secrets={"TOKEN": "hidden"})
        let_pass(store, start, 121)
        present_for(store.start_tasks._redis, "{starts}", 121)
        store.start_tasks.get_many([start.id])
    else:
        start, _ = finished(store, end, secrets={"TOKEN": "hidden"})
    assert not store.start_tasks._redis.hexists(f"{{starts}}:task:{start.id}", "secrets")
    assert store.start_tasks.secrets_of(start) == {}


def test_secrets_without_a_key_are_refused_and_leave_nothing(redis_url):
    store = fresh(redis_url, secret_key="")
    with pytest.raises(SecretsRefused):
        made(store, secrets={"TOKEN": "hidden"})
    assert store.start_tasks.count() == 0


def test_finished_start_tasks_are_forgotten_after_their_days_and_unfinished_ones_stay(store):
    old, recent, failed = (finished(store, end)[0] for end in ("READY", "READY", "ERROR"))
    unfinished = made(store)
    for start, seconds in ((old, 7 * DAY + 60), (failed, 7 * DAY + 60), (unfinished, 7 * DAY + 60), (recent, 6 * DAY)):
        let_pass(store, start, seconds, "updated")

    assert store.start_tasks.claim()[0].id == unfinished.id

    found = store.start_tasks.get_many([old.id, failed.id, recent.id, unfinished.id])
    assert [one and one.id for one in found] == [None, None, recent.id, unfinished.id]
    assert store.start_tasks.count() == 2
    left = b" ".join(keys(store.start_tasks._redis, "{starts}*")).decode()
    for gone in (old, failed):
        assert gone.id not in left
        assert gone.conversation_id not in left
    assert store.start_tasks.claim_failed() is None


def test_a_claim_forgets_a_bounded_number_of_start_tasks(store):
    for start, _ in [finished(store) for _ in range(25)]:
        let_pass(store, start, 8 * DAY, "updated")
    counts = []
    for _ in range(4):
        store.start_tasks.claim()
        counts.append(store.start_tasks.count())
    assert counts == [15, 5, 0, 0]


@pytest.mark.parametrize("equal_times", [False, True])
def test_pages_reach_each_start_task_once(store, equal_times):
    conversation = str(uuid4())
    starts = [made(store, **({"conversation_id": conversation} if number % 2 else {})) for number in range(9)]
    if equal_times:
        for start in starts:
            store.start_tasks._redis.hset(
                f"{{starts}}:task:{start.id}", mapping={"created_at": 1_000_000, "updated_at": 1_000_000}
            )
            indexes = ("created", "updated")
            for index in (*indexes, *(f"{by}:{start.conversation_id}" for by in indexes)):
                store.start_tasks._redis.zadd(f"{{starts}}:{index}", {start.id: 1_000_000}, xx=True)
    store.start_tasks._redis.delete("{starts}:due")

    ways = itertools.product(("created", "updated"), (False, True), ((None, starts), (conversation, starts[1::2])))
    for by, descending, (mine, expected) in ways:
        seen, cursor = [], None
        while True:
            page, cursor = store.start_tasks.search(
                by=by, descending=descending, limit=2, conversation_id=mine, start=cursor
            )
            seen += [start.id for start in page]
            if cursor is None:
                break
        times = {start.id: (1 if equal_times else start.created_at, start.id) for start in expected}
        assert seen == sorted(times, key=times.get, reverse=descending)


def test_a_search_filters_start_tasks(store):
    conversation = str(uuid4())
    mine, other = made(store, conversation_id=conversation), made(store)
    _, lease = store.start_tasks.claim()
    assert store.start_tasks.finish(mine.id, lease, "READY")
    assert store.start_tasks.count() == 2
    assert store.start_tasks.count(conversation_id=conversation) == 1
    assert store.start_tasks.count(since=other.created_at) == 1
    assert store.start_tasks.count(since=other.created_at, conversation_id=conversation) == 0

    def found(**filters):
        return [one.id for one in store.start_tasks.search(limit=9, **filters)[0]]

    assert found(by="created", descending=True, conversation_id=conversation) == [mine.id]
    for descending in (True, False):  # the start task has changed since then, but was created before
        assert found(by="updated", descending=descending, since=other.created_at) == [other.id]
    assert found(by="updated", descending=True, since=mine.created_at) == [mine.id, other.id]


def test_a_forgotten_start_task_leaves_a_mark_that_ends_in_a_day(store):
    start = made(store)
    store.start_tasks.forget(start.id)
    assert store.start_tasks.get_many([start.id]) == [None]
    [left] = keys(store.start_tasks._redis, "{starts}*")
    assert left.decode() == f"{{starts}}:ended:{start.id}"
    assert 0 < store.start_tasks._redis.ttl(left) <= DAY


def test_an_ended_start_task_is_an_error_that_says_so_and_stays_one(store):
    start = made(store, secrets={"TOKEN": "hidden"})
    claimed, lease = store.start_tasks.claim()

    ended = store.start_tasks.end(start.id)

    assert (ended.status, ended.detail, ended.failure, ended.is_ended) == ("ERROR", ENDED, Failure(410, ENDED), True)
    assert store.start_tasks.end(start.id) == ended
    assert not store.start_tasks.advance(start.id, lease, status="WAITING_FOR_SANDBOX")
    assert not store.start_tasks.finish(start.id, lease, "READY")
    assert store.start_tasks.secrets_of(claimed) == {}
    assert store.start_tasks.claim() is None
    assert store.start_tasks.claim_failed() == replace(ended, request={})
    assert not keys(store.start_tasks._redis, "{starts}:of:*")


def test_what_is_ready_or_unknown_is_not_ended(store):
    ready, _ = finished(store)
    with pytest.raises(StartIsReady, match=ready.conversation_id):
        store.start_tasks.end(ready.id)
    with pytest.raises(StartTaskNotFound):
        store.start_tasks.end(uuid4().hex)
    assert store.start_tasks.get_many([ready.id]) == [ready]


def test_a_start_task_that_failed_by_itself_keeps_its_reason(store):
    failed, _ = finished(store, "ERROR")
    assert store.start_tasks.end(failed.id) == failed


def test_the_start_tasks_of_a_conversation_end_with_those_of_its_children_if_asked_and_no_others(store):
    conversation = str(uuid4())
    own = [made(store, conversation_id=conversation).id for _ in range(2)]
    child, other = made(store, parent_conversation_id=conversation), made(store)

    assert store.start_tasks.end_of(conversation) == set(own)
    assert store.start_tasks.end_of(conversation, with_children=True) == {child.id}
    assert store.start_tasks.end_of(conversation, with_children=True) == set()
    assert due(store) == [other.id]


def test_a_repeat_of_a_request_whose_start_was_ended_finds_it_and_starts_nothing(store):
    conversation, attempt = str(uuid4()), Attempt(uuid4())

    def ask():
        return store.start_tasks.create_once(conversation, {}, {}, echo={})

    attempts.enter(attempt)
    try:
        first, is_new = ask()
        assert is_new
        ended = store.start_tasks.end(first.id)
        assert ask() == (ended, False)
    finally:
        attempts.enter(None)
    assert ask()[1]  # another request may have the id


def test_a_repeat_of_a_request_whose_conversation_was_deleted_starts_nothing(store):
    attempts.enter(Attempt(uuid4()))
    try:
        start = made(store)
        _, lease = store.start_tasks.claim()
        store.start_tasks.finish(start.id, lease, "READY")
        store.start_tasks.forget(start.id)
        with pytest.raises(ConversationNotFound):
            made(store)
    finally:
        attempts.enter(None)
    assert due(store) == []


def test_a_cleared_start_task_is_cleared_again_as_long_as_more_may_come_of_it(store):
    start = made(store)
    store.start_tasks.end(start.id)
    assert store.start_tasks.claim_failed().id == start.id
    store.start_tasks.cleared(start.id, late=60)
    let_pass(store, start, 31, "failed")
    assert store.start_tasks.claim_failed().id == start.id
    store.start_tasks._redis.hincrby(f"{{starts}}:task:{start.id}", "updated_at", -61_000_000)
    store.start_tasks.cleared(start.id, late=60)
    let_pass(store, start, 31, "created")
    assert store.start_tasks._redis.zcard("{starts}:failed") == 0


def test_the_starts_of_one_conversation_are_read_in_one_round_trip_whatever_the_number_of_others(store, monkeypatch):
    for _ in range(30):
        made(store)
    mine = made(store)
    for read in (
        lambda: store.start_tasks.search(by="updated", descending=True, limit=5, conversation_id=mine.conversation_id),
        lambda: store.start_tasks.count(conversation_id=mine.conversation_id),
    ):
        read()  # Redis knows the script
        before = hashes_read(store.start_tasks._redis)
        with round_trips(store.start_tasks._redis, monkeypatch) as trips:
            read()
        assert len(trips) == 1
        if before is not None:
            assert hashes_read(store.start_tasks._redis) - before <= 1


@pytest.mark.parametrize("seconds", [7200, -7200])
def test_a_driver_whose_clock_is_wrong_neither_loses_nor_takes_a_lease(store, monkeypatch, seconds):
    clock = wire.now
    with monkeypatch.context() as patch:
        patch.setattr(wire, "now", lambda: clock() + seconds * 1_000_000)
        start = made(store)
        _, lease = store.start_tasks.claim()
        assert store.start_tasks.renew(start.id, lease)
        assert store.start_tasks.get_many([start.id])[0].status == "WORKING"
    assert store.start_tasks.claim() is None
    assert abs(start.created_at - clock()) < abs(seconds) * 1_000_000 / 2
    with monkeypatch.context() as patch:
        patch.setattr(wire, "now", lambda: clock() + seconds * 1_000_000)
        assert store.start_tasks.claim() is None
        let_pass(store, start)
        assert store.start_tasks.claim()[0].id == start.id


@pytest.mark.parametrize(("field", "value"), [("request", "{"), ("waits", "x"), ("own_sandbox", None)])
def test_a_start_task_whose_record_cannot_be_read_ends_and_holds_up_no_other(store, field, value, caplog):
    broken, whole = made(store), made(store)
    redis, key = store.start_tasks._redis, f"{{starts}}:task:{broken.id}"
    _ = redis.hdel(key, field) if value is None else redis.hset(key, field, value)

    assert claimed_id(store) == whole.id
    assert redis.hget(key, "status") == b"ERROR"
    assert redis.hget(key, "detail") == b"Its record cannot be read: see the supervisor's log"
    assert due(store) == [whole.id]
    assert store.start_tasks.claim_failed() is None
    assert redis.zscore("{starts}:failed", broken.id) is None
    assert f"start task {broken.id}: its record cannot be read, so it ends" in caplog.text
    assert f"start task {broken.id}: what it left stays" in caplog.text
