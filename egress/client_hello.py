"""Parser for the server name in a TLS ClientHello, which may arrive in several records and chunks.

Source: RFC 8446, 4.1.2 and 5.1; RFC 6066, 3.
"""

import socket
import time
from collections.abc import Iterator

from core.cuts import beginning

#: Maximum size of a ClientHello with its records, in bytes, and number of chunks.
MOST_BYTES, _MOST_PIECES = 32 * 1024, 256

_HANDSHAKE, _CLIENT_HELLO = 22, 1
_SERVER_NAME, _ENCRYPTED_HELLO, _HOST_NAME = 0, 0xFE0D, 0


class NotTls(ValueError):
    """The bytes do not begin a TLS connection with a server name. The message is a sentence."""


def received(client: socket.socket, begun: bytes, name: str, seconds: float) -> bytes:
    """Read a ClientHello with this server name to its end. Raises NotTls and OSError.

    begun: the bytes received so far. seconds: timeout for the rest.
    """
    data, deadline = begun, time.monotonic() + seconds
    for _ in range(_MOST_PIECES):
        found = server_name(data)
        if found is not None:
            if found.removesuffix(".") != name:
                raise NotTls(f"the ClientHello names {beginning(found, 100)!a}, and the tunnel {name}")
            return data
        left = deadline - time.monotonic()
        if left <= 0:
            raise NotTls("no ClientHello came in time")
        client.settimeout(left)
        try:
            piece = client.recv(MOST_BYTES)
        except TimeoutError:
            continue
        if not piece:
            raise NotTls("the connection ended before its ClientHello")
        data += piece
    raise NotTls(f"the ClientHello comes in more than {_MOST_PIECES} pieces")


def server_name(data: bytes) -> str | None:
    """Return the server name of a ClientHello in lower case; None if it is incomplete. Raises NotTls.

    A ClientHello without a name, with two, or with an encrypted one (ECH) is refused.
    """
    message = _message(data)
    if message is None:
        if len(data) > MOST_BYTES:
            raise NotTls(f"the ClientHello has more than {MOST_BYTES} bytes")
        return None
    try:
        extensions = dict[int, bytes]()
        for kind, content in _extensions(_Reader(message)):
            if kind in extensions:
                raise NotTls("the ClientHello has an extension twice")
            extensions[kind] = content
        if _ENCRYPTED_HELLO in extensions:
            raise NotTls("the ClientHello has an encrypted part (ECH), whose name cannot be checked")
        if _SERVER_NAME not in extensions:
            raise NotTls("the ClientHello names no server (SNI)")
        names = _Reader(extensions[_SERVER_NAME]).block(2)
        kind, name = names.number(1), names.bytes(2)
        if kind != _HOST_NAME or names.left:
            raise NotTls("the ClientHello names more than one server")
        return name.decode("ascii").lower()
    except (IndexError, UnicodeDecodeError):
        raise NotTls("the ClientHello is broken") from None


def _message(data: bytes) -> bytes | None:
    """Join the first handshake message from its records; None if it is incomplete."""
    found, position = b"", 0
    while True:
        if data[position : position + 1] and data[position] != _HANDSHAKE:
            raise NotTls("the connection does not begin with TLS")
        if len(data) > position + 1 and data[position + 1] != 3:
            raise NotTls("the connection does not begin with TLS")
        if len(data) < position + 5:
            return None
        length = int.from_bytes(data[position + 3 : position + 5])
        if not 0 < length <= 1 << 14:
            raise NotTls("a record of TLS has no valid length")
        found += data[position + 5 : position + 5 + length]
        if found and found[0] != _CLIENT_HELLO:
            raise NotTls("the connection does not begin with a ClientHello")
        if len(found) >= 4 and len(found) >= 4 + (size := int.from_bytes(found[1:4])):
            return found[4 : 4 + size]
        position += 5 + length
        if len(data) < position:
            return None


def _extensions(hello: "_Reader") -> Iterator[tuple[int, bytes]]:
    hello.take(2 + 32)  # version and random
    hello.bytes(1)  # session id
    hello.bytes(2)  # cipher suites
    hello.bytes(1)  # compression methods
    found = hello.block(2)
    while found.left:
        yield found.number(2), found.bytes(2)


class _Reader:
    """Reads length-prefixed vectors. Raises IndexError if bytes are missing."""

    def __init__(self, data: bytes) -> None:
        self._data, self._position = data, 0

    @property
    def left(self) -> int:
        return len(self._data) - self._position

    def take(self, count: int) -> bytes:
        if count > self.left:
            raise IndexError
        self._position += count
        return self._data[self._position - count : self._position]

    def number(self, width: int) -> int:
        return int.from_bytes(self.take(width))

    def bytes(self, width: int) -> "bytes":
        return self.take(self.number(width))

    def block(self, width: int) -> "_Reader":
        return _Reader(self.bytes(width))
