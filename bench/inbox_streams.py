"""The time from an append that makes an action wait to its arrival at a hundred streams of the inbox, on two servers.

One process appends to both servers in turn, another one holds the streams; both read `time.monotonic`, which is one
clock for all processes of a machine. An action bears the time of its sending.
"""

import json
import re
import selectors
import signal
import socket
import time
from contextlib import ExitStack, closing
from multiprocessing.connection import Connection
from random import Random
from typing import Any

from bench import corpus, load, servers
from bench.measure import Effort, Row
from bench.received import TIMEOUT, Received, received
from wire import ConversationId

#: actions of one conversation, and workers of each of the two servers
_ACTIONS, _WORKERS = 10, 2

#: the last event of a snapshot, and an opened action
_READY, _OPENED = b"event: ready\n", re.compile(rb"event: opened\nid: \S+\ndata: (.*)\n\n")


def rows(effort: Effort) -> list[Row]:
    """At a rate that people could still read."""
    with (
        servers.redis_server() as url,
        servers.gunicorn("app:create_app()", url, _WORKERS) as one,
        servers.gunicorn("app:create_app()", url, _WORKERS) as two,
    ):
        found = _measure([one, two], effort)
    return [
        Row(
            f"{effort.inbox_streams} inbox streams on 2 servers of {_WORKERS} workers, {effort.inbox_rate} actions/s: "
            "from append to the client's hand, p99",
            found.percentile(0.99),
            " ms",
            f"p50 {found.percentile(0.5):.1f} ms, largest {found.percentile(1):.1f} ms; "
            f"{len(found.latencies):,} deliveries in {found.seconds:.1f} s, each action once",
            most=250,
            raw={"p50": found.percentile(0.5), "p99": found.percentile(0.99), "unit": "ms"},
        )
    ]


def _measure(ports: list[int], effort: Effort) -> Received:
    random = Random(13)
    conversations = [corpus.conversation(random) for _ in range(-(-effort.inbox_actions // _ACTIONS))]
    for conversation_id in conversations:
        policy = {"conversation_id": conversation_id, "confirmation_policy": {"kind": "AlwaysConfirm"}}
        load.create(ports[0], "/api/conversations", json.dumps(policy).encode())
    return received(
        _listen,
        (ports, effort.inbox_streams, effort.inbox_actions),
        lambda: _append(ports, conversations, effort),
    )


def _append(ports: list[int], conversations: list[ConversationId], effort: Effort) -> None:
    with ExitStack() as stack:
        opened = [stack.enter_context(closing(load.Connection(port))) for port in ports]
        start = time.monotonic()
        for number in range(effort.inbox_actions):
            time.sleep(max(0.0, start + number / effort.inbox_rate - time.monotonic()))
            path = f"/api/v1/webhooks/events/{conversations[number // _ACTIONS]}"
            connection = opened[number % len(opened)]
            connection.send_next(iter([load.post(path, json.dumps([_action(number), _waits(number)]).encode())]))
            while connection.receive() is None:
                pass


def _action(number: int) -> dict[str, Any]:
    return {
        "id": f"action-{number}",
        "kind": "ActionEvent",
        "source": "agent",
        "timestamp": "2026-01-01T00:00:00",
        "tool_name": "terminal",
        "tool_call_id": f"call-{number}",
        "llm_response_id": f"response-{number}",
        "thought": [{"type": "text", "text": "x" * 300}],
        "action": {"kind": "TerminalAction", "command": f"run {number}", "sent": time.monotonic()},
    }


def _waits(number: int) -> dict[str, Any]:
    return {
        "id": f"waits-{number}",
        "kind": "ConversationStateUpdateEvent",
        "source": "environment",
        "timestamp": "2026-01-01T00:00:00",
        "key": "execution_status",
        "value": "waiting_for_confirmation",
    }


def _listen(pipe: Connection, ports: list[int], streams: int, actions: int) -> None:
    """Open the streams, report that, receive every action; send back the latencies in seconds, or the error."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    listeners = [_Listener(ports[at % len(ports)]) for at in range(streams)]
    selector = selectors.DefaultSelector()
    for listener in listeners:
        selector.register(listener.socket, selectors.EVENT_READ, listener)
    pipe.send("open")
    latencies: list[float] = []
    while len(latencies) < streams * actions:
        for key, _ in selector.select(TIMEOUT):
            key.data.receive(latencies)
    expected = {f"run {number}" for number in range(actions)}
    wrong = [one for one in listeners if len(one.received) != actions or set(one.received) != expected]
    pipe.send(f"an action is missing or doubled: {wrong[0].received}" if wrong else latencies)
    time.sleep(TIMEOUT)


class _Listener:
    """One client with the least protocol that a stream needs: without chunks, as HTTP/1.0 has none."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), TIMEOUT)
        self.socket.sendall(b"GET /api/v1/pending-actions/stream HTTP/1.0\r\nHost: localhost\r\n\r\n")
        self.received: list[str] = []
        self._unread = b""
        while _READY not in self._unread:
            self._unread += self.socket.recv(65536)
        self._unread = self._unread.partition(_READY)[2].partition(b"\n\n")[2]

    def receive(self, latencies: list[float]) -> None:
        """Take the bytes that came."""
        self._unread += self.socket.recv(262144)
        at = time.monotonic()
        end = 0
        for match in _OPENED.finditer(self._unread):
            arguments = json.loads(match[1])["arguments"]
            self.received.append(arguments["command"])
            latencies.append(at - arguments["sent"])
            end = match.end()
        self._unread = self._unread[end:]
