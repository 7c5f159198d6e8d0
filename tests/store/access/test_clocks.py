"""A step of Redis' clock lengthens no window and holds no claim of a killed worker; a host's clock ends nothing."""

import time
from types import SimpleNamespace
from uuid import uuid4

import pytest
from cryptography import fernet

from core.access import Principal
from core.bounds import AS_REDIS
from core.wire import Micros
from store.access import AccessWing
from store.access.access_keys import SESSION_SECONDS
from store.access.client_settings import SHOWN_SECONDS
from store.access.idempotency import IdempotencyKeyBusy
from store.link import health
from store.link.attempts import Attempt
from store.link.secrets import Sealer
from tests.conftest import SECRET_KEY
from tests.store.conftest import stepped

HOUR = 3600

SOMEONE = Principal("someone", "the id of a key")


@pytest.fixture
def wing(store):
    """Keys of access whose clock of Redis a test sets, and that clock, in seconds."""
    clock = SimpleNamespace(seconds=1_800_000_000)
    redis, scripts, sealer = store.sandboxes._redis, store.access.keys._scripts, Sealer((SECRET_KEY,))
    access = AccessWing(
        redis, scripts, sealer, lambda: Micros(round(clock.seconds * 1_000_000)), most_idempotency_keys=1
    )
    return access, clock


@pytest.mark.parametrize("hours", [-48, 48])
def test_a_step_of_a_hosts_clock_neither_ends_nor_lengthens_what_is_sealed_for_a_time(store, monkeypatch, hours):
    access = store.access
    session, preview = access.sessions.make(SOMEONE), access.sessions.make(SOMEONE, "preview box-8000")
    shown = access.settings.shown("the id of a key", "a secret")

    monkeypatch.setattr(fernet, "time", SimpleNamespace(time=lambda: time.time() + hours * HOUR))

    assert access.sessions.find(session)[0] == SOMEONE
    principal, left = access.sessions.find(preview, "preview box-8000")
    assert principal.key_id == SOMEONE.key_id
    assert SESSION_SECONDS - 60 < left <= SESSION_SECONDS
    assert access.settings.meant("the id of a key", shown) == "a secret"


def test_what_is_sealed_for_a_time_ends_by_redis_clock(wing):
    access, clock = wing
    session, preview = access.sessions.make(SOMEONE), access.sessions.make(SOMEONE, "preview box-8000")
    shown = access.settings.shown("the id of a key", "a secret")

    clock.seconds += SESSION_SECONDS - 1
    assert access.sessions.find(session)[0] == SOMEONE
    assert access.sessions.find(preview, "preview box-8000")[1] == 1
    clock.seconds += 2
    assert access.sessions.find(session) is None
    assert access.sessions.find(preview, "preview box-8000") is None
    assert access.settings.meant("the id of a key", shown) == "a secret"
    clock.seconds += SHOWN_SECONDS
    assert access.settings.meant("the id of a key", shown) is None


def test_what_was_sealed_before_a_step_back_opens_when_redis_clock_has_caught_up(wing):
    access, clock = wing
    session = access.sessions.make(SOMEONE)

    clock.seconds -= HOUR
    assert access.sessions.find(session) is None
    assert access.sessions.find(access.sessions.make(SOMEONE))[0] == SOMEONE
    clock.seconds += HOUR
    assert access.sessions.find(session)[0] == SOMEONE


def test_a_reading_of_redis_clock_is_carried_on_for_ten_seconds(monkeypatch):
    readings, ours = iter([(1000, 5), (90_000, 0)]), SimpleNamespace(seconds=50.0)
    monkeypatch.setattr(health, "time", SimpleNamespace(monotonic=lambda: ours.seconds))
    asked = health.Health(SimpleNamespace(time=lambda: next(readings)), AS_REDIS)

    found = []
    for ours.seconds in (50.0, 52.5, 59.9, 60.0):
        found.append(asked.recent_clock())

    assert found == [1_000_000_005, 1_002_500_005, 1_009_900_005, 90_000_000_000]


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
