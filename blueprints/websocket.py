"""A WebSocket on the connection of a WSGI request: wsproto knows the protocol, this module reads and writes.

A client cannot make anything here grow: messages are read one at a time and are bounded in bytes and in fragments, and
a write that makes no progress ends the connection. A frame for many clients is made once (`text_frame`).
"""

import contextlib
import math
import socket
import struct
import threading
import time
from typing import Any

from flask import Response, request
from werkzeug.exceptions import BadRequest, HTTPException
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, CloseConnection, Message, Ping
from wsproto.utilities import ProtocolError

from blueprints.audit import request_id

#: bytes read from the connection at once: after each chunk, of at most 700 frames, other connections have their turn
_CHUNK = 4 * 1024

#: frames that one message may consist of, empty ones counted
MOST_FRAGMENTS = 1024

#: seconds in which a client must take the frame that closes its connection
_CLOSE_TIMEOUT = 1.0

#: close codes of RFC 6455 for what this module itself finds
GOING_AWAY, PROTOCOL_ERROR, TOO_BIG = 1001, 1002, 1009


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
        except ProtocolError as error:
            raise BadRequest(f"No WebSocket handshake: {error}") from None

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
        time.sleep(0)  # gevent reads bytes that are there without a wait: an endless sender would stop all others
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
