"""The cost of every operation: its round trips to Redis, and the quantity that its work in Redis grows with.

docs/performance.md has the table. Each operation runs on a small store and on one ten times as large. The client sends
the round trips; a real server counts the commands, those inside scripts included. A flat operation costs both stores
the same.
"""

import contextlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from flask.testing import FlaskClient
from redis import Redis
from redis.connection import AbstractConnection

from app import create_app
from settings.config import Config
from store import listing
from store.keys import SandboxKeys
from store.sandboxes.sandboxes import SandboxId
from tests.conftest import action, event, message
from tests.exports import sealed
from tests.round_trips import asks_by_request_alone
from tests.servers import PROJECT, store_server

TABLE = PROJECT / "docs" / "performance.md"
ROW = re.compile(r"^\| (`.+`) \| (\S+) \| (.+?) \|$", re.MULTILINE)
FLAT = "flat"

#: conversations, sandboxes and start tasks of a store, and a twentieth of the events of its main conversation
SMALL, LARGE = 12, 120

#: µs for which the host of each store has been silent: a reader asks for more two seconds after a heartbeat, and of two
#: stores one would be past them
_SILENT = 10_000_000

#: a rule that is tried
DRAFT = {"decision": "approve", "tool_name": "terminal", "arguments": {"command": {"command": "git status *"}}}

MAIN = "00000000-0000-4000-8000-000000000000"


@dataclass
class CostsWorld:
    """A store with a given number of conversations, sandboxes and start tasks, and a client for it."""

    client: FlaskClient
    redis: Redis
    sandboxes: list[str] = field(default_factory=list)
    tasks: list[str] = field(default_factory=list)

    def call(self, method: str, path: str, body: object = None, **query: object) -> object:
        data = None if body is None else json.dumps(body)
        response = self.client.open(
            f"/api{path}", method=method, data=data, query_string=query, content_type="application/json"
        )
        assert response.status_code < 300, f"{method} {path}: {response.status_code} {response.get_data(as_text=True)}"
        return response.get_json()


def number(index: int) -> str:
    return str(UUID(int=UUID(MAIN).int + index))


