"""How figures change along a quantity, each as a curve: what should be flat, and what may grow with its own answer."""

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import repeat
from random import Random
from timeit import timeit

from redis import Redis

from bench import append, body, corpus, load, memory, servers, sockets
from bench.measure import Curve, Effort, along
from store.log.text import fold
from wire import ConversationId, Event, Micros, event_time

#: events a second that are appended while sockets listen, and how many in all
_RATE, _SENT = 100, 500


def log_size(effort: Effort) -> Curve:
    """Requests to logs of several lengths, one at a time."""
    random = Random(21)
    logs = {number: corpus.conversation(random) for number in effort.logs}
    with servers.redis_server() as url, servers.gunicorn("app:create_app()", url) as port:
        for number, conversation_id in logs.items():
            corpus.fill(url, conversation_id, _with_ids(corpus.small_events(random, number)))
        queries = {
            "count": lambda _: "count",
            "count by kind and time": lambda number: f"count?kind=ActionEvent&timestamp__gte={_middle(number)}",
            "a page of 100 events": lambda _: "search",
            "a page of 100, the newest": lambda _: "search?sort_order=TIMESTAMP_DESC",
        }
        series = {
            name: along(
                effort.curve_rounds,
                {
                    number: _timed(effort, port, f"/api/conversations/{conversation_id}/events/{query(number)}")
                    for number, conversation_id in logs.items()
                },
            )
            for name, query in queries.items()
        }
    return Curve("log-size", "Latency against the length of the log", "events of the log", "ms a request", series)


def text_size(effort: Effort) -> Curve:
    """Counts by `body` over texts of several lengths, and one pass of `bytes.find` over the same."""
    random = Random(22)
    ours: dict[float, Callable[[], float]] = {}
    find: dict[float, Callable[[], float]] = {}
    with servers.redis_server() as url, servers.gunicorn("app:create_app()", url) as port:
        for number in effort.texts:
            conversation_id = corpus.conversation(random)
            events = list(corpus.messages(random, number, body.RARE, body.COMMON))
            text = b" ".join(fold(body.text_of(event)) for event in events)
            corpus.fill(url, conversation_id, events)
            ours[len(text) / 1e6] = partial(_rate, effort, port, body.request_for(conversation_id, body.ABSENT))
            find[len(text) / 1e6] = partial(_find, effort, text)
        series = {
            "count by body, absent": along(effort.curve_rounds, ours),
            "one pass of bytes.find": along(effort.curve_rounds, find),
        }
    return Curve("text-size", "A count by body against the length of the text", "MB of text", "ms a request", series)


def batch_size(effort: Effort) -> Curve:
    """Events that are appended in batches of several sizes, and the same by a raw pipeline."""
    random = Random(23)
    with (
        servers.redis_server() as url,
        servers.gunicorn("app:create_app()", url) as port,
        Redis.from_url(url) as redis,
    ):

        def by(write: Callable[[ConversationId, list[list[Event]]], float], size: int) -> float:
            return write(*append.batches(random, max(1, effort.curve_events // size), size))

        writers = {"by webhook": partial(append.by_webhook, port), "a raw pipeline": partial(append.by_pipeline, redis)}
        series = {
            name: along(effort.curve_rounds, {size: partial(by, write, size) for size in effort.batch_sizes})
            for name, write in writers.items()
        }
    return Curve("batch-size", "Appending against the size of a batch", "events of a batch", "events/s", series)


def socket_number(effort: Effort) -> Curve:
    """The time from an append to the client's hand, with several numbers of sockets."""
    random, p50, p99 = Random(24), {}, {}
    with servers.redis_server() as url, servers.gunicorn("app:create_app()", url, sockets.WORKERS) as port:
        for number in effort.socket_numbers:
            some = replace(effort, sockets=number)
            sent = [[one] for one in range(min(_SENT, effort.socket_events))]
            runs = [sockets.measure(port, random, some, sent, _RATE) for _ in range(min(3, effort.curve_rounds))]
            p50[float(number)] = [run.percentile(0.5) for run in runs]
            p99[float(number)] = [run.percentile(0.99) for run in runs]
    title = f"From append to the client's hand, {_RATE} events/s, {sockets.WORKERS} workers"
    return Curve("socket-number", title, "sockets", "ms", {"p50": p50, "p99": p99})


def memory_layout(effort: Effort) -> Curve:
    """The memory of an event in logs of several lengths, by the keys of a conversation."""
    series: dict[str, dict[float, list[float]]] = {"in all": {}, "its own bytes": {}}
    for number in effort.stored_logs:
        own, whole, parts = memory.measured(list(corpus.agent_events(Random(4), number)))
        series["in all"][number], series["its own bytes"][number] = [whole], [own]
        for name, size in sorted(parts.items()):
            series.setdefault(f"key {name}", {})[number] = [size]
    large = {name: found for name, found in series.items() if max(value for [value] in found.values()) >= 1}
    return Curve(
        "memory-layout", "Memory of an event by the keys of its log", "events of the log", "bytes an event", large
    )


def conversation_number(effort: Effort) -> Curve:
    """Requests to stores of several numbers of conversations, one at a time. The one store grows."""
    random, series = Random(26), dict[str, dict[float, list[float]]]()
    with ExitStack() as stack:
        url = stack.enter_context(servers.redis_server())
        port = stack.enter_context(servers.gunicorn("app:create_app()", url))
        store, ids = corpus.open_store(url), list[ConversationId]()
        for number in effort.conversations:
            while len(ids) < number:
                ids.append(corpus.conversation(random))
                store.conversations.create(ids[-1], title=f"The conversation number {len(ids)}", tags={"team": "red"})
            middle = ids[number // 2]
            measures: dict[str, Callable[[], float]] = {
                "get a conversation": _timed(effort, port, f"/api/conversations/{middle}"),
                "a page of 100 conversations": _timed(effort, port, "/api/conversations/search"),
                "a page of 100 of the list of all": _timed(effort, port, "/api/v1/conversations/search"),
                "append an event": partial(_append, effort, port, random, middle),
            }
            for name, measure in measures.items():
                series.setdefault(name, {}).update(along(effort.curve_rounds, {number: measure}))
    title = "Latency against the number of conversations"
    return Curve("conversation-number", title, "conversations", "ms a request", series)


def _with_ids(events: Iterable[Event]) -> Iterator[Event]:
    """Events whose bytes have at least their id, by which a page finds the next one."""
    return (event._replace(raw=json.dumps({"id": event.id}).encode()) for event in events)


def _middle(number: int) -> str:
    return event_time(Micros(corpus.FIRST + number // 2 * corpus.STEP))


def _timed(effort: Effort, port: int, path: str) -> Callable[[], float]:
    return partial(_rate, effort, port, load.get(path))


def _rate(effort: Effort, port: int, request: bytes) -> float:
    """Milliseconds of a request."""
    run = load.drive(port, repeat(request, effort.curve_requests), connections=1)
    return 1000 * run.seconds / run.requests


def _find(effort: Effort, text: bytes) -> float:
    """Milliseconds of one pass."""
    needle, times = fold(body.ABSENT), effort.curve_requests
    return 1000 * timeit(lambda: body.find_all(text, needle), number=times) / times


def _append(effort: Effort, port: int, random: Random, conversation_id: ConversationId) -> float:
    """Milliseconds of a request that appends one event."""
    path = f"/api/v1/webhooks/events/{conversation_id}"
    events = corpus.agent_events(random, effort.curve_requests)
    run = load.drive(port, [load.post(path, b"[%b]" % event.raw) for event in events], connections=1)
    return 1000 * run.seconds / run.requests
