"""WebSockets to the shells of a sandbox: a terminal, and single commands.

A terminal is that of a conversation's sandbox. The agent server makes the pseudo-terminal, so it is confined as the
agent is. What is typed goes to it as the client sent it, and what it prints comes as it is, in binary messages: nothing
is masked, and nothing of it is kept. The audit of the conversation has who opened it, and when: the entry is written
before the sandbox is asked. Source: docs/wire.md, 14; docs/console.md, "Terminal: what it may reach".

| close code | when                                                                      |
|------------|---------------------------------------------------------------------------|
| 1000       | the shell has ended                                                       |
| 1001       | the client answers no pings; nothing was typed for too long               |
| 1008       | the key has not both scopes; the sandbox has no terminal, or does not run |
| 1009       | a message has too many bytes or too many fragments                        |
| 1011-1013  | as of the socket of events                                                |
| 4001       | no or a wrong key in the first frame; a key that was revoked or expired   |
| 4004       | the conversation does not exist                                           |

Commands: a client sends them, and gets what each prints. A command goes to the caller's own sandbox, as a call of
/api/bash without a conversation does: of several sandboxes the one whose conversation works in the command's `cwd`. The
socket tells of the commands that came over it; with `resend_mode=all` also, once, of those that its one sandbox had
before. GET /api/bash/bash_events/search lists all. Source: the wire of the agent server.
"""

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn
from urllib.parse import quote
from uuid import uuid4

from flask import Blueprint, Response, g, request
from marshmallow import ValidationError

from agents.client import MOST_BYTES, AgentUnreachable, ResponseTooLong
from agents.forwarding import ClientGone, Folder, ForwardedCall, Forwarding, SandboxNotNamed
from agents.tunnels import Tunnel, open_tunnel
from agents.waking import NotReachable
from blueprints import current_actor, current_server, current_store
from blueprints.api import StrictParser, needs, refuse_unknown
from blueprints.request_log import note
from blueprints.websocket import (
    CLOSE_CODES,
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
    text_frame,
)
from core.access import NOBODY, REVOKED, Scope
from core.refused import Refused
from core.wire import MOST_VALUES, ConversationId, InvalidJson, TooManyValues, event_time, now
from schemas.conversations import BashCommand
from schemas.errors import validation_errors
from schemas.fields import read_said, read_told
from schemas.forwarding import TerminalMessage, TerminalSize
from store import Store
from store.approvals.audit import Actor
from store.errors import UNAVAILABLE, Stopping, StoreError
from store.sandboxes.sandboxes import SandboxId

terminals = Blueprint("terminals", __name__, url_prefix="/sockets")

#: what the query of the socket of a terminal may have
_QUERY = frozenset({"cols", "rows", "session_api_key", "ticket"})

#: most bytes of a message: MOST_INPUT characters, each of which JSON may write in twelve bytes, and their member
_MOST_MESSAGE = 64 * 1024

#: seconds without a key that was pressed, and seconds in all, after which a terminal ends
IDLE, LONGEST = 15 * 60.0, 8 * 3600.0

#: seconds between two checks of these bounds, and between two notes that the sandbox is in use
_POLL, _USE = 1.0, 10.0

_ENDED = 1000

#: what a terminal may be refused with
_REFUSALS: tuple[type[Exception], ...] = (Refused, NotReachable, AgentUnreachable)

#: what may keep the closing entry from being written
_NOT_NOTED: tuple[type[Exception], ...] = (StoreError, *UNAVAILABLE)

NEEDS_BOTH = "A terminal runs what nobody approves: it needs a key with the scopes write and approve"

_log = logging.getLogger(__name__)


#: what the query of the socket of commands may have
_QUERY_OF_COMMANDS = frozenset({"resend_mode", "session_api_key"})

#: commands and outputs of a page, at most
_PAGE = 100

#: commands of one socket that are followed at once
_MOST_COMMANDS = 8

#: seconds between two polls for what a command has printed: at first, and at most
_FIRST_POLL, _SLOWEST_POLL = 0.1, 1.0

#: seconds for which a command is followed beyond its own timeout
_GRACE = 60.0

#: what a command can be refused with
_REFUSALS_OF_COMMANDS: tuple[type[Exception], ...] = (*_REFUSALS, *UNAVAILABLE)


@terminals.get("/terminals/<conversation_id:conversation_id>")  # a plain request, whose response is 426
@terminals.get("/terminals/<conversation_id:conversation_id>", websocket=True)
@needs("write", ticket=True)
def open_terminal(conversation_id: ConversationId) -> Response:
    """Serve the terminal until either side ends it."""
    refuse_unknown(_QUERY)
    size, guard = StrictParser().parse(TerminalSize(), location="query"), current_server().guard
    store: Store = current_store._get_current_object()  # type: ignore[attr-defined]
    with served(*_REFUSALS, message_bytes=_MOST_MESSAGE) as socket:
        if not _admitted(socket, ("write", "approve"), NEEDS_BOTH):
            return TakenOver()
        ends = guard.following.going_on(g.principal, lambda: socket.close(UNAUTHORIZED, REVOKED))
        with current_server().bash_sockets.holding(socket), ends:
            TerminalSession(store, current_server().forwarding, conversation_id, current_actor(), socket).serve(size)
    return TakenOver()


def _admitted(socket: WebSocket, needed: tuple[Scope, ...], refusal: str) -> bool:
    """Accept the socket, and close it again unless the one who asks has the scopes that it needs."""
    if g.principal is NOBODY:
        g.principal = first_frame(socket, current_server().guard)
    else:
        socket.accept()
    if all(map(g.principal.may, needed)):
        return True
    socket.close(REFUSED, refusal)
    return False


class TerminalSession:
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


