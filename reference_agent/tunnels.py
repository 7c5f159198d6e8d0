"""Connections of the bundled agent that HTTP is upgraded to: to a terminal, and to a port of the sandbox.

`GET /api/terminal` with `Upgrade: terminal`: a shell in a pseudo-terminal. The server sends lines of JSON,
`{"input": TEXT}` or `{"cols", "rows"}`, and receives the terminal's output. The end of the connection ends the shell
and its session. Input waits until a program reads it. A line in the output reports dropped input.

`GET /api/ports/PORT` with `Upgrade: tcp`: a connection to the program that listens there. `GET /api/ports`: the ports.
A sandbox without its own network shares the host's loopback. There a port counts only if a process with the sandbox's
mark, other than its launcher, holds the socket. A container has no mark.
"""

import contextlib
import errno
import fcntl
import json
import os
import select
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from flask import Blueprint, Response, abort, jsonify, request
from werkzeug.exceptions import HTTPException

from core.pseudo_terminals import pseudo_terminals
from reference_agent.api import asked_number, check_key
from reference_agent.printed import unread
from reference_agent.services import folder_of

MOST_TERMINALS = 4
#: Maximum columns and rows of a terminal, and bytes of one line from the server.
MOST_COLS, MOST_ROWS, _MOST_LINE = 500, 200, 64 * 1024
#: Size of one read, in bytes. Seconds between a hangup and a kill, and between two polls of the shell.
_PIECE, _GRACE = 16 * 1024, 1.0
_OPENING = 0.02  #: seconds between two polls whether a new shell has opened its terminal
#: Maximum bytes of waiting input, and bytes that a terminal accepts whenever it accepts any.
MOST_TYPED, _ROOM = 1 << 20, 256
_NEXT_TRY = 0.1  #: seconds between two tries to type waiting input
#: Signals of a terminal's special keys, by their index in the terminal's settings.
_KEYS = {termios.VINTR: signal.SIGINT, termios.VQUIT: signal.SIGQUIT, termios.VSUSP: signal.SIGTSTP}
_TIOCSIG = 0x40045436  #: signals the foreground process of a terminal. Source: asm-generic/ioctls.h
#: Opens the terminal by its name, so that it becomes the controlling one of the shell's session.
_SCRIPT = 'exec "$1" -i <>"$0" >&0 2>&0'
terminals = Blueprint("terminals", __name__)
terminals.before_request(check_key)

_terminals = threading.Semaphore(MOST_TERMINALS)
MOST_CONNECTIONS = 64
LEAST_PORT = 1024  #: minimum port; lower ports are egress proxies, which act for the sandbox
_MOST_LISTED = 100
_MOST_PROGRAM = 300  #: maximum characters of a command line
_CONNECT = 2.0  #: seconds for a program to accept a connection
#: The variable with the sandbox's folder, in the environment of all processes of a process sandbox.
_MARK = "AGENT_SANDBOX"


class TunnelUpgradeRequired(HTTPException):
    code = 426  #: a plain request to a path that needs an upgrade; Werkzeug has no exception for it


class ConsumedConnection(Response):
    """The response of a view that consumed the connection: nothing more is written on it."""

    def __call__(self, *_: Any) -> Any:
        raise ConnectionAbortedError("the connection has ended")


