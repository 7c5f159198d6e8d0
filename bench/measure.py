"""Measures two sides in turn; writes a row with the median of the rounds' ratios, and its target, for each.

The table of the rows is for the terminal and for docs/performance.md; every figure is also written as JSON.
"""

import json
import os
import platform
import textwrap
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


_ROOT = Path(__file__).parent.parent

#: ends the part of the page that a run writes
_END = "<!-- end of what make bench writes -->"

_PAGE = """# Performance

`make bench` writes this page down to "Tails". Most figures are ratios of two measurements taken in turn in one run (the
median of the rounds' ratios), so that they depend little on how fast the machine is; the others are of this machine.
[bench/results](../bench/results) has every single figure of the last run. `python -m bench --json FILE SUBJECT …`
writes those of some.

{machine}

{table}

How each is measured (`bench/`):

* All servers are of the run's own: a private Redis on a unix socket, gunicorn on loopback under `gunicorn.conf.py`,
  with one worker unless a row says otherwise. The load generator sends prebuilt requests over keep-alive connections,
  reads as much of a reply as its length needs, and checks every count.
* **count**: 8 connections; a log of 1,000 events of five (kind, source) pairs. The bare view (`bare_app` of
  `bench/servers.py`) makes one pipelined Redis call (`EXISTS` and `ZCOUNT`) under gunicorn's own gevent worker and its
  defaults; it knows no filters, no errors and no documentation. Filters by time give another instant in each of 999
  requests.
* **count, body**: one connection, the whole time of a request, against `bytes.find` over the same case-folded text in
  the bench's own process. The first count of a new worker includes connecting to Redis and fetching the text.
* **pages**: 8 connections; the first page of a log of 1,000 events and of 1,000 conversations, again and again, every
  byte compared. Nothing changes meanwhile: the worker has the JSON of the conversations, and asks Redis for their order
  and versions. The bare view counts, as above.
* **histogram**: calls of the store, one at a time; five (kind, source) pairs, the events a second apart.
* **append**: four connections post batches of 100 whole events. The raw pipeline sends `RPUSH`, `HSET` and `ZADD` for
  each event, 100 events at a time, with nothing parsed or checked.
* **sockets**: one process appends over four connections, another one holds the sockets; an event has the time of its
  sending. The latency is that of the whole way: request, append, signal, frame, read. All of it, the clients too,
  shares the cores with the server.
* **inbox**: calls of the store, one at a time, on two private servers; a page has five actions.
* **inbox streams**: one process appends an action that waits to two servers in turn, another one holds the streams; an
  action has the time of its sending. The latency is that of the whole way: request, append, index, signal, read,
  event.
* **notifications**: the bench's own process is the webhook; an action waits after the other, each in a conversation of
  its own, on a server with one worker and a supervisor. The supervisor polls the outboxes four times a second.
* **sandboxes, warm**: of the bundled spec, started by a supervisor of the run's own, one after the other, a warm one
  when the pool is full again; from the client's request to its poll that finds the start task READY, a poll every 2 ms.
  Pauses and resumes are of one sandbox, likewise.
* **keys**: as count; a key that an admin made against a server that needs none.
* **tails**: two workers; a log of 1,000 events of 492 bytes, an append of one such event. Ours and the bare view, which
  counts whatever ours does, take turns of two seconds until each has had eight, at each number of connections.
* **besieged**: a good client that counts, reads a page and appends in turn, 50 requests a second, every tenth on a new
  connection; its p99 beside each siege against its p99 just before. Half heads are half a request line from eight
  addresses, and those that the server closes come again, all of them within 20 seconds. An unread body is sent but for
  its last byte, to a link that does not exist. A sandbox posts 100 events of 500 bytes a request, on one connection.
  Memory is the workers' at its peak, and the store's at the end. The settings allow what MAX_FOLLOWERS, MAX_BODY_BYTES
  and `maxmemory` (here 1 GiB) bound, at 128 KiB a connection; each process may also grow by 16 MiB.
* **memory**: `used_memory` before and after a log is written; the text that `body` searches is included.
* **cold**: `MEMORY USAGE` of a conversation's keys before and after its log has become an object; then one event is
  appended, which brings the log back, and it is frozen again. The objects are in the memory of the bench.
"""


def machine() -> dict[str, str | int]:
    """The machine, its load before the run, and the versions that the figures were measured on."""
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
    """The load of the machine, of the last one, five and fifteen minutes."""
    return " / ".join(f"{one:.1f}" for one in os.getloadavg())


def table(rows: list[Row]) -> str:
    """The rows as a Markdown table."""
    lines = ["| what | measured | target | | figures |", "|---|---:|---:|---|---|"]
    for row in rows:
        cells = (row.what, f"{_number(row.value)}{row.unit}", row.target, row.mark, row.detail)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def write(rows: list[Row], measured_on: dict[str, str | int], root: Path = _ROOT) -> None:
    """Write docs/performance.md, and one file of all figures, in the place of that of the run before."""
    page = _PAGE.format(
        machine=textwrap.fill(
            ", ".join(f"{name} {value}" for name, value in measured_on.items()), 154, break_on_hyphens=False
        ),
        table=table(rows),
    )
    file = root / "docs" / "performance.md"
    file.write_text(f"{page}\n{_END}{file.read_text().partition(_END)[2]}")
    results = root / "bench" / "results"
    results.mkdir(exist_ok=True, parents=True)
    for older in results.glob("*.json"):
        older.unlink()
    write_json(results / f"{str(measured_on['date'])[:16].replace(':', '')}.json", rows, measured_on)


def write_json(file: Path, rows: list[Row], measured_on: dict[str, str | int]) -> None:
    """Write every figure with its unit, medians and spreads, the machine, its load and the versions."""
    found = {
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
    file.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


def spread(figures: Any) -> Any:
    """Figures with their median, their extremes and their quartiles; whatever is no list of them stays as it is."""
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
