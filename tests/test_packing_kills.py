"""`kill -9` at random moments of a packing: every event is there once, and every answer is as before.

KILLS makes the run longer: `KILLS=200 python -m pytest tests/test_packing_kills.py`.
"""

import multiprocessing
import os
import random
import time
from uuid import uuid4

from redis import Redis

from bench import corpus
from bench.memory import as_version_5
from tests.servers import redis_server
from wire import ConversationId

KILLS = int(os.environ.get("KILLS", 20))

EVENTS = 3_000


def pack(url: str, conversation_id: ConversationId) -> None:
    for _ in corpus.open_store(url).packing.pack(conversation_id):
        pass


def answers(store, conversation_id: ConversationId) -> list:
    """Every event in the order of the log, and counts of three kinds."""
    events, cursor = [], None
    while cursor is not None or not events:
        page, cursor = store.events.search(conversation_id, page_id=cursor, limit=100)
        events += page
    return [events, *(store.events.count(conversation_id, kind=kind) for kind in (None, "MessageEvent", "ActionEvent"))]


def test_a_packing_that_is_killed_at_any_moment_loses_and_doubles_nothing(tmp_path):
    chance = random.Random(7)
    with redis_server(tmp_path) as (url, _), Redis.from_url(url) as redis:
        conversation_id = ConversationId(str(uuid4()))
        store = corpus.open_store(url)
        store.conversations.create(conversation_id)
        corpus.fill(url, conversation_id, corpus.agent_events(chance, EVENTS))
        as_version_5(redis, conversation_id)
        before, killed = answers(store, conversation_id), 0
        assert len(before[0]) == before[1] == EVENTS

        while killed < KILLS:
            child = multiprocessing.get_context("fork").Process(target=pack, args=(url, conversation_id))
            child.start()
            time.sleep(chance.random() / 3)
            child.kill()
            child.join()
            killed += child.exitcode == -9
            assert answers(store, conversation_id) == before
            if not any(store.packing.pack(conversation_id)) and killed < KILLS:
                as_version_5(redis, conversation_id)  # all is packed: once more
        assert answers(store, conversation_id) == before
