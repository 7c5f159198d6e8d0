"""Costs of an agent in its sandbox: milliseconds to READY and to the first update, and its private memory at rest.

The agents are the bundled one, a scripted program that speaks ACP, and those that `make agent` has installed. Their
model is scripted and responds at once. It is outside; an agent reaches it by its sandbox's way out.
"""

import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import psutil

from bench import sandboxes
from bench.measure import Effort, FigureRow
from docs.examples.scripted_model import ModelHandler
from reference_agent.acp.agents import table
from runtimes.tree import MARK
from settings.specs import BUNDLED

#: An ACP program without work of its own, so its costs are the server's part of an ACP agent.
_SCRIPTED = Path(__file__).parent.parent / "tests/reference_agent/acp/scripted.py"

#: A message for which no agent calls a tool. The scripted program repeats the text after `say`.
_MESSAGE = "say hello"

#: Poll interval, timeout of an agent, and wait between the end of a turn and the memory measurement, in seconds.
_POLL, _TIMEOUT, _REST = 0.005, 120.0, 2.0

#: Targets of the bundled agent: MB at rest, and milliseconds to READY.
_MOST_MB, _MOST_READY = 80, 500

_RESTS = ("idle", "finished", "error", "stuck")


@dataclass
class _Figures:
    title: str
    isolation: str = ""
    ready: list[float] = field(default_factory=list)  #: seconds from the request to READY
    first: list[float] = field(default_factory=list)  #: seconds from the first message to the first update
    later: list[float] = field(default_factory=list)  #: seconds from the second message to the first update
    memory: list[float] = field(default_factory=list)  #: MB after the second turn
    parts: dict[str, float] = field(default_factory=dict)  #: MB by program, of the last start


def agents(effort: Effort) -> list[FigureRow]:
    """Start each agent several times, one after the other, and send it two messages. Skip an agent that fails."""
    with tempfile.TemporaryDirectory(prefix="bench-agents-") as name, _model() as model:
        folder, rows = Path(name), list[FigureRow]()
        with sandboxes.serving(folder, _specs(), **_settings(model)) as client:
            offered = _offered(client)
            if len(offered) == 2:
                print("agents: no other is installed. make agent NAME=… installs one.", file=sys.stderr)
            _visit(client, folder, "reference-agent", _Figures(""))  # warm-up: supervisor and modules are loaded
            for spec, title in offered.items():
                figures = _Figures(title)
                try:
                    for _ in range(effort.agent_starts):
                        _visit(client, folder, spec, figures)
                except RuntimeError as error:
                    print(f"agents: {title} is left out: {error}", file=sys.stderr)
                else:
                    rows += _rows(figures, is_bundled=spec == "reference-agent")
    return rows


def _visit(client: httpx.Client, folder: Path, spec: str, figures: _Figures) -> None:
    """Start an agent in a new sandbox, send it two messages, measure its memory, and delete the sandbox."""
    began = time.monotonic()
    task = sandboxes.ready(client, sandbox_spec_id=spec)
    figures.ready.append(time.monotonic() - began)
    sandbox = f"/sandboxes/{task['sandbox_id']}"
    try:
        [found] = client.get("/sandboxes", params={"id": task["sandbox_id"]}).json()
        figures.isolation = found["isolation"]["kind"]
        for seconds in (figures.first, figures.later):
            seconds.append(_first_update(client, task["app_conversation_id"]))
        time.sleep(_REST)
        figures.parts = _memory(folder)
        figures.memory.append(sum(figures.parts.values()))
    finally:
        client.delete(sandbox).raise_for_status()


def _first_update(client: httpx.Client, conversation: str) -> float:
    """Return the seconds from a message to the agent's first event, after its turn is over. Raises RuntimeError."""
    path = f"/api/conversations/{conversation}"
    url = client.base_url.copy_with(path=path)

    def updates() -> int:
        count: int = client.get(f"{url}/events/count", params={"source": "agent"}).json()
        return count

    def status() -> str:
        said: str = client.get(url).json()["execution_status"]
        return said

    before = updates()
    body = {"role": "user", "content": [{"type": "text", "text": _MESSAGE}], "run": True}
    began = time.monotonic()
    client.post(f"{url}/events", json=body).raise_for_status()
    _wait(lambda: updates() > before)
    seconds = time.monotonic() - began
    _wait(lambda: status() in _RESTS)
    if status() == "error":
        raise RuntimeError(_last_words(client, str(url)))
    return seconds


