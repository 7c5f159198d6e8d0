"""Carries a confined sandbox's webhooks out, TCP connections in, and connections to the egress proxy. The rest of the
server's API stays out of reach. In a pod a separate container carries to the proxy:

    python -m runtimes.isolation.hooks PORT HOST:PORT        with the hook key in HOOK_KEY

One request per connection: a POST to a path below the webhooks' base, with a Content-Length and a body of that length.
The request is rebuilt from its parsed parts, so the server never sees an unparsed byte. It has the hook key of its own
sandbox, whatever key the sandbox sent. So a sandbox speaks only for itself, also to a server that needs no key.

Connections between host and sandbox are carried byte for byte. The end of one direction is passed on, and the other
direction continues. Bounds: MOST_CONNECTIONS at once, further ones wait in the kernel's queue; PIECE bytes in memory
per direction; and a `Pace` for connections from a sandbox, whose limits do not bind the launcher that serves it.
"""

import contextlib
import errno
import os
import re
import signal
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from net.carry import PIECE, accept_all, drain, end, join, pieces

#: Maximum number of connections to one listener.
MOST_CONNECTIONS = 256

#: Timeout of connecting, in seconds.
CONNECT_TIMEOUT = 10.0


#: Responses to a sandbox while the proxy is down, and after it ended without a response to a request.
_NO_PROXY = "503 The way out of sandboxes is restarting. Try again"
_PROXY_ENDED = "502 The way out of sandboxes is restarting. The request may have been carried out"

#: Start of a request, and of a request for a tunnel, in which no error text can be sent.
_BEGINS, _TUNNEL = re.compile(rb"[A-Z]{3,16} \S"), b"CONNECT "

#: Maximum number of outgoing connections of a sandbox, rate per second, and burst.
MOST_OUT, _OUT_A_SECOND, _OUT_BURST = 64, 100.0, 200

#: Maximum number of webhooks, bytes of a head, and bytes of a body, above the server's own limit.
MOST_HOOKS, _MOST_HEAD, _MOST_BODY = 32, 64 * 1024, 1 << 30

#: Rate per second and burst of a sandbox's accepted connections: each costs the launcher a thread.
_HOOKS_A_SECOND, _HOOKS_BURST = 100.0, 200

#: Timeout of the whole head, and maximum silence of either side after it, in seconds.
_HEAD_TIMEOUT, _TIMEOUT = 20.0, 120.0

_REQUEST_LINE = re.compile(rb"POST (/[!-~]*) HTTP/1\.[01]")
_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")

#: Parts of a path that the server could interpret as another path.
_AMBIGUOUS = re.compile(rb"//|/\.|%2[ef]|%5c|\\|%00|#|;", re.IGNORECASE)


#: Headers that are dropped: of one connection, written here, keys, or a proxy's statements about a client.
_DROPPED = {b"host", b"connection", b"content-length", b"expect", b"keep-alive", b"te", b"trailer", b"upgrade"}
_DROPPED |= {
    b"authorization",
    b"x-session-api-key",
    b"cookie",
    b"proxy-connection",
    b"proxy-authorization",
    b"http2-settings",
    b"forwarded",
    b"x-real-ip",
}


