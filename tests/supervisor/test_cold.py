"""Turns of cold storage: one supervisor at a time freezes what rests, removes what nobody needs, and goes on after what
fails."""

import base64
import logging
from pathlib import Path
from random import Random
from uuid import uuid4

import pytest
from redis import Redis
from redis.exceptions import TimeoutError as RedisTimeout

from app import create_app
from runtimes import RuntimeCallFailed
from runtimes.isolation.view import readable
from settings.config import Config
from store.conversations.cold import ObjectsAway
from store.objects import open_objects
from supervisor import keeping
from supervisor.__main__ import _private
from supervisor.keeping import ColdSweep
from telemetry.logs import JsonLines
from tests.cold import cold_store
from tests.conftest import SECRET_KEY, as_events, event, message
from tests.servers import store_server
from tests.supervisor.conftest import SupervisorClock


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A Redis of its own: a sweep takes every conversation that rests."""
    with store_server(tmp_path_factory.mktemp("cold")) as (url, _):
        yield url


@pytest.fixture
def redis(server):
    client = Redis.from_url(server)
    client.flushall()
    return client


@pytest.fixture
def settings(tmp_path):
    return Config.of(redis_url="redis://unused", cold_url=f"file://{tmp_path}/cold", cold_days=1e-9).keeping


@pytest.fixture
def place(settings):
    return open_objects(settings)


@pytest.fixture
def store(server, redis, place):
    return cold_store(server, place)


@pytest.fixture
def clock():
    return SupervisorClock()


@pytest.fixture
def sweep(store, place, settings, redis, clock):
    """Take a turn, as if the last one were long ago."""
    sweeping = ColdSweep(store, settings, clock=clock)

    def swept() -> None:
        redis.delete("{cold}:turn:turn")
        sweeping.sweep()

    return swept


@pytest.fixture
def made(store):
    def make(number: int = 1) -> list[str]:
        ids = [str(uuid4()) for _ in range(number)]
        for one in ids:
            store.conversations.create(one)
            store.events.append(one, as_events([event(), message("words")]))
        return ids

    return make


def cold(redis, *ids: str) -> list[bool]:
    return [redis.hexists(f"conv:{{{one}}}", "cold") for one in ids]


def an_hour_passes(redis) -> None:
    for name in redis.zrange("{cold}:objects", 0, -1):
        redis.zadd("{cold}:objects", {name: 0})


def test_a_turn_freezes_what_rests_and_says_how_many(redis, store, place, sweep, made, caplog):
    ids = made(3)
    store.conversations.change_status(ids[2], "run")

    with caplog.at_level(logging.INFO, "supervisor"):
        sweep()

    assert cold(redis, *ids) == [True, True, False]
    assert len(list(place.names())) == 2
    assert "cold storage: 2 conversations became cold, 0 objects were removed" in caplog.text
    [line] = [JsonLines().format(one) for one in caplog.records if "became cold" in one.getMessage()]
    assert '"frozen": 2, "removed": 0, "failures": 0' in line


def test_what_has_not_rested_for_so_many_days_stays(redis, store, place, made, clock):
    ids = made()

    ColdSweep(store, Config.of(cold_url="file:///tmp/unused", cold_days=1).keeping, clock=clock).sweep()

    assert cold(redis, *ids) == [False]


def test_one_supervisor_takes_a_turn_at_a_time(redis, store, place, settings, made, clock):
    first, second = (ColdSweep(store, settings, clock=clock) for _ in range(2))
    first.sweep()
    ids = made()

    second.sweep()
    assert cold(redis, *ids) == [False]

    redis.delete("{cold}:turn:turn")
    second.sweep()
    assert cold(redis, *ids) == [True]


def test_a_turn_has_a_bound_and_the_next_one_goes_on(redis, sweep, made, monkeypatch):
    monkeypatch.setattr(keeping, "COLD_PART", 2)
    ids = made(5)

    counts = []
    for _ in range(3):
        sweep()
        counts.append(sum(cold(redis, *ids)))

    assert counts == [2, 4, 5]


def test_a_turn_ends_when_its_time_is_over(redis, store, sweep, made, clock, monkeypatch):
    ids = made(3)
    freeze = store.conversations.cold.freeze

    def slow(conversation_id):
        clock.now += 3
        return freeze(conversation_id)

    monkeypatch.setattr(type(store.conversations.cold), "freeze", lambda _, one: slow(one))
    sweep()

    assert sum(cold(redis, *ids)) == 2


@pytest.mark.parametrize("fault", [RuntimeError("a fault"), RedisTimeout("Redis took too long")], ids=repr)
def test_a_conversation_that_fails_is_set_aside_and_holds_up_neither_its_turn_nor_the_next(
    redis, store, place, sweep, made, caplog, monkeypatch, fault
):
    [gone] = made()
    sweep()
    store.conversations.delete(gone)
    an_hour_passes(redis)
    ids, tried, freeze = made(5), [], store.conversations.cold.freeze

    def failing(conversation_id):
        tried.append(conversation_id)
        if conversation_id in ids[:4]:
            raise fault
        return freeze(conversation_id)

    monkeypatch.setattr(type(store.conversations.cold), "freeze", lambda _, one: failing(one))
    sweep()

    assert cold(redis, *ids) == [False, False, False, False, True]
    assert [name for name in place.names() if name.startswith(gone)] == []
    assert f"the conversation {ids[0]} cannot be frozen, and is left for an hour" in caplog.text
    assert f"failed 4 times, last: {fault}" in caplog.text

    tried.clear()
    later = made()
    sweep()
    assert tried == later
    assert cold(redis, *later) == [True]


def test_an_object_that_cannot_be_removed_holds_up_no_other(redis, store, place, sweep, made, caplog, monkeypatch):
    gone = made(2)
    sweep()
    for one in gone:
        store.conversations.delete(one)
    an_hour_passes(redis)
    [rests], delete = made(), place.delete
    first, *_ = sorted(place.names())

    def failing(name):
        if name == first:
            raise ValueError
        delete(name)

    monkeypatch.setattr(place, "delete", failing)
    sweep()

    assert [name for name in place.names() if not name.startswith(rests)] == [first]
    assert cold(redis, rests) == [True]
    assert f"the object {first} of cold storage cannot be removed" in caplog.text


def test_a_log_whose_piece_cannot_be_kept_stays_whole_and_holds_up_no_other(
    redis, server, place, settings, clock, made, monkeypatch
):
    monkeypatch.setattr("store.log.frames._MOST_WORDS", 4)
    store = cold_store(server, place)
    [bad, *others] = made(3)
    put = place.put

    def failing(name, content):
        if name.startswith(bad) and name.endswith("-p0"):
            raise RuntimeError("a fault of one piece")
        put(name, content)

    place.put = failing
    ColdSweep(store, settings, clock=clock).sweep()

    assert cold(redis, bad, *others) == [False, True, True]
    assert len(store.events.search(bad)[0]) == len(store.events.search(others[0])[0]) == 2


def test_a_turn_ends_while_redis_does_not_answer_and_has_removed_first(redis, store, place, sweep, made, monkeypatch):
    [deleted] = made()
    sweep()
    store.conversations.delete(deleted)
    an_hour_passes(redis)
    ids, tried = made(2), []

    def silent(_, conversation_id):
        tried.append(conversation_id)
        raise RedisTimeout

    monkeypatch.setattr(type(store.conversations.cold), "freeze", silent)
    monkeypatch.setattr(type(store.conversations.cold), "set_aside", silent)
    with pytest.raises(RedisTimeout):
        sweep()

    assert tried == [ids[0], ids[0]]
    assert list(place.names()) == []


def test_a_log_of_over_8_mib_goes_in_pieces(store, place, sweep, made):
    [conversation] = made()
    words = base64.b64encode(Random(0).randbytes(700_000)).decode()
    for _ in range(13):
        store.events.append(conversation, as_events([message(words)]))

    sweep()

    assert len(list(place.names())) > 1
    assert store.events.count(conversation) == 15


def test_while_the_place_is_away_turns_are_rare_and_then_all_is_done(
    redis, store, place, sweep, made, clock, caplog, tmp_path, monkeypatch
):
    ids = made(5)
    (tmp_path / "cold").rename(tmp_path / "away")
    tries = []
    put = type(place).put
    monkeypatch.setattr(type(place), "put", lambda *given: (tries.append(1), put(*given)))

    sweep()
    sweep()
    assert len(tries) == 3
    assert "cold storage (COLD_URL) failed" in caplog.text
    assert "No such file or directory" in caplog.text
    assert cold(redis, *ids) == [False] * 5

    (tmp_path / "away").rename(tmp_path / "cold")
    clock.now += 1000
    sweep()
    clock.now += 1000
    sweep()
    assert cold(redis, *ids) == [True] * 5


def test_objects_of_thawed_and_deleted_conversations_are_removed_an_hour_later(redis, store, place, sweep, made):
    thawed, deleted, needed = made(3)
    sweep()
    assert len(store.events.search(thawed)[0]) == 2
    store.conversations.delete(deleted)

    sweep()
    assert len(list(place.names())) == 3

    an_hour_passes(redis)
    sweep()
    [name] = place.names()
    assert name.startswith(needed)
    assert redis.zrange("{cold}:objects", 0, -1) == [name.encode()]
    assert len(store.events.search(needed)[0]) == 2


def test_an_object_that_cannot_be_removed_stays_in_the_register(redis, store, place, sweep, made, clock, monkeypatch):
    ids = made(2)
    sweep()
    for one in ids:
        store.conversations.delete(one)
    an_hour_passes(redis)
    first = redis.zrange("{cold}:objects", 0, 0)[0].decode()
    delete = type(place).delete

    def failing(self, name):
        if name == first:
            raise ObjectsAway("refused")
        delete(self, name)

    with monkeypatch.context() as patched:
        patched.setattr(type(place), "delete", failing)
        sweep()
    assert list(place.names()) == [first]

    an_hour_passes(redis)
    sweep()
    assert list(place.names()) == []
    assert redis.zcard("{cold}:objects") == 0


def test_objects_that_redis_does_not_know_are_removed_if_their_conversation_is_here_and_stay_if_it_is_not(
    redis, store, place, sweep, made, caplog
):
    [ours] = made()
    lost, strange = f"{ours}-{uuid4().hex}", f"{uuid4()}-{uuid4().hex}"
    store.conversations.change_status(ours, "run")
    for name in (lost, strange):
        place.put(name, b"content")

    with caplog.at_level(logging.INFO, "supervisor"):
        sweep()
    assert set(place.names()) == {lost, strange}
    assert "cold storage has 2 objects; 1 belong to no conversation of this Redis, and are kept" in caplog.text

    an_hour_passes(redis)
    sweep()
    assert list(place.names()) == [strange]


def test_objects_are_listed_once_a_day_and_a_part_at_a_time(redis, place, sweep, caplog, monkeypatch):
    monkeypatch.setattr(keeping, "COLD_PART", 2)
    for _ in range(5):
        place.put(f"{uuid4()}-{uuid4().hex}", b"")

    with caplog.at_level(logging.INFO, "supervisor"):
        for _ in range(4):
            sweep()

    assert [one.getMessage() for one in caplog.records] == [
        "cold storage has 5 objects; 5 belong to no conversation of this Redis, and are kept"
    ]
    assert 0 < redis.pttl("{cold}:turn:listing") <= keeping.LISTING * 1000


def test_server_info_says_that_cold_conversations_need_COLD_URL(redis, server, store, sweep, made):
    config = Config.of(redis_url=server, redis_timeout=10, secret_key=SECRET_KEY, supervisor=0)
    client = create_app(config).test_client()
    [identity] = made()
    assert client.get("/server_info").json["notice"] is None

    sweep()

    said = "The events of up to 1 conversations are in cold storage, and COLD_URL is not set."
    assert client.get("/server_info").json["notice"] == said
    away = client.get(f"/api/conversations/{identity}/events/search")
    assert away.status_code == 503
    assert away.json["detail"].endswith("in cold storage (COLD_URL): COLD_URL is not set")


def test_without_cold_storage_nothing_is_asked(server, redis, clock):
    sweeping = ColdSweep(cold_store(server, None), Config().keeping, clock=clock)
    before = redis.info("stats")["total_commands_processed"]

    sweeping.sweep()

    assert redis.info("stats")["total_commands_processed"] == before + 1  # that question


def test_without_days_nothing_is_frozen_and_what_is_cold_stays_readable(redis, store, place, sweep, made, clock):
    [was] = made()
    sweep()
    [is_new] = made()
    redis.delete("{cold}:turn:turn")

    ColdSweep(store, Config.of(cold_url="file:///tmp/unused").keeping, clock=clock).sweep()

    assert cold(redis, was, is_new) == [True, False]
    assert len(store.events.search(was)[0]) == 2


def test_no_process_sandbox_may_read_the_folder_of_cold_storage(tmp_path):
    with_folder = Config.of(data_dir="/data", cold_url=f"file://{tmp_path}/cold")
    with_bucket = Config.of(data_dir="/data", cold_url="s3://bucket/tmp")

    assert _private(with_folder) == (Path("/data"), tmp_path / "cold")
    assert _private(with_bucket) == (Path("/data"),)
    open_objects(with_folder.keeping)
    with pytest.raises(RuntimeCallFailed, match="which contains the server's own data"):
        readable([str(tmp_path / "cold")], _private(with_folder))
