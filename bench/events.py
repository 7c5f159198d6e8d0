"""Events: counts, pages, histograms and appends, against a bare view, one pass of `bytes.find`, a raw pipeline."""

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from itertools import cycle, islice, repeat
from random import Random
from statistics import median
from urllib.parse import quote

from redis import Redis

from bench import corpus, load, servers
from bench.measure import Effort, FigureRow, interleaved, timed
from core.wire import ConversationId, Micros, ReceivedEvent, event_time
from store import Store
from store.log.text import fold

#: Number of concurrent requests: enough to keep one worker busy.
_CONNECTIONS = 8

_FILTERS = {
    "no filter": (),
    "kind": ("kind",),
    "kind, source, time": ("kind", "source", "time"),
    "time": ("time",),
    "kind, time": ("kind", "time"),
}

_SEARCH, _LIST = "/api/conversations/search", "/api/v1/conversations/search"

#: Additional characters of an event beyond the corpus, for pages of about 70 kB.
_MORE = 185

#: Number of calls of a histogram in one measurement.
_CALLS = 20

#: Numbers of buckets: the default of the wire, and the maximum.
_BUCKETS = (60, 200)

#: A key in the settings, so that the server requires a key.
_OF_SETTINGS = "a-key-of-the-settings"

#: Needles: in no message, in one of a thousand, in every message.
_ABSENT, _RARE, _COMMON = "Zebrafinch nowhere", "Rare-Needle", "everywhere"

#: Number of events in a request and in a pipeline; number of connections that post concurrently.
_BATCH, _POSTING = 100, 4


def count(effort: Effort) -> list[FigureRow]:
    """Measure throughput by filter, then throughput by length of the log."""
    random = Random(1)
    small, large = corpus.conversation(random), corpus.conversation(random)
    with ExitStack() as stack:
        url = stack.enter_context(servers.redis_server())
        for conversation_id, number in ((small, effort.small_log), (large, effort.large_log)):
            corpus.fill(url, conversation_id, corpus.small_events(random, number))
        with Redis.from_url(url) as redis:
            servers.fill_bare(redis, small, repeat(b"{}", effort.small_log))
        ours = stack.enter_context(servers.gunicorn("app:create_app()", url))
        bare = stack.enter_context(servers.bare(url))
        by_filter = [
            _against_bare(
                effort, name, _Counts(effort, ours, small, name), _Counts(effort, bare, small, name, bare=True)
            )
            for name in ("no filter", "kind", "kind, source, time", "time")
        ]
        by_size = [
            _against_small(
                effort, name, _Counts(effort, ours, large, name, large=True), _Counts(effort, ours, small, name)
            )
            for name in ("no filter", "kind, time")
        ]
        return by_filter + by_size


class _Counts:
    """Requests for one count to one server. A call measures requests per second."""

    def __init__(
        self,
        effort: Effort,
        port: int,
        conversation_id: ConversationId,
        name: str,
        *,
        bare: bool = False,
        large: bool = False,
    ) -> None:
        number = effort.large_log if large else effort.small_log
        queries, expected = _queries(name, number)
        self._port, self._seconds = port, effort.seconds
        path = f"/api/conversations/{conversation_id}/events/count"
        self._requests = [load.get(path + query) for query in queries]
        self._expect = b"%d" % (number if bare else expected)  # the bare view has no filters
        self.busy: list[float] = []

    def __call__(self) -> float:
        requests = cycle(self._requests)
        run = load.drive(self._port, requests, connections=_CONNECTIONS, seconds=self._seconds, expect=self._expect)
        self.busy.append(run.busy)
        return run.rate


def _queries(name: str, number: int) -> tuple[list[str], int]:
    """Return queries of a filter, and their expected count. By time a filter keeps the later half of a log."""
    parts = _FILTERS[name]
    first = number // 2 if "time" in parts else 0
    kinds = {"ActionEvent"} if "kind" in parts else {kind for kind, _ in corpus.TEN}
    expected = sum(corpus.TEN[i % len(corpus.TEN)][0] in kinds for i in range(first, number))
    # Many instants between the same two events, so that a cache of queries would not help.
    instants = range(corpus.FIRST + first * corpus.STEP - 999, corpus.FIRST + first * corpus.STEP)
    fixed = {"kind": "kind=ActionEvent", "source": "source=agent"}
    return [
        "?" * bool(parts) + "&".join(fixed.get(part, f"timestamp__gte={event_time(Micros(instant))}") for part in parts)
        for instant in (instants if "time" in parts else instants[:1])
    ], expected


def _against_bare(effort: Effort, name: str, ours: _Counts, bare: _Counts) -> FigureRow:
    rounds = interleaved(effort.rounds, ours, bare)
    what = f"count, {name}: throughput against a bare Flask view"
    return rounds.row(what, "requests/s", least=0.7, generator_busy=max(ours.busy + bare.busy))


