"""The inbox: pages and decisions in a large inbox; from an append to streams on two servers, and to a webhook.

Both processes of the streams read `time.monotonic`, which is one clock for all processes of a machine. An action
contains its sending time.
"""

import json
import re
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import cycle
from random import Random
from statistics import median, quantiles
from typing import Any

import httpx

from bench import corpus, load, servers
from bench.load import TIMEOUT, Received, received
from bench.measure import Effort, FigureRow, interleaved, timed
from core.wire import ConversationId, Micros, ReceivedEvent, event_time, micros, now
from store.approvals.audit import DecisionActor
from store.approvals.inbox import Cursor, InboxAction, InboxFilter

#: Number of waiting actions per conversation, and of actions per page.
_WAITING, _PAGE = 10, 5

_CALLS = 50

_ALICE = DecisionActor("key", "alice")
_ALL = InboxFilter()

_FIRST = Micros(corpus.FIRST)

#: Number of workers of each of the two servers with streams.
_WORKERS = 2

#: The last event of a snapshot, and an opened action.
_READY, _OPENED = b"event: ready\n", re.compile(rb"event: opened\nid: \S+\ndata: (.*)\n\n")

#: Timeout of a notification, and interval between two actions, so that polls are met at any phase, in seconds.
_LOST, _BETWEEN = 30.0, 0.13


def pages(effort: Effort) -> list[FigureRow]:
    """Measure a page at either end and in the middle, a page of one conversation, and a decision, in two stores."""
    conversations = effort.inbox_conversations
    with ExitStack() as stack:
        large, small = (_Inbox(stack.enter_context(servers.redis_server()), size) for size in (conversations, 1))
        rounds = {
            name: interleaved(effort.rounds, timed(call, _CALLS), timed(small.calls[name], _CALLS))
            for name, call in large.calls.items()
        }
    what = f"inbox of {conversations * _WAITING:,} actions in {conversations:,} conversations against one of {_WAITING}"
    return [measured.row(f"{what}: time of {name}", "s", most=1.5) for name, measured in rounds.items()]


