"""The memory that Redis needs for an event beside the event's own bytes."""

from collections import Counter
from random import Random

from redis import Redis

from bench import corpus, servers
from bench.measure import Effort, Row


def rows(effort: Effort) -> list[Row]:
    """Memory per event of a long log, all indexes and the message text included."""
    own, beside, parts = per_event(effort.stored)
    shares = ", ".join(
        f"{name} {size:.0f}" for name, size in sorted(parts.items(), key=lambda part: -part[1]) if size >= 1
    )
    return [
        Row(
            "memory in Redis per event beyond its own bytes",
            beside,
            " B",
            f"{own:.0f} bytes an event, {effort.stored:,} events; by key: {shares}",
            most=250,
            raw={"own": own, "parts": parts, "unit": "bytes an event"},
        )
    ]


def per_event(number: int) -> tuple[float, float, dict[str, float]]:
    """Of a log of so many events, in bytes an event: its own, what Redis needs beside, and that by key."""
    random = Random(4)
    events = list(corpus.agent_events(random, number))
    own = sum(len(event.raw) for event in events) / number
    with servers.redis_server() as url, Redis.from_url(url) as redis:
        corpus.fill(url, corpus.conversation(random), events[:1])  # so that the scripts are loaded already
        before = _used(redis)
        conversation_id = corpus.conversation(random)
        corpus.fill(url, conversation_id, events)
        beside = (_used(redis) - before) / number - own
        parts = {name: size / number for name, size in _by_part(redis, conversation_id).items()}
    parts["log"] -= own
    return own, beside, parts


def _used(redis: Redis) -> int:
    # The buffers of connections that still stand would count as data.
    redis.client_kill_filter(_type="normal", skipme=True)
    return int(redis.info("memory")["used_memory"])


def _by_part(redis: Redis, conversation_id: str) -> Counter[str]:
    """Bytes by the part of the conversation that a key is: `log`, `ids`, `at`, `text` …"""
    sizes: Counter[str] = Counter()
    for key in redis.scan_iter(match=f"*{conversation_id}*"):
        part = key.decode().partition("}:")[2].partition(":")[0] or "state"
        sizes[part] += redis.memory_usage(key, samples=0) or 0
    return sizes
