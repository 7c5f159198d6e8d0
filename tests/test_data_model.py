"""The data model in store/keys.py names every key that lasts; another one is a leak."""

import pytest
from redis import Redis

from tests.data_model import lasting, leaked


@pytest.fixture
def redis(redis_url):
    with Redis.from_url(redis_url) as connected:
        yield connected


@pytest.fixture
def leak(redis, conversation):
    """Add a key to the store, and say what is found of it."""
    names = []

    def found(name: str, expires: int | None = None) -> list[str]:
        names.append(name.format(f"{{{conversation}}}"))
        redis.set(names[-1], "", ex=expires)
        return [one for one in leaked(redis) if names[-1] in one]

    yield found
    redis.delete(*names)


def test_a_key_that_no_table_names_is_found(leak, conversation):
    assert leak("conv:{}:forgotten") == [f"conv:{{{conversation}}}:forgotten (string)"]


def test_a_key_of_another_type_is_found(leak):
    assert leak("conv:{}:log")


def test_a_key_that_should_have_an_expiry_and_has_none_is_found(leak):
    assert leak("conv:{}:deleted")


def test_a_key_that_ends_by_itself_is_none(leak):
    assert not leak("conv:{}:forgotten", expires=60)


def test_a_chunk_of_text_is_named(leak):
    assert not leak("conv:{}:text:0")


def test_every_pattern_has_a_type_of_redis():
    assert {kind for _, kind in lasting()} == {"string", "hash", "list", "set", "zset", "stream"}
