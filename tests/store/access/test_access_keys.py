"""How long a worker remembers a key."""

from types import SimpleNamespace

from core.wire import Micros, now
from store.access import access_keys
from store.access.access_keys import AccessKeys

HOUR = 3600


def test_a_worker_remembers_a_key_until_it_expires_and_no_longer(store, monkeypatch):
    # Given a worker that remembers what it finds for two hours, and has found a key that expires within one
    clock = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr(access_keys, "REMEMBERED", 2 * HOUR)
    monkeypatch.setattr(access_keys, "time", SimpleNamespace(monotonic=lambda: clock.seconds))
    worker, another = (AccessKeys(store.access.keys._scripts) for _ in range(2))
    made, key = another.make("short", {"read"}, Micros(now() + HOUR * 1_000_000))
    assert worker.find(key).key_id == made.id

    # When another worker revokes it, so that only what is remembered can open anything
    another.revoke(made.id)

    # Then it opens until its end, and then no more
    clock.seconds = HOUR / 2
    assert worker.find(key).key_id == made.id
    clock.seconds = HOUR
    assert worker.find(key) is None
