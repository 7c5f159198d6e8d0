"""A conversation over a WebSocket: its state, its events from a place on, messages to it. Source: docs/wire.md, 6.

Two threads serve a socket: the request's own reads what the client says, another one tells what happens.
Whichever ends first ends the other.

| close code | when                                                                   |
|------------|------------------------------------------------------------------------|
| 1001       | the client answers no pings                                            |
| 1008       | after_seq lies behind the last event                                   |
| 1009       | a message was too long                                                 |
| 1011       | a fault of ours, which the server's log tells                          |
| 1012       | the server stops: connect again                                        |
| 1013       | too many followers, or the client was too slow: connect again          |
| 4001       | authentication (there are no keys yet; an `auth` frame is passed over) |
| 4004       | there is no such conversation, or no longer                            |
"""

import contextlib
import json
import logging
import threading
from typing import Any
from uuid import uuid4

from flask import Blueprint, Response, current_app, request
from marshmallow import ValidationError

from agents.commands import Commands, NotReachable
from agents.link import AgentRefused, AgentUnreachable
from blueprints.api import InvalidInput
from blueprints.websocket import SocketClosed, TakenOver, WebSocket, text_frame
from schemas.conversations import ConversationInfo
from schemas.errors import validation_errors
from schemas.live import Follow, InboundMessage
from store import Store
from store.errors import UNAVAILABLE, ConversationNotFound, FellBehind, Stopping, StoreError, TooManyFollowers
from store.feed import Entry, Follower
from wire import ConversationId, InvalidJson, Micros, Seq, event_time, micros, now, parse_json

sockets = Blueprint("sockets", __name__, url_prefix="/sockets")

REFUSED, INTERNAL_ERROR = 1008, 1011

#: how a follower's end is told
CLOSE_CODES: dict[type[StoreError], int] = {
    ConversationNotFound: 4004,
    Stopping: 1012,
    FellBehind: 1013,
    TooManyFollowers: 1013,
}

_log = logging.getLogger(__name__)

#: seconds that a socket's thread waits for events before it looks whether it is still wanted
_PATIENCE = 60.0


@sockets.get("/events/<conversation_id:conversation_id>")  # a plain request, which is told what to ask for
@sockets.get("/events/<conversation_id:conversation_id>", websocket=True)
def follow_events(conversation_id: ConversationId) -> Response:
    """Take the connection over until either side ends it."""
    place = _place()
    store: Store = current_app.extensions["store"]
    commands: Commands = current_app.extensions["commands"]
    settings = current_app.config
    socket = WebSocket(
        message_bytes=settings["SOCKET_MESSAGE_BYTES"],
        ping_seconds=settings["PING_SECONDS"],
        idle_seconds=settings["IDLE_SECONDS"],
    )
    with contextlib.suppress(SocketClosed):
        try:
            session = Session(store, commands, conversation_id, socket, **place)
        except (*CLOSE_CODES,) as refusal:
            socket.close(CLOSE_CODES[type(refusal)], str(refusal))
        except StoreError as refusal:
            socket.close(REFUSED, str(refusal))
        else:
            session.serve()
    return TakenOver()


def _place() -> dict[str, Any]:
    try:
        place: dict[str, Any] = Follow().load(request.args.to_dict())
    except ValidationError as fault:
        raise InvalidInput("query", fault.normalized_messages()) from None
    return place


