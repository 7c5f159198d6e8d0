"""The server side of a WebSocket, for any protocol above it. Source: RFC 6455; docs/wire.md, 6.

The store is asked before the handshake, so that an unavailable store is a plain 503. A client without a key in the
handshake sends it in its first frame, and the store is asked after that. After the handshake, every refusal is a close
code.

| close code | when                                                                      |
|------------|---------------------------------------------------------------------------|
| 1001       | the client answers no pings                                               |
| 1002       | the client breaks the protocol                                            |
| 1008       | after_seq is greater than the seq of the last event                       |
| 1009       | a message has too many bytes or too many fragments                        |
| 1011       | an error of the server, which its log describes                           |
| 1012       | the server stops: connect again                                           |
| 1013       | too many followers, the client was too slow, or the store was unavailable |
|            | when the first frame came; too many wrong keys (RATE_LIMIT_FAILURES):     |
|            | connect again                                                             |
| 4001       | no or a wrong key in the first frame; a key that was revoked or expired   |
| 4004       | the conversation does not exist, or was deleted                           |

wsproto implements the protocol of a `WebSocket`; this module reads and writes the connection of a WSGI request. No
client can use unbounded memory: messages are read one at a time with limits of bytes and fragments, and a write without
progress ends the connection. A frame for many clients is made once (`text_frame`).
"""

import contextlib
import logging
import math
import socket
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any

from flask import Response, request
from werkzeug.exceptions import BadRequest, HTTPException, TooManyRequests
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, CloseConnection, Message, Ping
from wsproto.utilities import ProtocolError

from blueprints import current_server
from blueprints.guard import Guard
from blueprints.rates import count_failure
from blueprints.request_log import request_id
from core.access import Principal
from core.pauses import take_turns
from core.wire import InvalidJson, parse_json
from store.access import TooManyFollowersOfKey, TooManySilentSockets
from store.errors import (
    UNAVAILABLE,
    ConversationNotFound,
    FellBehind,
    Stopping,
    StoreError,
    TooManyFollowers,
)

#: Size of a read, in bytes. After each chunk, of at most 700 frames, other connections get a turn.
_CHUNK = 4 * 1024

#: Maximum number of frames of a message, including empty frames.
MOST_FRAGMENTS = 1024

#: Timeout of the close frame, in seconds.
_CLOSE_TIMEOUT = 1.0

#: Close codes of RFC 6455 for errors that this module detects.
GOING_AWAY, PROTOCOL_ERROR, TOO_BIG = 1001, 1002, 1009

REFUSED, INTERNAL_ERROR, TRY_AGAIN, UNAUTHORIZED = 1008, 1011, 1013, 4001

#: Timeout in seconds, and maximum size in bytes, of the first frame, which has a key.
AUTH_SECONDS, AUTH_BYTES = 10.0, 4096

#: Close code of each error that ends a follower.
CLOSE_CODES: dict[type[StoreError], int] = {
    ConversationNotFound: 4004,
    Stopping: 1012,
    FellBehind: 1013,
    TooManyFollowers: 1013,
    TooManyFollowersOfKey: 1013,
    TooManySilentSockets: 1013,
}

_log = logging.getLogger(__name__)


class SocketClosed(Exception):
    """Raised when the connection has ended: the client or the server closed it, or it broke."""


class _Late(Exception):
    """Raised when the first message is late."""


class UpgradeRequired(HTTPException):
    """Raised for a plain request to the path of a WebSocket."""

    code = 426


class TakenOver(Response):
    """The response of a view that served a WebSocket. gunicorn must write nothing more on the connection."""

    def __call__(self, *_: Any) -> Any:
        raise StopIteration  # this exception makes gunicorn's workers close a connection


