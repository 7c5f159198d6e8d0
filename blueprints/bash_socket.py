"""Commands in a sandbox over a WebSocket: a client sends commands, and gets what each prints. Source: the wire of the
agent server.

A command goes to the caller's own sandbox, as a call of /api/bash without a conversation does: of several sandboxes the
one whose conversation works in the command's `cwd`. The socket tells of the commands that came over it; with
`resend_mode=all` also, once, of those that its one sandbox had before. GET /api/bash/bash_events/search lists all.
"""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from flask import Blueprint, Response, current_app, g, request
from marshmallow import ValidationError

from agents.client import MOST_BYTES, AgentUnreachable
from agents.forwarding import Call, ClientGone, Folder, Forwarding, SandboxNotNamed
from agents.waking import NotReachable
from blueprints import current_store
from blueprints.api import needs, refuse_unknown
from blueprints.sockets import (
    CLOSE_CODES,
    REFUSED,
    UNAUTHORIZED,
    SocketClosed,
    TakenOver,
    WebSocket,
    first_frame,
    served,
    text_frame,
)
from core.access import NOBODY, REVOKED
from core.refused import Refused
from core.wire import InvalidJson, event_time, now, parse_json
from schemas.conversations import BashCommand
from schemas.errors import validation_errors
from schemas.fields import read_said
from store import Store
from store.errors import UNAVAILABLE, Stopping
from store.sandboxes.sandboxes import SandboxId

bash_socket = Blueprint("bash_socket", __name__, url_prefix="/sockets")

#: what the query of the socket may have
_QUERY = frozenset({"resend_mode", "session_api_key"})

#: commands of one socket that are followed at once
_MOST_COMMANDS = 8

#: seconds between two polls for what a command has printed: at first, and at most
_POLL, _SLOWEST_POLL = 0.1, 1.0

#: seconds for which a command is followed beyond its own timeout
_GRACE = 60.0

#: what a command can be refused with
_REFUSALS: tuple[type[Exception], ...] = (Refused, NotReachable, AgentUnreachable, *UNAVAILABLE)


@bash_socket.get("/bash-events")  # a plain request, whose response is 426
@bash_socket.get("/bash-events", websocket=True)
@needs("approve")
def follow_commands() -> Response:
    """Serve the socket until either side ends it."""
    refuse_unknown(_QUERY)
    guard = current_app.extensions["guard"]
    store: Store = current_store._get_current_object()  # type: ignore[attr-defined]
    resends = request.args.get("resend_mode") == "all"
    with served() as socket:
        if g.principal is NOBODY:
            g.principal = first_frame(socket, guard)
        else:
            socket.accept()
        if not g.principal.may("approve"):
            socket.close(REFUSED, "Commands need a key with the scope approve")
            return TakenOver()
        ends = guard.following.going_on(g.principal, lambda: socket.close(UNAUTHORIZED, REVOKED))
        with current_app.extensions["bash_sockets"].holding(socket), ends:
            Terminal(store, current_app.extensions["forwarding"], g.principal.owner, socket).serve(resends=resends)
    return TakenOver()


