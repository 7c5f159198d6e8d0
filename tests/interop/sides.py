"""What the published SDK talks to: the published agent server alone, or this server with it in sandboxes."""

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil

from docs.examples.openhands_agent import SPECS, VENV
from tests.interop.forks import Forked, Loaded
from tests.servers import PROJECT, agent_server, free_port, running, store_server, supervised_server, wait_until

#: an admin key of both
KEY = "a-key-for-tests-only"

#: seconds that a line of a client may take: a run of its own has RUN_SECONDS
LINE_SECONDS = 180


@dataclass(frozen=True)
class Side:
    """A server that speaks the agent server's wire."""

    url: str
    folder: Path
    model: str  #: URL of the scripted model
    process: subprocess.Popen  #: of this server: gunicorn's master
    sdk: Loaded | None  #: has its clients; None: it gets none
    store: str = ""  #: URL of the Redis of this server

    @property
    def http(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, headers={"X-Session-API-Key": KEY}, timeout=60)

    @contextlib.contextmanager
    def client(self, scenario: str, *words: str, key: str = KEY, program: str = "client") -> Iterator["SideClient"]:
        """A client of the SDK that plays a scenario of a program of this folder; it ends with the block."""
        argv = [f"{PROJECT}/tests/interop/{program}.py", scenario, self.url, key, *words]
        env = environment(self.folder) | {"LLM_BASE_URL": self.model}
        errors = self.folder / f"{scenario}.log"
        with errors.open("ab") as log, self.sdk.client(argv, env, log) as process:
            yield SideClient(process, errors)

    def played(self, scenario: str, *words: str, **options: str) -> list[dict[str, Any]]:
        """Every line of a client that plays a scenario to its end; options as of `client`."""
        with self.client(scenario, *words, **options) as client:
            return list(client.lines())

    def workers(self) -> list[psutil.Process]:
        """The workers of this server."""
        children = psutil.Process(self.process.pid).children()
        return [child for child in children if "gunicorn" in " ".join(child.cmdline())]

    def events(self, conversation_id: str) -> list[dict[str, Any]]:
        """Every event of a conversation, in the order of the log."""
        found, query = [], {"limit": "100"}
        with self.http as http:
            while True:
                page = http.get(f"/api/conversations/{conversation_id}/events/search", params=query).json()
                found += page["items"]
                if not page["next_page_id"]:
                    return found
                query["page_id"] = page["next_page_id"]


class SideClient:
    """A running client of the SDK."""

    def __init__(self, process: Forked, errors: Path) -> None:
        self.process = process
        self._errors = errors

    def lines(self) -> Iterator[dict[str, Any]]:
        """What it tells, until it ends. Raises AssertionError with its last words if it fails."""
        for line in self.process.stdout:
            if line.startswith(b"{"):
                yield json.loads(line)
        assert self.process.wait(LINE_SECONDS) == 0, self._errors.read_text()[-3000:]

    def until(self, step: str) -> dict[str, Any]:
        """The next line of that step."""
        for line in self.lines():
            if line["step"] == step:
                return line
        raise AssertionError(f"the client told no {step}")

    def end(self) -> None:
        """Let a client that follows end."""
        self.process.stdin.close()
        self.process.wait(LINE_SECONDS)


def environment(folder: Path) -> dict[str, str]:
    """The environment of a program of the OpenHands venv; its times are UTC, as this server's are."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "TZ": "UTC",
        "OPENHANDS_SUPPRESS_BANNER": "1",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }


@contextlib.contextmanager
def alone(folder: Path, model: str, sdk: Loaded) -> Iterator[Side]:
    """The published agent server by itself."""
    port = free_port()
    env = environment(folder) | {
        "OH_CONVERSATIONS_PATH": f"{folder}/conversations",
        "OH_WORKSPACE_PATH": f"{folder}/work",
        "OH_BASH_EVENTS_DIR": f"{folder}/bash",
        "OH_SECRET_KEY": "a key for tests only",
        "OH_SESSION_API_KEYS_0": KEY,
        "OH_ENABLE_VSCODE": "0",
        "OH_PRELOAD_TOOLS": "0",
    }
    command = ["env", f"--chdir={folder}", f"{VENV}/bin/agent-server", "--host", "127.0.0.1", "--port", str(port)]
    with (folder / "log").open("ab") as log, running(command, env=env, stdout=log, stderr=log) as process:
        side = Side(f"http://127.0.0.1:{port}", folder, model, process, sdk)
        with side.http as http:
            wait_until(lambda: http.get("/health").status_code == 200, "the published agent server", seconds=120)
        yield side


@contextlib.contextmanager
def ours(
    folder: Path, model: str, sdk: Loaded | None, spec: str = "", more: str = "", **settings: str
) -> Iterator[Side]:
    """This server with two workers, and the published agent server as its spec for sandboxes.

    spec: more lines of that spec. more: other specs, as TOML. Its sandboxes are not isolated, so that they reach the
    model, which listens on this machine's loopback.
    """
    specs = folder / "specs.toml"
    lines = f'isolation = "none"\n{spec}\n\n[spec.initial_env]'
    specs.write_text(SPECS.read_text().replace("[spec.initial_env]", lines, 1) + more)
    settings = {
        "SANDBOX_SPECS": str(specs),
        "SANDBOX_START_SECONDS": "120",
        "SESSION_API_KEY": KEY,
        "LLM_MODEL": "openai/scripted",
        "LLM_BASE_URL": model,
        "LLM_API_KEY": "none",
        **settings,
    }
    with (
        store_server(folder) as (store, _),
        supervised_server(folder, **settings, REDIS_URL=store, WEB_CONCURRENCY="2") as (client, process),
    ):
        yield Side(str(client.base_url).rstrip("/"), folder, model, process, sdk, store)


@contextlib.contextmanager
def second(first: Side, folder: Path) -> Iterator[Side]:
    """A second server of the same store, as on another host."""
    settings = {"REDIS_URL": first.store, "SESSION_API_KEY": KEY, "SANDBOX_SPECS": str(first.folder / "specs.toml")}
    with agent_server(folder / "log", **settings) as (client, process):
        yield Side(str(client.base_url).rstrip("/"), folder, first.model, process, first.sdk, first.store)
