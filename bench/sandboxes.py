"""Measures sandboxes: from a request to READY, cold and warm, and from a request to PAUSED and to RUNNING again.

The client measures the time, and polls the start task. Before each start in a warm sandbox it waits until the pool is
full, so that no refill competes with the start.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import quantiles
from typing import Any

import httpx

from bench import servers
from bench.measure import Effort, FigureRow
from settings.specs import BUNDLED

_WORKERS, _WARM = 2, 3

#: Poll interval of the client, and timeout of a sandbox, in seconds.
_POLL, _TIMEOUT = 0.002, 60.0


def sandboxes(effort: Effort) -> list[FigureRow]:
    """Start app conversations in new sandboxes, one after the other; then many sandboxes at once."""
    with _server() as client:
        ready(client)  # warm-up: the supervisor runs, and everything is loaded
        starts = []
        for _ in range(effort.cold_starts):
            _delete_all(client)
            starts.append(_seconds(lambda: ready(client)))
        _delete_all(client)
        together = _seconds(lambda: _run(client, effort.sandboxes))
    return [
        _row("an app conversation in a new sandbox: request to READY, median", starts, 150),
        FigureRow(
            f"{effort.sandboxes} sandboxes at once on {_WORKERS} workers: request to the last RUNNING",
            together,
            " s",
            f"{1000 * together / effort.sandboxes:.0f} ms each",
            raw={"seconds": together, "unit": "s"},
        ),
    ]


def warm(effort: Effort) -> list[FigureRow]:
    """Start app conversations one after the other, each in a warm sandbox. Then pause and resume one of them."""
    with _server(_WARM) as client:
        _start_warm(client)  # warm-up: everything is loaded
        starts = [_start_warm(client) for _ in range(effort.warm_starts)]
        [task] = client.get("/app-conversations/start-tasks/search", params={"limit": 1}).json()["items"]
        sandbox = f"/sandboxes/{task['sandbox_id']}"
        pauses, resumes = [], []
        for _ in range(effort.warm_starts):
            pauses.append(_seconds(lambda: _is_done(client, sandbox, "pause")))
            resumes.append(_seconds(lambda: _is_done(client, sandbox, "resume")))
    return [
        _row("an app conversation in a warm sandbox: request to READY, median", starts, 50),
        _row("a running sandbox: request to PAUSED, every process standing still, median", pauses, 20),
        _row("a paused sandbox: request to RUNNING, its agent server answers, median", resumes, 20),
    ]


@contextmanager
def _server(warm: int = 0) -> Iterator[httpx.Client]:
    """Yield a client of a server with a supervisor. warm: number of warm sandboxes of the bundled spec."""
    specs = BUNDLED.read_text().replace("idle_pause_seconds =", f"warm = {warm}\nidle_pause_seconds =")
    with tempfile.TemporaryDirectory(prefix="bench-sandboxes-") as folder, serving(Path(folder), specs) as client:
        yield client


@contextmanager
def serving(folder: Path, specs: str, **others: str) -> Iterator[httpx.Client]:
    """Yield a client of a server with a supervisor. Its data are in `folder`. specs: text of the specs file."""
    file = folder / "specs.toml"
    file.write_text(specs)
    settings = {"SUPERVISOR": "1", "STOP_SANDBOXES": "1", "MAX_SANDBOXES": "100", "SANDBOX_SPECS": str(file), **others}
    with (
        servers.redis_server() as url,
        servers.gunicorn("app:create_app()", url, _WORKERS, **settings, DATA_DIR=str(folder)) as port,
        httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1", timeout=30) as client,
    ):
        yield client


def _start_warm(client: httpx.Client) -> float:
    """Return the seconds of a start in a warm sandbox. Before it, delete the previous conversation and its sandbox."""
    _wait(lambda: _warm(client) == _WARM)
    for item in client.get("/app-conversations/search").json()["items"]:
        client.delete(f"/app-conversations/{item['id']}").raise_for_status()
    _wait(lambda: _warm(client) == _WARM == len(_all(client)))
    return _seconds(lambda: ready(client))


def ready(client: httpx.Client, **body: Any) -> dict[str, Any]:
    """Start an app conversation, and wait until it is READY. Return its start task. Raises RuntimeError."""
    task: dict[str, Any] = client.post("/app-conversations", json=body).raise_for_status().json()
    while task["status"] != "READY":
        if task["status"] == "ERROR":
            raise RuntimeError(task["detail"])
        time.sleep(_POLL)
        [task] = client.get("/app-conversations/start-tasks", params={"ids": task["id"]}).json()
    return task


def _run(client: httpx.Client, number: int) -> None:
    """Start a number of sandboxes at once, and wait until all run. Raises RuntimeError."""

    def running() -> int:
        items = _all(client)
        if failed := [item["status_detail"] for item in items if item["status"] == "ERROR"]:
            raise RuntimeError(failed[0])
        return sum(item["status"] == "RUNNING" for item in items)

    before = running()
    with ThreadPoolExecutor(number) as pool:
        for response in pool.map(lambda _: client.post("/sandboxes"), range(number)):
            response.raise_for_status()
    _wait(lambda: running() == before + number)


def _all(client: httpx.Client) -> list[dict[str, str]]:
    items: list[dict[str, str]] = client.get("/sandboxes/search").json()["items"]
    return items


def _delete_all(client: httpx.Client) -> None:
    for item in _all(client):
        client.delete(f"/sandboxes/{item['id']}").raise_for_status()


def _warm(client: httpx.Client) -> int:
    return sum(item["status"] == "RUNNING" and "warm" in (item["status_detail"] or "") for item in _all(client))


def _is_done(client: httpx.Client, sandbox: str, verb: str) -> None:
    client.post(f"{sandbox}/{verb}").raise_for_status()
    status = {"pause": "PAUSED", "resume": "RUNNING"}[verb]
    while True:
        [found] = client.get("/sandboxes", params={"id": sandbox.rpartition("/")[2]}).json()
        if found["status"] == status:
            return
        time.sleep(_POLL)


def _wait(ready: Callable[[], bool]) -> None:
    """Poll until a call returns True. Raises RuntimeError after _TIMEOUT."""
    start = time.monotonic()
    while not ready():
        if time.monotonic() - start > _TIMEOUT:
            raise RuntimeError("sandboxes: timeout")
        time.sleep(0.01)


def _seconds(act: Callable[[], object]) -> float:
    start = time.monotonic()
    act()
    return time.monotonic() - start


def _row(what: str, seconds: list[float], most: float) -> FigureRow:
    cuts = quantiles(seconds, n=100, method="inclusive")
    detail = f"p99 {1000 * cuts[98]:.1f} ms, largest {1000 * max(seconds):.1f} ms of {len(seconds)}"
    return FigureRow(what, 1000 * cuts[49], " ms", detail, most=most, raw={"seconds": seconds})
