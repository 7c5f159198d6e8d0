"""Counts without `body`: against a bare Flask view, and in a large log against a small one."""

from contextlib import ExitStack
from itertools import cycle
from random import Random

from redis import Redis

from bench import baseline, corpus, load, servers
from bench.measure import Effort, Row, interleaved
from wire import ConversationId, Micros, event_time

#: requests under way at once: enough to keep one worker busy
_CONNECTIONS = 8

#: filters by their members: kind, source, time
_FILTERS = {
    "no filter": (),
    "kind": ("kind",),
    "kind, source, time": ("kind", "source", "time"),
    "time": ("time",),
    "kind, time": ("kind", "time"),
}


def rows(effort: Effort) -> list[Row]:
    """Throughput by filter, then throughput by length of the log."""
    random = Random(1)
    small, large = corpus.conversation(random), corpus.conversation(random)
    with ExitStack() as stack:
        url = stack.enter_context(servers.redis_server())
        for conversation_id, number in ((small, effort.small_log), (large, effort.large_log)):
            corpus.fill(url, conversation_id, corpus.small_events(random, number))
        with Redis.from_url(url) as redis:
            redis.zadd(baseline.sorted_set(small), {f"{i:010d}": i for i in range(effort.small_log)})
        ours = stack.enter_context(servers.gunicorn("app:create_app()", url))
        bare = stack.enter_context(servers.gunicorn("bench.baseline:create_app()", url))
        by_filter = [
            _against_bare(effort, name, _Side(effort, ours, small, name), _Side(effort, bare, small, name, bare=True))
            for name in ("no filter", "kind", "kind, source, time", "time")
        ]
        by_size = [
            _against_small(effort, name, _Side(effort, ours, large, name, large=True), _Side(effort, ours, small, name))
            for name in ("no filter", "kind, time")
        ]
        return by_filter + by_size


class _Side:
    """One server asked for one count; called, it measures requests a second."""

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
        self._expect = b"%d" % (number if bare else expected)  # the bare view knows no filters
        self.busy: list[float] = []

    def __call__(self) -> float:
        requests = cycle(self._requests)
        run = load.drive(self._port, requests, connections=_CONNECTIONS, seconds=self._seconds, expect=self._expect)
        self.busy.append(run.busy)
        return run.rate


def _queries(name: str, number: int) -> tuple[list[str], int]:
    """Queries of a filter, which keeps the later half of a log by time, and the count that each should give."""
    parts = _FILTERS[name]
    first = number // 2 if "time" in parts else 0
    kinds = {"ActionEvent"} if "kind" in parts else {kind for kind, _ in corpus.TEN}
    expected = sum(corpus.TEN[i % len(corpus.TEN)][0] in kinds for i in range(first, number))
    # Many instants between the same two events: a cache of queries would gain nothing.
    instants = range(corpus.FIRST + first * corpus.STEP - 999, corpus.FIRST + first * corpus.STEP)
    fixed = {"kind": "kind=ActionEvent", "source": "source=agent"}
    return [
        "?" * bool(parts) + "&".join(fixed.get(part, f"timestamp__gte={event_time(Micros(instant))}") for part in parts)
        for instant in (instants if "time" in parts else instants[:1])
    ], expected


def _against_bare(effort: Effort, name: str, ours: _Side, bare: _Side) -> Row:
    rounds = interleaved(effort.rounds, ours, bare)
    ours_rate, bare_rate = rounds.medians
    return Row(
        f"count, {name}: throughput against a bare Flask view",
        rounds.ratio,
        " ×",
        f"{ours_rate:,.0f}/s against {bare_rate:,.0f}/s",
        least=0.95,
        raw={**rounds.raw, "unit": "requests/s", "generator_busy": max(ours.busy + bare.busy)},
    )


def _against_small(effort: Effort, name: str, large: _Side, small: _Side) -> Row:
    rounds = interleaved(effort.rounds, lambda: 1 / large(), lambda: 1 / small())
    large_time, small_time = rounds.medians
    return Row(
        f"count, {name}: time at {effort.large_log:,} events against {effort.small_log:,}",
        rounds.ratio,
        " ×",
        f"{large_time * 1e6:.0f} µs against {small_time * 1e6:.0f} µs a request",
        most=1.1,
        raw={**rounds.raw, "unit": "s/request", "generator_busy": max(large.busy + small.busy)},
    )
