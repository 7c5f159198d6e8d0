"""Agents that `make agent` has installed, each in an isolated sandbox: READY, the first update, memory at rest.

The model is scripted, on this machine, and reached by the way out: no figure has a network or the thinking of a model
in it. An agent that is not installed has no row.
"""

import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import ThreadingHTTPServer
from pathlib import Path
from statistics import median
from typing import Any
from uuid import uuid4

import httpx
import psutil

from bench import servers
from bench.measure import Effort, Row
from docs.examples.scripted_model import Model
from reference_agent.acp.agents import table
from settings.config import Config

#: seconds between two polls, for which an agent rests before its memory is read, and until something counts as lost
_POLL, _REST, _TIMEOUT = 0.005, 3.0, 180.0

#: kinds of events by which an agent shows that it works
_UPDATES = ("MessageEvent", "ActionEvent")


def agents(effort: Effort) -> list[Row]:
    """Start each installed agent some times, with two messages each time."""
    found = Config.from_env().host.agents_folder.absolute()
    names = [name for name, agent in table().items() if agent.service and (found / name / "spec.toml").exists()]
    if not names:
        return []
    with _server(found) as client:
        return [row for name in names for row in _rows(client, name, effort.agent_starts)]


def _rows(client: httpx.Client, name: str, starts: int) -> list[Row]:
    title = f"{table()[name].title} {table()[name].version}"
    figures = [_start(client, name) for _ in range(starts)]
    ready, first, later, memory = (list(one) for one in zip(*figures, strict=True))

    def row(what: str, seconds: list[float]) -> Row:
        detail = f"{1000 * min(seconds):,.0f} to {1000 * max(seconds):,.0f} ms of {len(seconds)}"
        return Row(f"{title}: {what}", 1000 * median(seconds), " ms", detail, raw={"seconds": seconds, "unit": "s"})

    detail = f"{min(memory):,.0f} to {max(memory):,.0f} MB of {len(memory)}: all processes of the sandbox"
    return [
        row("request to READY, median", ready),
        row("first message to the first update, its program's start included, median", first),
        row("a later message to the first update, median", later),
        Row(f"{title}: private memory at rest, median", median(memory), " MB", detail, raw={"mb": memory}),
    ]


def _start(client: httpx.Client, name: str) -> tuple[float, float, float, float]:
    """Seconds to READY, from the first message to an update, from a later one to an update; MB of private memory."""
    before = {one.pid for one in _processes()}
    conversation, began = str(uuid4()), time.monotonic()
    body = {"conversation_id": conversation, "sandbox_spec_id": name}
    task = client.post("/v1/app-conversations", json=body).raise_for_status().json()
    while task["status"] != "READY":
        if task["status"] == "ERROR":
            raise RuntimeError(task["detail"])
        time.sleep(_POLL)
        [task] = client.get("/v1/app-conversations/start-tasks", params={"ids": task["id"]}).json()
    ready = time.monotonic() - began
    first, later = (_answered(client, conversation) for _ in range(2))
    time.sleep(_REST)
    private = sum(map(_private, (one for one in _processes() if one.pid not in before)))
    client.delete(f"/v1/sandboxes/{task['sandbox_id']}").raise_for_status()
    return ready, first, later, private / 1e6


def _answered(client: httpx.Client, conversation: str) -> float:
    """Seconds from a message to the first update. Returns once the agent has finished."""
    path, began, seen = f"/conversations/{conversation}", time.monotonic(), 0.0
    before = _updates(client, path)
    message = {"role": "user", "content": [{"type": "text", "text": "hello"}], "run": True}
    client.post(f"{path}/events", json=message).raise_for_status()
    while time.monotonic() - began < _TIMEOUT:
        if not seen and _updates(client, path) > before:
            seen = time.monotonic() - began
        status = client.get(path).json()["execution_status"]
        if status == "error":
            raise RuntimeError(f"{conversation}: the agent has failed")
        if seen and status == "finished":
            return seen
        time.sleep(_POLL)
    raise RuntimeError(f"{conversation}: no update within {_TIMEOUT:g} s")


def _updates(client: httpx.Client, path: str) -> int:
    """The number of events that the agent has posted."""
    counts = [client.get(f"{path}/events/count", params={"kind": kind, "source": "agent"}).json() for kind in _UPDATES]
    return sum(counts)


def _processes() -> list[psutil.Process]:
    """The processes that this one has started, and theirs."""
    found: list[psutil.Process] = psutil.Process().children(recursive=True)
    return found


def _private(process: psutil.Process) -> int:
    """Bytes of memory that no other process shares. Source: proc_pid_smaps(5)."""
    with suppress(psutil.Error, OSError):
        memory: Any = process.memory_full_info()
        return int(memory.uss)
    return 0


@contextmanager
def _server(found: Path) -> Iterator[httpx.Client]:
    """A client of a server with a supervisor, whose agents of a folder all use the scripted model."""
    with (
        tempfile.TemporaryDirectory(prefix="bench-agents-") as folder,
        ThreadingHTTPServer(("127.0.0.1", 0), Model) as model,
        servers.redis_server() as url,
    ):
        threading.Thread(target=model.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{model.server_address[1]}"
        settings = {agent.key: "none" for agent in table().values() if agent.service}
        settings |= dict.fromkeys(("ANTHROPIC_BASE_URL", "GOOGLE_GEMINI_BASE_URL"), address)
        settings |= dict.fromkeys(("OPENAI_BASE_URL", "MISTRAL_BASE_URL", "KIMI_BASE_URL"), f"{address}/v1")
        settings |= {"AGENTS_DIR": str(found), "DATA_DIR": folder, "SUPERVISOR": "1", "STOP_SANDBOXES": "1"}
        with (
            servers.gunicorn("app:create_app()", url, 1, **settings) as port,
            httpx.Client(base_url=f"http://127.0.0.1:{port}/api", timeout=60) as client,
        ):
            yield client
        model.shutdown()