class OpenSockets:
    """The sockets of this process, which end when it stops. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = set[WebSocket]()
        self._is_stopping = False

    @contextmanager
    def holding(self, socket: WebSocket) -> Iterator[None]:
        """Within the block a stop ends the socket. Raises Stopping."""
        with self._lock:
            if self._is_stopping:
                raise Stopping
            self._open.add(socket)
        try:
            yield
        finally:
            with self._lock:
                self._open.discard(socket)

    def stop(self) -> None:
        """End every socket, and refuse new ones: this process stops."""
        with self._lock:
            self._is_stopping = True
            ended = list(self._open)
        for socket in ended:
            socket.close(CLOSE_CODES[Stopping], str(Stopping()))


class Terminal:
    """The commands of one socket. Each is followed by a thread of its own, until its end or that of the socket."""

    def __init__(self, store: Store, forwarding: Forwarding, owner: str, socket: WebSocket) -> None:
        self._store = store
        self._forwarding = forwarding
        self._owner = owner
        self._socket = socket
        self._room = threading.Semaphore(_MOST_COMMANDS)
        self._has_ended = threading.Event()

    def serve(self, *, resends: bool) -> None:
        """Take commands until the socket ends. Raises SocketClosed."""
        try:
            if resends:
                self._resend()
            while True:
                self._take(self._socket.receive())
        finally:
            self._has_ended.set()

    def _take(self, message: bytes) -> None:
        try:
            received = read_said(message)
            if isinstance(received, dict) and received.get("type") == "auth":
                return
            command = BashCommand().load(received)
        except InvalidJson as fault:
            return self._send_error("JSONDecodeError", f"Invalid JSON: {fault}")
        except ValidationError as fault:
            return self._send_error(
                "ValidationError", json.dumps(validation_errors("body", fault.normalized_messages()))
            )
        if not self._room.acquire(blocking=False):
            return self._send_error(
                "TooManyCommands", f"{_MOST_COMMANDS} commands of this socket run already: wait for one"
            )
        threading.Thread(target=self._run, args=(command,), daemon=True).start()
        return None

    def _run(self, command: dict[str, Any]) -> None:
        try:
            paths = [command["cwd"]] if command["cwd"] else []
            sandbox_id = self._forwarding.own_sandbox(self._owner, lambda: paths)
            folder = Folder.in_sandbox(self._store, sandbox_id)
            body = folder.mapped_json(json.dumps(command).encode(), is_command=True)
            started = self._ask(sandbox_id, "POST", "start_bash_command", content=body)
            self._send(started)
            self._follow(sandbox_id, started["id"], command["timeout"])
        except (SocketClosed, ClientGone):
            pass
        except _REFUSALS as fault:
            self._send_error(type(fault).__name__, str(fault))
        finally:
            self._room.release()

    def _follow(self, sandbox_id: SandboxId, command_id: str, seconds: int) -> None:
        deadline, pause, order = time.monotonic() + seconds + _GRACE, _POLL, -1
        while time.monotonic() < deadline:
            query = f"kind__eq=BashOutput&command_id__eq={command_id}&order__gt={order}&sort_order=TIMESTAMP"
            page = self._ask(sandbox_id, "GET", "bash_events/search", query)
            for output in page["items"]:
                self._send(output)
                order = max(order, output["order"])
                if output.get("exit_code") is not None:
                    return
            pause = _POLL if page["items"] else min(2 * pause, _SLOWEST_POLL)
            if self._has_ended.wait(pause):
                return

    def _resend(self) -> None:
        try:
            sandbox_id, page_id = self._forwarding.own_sandbox(self._owner, lambda: ()), ""
            while True:
                page = self._ask(sandbox_id, "GET", "bash_events/search", f"limit=100{page_id}")
                for event in page["items"]:
                    self._send(event)
                if page["next_page_id"] is None:
                    return
                page_id = f"&page_id={page['next_page_id']}"
        except SandboxNotNamed:
            return  # none has run a command, or it is not said which
        except _REFUSALS as fault:
            self._send_error(type(fault).__name__, str(fault))

    def _ask(self, sandbox_id: SandboxId, method: str, path: str, query: str = "", content: bytes | None = None) -> Any:
        """The JSON of an agent server's response. Raises AgentUnreachable and what `Forwarding.open` raises."""
        headers = {} if content is None else {"Content-Type": "application/json"}
        sent = content, None, str, self._require_client
        call = Call(method, f"/api/bash/{path}", query.encode(), headers.get, *sent)
        answer = self._forwarding.open(sandbox_id, call)
        try:
            raw = b""
            for piece in answer:
                raw += piece
                if len(raw) > MOST_BYTES:
                    raise AgentUnreachable(f"The agent server's response has more than {MOST_BYTES} bytes")
        finally:
            answer.close()
        try:
            body = parse_json(raw)
        except InvalidJson:
            body = None
        if answer.status >= 300:
            said = body.get("detail") if isinstance(body, dict) else None
            raise AgentUnreachable(said if isinstance(said, str) else f"The agent server answers {answer.status}")
        if not isinstance(body, dict):
            raise AgentUnreachable("The agent server's response is no JSON object")
        return body

    def _require_client(self) -> None:
        if self._has_ended.is_set():
            raise ClientGone

    def _send(self, event: dict[str, Any]) -> None:
        self._socket.send(text_frame(json.dumps(event).encode()))

    def _send_error(self, code: str, detail: str) -> None:
        event = {
            "id": str(uuid4()),
            "timestamp": event_time(now()),
            "code": code,
            "detail": detail,
            "kind": "BashError",
        }
        try:
            self._send(event)
        except SocketClosed:
            self._has_ended.set()