class WebSocket:
    """A connection. One thread may call `receive`; any thread may call `send` and `close`."""

    def __init__(self, *, message_bytes: int, ping_seconds: float, idle_seconds: float) -> None:
        """Check the handshake of the current request, without a response. Raises UpgradeRequired, BadRequest."""
        connection = request.environ.get("gunicorn.socket")
        if connection is None or request.headers.get("Upgrade", "").lower() != "websocket":
            raise UpgradeRequired("This path is a WebSocket: ask for an upgrade")
        self._socket: socket.socket = connection
        self._message_bytes = message_bytes
        self._ping_seconds = ping_seconds
        self._idle_seconds = idle_seconds
        self._writing = threading.Lock()
        self._closed = False
        self.is_accepted = False  #: the handshake is complete
        self._ping: Ping | None = None
        self._until = math.inf
        self._protocol = WSConnection(ConnectionType.SERVER)
        headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in request.headers]
        try:
            self._protocol.initiate_upgrade_connection(headers, request.full_path)
            accepted = AcceptConnection(extra_headers=[(b"X-Request-Id", request_id().encode())])
            self._handshake = self._protocol.send(accepted)
        except (ProtocolError, UnicodeDecodeError) as error:  # wsproto decodes the headers that it reads
            raise BadRequest(f"This is not a valid WebSocket handshake: {error}") from None

    def accept(self) -> None:
        """Complete the handshake. After it, the connection is no longer HTTP. Raises SocketClosed."""
        self.is_accepted = True
        self._socket.settimeout(self._ping_seconds)
        self.send(self._handshake)

    def send(self, frames: bytes) -> None:
        """Write complete frames. Raises SocketClosed, also if the client reads nothing for too long."""
        with self._writing:
            self._write(frames)

    def receive_first(self, seconds: float, size: int) -> bytes | None:
        """Return the first message; None on timeout.

        seconds: the timeout. size: maximum in bytes; a longer message closes the socket. Raises SocketClosed.
        """
        bounds = self._message_bytes
        self._message_bytes, self._until = size, time.monotonic() + seconds
        self._socket.settimeout(min(seconds, self._ping_seconds))
        try:
            return self.receive()
        except _Late:
            return None
        finally:
            self._message_bytes, self._until = bounds, math.inf
            self._socket.settimeout(self._ping_seconds)

    def receive(self) -> bytes:
        """Return the client's next complete message, with text as UTF-8. Raises SocketClosed."""
        message, fragments = bytearray(), 0
        while True:
            try:
                for event in self._protocol.events():
                    if isinstance(event, Message):
                        message += event.data.encode() if isinstance(event.data, str) else event.data
                        fragments += event.frame_finished
                        self._check(len(message), fragments)
                        if event.message_finished:
                            return bytes(message)
                    elif isinstance(event, Ping):
                        self._ping = event
                    elif isinstance(event, CloseConnection):
                        self.send(self._protocol.send(event.response()))
                        raise SocketClosed
                if self._ping is not None:  # RFC 6455, 5.5.3: a pong to the latest ping answers all earlier ones
                    self.send(self._protocol.send(self._ping.response()))
                    self._ping = None
                self._protocol.receive_data(self._read())
            except ProtocolError as error:
                self.close(PROTOCOL_ERROR, str(error))
                raise SocketClosed from None

    def _check(self, size: int, fragments: int) -> None:
        """Close the connection if a message exceeds a limit. Raises SocketClosed."""
        if size > self._message_bytes:
            self.close(TOO_BIG, f"A message may have at most {self._message_bytes} bytes")
            raise SocketClosed
        if fragments > MOST_FRAGMENTS:
            self.close(TOO_BIG, f"A message may have at most {MOST_FRAGMENTS} fragments")
            raise SocketClosed

    def close(self, code: int, reason: str) -> None:
        """Send a close frame and end the connection, and so `receive`. Does nothing on a closed connection."""
        with self._writing:
            if self._closed:
                return
            with contextlib.suppress(OSError, ProtocolError, SocketClosed):
                self._idle_seconds = _CLOSE_TIMEOUT
                self._socket.settimeout(_CLOSE_TIMEOUT)
                self._write(self._protocol.send(CloseConnection(code, reason)))
            self._shut()

    def _read(self) -> bytes:
        """Return the client's next bytes. Ping a silent client, and drop it if it does not answer."""
        silent_since = time.monotonic()
        take_turns()  # with a fast client `recv` never waits, and so never yields
        while True:
            try:
                data = self._socket.recv(_CHUNK)
                if time.monotonic() > self._until:
                    raise _Late
            except TimeoutError:
                if time.monotonic() > self._until:
                    raise _Late from None
                if time.monotonic() - silent_since >= self._idle_seconds:
                    self.close(GOING_AWAY, "No answer to pings")
                    raise SocketClosed from None
                self.send(self._protocol.send(Ping()))
            except OSError:
                raise SocketClosed from None
            else:
                if not data:
                    raise SocketClosed
                return data

    def _write(self, data: bytes) -> None:
        left, progress = memoryview(data), time.monotonic()
        while left:
            if self._closed:
                raise SocketClosed
            try:
                left = left[self._socket.send(left) :]
                progress = time.monotonic()
            except TimeoutError:
                if time.monotonic() - progress >= self._idle_seconds:
                    self._shut()
            except OSError:
                self._shut()

    def _shut(self) -> None:
        self._closed = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)


