"""The accept loop, and the relay between two connections.

Standard library only: the launcher of each sandbox loads this module, and so does a container of a pod. The bundled
agent cannot import it, so `reference_agent/tunnels.py` has its own.
"""

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator

#: maximum size of one read, in bytes
PIECE = 64 * 1024

#: Delay after a failed accept, in seconds.
_PAUSE = 0.05

log = logging.getLogger(__name__)


def accept_all(
    listener: socket.socket,
    serve: Callable[[socket.socket], None],
    most: int,
    pace: Callable[[], None] = lambda: None,
) -> None:
    """Serve each connection in its own thread until the listener is closed.

    most: concurrent connections; others wait in the kernel's backlog. pace: blocks until the next accept.
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
        except (OSError, RuntimeError):  # the client or the listener is gone, or no descriptor or thread is free
            room.release()
            time.sleep(_PAUSE)


def pieces(source: socket.socket) -> Iterator[bytes]:
    """Yield the bytes of a connection until it ends. Raises OSError."""
    while piece := source.recv(PIECE):
        yield piece


def join(one: socket.socket, other: socket.socket, read: Callable[[socket.socket], Iterable[bytes]] = pieces) -> None:
    """Relay bytes in both directions until both end. read: yields the bytes of a connection."""
    back = threading.Thread(target=carry, args=(other, one, read), daemon=True)
    back.start()
    carry(one, other, read)
    back.join()


def carry(
    source: socket.socket, target: socket.socket, read: Callable[[socket.socket], Iterable[bytes]] = pieces
) -> None:
    """Relay one direction, and pass its end on. After an error both connections end, so that neither hangs."""
    try:
        for piece in read(source):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        end(source, target)


def end(*connections: socket.socket) -> None:
    """Shut down both directions of each connection, which wakes blocked reads."""
    for each in connections:
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


def drain(client: socket.socket) -> None:
    """Read the rest that a refused client sends, so that the refusal arrives before the connection is reset.

    Raises OSError.
    """
    client.settimeout(1.0)
    for _ in range(64):
        if not client.recv(PIECE):
            return
