"""The memory that Redis needs for an event beside the event's own bytes."""

from collections import Counter
from random import Random

from redis import Redis

from bench import corpus, servers
from bench.measure import Effort, Row


def rows(effort: Effort) -> list[Row]:
    """Memory per event of a long log, all indexes and the message text included."""
    random = Random(4)
    events = list(corpus.agent_events(random, effort.stored))
    own = sum(len(event.raw) for event in events) / len(events)
    with servers.redis_server() as url, Redis.from_url(url) as redis:
        corpus.fill(url, corpus.conversation(random), events[:1])  # so that the scripts are loaded already
        before = _used(redis)
        conversation_id = corpus.conversation(random)
        corpus.fill(url, conversation_id, events)
        beside = (_used(redis) - before) / len(events) - own
        parts = {name: size / len(events) for name, size in _by_part(redis, conversation_id).items()}
    parts["log"] -= own
    shares = ", ".join(
        f"{name} {size:.0f}" for name, size in sorted(parts.items(), key=lambda part: -part[1]) if size >= 1
    )
    return [
        Row(
            "memory in Redis per event beyond its own bytes",
            beside,
            " B",
            f"{own:.0f} bytes an event, {len(events):,} events; by key: {shares}",
            most=250,
            raw={"own": own, "parts": parts, "unit": "bytes an event"},
        )
    ]


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
