"""Pools of warm sandboxes: how their sandboxes end, how they are filled, and that one claim gets each of them."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from store.sandboxes.start_tasks import Pool
from tests.conftest import limits_of
from tests.store.conftest import fresh_sandboxes, silent_for, store_of

POOL = Pool("spec", "v1", 2)


@pytest.fixture
def sandboxes(redis_url):
    """No sandbox, and one living host "h", on which four may run."""
    return fresh_sandboxes(redis_url, most=4)


@pytest.fixture
def warm(redis_url, sandboxes):
    """The pools, of which one keeps two sandboxes."""
    limits = limits_of(most=4, pause_idlest=False, host_seconds=60, start_seconds=120)
    warm = store_of(redis_url, limits).sandboxes.warm
    warm.declare([POOL])
    return warm


def add(sandboxes, warm, pool=POOL, host="h"):
    """One more warm sandbox, which its host has brought to RUNNING."""
    assert warm.fill(pool) == "added"
    added = sandboxes.claim(host)
    assert sandboxes.begin(added, host, "supervisor", "scripted")
    assert sandboxes.report(added, host, "supervisor", "RUNNING", handle={"pid": 1}, urls=[], agent_url="http://agent")
    return sandboxes.get(added)


def left(sandboxes):
    """The sandboxes that are not being deleted."""
    return {
        one.id
        for one in sandboxes.search(status=None, spec_id=None, limit=100, start=None)[0]
        if one.wanted != "deleted"
    }


def later(sandboxes, seconds):
    """Let so many seconds of the pool's backoff pass."""
    key = "{sandboxes}:pool:spec"
    sandboxes._redis.hset(key, "after", int(sandboxes._redis.hget(key, "after")) - round(seconds * 1e6))


# endings


def test_a_warm_sandbox_that_is_discarded_is_being_deleted_and_its_keys_open_nothing(sandboxes, warm):
    one = add(sandboxes, warm)
    key = one.session_api_key
    assert sandboxes.of_session_key(key) == one.id

    assert warm.discard(one.id)

    assert sandboxes.get(one.id).wanted == "deleted"
    assert sandboxes.of_session_key(key) is None
    assert warm.claim(POOL, "start") is None
    assert not warm.discard(one.id)


def test_a_key_owns_the_running_bound_sandboxes_that_it_has_started_until_they_are_gone(sandboxes, warm):
    one = add(sandboxes, warm)
    assert sandboxes.owned_by("") == sandboxes.owned_by("key") == ([], [])
    assert warm.claim(POOL, "start", owner="key") == one.id
    assert sandboxes.owned_by("key")[0] == [one.id]
    starting = sandboxes.start("other", owner="key")
    assert sandboxes.owned_by("key")[0] == [one.id]
    assert sandboxes.owned_by("another")[0] == []

    sandboxes.ask(one.id, "pause")
    assert sandboxes.owned_by("key")[0] == []
    for identity in (one.id, starting.id):
        sandboxes.ask(identity, "delete")
    while claimed := sandboxes.claim("h"):
        assert claimed == starting.id
    for identity in (one.id, starting.id):
        sandboxes.report(identity, "h", "supervisor", "GONE")
    assert not sandboxes._redis.exists("{sandboxes}:owned:key")


def test_a_bound_sandbox_is_never_discarded(sandboxes, warm):
    one = add(sandboxes, warm)
    assert warm.claim(POOL, "start") == one.id

    assert not warm.discard(one.id, failed=True)

    assert sandboxes.get(one.id).wanted == "running"


def test_warm_sandboxes_of_another_version_end_and_a_bound_one_stays(sandboxes, warm):
    bound, _ = add(sandboxes, warm), warm.claim(POOL, "start")
    old = add(sandboxes, warm)
    changed = Pool("spec", "v2", 2)
    warm.declare([changed])

    assert warm.claim(changed, "another") is None
    new = add(sandboxes, warm, changed)

    assert sandboxes.get(old.id).wanted == "deleted"
    assert left(sandboxes) == {bound.id, new.id}
    assert warm.claim(changed, "another") == new.id


