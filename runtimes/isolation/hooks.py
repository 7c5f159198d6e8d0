"""Lets the webhooks of a confined sandbox out, and nothing else of the server's API.

One request per connection: a POST to a path below the webhooks' base, with a Content-Length and a body of that length.
The request is written anew from what was understood, so the server never sees a byte that this file did not.
"""

import contextlib
import errno
import re
import socket
import ssl
from dataclasses import dataclass
from urllib.parse import urlsplit

from runtimes.isolation.relay import CONNECT_TIMEOUT, PIECE

#: webhooks at once, bytes of a head, and bytes of a body: more than the server's own bound
MOST_HOOKS, _MOST_HEAD, _MOST_BODY = 32, 64 * 1024, 1 << 30

#: seconds for which neither side may be silent
_TIMEOUT = 120.0

_REQUEST_LINE = re.compile(rb"POST (/[!-~]*) HTTP/1\.[01]")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*?)[ \t]*")

#: a path with these could mean another one to the server
_AMBIGUOUS = re.compile(rb"//|/\.|%2[ef]|%5c|\\|%00|#|;", re.IGNORECASE)

#: headers that belong to one connection, that this file writes itself, or that a proxy says of its client
_DROPPED = {b"host", b"connection", b"content-length", b"expect", b"keep-alive", b"te", b"trailer", b"upgrade"}
_DROPPED |= {b"proxy-connection", b"proxy-authorization", b"http2-settings", b"forwarded", b"x-real-ip"}


class _Refused(Exception):
    def __init__(self, status: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status


@dataclass(frozen=True)
class Hooks:
    """The way out, to the base URL of the server's webhooks."""

    base_url: str

    def carry(self, client: socket.socket) -> None:
        """Pass one webhook on, with its response; refuse anything else. Raises OSError."""
        client.settimeout(_TIMEOUT)
        try:
            lines, rest, length = _read(client, self._path)
            server = self._connected()
        except _Refused as refusal:
            body = f'{{"detail": "{refusal}"}}'
            head = f"HTTP/1.1 {refusal.status}\r\nContent-Type: application/json\r\nConnection: close\r\n"
            client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
            client.shutdown(socket.SHUT_WR)
            _drain(client)
            return
        with server:
            server.sendall(_written(lines, self._host, length))
            _send_body(client, server, rest, length)
            while piece := server.recv(PIECE):
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
            raise _Refused("503 Service Unavailable", "The server of the webhooks does not answer") from None


def _read(client: socket.socket, base: bytes) -> tuple[list[bytes], bytes, int]:
    """A request's lines, the bytes of its body that came along, and the body's length."""
    text = b""
    while b"\r\n\r\n" not in text[:_MOST_HEAD]:
        piece = client.recv(PIECE)
        if not piece or len(text) >= _MOST_HEAD:
            raise _Refused("400 Bad Request", "The request has no end of its head within 64 KiB")
        text += piece
    head, _, rest = text.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    match = _REQUEST_LINE.fullmatch(lines[0])
    path = match[1].partition(b"?")[0] if match else b""
    if not path.startswith(base) or _AMBIGUOUS.search(path):
        raise _Refused("403 Forbidden", "A sandbox reaches the webhooks of the server and nothing else")
    fields = [_FIELD.fullmatch(line) for line in lines[1:]]
    lengths = [field[2] for field in fields if field and field[1].lower() == b"content-length"]
    if not all(fields) or any(field and field[1].lower() == b"transfer-encoding" for field in fields):
        raise _Refused("411 Length Required", "A webhook has headers as RFC 9112 has them, and a Content-Length")
    if len(lengths) != 1 or not re.fullmatch(rb"[0-9]{1,10}", lengths[0]) or int(lengths[0]) > _MOST_BODY:
        raise _Refused("411 Length Required", "A webhook has one Content-Length of at most 1 GiB")
    return lines, rest[: int(lengths[0])], int(lengths[0])


def _written(lines: list[bytes], host: bytes, length: int) -> bytes:
    request_line = lines[0].rpartition(b" ")[0] + b" HTTP/1.1"
    names = [line.partition(b":")[0].lower() for line in lines[1:]]
    kept = [
        line
        for name, line in zip(names, lines[1:], strict=True)
        if name not in _DROPPED and not name.startswith(b"x-forwarded-")
    ]
    own = [b"Host: " + host, b"Connection: close", b"Content-Length: %d" % length]
    return b"\r\n".join([request_line, *kept, *own]) + b"\r\n\r\n"


def _send_body(client: socket.socket, server: socket.socket, begun: bytes, length: int) -> None:
    """Send a body that has begun. One that breaks off ends the connection; a server may respond before it has all."""
    left = length - len(begun)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        server.sendall(begun)
        while left:
            piece = client.recv(min(PIECE, left))
            if not piece:
                raise OSError(errno.ECONNABORTED, "the body of a webhook is not whole")
            server.sendall(piece)
            left -= len(piece)


def _drain(client: socket.socket) -> None:
    """Read what a refused client still sends, so that it can read the refusal before the connection is reset."""
    client.settimeout(1.0)
    for _ in range(64):
        if not client.recv(PIECE):
            return