class _Inbox:
    """A store with conversations that have ten waiting actions each."""

    def __init__(self, url: str, conversations: int) -> None:
        self._random = Random(1)
        self._store = corpus.open_store(url)
        ids = [self._begin() for _ in range(conversations)]
        self._deciding = cycle(ids)
        middle = ids[conversations // 2]
        [first, *_], _ = self._page(filters=InboxFilter(conversation_id=middle))
        _, cursor = self._page(filters=InboxFilter(since=micros(first.since)), limit=_WAITING - _PAGE)
        self.calls: dict[str, Callable[[], object]] = {
            "a page, the oldest": self._page,
            "a page, the newest": partial(self._page, descending=True),
            "a page from the middle on": partial(self._page, start=cursor),
            "a page of one conversation": partial(self._page, filters=InboxFilter(conversation_id=middle)),
            "a decision, and ten actions that wait after it": self._decide,
        }

    def _begin(self) -> ConversationId:
        conversation_id = corpus.conversation(self._random)
        self._store.conversations.create(conversation_id, confirmation_policy={"kind": "AlwaysConfirm"})
        self._append(conversation_id)
        return conversation_id

    def _append(self, conversation_id: ConversationId) -> None:
        at, events = now(), []
        for _ in range(_WAITING):
            fields = _action(self._random, "git status", at)
            events.append(ReceivedEvent(fields["id"], "ActionEvent", "agent", at, fields, json.dumps(fields).encode()))
        self._store.events.append(conversation_id, events)

    def _decide(self) -> None:
        conversation_id = next(self._deciding)
        self._store.approvals.confirmations.decide(conversation_id, accept=False, reason="no", actor=_ALICE)
        self._append(conversation_id)

    def _page(
        self, *, filters: InboxFilter = _ALL, descending: bool = False, limit: int = _PAGE, start: Cursor | None = None
    ) -> tuple[list[InboxAction], Cursor | None]:
        return self._store.approvals.inbox.page(filters, descending=descending, limit=limit, start=start)


def streams(effort: Effort) -> list[FigureRow]:
    """Measure at a rate that people could still read."""
    with (
        servers.redis_server() as url,
        servers.gunicorn("app:create_app()", url, _WORKERS) as one,
        servers.gunicorn("app:create_app()", url, _WORKERS) as two,
    ):
        received = _streamed([one, two], effort)
    return [
        FigureRow(
            f"{effort.inbox_streams} inbox streams on 2 servers of {_WORKERS} workers, {effort.inbox_rate} actions/s: "
            "from append to the client's hand, p99",
            received.percentile(0.99),
            " ms",
            f"p50 {received.percentile(0.5):.1f} ms, largest {received.percentile(1):.1f} ms; "
            f"{len(received.latencies):,} deliveries in {received.seconds:.1f} s, each action once",
            most=250,
            raw={"p50": received.percentile(0.5), "p99": received.percentile(0.99), "unit": "ms"},
        )
    ]


def _streamed(ports: list[int], effort: Effort) -> Received:
    random = Random(13)
    conversations = [corpus.conversation(random) for _ in range(-(-effort.inbox_actions // _WAITING))]
    for conversation_id in conversations:
        policy = {"conversation_id": conversation_id, "confirmation_policy": {"kind": "AlwaysConfirm"}}
        load.create(ports[0], "/api/conversations", json.dumps(policy).encode())
    commands = [f"run {number}" for number in range(effort.inbox_actions)]
    return received(
        lambda: [_Listener(ports[at % len(ports)], commands) for at in range(effort.inbox_streams)],
        effort.inbox_streams * effort.inbox_actions,
        lambda: _append(ports, conversations, commands, effort.inbox_rate),
    )


def _append(ports: list[int], conversations: list[ConversationId], commands: list[str], rate: float) -> None:
    random = Random(14)
    with ExitStack() as stack:
        opened = [stack.enter_context(closing(load.BenchConnection(port))) for port in ports]
        for number, command in enumerate(load.paced(commands, rate)):
            path = f"/api/v1/webhooks/events/{conversations[number // _WAITING]}"
            thought = {"thought": [{"type": "text", "text": "x" * 300}]}
            action = _action(random, command, sent=time.monotonic()) | thought
            opened[number % len(opened)].exchange(load.post(path, json.dumps([action, _waits(number)]).encode()))


def _action(random: Random, command: str, at: Micros = _FIRST, **arguments: Any) -> dict[str, Any]:
    """Return the event of an action as a sandbox posts it. arguments: of the action, besides its command."""
    event = {
        "id": corpus.conversation(random),
        "timestamp": event_time(at),
        "source": "agent",
        "kind": "ActionEvent",
        **corpus.action_fields(random, command),
    }
    event["action"] |= arguments
    return event


def _waits(number: int) -> dict[str, Any]:
    return {
        "id": f"waits-{number}",
        "kind": "ConversationStateUpdateEvent",
        "source": "environment",
        "timestamp": "2026-01-01T00:00:00",
        "key": "execution_status",
        "value": "waiting_for_confirmation",
    }


class _Listener:
    """A client with the minimum protocol of a stream: HTTP/1.0, which has no chunks."""

    def __init__(self, port: int, expected: list[str]) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), TIMEOUT)
        self.socket.sendall(b"GET /api/v1/pending-actions/stream HTTP/1.0\r\nHost: localhost\r\n\r\n")
        self.expected = expected
        self.received: list[str] = []
        self._unread = b""
        while _READY not in self._unread:
            self._unread += self.socket.recv(65536)
        self._unread = self._unread.partition(_READY)[2].partition(b"\n\n")[2]

    @property
    def is_wrong(self) -> bool:
        return sorted(self.received) != sorted(self.expected)

    def receive(self, latencies: list[float]) -> None:
        self._unread += self.socket.recv(262144)
        at = time.monotonic()
        end = 0
        for match in _OPENED.finditer(self._unread):
            arguments = json.loads(match[1])["arguments"]
            self.received.append(arguments["command"])
            latencies.append(at - arguments["sent"])
            end = match.end()
        self._unread = self._unread[end:]


class _Webhook(BaseHTTPRequestHandler):
    arrived: dict[str, float]  #: action id → arrival of its notification

    def do_POST(self) -> None:
        at = time.perf_counter()
        payload = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.arrived.setdefault(payload["data"]["action_id"], at)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


def notifications(effort: Effort) -> list[FigureRow]:
    """Open actions one after the other, on a server with one worker, a supervisor and one webhook."""
    arrived: dict[str, float] = {}
    webhook = ThreadingHTTPServer(("127.0.0.1", 0), type("Webhook", (_Webhook,), {"arrived": arrived}))
    threading.Thread(target=webhook.serve_forever, daemon=True).start()
    settings = {
        "SUPERVISOR": "1",
        "NOTIFY_WEBHOOKS": f"http://127.0.0.1:{webhook.server_address[1]}/|whsec_{'A' * 32}",
        "NOTIFY_EVENTS": "action.pending",
        "NOTIFY_PRIVATE": "1",
    }
    try:
        with (
            tempfile.TemporaryDirectory(prefix="bench-notifications-") as folder,
            servers.redis_server() as url,
            servers.gunicorn("app:create_app()", url, 1, DATA_DIR=folder, **settings) as port,
            httpx.Client(base_url=f"http://127.0.0.1:{port}/api", timeout=30) as client,
        ):
            random = Random(15)
            _first_try(client, random, arrived)  # warm-up: the supervisor is there, everything is loaded
            seconds = [_first_try(client, random, arrived) for _ in range(effort.notifications)]
    finally:
        webhook.shutdown()
        webhook.server_close()
    p99 = quantiles(seconds, n=100)[98] if len(seconds) > 1 else seconds[0]
    return [
        FigureRow(
            "a notification: request that makes an action wait to its first try at a webhook, p99",
            1000 * p99,
            " ms",
            f"median {1000 * median(seconds):.0f} ms, largest {1000 * max(seconds):.0f} ms of {len(seconds)}",
            most=1000,
            raw={"ours": seconds, "unit": "s"},
        )
    ]


def _first_try(client: httpx.Client, random: Random, arrived: dict[str, float]) -> float:
    """Return the seconds from a request to the notification of its action. Raises RuntimeError on timeout."""
    identity = client.post("/conversations", json={}).raise_for_status().json()["id"]
    policy = {"policy": {"kind": "AlwaysConfirm"}}
    client.post(f"/conversations/{identity}/confirmation_policy", json=policy).raise_for_status()
    action = _action(random, "ls")
    time.sleep(_BETWEEN)
    start = time.perf_counter()
    client.post(f"/v1/webhooks/events/{identity}", json=[action]).raise_for_status()
    while action["id"] not in arrived:
        if time.perf_counter() - start > _LOST:
            raise RuntimeError("notifications: a notification did not arrive before the timeout")
        time.sleep(0.001)
    return arrived[action["id"]] - start
