"""A histogram of a large log against that of a small one."""

import time
from collections.abc import Callable
from random import Random

from bench import corpus, servers
from bench.measure import Effort, Row, interleaved
from store import Store
from wire import ConversationId

#: events of the small log, and calls of one measurement
_SMALL, _CALLS = 1_000, 20

#: buckets: the default of the wire, and the most
_BUCKETS = (60, 200)


def rows(effort: Effort) -> list[Row]:
    """The time of a histogram by kind, in two logs of the same kinds."""
    random = Random(1)
    small, large = corpus.conversation(random), corpus.conversation(random)
    with servers.redis_server() as url:
        for conversation_id, number in ((small, _SMALL), (large, effort.stored)):
            corpus.fill(url, conversation_id, corpus.small_events(random, number))
        store = corpus.open_store(url)
        return [_row(effort, store, large, small, buckets) for buckets in _BUCKETS]


def _row(effort: Effort, store: Store, large: ConversationId, small: ConversationId, buckets: int) -> Row:
    rounds = interleaved(effort.rounds, _timed(store, large, buckets), _timed(store, small, buckets))
    return Row(
        f"histogram of {buckets} buckets: time at {effort.stored:,} events against {_SMALL:,}",
        rounds.ratio,
        " ×",
        "{:.2f} ms against {:.2f} ms".format(*(1000 * seconds for seconds in rounds.medians)),
        most=1.5,
        raw={**rounds.raw, "unit": "s"},
    )


def _timed(store: Store, conversation_id: ConversationId, buckets: int) -> Callable[[], float]:
    """The seconds of one call."""

    def measure() -> float:
        start = time.perf_counter()
        for _ in range(_CALLS):
            store.histograms.of(conversation_id, by="kind", buckets=buckets)
        return (time.perf_counter() - start) / _CALLS

    return measure
