"""A conversation over a WebSocket: its state, its events after a cursor, and messages to it. Source: docs/wire.md, 6.

Two threads serve a socket: the request's thread receives messages, and a second thread sends events. When either ends,
so does the other. Close codes: `websocket.py`.
"""

import contextlib
import json
import logging
import threading
import time
from typing import Any
from uuid import uuid4

from flask import Blueprint, Response, g
from marshmallow import ValidationError

from agents.client import AgentRefused
from agents.commands import Commands
from agents.waking import NotReachable
from blueprints import current_actor, current_commands, current_server
from blueprints.api import StrictParser, needs, refuse_unknown
from blueprints.request_log import note
from blueprints.websocket import (
    CLOSE_CODES,
    INTERNAL_ERROR,
    UNAUTHORIZED,
    SocketClosed,
    TakenOver,
    WebSocket,
    first_frame,
    served,
    text_frame,
)
from core.access import NOBODY, REVOKED, Principal
from core.refused import Refused
from core.wire import ConversationId, InvalidJson, Micros, Seq, event_time, micros, now
from schemas.conversations import ConversationInfo, with_skills
from schemas.errors import validation_errors
from schemas.events import Follow, InboundMessage
from schemas.fields import read_said
from store import Store
from store.approvals.audit import is_decision
from store.approvals.effects import COMMAND_OUTPUT
from store.errors import (
    FULL,
    REDIS_FULL,
    UNAVAILABLE,
    ConversationNotFound,
    StoreFull,
)
from store.link.connection import NotKept
from store.log.feed import FeedEntry, Follower

#: Allowed query of a socket: its cursor and its key.
_QUERY = frozenset({*Follow().fields, "session_api_key", "ticket"})

#: End of a state event that this server generated.
_STATE_UPDATE = b'"kind":"ConversationStateUpdateEvent"}'

#: Maximum wait for events, in seconds, before a socket's thread checks that the socket is open.
_EVENT_TIMEOUT = 60.0

_log = logging.getLogger(__name__)

sockets = Blueprint("sockets", __name__, url_prefix="/sockets")


@sockets.get("/events/<conversation_id:conversation_id>")  # without an upgrade the response is 426
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
            SocketSession(current_commands.of(current_actor()), g.principal, conversation_id, socket, **cursor).serve()
    return TakenOver()


class SocketSession:
    """A client that follows a conversation."""

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
        """Raises the errors of `Followers.follow`, or one of UNAVAILABLE."""
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
        """Complete the handshake, then serve until either side ends the socket."""
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
        except Exception:  # a bug: after the handshake no response can report it
            _log.exception("socket of conversation %s", self._id)
        finally:
            self._follower.close()
            self._socket.close(INTERNAL_ERROR, "Internal error")
            if sender is not None:
                sender.join()

    def _send_events(self) -> None:
        """Send the state, then every event. Close the socket when no more events can come."""
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
        if any([self._calls_for_the_state(entry) for entry in entries]):  # a list: each check records the status
            self._send_state()

    def _is_wanted(self, entry: FeedEntry) -> bool:
        if entry.seq == 0 and not self._with_seq and self._is_of_ours(entry):
            return False
        if self._since is None or not 0 < entry.seq <= self._live_from:
            return True
        return micros(entry.fields["timestamp"]) >= self._since

    @staticmethod
    def _is_of_ours(entry: FeedEntry) -> bool:
        """Return whether the agent-server wire lacks an event: a decision, a new title, or partial command output."""
        if entry.raw.endswith(_STATE_UPDATE) or is_decision(entry):
            return True
        return COMMAND_OUTPUT.encode() in entry.raw and entry.fields.get("kind") == COMMAND_OUTPUT

    def _calls_for_the_state(self, entry: FeedEntry) -> bool:
        """Return whether a full state must follow an entry: a live entry that ends a run, with or without an event."""
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
        """Append a client's message to the conversation, or reply with an error event if it is invalid."""
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
        """Frame an event in the client's format. An event that is not in a log has seq 0."""
        if not self._with_seq:
            return text_frame(event)
        return text_frame(b'{"seq":%b,"event":%b}' % (str(seq).encode() if seq else b"null", event))


def _state(store: Store, conversation_id: ConversationId) -> dict[str, Any]:
    state: dict[str, Any] = ConversationInfo().dump(
        with_skills(store.conversations.get(conversation_id), include_skills=False)
    )
    return state


def _event(kind: str, **members: Any) -> bytes:
    """Make an event of this server that is not in a log."""
    event = {"id": str(uuid4()), "timestamp": event_time(now()), "source": "environment", **members, "kind": kind}
    return json.dumps(event).encode()
