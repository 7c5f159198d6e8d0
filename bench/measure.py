"""A row of the table: two sides measured in turn, the median of the rounds' ratios, and its target; and a curve."""

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
    rests: int = 50
    warm_starts: int = 50
    notifications: int = 100
    crowd: int = 1_000
    good_requests: int = 500
    units: int = 10_000
    peer_log: int = 50_000
    # of the curves: what they are measured at, requests of one measurement, and events that are appended in one
    logs: tuple[int, ...] = (1_000, 10_000, 100_000, 1_000_000)
    texts: tuple[int, ...] = (300, 1_000, 3_000, 10_000, 30_000, 100_000)
    batch_sizes: tuple[int, ...] = (1, 3, 10, 30, 100, 300, 500)
    socket_numbers: tuple[int, ...] = (10, 30, 100, 300, 1_000)
    stored_logs: tuple[int, ...] = (10, 100, 1_000, 10_000, 100_000)
    conversations: tuple[int, ...] = (1_000, 10_000, 100_000)
    curve_rounds: int = 7
    curve_requests: int = 100
    curve_events: int = 2_000


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
    rests=3,
    warm_starts=3,
    notifications=5,
    crowd=20,
    good_requests=30,
    units=200,
    peer_log=1_000,
    logs=(100, 1_000),
    texts=(20, 200),
    batch_sizes=(1, 10),
    socket_numbers=(2, 5),
    stored_logs=(10, 100),
    conversations=(20, 100),
    curve_rounds=2,
    curve_requests=5,
    curve_events=50,
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
    peer: tuple[float, float] | None = None  #: its figure, and how many times as fast ours is
    raw: dict[str, Any] = field(default_factory=dict)

    @property
    def target(self) -> str:
        if self.least is None and self.most is None:
            return ""
        return f"≥ {self.least:g}{self.unit}" if self.most is None else f"≤ {self.most:g}{self.unit}"

    @property
    def mark(self) -> str:
        """`ok` or `miss`; empty where there is no target."""
        if self.least is None and self.most is None:
            return ""
        met = self.value >= self.least if self.least is not None else self.value <= (self.most or 0)
        return "ok" if met else "miss"


@dataclass(frozen=True)
class Curve:
    """Figures along a quantity: of each series, at each place on the x axis, those of all rounds."""

    name: str  #: of its file
    title: str
    x: str
    y: str  #: with the unit
    series: dict[str, dict[float, list[float]]]


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


@dataclass(frozen=True)
class Turns:
    """The figures of several sides, round by round, in the same unit."""

    sides: list[list[float]]

    @property
    def medians(self) -> list[float]:
        return [median(side) for side in self.sides]

    def ratio(self, one: int, other: int) -> float:
        """The median of the rounds' ratios of two sides."""
        return median(a / b for a, b in zip(self.sides[one], self.sides[other], strict=True))

    def named(self, *names: str) -> dict[str, Any]:
        """The figures by the names of the sides, as far as there are sides."""
        return dict(zip(names, self.sides, strict=False))


def in_turn(rounds: int, *sides: Callable[[], float]) -> Turns:
    """Measure all sides in turn, another one first in each round; one round before does not count."""
    results: list[list[float]] = [[] for _ in sides]
    for measure in sides:
        measure()
    for number in range(rounds):
        for at in range(len(sides)):
            side = (number + at) % len(sides)
            results[side].append(sides[side]())
    return Turns(results)


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


def along(rounds: int, sides: dict[float, Callable[[], float]]) -> dict[float, list[float]]:
    """Measure at every place in turn, forth and back from round to round; one round before does not count."""
    found: dict[float, list[float]] = {place: [] for place in sides}
    for measure in sides.values():
        measure()
    for number in range(rounds):
        for place, measure in reversed(sides.items()) if number % 2 else sides.items():
            found[place].append(measure())
    return found
