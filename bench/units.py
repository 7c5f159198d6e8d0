"""What one unit of work costs: CPU time of the worker and of Redis, and memory. docs/scaling.md reckons with these.

CPU time is that of the processes themselves. A load beside them still adds up to a half, as they share caches.
"""

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from itertools import islice, repeat
from random import Random

import psutil
from redis import Redis

from bench import corpus, load, servers
from bench.crowds import beside, followers, silent_sockets
from bench.measure import Effort, Row
from wire import ConversationId

#: events of one request, as agents send them
_BATCH = 10


class _Meter:
    """Reads the CPU time of the one worker of the run's server, and of its Redis."""

    def __init__(self, redis: Redis) -> None:
        [master] = [one for one in psutil.Process(os.getpid()).children() if "gunicorn" in " ".join(one.cmdline())]
        [self.worker] = master.children()
        self._redis = redis

    def _now(self) -> tuple[float, float]:
        worker, store = self.worker.cpu_times(), self._redis.info("cpu")
        return worker.user + worker.system, store["used_cpu_user"] + store["used_cpu_sys"]

    def of(self, units: int, work: Callable[[], object]) -> tuple[float, float]:
        """Microseconds of the worker and of Redis for one of so many units."""
        begun = self._now()
        work()
        worker, store = (1e6 * (end - start) / units for start, end in zip(begun, self._now(), strict=True))
        return worker, store


def rows(effort: Effort) -> list[Row]:
    """One worker, one Redis; each unit some thousand times."""
    random = Random(16)
    number = effort.units
    with servers.redis_server() as url, Redis.from_url(url) as redis, servers.gunicorn("app:create_app()", url) as port:
        own = corpus.conversation(random)
        load.create(port, "/api/conversations", json.dumps({"conversation_id": own}).encode())
        events = f"/api/conversations/{own}/events"
        meter = _Meter(redis)
        found = []

        def drive(requests: Iterator[bytes]) -> Callable[[], object]:
            return lambda: load.drive(port, requests, connections=4)

        batches = islice(_batches(own, random), number // _BATCH)
        found.append(("an appended event, ten in a request", *meter.of(number, drive(batches))))
        for what, path in (("a count", f"{events}/count"), ("a page of 100 events", f"{events}/search")):
            found.append((what, *meter.of(number, drive(repeat(load.get(path), number)))))
        found.append(("a delivery of an event to a socket", *_deliveries(meter, port, own, random, effort)))
        empty = redis.info("memory")["used_memory"]
        conversations = corpus.open_store(url).conversations
        for _ in range(number):
            conversations.create(corpus.conversation(random))
        conversation_bytes = (redis.info("memory")["used_memory"] - empty) / number
        socket_bytes = _socket_bytes(meter, port, own, effort)
    return [
        *(Row(f"{what}: CPU of the worker", worker, " µs", f"Redis {store:.1f} µs") for what, worker, store in found),
        Row("a conversation without events: memory in Redis", conversation_bytes, " B", ""),
        Row("a silent socket: memory of its worker", socket_bytes / 1000, " kB", ""),
    ]


def _batches(conversation_id: ConversationId, random: Random) -> Iterator[bytes]:
    events = corpus.agent_events(random, 1_000_000)
    while batch := b",".join(event.raw for event in islice(events, _BATCH)):
        yield load.post(f"/api/v1/webhooks/events/{conversation_id}", b"[%b]" % batch)


def _deliveries(
    meter: _Meter, port: int, conversation_id: ConversationId, random: Random, effort: Effort
) -> tuple[float, float]:
    """Of each delivery to a socket of many, the append included."""
    sent = effort.units // 100
    requests = islice(_batches(conversation_id, random), sent)

    def append() -> None:
        with closing(load.Connection(port)) as connection:
            while connection.send_next(requests):
                while connection.receive() is None:
                    pass
                time.sleep(0.05)
        time.sleep(1)  # the last deliveries are under way

    with beside(partial(followers, rate=0), port, conversation_id, effort.sockets):
        return meter.of(sent * _BATCH * effort.sockets, append)


def _socket_bytes(meter: _Meter, port: int, conversation_id: ConversationId, effort: Effort) -> float:
    before = meter.worker.memory_info().rss
    with beside(silent_sockets, port, conversation_id, effort.crowd):
        return (meter.worker.memory_info().rss - before) / effort.crowd
