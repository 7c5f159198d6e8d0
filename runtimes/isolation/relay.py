"""Carries TCP connections between a host and the network of a sandbox, byte for byte.

Bounds: MOST_CONNECTIONS at once, further ones wait in the kernel's queue; PIECE bytes in memory per direction. The end
of one direction is passed on as such, so the other direction goes on.
"""

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor

#: connections to one listener at once
MOST_CONNECTIONS = 256

#: bytes that are read at once
PIECE = 64 * 1024

#: seconds in which a connection must be made
CONNECT_TIMEOUT = 10.0

#: seconds after a failed accept
_PAUSE = 0.05


def listening(port: int, address: str) -> socket.socket:
    """A listener on a port of the host; raises OSError."""
    return socket.create_server((address, port), backlog=128)


def serve(listener: socket.socket, carry: Callable[[socket.socket], None], most: int = MOST_CONNECTIONS) -> None:
    """Carry every connection that a listener accepts, each in a thread of its own, as long as the process lives."""
    room = threading.BoundedSemaphore(most)

    def carry_one(client: socket.socket) -> None:
        with contextlib.suppress(OSError), client:
            carry(client)
        room.release()

    def accept() -> None:
        while True:
            room.acquire()
            try:
                client, _ = listener.accept()
            except OSError:  # a connection that ended meanwhile, or no file is free: the queue keeps the others
                room.release()
                time.sleep(_PAUSE)
                continue
            threading.Thread(target=carry_one, args=(client,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()


def into(network: Executor, port: int) -> Callable[[socket.socket], None]:
    """What carries a connection to a port of the sandbox's loopback. network: makes sockets of that network."""

    def carry(client: socket.socket) -> None:
        with network.submit(socket.socket, socket.AF_INET, socket.SOCK_STREAM).result() as agent:
            agent.settimeout(CONNECT_TIMEOUT)
            agent.connect(("127.0.0.1", port))
            agent.settimeout(None)
            join(client, agent)

    return carry


def join(one: socket.socket, other: socket.socket) -> None:
    """Carry bytes both ways until both directions have ended."""
    for each in (one, other):
        each.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    back = threading.Thread(target=_carry, args=(other, one), daemon=True)
    back.start()
    _carry(one, other)
    back.join()


def _carry(source: socket.socket, target: socket.socket) -> None:
    """Carry one direction to its end. After an error both ends are closed, so that neither waits for the other."""
    try:
        while piece := source.recv(PIECE):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