def test_a_supervisor_with_an_earlier_version_fills_nothing_and_ends_nothing(sandboxes, warm):
    warm.declare([changed := Pool("spec", "v2", 1)])
    one = add(sandboxes, warm, changed)

    assert warm.fill(POOL) == "other"
    assert left(sandboxes) == {one.id}


def test_a_smaller_pool_ends_those_that_are_too_many(sandboxes, warm):
    add(sandboxes, warm), add(sandboxes, warm)
    warm.declare([smaller := POOL._replace(most=1)])

    assert warm.fill(smaller) == "full"
    assert len(left(sandboxes)) == 1


def test_a_spec_that_keeps_none_any_more_loses_its_pool(sandboxes, warm):
    add(sandboxes, warm)

    warm.declare([POOL._replace(most=0)])

    assert not left(sandboxes)
    assert warm.fill(POOL) == "undeclared"


def test_a_warm_sandbox_without_a_host_is_removed_at_once(sandboxes, warm):
    assert warm.fill(POOL) == "added"

    warm.declare([])

    assert sandboxes.search(status=None, spec_id=None, limit=1, start=None) == ([], None)
    assert sandboxes.claim("h") is None


@pytest.fixture
def lost(sandboxes, warm):
    """A warm sandbox whose host is lost."""
    one = add(sandboxes, warm)
    silent_for(sandboxes, 61)
    assert sandboxes.beat("other", "another supervisor")
    assert sandboxes.get(one.id).status == "MISSING"
    return one


def test_warm_sandboxes_of_a_lost_host_are_replaced_on_another_and_are_of_the_pool_again_when_it_is_back(
    sandboxes, warm, lost
):
    assert warm.claim(POOL, "a start", gives_way=False) is None
    assert warm.fill(POOL) == "added"

    assert sandboxes.beat("h", "supervisor")
    assert sandboxes.report(lost.id, "h", "supervisor", "RUNNING")
    assert warm.claim(POOL, "a start", gives_way=False) == lost.id
    assert sandboxes.removals("h") == []


def test_warm_sandboxes_of_a_lost_host_that_no_pool_wants_are_removed_when_it_is_back(sandboxes, warm, lost):
    warm.declare([])

    assert sandboxes.get_many([lost.id]) == [None]
    assert sandboxes.removals("h") == [("scripted", lost.id)]


def test_a_failed_pool_waits_longer_after_each_failure_and_at_most_a_minute(sandboxes, warm):
    for seconds in (1, 2, 4, 8, 16, 32, 60, 60):
        assert warm.discard(add(sandboxes, warm).id, failed=True)
        later(sandboxes, seconds - 0.9)
        assert warm.fill(POOL) == "waits", seconds
        later(sandboxes, 0.9)
        for one in sandboxes.of_host("h"):
            assert sandboxes.report(one.id, "h", "supervisor", "GONE")


def test_failures_within_a_backoff_count_once(sandboxes, warm):
    both = add(sandboxes, warm), add(sandboxes, warm)

    assert [warm.discard(one.id, failed=True) for one in both] == [True, True]

    assert sandboxes._redis.hget("{sandboxes}:pool:spec", "failures") == b"1"


def test_a_failed_pool_of_a_new_version_begins_at_once(sandboxes, warm):
    assert warm.discard(add(sandboxes, warm).id, failed=True)

    warm.declare([changed := Pool("spec", "v2", 1)])

    assert warm.fill(changed) == "added"


# bounds


@pytest.mark.faults("a race of threads")
def test_many_supervisors_fill_a_pool_with_its_number_and_no_more(sandboxes, warm):
    def fill(host):
        for _ in range(5):
            warm.fill(POOL)
            sandboxes.claim(host)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(fill, ("h", "h2", "h3", "h4")))

    assert len(left(sandboxes)) == 2
    assert warm.fill(POOL) == "full"


def test_a_pool_is_filled_only_as_far_as_sandboxes_may_run(sandboxes, warm):
    for _ in range(3):
        sandboxes.start("other")
        sandboxes.claim("h")
    add(sandboxes, warm)

    assert warm.fill(POOL) == "waits"


