"""A connection through the agent server of a sandbox, to a terminal or a port there.

A request with an `Upgrade` opens it; after the 101 the connection is no longer HTTP. The agent server connects inside
the sandbox, so the connection has the sandbox's restrictions. An agent server is not trusted: the head of its response
is limited in bytes and in time, and one chunk at a time is in memory.
"""

import json
import re
import socket
import time
from typing import Any
from urllib.parse import urlsplit

from agents.client import AgentUnreachable, said_by
from agents.inquiries import NO_ROUTE
from core.cuts import beginning
from core.pauses import take_turns
from core.refused import RefusalKind, Refused
from core.wire import one_line
from net.carry import end

#: Size of a chunk, and maximum sizes of a response's head and of a refusal's body, in bytes.
PIECE, _MOST_HEAD, _MOST_REFUSAL = 16 * 1024, 16 * 1024, 4096

#: Timeouts in seconds: of the connection, and of the head or a complete refusal.
_CONNECT, _HEAD = 2.0, 10.0

#: Maximum time without progress of a write, in seconds.
_STALLED = 30.0

_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})[ \r]")


class NoTunnel(Refused):
    """The agent server refuses the connection, or has no route for it."""

    kind = RefusalKind.CONFLICT


class Tunnel:
    """A connection. One thread may call `receive`, another `send`, and any thread `close`."""

    def __init__(self, connection: socket.socket, rest: bytes) -> None:
        """rest: bytes after the head."""
        self.socket = connection
        self._rest = rest

    def receive(self, seconds: float) -> bytes | None:
        """Return the next bytes, at most PIECE; b"" at the end, None on timeout."""
        if self._rest:
            rest, self._rest = self._rest, b""
            return rest
        take_turns()  # with data in the buffer `recv` never waits, and so never yields
        try:
            self.socket.settimeout(seconds)
            return self.socket.recv(PIECE)
        except TimeoutError:
            return None
        except OSError:
            return b""

    def send(self, data: bytes) -> None:
        """Send all bytes. Raises AgentUnreachable if the sandbox reads nothing for too long, or has ended."""
        left, progress = memoryview(data), time.monotonic()
        while left:
            try:
                left = left[self.socket.send(left) :]
                progress = time.monotonic()
            except TimeoutError:
                if time.monotonic() - progress > _STALLED:
                    raise AgentUnreachable("The sandbox does not accept data any more") from None
            except OSError as error:
                raise AgentUnreachable(f"The connection into the sandbox broke: {error.strerror or error}") from error

    def close(self) -> None:
        """End the connection, and a waiting `receive`."""
        end(self.socket)
        self.socket.close()


def open_tunnel(agent_url: str, session_api_key: str, path: str, protocol: str) -> Tunnel:
    """Open a connection through an agent server. path: with its query. protocol: the name of the `Upgrade`.

    Raises NoTunnel, AgentUnreachable.
    """
    place = urlsplit(agent_url)
    if place.scheme != "http" or place.hostname is None:
        raise AgentUnreachable("The agent server has no HTTP address")
    asked = (
        f"GET {place.path.rstrip('/')}{path} HTTP/1.1\r\nHost: {place.netloc}\r\n"
        f"X-Session-API-Key: {session_api_key}\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n\r\n"
    )
    try:
        connection = socket.create_connection((place.hostname, place.port or 80), _CONNECT)
    except OSError as error:
        raise AgentUnreachable(f"The agent server does not accept connections: {error.strerror or error}") from error
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(asked.encode("ascii"))
        deadline = time.monotonic() + _HEAD
        status, head, rest = _head(connection, deadline)
        if status == 101:
            return Tunnel(connection, rest)
        raise _refusal(status, path.partition("?")[0], head, rest, connection, deadline)
    except OSError as error:
        connection.close()
        raise AgentUnreachable(f"The agent server does not answer: {error.strerror or error}") from error
    except BaseException:
        connection.close()
        raise


def _head(connection: socket.socket, deadline: float) -> tuple[int, bytes, bytes]:
    """Return status, head and the bytes after it. Raises AgentUnreachable, OSError."""
    raw = b""
    while b"\r\n\r\n" not in raw:
        left = deadline - time.monotonic()
        if len(raw) > _MOST_HEAD or left <= 0:
            raise AgentUnreachable("The agent server's response has no end of its head")
        connection.settimeout(left)
        piece = connection.recv(PIECE)
        if not piece:
            raise AgentUnreachable("The agent server has ended the connection")
        raw += piece
    head, _, rest = raw.partition(b"\r\n\r\n")
    match = _STATUS.match(head)
    if match is None:
        raise AgentUnreachable("The agent server's response is not HTTP")
    return int(match[1]), head, rest


def _refusal(status: int, path: str, head: bytes, body: bytes, connection: socket.socket, deadline: float) -> Exception:
    """Return the error of a response that is not a 101. Raises OSError if its body is late."""
    length = re.search(rb"(?i)\r\ncontent-length:[ \t]*([0-9]{1,4})[ \t]*(?:\r\n|$)", head)
    while length and len(body) < min(int(length[1]), _MOST_REFUSAL):
        if (left := deadline - time.monotonic()) <= 0:
            raise TimeoutError("its refusal did not end in time")
        connection.settimeout(left)
        piece = connection.recv(_MOST_REFUSAL)
        if not piece:
            break
        body += piece
    try:
        told: Any = json.loads(body[:_MOST_REFUSAL])
    except (ValueError, RecursionError):
        told = None
    words = beginning(one_line(said_by(told.get("detail") if isinstance(told, dict) else None)), 300)
    if status in NO_ROUTE and (not words or words == "Not Found" or " does not serve " in words):
        return NoTunnel(f"The agent server of this sandbox does not serve {path}")
    if 400 <= status < 500 and status != 401 and words:
        return NoTunnel(words)
    return AgentUnreachable(f"The agent server answered {status}: {words or 'no detail'}")
