"""Appending by webhook against the same bytes by a raw redis-py pipeline."""

import time
from collections.abc import Iterator
from itertools import islice
from random import Random

from redis import Redis

from bench import corpus, load, servers
from bench.measure import Effort, Row, interleaved
from wire import ConversationId, Event

#: events in one request and in one pipeline; connections that post at once
_BATCH, _CONNECTIONS = 100, 4


def rows(effort: Effort) -> list[Row]:
    """From memory, then with every write synced to a file as the embedded store does it."""
    what = "append by webhook, batches of 100: events/s against a raw pipeline"
    return [
        _row(effort, what, durable=False, least=0.4),
        _row(effort, f"{what}, both with `appendfsync always`", durable=True),
    ]


def _row(effort: Effort, what: str, *, durable: bool, least: float | None = None) -> Row:
    random = Random(3)
    with (
        servers.redis_server(durable=durable) as url,
        servers.gunicorn("app:create_app()", url) as port,
        Redis.from_url(url) as redis,
    ):
        rounds = interleaved(
            effort.rounds,
            lambda: by_webhook(port, *batches(random, effort.batches, _BATCH)),
            lambda: by_pipeline(redis, *batches(random, effort.batches, _BATCH)),
        )
    size = _mean_size(random)
    ours, raw = rounds.medians
    detail = f"{ours:,.0f}/s against {raw:,.0f}/s; {size:.0f} bytes an event"
    return Row(what, rounds.ratio, " ×", detail, least=least, raw={**rounds.raw, "unit": "events/s"})


def batches(random: Random, number: int, size: int) -> tuple[ConversationId, list[list[Event]]]:
    """A new conversation and the batches for it."""
    events: Iterator[Event] = corpus.agent_events(random, number * size)
    return corpus.conversation(random), [list(islice(events, size)) for _ in range(number)]


def _mean_size(random: Random) -> float:
    events = list(corpus.agent_events(random, 700))
    return sum(len(event.raw) for event in events) / len(events)


def by_webhook(port: int, conversation_id: ConversationId, batches: list[list[Event]]) -> float:
    """Events a second of batches that are posted. Raises RuntimeError where one is missing afterwards."""
    path = f"/api/v1/webhooks/events/{conversation_id}"
    requests = [load.post(path, b"[%b]" % b",".join(event.raw for event in batch)) for batch in batches]
    run = load.drive(port, requests, connections=_CONNECTIONS)
    found = load.ask(port, load.get(f"/api/conversations/{conversation_id}/events/count"))
    if found != b"%d" % (number := sum(map(len, batches))):
        raise RuntimeError(f"{found!r} events stored of {number}")
    return number / run.seconds


def by_pipeline(redis: Redis, conversation_id: ConversationId, batches: list[list[Event]]) -> float:
    """Events a second of batches that redis-py writes."""
    log, ids, times = (f"bench:{conversation_id}:{name}" for name in ("log", "ids", "times"))
    start, seq = time.perf_counter(), 0
    for batch in batches:
        with redis.pipeline(transaction=False) as pipe:
            for event in batch:
                seq += 1
                pipe.rpush(log, event.raw)
                pipe.hset(ids, event.id, seq)
                pipe.zadd(times, {f"{seq:010d}": event.at})
            pipe.execute()
    return seq / (time.perf_counter() - start)
