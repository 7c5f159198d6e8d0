"""Bounds of conversations in a sandbox, of starts, and of what one holder has open in a process."""

from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest

from store.access import Quota, TooManyFollowersOfKey
from store.errors import StoreFull, TooManyConversations, TooManyStarts
from tests.conftest import limits_of, store_of
from tests.store.conftest import forget

LIMITS = limits_of(1000, max_conversations_per_sandbox=2, max_starts=3)


@pytest.fixture
def store(redis_url):
    """A store without start tasks, whose sandboxes have room for two conversations each."""
    store = store_of(redis_url, LIMITS)
    forget(store.sandboxes._redis, "{starts}*")
    store.sandboxes.beat("h", "supervisor")
    yield store
    forget(store.sandboxes._redis, "{sandboxes}*")


@pytest.fixture
def sandbox(store):
    return store.sandboxes.start("spec").id


def made(store, sandbox: str) -> str:
    identity = str(uuid4())
    store.conversations.create(identity, sandbox_id=sandbox, app={})
    return identity


def started(store, sandbox: str | None = None):
    return store.start_tasks.create({"sandbox_id": sandbox}, echo={})


def test_a_sandbox_has_room_for_so_many_conversations(store, sandbox):
    made(store, sandbox), made(store, sandbox)

    with pytest.raises(TooManyConversations, match=r"MAX_CONVERSATIONS_PER_SANDBOX"):
        made(store, sandbox)
    assert store.conversations.in_sandboxes.in_sandbox(sandbox) == 2
    made(store, store.sandboxes.start("spec").id)


@pytest.mark.faults("a race of threads")
def test_concurrent_creations_do_not_pass_the_bound(store, sandbox):
    def create(_) -> bool:
        try:
            made(store, sandbox)
        except TooManyConversations:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(create, range(16))) == 2


def test_the_deletion_of_a_conversation_makes_room(store, sandbox):
    first = made(store, sandbox)
    made(store, sandbox)
    store.conversations.delete(first)

    made(store, sandbox)


def test_a_repeated_creation_takes_one_place(store, sandbox):
    identity = str(uuid4())
    for _ in range(3):
        store.conversations.create(identity, sandbox_id=sandbox, app={})

    made(store, sandbox)


def test_a_conversation_that_exists_elsewhere_takes_no_place(store, sandbox, conversation):
    store.conversations.create(conversation)
    for _ in range(3):
        assert not store.conversations.create(conversation, sandbox_id=sandbox, app={})

    made(store, sandbox), made(store, sandbox)


def test_an_agent_starts_no_child_in_a_full_sandbox(store, sandbox, conversation):
    parent, _ = made(store, sandbox), made(store, sandbox)

    with pytest.raises(TooManyConversations):
        store.conversations.in_sandboxes.report(sandbox, conversation, {"parent_conversation_id": parent})
    assert store.conversations.get_many([conversation]) == [None]


def test_a_start_takes_the_place_of_its_conversation(store, sandbox):
    start = started(store, sandbox)
    started(store, sandbox)
    with pytest.raises(TooManyConversations):
        started(store, sandbox)

    store.conversations.create(start.conversation_id, sandbox_id=sandbox, app={"start_id": start.id})
    with pytest.raises(TooManyConversations):
        started(store, sandbox)


def test_the_place_of_a_start_that_failed_is_free(store, sandbox):
    start = started(store, sandbox)
    started(store, sandbox)
    store.sandboxes.places.leave(sandbox, start.conversation_id)

    started(store, sandbox)


def test_the_place_of_a_start_that_was_lost_is_free_after_an_hour(store, sandbox):
    start = started(store, sandbox)
    made(store, sandbox)
    store.sandboxes._redis.zincrby(f"{{sandboxes}}:places:{sandbox}", -3_600_000_001, start.conversation_id)

    started(store, sandbox)


def test_a_conversation_that_was_made_keeps_its_place(store, sandbox):
    identity = made(store, sandbox)
    store.sandboxes.places.leave(sandbox, identity)
    made(store, sandbox)

    with pytest.raises(TooManyConversations):
        made(store, sandbox)


def test_so_many_starts_may_be_under_way(store):
    starts = [started(store) for _ in range(3)]
    with pytest.raises(TooManyStarts, match="MAX_STARTS"):
        started(store)

    claimed, lease = store.start_tasks.claim()
    assert claimed.id == starts[0].id
    assert store.start_tasks.finish(claimed.id, lease, "READY")

    started(store)


def test_a_start_that_is_refused_for_all_starts_takes_no_place(store, sandbox):
    for _ in range(3):
        started(store)
    for _ in range(3):
        with pytest.raises(TooManyStarts):
            started(store, sandbox)

    made(store, sandbox), made(store, sandbox)


def test_what_a_nearly_full_store_refuses_keeps_no_place(store, sandbox, monkeypatch):
    def full():
        raise StoreFull(99, 100)

    scripts = store.conversations._scripts
    with monkeypatch.context() as patched:  # Redis fills up once the place is taken
        for script in (scripts._create_conversation, scripts._create_start_task):
            patched.setattr(script, "_require_room", full)
        for make in (made, started) * 2:
            with pytest.raises(StoreFull):
                make(store, sandbox)

    made(store, sandbox), started(store, sandbox)


def test_a_quota_counts_each_holder_apart_and_what_is_given_back_is_free():
    quota = Quota(2, TooManyFollowersOfKey)
    quota.take("a"), quota.take("a"), quota.take("b")
    with pytest.raises(TooManyFollowersOfKey, match=r"At most 2 connections.*MAX_FOLLOWERS_PER_KEY"):
        quota.take("a")

    quota.give_back("a")
    quota.take("a")
    for holder in ("a", "a", "b"):
        quota.give_back(holder)
    assert not quota._taken