def _last_words(client: httpx.Client, url: str) -> str:
    query: dict[str, Any] = {"limit": 1, "sort_order": "TIMESTAMP_DESC", "kind": "ConversationErrorEvent"}
    found = client.get(f"{url}/events/search", params=query).json()["items"]
    return str(found[0].get("detail")) if found else "its turn ended with an error"


def _wait(ready: Callable[[], bool]) -> None:
    """Poll until a call returns True. Raises RuntimeError after _TIMEOUT."""
    start = time.monotonic()
    while not ready():
        if time.monotonic() - start > _TIMEOUT:
            raise RuntimeError("it did nothing before the timeout")
        time.sleep(_POLL)


def _memory(folder: Path) -> dict[str, float]:
    """Return the private memory of the agent server and its processes in MB, by program. There is one sandbox."""
    sizes: dict[str, float] = {}
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            is_inside = process.environ().get(MARK, "").startswith(str(folder))
            if is_inside and "reference_agent" in process.cmdline()[1:4]:
                for one in (process, *process.children(recursive=True)):
                    name = "agent server" if one is process else one.name()
                    sizes[name] = sizes.get(name, 0) + one.memory_full_info().uss / 1e6
    return sizes


def _rows(figures: _Figures, *, is_bundled: bool) -> Iterator[FigureRow]:
    title, number = figures.title, len(figures.ready)
    parts = ", ".join(f"{name} {size:.0f}" for name, size in sorted(figures.parts.items(), key=lambda one: -one[1]))
    yield FigureRow(
        f"{title}: private memory at rest, after two turns",
        median(figures.memory),
        " MB",
        f"largest {max(figures.memory):.0f} MB of {number}; {parts}; isolation {figures.isolation}",
        most=_MOST_MB if is_bundled else None,
        raw={"memory": figures.memory, "unit": "MB"},
    )
    yield FigureRow(
        f"{title}: request to READY, median",
        1000 * median(figures.ready),
        " ms",
        f"longest {1000 * max(figures.ready):.0f} ms of {number}",
        most=_MOST_READY if is_bundled else None,
        raw={"seconds": figures.ready},
    )
    yield FigureRow(
        f"{title}: message to the first update, median",
        1000 * median(figures.later),
        " ms",
        f"longest {1000 * max(figures.later):.0f} ms of {number}; the first message, which starts its program: "
        f"median {1000 * median(figures.first):.0f} ms, longest {1000 * max(figures.first):.0f} ms",
        raw={"later": figures.later, "first": figures.first, "unit": "s"},
    )


def _offered(client: httpx.Client) -> dict[str, str]:
    """Return the titles of the agents to measure, by spec: those of this module, and the installed ACP agents."""
    titles = {"reference-agent": "the bundled agent", "scripted": "a scripted ACP agent"}
    for spec in client.get("/sandbox-specs/search").json()["items"]:
        if (agent := table().get(spec["id"])) and agent.speaks_acp:
            titles[spec["id"]] = f"{agent.title} {agent.version}"
    return titles


def _specs() -> str:
    bundled = BUNDLED.read_text()
    scripted = bundled[bundled.index("\n[[spec]]\n") :].replace('"reference-agent"', '"scripted"')
    variables = f'initial_env = {{ ACP_COMMAND = "{{PYTHON}} {_SCRIPTED}", '
    scripted = scripted.replace("initial_env = { ", f'readable = ["{_SCRIPTED}"]\n{variables}', 1)
    return bundled + scripted


def _settings(model: str) -> dict[str, str]:
    """Return the settings that give every agent the model at an address."""
    settings = {"LLM_MODEL": "openai/scripted", "LLM_API_KEY": "none", "LLM_BASE_URL": f"{model}/v1"}
    for agent in table().values():
        if found := re.match(r"\{env:(\w+):-https://[^/}]+(.*)\}", agent.service.get("base_url", "")):
            settings |= {agent.key: "none", found[1]: f"{model}{found[2]}"}
    return {**settings, "SANDBOX_START_SECONDS": "120"}


@contextmanager
def _model() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), ModelHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
