"""The table, for the terminal and docs/performance.md, and the raw figures under bench/results/."""

import json
import os
import platform
from dataclasses import asdict
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

from redis import Redis

from bench import servers
from bench.measure import Row

_ROOT = Path(__file__).parent.parent

#: heading of the part of the page that no measurement writes
_COSTS = "## Cost of every operation"

_PAGE = """# Performance

`make bench` writes this page down to "Cost of every operation". Every figure is a ratio of two measurements taken in
turn in one run (the median of the rounds' ratios), so that it depends little on how fast the machine is.

{machine}

{table}

How each is measured (`bench/`):

* All servers are of the run's own: a private Redis on a unix socket, gunicorn on loopback under `gunicorn.conf.py`,
  with one worker unless a row says otherwise. The load generator sends prebuilt requests over keep-alive
  connections, reads as much of a reply as its length needs, and checks every count.
* **count**: 8 connections; a log of 1,000 events of five (kind, source) pairs. The bare view (`bench/baseline.py`)
  makes one pipelined Redis call (`EXISTS` and `ZCOUNT`) under the same gunicorn settings; it knows no filters,
  no errors and no documentation. Filters by time give another instant in each of 999 requests.
* **count, body**: one connection, the whole time of a request, against `bytes.find` over the same case-folded text
  in the bench's own process. The first count of a new worker includes connecting to Redis and fetching the text.
* **pages**: 8 connections; the first page of a log of 1,000 events and of 1,000 conversations, again and again, every
  byte compared. Nothing changes meanwhile: the worker has the JSON of the conversations, and asks Redis for their order
  and versions. The bare view counts, as above.
* **histogram**: calls of the store, one at a time; five (kind, source) pairs, the events a second apart.
* **append**: four connections post batches of 100 whole events. The raw pipeline sends `RPUSH`, `HSET` and `ZADD`
  for each event, 100 events at a time, with nothing parsed or checked.
* **sockets**: one process appends over four connections, another one holds the sockets; an event bears the time of
  its sending. The latency is that of the whole way: request, append, signal, frame, read. All of it, the clients too,
  shares the cores with the server.
* **inbox**: calls of the store, one at a time, on two private servers; a page has five actions.
* **inbox streams**: one process appends an action that waits to two servers in turn, another one holds the streams;
  an action bears the time of its sending. The latency is that of the whole way: request, append, index, signal, read,
  event.
* **notifications**: the bench's own process is the webhook; an action waits after the other, each in a conversation of
  its own, on a server with one worker and a supervisor. The supervisor polls the outboxes four times a second.
* **memory**: `used_memory` before and after a log is written; the text that `body` searches is included. The layout of
  version 5 is what an older release wrote; packed is what `python -m migrate --logs` makes of it.
"""


def machine() -> dict[str, str | int]:
    """The machine and the versions that the figures were measured on."""
    with servers.redis_server() as url, Redis.from_url(url) as redis:
        redis_version = redis.info("server")["redis_version"]
    return {
        "date": datetime.now().astimezone().isoformat(timespec="minutes"),
        "cores": os.cpu_count() or 0,
        "processor": platform.machine(),
        "system": platform.system(),
        "python": platform.python_version(),
        "redis": redis_version,
        "redis-py": version("redis"),
        **{name: version(name) for name in ("flask", "flask-smorest", "gunicorn", "gevent")},
    }


def table(rows: list[Row]) -> str:
    """The rows as a Markdown table."""
    lines = ["| what | measured | target | | figures |", "|---|---:|---:|---|---|"]
    for row in rows:
        lines.append(f"| {row.what} | {_number(row.value)}{row.unit} | {row.target} | {row.mark} | {row.detail} |")
    return "\n".join(lines)


def write(rows: list[Row], measured_on: dict[str, str | int]) -> None:
    """Write docs/performance.md and one file of raw figures."""
    page = _PAGE.format(machine=", ".join(f"{name} {value}" for name, value in measured_on.items()), table=table(rows))
    file = _ROOT / "docs" / "performance.md"
    file.write_text(f"{page}\n{_COSTS}{file.read_text().partition(_COSTS)[2]}")
    results = Path(__file__).parent / "results"
    results.mkdir(exist_ok=True)
    name = str(measured_on["date"])[:16].replace(":", "")
    figures = {"measured_on": measured_on, "rows": [asdict(row) for row in rows]}
    (results / f"{name}.json").write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n")


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