def _against_small(effort: Effort, name: str, large: _Counts, small: _Counts) -> FigureRow:
    rounds = interleaved(effort.rounds, lambda: 1 / large(), lambda: 1 / small())
    what = f"count, {name}: time at {effort.large_log:,} events against {effort.small_log:,}"
    return rounds.row(what, "s/request", more=" a request", most=1.1, generator_busy=max(large.busy + small.busy))


def pages(effort: Effort) -> list[FigureRow]:
    """Measure pages of a log of 1,000 events and of a list of 1,000 conversations, without concurrent changes."""
    random = Random(10)
    conversation_id = corpus.conversation(random)
    with ExitStack() as stack:
        url = stack.enter_context(servers.redis_server())
        corpus.fill(url, conversation_id, _larger_events(random, effort.small_log))
        _start_conversations(url, random, effort.small_log)
        with Redis.from_url(url) as redis:
            servers.fill_bare(redis, conversation_id, [b"{}"])
        ours = stack.enter_context(servers.gunicorn("app:create_app()", url))
        bare = stack.enter_context(servers.bare(url))
        events = f"/api/conversations/{conversation_id}/events"
        return [
            _page_row(effort, "a page of 100 events", (ours, f"{events}/search"), (bare, f"{events}/count"), 0.5),
            _page_row(effort, "a page of 100 conversations", (ours, _SEARCH), (bare, f"{events}/count"), 0.25),
            _page_row(effort, "a page of 100 of the list of all", (ours, _LIST), (bare, f"{events}/count")),
        ]


def _larger_events(random: Random, number: int) -> Iterator[ReceivedEvent]:
    text = "a thought of the agent " * _MORE
    for event in corpus.agent_events(random, number):
        fields = {**event.fields, "note": text[:_MORE]}
        yield event._replace(fields=fields, raw=json.dumps(fields, ensure_ascii=False).encode())


def _start_conversations(url: str, random: Random, number: int) -> None:
    conversations = corpus.open_store(url).conversations
    for index in range(number):
        title, tags = f"The conversation number {index}", {"team": "red", "number": str(index)}
        conversations.create(corpus.conversation(random), title=title, tags=tags)


def _page_row(
    effort: Effort, what: str, ours: tuple[int, str], bare: tuple[int, str], least: float | None = None
) -> FigureRow:
    size, busy = len(load.ask(ours[0], load.get(ours[1]))), []

    def rate(port: int, path: str) -> float:
        request = load.get(path)
        expect = load.ask(port, request)
        run = load.drive(port, repeat(request), connections=_CONNECTIONS, seconds=effort.seconds, expect=expect)
        busy.append(run.busy)
        return run.rate

    rounds = interleaved(effort.rounds, lambda: rate(*ours), lambda: rate(*bare))
    return rounds.row(
        f"{what}: throughput against a count by a bare Flask view",
        "requests/s",
        more=f"; {size / 1000:.0f} kB",
        least=least,
        generator_busy=max(busy),
    )


def histogram(effort: Effort) -> list[FigureRow]:
    """Measure a histogram by kind, in two logs of the same kinds."""
    random = Random(1)
    small, large = corpus.conversation(random), corpus.conversation(random)
    with servers.redis_server() as url:
        for conversation_id, number in ((small, effort.small_log), (large, effort.stored)):
            corpus.fill(url, conversation_id, corpus.small_events(random, number))
        store = corpus.open_store(url)
        return [_histogram_row(effort, store, large, small, buckets) for buckets in _BUCKETS]


def _histogram_row(
    effort: Effort, store: Store, large: ConversationId, small: ConversationId, buckets: int
) -> FigureRow:
    calls = [partial(store.events.histograms.of, log, by="kind", buckets=buckets) for log in (large, small)]
    rounds = interleaved(effort.rounds, *(timed(call, _CALLS) for call in calls))
    what = f"histogram of {buckets} buckets: time at {effort.stored:,} events against {effort.small_log:,}"
    return rounds.row(what, "s", most=1.5)


def keys(effort: Effort) -> list[FigureRow]:
    """Measure a key that an admin made. The server looks it up in Redis twice a second, and caches it in between."""
    conversation = corpus.conversation(Random(1))
    path = f"/api/conversations/{conversation}/events/count"
    with ExitStack() as stack:
        url = stack.enter_context(servers.redis_server())
        corpus.fill(url, conversation, corpus.small_events(Random(1), effort.small_log))
        _, key = corpus.open_store(url).access.keys.make("bench", ["read"], None)
        keyed = stack.enter_context(servers.gunicorn("app:create_app()", url, SESSION_API_KEY=_OF_SETTINGS))
        open_ = stack.enter_context(servers.gunicorn("app:create_app()", url))

        def rate(port: int, request: bytes) -> float:
            expect = b"%d" % effort.small_log
            run = load.drive(port, cycle([request]), connections=_CONNECTIONS, seconds=effort.seconds, expect=expect)
            return run.rate

        with_key, without = load.get(path, f"Authorization: Bearer {key}"), load.get(path)
        rounds = interleaved(effort.rounds, lambda: rate(keyed, with_key), lambda: rate(open_, without))
    return [rounds.row("count, no filter: throughput with a key against none", "requests/s", least=0.95)]


