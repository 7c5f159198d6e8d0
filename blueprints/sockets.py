"""A conversation over a WebSocket: its state, its events after a cursor, messages to it. Source: docs/wire.md, 6.

The store is asked before the handshake is answered: a store that does not answer is a plain 503, as for any request.
A client that shows no key in the handshake shows it in its first frame, and the store is asked after that.
After the handshake, every refusal is a close code. Two threads serve a socket: the request's thread receives messages,
a second thread sends events. The end of either ends the other.

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
import json
import logging
import math
import socket
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

from flask import Blueprint, Response, g, request
from marshmallow import ValidationError
from werkzeug.exceptions import BadRequest, HTTPException, TooManyRequests
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, CloseConnection, Message, Ping
from wsproto.utilities import ProtocolError

from agents.client import AgentRefused
from agents.commands import Commands
from agents.waking import NotReachable
from blueprints import current_actor, current_commands, current_server
from blueprints.api import StrictParser, needs, refuse_unknown
from blueprints.guard import Guard
from blueprints.rates import count_failure
from blueprints.request_log import note, request_id
from core.access import NOBODY, REVOKED, Principal
from core.pauses import take_turns
from core.refused import Refused
from core.wire import ConversationId, InvalidJson, Micros, Seq, event_time, micros, now, parse_json
from schemas.conversations import ConversationInfo, with_skills
from schemas.errors import validation_errors
from schemas.events import Follow, InboundMessage
from schemas.fields import read_said
from store import Store
from store.access import TooManyFollowersOfKey, TooManySilentSockets
from store.approvals.effects import COMMAND_OUTPUT
from store.errors import (
    FULL,
    REDIS_FULL,
    UNAVAILABLE,
    ConversationNotFound,
    FellBehind,
    Stopping,
    StoreError,
    StoreFull,
    TooManyFollowers,
)
from store.link.connection import NotKept
from store.log.feed import Entry, Follower

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


sockets = Blueprint("sockets", __name__, url_prefix="/sockets")

#: what the query of a socket may have: where it begins, and who asks
_QUERY = frozenset({*Follow().fields, "session_api_key", "ticket"})

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

#: the end of a state event of the server's own
_STATE_UPDATE = b'"kind":"ConversationStateUpdateEvent"}'

_log = logging.getLogger(__name__)

#: seconds that a socket's thread waits for events before it checks that the socket is still open
_EVENT_TIMEOUT = 60.0


@sockets.get("/events/<conversation_id:conversation_id>")  # a plain request, whose response is 426
@sockets.get("/events/<conversation_id:conversation_id>", websocket=True)
@needs("read", ticket=True)
def follow_events(conversation_id: ConversationId) -> Response:
    """Serve the socket until either side ends it."""
    refuse_unknown(_QUERY)
    cursor, guard = StrictParser().parse(Follow(), location="query"), current_server().guard
    with served() as socket:
        if g.principal is NOBODY:
            g.principal = first_frame(socket, guard)
        with guard.following.going_on(g.principal, lambda: socket.close(UNAUTHORIZED, REVOKED)):
            Session(current_commands.of(current_actor()), g.principal, conversation_id, socket, **cursor).serve()
    return TakenOver()


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


class Session:
    """One client that follows one conversation."""

    def __init__(
        self,
        commands: Commands,
        principal: Principal,
        conversation_id: ConversationId,
        socket: WebSocket,
        *,
        after: Seq | None,
        since: Micros | None,
        with_seq: bool,
    ) -> None:
        """Raises as `Followers.follow`, or one of UNAVAILABLE."""
        self._store = store = commands.store
        self._commands = commands
        self._may_write = principal.may("write")
        self._id = conversation_id
        self._socket = socket
        self._since = since
        self._with_seq = with_seq
        if since is not None:
            after = store.events.cursor_before(conversation_id, since)
        self._follower: Follower = store.streams.events.follow(conversation_id, after)
        self._live_from = self._follower.feed.last
        self._runs = False

    def serve(self) -> None:
        """Answer the handshake, then serve until either side ends the socket."""
        sender: threading.Thread | None = None
        try:
            if not self._socket.is_accepted:
                self._socket.accept()
            sender = threading.Thread(target=self._send_events, daemon=True)
            sender.start()
            while True:
                self._take(self._socket.receive())
        except SocketClosed:
            pass
        except Exception:  # a bug of ours: the connection is no longer HTTP's, so no response can report it
            _log.exception("socket of conversation %s", self._id)
        finally:
            self._follower.close()
            self._socket.close(INTERNAL_ERROR, "Internal error")
            if sender is not None:
                sender.join()

    def _send_events(self) -> None:
        """Send the state, then every event; close the socket when no more events can come."""
        try:
            with contextlib.suppress(SocketClosed):
                self._send_state()
                while not self._follower.closed:
                    self._send_next()
        except (*CLOSE_CODES,) as end:
            self._socket.close(CLOSE_CODES[type(end)], str(end))
        finally:
            self._socket.close(INTERNAL_ERROR, "Internal error")

    def _send_next(self) -> None:
        try:
            entries = self._follower.next(_EVENT_TIMEOUT)
        except UNAVAILABLE:
            self._follower.pause()
            return
        frames = [self._frame(entry.seq, entry.raw) for entry in entries if entry.raw and self._is_wanted(entry)]
        if frames:
            self._socket.send(b"".join(frames))
        if any([self._calls_for_the_state(entry) for entry in entries]):  # a list: each check notes the status
            self._send_state()

    def _is_wanted(self, entry: Entry) -> bool:
        if entry.seq == 0 and not self._with_seq and self._is_of_ours(entry):
            return False
        if self._since is None or not 0 < entry.seq <= self._live_from:
            return True
        return micros(entry.fields["timestamp"]) >= self._since

    @staticmethod
    def _is_of_ours(entry: Entry) -> bool:
        """Whether the agent-server wire has no such event: a new title, and the output of a command that runs."""
        if entry.raw.endswith(_STATE_UPDATE):
            return True
        return COMMAND_OUTPUT.encode() in entry.raw and entry.fields.get("kind") == COMMAND_OUTPUT

    def _calls_for_the_state(self, entry: Entry) -> bool:
        """Whether a full state must follow an entry: a live one that ends a run, with or without an event."""
        if not entry.raw:
            return True
        if b'"execution_status"' not in entry.raw or entry.fields.get("key") != "execution_status":
            return False
        ran, self._runs = self._runs, entry.fields.get("value") == "running"
        return ran and not self._runs and entry.seq > self._live_from

    def _send_state(self) -> None:
        while True:
            try:
                state = self._follower.share(lambda: _state(self._store, self._id))
            except UNAVAILABLE:
                self._follower.pause()
            else:
                self._runs = self._runs or state["execution_status"] == "running"
                event = _event("ConversationStateUpdateEvent", key="full_state", value=state)
                return self._socket.send(self._frame(0, event))

    def _take(self, message: bytes) -> None:
        """Append a client's message to the conversation, or reply with an error event if it cannot be read."""
        began, outcome = time.monotonic(), "refused"
        try:
            received = read_said(message)
            if isinstance(received, dict) and received.get("type") == "auth":
                outcome = ""
                return
            sent = InboundMessage().load(received)
            if not self._may_write:
                return self._send_error("Forbidden", "A message needs a key with the scope write")
            if not (version := self._store.data_version).is_current:
                version.ensure()
            self._commands.send(self._id, content=sent["content"], run=sent["run"], rejects=sent["rejects"])
            outcome = "sent"
        except InvalidJson as fault:
            self._send_error("JSONDecodeError", f"Invalid JSON: {fault}")
        except ValidationError as fault:
            faults = validation_errors("body", fault.normalized_messages())
            self._send_error("ValidationError", json.dumps(faults))
        except REDIS_FULL:
            self._send_error(StoreFull.__name__, FULL)
        except ConversationNotFound as gone:
            self._socket.close(CLOSE_CODES[ConversationNotFound], str(gone))
        except (Refused, NotReachable, AgentRefused) as fault:
            self._send_error(type(fault).__name__, str(fault))
        except NotKept as fault:
            self._send_error("StoreUnavailable", str(fault))
        except UNAVAILABLE:
            self._send_error("StoreUnavailable", "The message was not taken: the store does not answer. Send it again.")
        finally:
            if outcome:
                note(outcome, began=began, method="SOCKET")

    def _send_error(self, code: str, detail: str) -> None:
        self._socket.send(self._frame(0, _event("ServerErrorEvent", code=code, detail=detail)))

    def _frame(self, seq: int, event: bytes) -> bytes:
        """An event as this client asked for it; an event that no log keeps has seq 0."""
        if not self._with_seq:
            return text_frame(event)
        return text_frame(b'{"seq":%b,"event":%b}' % (str(seq).encode() if seq else b"null", event))


def _state(store: Store, conversation_id: ConversationId) -> dict[str, Any]:
    state: dict[str, Any] = ConversationInfo().dump(
        with_skills(store.conversations.get(conversation_id), include_skills=False)
    )
    return state


def _event(kind: str, **members: Any) -> bytes:
    """An event of the server's own, which no log keeps."""
    event = {"id": str(uuid4()), "timestamp": event_time(now()), "source": "environment", **members, "kind": kind}
    return json.dumps(event).encode()
