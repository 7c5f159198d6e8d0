"""A snapshot of Redis as its own file, which Redis sends to a replica that asks for the snapshot alone.

Source: https://redis.io/docs/latest/operate/oss_and_stack/management/replication, and `redis-cli --rdb`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from socket import socket as Socket
from typing import Any

from redis.exceptions import ConnectionError, ResponseError

from store.errors import StoreError

#: Seconds without a byte after which a snapshot has failed. Redis sends an empty line every few seconds meanwhile.
_SILENCE = 60.0

_PIECE = 256 * 1024

#: Maximum length of the line that tells the size, in bytes.
_MOST_LINE = 1024


class NoSnapshot(StoreError):
    """This Redis sends no snapshot."""


@contextmanager
def snapshot(redis: Any) -> Iterator[tuple[int, Iterator[bytes]]]:
    """Yield the size of a snapshot in bytes, and its pieces. It has every write that was acknowledged before the call.

    redis: a client of one server. Raises NoSnapshot, or one of UNAVAILABLE, also between two pieces.
    """
    connection = redis.connection_pool.get_connection()
    try:
        try:
            connection.send_command("REPLCONF", "rdb-only", "1")  # Redis 7: do not count as a replica
            connection.read_response()
        except ResponseError:
            pass
        socket = connection._sock  # the reply to SYNC is not one of the protocol
        socket.settimeout(_SILENCE)
        socket.sendall(b"*1\r\n$4\r\nSYNC\r\n")
        size, first = _size(socket)
        yield size, _pieces(socket, size, first)
    except OSError as error:
        raise ConnectionError(f"the snapshot failed: {error}") from error
    finally:
        connection.disconnect()
        redis.connection_pool.release(connection)


def _size(socket: Socket) -> tuple[int, bytes]:
    """Return the size of the snapshot, and the bytes of it that arrived with the size."""
    held = b""
    while b"\n" not in held and len(held) < _MOST_LINE:
        received = socket.recv(_MOST_LINE)
        if not received:
            raise ConnectionError("Redis has closed the connection instead of sending a snapshot")
        held = (held + received).lstrip(b"\n")
    line, _, first = held.partition(b"\r\n")
    if not line.startswith(b"$") or not line[1:].isdigit():
        raise NoSnapshot(f"This Redis sends no snapshot: {line.decode(errors='replace')}")
    return int(line[1:]), first


def _pieces(socket: Socket, size: int, first: bytes) -> Iterator[bytes]:
    piece = first[:size]
    while True:
        if piece:
            size -= len(piece)
            yield piece
        if not size:
            return
        piece = socket.recv(min(_PIECE, size))
        if not piece:
            raise ConnectionError("the snapshot failed: Redis has closed the connection. Try again")
