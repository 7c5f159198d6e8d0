"""Counts the round trips to Redis of one thread: a command is one, and so is a pipeline, also to several nodes."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from redis.connection import AbstractConnection

from store import Store


class RoundTrips:
    """The number of round trips so far."""

    number = 0
    is_open = False  #: a command is sent, and no reply is read yet


def asks_by_request_alone(store: Store) -> None:
    """Have a store ask Redis for nothing by the clock: twice a second it would ask for the memory that is left."""
    store.link.health._asked_again_at = float("inf")


def leave_to_callers(store: Store, set_member: Callable[..., None] = setattr) -> None:
    """Leave what follows a change of a conversation to the caller of its script, as in a cluster."""
    for script in vars(store.conversations._scripts).values():
        set_member(script, "_follows", False)


@contextmanager
def counted() -> Iterator[RoundTrips]:
    """Counts within the block. Call once before: a script's first call loads it, a connection's first greets.

    What is sent to other nodes before a reply is read belongs to the same round trip.
    """
    trips, thread = RoundTrips(), threading.get_ident()
    send, read = AbstractConnection.send_packed_command, AbstractConnection.read_response

    def counting(connection, *args, **options):
        if threading.get_ident() == thread:
            trips.number += not trips.is_open
            trips.is_open = True
        return send(connection, *args, **options)

    def reading(connection, *args, **options):
        if threading.get_ident() == thread:
            trips.is_open = False
        return read(connection, *args, **options)

    AbstractConnection.send_packed_command, AbstractConnection.read_response = counting, reading
    try:
        yield trips
    finally:
        AbstractConnection.send_packed_command, AbstractConnection.read_response = send, read
