"""A terminal in the sandbox of a conversation, over a WebSocket. Source: docs/wire.md, 6; docs/console.md, "Terminal".

The agent server makes the pseudo-terminal, so it is confined as the agent is. What is typed goes to it as the client
sent it, and what it prints comes as it is, in binary messages: nothing is masked, and nothing of it is kept. The audit
of the conversation has who opened it, and when: the entry is written before the sandbox is asked.

| close code | when                                                                      |
|------------|---------------------------------------------------------------------------|
| 1000       | the shell has ended                                                       |
| 1001       | the client answers no pings; nothing was typed for too long               |
| 1008       | the key has not both scopes; the sandbox has no terminal, or does not run |
| 1009       | a message has too many bytes or too many fragments                        |
| 1012, 1013 | as of the socket of events                                                |
| 4001       | no or a wrong key in the first frame; a key that was revoked or expired   |
| 4004       | the conversation does not exist                                           |
"""

import json
import logging
import threading
import time
from contextlib import suppress
from typing import NoReturn
from uuid import uuid4

from flask import Blueprint, Response, current_app, g, request
from marshmallow import ValidationError

from agents.client import AgentUnreachable
from agents.forwarding import Forwarding
from agents.tunnels import Tunnel, open_tunnel
from agents.waking import NotReachable
from blueprints import current_actor, current_store
from blueprints.api import InvalidInput, needs, refuse_unknown
from blueprints.request_log import note
from blueprints.sockets import (
    GOING_AWAY,
    INTERNAL_ERROR,
    REFUSED,
    UNAUTHORIZED,
    SocketClosed,
    TakenOver,
    WebSocket,
    binary_frame,
    first_frame,
    served,
)
from core.access import NOBODY, REVOKED
from core.refused import Refused
from core.wire import ConversationId, InvalidJson
from schemas.fields import read_said
from schemas.forwarding import TerminalMessage, TerminalSize
from store import Store
from store.approvals.audit import Actor
from store.errors import UNAVAILABLE, StoreError
from store.sandboxes.sandboxes import SandboxId

terminals = Blueprint("terminals", __name__, url_prefix="/sockets")

#: what the query of the socket may have
_QUERY = frozenset({"cols", "rows", "session_api_key", "ticket"})

#: most bytes of a message: MOST_INPUT characters, each of which JSON may write in twelve bytes, and their member
_MOST_MESSAGE = 64 * 1024

#: seconds without a key that was pressed, and seconds in all, after which a terminal ends
IDLE, LONGEST = 15 * 60.0, 8 * 3600.0

#: seconds between two looks at these bounds, and between two notes that the sandbox is in use
_POLL, _USE = 1.0, 10.0

_ENDED = 1000

#: what a terminal may be refused with
_REFUSALS: tuple[type[Exception], ...] = (Refused, NotReachable, AgentUnreachable)

#: what may keep the closing entry from being written
_NOT_NOTED: tuple[type[Exception], ...] = (StoreError, *UNAVAILABLE)

NEEDS_BOTH = "A terminal runs what nobody approves: it needs a key with the scopes write and approve"

_log = logging.getLogger(__name__)


@terminals.get("/terminals/<conversation_id:conversation_id>")  # a plain request, whose response is 426
@terminals.get("/terminals/<conversation_id:conversation_id>", websocket=True)
@needs("write", ticket=True)
def open_terminal(conversation_id: ConversationId) -> Response:
    """Serve the terminal until either side ends it."""
    size, guard = _size(), current_app.extensions["guard"]
    store: Store = current_store._get_current_object()  # type: ignore[attr-defined]
    with served(*_REFUSALS, message_bytes=_MOST_MESSAGE) as socket:
        if g.principal is NOBODY:
            g.principal = first_frame(socket, guard)
        else:
            socket.accept()
        if not (g.principal.may("write") and g.principal.may("approve")):
            socket.close(REFUSED, NEEDS_BOTH)
            return TakenOver()
        ends = guard.following.going_on(g.principal, lambda: socket.close(UNAUTHORIZED, REVOKED))
        with current_app.extensions["bash_sockets"].holding(socket), ends:
            Session(store, current_app.extensions["forwarding"], conversation_id, current_actor(), socket).serve(size)
    return TakenOver()


