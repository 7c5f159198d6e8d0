"""The published agent server writes 3,000 events while our server and Redis are away; then its webhooks are refused.

    python -m tests.interop.outage [SECONDS]

SECONDS (120): how long both are away. INTEROP_COMMAND is the command before `--host … --port …`; unset: `agent-server`.
Its queue of unsent events holds 1,000 and drops the oldest. Afterwards the log here has every event of the agent's own
log once, with equal counts of every kind and source. Exit status 1: it has not. 2: the command does not exist.
"""

import json
import os
import re
import shlex
import shutil
import sys
import tempfile
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import psutil
from redis import Redis

from tests.interop.model import served
from tests.servers import free_port, store_server, supervised_server, wait_until
from tests.v1 import WireApi
from tests.v1.processes import in_sandboxes, kill_all, supervisor_of
from tests.v1.test_kept_work import every_event

SPEC = """
[[spec]]
id = "published"
command = {command}
created_at = 2026-11-21T00:00:00Z
working_dir = "/tmp"
isolation = "none" # INTEROP_COMMAND may change its root and mount
initial_env = {{ PATH = "{path}", HOME = "/tmp", OH_ENABLE_VSCODE = "0", OH_PRELOAD_TOOLS = "0", \
OH_CONVERSATIONS_PATH = "{conversations}", OPENHANDS_SUPPRESS_BANNER = "1", LITELLM_LOCAL_MODEL_COST_MAP = "True", \
OH_WEBHOOKS_0_MAX_QUEUE_SIZE = "1000" }}

[spec.conversation]
confirmation_policy = {{ kind = "NeverConfirm" }}

[spec.conversation.agent]
kind = "Agent"
tools = []

[spec.conversation.agent.llm]
model = "openai/scripted"
base_url = "{model}"
api_key = "none"
usage_id = "agent"
"""

#: thoughts of the two runs, each of which is an action and an observation, and thoughts of one response
THOUGHTS, REFUSED_THOUGHTS, BATCH = 1500, 800, 25


class Thinker(BaseHTTPRequestHandler):
    """A chat model that answers `think N PAUSE` with N calls of `think`, so many seconds between two batches."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        message = reply(asked["messages"])
        reason = "tool_calls" if "tool_calls" in message else "stop"
        choice = {"index": 0, "finish_reason": reason, "message": message}
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        head = {"id": uuid4().hex, "object": "chat.completion", "created": int(time.time()), "model": asked["model"]}
        body = json.dumps({**head, "choices": [choice], "usage": usage}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


def reply(messages: list[dict[str, Any]]) -> dict[str, Any]:
    last = max(place for place, one in enumerate(messages) if one["role"] == "user")
    content = messages[last]["content"]
    text = content if isinstance(content, str) else " ".join(part.get("text", "") for part in content)
    asked = re.search(r"think (\d+) ([\d.]+)\s*$", text)
    if asked is None:
        return {"role": "assistant", "content": "A title"}
    number, pause = int(asked[1]), float(asked[2])
    thought = sum(one["role"] == "tool" for one in messages[last:])
    if thought >= number:
        return {"role": "assistant", "content": None, "tool_calls": [call("finish", message="done")]}
    time.sleep(pause)
    batch = range(thought, min(thought + BATCH, number))
    return {"role": "assistant", "content": None, "tool_calls": [call("think", thought=f"{one}") for one in batch]}


def call(name: str, **arguments: str) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": f"call_{uuid4().hex[:12]}", "type": "function", "function": function}


def main() -> int:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 120.0
    words = shlex.split(os.environ.get("INTEROP_COMMAND") or "agent-server")
    program = shutil.which(words[0])
    if program is None:
        print(f"{words[0]} is not on the PATH: name what starts the agent server in INTEROP_COMMAND", file=sys.stderr)
        return 2
    with served(Thinker) as model, tempfile.TemporaryDirectory(prefix="interop-") as name:
        folder = Path(name)
        text = SPEC.format(
            command=json.dumps([program, *words[1:], "--host", "127.0.0.1", "--port", "{AGENT_SERVER}"]),
            path=os.environ["PATH"],
            conversations=f"/tmp/{folder.name}-conversations",
            model=model,
        )
        (folder / "specs.toml").write_text(text)
        settings = {
            "SANDBOX_SPECS": str(folder / "specs.toml"),
            "PORT": str(free_port()),
            "SANDBOX_START_SECONDS": "240",
        }
        try:
            conversation = be_away(folder, settings, seconds)
            come_back(folder, settings, conversation)
        finally:
            kill_all(in_sandboxes(folder))
    return 0


def be_away(folder: Path, settings: dict[str, str], seconds: float) -> str:
    """Start a run that lasts for much of the outage, then kill the server and Redis. Returns the conversation's id."""
    with (
        store_server(folder) as (url, redis),
        supervised_server(folder, REDIS_URL=url, STOP_SANDBOXES="0", **settings) as (client, master),
    ):
        api = WireApi(client)
        task = api.start_task()["id"]
        wait_until(lambda: api.task(task)["status"] in ("READY", "ERROR"), "the start", seconds=300)
        conversation = str(api.task(task)["app_conversation_id"])
        pause = 0.3 * seconds / (THOUGHTS / BATCH)
        api.send(conversation, f"think {THOUGHTS} {pause:.2f}", run=True)
        api.until(conversation, "running")
        wait_until(lambda: api.count(conversation) > 2 * BATCH, "the first thoughts", seconds=120)
        print(f"ok    away for {seconds:g} s with {api.count(conversation)} events", flush=True)
        kill_all([psutil.Process(redis.pid)])
        for process in [psutil.Process(master.pid), *servers(master.pid), supervisor_of(master)]:
            process.kill()
        began = time.monotonic()
    time.sleep(max(0.0, began + seconds - time.monotonic()))
    return conversation


