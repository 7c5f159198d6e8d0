"""`kill -9` at random moments of freezings and thaws: every event is there once, and every count is as before.

KILLS makes the run longer: `KILLS=200 python -m pytest tests/test_cold_kills.py`.
"""

import multiprocessing
import os
import random
import time
from collections import Counter
from pathlib import Path
from uuid import uuid4

import pytest

from bench import corpus
from core.wire import ConversationId, read_event
from store.conversations import cold
from tests.chance import often
from tests.cold import ColdFolder, cold_store
from tests.servers import store_server

pytestmark = pytest.mark.faults("kills processes at random moments")

KILLS = int(os.environ.get("KILLS", often(6, 20)))

#: events that are there at the beginning, and events of one append
EVENTS, BATCH = 3_000, 3

SECOND = 1_000_000


def sweep(url: str, folder: Path, conversation_id: ConversationId, frozen) -> None:
    """Freeze without rest, and delete what is unneeded as soon as no freezing that lasts needs it any more."""
    cold._LEFT, cold._FREEZING, cold._LOOK = 2 * SECOND, SECOND, SECOND // 10
    store, objects = cold_store(url, ColdFolder(folder)), ColdFolder(folder)
    while True:
        frozen.value += store.conversations.cold.freeze(conversation_id)
        names = store.conversations.cold.unneeded(100)
        for name in names:
            objects.delete(name)
        store.conversations.cold.forget(names)


def work(url: str, folder: Path, conversation_id: ConversationId, batches, acknowledged, seed: int) -> None:
    """Append and read as a worker, again from the last batch that was acknowledged."""
    cold._LEFT = 2 * SECOND
    store, chance = cold_store(url, ColdFolder(folder)), random.Random(seed)
    while acknowledged.value < len(batches):
        if chance.random() < 0.5:
            store.events.append(conversation_id, batches[acknowledged.value])
            acknowledged.value += 1
        else:
            store.events.search(conversation_id, limit=100)
        time.sleep(chance.random() / 50)


def log(store, conversation_id: ConversationId) -> list[bytes]:
    events, cursor = [], None
    while cursor is not None or not events:
        page, cursor = store.events.search(conversation_id, page_id=cursor, limit=100)
        events += page
    return events


@pytest.mark.parametrize(("events", "words"), [(EVENTS, 1 << 30), (EVENTS // 5, 500)], ids=["whole", "in pieces"])
def test_freezings_and_thaws_that_are_killed_at_any_moment_lose_and_double_nothing(
    tmp_path, monkeypatch, events, words
):
    monkeypatch.setattr("store.log.frames._MOST_WORDS", words)  # of the children too
    chance, fork = random.Random(8), multiprocessing.get_context("fork")
    folder = tmp_path / "objects"
    folder.mkdir()
    with store_server(tmp_path) as (url, _):
        conversation_id = ConversationId(str(uuid4()))
        store = cold_store(url, ColdFolder(folder))
        store.conversations.create(conversation_id)
        every = list(corpus.agent_events(chance, events + 100 * KILLS * BATCH))
        corpus.fill(url, conversation_id, every[:events])
        batches = [every[at : at + BATCH] for at in range(events, len(every), BATCH)]
        killed = 0
        # without locks, which a killed child would keep: each has one writer
        frozen, acknowledged = fork.Value("i", 0, lock=False), fork.Value("i", 0, lock=False)

        while killed < KILLS or frozen.value < KILLS:
            told = (url, folder, conversation_id)
            children = [
                fork.Process(target=sweep, args=(*told, frozen)),
                fork.Process(target=work, args=(*told, batches, acknowledged, killed)),
            ]
            for child in children:
                child.start()
            time.sleep(chance.random() / 2)
            for child in children:
                child.kill()
            for child in children:
                child.join()
                assert child.exitcode == -9  # none ended by an error of its own
                killed += 1

            found = log(store, conversation_id)
            at_least = events + BATCH * acknowledged.value
            assert len(found) in (at_least, at_least + BATCH)  # the kill may have come between a write and its note
            assert found == [event.raw for event in every[: len(found)]]
            kinds = Counter(event.kind for event in map(read_event, found))
            assert store.events.count(conversation_id) == len(found)
            assert {kind: store.events.count(conversation_id, kind=kind) for kind in kinds} == kinds
            ids = [event.id for event in every[: len(found) : 100]]
            assert store.events.get_many(conversation_id, ids) == found[::100]
