"""`kill -9` at random moments of changes: the list and the inbox have what the conversations have, without a repair."""

import multiprocessing
import os
import random
import time
from uuid import uuid4

import pytest
from redis import Redis

from core.wire import ConversationId
from store.approvals.audit import SERVER
from store.listing import ListingFilter
from tests.chance import often
from tests.conftest import action, as_events, limits_of, store_of
from tests.servers import store_server

pytestmark = pytest.mark.faults("kills processes at random moments")

KILLS = int(os.environ.get("KILLS", often(40, 200)))


def change(url: str, ids: list[ConversationId], seed: int) -> None:
    """Change conversations until the process is killed."""
    store, chance = store_of(url, limits_of(1)), random.Random(seed)
    changes = [
        lambda one: store.conversations.create(one, confirmation_policy={"kind": "AlwaysConfirm"}),
        lambda one: store.conversations.update(one, title=str(chance.random())),
        lambda one: store.events.append(one, as_events([action()])),
        lambda one: store.events.append(one, as_events([action()])),
        lambda one: store.approvals.confirmations.decide(one, accept=False, reason="", actor=SERVER),
    ]
    for one in ids:
        changes[0](one)
    while True:
        chance.choice(changes)(chance.choice(ids))


def test_a_kill_at_any_moment_leaves_nothing_unlisted_and_nothing_unindexed(tmp_path):
    chance, process = random.Random(4), multiprocessing.get_context("fork").Process
    with store_server(tmp_path) as (url, _), Redis.from_url(url) as redis:
        store, ids = store_of(url, limits_of(1)), list[ConversationId]()
        for seed in range(KILLS):
            ids = [*ids[-3:], ConversationId(str(uuid4()))]
            child = process(target=change, args=(url, ids, seed))
            child.start()
            time.sleep(0.05 + 0.1 * chance.random())
            child.kill()
            child.join()

            states = {state["id"]: int(state["revision"]) for state in store.conversations.get_many(ids) if state}
            listed, _ = store.conversations._listing.page(
                ListingFilter(), by="created", descending=True, limit=1000, start=None
            )
            revisions = {one.id: one.revision for one in listed}
            assert {one: revisions.get(one) for one in states} == states
            assert store.approvals.checks._wrong({*states}) == []
        assert redis.zcard("{approvals}:waiting") > 0
        assert len(revisions) >= KILLS / 2