def servers(pid: int) -> list[psutil.Process]:
    return [one for one in psutil.Process(pid).children() if "gunicorn" in " ".join(one.cmdline())]


def come_back(folder: Path, settings: dict[str, str], conversation: str) -> None:
    """Compare after the outage, and after a run whose webhooks were refused."""
    with (
        store_server(folder) as (url, _),
        supervised_server(folder, REDIS_URL=url, **settings) as (client, _),
        Redis.from_url(url) as redis,
    ):
        api = WireApi(client)
        compare(api, conversation)

        known = redis.hgetall("{sandboxes}:keys")
        api.send(conversation, f"think {REFUSED_THOUGHTS} 0", run=True)
        api.until(conversation, "running")
        redis.delete("{sandboxes}:keys")
        number = 2 * (THOUGHTS + REFUSED_THOUGHTS)
        wait_until(lambda: len(events_of(api, conversation)) > number, "the refused run", seconds=600)
        redis.hset("{sandboxes}:keys", mapping=known)
        compare(api, conversation)
        api.clean()


def events_of(api: WireApi, conversation: str) -> list[dict[str, Any]]:
    """The agent's own log."""
    shown = api.conversation(conversation)
    with httpx.Client(headers={"X-Session-API-Key": shown["session_api_key"]}, timeout=30) as client:
        return every_event(client, f"{shown['conversation_url']}/events/search")


def compare(api: WireApi, conversation: str) -> None:
    """Wait until our log has what the agent's has, and print both."""
    shown = api.conversation(conversation)
    with httpx.Client(headers={"X-Session-API-Key": shown["session_api_key"]}, timeout=30) as agent:

        def count() -> int:
            return int(agent.get(f"{shown['conversation_url']}/events/count").json())

        state = shown["conversation_url"]
        wait_until(lambda: agent.get(state).json()["execution_status"] == "finished", "its end", seconds=300)
        began = time.monotonic()
        wait_until(lambda: api.count(conversation) == count(), "the events that are missing", seconds=300)
    print(f"ok    as many events after {time.monotonic() - began:.1f} s: {api.count(conversation)}", flush=True)
    api.until(conversation, "finished")
    theirs = events_of(api, conversation)
    ours = every_event(api.client, f"/api/v1/conversation/{conversation}/events/search")
    kinds = Counter((one["kind"], one["source"]) for one in theirs)
    for (kind, source), number in sorted(kinds.items()):
        check(f"{kind} of {source}", api.count(conversation, kind=kind, source=source), number)
    check("the same events in the same order", [one["id"] for one in ours] == [one["id"] for one in theirs], True)


def check(what: str, got: object, wanted: object) -> None:
    if got != wanted:
        sys.exit(f"FAIL  {what}: {got}, wanted {wanted}")
    print(f"ok    {what}: {got}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