class Session:
    """One client that follows one conversation."""

    def __init__(
        self,
        store: Store,
        commands: Commands,
        conversation_id: ConversationId,
        socket: WebSocket,
        *,
        after: Seq | None,
        since: Micros | None,
        with_seq: bool,
    ) -> None:
        """Raises as `Followers.follow`, or one of UNAVAILABLE."""
        self._store = store
        self._commands = commands
        self._id = conversation_id
        self._socket = socket
        self._since = since
        self._with_seq = with_seq
        if since is not None:
            after = store.events.cursor_before(conversation_id, since)
        self._follower: Follower = store.followers.follow(conversation_id, after)
        self._live_from = self._follower.feed.last
        self._runs = False

    def serve(self) -> None:
        """Serve until either side ends."""
        teller = threading.Thread(target=self._tell, daemon=True)
        teller.start()
        try:
            while True:
                self._hear(self._socket.receive())
        except SocketClosed:
            pass
        except Exception:  # a bug of ours: the connection is no longer HTTP's to answer it
            _log.exception("socket of conversation %s", self._id)
        finally:
            self._follower.close()
            self._socket.close(INTERNAL_ERROR, "Internal error")
            teller.join()

    def _tell(self) -> None:
        """Tell the state, then every event; end the socket when there is nothing more to tell."""
        try:
            with contextlib.suppress(SocketClosed):
                self._tell_state()
                while not self._follower.closed:
                    self._tell_next()
        except (*CLOSE_CODES,) as end:
            self._socket.close(CLOSE_CODES[type(end)], str(end))
        finally:
            self._socket.close(INTERNAL_ERROR, "Internal error")

    def _tell_next(self) -> None:
        try:
            entries = self._follower.next(_PATIENCE)
        except UNAVAILABLE:
            self._follower.pause()
            return
        told = [self._frame(entry.seq, entry.raw) for entry in entries if entry.raw and self._is_wanted(entry)]
        if told:
            self._socket.send(b"".join(told))
        if any([self._calls_for_the_state(entry) for entry in entries]):  # a list: every entry is to be looked at
            self._tell_state()

    def _is_wanted(self, entry: Entry) -> bool:
        if self._since is None or not 0 < entry.seq <= self._live_from:
            return True
        return micros(entry.fields["timestamp"]) >= self._since

    def _calls_for_the_state(self, entry: Entry) -> bool:
        """Whether the whole state is to be told behind an entry: a live one that ends a run, or no event at all."""
        if not entry.raw:
            return True
        if b'"execution_status"' not in entry.raw or entry.fields.get("key") != "execution_status":
            return False
        ran, self._runs = self._runs, entry.fields.get("value") == "running"
        return ran and not self._runs and entry.seq > self._live_from

    def _tell_state(self) -> None:
        while True:
            try:
                state = self._follower.share(lambda: _state(self._store, self._id))
            except UNAVAILABLE:
                self._follower.pause()
            else:
                self._runs = self._runs or state["execution_status"] == "running"
                event = _event("ConversationStateUpdateEvent", key="full_state", value=state)
                return self._socket.send(self._frame(0, event))

    def _hear(self, message: str | bytes) -> None:
        """Send what the client says as a user's message; what is none is answered and changes nothing."""
        try:
            said = parse_json(message.encode() if isinstance(message, str) else message)
            if isinstance(said, dict) and said.get("type") == "auth":
                return
            sent = InboundMessage().load(said)
            self._commands.send(self._id, content=sent["content"], run=sent["run"])
        except InvalidJson as fault:
            self._complain("JSONDecodeError", f"Invalid JSON: {fault}")
        except ValidationError as fault:
            faults = validation_errors("body", fault.normalized_messages())
            self._complain("ValidationError", json.dumps(faults))
        except UNAVAILABLE:
            self._complain("StoreUnavailable", "The message was not taken: the store does not answer; send it again")
        except (NotReachable, AgentUnreachable, AgentRefused) as fault:
            self._complain(type(fault).__name__, str(fault))
        except ConversationNotFound as gone:
            self._socket.close(CLOSE_CODES[ConversationNotFound], str(gone))

    def _complain(self, code: str, detail: str) -> None:
        self._socket.send(self._frame(0, _event("ServerErrorEvent", code=code, detail=detail)))

    def _frame(self, seq: int, event: bytes) -> bytes:
        """An event as this client asked for it; seq 0 is one that no log keeps."""
        if not self._with_seq:
            return text_frame(event)
        return text_frame(b'{"seq":%b,"event":%b}' % (str(seq).encode() if seq else b"null", event))


def _state(store: Store, conversation_id: ConversationId) -> dict[str, Any]:
    state: dict[str, Any] = ConversationInfo().dump(store.conversations.get(conversation_id))
    return state


def _event(kind: str, **members: Any) -> bytes:
    """An event of the server's own, which is in no log."""
    event = {"id": str(uuid4()), "timestamp": event_time(now()), "source": "environment", **members, "kind": kind}
    return json.dumps(event).encode()
