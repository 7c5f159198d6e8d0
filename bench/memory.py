"""Memory of Redis for an event: in today's layout, in that of version 5, and after such a log was packed."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from redis import Redis

from bench import corpus, dictionary, servers
from bench.measure import Effort, Row
from store.keys import ConversationKeys
from store.log.frames import originals
from wire import ConversationId, Event, read_event

#: events that are written at once
_BATCH = 500

#: copies of the recorded conversations: a log of 1,000 events or a few more
COPIES = 11


def rows(effort: Effort) -> list[Row]:
    """A long log of the bench by layout, then a log of 1,000 events like the recorded ones; all keys included."""
    long = list(corpus.agent_events(Random(4), effort.stored))
    texts = [text for text in dictionary.recorded() if '"waiting_for_confirmation"' not in text]
    short = [read_event(raw) for raw in dictionary.varied(texts, COPIES, seed=4)]
    return [
        _row("a log of the bench", long, lambda *_: None, most=0.8),
        _row("the same in the layout of version 5", long, as_version_5),
        _row("the same of version 5 that was packed", long, _packed, most=0.8),
        _row("a log like the recorded conversations", short, lambda *_: None, most=0.8),
    ]


def as_version_5(redis: Any, conversation_id: ConversationId) -> None:
    """Write a log as version 5 of the data had it: events as they came, every id in one hash."""
    keys = ConversationKeys(conversation_id)
    raws = originals(redis.lrange(keys.log, 0, -1))
    redis.delete(keys.log, f"{keys.root}:seqs")
    for first in range(0, len(raws), _BATCH):
        part = raws[first : first + _BATCH]
        redis.rpush(keys.log, *part)
        seqs = {json.loads(raw)["id"]: seq for seq, raw in enumerate(part, first + 1)}
        redis.hset(f"{keys.root}:ids", mapping=seqs)


def _packed(redis: Any, conversation_id: ConversationId) -> None:
    as_version_5(redis, conversation_id)
    socket = redis.connection_pool.connection_kwargs["path"]
    sum(corpus.open_store(f"unix://{socket}").packing.pack(conversation_id))


def _row(
    what: str, events: Sequence[Event], change: Callable[[Any, ConversationId], None], most: float | None = None
) -> Row:
    own, whole, parts = measured(events, change)
    shares = ", ".join(
        f"{name} {size:.0f}" for name, size in sorted(parts.items(), key=lambda part: -part[1]) if size >= 1
    )
    return Row(
        f"memory in Redis per event, all included, against its own bytes: {what}",
        whole / own,
        " ×",
        f"{whole:.0f} B for {own:.0f} B, {len(events):,} events; by key: {shares}",
        most=most,
        raw={"own": own, "whole": whole, "parts": parts, "unit": "bytes an event"},
    )


def measured(
    events: Sequence[Event], change: Callable[[Any, ConversationId], None] = lambda *_: None
) -> tuple[float, float, dict[str, float]]:
    """Bytes an event: its own, what Redis needs in all, and that by key. change: of the log, once it is written."""
    random = Random(5)
    own = sum(len(event.raw) for event in events) / len(events)
    with servers.redis_server() as url, Redis.from_url(url) as redis:
        warm = corpus.conversation(random)
        corpus.fill(url, warm, events[:1000])  # so that all scripts are loaded already
        change(redis, warm)
        before = _used(redis)
        conversation_id = corpus.conversation(random)
        corpus.fill(url, conversation_id, events)
        change(redis, conversation_id)
        whole = (_used(redis) - before) / len(events)
        parts = {name: size / len(events) for name, size in by_part(redis, conversation_id).items()}
    return own, whole, parts


def _used(redis: Redis) -> int:
    # The buffers of connections that still stand would count as data.
    redis.client_kill_filter(_type="normal", skipme=True)
    return int(redis.info("memory")["used_memory"])


def by_part(redis: Redis, conversation_id: str) -> Counter[str]:
    """Bytes by the part of the conversation that a key is: `log`, `seqs`, `at`, `text` …"""
    sizes: Counter[str] = Counter()
    for key in redis.scan_iter(match=f"*{conversation_id}*"):
        part = key.decode().partition("}:")[2].partition(":")[0] or "state"
        sizes[part] += redis.memory_usage(key, samples=0) or 0
    return sizes
