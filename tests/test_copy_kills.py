"""`kill -9` at random moments of imports and forks: a copy is whole or absent, and what is left of one expires."""

import io
import multiprocessing
import os
import random
import time
from uuid import uuid4

import pytest
from redis import Redis

from bench import corpus
from core.wire import ConversationId
from schemas.exports import export, read_export
from tests.chance import often
from tests.cold import ColdFolder, cold_store
from tests.servers import store_server

pytestmark = pytest.mark.faults("kills processes at random moments")

KILLS, EVENTS = int(os.environ.get("KILLS", often(12, 60))), 2_000


def import_it(url: str, folder, raw: bytes, target: ConversationId, _source: ConversationId) -> None:
    cold_store(url, ColdFolder(folder)).conversations.exports.load(target, *read_export(io.BytesIO(raw)))


def fork_it(url: str, folder, _raw: bytes, target: ConversationId, source: ConversationId) -> None:
    cold_store(url, ColdFolder(folder)).conversations.forks.fork(source, id=target)


@pytest.mark.parametrize("copy", [import_it, fork_it], ids=["import", "fork"])
def test_a_copy_that_is_killed_at_any_moment_is_whole_or_absent_and_a_repeat_makes_it(tmp_path, copy):
    chance, process = random.Random(9), multiprocessing.get_context("fork").Process
    with store_server(tmp_path) as (url, _), Redis.from_url(url) as redis:
        store, source = cold_store(url, ColdFolder(tmp_path)), ConversationId(str(uuid4()))
        store.conversations.create(source)
        corpus.fill(url, source, corpus.agent_events(chance, EVENTS))
        state = store.conversations.get(source)
        pages = list(store.conversations.exports.pages(state))
        raw, events = b"".join(export(state, pages)), [one for page in pages for one in page]
        began = time.monotonic()
        copy(url, tmp_path, raw, ConversationId(str(uuid4())), source)
        took, whole = time.monotonic() - began, 0

        for _ in range(KILLS):
            target = ConversationId(str(uuid4()))
            child = process(target=copy, args=(url, tmp_path, raw, target, source))
            child.start()
            time.sleep(1.2 * took * chance.random())
            child.kill()
            child.join()

            [found] = store.conversations.get_many([target])
            whole += found is not None
            assert all(redis.ttl(key) > 0 for key in redis.scan_iter(f"conv:{{{target}}}:fork:*"))
            if found is None:
                copy(url, tmp_path, raw, target, source)
            copied = store.conversations.get(target)
            assert [one for page in store.conversations.exports.pages(copied) for one in page] == events
            assert store.events.count(target, kind="ActionEvent") == store.events.count(source, kind="ActionEvent")
        assert whole < KILLS
