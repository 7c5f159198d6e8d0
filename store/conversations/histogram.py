"""The number of a conversation's events over time, by kind or by source."""

from bisect import bisect_right
from dataclasses import dataclass
from typing import Literal
from urllib.parse import unquote

from store.errors import ConversationNotFound
from store.keys import ConversationKeys
from store.log.text import MessageText, fold, times
from store.scripts import Scripts
from wire import ConversationId, Micros

#: series of a histogram: agents choose the names of kinds and sources, up to MAX_EVENT_KINDS of them
MOST_SERIES = 20

#: the series of all names beyond those
OTHER = "other"


@dataclass(frozen=True, slots=True)
class Histogram:
    """Events of a window in equal buckets. A conversation without events has no window unless one is asked for."""

    start: Micros | None
    end: Micros | None  #: exclusive
    bucket_seconds: float  #: 0 of an empty window
    series: dict[str, list[int]]  #: name → events in each bucket; the most frequent first, and at last OTHER

    @property
    def total(self) -> int:
        """The events of the window."""
        return sum(map(sum, self.series.values()))


class Histograms:
    """The histograms of all conversations."""

    def __init__(self, scripts: Scripts, text: MessageText) -> None:
        self._scripts = scripts
        self._text = text

    def of(
        self,
        conversation_id: ConversationId,
        *,
        by: Literal["kind", "source"],
        buckets: int,
        since: Micros | None = None,
        until: Micros | None = None,
        body: str | None = None,
    ) -> Histogram:
        """The events of a window, by default of all, in so many buckets. Raises ConversationNotFound.

        body: messages with this text alone are counted, in the same window. One round trip, and further ones where
        very many pairs of kind and source occur: each counts within a bounded time, and an event that is appended
        meanwhile may be left out. With a body also those of a count by it, and the time of reading all text.
        """
        counts: dict[str, list[int]] = {}
        start, end, pairs = self._pairs(conversation_id, _written(since), _written(until), 1 if body else buckets)
        if body and start and end:
            counts = self._with_text(conversation_id, body, by, _edges(int(start), int(end), buckets))
        else:
            for (kind, source), numbers in pairs.items():
                if body is None or kind == "MessageEvent":
                    name = kind if by == "kind" else source
                    counts[name] = _added(counts[name], numbers) if name in counts else numbers
        return _histogram(start, end, buckets, _bounded(counts))

    def _pairs(
        self, conversation_id: ConversationId, start: str, end: str, buckets: int
    ) -> tuple[str, str, dict[tuple[str, str], list[int]]]:
        """The window, and the numbers of each pair of kind and source. Raises ConversationNotFound."""
        pairs: dict[tuple[str, str], list[int]] = {}
        following = ""
        while True:
            args = [start, end, buckets, following]
            reply = self._scripts.count_over_time([ConversationKeys(conversation_id).root], args)
            if reply is None:
                raise ConversationNotFound
            *words, found = reply
            start, end, following = (word.decode() for word in words)
            pairs |= zip(map(_pair, found[::2]), found[1::2], strict=True)
            if not following:
                return start, end, pairs

    def _with_text(
        self, conversation_id: ConversationId, body: str, by: str, edges: list[float]
    ) -> dict[str, list[int]]:
        """The numbers of messages with a text between edges, by name."""
        counts: dict[str, list[int]] = {}
        needle, empty = fold(body), [0] * (len(edges) - 1)
        for chunk in self._text.chunks(conversation_id):
            for at, source in times(chunk, needle):
                if edges[0] <= at < edges[-1]:
                    name = "MessageEvent" if by == "kind" else source
                    counts.setdefault(name, [*empty])[bisect_right(edges, at) - 1] += 1
        return counts


def _written(time: Micros | None) -> str:
    return "" if time is None else str(time)


def _pair(stored: bytes) -> tuple[str, str]:
    kind, _, source = stored.decode().partition(":")
    return unquote(kind), unquote(source)


def _edges(start: int, end: int, buckets: int) -> list[float]:
    """Where the buckets begin, and the last one ends: as in `count_over_time.lua`, whole microseconds as scores."""
    return [float(start - (-number * (end - start) // buckets)) for number in range(buckets + 1)]


def _added(*series: list[int]) -> list[int]:
    return [sum(numbers) for numbers in zip(*series, strict=True)]


def _bounded(counts: dict[str, list[int]]) -> dict[str, list[int]]:
    """The most frequent names, and the sum of all others as OTHER, which also has those that are named so."""
    names = sorted(counts.keys() - {OTHER}, key=lambda name: (-sum(counts[name]), name))
    kept = names if len(counts) <= MOST_SERIES else names[: MOST_SERIES - 1]
    others = [numbers for name, numbers in counts.items() if name not in kept]
    return {name: counts[name] for name in kept} | ({OTHER: _added(*others)} if others else {})


def _histogram(start: str, end: str, buckets: int, series: dict[str, list[int]]) -> Histogram:
    """Without events an edge that was not asked for is that of the other side, if there is one."""
    first, last = start or end, end or start
    if not first:
        return Histogram(None, None, 0.0, series)
    begins = Micros(int(first))
    ends = max(begins, Micros(int(last)))
    return Histogram(begins, ends, (ends - begins) / 1e6 / buckets, series)