class TunnelTerminal:
    def __init__(self, folder: Path, cols: int, rows: int) -> None:
        self._master, slave = pseudo_terminals.open()
        self._name, self._waiting, self._refused, self._has_dropped = os.ttyname(slave), bytearray(), 0, False
        self._changed, self._is_over = threading.Condition(), False
        try:
            os.set_blocking(self._master, False)
            self.resize(cols, rows)
            words = ["/bin/sh", "-c", _SCRIPT, self._name, shutil.which("bash") or "/bin/sh"]
            env = {"HOME": str(Path.cwd()), "PS1": "\\w $ " if words[-1].endswith("bash") else "$ ", **os.environ}
            env |= {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
            # No history: the home is the working folder, so its files would be changes of the work.
            env |= {"HISTFILE": "", "LESSHISTFILE": "-"}
            self._shell = subprocess.Popen(words, cwd=folder, env=env, stdin=subprocess.DEVNULL, start_new_session=True)
        except BaseException:
            pseudo_terminals.close(self._master)
            raise
        finally:
            pseudo_terminals.close(slave)
        self._typist = threading.Thread(target=self._type, daemon=True)
        self._typist.start()

    def resize(self, cols: int, rows: int) -> None:
        size = max(1, min(rows, MOST_ROWS)), max(1, min(cols, MOST_COLS))
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))

    def type(self, text: str) -> None:
        """Queue a text until a program reads it. A text that is too long is dropped whole."""
        typed = text.encode("utf-8", "replace")
        with self._changed:
            if (number := self._signal_of(typed)) and (self._waiting or self._unread()):
                self._interrupt(number)
            elif len(self._waiting) + len(typed) > MOST_TYPED:
                self._refused += len(typed)
            else:
                self._waiting += typed
                self._changed.notify()

    def _signal_of(self, typed: bytes) -> signal.Signals | None:
        """Return the terminal's signal for a key; None for a key for the program."""
        modes = termios.tcgetattr(self._master)
        keys = {modes[6][place]: number for place, number in _KEYS.items()}
        return keys.get(typed) if modes[3] & termios.ISIG and typed != b"\0" else None  # NUL: no key is set

    def _unread(self) -> int:
        """Return the number of unread bytes. Linux handles a key only if the program has room for the bytes before."""
        with self._program_end() as slave:
            return unread(slave)

    def _interrupt(self, number: signal.Signals) -> None:
        """Signal the program, and drop its unread input, as Linux does for such a key."""
        self._waiting.clear()
        self._has_dropped = True
        with self._program_end() as slave:
            for file in (self._master, slave):  # in transit to the program, and readable by it
                termios.tcflush(file, termios.TCIOFLUSH)
        fcntl.ioctl(self._master, _TIOCSIG, number)

    @contextlib.contextmanager
    def _program_end(self) -> Iterator[int]:
        slave = os.open(self._name, os.O_RDWR | os.O_NOCTTY)
        try:
            yield slave
        finally:
            os.close(slave)

    def _type(self) -> None:
        while not self._is_over:
            with self._changed:
                while not (self._waiting or self._is_over):
                    self._changed.wait()
            if not select.select([], [self._master], [], _NEXT_TRY)[1]:
                continue
            with self._changed:
                try:
                    del self._waiting[: os.write(self._master, self._waiting[:_ROOM])]
                except BlockingIOError:
                    time.sleep(_OPENING)
                except OSError:  # the shell has ended
                    self._waiting.clear()

    def printed(self) -> bytes:
        """Return the next output, or a line about dropped input; b"" at the end."""
        while True:
            ready, _, _ = select.select([self._master], [], [], _GRACE)
            if notices := self._untyped():
                return notices
            try:
                if ready:
                    return os.read(self._master, _PIECE)
            except OSError as error:
                # EIO: the other end is not open, either not yet or not any more. EAGAIN: a key dropped the data.
                if error.errno not in (errno.EIO, errno.EAGAIN):
                    raise
                time.sleep(_OPENING)
            if self._shell.poll() is not None:  # a program that the shell left behind may hold the terminal
                return b""

    def _untyped(self) -> bytes:
        with self._changed:
            refused, has_dropped = self._refused, self._has_dropped
            self._refused, self._has_dropped = 0, False
        refusal = f"\r\n[{refused:,} bytes were dropped: at most {MOST_TYPED:,} bytes can wait for the program]\r\n"
        dropped = "\r\n[Input before this key that the program had not read was dropped]\r\n"
        return (refusal * bool(refused) + dropped * has_dropped).encode()

    def end(self) -> None:
        """Hang up, then kill the rest of the session."""
        for number in (signal.SIGHUP, signal.SIGCONT, signal.SIGKILL):
            if number == signal.SIGKILL:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._shell.wait(_GRACE)
            for process in Path("/proc").glob("[0-9]*"):
                with contextlib.suppress(OSError):
                    if os.getsid(int(process.name)) == self._shell.pid:
                        os.kill(int(process.name), number)
        self._shell.wait()
        with self._changed:
            self._is_over = True
            self._changed.notify()
        self._typist.join()

    def close(self) -> None:
        pseudo_terminals.close(self._master)


def taken_over(protocol: str) -> socket.socket:
    """Return the connection of the current request, which asked for this protocol. Raises TunnelUpgradeRequired."""
    connection = request.environ.get("werkzeug.socket")
    if not isinstance(connection, socket.socket) or request.headers.get("Upgrade", "").lower() != protocol:
        raise TunnelUpgradeRequired(f"This path needs Connection: Upgrade and Upgrade: {protocol}")
    return connection


def switch(connection: socket.socket, protocol: str) -> None:
    head = f"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n\r\n"
    connection.sendall(head.encode())


def lines(connection: socket.socket) -> Iterator[dict[str, Any]]:
    raw = b""
    while piece := connection.recv(_PIECE):
        *whole, raw = (raw + piece).split(b"\n")
        for line in whole:
            with contextlib.suppress(ValueError, RecursionError):
                if isinstance(message := json.loads(line), dict):
                    yield message
        if len(raw) > _MOST_LINE:
            return


