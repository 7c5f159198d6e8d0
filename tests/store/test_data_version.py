"""Older data are migrated before they are read, and newer data are refused."""

import os
import subprocess
import sys
import threading

import pytest
from redis import Redis

from app import create_app
from settings.config import Config
from store.errors import NewerData
from store.keys import DATA_VERSION
from store.link import health
from store.link.health import VERSION, DataVersion
from tests.servers import PROJECT, store_server, wait_until


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with store_server(tmp_path_factory.mktemp("store")) as (url, _), Redis.from_url(url) as redis:
        yield redis


@pytest.fixture
def redis(server):
    """A store without a key."""
    server.flushall()
    return server


def url_of(redis) -> str:
    return f"unix://{redis.get_connection_kwargs()['path']}"


@pytest.fixture
def renamed(monkeypatch):
    """The next version, whose data have a key under another name; returns the versions that were migrated to."""
    done = []

    def rename(redis):
        done.append(VERSION + 1)
        if redis.exists("old name"):  # it may have been renamed before an interruption
            redis.rename("old name", "new name")

    monkeypatch.setattr(health, "VERSION", VERSION + 1)
    monkeypatch.setattr(health, "MIGRATIONS", {VERSION + 1: rename})
    return done


def test_an_empty_store_is_of_this_version(redis):
    DataVersion(redis, redis).ensure()

    assert int(redis.get(DATA_VERSION)) == VERSION


def test_data_of_the_version_before_are_migrated_once(redis, renamed):
    redis.mset({DATA_VERSION: VERSION, "old name": "kept"})
    version = DataVersion(redis, redis)

    version.ensure()
    version.ensure()

    assert (redis.get("new name"), int(redis.get(DATA_VERSION)), renamed) == (b"kept", VERSION + 1, [VERSION + 1])


def test_a_migration_that_was_interrupted_begins_again(redis, renamed):
    redis.mset({DATA_VERSION: VERSION, "new name": "kept"})

    DataVersion(redis, redis).ensure()

    assert (redis.get("new name"), int(redis.get(DATA_VERSION))) == (b"kept", VERSION + 1)


def test_newer_data_are_refused_and_stay(redis):
    redis.set(DATA_VERSION, VERSION + 1)
    version = DataVersion(redis, redis)

    with pytest.raises(NewerData, match=str(VERSION + 1)):
        version.ensure()

    assert (version.is_current, int(redis.get(DATA_VERSION))) == (False, VERSION + 1)


@pytest.mark.parametrize("stored", ["0", "-1", "1.5", "v2", "", "\xff"])
def test_a_version_that_no_release_writes_is_refused_in_words_and_nothing_is_written(redis, stored):
    redis.set(DATA_VERSION, stored)
    client = create_app(Config.of(redis_url=url_of(redis))).test_client()

    for refused in (client.post("/api/conversations", json={}), client.get("/ready")):
        assert (refused.status_code, "Set REDIS_URL to a Redis" in refused.get_json()["detail"]) == (503, True)
    assert (redis.keys(), redis.get(DATA_VERSION)) == ([b"data_version"], stored.encode())


def test_a_version_of_another_type_is_refused_in_words(redis):
    redis.rpush(DATA_VERSION, "1")

    with pytest.raises(NewerData, match="another program keeps its data there"):
        DataVersion(redis, redis).ensure()


def test_a_version_that_another_program_writes_meanwhile_ends_writes_in_words(redis):
    app = create_app(Config.of(redis_url=url_of(redis)))
    client = app.test_client()
    assert client.post("/api/conversations", json={}).status_code == 201
    redis.set(DATA_VERSION, "v2")
    before = set(redis.keys())

    refused = client.post("/api/conversations", json={})

    assert (refused.status_code, "another program keeps its data" in refused.get_json()["detail"]) == (503, True)
    assert set(redis.keys()) == before


def test_a_store_that_has_lost_its_data_is_of_this_version_again(redis):
    version = DataVersion(redis, redis)
    version.ensure()
    redis.flushall()

    version.ensure()

    assert (version.is_current, int(redis.get(DATA_VERSION))) == (True, VERSION)


@pytest.mark.process("starts a server, which refuses")
def test_a_newer_store_is_refused_with_a_sentence(redis, tmp_path):
    redis.set("data_version", VERSION + 1)
    command = [sys.executable, "-m", "gunicorn", "-c", "gunicorn.conf.py", "app:create_app()"]
    environment = {**os.environ, "REDIS_URL": url_of(redis), "SUPERVISOR": "0", "DATA_DIR": str(tmp_path)}

    ended = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=60)

    assert ended.returncode == 1
    assert f"agent-server: The stored data have version {VERSION + 1}, but this server knows" in ended.stderr


def test_a_newer_store_stays_unchanged(redis):
    redis.set("data_version", VERSION + 1)

    response = create_app(Config.of(redis_url=url_of(redis))).test_client().get("/api/conversations/count")

    assert response.status_code == 503
    assert "run a newer release" in response.get_json()["detail"]
    assert redis.keys() == [b"data_version"]


@pytest.mark.faults("a race of threads")
def test_a_server_that_runs_refuses_writes_once_a_newer_release_has_changed_the_data(redis):
    app = create_app(Config.of(redis_url=url_of(redis)))
    server, stop = app.test_client(), threading.Event()
    made = server.post("/api/conversations", json={}).get_json()["id"]
    polls = threading.Thread(target=app.extensions["server"].expiry.run, args=(stop,))
    polls.start()
    try:
        redis.set("data_version", VERSION + 1)
        wait_until(lambda: not app.extensions["server"].store.data_version.is_current, "the poll that finds it")
        refused = server.post(f"/api/conversations/{made}/events", json={"content": []})
        assert (refused.status_code, "run a newer release" in refused.get_json()["detail"]) == (503, True)
        assert server.get("/ready").status_code == 503

        redis.set("data_version", VERSION)
        assert server.get(f"/api/conversations/{made}").status_code == 200
    finally:
        stop.set()
        polls.join()
