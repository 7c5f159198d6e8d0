"""The seconds of twenty sandboxes from the request to RUNNING, and of one from the request to PAUSED.

Beside each stands what the machine itself needs: the same agent server as a bare process, one after the other and
twenty at once, until it answers.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median

import httpx

from bench import servers
from bench.measure import Effort, Row

_WORKERS = 2
_SETTINGS = {"SUPERVISOR": "1", "STOP_SANDBOXES": "1", "MAX_SANDBOXES": "100"}
_ROOT = Path(__file__).parent.parent

#: seconds between two polls, and until a sandbox counts as lost
_POLL, _TIMEOUT = 0.01, 60.0


def rows(effort: Effort) -> list[Row]:
    """Start, pause and resume sandboxes of the bundled spec."""
    number = effort.sandboxes
    bare_one, bare_all = _bare(number)
    with (
        tempfile.TemporaryDirectory(prefix="bench-sandboxes-") as folder,
        servers.redis_server() as url,
        servers.gunicorn("app:create_app()", url, _WORKERS, **_SETTINGS, DATA_DIR=folder) as port,
        httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1", timeout=30) as client,
    ):
        started(client, 1)  # the supervisor is there, everything is loaded
        one = median(started(client, 1) for _ in range(3))
        _delete_all(client)
        every = started(client, number)
        ids = [item["id"] for item in client.get("/sandboxes/search").json()["items"]]
        paused = [timed(client, f"/sandboxes/{identity}/pause") for identity in ids]
        for identity in ids:
            client.post(f"/sandboxes/{identity}/resume").raise_for_status()
        wait(lambda: _running(client) == number)
        start = time.monotonic()
        with ThreadPoolExecutor(number) as pool:
            list(pool.map(lambda identity: timed(client, f"/sandboxes/{identity}/pause"), ids))
        together = time.monotonic() - start
    return [
        Row(
            "a sandbox alone: request to RUNNING, against the same agent server as a bare process",
            one / bare_one,
            " ×",
            f"{1000 * one:.0f} ms against {1000 * bare_one:.0f} ms",
            raw={"ours": one, "theirs": bare_one, "unit": "s"},
        ),
        Row(
            f"{number} sandboxes at once on {_WORKERS} workers: request to the last RUNNING, against bare processes",
            every / bare_all,
            " ×",
            f"{every:.2f} s against {bare_all:.2f} s",
            raw={"ours": every, "theirs": bare_all, "unit": "s"},
        ),
        Row(
            "a sandbox: request to PAUSED, every process standing still",
            1000 * median(paused),
            " ms",
            f"largest {1000 * max(paused):.0f} ms of {number}; all {number} at once {1000 * together:.0f} ms",
            raw={"seconds": paused, "together": together, "unit": "s"},
        ),
    ]


def _delete_all(client: httpx.Client) -> None:
    for item in client.get("/sandboxes/search").json()["items"]:
        client.delete(f"/sandboxes/{item['id']}").raise_for_status()


def started(client: httpx.Client, number: int) -> float:
    """Seconds until so many new sandboxes run."""
    before = _running(client)
    start = time.monotonic()
    with ThreadPoolExecutor(number) as pool:
        for response in pool.map(lambda _: client.post("/sandboxes"), range(number)):
            response.raise_for_status()
    wait(lambda: _running(client) == before + number)
    return time.monotonic() - start


def _running(client: httpx.Client) -> int:
    items = client.get("/sandboxes/search").json()["items"]
    if failed := [item["status_detail"] for item in items if item["status"] == "ERROR"]:
        raise RuntimeError(failed[0])
    return sum(item["status"] == "RUNNING" for item in items)


def timed(client: httpx.Client, path: str) -> float:
    """Seconds of a POST."""
    start = time.monotonic()
    client.post(path).raise_for_status()
    return time.monotonic() - start


def _bare(number: int) -> tuple[float, float]:
    """Seconds until one bare agent server answers, and until so many do that were started at once."""
    with ExitStack() as stack:
        one = median(answering(stack, 1) for _ in range(3))
        return one, answering(stack, number)


def answering(stack: ExitStack, number: int) -> float:
    """Seconds until so many bare agent servers answer, which end with the stack."""
    ports = [servers.free_port() for _ in range(number)]
    start = time.monotonic()
    for port in ports:
        process = subprocess.Popen(
            [sys.executable, "-m", "agents.reference", "--port", str(port)],
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(_ROOT)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        stack.callback(process.wait)
        stack.callback(process.kill)
    for port in ports:
        wait(partial(servers.http_answers, port))
    return time.monotonic() - start


def wait(ready: Callable[[], bool]) -> float:
    """Seconds until a call returns True. Raises RuntimeError after _TIMEOUT."""
    start = time.monotonic()
    while not ready():
        if time.monotonic() - start > _TIMEOUT:
            raise RuntimeError("sandboxes: not in time")
        time.sleep(_POLL)
    return time.monotonic() - start
