"""A WebSocket on the connection of a WSGI request: the protocol by wsproto, reading and writing by us.

Nothing here grows with what a client sends or does not take: messages are read one at a time and bounded, and a write
that makes no progress ends the connection. Frames that many clients get are made once (`text_frame`).
"""

import contextlib
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

#: bytes read from the connection at once
_CHUNK = 16 * 1024

#: seconds that a client gets to take the frame that closes its connection
_CLOSE_SECONDS = 1.0

#: close codes of RFC 6455 that stand for what this module finds itself
GOING_AWAY, PROTOCOL_ERROR, TOO_BIG = 1001, 1002, 1009


class SocketClosed(Exception):
    """The connection has ended, from whichever side."""


class UpgradeRequired(HTTPException):
    """The path is a WebSocket's and the request asks for none."""

    code = 426


class TakenOver(Response):
    """What the view of a WebSocket returns: gunicorn must write nothing more on the connection."""

    def __call__(self, *_: Any) -> Any:
        raise StopIteration  # what gunicorn's workers end a connection by


class WebSocket:
    """One connection. `receive` belongs to one thread; `send` and `close` to any."""

    def __init__(self, *, message_bytes: int, ping_seconds: float, idle_seconds: float) -> None:
        """Take over the connection of the present request. Raises UpgradeRequired, BadRequest."""
        connection = request.environ.get("gunicorn.socket")
        if connection is None or request.headers.get("Upgrade", "").lower() != "websocket":
            raise UpgradeRequired("This path is a WebSocket: ask for an upgrade")
        self._socket: socket.socket = connection
        self._message_bytes = message_bytes
        self._idle_seconds = idle_seconds
        self._writing = threading.Lock()
        self._closed = False
        self._protocol = WSConnection(ConnectionType.SERVER)
        headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in request.headers]
        try:
            self._protocol.initiate_upgrade_connection(headers, request.full_path)
            answer = self._protocol.send(AcceptConnection())
        except ProtocolError as error:
            raise BadRequest(f"No WebSocket handshake: {error}") from None
        self._socket.settimeout(ping_seconds)
        self.send(answer)

    def send(self, frames: bytes) -> None:
        """Write whole frames. Raises SocketClosed, also when the client takes nothing for too long."""
        with self._writing:
            self._write(frames)

    def receive(self) -> str | bytes:
        """The next message of the client, whole. Raises SocketClosed."""
        parts: list[Any] = []
        while True:
            try:
                for event in self._protocol.events():
                    if isinstance(event, Message):
                        parts.append(event.data)
                        if sum(map(len, parts)) > self._message_bytes:
                            self.close(TOO_BIG, f"A message may have at most {self._message_bytes} bytes")
                            raise SocketClosed
                        if event.message_finished:
                            message: str | bytes = parts[0][:0].join(parts)
                            return message
                    elif isinstance(event, Ping | CloseConnection):
                        self.send(self._protocol.send(event.response()))
                        if isinstance(event, CloseConnection):
                            raise SocketClosed
                self._protocol.receive_data(self._read())
            except ProtocolError as error:
                self.close(PROTOCOL_ERROR, str(error))
                raise SocketClosed from None

    def close(self, code: int, reason: str) -> None:
        """Say goodbye and end the connection, which ends `receive` too. Of a closed one: nothing."""
        with self._writing:
            if self._closed:
                return
            with contextlib.suppress(OSError, ProtocolError, SocketClosed):
                self._idle_seconds = _CLOSE_SECONDS
                self._socket.settimeout(_CLOSE_SECONDS)
                self._write(self._protocol.send(CloseConnection(code, reason)))
            self._shut()

    def _read(self) -> bytes:
        """What the client sends next; a silent one is pinged, and dropped when it does not answer."""
        silent_since = time.monotonic()
        while True:
            try:
                data = self._socket.recv(_CHUNK)
            except TimeoutError:
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
    """One whole text message as it goes over the wire from a server."""
    size = len(payload)
    if size < 126:
        head = struct.pack("!BB", 0x81, size)
    elif size < 1 << 16:
        head = struct.pack("!BBH", 0x81, 126, size)
    else:
        head = struct.pack("!BBQ", 0x81, 127, size)
    return head + payload
