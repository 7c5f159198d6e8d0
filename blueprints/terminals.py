"""WebSockets to the shells of a sandbox: a terminal, and single commands.

A terminal belongs to a conversation's sandbox. The agent server creates the pseudo-terminal, so it has the agent's
confinement. Input is forwarded unchanged, and output is sent unchanged in binary messages. Neither is masked or stored.
The audit of the conversation records who opened the terminal and when, before the sandbox is asked. Source:
docs/wire.md, 14; docs/console.md, "Terminal: what it may reach".

| close code | when                                                                      |
|------------|---------------------------------------------------------------------------|
| 1000       | the shell has ended                                                       |
| 1001       | the client answers no pings; no input for too long                        |
| 1008       | the key lacks a scope; the sandbox has no terminal, or does not run       |
| 1009       | a message has too many bytes or too many fragments                        |
| 1011-1013  | as for the socket of events                                               |
| 4001       | no or a wrong key in the first frame; a key that was revoked or expired   |
| 4004       | the conversation does not exist                                           |

Commands: a client sends commands and gets their output. A command goes to the caller's own sandbox, like a call of
/api/bash without a conversation. If there are several sandboxes, it is that of the conversation that works in the
command's `cwd`. The socket reports commands that came over it. With `resend_mode=all` it first reports, once, earlier
commands of its only sandbox. GET /api/bash/bash_events/search lists all. Source: the wire of the agent server.
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
from agents.forwarding import ClientGone, ConversationFolder, ForwardedCall, Forwarding, SandboxNotNamed
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
from schemas.conversations import SocketBashCommand
from schemas.errors import validation_errors
from schemas.fields import read_said, read_told
from schemas.forwarding import TerminalMessage, TerminalSize
from store import Store
from store.approvals.audit import DecisionActor
from store.errors import UNAVAILABLE, Stopping, StoreError
from store.sandboxes.sandboxes import SandboxId

terminals = Blueprint("terminals", __name__, url_prefix="/sockets")

#: Allowed query of a terminal's socket.
_QUERY = frozenset({"cols", "rows", "session_api_key", "ticket"})

#: Maximum size of a message, in bytes: MOST_INPUT characters of up to twelve bytes in JSON, and their member.
_MOST_MESSAGE = 64 * 1024

#: Maximum time without input, and maximum lifetime of a terminal, in seconds.
IDLE, LONGEST = 15 * 60.0, 8 * 3600.0

#: Intervals in seconds: between two checks of these limits, and between two updates of the sandbox's last use.
_POLL, _USE = 1.0, 10.0

_ENDED = 1000

#: Refusals of a terminal.
_REFUSALS: tuple[type[Exception], ...] = (Refused, NotReachable, AgentUnreachable)

#: Errors that may prevent the closing entry.
_NOT_NOTED: tuple[type[Exception], ...] = (StoreError, *UNAVAILABLE)

NEEDS_BOTH = "A terminal runs unapproved commands: it needs a key with the scopes write and approve"

_log = logging.getLogger(__name__)


#: Allowed query of the socket of commands.
_QUERY_OF_COMMANDS = frozenset({"resend_mode", "session_api_key"})

#: Maximum number of commands and outputs of a page.
_PAGE = 100

#: Maximum number of concurrent commands of a socket.
_MOST_COMMANDS = 8

#: Shortest and longest delay between two polls for the output of a command, in seconds.
_FIRST_POLL, _SLOWEST_POLL = 0.1, 1.0

#: Time in seconds for which a command is followed after its own timeout.
_GRACE = 60.0

#: Refusals of a command.
_REFUSALS_OF_COMMANDS: tuple[type[Exception], ...] = (*_REFUSALS, *UNAVAILABLE)


@terminals.get("/terminals/<conversation_id:conversation_id>")  # without an upgrade the response is 426
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
    """Accept the socket, and close it if the caller lacks a scope. Return whether the caller is admitted."""
    if g.principal is NOBODY:
        g.principal = first_frame(socket, current_server().guard)
    else:
        socket.accept()
    if all(map(g.principal.may, needed)):
        return True
    socket.close(REFUSED, refusal)
    return False


class TerminalSession:
    """A terminal of a client. The request's thread receives input, and a second thread sends output."""

    def __init__(
        self,
        store: Store,
        forwarding: Forwarding,
        conversation_id: ConversationId,
        actor: DecisionActor,
        socket: WebSocket,
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
        except _NOT_NOTED as error:  # deleted meanwhile, or the store is unavailable: no client waits for this
            _log.warning(
                "terminal %s of conversation %s has no closing entry: %s", self._id, self._conversation_id, error
            )

    def _take(self, tunnel: Tunnel, message: bytes) -> None:
        """Forward a client's message. Raises SocketClosed."""
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
        """Send the terminal's output. Close the socket at its end, and at the time limits."""
        used_at = began
        try:
            while (piece := tunnel.receive(_POLL)) != b"":
                if piece is not None:
                    self._socket.send(binary_frame(piece))
                now = time.monotonic()
                if now - self._typed_at > IDLE:
                    return self._socket.close(GOING_AWAY, f"There was no input for {IDLE / 60:.0f} minutes")
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


@bash_socket.get("/bash-events")  # without an upgrade the response is 426
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
    """The open sockets of this process, which end when it stops. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = set[WebSocket]()
        self._is_stopping = False

    @contextmanager
    def holding(self, socket: WebSocket) -> Iterator[None]:
        """Let `stop` end the socket during the block. Raises Stopping."""
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
        """End every socket, and refuse new ones, because this process stops."""
        with self._lock:
            self._is_stopping = True
            ended = list(self._open)
        for socket in ended:
            socket.close(CLOSE_CODES[Stopping], str(Stopping()))


class CommandSocket:
    """The commands of a socket. A thread follows each command until it or the socket ends."""

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
            command = SocketBashCommand().load(received)
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
        folder = ConversationFolder.in_sandbox(self._store, sandbox_id, self._owner)
        return folder.mapped_json(json.dumps(command).encode(), is_command=True)

    def _follow(self, sandbox_id: SandboxId, command_id: str, seconds: int) -> None:
        deadline, pause, order = time.monotonic() + seconds + _GRACE, _FIRST_POLL, -1
        pages = _TerminalPages(self._ask, sandbox_id)
        while time.monotonic() < deadline:
            query = f"kind__eq=BashOutput&command_id__eq={quote(command_id)}&order__gt={order}&sort_order=TIMESTAMP"
            try:
                outputs = _events_of(pages.ask(query))
            except ResponseTooLong as fault:  # skip a single output that is too long
                self._send_error(type(fault).__name__, f"Output {order + 1} of this command is left out: {fault}")
                order, pages = order + 1, _TerminalPages(self._ask, sandbox_id)
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
        self._send_error(
            "CommandNotEnded", f"The agent server has not reported the end of command {command_id} in time"
        )

    def _resend(self) -> None:
        try:
            sandbox_id, page_id = self._forwarding.own_sandbox(self._owner, lambda: ()), ""
            pages = _TerminalPages(self._ask, sandbox_id)
            while True:
                page = pages.ask(page_id)
                for event in _events_of(page):
                    self._send(event)
                if page.get("next_page_id") is None:
                    return
                page_id = f"page_id={quote(_member(page, 'next_page_id', str))}"
        except SandboxNotNamed:
            return  # no sandbox has run a command, or the sandbox is ambiguous
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
        """Return the JSON of an agent server's response.

        Raises AgentUnreachable and the errors of `Forwarding.open`.
        """
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
            raise AgentUnreachable("The agent server's response is not a JSON object")
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


class _TerminalPages:
    """Pages of the commands and outputs of a sandbox.

    A page that is too long is requested again with half the limit.
    """

    def __init__(self, ask: Callable[[SandboxId, str, str, str], dict[str, Any]], sandbox_id: SandboxId) -> None:
        self._ask, self._sandbox_id, self._limit = ask, sandbox_id, _PAGE

    def ask(self, query: str) -> dict[str, Any]:
        """Return a page of a query. Raises ResponseTooLong if a single event is too long, and the errors of `_ask`."""
        while True:
            asked = "&".join(filter(None, (f"limit={self._limit}", query)))
            try:
                return self._ask(self._sandbox_id, "GET", "bash_events/search", asked)
            except ResponseTooLong:
                if self._limit == 1:
                    raise
                self._limit //= 2


def _events_of(page: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the events of a page. Raises AgentUnreachable, because any program in a sandbox can respond."""
    events: list[dict[str, Any]] = _member(page, "items", list)
    if not all(isinstance(event, dict) for event in events):
        raise AgentUnreachable("The agent server's response is not a page of events")
    return events


def _member(told: dict[str, Any], name: str, kind: type) -> Any:
    """Return a member of an agent server's response. Raises AgentUnreachable if it is missing or has another type."""
    value = told.get(name)
    if type(value) is not kind:
        raise AgentUnreachable(f"The agent server's response has no {name} that can be read")
    return value