@terminals.get("/terminal")
def open_terminal(identity: str | None = None) -> Response:
    connection, folder = taken_over("terminal"), folder_of(identity)
    cols, rows = asked_number("cols", 80, 1, MOST_COLS), asked_number("rows", 24, 1, MOST_ROWS)
    with place_among(_terminals, f"{MOST_TERMINALS} terminals of this sandbox are open already. Close one first"):
        try:
            terminal = TunnelTerminal(folder, cols, rows)
        except OSError as error:
            abort(409, f"The sandbox cannot open a terminal: {error.strerror or error}")
        printer = threading.Thread(target=show, args=(terminal, connection), daemon=True)
        try:
            with contextlib.suppress(OSError):  # either side has ended
                switch(connection, "terminal")
                printer.start()
                serve(terminal, connection)
        finally:
            terminal.end()
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            if printer.ident is not None:
                printer.join()
            terminal.close()
    return ConsumedConnection()


@contextlib.contextmanager
def place_among(places: threading.Semaphore, refusal: str) -> Iterator[None]:
    if not places.acquire(blocking=False):
        abort(429, refusal)
    try:
        yield
    finally:
        places.release()


def show(terminal: TunnelTerminal, connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while piece := terminal.printed():
            connection.sendall(piece)
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def serve(terminal: TunnelTerminal, connection: socket.socket) -> None:
    """Type and resize on the server's command, until it closes the connection. Raises OSError."""
    for message in lines(connection):
        if isinstance(message.get("input"), str):
            terminal.type(message["input"])
        elif isinstance(message.get("cols"), int) and isinstance(message.get("rows"), int):
            terminal.resize(message["cols"], message["rows"])


ports = Blueprint("ports", __name__)
ports.before_request(check_key)

_connections = threading.Semaphore(MOST_CONNECTIONS)


class ListeningSocket(NamedTuple):
    """A listening socket, and whether a process of this sandbox holds it."""

    address: str  #: loopback address to connect to
    port: int
    is_own: bool
    program: str = ""  #: command line of the process; "": unknown


@ports.get("/ports")
def list_ports() -> Response:
    own = [one for one in listeners() if one.is_own and one.port >= LEAST_PORT and not _is_served(one.port)]
    programs = {str(one.port): one.program for one in own if one.program}
    return jsonify({"ports": sorted({one.port for one in own})[:_MOST_LISTED], "programs": programs})


@ports.get("/ports/<int:port>")
def open_port(port: int) -> Response:
    connection = taken_over("tcp")
    if not LEAST_PORT <= port <= 65535:
        abort(422, f"A port is a number from {LEAST_PORT} to 65535")
    if _is_served(port):
        abort(403, "This port belongs to the agent server")
    address = address_of(port)
    with place_among(_connections, f"{MOST_CONNECTIONS} connections to ports of this sandbox are open already"):
        try:
            program = socket.create_connection((address, port), _CONNECT)
        except OSError as error:
            abort(409, f"Nothing accepts connections at port {port} of this sandbox: {error.strerror or error}")
        with program:
            program.settimeout(None)
            answers = threading.Thread(target=carry, args=(program, connection), daemon=True)
            with contextlib.suppress(OSError):  # either side has ended
                switch(connection, "tcp")
                answers.start()
                carry(connection, program)
                answers.join()
    return ConsumedConnection()


def _is_served(port: int) -> bool:
    return str(port) == request.environ.get("SERVER_PORT")


def carry(source: socket.socket, target: socket.socket) -> None:
    """Copy bytes until the source ends or the target refuses, then shut down both."""
    with contextlib.suppress(OSError):
        while piece := source.recv(_PIECE):
            target.sendall(piece)
    for each in (target, source):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


def address_of(port: int) -> str:
    """Return the loopback address where a process of this sandbox listens. Refuse other processes' ports."""
    found = [one for one in listeners() if one.port == port]
    if own := [one for one in found if one.is_own]:
        return own[0].address
    if found:
        abort(403, f"Port {port} does not belong to a process of this sandbox")
    abort(409, f"Nothing listens at port {port} of this sandbox")


def listeners() -> list[ListeningSocket]:
    """Return the listening sockets of this network, IPv4 first."""
    psutil = import_module("psutil")  # imported late, because it slows down the start
    mark, launchers, own = os.environ.get(_MARK), psutil.Process().parents(), dict[int | None, str]()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process not in launchers and process.environ().get(_MARK) == mark:
                own[process.pid] = shlex.join(process.cmdline())[:_MOST_PROGRAM]
    return [
        ListeningSocket(
            "127.0.0.1" if one.family == socket.AF_INET else "::1",
            one.laddr.port,
            not mark or one.pid in own,
            own.get(one.pid, ""),
        )
        for one in sorted(psutil.net_connections("tcp"), key=lambda one: one.family)
        if one.laddr and one.status == psutil.CONN_LISTEN
    ]
