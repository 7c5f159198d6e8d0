"""A step of Redis' clock neither lengthens a window nor holds the claim of a killed worker."""

from uuid import uuid4

import pytest

from store.access.idempotency import IdempotencyKeyBusy
from store.link.attempts import Attempt
from tests.store.conftest import stepped


def test_a_window_of_hits_ends_after_a_step_back(store):
    name = str(uuid4())
    assert [store.access.counters.hit(name, 60, 1) for _ in range(2)] == [1, 2]

    stepped(store.sandboxes._redis, -3600)

    assert [store.access.counters.hit(name, 60, 1) for _ in range(2)] == [1, 2]
    assert 0 < store.access.counters.seconds_left(name) <= 60


def test_the_claim_of_a_killed_worker_ends_after_a_step_back(store):
    client = str(uuid4())
    assert isinstance(store.access.idempotency.begin(client, "key", "request"), Attempt)
    with pytest.raises(IdempotencyKeyBusy):
        store.access.idempotency.begin(client, "key", "request")

    stepped(store.sandboxes._redis, -3600)

    assert isinstance(store.access.idempotency.begin(client, "key", "request"), Attempt)
    with pytest.raises(IdempotencyKeyBusy):
        store.access.idempotency.begin(client, "key", "request")


def test_a_turn_that_was_claimed_before_a_step_back_is_over_when_its_time_has_passed(store):
    task, redis = str(uuid4()), store.sandboxes._redis
    assert store.conversations.cold.claim(task, 60)

    stepped(redis, -3600)

    assert not store.conversations.cold.claim(task, 60)
    assert 0 < redis.pttl(f"{{cold}}:turn:{task}") <= 60_000
