"""Twenty sandboxes that post as fast as they can: each bound refuses in words, and nothing acknowledged is lost."""

import io
import json
import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest

from app import create_app
from settings.config import Config
from tests.conftest import SECRET_KEY, event, unchecked
from tests.servers import store_server

SANDBOXES, POSTED, IN_WINDOW, LOG = 20, 24_000, 10_000, 6_000

#: what each status names
NAMES = {
    411: "Content-Length",
    413: "MAX_CONVERSATION_BYTES",
    429: "RATE_LIMIT_HOOK_BYTES",
    507: "MAX_SANDBOX_BYTES",
}


@pytest.fixture
def app(tmp_path):
    """An app with bounds that are smaller than settings may be."""
    with store_server(tmp_path) as (url, _):
        app = create_app(Config.of(redis_url=url, secret_key=SECRET_KEY))
        store = app.extensions["server"].store
        store.data_version.ensure()  # a migration of what an empty store has would close the keys
        rate = f"{IN_WINDOW}/hour"
        bounds = {"max_sandboxes": SANDBOXES, "max_sandbox_bytes": POSTED, "rate_limit_hook_bytes": rate}
        store.sandboxes.limits = unchecked(store.sandboxes.limits, **bounds)
        store.events._bounds = unchecked(store.events._bounds, max_conversation_bytes=LOG)
        store.sandboxes.beat("bounded", "supervisor")
        yield app


class PostingSandbox:
    """A sandbox with two conversations, which posts until it may not post any more."""

    def __init__(self, app, number):
        self.app, self.store, self.random = app, app.extensions["server"].store, random.Random(number)
        self.id = self.store.sandboxes.start("spec", host="bounded").id
        self.key = self.store.sandboxes.begin(self.id, "bounded", "supervisor", "process")
        self.conversations = [str(uuid4()) for _ in range(2)]
        for one in self.conversations:
            self.store.conversations.create(one, sandbox_id=self.id, app={})
        self.acknowledged = {one: [] for one in self.conversations}
        self.statuses = Counter()

    def run(self):
        client = self.app.test_client()
        while self.statuses[507] < 2:
            conversation = self.random.choice(self.conversations)
            sizes = [self.random.randrange(500, 2500) for _ in range(self.random.randrange(1, 4))]
            batch = [event("Kind", "agent", text=self.random.randbytes(size).hex()) for size in sizes]
            self.post(client, conversation, batch, is_chunked=self.random.random() < 0.2)

    def post(self, client, conversation, batch, *, is_chunked):
        body, headers = json.dumps(batch).encode(), {"Authorization": f"Bearer {self.key}"}
        if is_chunked:
            headers["Transfer-Encoding"] = "chunked"
        options = {"headers": headers, "content_type": "application/json"}
        response = client.post(
            f"/api/v1/webhooks/events/{conversation}",
            **options | ({"input_stream": io.BytesIO(body)} if is_chunked else {"data": body}),
        )
        self.statuses[response.status_code] += 1
        if response.status_code == 200:
            self.acknowledged[conversation] += [one["id"] for one in batch]
        else:
            assert NAMES[response.status_code] in response.get_json()["detail"]
        if response.status_code == 429:  # an hour passes
            self.store.sandboxes._redis.hset(f"{{sandboxes}}:box:{self.id}", "window_ends", 1)


@pytest.mark.faults("a race of threads")
def test_sandboxes_that_post_without_end_stay_within_their_bounds_and_lose_nothing_acknowledged(app):
    sandboxes = [PostingSandbox(app, number) for number in range(SANDBOXES)]

    with ThreadPoolExecutor(SANDBOXES) as pool:
        list(pool.map(PostingSandbox.run, sandboxes))

    # Then every bound was met, and each log has what was acknowledged and nothing else
    assert set().union(*(one.statuses for one in sandboxes)) == {200, *NAMES}
    store = app.extensions["server"].store
    for sandbox in sandboxes:
        box = store.sandboxes._redis.hgetall(f"{{sandboxes}}:box:{sandbox.id}")
        assert int(box[b"posted_bytes"]) <= POSTED
        for conversation, known in sandbox.acknowledged.items():
            assert store.events.unknown(conversation, known) == set()
            assert store.events.count(conversation, kind="Kind") == len(known)
            state = store.conversations._redis.hget(f"conv:{{{conversation}}}", "log_bytes")
            assert int(state or 0) <= LOG