def body(effort: Effort) -> list[FigureRow]:
    """Measure each needle with warm workers, then the first count of new workers."""
    random = Random(2)
    conversation_id = corpus.conversation(random)
    events = list(corpus.messages(random, effort.messages, _RARE, _COMMON))
    text = b" ".join(fold(_text_of(event)) for event in events)
    with servers.redis_server() as url:
        corpus.fill(url, conversation_id, events)
        with servers.gunicorn("app:create_app()", url) as port:
            warm = [
                _body_warm(effort, port, conversation_id, text, "absent", _ABSENT, most=5),
                _body_warm(effort, port, conversation_id, text, "rare", _RARE, most=5),
                _body_warm(effort, port, conversation_id, text, "in every message", _COMMON),
            ]
        return [*warm, _body_cold(effort, url, conversation_id, text)]


def _text_of(event: ReceivedEvent) -> str:
    text: str = event.fields["llm_message"]["content"][0]["text"]
    return text


def _request_for(conversation_id: ConversationId, needle: str) -> bytes:
    """Return a request that counts the messages with a needle."""
    return load.get(f"/api/conversations/{conversation_id}/events/count?body={quote(needle)}")


def _find_all(text: bytes, needle: bytes) -> int:
    """Count the occurrences of a needle in one pass."""
    number, at = 0, text.find(needle)
    while at >= 0:
        number, at = number + 1, text.find(needle, at + len(needle))
    return number


def _body_warm(
    effort: Effort,
    port: int,
    conversation_id: ConversationId,
    text: bytes,
    name: str,
    needle: str,
    most: float | None = None,
) -> FigureRow:
    request, folded = _request_for(conversation_id, needle), fold(needle)
    expect = b"%d" % _find_all(text, folded)

    def ours() -> float:
        run = load.drive(port, repeat(request, effort.body_counts), connections=1, expect=expect)
        return run.seconds / run.requests

    rounds = interleaved(effort.rounds, ours, timed(lambda: _find_all(text, folded), effort.body_counts))
    what = f"count, body {name}, {effort.messages:,} messages of {len(text) / 1e6:.1f} MB: time against one find pass"
    return rounds.row(what, "s", most=most)


def _body_cold(effort: Effort, url: str, conversation_id: ConversationId, text: bytes) -> FigureRow:
    request, expect = _request_for(conversation_id, _ABSENT), b"0"
    times = []
    for _ in range(effort.worker_starts):
        with servers.gunicorn("app:create_app()", url) as port:
            run = load.drive(port, [request], connections=1, expect=expect)
            times.append(run.seconds * 1e3)
    return FigureRow(
        f"count, body absent, {effort.messages:,} messages: first count of a new worker",
        median(times),
        " ms",
        f"{len(text) / 1e6:.1f} MB fetched; from {min(times):.1f} to {max(times):.1f} ms in {len(times)} starts",
        most=25,
        raw={"ours": times, "unit": "ms"},
    )


def append(effort: Effort) -> list[FigureRow]:
    random = Random(3)
    with (
        servers.redis_server() as url,
        servers.gunicorn("app:create_app()", url) as port,
        Redis.from_url(url) as redis,
    ):
        rounds = interleaved(
            effort.rounds,
            lambda: _by_webhook(port, *_batches(random, effort.batches, _BATCH)),
            lambda: _by_pipeline(redis, *_batches(random, effort.batches, _BATCH)),
        )
    what = f"append by webhook, batches of {_BATCH}: events/s against a raw pipeline"
    return [rounds.row(what, "events/s", more=f"; {_mean_size(random):.0f} bytes an event", least=0.4)]


def _batches(random: Random, number: int, size: int) -> tuple[ConversationId, list[list[ReceivedEvent]]]:
    events: Iterator[ReceivedEvent] = corpus.agent_events(random, number * size)
    return corpus.conversation(random), [list(islice(events, size)) for _ in range(number)]


def _mean_size(random: Random) -> float:
    events = list(corpus.agent_events(random, 700))
    return sum(len(event.raw) for event in events) / len(events)


def _by_webhook(port: int, conversation_id: ConversationId, batches: list[list[ReceivedEvent]]) -> float:
    """Return events per second of posted batches. Raises RuntimeError if an event is missing."""
    path = f"/api/v1/webhooks/events/{conversation_id}"
    requests = [load.post(path, b"[%b]" % b",".join(event.raw for event in batch)) for batch in batches]
    run = load.drive(port, requests, connections=_POSTING)
    found = load.ask(port, load.get(f"/api/conversations/{conversation_id}/events/count"))
    if found != b"%d" % (number := sum(map(len, batches))):
        raise RuntimeError(f"{found!r} events stored of {number}")
    return number / run.seconds


def _by_pipeline(redis: Redis, conversation_id: ConversationId, batches: list[list[ReceivedEvent]]) -> float:
    """Return events per second of batches that redis-py writes."""
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
