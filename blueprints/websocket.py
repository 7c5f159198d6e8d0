"""The server's end of a WebSocket, whatever is said over it. Source: RFC 6455; docs/wire.md, 6.

The store is asked before the handshake is answered: a store that does not answer is a plain 503, as for any request.
A client that shows no key in the handshake shows it in its first frame, and the store is asked after that.
After the handshake, every refusal is a close code.

| close code | when                                                                      |
|------------|---------------------------------------------------------------------------|
| 1001       | the client answers no pings                                               |
| 1002       | the client breaks the protocol                                            |
| 1008       | after_seq is greater than the seq of the last event                       |
| 1009       | a message has too many bytes or too many fragments                        |
| 1011       | an error of the server, which its log describes                           |
| 1012       | the server stops: connect again                                           |
| 1013       | too many followers, the client was too slow, or the store did not answer  |
|            | when the first frame came; too many wrong keys (RATE_LIMIT_FAILURES):     |
|            | connect again                                                             |
| 4001       | no or a wrong key in the first frame; a key that was revoked or expired   |
| 4004       | the conversation does not exist, or was deleted                           |

wsproto implements the protocol of a `WebSocket`; this module reads and writes the connection of a WSGI request.

A client cannot make anything here grow: messages are read one at a time and are bounded in bytes and in fragments, and
a write that makes no progress ends the connection. A frame for many clients is made once (`text_frame`).
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

#: bytes read from the connection at once: after each chunk, of at most 700 frames, other connections have their turn
_CHUNK = 4 * 1024

#: frames that one message may consist of, empty ones counted
MOST_FRAGMENTS = 1024

#: seconds in which a client must take the frame that closes its connection
_CLOSE_TIMEOUT = 1.0

#: close codes of RFC 6455 for what this module itself finds
GOING_AWAY, PROTOCOL_ERROR, TOO_BIG = 1001, 1002, 1009

REFUSED, INTERNAL_ERROR, TRY_AGAIN, UNAUTHORIZED = 1008, 1011, 1013, 4001

#: seconds in which the first frame must come that shows a key, and the most bytes that it may have
AUTH_SECONDS, AUTH_BYTES = 10.0, 4096

#: the close code for each error that ends a follower
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
    """The connection has ended: the client or the server closed it, or it broke."""


class _Late(Exception):
    """The client has not sent its first message in time."""


class UpgradeRequired(HTTPException):
    """A plain request for the path of a WebSocket."""

    code = 426


class TakenOver(Response):
    """The response of a view that has served a WebSocket: gunicorn must write nothing more on the connection."""

    def __call__(self, *_: Any) -> Any:
        raise StopIteration  # the exception by which gunicorn's workers end a connection


class WebSocket:
    """One connection. One thread may call `receive`; any thread may call `send` and `close`."""

    def __init__(self, *, message_bytes: int, ping_seconds: float, idle_seconds: float) -> None:
        """Check the handshake of the present request, without an answer. Raises UpgradeRequired, BadRequest."""
        connection = request.environ.get("gunicorn.socket")
        if connection is None or request.headers.get("Upgrade", "").lower() != "websocket":
            raise UpgradeRequired("This path is a WebSocket: ask for an upgrade")
        self._socket: socket.socket = connection
        self._message_bytes = message_bytes
        self._ping_seconds = ping_seconds
        self._idle_seconds = idle_seconds
        self._writing = threading.Lock()
        self._closed = False
        self.is_accepted = False  #: whether the handshake was answered
        self._ping: Ping | None = None
        self._until = math.inf
        self._protocol = WSConnection(ConnectionType.SERVER)
        headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in request.headers]
        try:
            self._protocol.initiate_upgrade_connection(headers, request.full_path)
            accepted = AcceptConnection(extra_headers=[(b"X-Request-Id", request_id().encode())])
            self._handshake = self._protocol.send(accepted)
        except (ProtocolError, UnicodeDecodeError) as error:  # wsproto decodes what it reads of the headers
            raise BadRequest(f"This is not a valid WebSocket handshake: {error}") from None

    def accept(self) -> None:
        """Answer the handshake: from here on the connection is no longer HTTP's. Raises SocketClosed."""
        self.is_accepted = True
        self._socket.settimeout(self._ping_seconds)
        self.send(self._handshake)

    def send(self, frames: bytes) -> None:
        """Write whole frames. Raises SocketClosed, also when the client takes nothing for too long."""
        with self._writing:
            self._write(frames)

    def receive_first(self, seconds: float, size: int) -> bytes | None:
        """The first message of the client, of at most so many bytes; None if it does not come in so many seconds.

        Raises SocketClosed, also for a longer one.
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
        """The next message of the client, whole; text as UTF-8. Raises SocketClosed."""
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
                if self._ping is not None:  # RFC 6455, 5.5.3: one answer will do for several pings, that to the latest
                    self.send(self._protocol.send(self._ping.response()))
                    self._ping = None
                self._protocol.receive_data(self._read())
            except ProtocolError as error:
                self.close(PROTOCOL_ERROR, str(error))
                raise SocketClosed from None

    def _check(self, size: int, fragments: int) -> None:
        """Close the connection of a client whose message exceeds a bound. Raises SocketClosed."""
        if size > self._message_bytes:
            self.close(TOO_BIG, f"A message may have at most {self._message_bytes} bytes")
            raise SocketClosed
        if fragments > MOST_FRAGMENTS:
            self.close(TOO_BIG, f"A message may have at most {MOST_FRAGMENTS} fragments")
            raise SocketClosed

    def close(self, code: int, reason: str) -> None:
        """Send a close frame and end the connection, which ends `receive` too; a closed connection stays closed."""
        with self._writing:
            if self._closed:
                return
            with contextlib.suppress(OSError, ProtocolError, SocketClosed):
                self._idle_seconds = _CLOSE_TIMEOUT
                self._socket.settimeout(_CLOSE_TIMEOUT)
                self._write(self._protocol.send(CloseConnection(code, reason)))
            self._shut()

    def _read(self) -> bytes:
        """The bytes that the client sends next; a silent client is pinged, and dropped when it does not answer."""
        silent_since = time.monotonic()
        take_turns()  # gevent reads bytes that are there without a wait: an endless sender would stop all others
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
    """The bytes by which a server sends one whole text message."""
    size = len(payload)
    if size < 126:
        head = struct.pack("!BB", 0x81, size)
    elif size < 1 << 16:
        head = struct.pack("!BBH", 0x81, 126, size)
    else:
        head = struct.pack("!BBQ", 0x81, 127, size)
    return head + payload


def binary_frame(payload: bytes) -> bytes:
    """The same of one whole binary message."""
    return b"\x82" + text_frame(payload)[1:]


@contextlib.contextmanager
def served(*refusals: type[Exception], message_bytes: int = 0) -> Iterator[WebSocket]:
    """The socket of this request, within the bounds of the settings; a refusal in the block becomes its close code.

    refusals: beside those of the store. message_bytes: most of a message; 0: as the settings say.
    Raises one of UNAVAILABLE before the handshake: then the response is a plain 503.
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
    except Exception:  # a bug of ours, of which no response can tell once the connection is no longer HTTP's
        if not socket.is_accepted:
            raise
        _log.exception("socket %s", request.url_rule)
        socket.close(INTERNAL_ERROR, "Internal error")


def first_frame(socket: WebSocket, guard: Guard) -> Principal:
    """The one whose key the first frame has, who may read. Raises SocketClosed, TooManySilentSockets, and one of
    UNAVAILABLE. A frame without a valid key counts as a failed try of its address, as such a request does."""
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
        if principal is None:  # a right key that may not read is no guess
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