bash_socket = Blueprint("bash_socket", __name__, url_prefix="/sockets")


@bash_socket.get("/bash-events")  # a plain request, whose response is 426
@bash_socket.get("/bash-events", websocket=True)
@needs("approve")
def follow_commands() -> Response:
    """Serve the socket until either side ends it."""
    refuse_unknown(_QUERY_OF_COMMANDS)
    guard = current_server().guard
    store: Store = current_store._get_current_object()  # type: ignore[attr-defined]
    resends = request.args.get("resend_mode") == "all"
    with served() as socket:
        if not _admitted(socket, ("approve",), "Commands need a key with the scope approve"):
            return TakenOver()
        ends = guard.following.going_on(g.principal, lambda: socket.close(UNAUTHORIZED, REVOKED))
        with current_server().bash_sockets.holding(socket), ends:
            CommandSocket(store, current_server().forwarding, g.principal.owner, socket).serve(resends=resends)
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


class CommandSocket:
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
            started = self._ask(
                sandbox_id, "POST", "start_bash_command", content=lambda: self._mapped(sandbox_id, command)
            )
            command_id = _member(started, "id", str)
            self._send(started)
            self._follow(sandbox_id, command_id, command["timeout"])
        except (SocketClosed, ClientGone):
            pass
        except _REFUSALS_OF_COMMANDS as fault:
            self._send_error(type(fault).__name__, str(fault))
        finally:
            self._room.release()

    def _mapped(self, sandbox_id: SandboxId, command: dict[str, Any]) -> bytes:
        folder = Folder.in_sandbox(self._store, sandbox_id, self._owner)
        return folder.mapped_json(json.dumps(command).encode(), is_command=True)

    def _follow(self, sandbox_id: SandboxId, command_id: str, seconds: int) -> None:
        deadline, pause, order = time.monotonic() + seconds + _GRACE, _FIRST_POLL, -1
        pages = _Pages(self._ask, sandbox_id)
        while time.monotonic() < deadline:
            query = f"kind__eq=BashOutput&command_id__eq={quote(command_id)}&order__gt={order}&sort_order=TIMESTAMP"
            try:
                outputs = _events_of(pages.ask(query))
            except ResponseTooLong as fault:  # one output alone: what follows is sent, the exit code too
                self._send_error(type(fault).__name__, f"Output {order + 1} of this command is left out: {fault}")
                order, pages = order + 1, _Pages(self._ask, sandbox_id)
                if self._has_ended.wait(_FIRST_POLL):
                    return
                continue
            for output in outputs:
                order = max(order, _member(output, "order", int))
                self._send(output)
                if output.get("exit_code") is not None:
                    return
            pause = _FIRST_POLL if outputs else min(2 * pause, _SLOWEST_POLL)
            if self._has_ended.wait(pause):
                return
        self._send_error("CommandNotEnded", f"The agent server has not told the end of command {command_id} in time")

    def _resend(self) -> None:
        try:
            sandbox_id, page_id = self._forwarding.own_sandbox(self._owner, lambda: ()), ""
            pages = _Pages(self._ask, sandbox_id)
            while True:
                page = pages.ask(page_id)
                for event in _events_of(page):
                    self._send(event)
                if page.get("next_page_id") is None:
                    return
                page_id = f"page_id={quote(_member(page, 'next_page_id', str))}"
        except SandboxNotNamed:
            return  # none has run a command, or it is not said which
        except _REFUSALS_OF_COMMANDS as fault:
            self._send_error(type(fault).__name__, str(fault))

    def _ask(
        self,
        sandbox_id: SandboxId,
        method: str,
        path: str,
        query: str = "",
        content: Callable[[], bytes] | None = None,
    ) -> dict[str, Any]:
        """The JSON of an agent server's response. Raises AgentUnreachable and what `Forwarding.open` raises."""
        headers = {} if content is None else {"Content-Type": "application/json"}
        sent = content, None, str, self._require_client
        call = ForwardedCall(method, f"/api/bash/{path}", query.encode(), headers.get, *sent)
        answer = self._forwarding.open(sandbox_id, call)
        try:
            raw = b""
            for piece in answer:
                raw += piece
                if len(raw) > MOST_BYTES:
                    raise ResponseTooLong
        finally:
            answer.close()
        try:
            body = read_told(raw)
        except TooManyValues as error:
            raise ResponseTooLong(f"{MOST_VALUES} values") from error
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


class _Pages:
    """Pages of the commands and outputs of a sandbox. One that is too long is asked for again, half as long."""

    def __init__(self, ask: Callable[[SandboxId, str, str, str], dict[str, Any]], sandbox_id: SandboxId) -> None:
        self._ask, self._sandbox_id, self._limit = ask, sandbox_id, _PAGE

    def ask(self, query: str) -> dict[str, Any]:
        """A page of what a query finds. Raises ResponseTooLong where one event alone is, and as `_ask`."""
        while True:
            asked = "&".join(filter(None, (f"limit={self._limit}", query)))
            try:
                return self._ask(self._sandbox_id, "GET", "bash_events/search", asked)
            except ResponseTooLong:
                if self._limit == 1:
                    raise
                self._limit //= 2


def _events_of(page: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of a page. Raises AgentUnreachable: what runs in a sandbox can answer in its agent server's place."""
    events: list[dict[str, Any]] = _member(page, "items", list)
    if not all(isinstance(event, dict) for event in events):
        raise AgentUnreachable("The agent server's response is not a page of events")
    return events


def _member(told: dict[str, Any], name: str, kind: type) -> Any:
    """A member of what an agent server tells. Raises AgentUnreachable where it is missing or of another kind."""
    value = told.get(name)
    if type(value) is not kind:
        raise AgentUnreachable(f"The agent server's response has no {name} that can be read")
    return value
