"""Measures two sides alternately, and writes a row with the median of the rounds' ratios, and its target.

The table of the rows is for the terminal and for docs/performance.md. Every figure is also written as JSON.
"""

import json
import os
import platform
import re
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import psutil
from redis import Redis

from bench import servers

#: Factor and format of a figure by unit.
_TOLD = {
    "requests/s": (1, "{:,.0f}/s"),
    "events/s": (1, "{:,.0f}/s"),
    "s": (1e3, "{:.2f} ms"),
    "s/request": (1e6, "{:.0f} µs"),
}

_ROOT = Path(__file__).parent.parent


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
    shell_lines: int = 1_000
    sandboxes: int = 20
    cold_starts: int = 10
    warm_starts: int = 50
    agent_starts: int = 3
    notifications: int = 100
    decisions: int = 1_000_000
    rehearsal_seconds: float = 10.0
    crowd: int = 1_000
    good_requests: int = 500
    half_heads: int = 6_300
    unread_bodies: int = 60
    tail_seconds: float = 8.0
    soak_minute: float = 60.0
    soak_minutes: int = 60 if os.environ.get("LONG") else 10
    soak_rate: float = 400.0


#: Enough to test that every subject runs. The figures mean nothing.
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
    shell_lines=50,
    sandboxes=4,
    cold_starts=2,
    warm_starts=3,
    agent_starts=1,
    notifications=5,
    decisions=500,
    rehearsal_seconds=0.2,
    crowd=20,
    good_requests=30,
    half_heads=200,
    unread_bodies=3,
    tail_seconds=0.2,
    soak_minute=0.5,
    soak_minutes=3,
)


@dataclass(frozen=True)
class FigureRow:
    """One figure. raw: its source figures, for the file of results."""

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
        """Return `ok` or `MISSED`; "" without a target."""
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
        """The median of the rounds' ratios. A load that slows down a whole round has no effect."""
        return median(ours / theirs for ours, theirs in zip(self.ours, self.theirs, strict=True))

    @property
    def medians(self) -> tuple[float, float]:
        return median(self.ours), median(self.theirs)

    def row(
        self,
        what: str,
        unit: str,
        *,
        more: str = "",
        least: float | None = None,
        most: float | None = None,
        **raw: Any,
    ) -> FigureRow:
        """Return the ratio as a row, with both medians and `more` in its detail. unit: of the figures. raw: extras."""
        factor, form = _TOLD[unit]
        ours, theirs = (form.format(factor * figure) for figure in self.medians)
        figures = {"ours": self.ours, "theirs": self.theirs, "unit": unit, **raw}
        return FigureRow(what, self.ratio, " ×", f"{ours} against {theirs}{more}", least, most, figures)


def interleaved(rounds: int, ours: Callable[[], float], theirs: Callable[[], float]) -> Rounds:
    """Measure both sides alternately, after a warm-up round. The first side changes from round to round."""
    ours(), theirs()
    results = Rounds([], [])
    for number in range(rounds):
        for side in (0, 1) if number % 2 else (1, 0):
            if side:
                results.ours.append(ours())
            else:
                results.theirs.append(theirs())
    return results


def timed(call: Callable[[], object], number: int) -> Callable[[], float]:
    """Return a timer of one call, the average of a number of calls, in seconds."""

    def measure() -> float:
        start = time.perf_counter()
        for _ in range(number):
            call()
        return (time.perf_counter() - start) / number

    return measure


def machine() -> dict[str, str | int]:
    """Return the machine, its load before the run, and the versions that were measured."""
    with servers.redis_server() as url, Redis.from_url(url) as redis:
        redis_version = redis.info("server")["redis_version"]
    return {
        "date": datetime.now().astimezone().isoformat(timespec="minutes"),
        "cores": os.cpu_count() or 0,
        "processor": platform.machine(),
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "load before": load(),
        "system": platform.system(),
        "python": platform.python_version(),
        "redis": redis_version,
        "redis-py": version("redis"),
        **{name: version(name) for name in ("flask", "flask-smorest", "gunicorn", "gevent")},
    }


def load() -> str:
    """Return the machine's load averages of one, five and fifteen minutes."""
    return " / ".join(f"{one:.1f}" for one in os.getloadavg())


def table(rows: list[FigureRow]) -> str:
    lines = ["| what | measured | target | | figures |", "|---|---:|---:|---|---|"]
    for row in rows:
        cells = (row.what, f"{_number(row.value)}{row.unit}", row.target, row.mark, row.detail)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def write(rows: list[FigureRow], measured_on: dict[str, str | int], root: Path = _ROOT) -> None:
    """Write a run's section of docs/performance.md, and one file of all figures. Replace the previous run."""
    environment = ", ".join(f"{name} {value}" for name, value in measured_on.items())
    measured = f"{textwrap.fill(environment, 154, break_on_hyphens=False)}\n\n{table(rows)}\n"
    write_section("measured", measured, root)
    results = root / "bench" / "results"
    results.mkdir(exist_ok=True, parents=True)
    for older in results.glob("*.json"):
        older.unlink()
    write_json(results / f"{str(measured_on['date'])[:16].replace(':', '')}.json", rows, measured_on)


def write_section(name: str, text: str, root: Path = _ROOT) -> None:
    """Write the section of docs/performance.md between the marks of a name."""
    file = root / "docs" / "performance.md"
    marked = re.compile(rf"(?<=<!-- {name} -->\n).*?(?=<!-- /{name} -->)", re.DOTALL)
    file.write_text(marked.sub(lambda _: text, file.read_text()))


def write_json(file: Path, rows: list[FigureRow], measured_on: dict[str, str | int]) -> None:
    """Write every figure with its unit, medians and spreads, the machine, its load and the versions."""
    results = {
        "measured_on": measured_on,
        "rows": [
            {
                "what": row.what,
                "value": row.value,
                "unit": row.unit.strip(),
                "least": row.least,
                "most": row.most,
                "mark": row.mark,
                "detail": row.detail,
                "figures": {name: spread(one) for name, one in row.raw.items()},
            }
            for row in rows
        ],
    }
    file.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")


def spread(figures: Any) -> Any:
    """Return figures with their median, extremes and quartiles. Anything but a list of figures is unchanged."""
    if not isinstance(figures, list) or not figures:
        return figures
    low, _, high = quantiles(figures, n=4, method="inclusive") if len(figures) > 1 else figures * 3
    return {
        "median": median(figures),
        "least": min(figures),
        "greatest": max(figures),
        "quartiles": [low, high],
        "figures": figures,
    }


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
