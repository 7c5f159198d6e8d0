"""Redis reaches its `maxmemory` again and again under load: what was acknowledged is there, what was refused is not."""

import random
import threading
import time
from uuid import uuid4

import pytest
from redis import Redis

from tests.chance import often
from tests.conftest import action, message
from tests.servers import agent_server, store_server

pytestmark = pytest.mark.faults("lets a store become full at random moments under load")

SECONDS, WRITERS = often(6, 60), 4

ALWAYS = {"kind": "AlwaysConfirm"}


class FullStoreWriter(threading.Thread):
    """Creates conversations, appends actions that wait, and sends messages; notes which were acknowledged."""

    def __init__(self, client, stop: threading.Event) -> None:
        super().__init__()
        self._client, self._stopped = client, stop
        self.created, self.appended, self.refused = set(), {}, set()
        self.words, self.statuses = {}, set()

    def run(self) -> None:
        while not self._stopped.is_set():
            conversation = str(uuid4())
            body = {"conversation_id": conversation, "confirmation_policy": ALWAYS}
            if self._post("/api/conversations", body) != 201:
                self.refused.add(conversation)
                continue
            self.created.add(conversation)
            proposed, word = action("ls"), uuid4().hex
            url = f"/api/v1/webhooks/events/{conversation}"
            self.appended[conversation] = proposed["id"], self._post(url, [proposed]) == 200
            said = message(word, id=str(uuid4()))
            self.words[conversation] = word, self._post(url, [said]) == 200

    def _post(self, path: str, body) -> int:
        status = self._client.post(path, json=body).status_code
        self.statuses.add(status)
        return status


def test_what_is_acknowledged_while_redis_becomes_full_is_there_and_what_is_refused_is_not(tmp_path):
    chance, stop = random.Random(15), threading.Event()
    with (
        store_server(tmp_path) as (url, _),
        Redis.from_url(url) as redis,
        agent_server(tmp_path / "log", REDIS_URL=url, RATE_LIMIT_STARTS="none") as (client, _),
    ):
        writers = [FullStoreWriter(client, stop) for _ in range(WRITERS)]
        for one in writers:
            one.start()
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            redis.config_set("maxmemory", chance.choice((1, 0)))
            time.sleep(chance.random() / 100)
        redis.config_set("maxmemory", 0)
        stop.set()
        for one in writers:
            one.join()

        created, refused = (set().union(*(getattr(one, what) for one in writers)) for what in ("created", "refused"))
        listed, page = set(), None
        while page is not None or not listed:
            query = {"limit": 100} | ({"page_id": page} if page else {})
            found = client.get("/api/conversations/search", params=query).json()
            listed |= {item["id"] for item in found["items"]}
            page = found["next_page_id"]
        assert set().union(*(one.statuses for one in writers)) <= {200, 201, 507}
        assert len(refused) > 10
        assert len(created) > 10
        assert listed == created
        for one in writers:
            for conversation, (word, is_taken) in one.words.items():
                counted = client.get(f"/api/conversations/{conversation}/events/count", params={"body": word})
                assert counted.json() == is_taken
            for conversation, (proposed, is_taken) in one.appended.items():
                waiting = client.get("/api/v1/pending-actions", params={"conversation_id": conversation}).json()
                assert [item["action_id"] for item in waiting["items"]] == [proposed] * is_taken
