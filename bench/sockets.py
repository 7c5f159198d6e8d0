"""Time from an append to its delivery at five hundred sockets: one process appends, another one receives.

Both read `time.monotonic`, which is one clock for all processes of a machine. An event has its sending time.
"""

import base64
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from random import Random
from typing import Any

from bench import corpus, load, servers
from bench.load import TIMEOUT, Received, received
from bench.measure import Effort, FigureRow
from core.wire import ConversationId

_CONVERSATIONS, _WORKERS, _CONNECTIONS = 5, 2, 4

_BATCH = 100


def sockets(effort: Effort) -> list[FigureRow]:
    """Measure at a moderate rate, then as fast as the server accepts."""
    random = Random(6)
    with servers.redis_server() as url, servers.gunicorn("app:create_app()", url, _WORKERS) as port:
        steady = measure(port, random, effort, [[number] for number in range(effort.socket_events)], effort.socket_rate)
        numbers = list(range(effort.socket_events))
        batches = [numbers[start : start + _BATCH] for start in range(0, len(numbers), _BATCH)]
        burst = measure(port, random, effort, batches, None)
    what = f"{effort.sockets} sockets on {_WORKERS} workers, {_CONVERSATIONS} conversations"
    return [
        FigureRow(
            f"{what}, {effort.socket_rate} events/s: from append to the client's hand, p99",
            steady.percentile(0.99),
            " ms",
            f"p50 {steady.percentile(0.5):.1f} ms, largest {steady.percentile(1):.1f} ms; {_summary(steady)}",
            most=25,
            raw={"p50": steady.percentile(0.5), "p99": steady.percentile(0.99), "unit": "ms"},
        ),
        FigureRow(
            f"{what}, in batches of {_BATCH} as fast as they are taken: deliveries",
            len(burst.latencies) / burst.seconds,
            "/s",
            f"p99 {burst.percentile(0.99):.0f} ms; {_summary(burst)}",
            raw={"deliveries": len(burst.latencies), "seconds": burst.seconds, "unit": "s"},
        ),
    ]


def _summary(received: Received) -> str:
    return f"{len(received.latencies):,} deliveries in {received.seconds:.1f} s, each event once and in order"


def measure(port: int, random: Random, effort: Effort, batches: list[list[int]], rate: float | None) -> Received:
    """Send batches of event numbers to the conversations in turn. rate: in batches per second."""
    conversations = [corpus.conversation(random) for _ in range(_CONVERSATIONS)]
    for conversation_id in conversations:
        body = json.dumps({"conversation_id": conversation_id}).encode()
        load.create(port, "/api/conversations", body)
    expected = [
        sorted(number for batch in batches[at::_CONVERSATIONS] for number in batch) for at in range(_CONVERSATIONS)
    ]
    places = [at % _CONVERSATIONS for at in range(effort.sockets)]
    return received(
        lambda: [IdleListener(port, conversations[at], expected[at]) for at in places],
        sum(len(expected[at]) for at in places),
        lambda: _append(port, conversations, batches, rate),
    )


def _append(port: int, conversations: list[ConversationId], batches: list[list[int]], rate: float | None) -> None:
    """Append on several connections in turn, so that both workers append."""
    with ExitStack() as stack:
        opened = [stack.enter_context(closing(load.BenchConnection(port))) for _ in range(_CONNECTIONS)]
        for index, batch in enumerate(load.paced(batches, rate)):
            path = f"/api/v1/webhooks/events/{conversations[index % _CONVERSATIONS]}"
            body = json.dumps([message(number) for number in batch]).encode()
            opened[index % _CONNECTIONS].exchange(load.post(path, body))


def message(number: int) -> dict[str, Any]:
    """Return an event of about 600 bytes that contains its sending time."""
    stamp = f"2026-01-01T00:00:{number % 60:02d}"
    content = [{"type": "text", "text": "x" * 300}]
    return {
        "id": f"event-{number}",
        "kind": "MessageEvent",
        "source": "agent",
        "timestamp": stamp,
        "llm_message": {"role": "assistant", "content": content},
        "number": number,
        "sent": time.monotonic(),
    }


class IdleListener:
    """A client with the minimum protocol of an idle connection."""

    def __init__(self, port: int, conversation_id: ConversationId, expected: list[int]) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), TIMEOUT)
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall(
            f"GET /sockets/events/{conversation_id} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode()
        )
        self.expected = expected
        self.received: list[int] = []
        self._unread = b""
        while b"\r\n\r\n" not in self._unread:
            self._read()
        self._unread = self._unread.partition(b"\r\n\r\n")[2]
        while not next(self._frames(), b""):  # the state; from now on this socket follows
            self._read()

    def _read(self) -> None:
        if not (read := self.socket.recv(65536)):
            raise RuntimeError(f"the server closed a socket: {self._unread[:200]!r}")
        self._unread += read

    @property
    def is_wrong(self) -> bool:
        return self.received != self.expected

    def receive(self, latencies: list[float]) -> None:
        self._unread += self.socket.recv(262144)
        at = time.monotonic()
        for frame in self._frames():
            event = json.loads(frame)
            self.received.append(event["number"])
            latencies.append(at - event["sent"])

    def _frames(self) -> Iterator[bytes]:
        """Yield the payloads of the complete received texts. A server's frames are neither masked nor split."""
        while len(self._unread) >= 2:
            opcode, size, start = self._unread[0] & 0x0F, self._unread[1], 2
            if size >= 126:
                start = 4 if size == 126 else 10
                size = int.from_bytes(self._unread[2:start], "big")
            if len(self._unread) < start + size:
                return
            payload, self._unread = self._unread[start : start + size], self._unread[start + size :]
            if opcode == 1:  # not a ping
                yield payload
