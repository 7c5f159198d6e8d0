"""Counts the round trips to Redis of one thread: a command is one, a pipeline is one."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from redis.connection import AbstractConnection


class RoundTrips:
    """The number of round trips so far."""

    number = 0


@contextmanager
def counted() -> Iterator[RoundTrips]:
    """Counts within the block. Call once before: a script's first call loads it, a connection's first greets."""
    trips, thread, send = RoundTrips(), threading.get_ident(), AbstractConnection.send_packed_command

    def counting(connection, *args, **options):
        trips.number += threading.get_ident() == thread
        return send(connection, *args, **options)

    AbstractConnection.send_packed_command = counting
    try:
        yield trips
    finally:
        AbstractConnection.send_packed_command = send