class Pace:
    """Rate limit of accepted connections: `burst` at once, then `rate` per second. Not thread-safe."""

    def __init__(
        self,
        rate: float,
        burst: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        """clock, wait: seconds."""
        self._interval, self._burst = 1 / rate, burst
        self._clock, self._wait = clock, wait
        self._due = float("-inf")  #: when the whole burst is available again

    def keep(self) -> None:
        """Wait until another connection may be accepted."""
        now = self._clock()
        self._due = max(self._due, now) + self._interval
        if (early := self._due - now - self._burst * self._interval) > 0:
            self._wait(early)


def listening(port: int, address: str) -> socket.socket:
    """Return a listener on a port of the host. Raises OSError."""
    return socket.create_server((address, port), backlog=128)


def serve(
    listener: socket.socket,
    carry: Callable[[socket.socket], None],
    most: int = MOST_CONNECTIONS,
    pace: Pace | None = None,
) -> None:
    """Carry every accepted connection in its own thread, as long as the process lives."""
    arguments = (listener, carry, most, pace.keep if pace else lambda: None)
    threading.Thread(target=accept_all, args=arguments, daemon=True).start()


def into(network: Executor, port: int) -> Callable[[socket.socket], None]:
    """Return a carrier to a port of the sandbox's loopback. network: creates sockets in that network."""

    def carry(client: socket.socket) -> None:
        with network.submit(socket.socket, socket.AF_INET, socket.SOCK_STREAM).result() as agent:
            agent.settimeout(CONNECT_TIMEOUT)
            agent.connect(("127.0.0.1", port))
            agent.settimeout(None)
            prepare(client)
            prepare(agent)
            join(client, agent)

    return carry


@dataclass(frozen=True)
class WayOut:
    """Carrier to the egress proxy, which identifies a sandbox by the key sent before the sandbox's data."""

    path: str  #: of the proxy's Unix socket, or its HOST:PORT in a cluster
    key: str = field(repr=False)

    def serve(self, listener: socket.socket) -> None:
        """Carry every connection to a listener, as `serve` does."""
        serve(listener, self.carry, MOST_OUT, Pace(_OUT_A_SECOND, _OUT_BURST))

    def carry(self, client: socket.socket) -> None:
        """Carry one connection of the sandbox. Raises OSError."""
        try:
            proxy = self._connected()
        except OSError:
            _respond(client, _NO_PROXY)
            return
        with proxy:
            proxy.sendall(f"{self.key}\n".encode())
            _Exchange(client, proxy).carry()

    def _connected(self) -> socket.socket:
        """Connect to the proxy by its open folder, because a Unix socket's address is shorter than a path may be."""
        if not self.path.startswith("/"):
            host, _, port = self.path.rpartition(":")
            proxy = socket.create_connection((host, int(port)), CONNECT_TIMEOUT)
            proxy.settimeout(None)
            return proxy
        folder, name = os.path.split(self.path)
        place = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        proxy = socket.socket(socket.AF_UNIX)
        try:
            proxy.connect(f"/proc/self/fd/{place}/{name}")
        except OSError:
            proxy.close()
            raise
        finally:
            os.close(place)
        return proxy


def _respond(client: socket.socket, status: str, detail: str = "") -> None:
    """Send a status and a sentence, by default the status' own, and close the connection. Raises OSError."""
    body = f'{{"detail": "{detail or status.partition(" ")[2]}"}}'
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nConnection: close\r\n"
    client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
    client.shutdown(socket.SHUT_WR)
    drain(client)


class _Exchange:
    """A sandbox's connection to the proxy, byte for byte both ways.

    If the proxy ends before the first byte of a response, as after a kill, the sandbox gets an error response.
    """

    def __init__(self, client: socket.socket, proxy: socket.socket) -> None:
        self._client, self._proxy = client, proxy
        self._waits = False  #: a request has begun, and has no response yet
        self._is_tunnel = False  #: a tunnel was requested: later data is not a request
        self._is_broken = False  #: the proxy did not end its direction cleanly

    def carry(self) -> None:
        """Carry both ways until both have ended. Raises OSError."""
        prepare(self._client)
        out = threading.Thread(target=self._carry_out, daemon=True)
        out.start()
        try:
            while piece := self._received():
                self._waits = False
                self._client.sendall(piece)
            if self._waits:
                self._is_broken = True
                _respond(self._client, _PROXY_ENDED)
            self._client.shutdown(socket.SHUT_RDWR if self._is_broken else socket.SHUT_WR)
        except OSError:
            end(self._client, self._proxy)
        out.join()

    def _received(self) -> bytes:
        """Return the proxy's data; b"" at any kind of end."""
        try:
            return self._proxy.recv(PIECE)
        except OSError:
            self._is_broken = True
            return b""

    def _carry_out(self) -> None:
        """Carry the sandbox's data. The other direction reports an end of the proxy."""
        has_begun = False
        with contextlib.suppress(OSError):
            for piece in pieces(self._client):
                if not has_begun or _BEGINS.match(piece):
                    self._waits = not self._is_tunnel
                self._is_tunnel = self._is_tunnel or (not has_begun and piece.startswith(_TUNNEL))
                has_begun = True
                self._proxy.sendall(piece)
        with contextlib.suppress(OSError):
            self._proxy.shutdown(socket.SHUT_WR)


def prepare(connection: socket.socket) -> None:
    """Send data without delay, and detect a lost machine."""
    if connection.family != socket.AF_UNIX:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class _Refused(Exception):
    def __init__(self, status: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status


@dataclass(frozen=True)
class WebhooksGate:
    """The way out to the base URL of the server's webhooks."""

    base_url: str
    key: str = field(repr=False)
    head_seconds: float = _HEAD_TIMEOUT

    def serve(self, listener: socket.socket) -> None:
        """Carry every webhook that comes to a listener, as `serve` does."""
        serve(listener, self.carry, MOST_HOOKS, Pace(_HOOKS_A_SECOND, _HOOKS_BURST))

    def carry(self, client: socket.socket) -> None:
        """Forward one webhook and its response; refuse anything else. Raises OSError."""
        try:
            lines, rest, length = _read(client, self._path, time.monotonic() + self.head_seconds)
            client.settimeout(_TIMEOUT)
            server = self._connected()
        except _Refused as refusal:
            _respond(client, refusal.status, str(refusal))
            return
        with server:
            server.sendall(_written(lines, self._host, self.key.encode(), length))
            _send_body(client, server, rest, length)
            for piece in pieces(server):
                client.sendall(piece)
            client.shutdown(socket.SHUT_WR)

    @property
    def _path(self) -> bytes:
        return urlsplit(self.base_url).path.rstrip("/").encode() + b"/"

    @property
    def _host(self) -> bytes:
        return urlsplit(self.base_url).netloc.rpartition("@")[2].encode()

    def _connected(self) -> socket.socket:
        url = urlsplit(self.base_url)
        host, port = url.hostname or "127.0.0.1", url.port or (443 if url.scheme == "https" else 80)
        try:
            server = socket.create_connection((host, port), CONNECT_TIMEOUT)
            server.settimeout(_TIMEOUT)
            return (
                ssl.create_default_context().wrap_socket(server, server_hostname=host)
                if url.scheme == "https"
                else server
            )
        except OSError:
            raise _Refused("503 Service Unavailable", "The webhooks' server does not respond") from None


def _read(client: socket.socket, base: bytes, deadline: float) -> tuple[list[bytes], bytes, int]:
    """Return a request's lines, the body's received bytes, and the body's length."""
    head, rest = _head(client, deadline)
    lines = head.split(b"\r\n")
    match = _REQUEST_LINE.fullmatch(lines[0])
    path = match[1].partition(b"?")[0] if match else b""
    if not path.startswith(base) or _AMBIGUOUS.search(path):
        raise _Refused("403 Forbidden", "A sandbox reaches only the server's webhooks")
    fields = [line.partition(b":") for line in lines[1:]]
    lengths = [value.strip(b" \t") for name, _, value in fields if name.lower() == b"content-length"]
    if not all(map(_is_field, fields)) or any(name.lower() == b"transfer-encoding" for name, *_ in fields):
        raise _Refused("411 Length Required", "A webhook needs headers in the form of RFC 9112, and a Content-Length")
    if len(lengths) != 1 or not re.fullmatch(rb"[0-9]{1,10}", lengths[0]) or int(lengths[0]) > _MOST_BODY:
        raise _Refused("411 Length Required", "A webhook has one Content-Length of at most 1 GiB")
    return lines, rest[: int(lengths[0])], int(lengths[0])


def _head(client: socket.socket, deadline: float) -> tuple[bytes, bytes]:
    """Return the head of a request, and the bytes after it. Cost: linear, for pieces of any size."""
    endless = _Refused("400 Bad Request", "The head of the request is larger than 64 KiB")
    text, searched = bytearray(), 0
    while (end := text.find(b"\r\n\r\n", searched, _MOST_HEAD)) < 0:
        if len(text) >= _MOST_HEAD:
            raise endless
        searched = max(0, len(text) - 3)
        left = deadline - time.monotonic()
        if left <= 0:
            raise _Refused("408 Request Timeout", "The head of the request did not come in time")
        client.settimeout(left)
        try:
            piece = client.recv(PIECE)
        except TimeoutError:
            continue
        if not piece:
            raise endless
        text += piece
    return bytes(text[:end]), bytes(text[end + 4 :])


def _is_field(field: tuple[bytes, bytes, bytes]) -> bool:
    """Return whether name, colon and value of a line are a header."""
    name, colon, value = field
    return bool(colon and _NAME.fullmatch(name)) and not _CONTROL.search(value)


def _written(lines: list[bytes], host: bytes, key: bytes, length: int) -> bytes:
    request_line = lines[0].rpartition(b" ")[0] + b" HTTP/1.1"
    names = [line.partition(b":")[0].lower() for line in lines[1:]]
    kept = [
        line
        for name, line in zip(names, lines[1:], strict=True)
        if name not in _DROPPED and not name.startswith(b"x-forwarded-")
    ]
    own = [b"Host: " + host, b"Authorization: Bearer " + key, b"Connection: close", b"Content-Length: %d" % length]
    return b"\r\n".join([request_line, *kept, *own]) + b"\r\n\r\n"


def _send_body(client: socket.socket, server: socket.socket, begun: bytes, length: int) -> None:
    """Send the rest of a body. A truncated body ends the connection. The server may respond before the end."""
    left = length - len(begun)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        server.sendall(begun)
        while left:
            piece = client.recv(min(PIECE, left))
            if not piece:
                raise OSError(errno.ECONNABORTED, "the body of a webhook is truncated")
            server.sendall(piece)
            left -= len(piece)


def main() -> None:
    """Carry connections from a port of the pod's loopback to the cluster's proxy, until a signal."""
    port, proxy = sys.argv[1:]
    WayOut(proxy, os.environ["HOOK_KEY"]).serve(listening(int(port), "127.0.0.1"))
    signal.pause()


if __name__ == "__main__":
    main()
