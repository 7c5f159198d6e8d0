"""Pages of 100 events and of 100 conversations, against the count of a bare Flask view."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import repeat
from random import Random

from redis import Redis

from bench import baseline, corpus, load, servers
from bench.measure import Effort, Row, interleaved
from wire import Event

#: requests under way at once
_CONNECTIONS = 8

_SEARCH, _LIST = "/api/conversations/search", "/api/v1/conversations/search"

#: characters that an event has beyond those of the corpus: pages of about 70 kB
_MORE = 185


def rows(effort: Effort) -> list[Row]:
    """Pages of a log of 1,000 events and of a listing of 1,000 conversations, that nobody changes meanwhile."""
    random = Random(10)
    conversation_id = corpus.conversation(random)
    with ExitStack() as stack:
        url = stack.enter_context(servers.redis_server())
        corpus.fill(url, conversation_id, _events(random, effort.small_log))
        _start_conversations(url, random, effort.small_log)
        with Redis.from_url(url) as redis:
            redis.zadd(baseline.sorted_set(conversation_id), {"0": 0})
        ours = stack.enter_context(servers.gunicorn("app:create_app()", url))
        bare = stack.enter_context(servers.gunicorn("bench.baseline:create_app()", url))
        events = f"/api/conversations/{conversation_id}/events"
        return [
            _row(effort, "a page of 100 events", (ours, f"{events}/search"), (bare, f"{events}/count"), 0.5),
            _row(effort, "a page of 100 conversations", (ours, _SEARCH), (bare, f"{events}/count"), 0.25),
            _row(effort, "a page of 100 of the list of all", (ours, _LIST), (bare, f"{events}/count")),
        ]


def _events(random: Random, number: int) -> Iterator[Event]:
    text = "a thought of the agent " * _MORE
    for event in corpus.agent_events(random, number):
        fields = {**event.fields, "note": text[:_MORE]}
        yield event._replace(fields=fields, raw=json.dumps(fields, ensure_ascii=False).encode())


def _start_conversations(url: str, random: Random, number: int) -> None:
    conversations = corpus.open_store(url).conversations
    for index in range(number):
        title, tags = f"The conversation number {index}", {"team": "red", "number": str(index)}
        conversations.create(corpus.conversation(random), title=title, tags=tags)


def _row(effort: Effort, what: str, ours: tuple[int, str], bare: tuple[int, str], least: float | None = None) -> Row:
    size, busy = len(load.ask(ours[0], load.get(ours[1]))), []

    def rate(port: int, path: str) -> float:
        request = load.get(path)
        expect = load.ask(port, request)
        run = load.drive(port, repeat(request), connections=_CONNECTIONS, seconds=effort.seconds, expect=expect)
        busy.append(run.busy)
        return run.rate

    rounds = interleaved(effort.rounds, lambda: rate(*ours), lambda: rate(*bare))
    ours_rate, bare_rate = rounds.medians
    return Row(
        f"{what}: throughput against a count by a bare Flask view",
        rounds.ratio,
        " ×",
        f"{ours_rate:,.0f}/s against {bare_rate:,.0f}/s; {size / 1000:.0f} kB",
        least=least,
        raw={**rounds.raw, "unit": "requests/s", "generator_busy": max(busy)},
    )
