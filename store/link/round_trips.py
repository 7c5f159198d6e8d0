"""Counts the round trips of a client to Redis, with their seconds, whatever the topology.

A command is a round trip, and so is a pipeline, also one that a cluster's client divides among nodes. The seconds are
those that the caller waits: for a connection, for Redis, and for the second try of a command that had no reply.
"""

import time
from collections.abc import Callable
from typing import Any

from meter import Meter
from store.errors import UNAVAILABLE
from store.link.connection import Clients


def counted(clients: Clients, meter: Meter) -> Clients:
    """The clients, whose one for commands tells the meter of every round trip."""
    redis: Any = clients.commands
    pipeline = redis.pipeline

    def counted_pipeline(*args: Any, **options: Any) -> Any:
        began = time.monotonic()
        try:
            pipe = pipeline(*args, **options)
        except UNAVAILABLE:  # a cluster's client asks for the nodes first
            meter.count_trip(time.monotonic() - began, failed=True)
            raise
        pipe.execute = _timed(pipe.execute, meter)
        return pipe

    redis.execute_command = _timed(redis.execute_command, meter)
    redis.pipeline = counted_pipeline
    return clients


def _timed(send: Callable[..., Any], meter: Meter) -> Callable[..., Any]:
    def timed(*args: Any, **options: Any) -> Any:
        began, failed = time.monotonic(), False
        try:
            return send(*args, **options)
        except UNAVAILABLE:
            failed = True
            raise
        finally:
            meter.count_trip(time.monotonic() - began, failed=failed)

    return timed
