"""The milliseconds of an app conversation from its request to READY, in a warm sandbox; and of a pause and a resume.

A start follows when the pool is full again, so no refill competes with it. The clock runs in the client, which polls
the start task.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import quantiles

import httpx

from bench import servers
from bench.measure import Effort, Row
from bench.sandboxes import wait
from specs import BUNDLED

_WARM = 3

#: seconds between two polls of the client
_POLL = 0.002


def rows(effort: Effort) -> list[Row]:
    """Start app conversations one after the other, each in a warm sandbox; then pause and resume one of them."""
    with tempfile.TemporaryDirectory(prefix="bench-warm-") as folder:
        specs = Path(folder) / "specs.toml"
        specs.write_text(BUNDLED.read_text().replace("idle_pause_seconds =", f"warm = {_WARM}\nidle_pause_seconds ="))
        settings = {"SUPERVISOR": "1", "STOP_SANDBOXES": "1", "MAX_SANDBOXES": "100", "SANDBOX_SPECS": str(specs)}
        with (
            servers.redis_server() as url,
            servers.gunicorn("app:create_app()", url, 2, **settings, DATA_DIR=folder) as port,
            httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1", timeout=30) as client,
        ):
            _start(client)  # everything is loaded
            starts = [_start(client) for _ in range(effort.warm_starts)]
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


def _start(client: httpx.Client) -> float:
    """Seconds of one start in a warm sandbox; its conversation and its sandbox are deleted unless it is the last."""
    wait(lambda: _warm(client) == _WARM)
    for item in client.get("/app-conversations/search").json()["items"]:
        client.delete(f"/app-conversations/{item['id']}").raise_for_status()
    wait(lambda: _warm(client) == _WARM == len(client.get("/sandboxes/search").json()["items"]))

    def ready() -> None:
        task = client.post("/app-conversations", json={}).raise_for_status().json()
        while task["status"] != "READY":
            if task["status"] == "ERROR":
                raise RuntimeError(task["detail"])
            time.sleep(_POLL)
            [task] = client.get("/app-conversations/start-tasks", params={"ids": task["id"]}).json()

    return _seconds(ready)


def _warm(client: httpx.Client) -> int:
    items = client.get("/sandboxes/search").json()["items"]
    return sum(item["status"] == "RUNNING" and "warm" in (item["status_detail"] or "") for item in items)


def _is_done(client: httpx.Client, sandbox: str, verb: str) -> None:
    client.post(f"{sandbox}/{verb}").raise_for_status()
    status = {"pause": "PAUSED", "resume": "RUNNING"}[verb]
    while True:
        [found] = client.get("/sandboxes", params={"id": sandbox.rpartition("/")[2]}).json()
        if found["status"] == status:
            return
        time.sleep(_POLL)


def _seconds(act: Callable[[], None]) -> float:
    start = time.monotonic()
    act()
    return time.monotonic() - start


def _row(what: str, seconds: list[float], most: float) -> Row:
    cuts = quantiles(seconds, n=100, method="inclusive")
    detail = f"p99 {1000 * cuts[98]:.1f} ms, largest {1000 * max(seconds):.1f} ms of {len(seconds)}"
    return Row(what, 1000 * cuts[49], " ms", detail, most=most, raw={"seconds": seconds})