def text_frame(payload: bytes) -> bytes:
    """Return the frame of a text message from the server."""
    size = len(payload)
    if size < 126:
        head = struct.pack("!BB", 0x81, size)
    elif size < 1 << 16:
        head = struct.pack("!BBH", 0x81, 126, size)
    else:
        head = struct.pack("!BBQ", 0x81, 127, size)
    return head + payload


def binary_frame(payload: bytes) -> bytes:
    """Return the frame of a binary message from the server."""
    return b"\x82" + text_frame(payload)[1:]


@contextlib.contextmanager
def served(*refusals: type[Exception], message_bytes: int = 0) -> Iterator[WebSocket]:
    """Serve this request's socket with the limits of the settings. A refusal in the block becomes its close code.

    refusals: besides those of the store. message_bytes: maximum size of a message; 0: the setting. Raises one of
    UNAVAILABLE before the handshake, so that the response is a plain 503.
    """
    settings = current_server().config.http
    socket = WebSocket(
        message_bytes=message_bytes or settings.socket_message_bytes,
        ping_seconds=settings.ping_seconds,
        idle_seconds=settings.idle_seconds,
    )
    try:
        yield socket
    except SocketClosed:
        pass
    except StoreError as refusal:
        refuse(socket, CLOSE_CODES.get(type(refusal), REFUSED), str(refusal))
    except refusals as refusal:
        refuse(socket, REFUSED, str(refusal))
    except UNAVAILABLE:
        if not socket.is_accepted:
            raise
        socket.close(TRY_AGAIN, "The store does not answer: connect again")
    except Exception:  # a bug: after the handshake no response can report it
        if not socket.is_accepted:
            raise
        _log.exception("socket %s", request.url_rule)
        socket.close(INTERNAL_ERROR, "Internal error")


def first_frame(socket: WebSocket, guard: Guard) -> Principal:
    """Return the principal of the key in the first frame, who may read.

    A frame without a valid key counts as a failed attempt of its address. Raises SocketClosed, TooManySilentSockets,
    and one of UNAVAILABLE.
    """
    quota, address = current_server().silent_sockets, request.remote_addr or ""
    quota.take(address)
    try:
        socket.accept()
        shown = parse_json(socket.receive_first(AUTH_SECONDS, AUTH_BYTES) or b"null")
    except InvalidJson:
        shown = None
    finally:
        quota.give_back(address)
    key = shown.get("session_api_key") if isinstance(shown, dict) and shown.get("type") == "auth" else None
    principal = guard.find(key) if isinstance(key, str) else None
    if principal is None or not principal.may("read"):
        if principal is None:  # a valid key without the scope `read` is not a guess
            try:
                count_failure()
            except TooManyRequests as refusal:
                socket.close(TRY_AGAIN, str(refusal.description))
                raise SocketClosed from None
        socket.close(UNAUTHORIZED, "Authentication failed")
        raise SocketClosed
    return principal


def refuse(socket: WebSocket, code: int, reason: str) -> None:
    if not socket.is_accepted:
        with contextlib.suppress(SocketClosed):
            socket.accept()
    socket.close(code, reason)
