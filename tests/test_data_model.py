"""The data model names every key that lasts, and every field that a script names; another key is a leak."""

import pytest
from redis import Redis

from docs import data_model, make
from store import scripts
from store.scripts import heads
from tests.data_model import fields_of_python, lasting, leaked, removed, unknown_fields


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


def test_the_page_is_made_from_the_code():
    assert make.DATA.read_text() == make.data(), "run `make docs`"


def test_every_field_that_a_script_names_is_declared():
    faults = [fault for name, source in scripts.sources().items() for fault in unknown_fields(name, source)]
    assert faults == [], "declare it in the record of its hash"


def unended() -> list[str]:
    """The keys whose `ends` names a script that does not remove them."""
    enders = data_model.model()["enders"]
    return [
        f"{key.name}: {key.ends}"
        for key in data_model.keys()  # noqa: SIM118, as it is no dict
        if key.ends and (script := enders.get(key.ends, "?"))
        if script not in scripts.sources() or data_model.parted(key.name)[1] not in removed(scripts.sources()[script])
    ]


def test_every_key_is_removed_by_the_script_that_its_end_names():
    assert unended() == []


@pytest.mark.parametrize("key", ["conv:{ID}:forgotten", "{sandboxes}:forgotten:ID", "{starts}:forgotten:ID"])
def test_a_key_that_no_script_removes_is_found(monkeypatch, key):
    known = [*data_model.keys(), data_model.Key(key, "string", "", ends="with the conversation")]
    monkeypatch.setattr(data_model, "keys", lambda: known)
    assert unended() == [f"{key}: with the conversation"]


def test_every_field_that_python_names_is_declared():
    known = {name for of_key in data_model.fields().values() for name in of_key}
    prefixes = tuple(name[:-1] for name in known if name.endswith("*"))
    named = set(fields_of_python())
    assert {"execution_status", "sandbox_id", "settled"} <= named
    assert [name for name in named if name not in known and not str(name).startswith(prefixes)] == []


READER = "local function field(id, name) return redis.call('HGET', root .. ':box:' .. id, name) end "


@pytest.mark.parametrize(
    "body",
    [
        "redis.call('HGET', root .. ':box:' .. id, 'colour')",
        "redis.call('HMGET', root .. ':box:' .. id, 'status', 'colour')",
        "redis.call('HSET', root .. ':box:' .. id, 'detail', f('a', 'b'), 'colour', 'red')",
        "redis.call('HINCRBY', root .. ':box:' .. id, 'colour', 1)",
        READER + "field(id, 'colour')",
    ],
)
def test_a_field_that_nothing_declares_is_found(body):
    source = scripts.ScriptSource(body, {"KEYS": "root of the sandboxes"}, [], heads.Contract((), ()))
    assert list(unknown_fields("paint", source)) == ["paint: {sandboxes}:box:ID colour"]


def test_every_hash_with_fields_is_a_key_of_the_model():
    kinds = {key.name: key.type for group in data_model.groups() for key in group.keys}
    assert {kinds.get(name) for name in data_model.fields()} == {"hash"}
