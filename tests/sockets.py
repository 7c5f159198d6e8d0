"""Clients that follow a conversation on a real server: a WebSocket, a stream of server-sent events."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

import httpx
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from tests.servers import TIMEOUT


class SocketListener:
    """A client at a WebSocket, with timeouts."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    def receive(self) -> dict[str, Any]:
        """The next frame."""
        return json.loads(self.connection.recv(TIMEOUT))

    def receive_until(self, **members: Any) -> list[dict[str, Any]]:
        """All frames up to the first one that has all of these members."""
        received = []
        while not received or any(received[-1].get(name) != value for name, value in members.items()):
            received.append(self.receive())
        return received

    def receives_nothing(self, seconds: float = 0.3) -> bool:
        try:
            self.connection.recv(seconds)
        except TimeoutError:
            return True
        return False

    def send(self, message: Any) -> None:
        self.connection.send(message if isinstance(message, str | bytes) else json.dumps(message))

    def closed_with(self) -> int:
        """The code with which the server closes the socket, after any further frames."""
        try:
            while True:
                self.connection.recv(TIMEOUT)
        except ConnectionClosed as end:
            return end.rcvd.code if end.rcvd else 1006


@contextmanager
def socket(
    client: httpx.Client, conversation: str, *, most: int | None = None, **query: Any
) -> Iterator[SocketListener]:
    """Follow a conversation over a WebSocket; `most` bounds the frames that the client buffers."""
    address = str(client.base_url).replace("http", "ws").rstrip("/")
    url = f"{address}/sockets/events/{conversation}?{urlencode(query)}"
    options = {"max_size": None, "max_queue": most, "open_timeout": TIMEOUT, "close_timeout": 1, "ping_interval": None}
    with connect(url, **options) as connection:
        yield SocketListener(connection)


@contextmanager
def events_of(
    client: httpx.Client, conversation: str, **options: Any
) -> Iterator[Iterator[tuple[int, dict[str, Any]]]]:
    """Follow a conversation as server-sent events: (id, event) in turn."""
    url = f"/api/conversations/{conversation}/events/stream"
    with client.stream("GET", url, timeout=TIMEOUT, **options) as response:
        response.raise_for_status()
        yield _parsed(response.iter_lines())


@contextmanager
def inbox_of(client: httpx.Client, **options: Any) -> Iterator[Iterator[tuple[str, Any, str]]]:
    """Follow all pending actions, as `named_events_of`."""
    with named_events_of(client, "/api/v1/pending-actions/stream", **options) as events:
        yield events


@contextmanager
def named_events_of(client: httpx.Client, path: str, **options: Any) -> Iterator[Iterator[tuple[str, Any, str]]]:
    """Follow server-sent events that have names: (name, data, id) in turn; the id "" of one that has none."""
    with client.stream("GET", path, timeout=TIMEOUT, **options) as response:
        response.raise_for_status()
        yield _named(response.iter_lines())


def _named(lines: Iterator[str]) -> Iterator[tuple[str, Any, str]]:
    fields: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(": ")
        if line:
            fields[name] = value
        elif "event" in fields:
            yield fields["event"], json.loads(fields["data"]), fields.get("id", "")
            fields = {}


def _parsed(lines: Iterator[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    identity, data = 0, []
    for line in lines:
        name, _, value = line.partition(": ")
        if name == "id":
            identity = int(value)
        elif name == "data":
            data.append(value)
        elif not line and data:
            yield identity, json.loads("\n".join(data))
            data = []
