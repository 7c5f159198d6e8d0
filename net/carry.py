"""The accept loop, and the carriers of bytes between two connections.

This module imports the standard library alone: the launcher of each sandbox loads it, and so does a container of a pod.
The bundled agent does not see this room, so `reference_agent/tunnels.py` carries by itself.
"""

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator

#: maximum size of one read, in bytes
PIECE = 64 * 1024

#: seconds after a failed accept
_PAUSE = 0.05

log = logging.getLogger(__name__)


def accept_all(
    listener: socket.socket,
    serve: Callable[[socket.socket], None],
    most: int,
    pace: Callable[[], None] = lambda: None,
) -> None:
    """Serve every connection in a thread of its own until the listener is closed.

    most: connections at once; further ones wait in the kernel's queue. pace: waits until the next one may be accepted.
    """
    room = threading.BoundedSemaphore(most)

    def serve_one(client: socket.socket) -> None:
        try:
            with contextlib.suppress(OSError), client:
                serve(client)
        except Exception:
            log.exception("a connection failed")
        finally:
            room.release()

    def begin() -> None:
        client, _ = listener.accept()
        try:
            threading.Thread(target=serve_one, args=(client,), daemon=True).start()
        except RuntimeError:
            client.close()
            raise

    while listener.fileno() >= 0:
        room.acquire()
        pace()
        try:
            begin()
        except (OSError, RuntimeError):  # the client has ended, the listener too, or no file or thread is free
            room.release()
            time.sleep(_PAUSE)


def pieces(source: socket.socket) -> Iterator[bytes]:
    """Yield what a connection sends until its end. Raises OSError."""
    while piece := source.recv(PIECE):
        yield piece


def join(one: socket.socket, other: socket.socket, read: Callable[[socket.socket], Iterable[bytes]] = pieces) -> None:
    """Carry bytes both ways until both directions have ended. read: yields what a connection sends."""
    back = threading.Thread(target=carry, args=(other, one, read), daemon=True)
    back.start()
    carry(one, other, read)
    back.join()


def carry(
    source: socket.socket, target: socket.socket, read: Callable[[socket.socket], Iterable[bytes]] = pieces
) -> None:
    """Carry one direction, and pass its end on. After an error both connections end, so that neither waits."""
    try:
        for piece in read(source):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        end(source, target)


def end(*connections: socket.socket) -> None:
    """End both directions of each connection, which ends the reads that wait."""
    for each in connections:
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


def drain(client: socket.socket) -> None:
    """Read what a refused client still sends, so that it can read the refusal before the connection is reset.

    Raises OSError.
    """
    client.settimeout(1.0)
    for _ in range(64):
        if not client.recv(PIECE):
            return
