"""Memory in Redis: of an event with all indexes, and of a conversation whose log is cold."""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from random import Random
from statistics import median

from redis import Redis

from bench import corpus, servers
from bench.measure import Effort, FigureRow
from core.wire import ConversationId, ReceivedEvent, read_event
from store import Store
from store.conversations.cold import ObjectMissing

#: Number of copies of the recorded conversations, for a log of about 1,000 events.
_COPIES = 11


def memory(effort: Effort) -> list[FigureRow]:
    """Measure a long log of the bench, then a log of 1,000 events like the recorded ones, with all keys."""
    long = list(corpus.agent_events(Random(4), effort.stored))
    texts = [text for text in corpus.recorded() if '"waiting_for_confirmation"' not in text]
    short = [read_event(raw) for raw in corpus.varied(texts, _COPIES, seed=4)]
    return [
        _memory_row("a log of the bench", long),
        _memory_row("a log like the recorded conversations", short),
    ]


def _memory_row(what: str, events: Sequence[ReceivedEvent]) -> FigureRow:
    own, whole, parts = _measured(events)
    shares = ", ".join(
        f"{name} {size:.0f}" for name, size in sorted(parts.items(), key=lambda part: -part[1]) if size >= 1
    )
    return FigureRow(
        f"memory in Redis per event, all included, against its own bytes: {what}",
        whole / own,
        " ×",
        f"{whole:.0f} B for {own:.0f} B, {len(events):,} events; by key: {shares}",
        most=0.8,
        raw={"own": own, "whole": whole, "parts": parts, "unit": "bytes an event"},
    )


def _measured(events: Sequence[ReceivedEvent]) -> tuple[float, float, dict[str, float]]:
    """Return the bytes per event: its own, Redis' total, and Redis' by key."""
    random = Random(5)
    own = sum(len(event.raw) for event in events) / len(events)
    with servers.redis_server() as url, Redis.from_url(url) as redis:
        warm = corpus.conversation(random)
        corpus.fill(url, warm, events[:1000])  # warm-up: load all scripts
        before = _used(redis)
        conversation_id = corpus.conversation(random)
        corpus.fill(url, conversation_id, events)
        whole = (_used(redis) - before) / len(events)
        parts = {name: size / len(events) for name, size in _by_part(redis, conversation_id).items()}
    return own, whole, parts


def _used(redis: Redis) -> int:
    # The buffers of open connections would count as data.
    redis.client_kill_filter(_type="normal", skipme=True)
    return int(redis.info("memory")["used_memory"])


def _by_part(redis: Redis, conversation_id: str) -> Counter[str]:
    """Return the bytes by the part of the conversation in a key: `log`, `seqs`, `at`, `text` …"""
    sizes: Counter[str] = Counter()
    for key in redis.scan_iter(match=f"*{conversation_id}*"):
        part = key.decode().partition("}:")[2].partition(":")[0] or "state"
        sizes[part] += redis.memory_usage(key, samples=0) or 0
    return sizes


class _Objects:
    """Objects in memory. Their storage is not part of these figures."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    def put(self, name: str, content: bytes) -> None:
        self.kept[name] = content

    def get(self, name: str) -> bytes:
        if name not in self.kept:
            raise ObjectMissing(name)
        return self.kept[name]

    def delete(self, name: str) -> None:
        self.kept.pop(name, None)

    def names(self) -> Iterator[str]:
        yield from list(self.kept)


def cold(effort: Effort) -> list[FigureRow]:
    """Measure a log like the recorded conversations, then a long log of the bench, each thawed by appends."""
    texts = [text for text in corpus.recorded() if '"waiting_for_confirmation"' not in text]
    short = [read_event(raw) for raw in corpus.varied(texts, _COPIES, seed=4)]
    long = list(corpus.agent_events(Random(4), effort.cold_log + effort.thaws))
    return [
        *_cold_rows("a log like the recorded conversations", short, 0),
        *_cold_rows("a log of the bench", long, effort.thaws),
    ]


def _cold_rows(what: str, events: Sequence[ReceivedEvent], thaws: int) -> Iterator[FigureRow]:
    """Yield the memory share of a frozen log, and the seconds of appends that each thaw the log."""
    stored, later = events[: len(events) - thaws], events[len(events) - thaws :]
    objects, identity = _Objects(), corpus.conversation(Random(6))
    with servers.redis_server() as url, Redis.from_url(url) as redis:
        store = corpus.open_store(url)
        store.conversations.cold.objects = objects  # the app reads a place from its settings
        corpus.fill(url, identity, stored)
        warm = sum(_by_part(redis, identity).values())
        began = time.perf_counter()
        _freeze(store, identity)
        freezing = time.perf_counter() - began
        left, kept = _by_part(redis, identity), sum(map(len, objects.kept.values()))
        parts = ", ".join(f"{name} {size:,}" for name, size in left.most_common())
        yield FigureRow(
            f"memory of a cold conversation's keys in Redis, against the same while it is warm: {what}",
            sum(left.values()) / warm,
            " ×",
            f"{sum(left.values()):,} B of {warm:,} B, {len(stored):,} events; by key: {parts}; its objects have "
            f"{kept:,} B, made in {freezing:.2f} s",
            most=0.15,
            raw={"left": dict(left), "warm": warm, "objects": kept, "freezing": freezing, "unit": "bytes"},
        )
        seconds = []
        for event in later:
            began = time.perf_counter()
            store.events.append(identity, [event])
            seconds.append(time.perf_counter() - began)
            _freeze(store, identity)
        if seconds:
            yield FigureRow(
                f"an append that brings a cold conversation of {len(stored):,} events back",
                median(seconds),
                " s",
                f"median of {len(seconds)}, largest {max(seconds):.2f} s; the objects are in memory",
                most=1.0,
                raw={"seconds": seconds, "unit": "s"},
            )


def _freeze(store: Store, identity: ConversationId) -> None:
    """Freeze a conversation. If its events left it running or waiting, a message rejects what waits."""
    status = store.conversations.get(identity)["execution_status"]
    if status == "waiting_for_confirmation":
        store.events.send(identity, content=[{"type": "text", "text": "no"}], run=False)
    elif status == "running":
        store.conversations.change_status(identity, "pause")
    if not store.conversations.cold.freeze(identity):
        raise RuntimeError("cold: the conversation is not frozen")