def filled(world: CostsWorld, size: int) -> None:
    store = world.client.application.extensions["server"].store
    assert store.sandboxes.beat("h", "supervisor")
    world.redis.zincrby(SandboxKeys.hosts, -_SILENT, "h")
    for _ in range(20):
        batch = [message(f"word {i}") for i in range(size // 3)] + [event() for _ in range(size - size // 3)]
        world.call("POST", f"/v1/webhooks/events/{MAIN}", batch)
    for index in range(1, size):
        world.call("POST", "/conversations", {"conversation_id": number(index), "title": f"No. {index}"})
    for index in range(2, size):  # they wait for a decision
        policy = {"policy": {"kind": "AlwaysConfirm"}}
        world.call("POST", f"/conversations/{number(index)}/confirmation_policy", policy)
        world.call("POST", f"/v1/webhooks/events/{number(index)}", [action()])
    for index in range(size):
        sandbox = store.sandboxes.start("reference-agent")
        assert store.sandboxes.claim("h") == sandbox.id
        details = {"handle": {"pid": 1}, "urls": [], "agent_url": "http://127.0.0.1:9"}
        assert store.sandboxes.report(SandboxId(sandbox.id), "h", "supervisor", "RUNNING", **details)
        world.sandboxes.append(sandbox.id)
        store.conversations.create(number(1000 + index), title=f"App {index}", sandbox_id=sandbox.id, app={})
        world.tasks.append(world.call("POST", "/v1/app-conversations", {"conversation_id": number(2000 + index)})["id"])


@contextlib.contextmanager
def world_of(folder: Path, size: int) -> Iterator[CostsWorld]:
    with store_server(folder) as (url, _):
        config = Config.of(
            redis_url=url,
            redis_timeout=10,
            max_sandboxes=1000,
            host_seconds=3600,  # a silent host is none that is lost, however slowly the stores are filled
            secret_key="a key for tests only",
            rate_limit_starts="1000000/minute",
        )
        world = CostsWorld(create_app(config).test_client(), Redis.from_url(url))
        filled(world, size)
        asks_by_request_alone(world.client.application.extensions["server"].store)
        yield world


@pytest.fixture(scope="module")
def worlds(tmp_path_factory):
    """The small store and the large one."""
    with (
        world_of(tmp_path_factory.mktemp("small"), SMALL) as small,
        world_of(tmp_path_factory.mktemp("large"), LARGE) as large,
    ):
        for world in (small, large):
            wait_and_decide(world)  # so that the audit and the list of decided actions have an entry
        yield small, large


Act = Callable[[CostsWorld], object]
EVENTS, CONVERSATION = f"/conversations/{MAIN}/events", f"/conversations/{MAIN}"
TEXT = [{"type": "text", "text": "hello"}]


LIST = "/v1/conversations/search"
INBOX, DECIDED = "/v1/pending-actions", f"/v1/conversation/{number(2)}"


def wait_and_decide(world: CostsWorld) -> None:
    one = action()
    world.call("POST", f"/v1/webhooks/events/{number(2)}", [one])
    decision = {"action_id": one["id"], "decision": "reject"}
    world.call("POST", f"{DECIDED}/pending-actions/decisions", {"decisions": [decision]})


def in_short_chunks(act: Act) -> Act:
    """With chunks of the listing so short that the large store has several of them."""

    def chunked(world: CostsWorld) -> object:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(listing, "SCAN_CHUNK", 50)
            return act(world)

    return chunked


def app_ids(world: CostsWorld) -> list[str]:
    return [number(1000 + index) for index in range(SMALL)]


def of_another(export: bytes) -> bytes:
    """An export as another conversation's."""
    head, *events, _ = export.splitlines()
    return b"\n".join(sealed([json.dumps({**json.loads(head), "id": str(uuid4())}).encode(), *events]))


OPERATIONS: dict[str, Act] = {
    "count events": lambda w: w.call("GET", f"{EVENTS}/count"),
    "count events by kind, source and time": lambda w: w.call(
        "GET", f"{EVENTS}/count", kind="PauseEvent", source="user", timestamp__gte="2026-01-01"
    ),
    "count events by body": lambda w: w.call("GET", f"{EVENTS}/count", body="word 1"),
    "count events over time": lambda w: w.call("GET", f"{EVENTS}/histogram", timestamp__lt="2026-11-21"),
    "search events": lambda w: w.call("GET", f"{EVENTS}/search", limit=10),
    "search events by kind": lambda w: w.call("GET", f"{EVENTS}/search", limit=10, kind="PauseEvent"),
    "search events after a seq": lambda w: w.call("GET", f"{EVENTS}/search", limit=10, after_seq=5),
    "search the messages of all conversations": lambda w: w.call("GET", "/v1/messages/search", text="nowhere", limit=2),
    "get the final response": lambda w: w.call("GET", f"{CONVERSATION}/agent_final_response"),
    "append a batch": lambda w: w.call("POST", f"/v1/webhooks/events/{MAIN}", [event(), message("new")]),
    "send a message": lambda w: w.call("POST", EVENTS, {"content": TEXT}),
    "list pending actions": lambda w: w.call("GET", f"{CONVERSATION}/pending_actions"),
    "decide where nothing waits": lambda w: w.call("POST", f"{EVENTS}/respond_to_confirmation", {"accept": True}),
    "append an action that waits": lambda w: w.call("POST", f"/v1/webhooks/events/{number(3)}", [action()]),
    "create a conversation": lambda w: w.call("POST", "/conversations", {"title": "new"}),
    "create a conversation, then delete it": lambda w: w.call(
        "DELETE", f"/conversations/{w.call('POST', '/conversations', {})['id']}"
    ),
    "get a conversation": lambda w: w.call("GET", CONVERSATION),
    "get conversations": lambda w: w.call("GET", "/conversations", ids=[number(i) for i in range(SMALL)]),
    "search conversations": lambda w: w.call("GET", "/conversations/search", limit=2),
    "count conversations": lambda w: w.call("GET", "/conversations/count"),
    "change a conversation": lambda w: w.call("PATCH", CONVERSATION, {"title": "other"}),
    "pause a conversation, then run it": lambda w: (
        w.call("POST", f"{CONVERSATION}/pause"),
        w.call("POST", f"{CONVERSATION}/run"),
    ),
    "set a confirmation policy": lambda w: w.call(
        "POST", f"/conversations/{number(1)}/confirmation_policy", {"policy": {"kind": "AlwaysConfirm"}}
    ),
    "keep secrets": lambda w: w.call("POST", f"{CONVERSATION}/secrets", {"secrets": {"A": "b"}}),
    "fork a conversation": lambda w: w.call("POST", f"{CONVERSATION}/fork"),
    "export a conversation": lambda w: w.client.get(f"/api{CONVERSATION}/export").get_data(),
    "import a conversation": lambda w: w.client.post(
        "/api/conversations/import",
        data=of_another(w.client.get(f"/api{CONVERSATION}/export").get_data()),
        content_type="application/x-ndjson",
    ),
    "search app conversations": lambda w: w.call("GET", "/v1/app-conversations/search", limit=2),
    "search app conversations by title": lambda w: w.call(
        "GET", "/v1/app-conversations/search", limit=2, sort_order="TITLE"
    ),
    "search app conversations whose title contains": lambda w: w.call(
        "GET", "/v1/app-conversations/search", limit=2, title__contains="App"
    ),
    "search app conversations for a title that none has": lambda w: w.call(
        "GET", "/v1/app-conversations/search", limit=2, title__contains="nobody"
    ),
    "count app conversations whose title contains": in_short_chunks(
        lambda w: w.call("GET", "/v1/app-conversations/count", title__contains="App")
    ),
    "search the list of all conversations": lambda w: w.call("GET", LIST, limit=2),
    "search the list of all conversations by text and status": lambda w: w.call(
        "GET", LIST, limit=2, text="App", status=["idle", "running"]
    ),
    "search the list of all conversations for a tag that none has": lambda w: w.call("GET", LIST, limit=2, tag="none"),
    "get app conversations": lambda w: w.call("GET", "/v1/app-conversations", ids=app_ids(w)),
    "count app conversations": lambda w: w.call("GET", "/v1/app-conversations/count"),
    "start an app conversation": lambda w: w.call("POST", "/v1/app-conversations", {}),
    "get start tasks": lambda w: w.call("GET", "/v1/app-conversations/start-tasks", ids=w.tasks[:SMALL]),
    "search start tasks": lambda w: w.call("GET", "/v1/app-conversations/start-tasks/search", limit=2),
    "search start tasks of a conversation": lambda w: w.call(
        "GET", "/v1/app-conversations/start-tasks/search", limit=2, conversation_id__eq=number(2000)
    ),
    "start a sandbox": lambda w: w.call("POST", "/v1/sandboxes"),
    "get sandboxes": lambda w: w.call("GET", "/v1/sandboxes", id=w.sandboxes[:SMALL]),
    "search sandboxes": lambda w: w.call("GET", "/v1/sandboxes/search", limit=2),
    "resume a running sandbox": lambda w: w.call("POST", f"/v1/sandboxes/{w.sandboxes[0]}/resume"),
    "search the inbox": lambda w: w.call("GET", INBOX, limit=2),
    "search the inbox by tool": lambda w: w.call("GET", INBOX, limit=2, tool_name="terminal"),
    "search the inbox for a text that no action has": lambda w: w.call("GET", INBOX, limit=2, text="nowhere"),
    "count the inbox": lambda w: w.call("GET", f"{INBOX}/count"),
    "append an action that waits, then decide it by its id": wait_and_decide,
    "list the decided actions of a conversation": lambda w: w.call("GET", f"{DECIDED}/pending-actions/decisions"),
    "read the audit of a conversation": lambda w: w.call("GET", f"{DECIDED}/audit", limit=2),
    "search the audit": lambda w: w.call("GET", "/v1/audit", limit=2),
    "list approval rules": lambda w: w.call("GET", "/v1/approval-rules"),
    "rehearse an approval rule": lambda w: w.call("POST", "/v1/approval-rules/rehearse", DRAFT, limit=2),
    "read the metrics": lambda w: w.client.get("/metrics"),
}


def cost(world: CostsWorld, act: Act, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """Round trips of one call, and the commands that the server ran for it."""
    sent: list[object] = []
    send = AbstractConnection.send_packed_command

    def counted(connection, command, *args, **options):
        if threading.current_thread() is threading.main_thread():  # other tests' stores poll in theirs
            sent.append(command)
        return send(connection, command, *args, **options)

    act(world)  # loads scripts and fills caches
    act(world)  # loads the scripts that are asked about what is cached
    before = commands(world.redis)
    with monkeypatch.context() as patched:
        patched.setattr(AbstractConnection, "send_packed_command", counted)
        act(world)
    return len(sent), commands(world.redis) - before


def commands(redis: Redis) -> int:
    stats = redis.info("commandstats")
    return sum(one["calls"] for name, one in stats.items() if name not in ("cmdstat_info", "cmdstat_ping"))


def table() -> dict[str, tuple[str, str]]:
    costs = TABLE.read_text().partition("<!-- costs -->")[2].partition("<!-- /costs -->")[0]
    rows = [
        (name, (trips, growth)) for names, trips, growth in ROW.findall(costs) for name in names[1:-1].split("`, `")
    ]
    assert len(rows) == len(dict(rows)), "an operation stands twice"
    return dict(rows)


def test_the_table_names_every_operation_that_is_measured():
    assert sorted(table()) == sorted(OPERATIONS)


@pytest.mark.parametrize("name", OPERATIONS)
def test_the_cost_of_an_operation_is_that_of_the_table(worlds, name, monkeypatch):
    trips, growth = table()[name]
    small, large = (cost(world, OPERATIONS[name], monkeypatch) for world in worlds)

    if growth == FLAT:
        assert small == large, "(round trips, commands) on the small and on the large store"
        assert small[0] == int(trips)
    else:
        assert small[1] < large[1] or small[0] < large[0], "it grows no longer: say so in the table"