def _size() -> dict[str, int]:
    refuse_unknown(_QUERY)
    sent = {name: text for name, text in request.args.to_dict().items() if name in ("cols", "rows")}
    try:
        size: dict[str, int] = TerminalSize().load(sent)
    except ValidationError as fault:
        raise InvalidInput("query", fault.normalized_messages()) from None
    return size


class Session:
    """One terminal of one client. The request's thread receives what is typed, a second one sends what is printed."""

    def __init__(
        self, store: Store, forwarding: Forwarding, conversation_id: ConversationId, actor: Actor, socket: WebSocket
    ) -> None:
        self._store = store
        self._forwarding = forwarding
        self._conversation_id = conversation_id
        self._actor = actor
        self._socket = socket
        self._id = uuid4().hex[:12]
        self._typed_at = time.monotonic()

    def serve(self, size: dict[str, int]) -> None:
        """Open the terminal and serve it. Raises SocketClosed at its end, one of _REFUSALS or UNAVAILABLE before."""
        sandbox_id = self._forwarding.sandbox_of(self._conversation_id)
        url, key = self._forwarding.awake(sandbox_id)
        path = f"/api/conversations/{self._conversation_id}/terminal?cols={size['cols']}&rows={size['rows']}"
        audit, began = self._store.approvals.terminals, time.monotonic()
        audit.opened(self._conversation_id, self._actor, self._id, sandbox_id)
        note("opened", began=began, method="SOCKET")
        try:
            tunnel = open_tunnel(url, key, path, "terminal")
            printer = threading.Thread(target=self._print, args=(tunnel, sandbox_id, began), daemon=True)
            printer.start()
            try:
                while True:
                    self._take(tunnel, self._socket.receive())
            finally:
                tunnel.close()
                printer.join()
        finally:
            note("closed", began=began, method="SOCKET")
            self._note_end(sandbox_id, time.monotonic() - began)

    def _note_end(self, sandbox_id: SandboxId, seconds: float) -> None:
        try:
            self._store.approvals.terminals.closed(self._conversation_id, self._actor, self._id, sandbox_id, seconds)
        except _NOT_NOTED as error:  # deleted meanwhile, or the store is away: nobody waits for this
            _log.warning(
                "terminal %s of conversation %s has no closing entry: %s", self._id, self._conversation_id, error
            )

    def _take(self, tunnel: Tunnel, message: bytes) -> None:
        """Send on what the client says. Raises SocketClosed."""
        try:
            received = read_said(message)
            if isinstance(received, dict) and received.get("type") == "auth":
                return
            told = TerminalMessage().load(received)
        except InvalidJson as fault:
            self._end(REFUSED, f"Invalid JSON: {fault}")
        except ValidationError as fault:
            self._end(REFUSED, json.dumps(fault.normalized_messages()))
        if "input" in told:
            self._typed_at = time.monotonic()
        try:
            tunnel.send(json.dumps(told).encode() + b"\n")
        except AgentUnreachable as fault:
            self._end(REFUSED, str(fault))

    def _end(self, code: int, reason: str) -> NoReturn:
        self._socket.close(code, reason)
        raise SocketClosed

    def _print(self, tunnel: Tunnel, sandbox_id: SandboxId, began: float) -> None:
        """Send what the terminal prints; close the socket at its end, and at the bounds in time."""
        used_at = began
        try:
            while (piece := tunnel.receive(_POLL)) != b"":
                if piece is not None:
                    self._socket.send(binary_frame(piece))
                now = time.monotonic()
                if now - self._typed_at > IDLE:
                    return self._socket.close(GOING_AWAY, f"Nothing was typed for {IDLE / 60:.0f} minutes")
                if now - began > LONGEST:
                    return self._socket.close(GOING_AWAY, f"A terminal ends after {LONGEST / 3600:.0f} hours")
                if now - used_at > _USE:
                    used_at = now
                    with suppress(*UNAVAILABLE):
                        self._store.sandboxes.use(sandbox_id)
            self._socket.close(_ENDED, "The shell has ended")
        except SocketClosed:
            pass
        finally:
            self._socket.close(INTERNAL_ERROR, "Internal error")
