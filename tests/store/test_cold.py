"""Cold conversations: what freezing moves, what brings it back, and what every other call sees of them."""

import pytest

from store import Limits, open_store
from store.cold import ObjectMissing, ObjectsAway
from tests.conftest import BOUNDS, SECRET_KEY, as_events, event, recorded


class Objects:
    """Objects in the memory of the tests; `is_away` as a store of objects that cannot be reached."""

    def __init__(self):
        self.kept: dict[str, bytes] = {}
        self.is_away = False

    def _reach(self):
        if self.is_away:
            raise ObjectsAway("the place of the tests is away")

    def put(self, name, content):
        self._reach()
        self.kept[name] = content

    def get(self, name):
        self._reach()
        if name not in self.kept:
            raise ObjectMissing(name)
        return self.kept[name]

    def delete(self, name):
        self._reach()
        self.kept.pop(name, None)

    def names(self):
        self._reach()
        yield from list(self.kept)


def archiving(url: str, objects: Objects | None, **bounds):
    """A store of conversations that become cold."""
    return open_store(
        url,
        timeout=10,
        max_connections=16,
        text_cache_bytes=1024 * 1024,
        ring_bytes=1024 * 1024,
        most_followers=8,
        secret_keys=(SECRET_KEY,),
        limits=Limits(most=3, pause_idlest=False, host_seconds=60, start_seconds=120),
        bounds=BOUNDS if not bounds else type(BOUNDS)(256, 256, 2048, **bounds),
        objects=objects,
    )


@pytest.fixture
def objects():
    return Objects()


@pytest.fixture
def cold(redis_url, objects):
    return archiving(redis_url, objects)


def parts(store, conversation: str) -> set[str]:
    """The keys of a conversation that Redis has, as they follow its root."""
    keys = store.conversations._redis.scan_iter(f"conv:{{{conversation}}}*")
    return {key.decode().partition("}")[2] for key in keys}


@pytest.fixture
def frozen(cold, conversation):
    """A cold conversation with the events of a recorded one, some of them with ids that are no UUIDs."""
    cold.conversations.create(conversation, title="cold")
    cold.events.append(conversation, as_events([*recorded("never_confirm"), {**event(), "id": "no-uuid"}]))
    cold.conversations.change_status(conversation, "pause")
    assert cold.cold.freeze(conversation)
    return conversation


def test_the_log_of_a_cold_conversation_is_in_its_object_alone(cold, frozen, objects):
    assert parts(cold, frozen) == {"", ":pairs", ":text:0"}
    assert len(objects.kept) == 1


def test_a_read_brings_the_log_back_as_it_was(cold, conversation):
    cold.conversations.create(conversation)
    cold.events.append(conversation, as_events(recorded("never_confirm")))
    cold.conversations.change_status(conversation, "pause")
    before, known = cold.events.search(conversation, limit=1000), parts(cold, conversation)
    assert cold.cold.freeze(conversation)

    assert cold.events.search(conversation, limit=1000) == before
    assert parts(cold, conversation) == known
