"""A row of the table: two sides measured in turn, the median of the rounds' ratios, and its target."""

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Any


@dataclass(frozen=True)
class Effort:
    """The scale of a run: seconds of one measurement, rounds of both sides, and sizes."""

    seconds: float = 0.5
    rounds: int = 11
    large_log: int = 1_000_000
    small_log: int = 1_000
    messages: int = 25_000
    body_counts: int = 20
    worker_starts: int = 3
    batches: int = 80
    stored: int = 100_000
    cold_log: int = 50_000
    thaws: int = 10
    sockets: int = 500
    socket_events: int = 2_000
    socket_rate: int = 100
    inbox_streams: int = 100
    inbox_actions: int = 200
    inbox_rate: int = 10
    inbox_conversations: int = 10_000
    sandboxes: int = 20
    cold_starts: int = 10
    warm_starts: int = 50
    notifications: int = 100
    crowd: int = 1_000
    good_requests: int = 500
    half_heads: int = 6_300
    unread_bodies: int = 60
    tail_seconds: float = 8.0


#: enough to test that every subject runs; the figures mean nothing
QUICK = Effort(
    seconds=0.1,
    rounds=2,
    large_log=5_000,
    messages=2_000,
    body_counts=3,
    worker_starts=1,
    batches=5,
    stored=2_000,
    cold_log=2_000,
    thaws=2,
    sockets=10,
    socket_events=200,
    socket_rate=200,
    inbox_streams=10,
    inbox_actions=20,
    inbox_rate=50,
    inbox_conversations=20,
    sandboxes=4,
    cold_starts=2,
    warm_starts=3,
    notifications=5,
    crowd=20,
    good_requests=30,
    half_heads=200,
    unread_bodies=3,
    tail_seconds=0.2,
)


@dataclass(frozen=True)
class Row:
    """One figure. raw: the figures that it was computed from, for the file of results."""

    what: str
    value: float
    unit: str
    detail: str
    least: float | None = None
    most: float | None = None
    raw: dict[str, Any] = field(default_factory=dict)

    @property
    def target(self) -> str:
        if self.least is None and self.most is None:
            return ""
        return f"≥ {self.least:g}{self.unit}" if self.most is None else f"≤ {self.most:g}{self.unit}"

    @property
    def mark(self) -> str:
        """`ok` or `MISSED`; empty where there is no target."""
        if self.least is None and self.most is None:
            return ""
        met = self.value >= self.least if self.least is not None else self.value <= (self.most or 0)
        return "ok" if met else "MISSED"


@dataclass(frozen=True)
class Rounds:
    """The figures of both sides, round by round, in the same unit."""

    ours: list[float]
    theirs: list[float]

    @property
    def ratio(self) -> float:
        """The median of the rounds' ratios: a load that slows a whole round does not count."""
        return median(ours / theirs for ours, theirs in zip(self.ours, self.theirs, strict=True))

    @property
    def medians(self) -> tuple[float, float]:
        return median(self.ours), median(self.theirs)

    @property
    def raw(self) -> dict[str, Any]:
        return {"ours": self.ours, "theirs": self.theirs}


def interleaved(rounds: int, ours: Callable[[], float], theirs: Callable[[], float]) -> Rounds:
    """Measure both sides in turn, the first one changing from round to round; one round before does not count."""
    ours(), theirs()
    results = Rounds([], [])
    for number in range(rounds):
        for side in (0, 1) if number % 2 else (1, 0):
            if side:
                results.ours.append(ours())
            else:
                results.theirs.append(theirs())
    return results
