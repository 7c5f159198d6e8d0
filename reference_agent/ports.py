"""Ports of the sandbox: which of them its programs listen at, and connections to one.

`GET /api/ports/PORT` with `Upgrade: tcp`: the bytes of a connection to the program that listens there, until either
side ends. `GET /api/ports`: the ports that may be connected to.

A sandbox without a network of its own has the loopback of its host, where others listen too. So a port counts only
where a process of this sandbox holds the socket: one that bears the sandbox's mark, and is not its launcher. A
container has a network of its own, and no mark.
"""

import contextlib
import os
import socket
import threading
from pathlib import Path
from typing import NamedTuple

from flask import Blueprint, Response, abort, jsonify, request

from reference_agent.api import check_key
from reference_agent.terminals import TakenOver, switch, taken_over

#: connections that are open at once
MOST_CONNECTIONS = 64

#: the least port that is connected to: below are the ways out of a sandbox, which speak in its name
LEAST_PORT = 1024

#: most ports that are listed
_MOST_LISTED = 100

#: bytes of one read, and seconds that a program may take to accept
_PIECE, _CONNECT = 16 * 1024, 2.0

#: what /proc/net says of a socket that listens
_LISTENS = "0A"

#: the variable with the sandbox's folder in the environment of all processes of a process sandbox
_MARK = "AGENT_SANDBOX"

ports = Blueprint("ports", __name__)
ports.before_request(check_key)

_connections = threading.Semaphore(MOST_CONNECTIONS)


class Listener(NamedTuple):
    """A socket that listens; name: as /proc has it. address: of loopback, to connect to."""

    name: str
    address: str
    port: int


@ports.get("/ports")
def list_ports() -> Response:
    found = {one.port for one in own_listeners() if one.port >= LEAST_PORT and not _is_served(one.port)}
    return jsonify({"ports": sorted(found)[:_MOST_LISTED]})


@ports.get("/ports/<int:port>")
def open_port(port: int) -> Response:
    connection = taken_over("tcp")
    if not LEAST_PORT <= port <= 65535:
        abort(422, f"A port is a number from {LEAST_PORT} to 65535")
    if _is_served(port):
        abort(403, "This is the port of the agent server")
    address = address_of(port)
    if not _connections.acquire(blocking=False):
        abort(429, f"{MOST_CONNECTIONS} connections to ports of this sandbox are open already")
    try:
        try:
            program = socket.create_connection((address, port), _CONNECT)
        except OSError as error:
            abort(409, f"Nothing takes a connection at port {port} of this sandbox: {error.strerror or error}")
        with program:
            program.settimeout(None)
            answers = threading.Thread(target=carry, args=(program, connection), daemon=True)
            with contextlib.suppress(OSError):  # either side has ended
                switch(connection, "tcp")
                answers.start()
                carry(connection, program)
                answers.join()
    finally:
        _connections.release()
    return TakenOver()


def _is_served(port: int) -> bool:
    """Whether the agent server itself listens there."""
    return str(port) == request.environ.get("SERVER_PORT")


def carry(source: socket.socket, target: socket.socket) -> None:
    """Carry bytes until the source ends or the target takes none, then end both."""
    with contextlib.suppress(OSError):
        while piece := source.recv(_PIECE):
            target.sendall(piece)
    for each in (target, source):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


def address_of(port: int) -> str:
    """The loopback address at which a process of this sandbox listens at a port; refuses a port of anybody else's."""
    found = [one for one in own_listeners() if one.port == port]
    if found:
        return found[0].address
    if any(one.port == port for one in listeners()):
        abort(403, f"What listens at port {port} is no process of this sandbox")
    abort(409, f"Nothing listens at port {port} of this sandbox")


def own_listeners() -> list[Listener]:
    """The sockets at which processes of this sandbox listen."""
    found = listeners()
    if _MARK not in os.environ:
        return found
    own = own_sockets()
    return [one for one in found if one.name in own]


def listeners() -> list[Listener]:
    """The sockets that listen in this network, those of IPv4 first; none where there is no /proc."""
    found = []
    for name, loopback in (("tcp", "127.0.0.1"), ("tcp6", "::1")):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == _LISTENS:
                    port = int(words[1].rpartition(":")[2], 16)
                    found.append(Listener(f"socket:[{words[9]}]", loopback, port))
    return found


def own_sockets() -> set[str]:
    """The sockets of all processes of this sandbox, without its launcher, from which this process descends."""
    mark, launchers = f"{_MARK}={os.environ[_MARK]}".encode(), ancestors()
    found = set[str]()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if int(process.name) in launchers or mark not in (process / "environ").read_bytes().split(b"\0"):
                continue
            for file in (process / "fd").iterdir():
                with contextlib.suppress(OSError):
                    found.add(str(file.readlink()))
    return found


def ancestors() -> set[int]:
    """The ids of the processes from which this one descends."""
    found, process = set[int](), os.getppid()
    while process > 1:
        found.add(process)
        try:
            process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            break
    return found
