"""Logs of older releases answer the same before, while and after they are packed, and a stopped packing goes on."""

import json
import os
import shutil
import subprocess
import sys
from itertools import islice
from uuid import uuid4

import pytest
from redis import Redis

from app import create_app
from bench.memory import as_version_5
from config import Config
from store.keys import ConversationKeys
from tests.conftest import RECORDED, action, as_events, event, message
from tests.servers import PROJECT, redis_program, running, wait_until

OLD = RECORDED / "version_0"
FACTS = json.loads((OLD / "facts.json").read_text())


@pytest.fixture
def old_log(store, conversation):
    """A log in the layout of version 5, and its events."""
    events = [event(id=f"named {n}") if n % 9 == 0 else message(f"Größe {n} " + "x" * (n % 700)) for n in range(260)]
    events[17] |= {"id": str(uuid4()).upper()}
    store.events.append(conversation, as_events(events))
    as_version_5(store.packing._redis, conversation)
    return events


def responses(store, conversation, events) -> list:
    """What a log answers to every kind of read."""
    ids = [one["id"] for one in events]
    found, cursor = [], None
    while cursor is not None or not found:
        page, cursor = store.events.search(conversation, page_id=cursor, limit=60)
        found.append((page, cursor))
    return [
        *(store.events.count(conversation, **one) for one in ({}, {"kind": "MessageEvent"}, {"body": "größe 1"})),
        found,
        store.events.search(conversation, body="größe 25", descending=True),
        store.events.get_many(conversation, [*ids, "unknown"]),
        store.events.unknown(conversation, [*ids, "unknown"]),
        store.events.final_response(conversation),
        store.followers.read(conversation, 0, wait=0, limit=1000),
    ]


def test_a_log_answers_the_same_before_after_and_at_every_step_of_its_packing(store, conversation, old_log):
    before = responses(store, conversation, old_log)
    assert before[5] == [*(one.raw for one in as_events(old_log)), None]

    for _ in store.packing.pack(conversation):
        assert responses(store, conversation, old_log) == before

    keys, redis = ConversationKeys(conversation), store.packing._redis
    left = {name.decode() for name in redis.hkeys(f"{keys.root}:ids")}
    assert left == {one["id"] for one in old_log if one["id"].startswith("named") or one["id"].isupper()}
    assert sum(kept[:1] == b"\x28" for kept in redis.lrange(keys.log, 0, -1)) > len(old_log) // 2
    assert sum(store.packing.pack(conversation)) == 0


def test_a_packing_that_was_stopped_at_any_step_goes_on(store, conversation, old_log):
    before, steps = responses(store, conversation, old_log), 0
    while sum(islice(store.packing.pack(conversation), steps)) or steps < 3:
        assert responses(store, conversation, old_log) == before
        steps += 1

    assert sum(store.packing.pack(conversation)) == 0


def test_events_that_come_while_a_log_is_packed_are_appended_once(store, conversation, old_log):
    appended = []
    for _ in store.packing.pack(conversation):
        fresh = [event(), action()]
        assert store.events.append(conversation, as_events([*old_log[:50], *fresh, *old_log[200:]]))[0] == 2
        appended += fresh

    assert store.events.count(conversation) == len(old_log) + len(appended)
    assert store.events.unknown(conversation, [one["id"] for one in appended]) == set()
    assert store.events.append(conversation, as_events(old_log + appended))[0] == 0


def test_a_conversation_that_is_deleted_while_it_is_packed_stays_deleted(store, conversation, old_log):
    packing = store.packing.pack(conversation)
    next(packing)
    store.conversations.delete(conversation)

    assert list(packing) == []
    assert not store.packing._redis.exists(ConversationKeys(conversation).log)


def test_the_command_packs_every_log_of_an_older_store_while_a_server_uses_it(tmp_path):
    shutil.copytree(OLD / "appendonlydir", tmp_path / "appendonlydir")
    path = tmp_path / "redis.sock"
    words = ["--port", "0", "--unixsocket", str(path), "--dir", str(tmp_path), "--appendonly", "yes", "--save", ""]
    with running([redis_program(), *words], stdout=subprocess.DEVNULL):
        redis = Redis(unix_socket_path=str(path), retry=None)
        wait_until(redis.ping, "redis-server")
        url = f"unix://{path}"
        client = create_app(Config(redis_url=url, redis_timeout=10, secret_key="a key for tests only")).test_client()
        environment = {**os.environ, "REDIS_URL": url, "SECRET_KEY": "a key for tests only", "DATA_DIR": str(tmp_path)}
        for _ in range(2):
            command = [sys.executable, "-m", "migrate", "--logs"]
            ended = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=120)
            assert ended.returncode == 0, ended.stderr
            assert "All logs are packed" in ended.stderr

            for conversation, items in FACTS["pages"].items():
                url_of = f"/api/conversations/{conversation}/events"
                assert client.get(f"{url_of}/count").get_json() == FACTS["counts"][conversation]
                assert client.get(f"{url_of}/search").get_json()["items"] == items
                for item in items:
                    assert client.get(f"{url_of}/{item['id']}").get_json() == item
        assert "0 events and ids moved" in ended.stderr
