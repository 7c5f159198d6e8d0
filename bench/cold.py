"""Cold conversations: the memory that stays in Redis, and the time until an append brings one back."""

import time
from collections.abc import Iterator, Sequence
from random import Random
from statistics import median

from redis import Redis

from bench import corpus, dictionary, servers
from bench.measure import Effort, Row
from bench.memory import COPIES, by_part
from store import Store
from store.conversations.cold import ObjectMissing
from wire import ConversationId, Event, read_event


class Objects:
    """Objects in memory: their place is no part of these figures."""

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


def rows(effort: Effort) -> list[Row]:
    """A log like the recorded conversations, then a long log of the bench, which appends bring back again and again."""
    texts = [text for text in dictionary.recorded() if '"waiting_for_confirmation"' not in text]
    short = [read_event(raw) for raw in dictionary.varied(texts, COPIES, seed=4)]
    long = list(corpus.agent_events(Random(4), effort.cold_log + effort.thaws))
    return [
        *_rows("a log like the recorded conversations", short, 0),
        *_rows("a log of the bench", long, effort.thaws),
    ]


def _rows(what: str, events: Sequence[Event], thaws: int) -> Iterator[Row]:
    """The share of memory that a frozen log leaves; and the seconds of appends that each bring the log back."""
    stored, later = events[: len(events) - thaws], events[len(events) - thaws :]
    objects, identity = Objects(), corpus.conversation(Random(6))
    with servers.redis_server() as url, Redis.from_url(url) as redis:
        store = corpus.open_store(url)
        store.cold.objects = objects  # the app reads a place from its settings
        corpus.fill(url, identity, stored)
        warm = sum(by_part(redis, identity).values())
        began = time.perf_counter()
        _freeze(store, identity)
        freezing = time.perf_counter() - began
        left, [content] = by_part(redis, identity), objects.kept.values()
        parts = ", ".join(f"{name} {size:,}" for name, size in left.most_common())
        yield Row(
            f"memory of a cold conversation's keys in Redis, against the same while it is warm: {what}",
            sum(left.values()) / warm,
            " ×",
            f"{sum(left.values()):,} B of {warm:,} B, {len(stored):,} events; by key: {parts}; its object has "
            f"{len(content):,} B, made in {freezing:.2f} s",
            most=0.15,
            raw={"left": dict(left), "warm": warm, "object": len(content), "freezing": freezing, "unit": "bytes"},
        )
        seconds = []
        for event in later:
            began = time.perf_counter()
            store.events.append(identity, [event])
            seconds.append(time.perf_counter() - began)
            _freeze(store, identity)
        if seconds:
            yield Row(
                f"an append that brings a cold conversation of {len(stored):,} events back",
                median(seconds),
                " s",
                f"median of {len(seconds)}, largest {max(seconds):.2f} s; the objects are in memory",
                most=1.0,
                raw={"seconds": seconds, "unit": "s"},
            )


def _freeze(store: Store, identity: ConversationId) -> None:
    """Freeze a conversation. Its events may have left it running, or waiting: then a message rejects what waits."""
    status = store.conversations.get(identity)["execution_status"]
    if status == "waiting_for_confirmation":
        store.events.send(identity, content=[{"type": "text", "text": "no"}], run=False)
    elif status == "running":
        store.conversations.change_status(identity, "pause")
    if not store.cold.freeze(identity):
        raise RuntimeError("cold: the conversation is not frozen")