def test_a_start_at_the_cap_ends_a_warm_sandbox_and_pauses_nobody(sandboxes, warm):
    busy = [sandboxes.start("other").id for _ in range(2)]
    assert [sandboxes.claim("h"), sandboxes.claim("h")] == busy
    add(sandboxes, warm), add(sandboxes, warm)

    third, fourth = sandboxes.start("other"), sandboxes.start("other")

    assert left(sandboxes) == {*busy, third.id, fourth.id}
    with pytest.raises(Exception, match="sandboxes"):
        sandboxes.start("other")


def test_a_pool_waits_behind_starts_that_wait_for_a_host(sandboxes, warm):
    sandboxes.start("other")

    assert warm.fill(POOL) == "waits"


# the claim


@pytest.mark.faults("a race of threads")
def test_concurrent_claims_get_each_warm_sandbox_once(sandboxes, warm):
    ids = {add(sandboxes, warm).id, add(sandboxes, warm).id}

    with ThreadPoolExecutor(8) as pool:
        claimed = list(pool.map(lambda number: warm.claim(POOL, f"start {number}"), range(8)))

    assert sorted(one for one in claimed if one) == sorted(ids)


def test_a_repeated_claim_gets_the_same_sandbox_and_another_one_once_that_is_deleted(sandboxes, warm):
    first, second = add(sandboxes, warm), add(sandboxes, warm)

    assert warm.claim(POOL, "start") == warm.claim(POOL, "start") == warm.claimed_by("start") == first.id
    sandboxes.ask(first.id, "delete")
    assert warm.claim(POOL, "start") == second.id


def test_a_claim_is_remembered_for_an_hour(sandboxes, warm):
    add(sandboxes, warm)
    warm.claim(POOL, "start")

    assert 3500 < sandboxes._redis.ttl("{sandboxes}:claimed:start") <= 3600


def test_a_claimed_sandbox_is_bound_with_its_time_from_now_on(sandboxes, warm):
    one = add(sandboxes, warm)
    assert one.shown_key is None
    sandboxes._redis.hset(f"{{sandboxes}}:box:{one.id}", mapping={"active_at": 1, "starting_at": 1})

    warm.claim(POOL, "start", gives_way=True)

    bound = sandboxes.get(one.id)
    assert (bound.warm, bound.gives_way, bound.status) == ("", True, "RUNNING")
    assert bound.shown_key == one.session_api_key
    assert min(bound.active_at, bound.starting_at) > one.created_at
    assert warm.fill(POOL) == "added"


def test_a_warm_sandbox_that_starts_or_stands_still_is_not_claimed(sandboxes, warm):
    assert warm.fill(POOL) == "added"

    assert warm.claim(POOL, "start") is None


@pytest.mark.parametrize("verb", ["pause", "resume"])
def test_a_clients_verb_binds_a_warm_sandbox(sandboxes, warm, verb):
    one = add(sandboxes, warm)

    sandboxes.ask(one.id, verb)

    assert sandboxes.get(one.id).warm == ""
    assert warm.claim(POOL, "start") is None


def test_a_conversation_that_is_given_a_warm_sandbox_binds_it(redis_url, sandboxes, warm):
    store = store_of(redis_url, limits_of(most=4, pause_idlest=False, host_seconds=60, start_seconds=120))
    one = add(sandboxes, warm)

    assert store.sandboxes.places.take(one.id, "00000000-0000-4000-8000-000000000000", made=False)

    assert sandboxes.get(one.id).warm == ""


def test_a_start_task_that_has_ended_binds_no_warm_sandbox(redis_url, sandboxes, warm):
    store = store_of(redis_url, limits_of(most=4, pause_idlest=False, host_seconds=60, start_seconds=120))
    one, start = add(sandboxes, warm), store.start_tasks.create({}, echo={})
    store.start_tasks.end(start.id)
    store.start_tasks.bury(start)

    assert warm.claim(POOL, start.id) is None
    assert sandboxes.get(one.id).warm == "v1"
    store.start_tasks.forget(start.id)
