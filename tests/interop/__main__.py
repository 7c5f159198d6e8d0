"""Runs the published agent server as a sandbox, kills it, and compares its events with those of this server.

    python -m tests.interop

INTEROP_COMMAND is the command before `--host … --port …`; unset: `agent-server`, which
`pip install openhands-agent-server openhands-tools` puts on the PATH. Exit status 2: the command does not exist.
"""

import json
import os
import shlex
import shutil
import sys
import tempfile
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import psutil

from tests.interop import model
from tests.servers import supervised_server, wait_until
from tests.v1 import Api
from tests.v1.processes import in_sandboxes

SPEC = """
[[spec]]
id = "published"
command = {command}
created_at = 2026-11-21T00:00:00Z
working_dir = "/tmp"
isolation = "none" # INTEROP_COMMAND may change its root and mount
initial_env = {{ PATH = "{path}", HOME = "/tmp", OH_ENABLE_VSCODE = "0", OH_PRELOAD_TOOLS = "0", \
OH_CONVERSATIONS_PATH = "{conversations}", OPENHANDS_SUPPRESS_BANNER = "1", LITELLM_LOCAL_MODEL_COST_MAP = "True" }}

[spec.conversation]
confirmation_policy = {{ kind = "AlwaysConfirm" }}

[spec.conversation.agent]
kind = "Agent"
tools = [{{ name = "terminal" }}]

[spec.conversation.agent.llm]
model = "openai/scripted"
base_url = "http://127.0.0.1:{model}/v1"
api_key = "none"
usage_id = "agent"
"""


def main() -> int:
    words = shlex.split(os.environ.get("INTEROP_COMMAND") or "agent-server")
    program = shutil.which(words[0])
    if program is None:
        print(
            f"{words[0]} is not on the PATH: pip install openhands-agent-server openhands-tools (they need Python 3.12 "
            "or newer), or name what starts it in INTEROP_COMMAND",
            file=sys.stderr,
        )
        return 2
    scripted = model.serve()
    with tempfile.TemporaryDirectory(prefix="interop-") as name:
        folder = Path(name)
        command = [program, *words[1:], "--host", "127.0.0.1", "--port", "{AGENT_SERVER}"]
        text = SPEC.format(
            command=json.dumps(command),
            path=os.environ["PATH"],
            conversations=f"/tmp/{folder.name}-conversations",
            model=scripted.server_address[1],
        )
        (folder / "specs.toml").write_text(text)
        with supervised_server(folder, SANDBOX_SPECS=str(folder / "specs.toml")) as (client, _):
            api = Api(client)
            conversation = drive(api)
            survive(api, conversation, folder)
    scripted.shutdown()
    return 0


def drive(api: Api) -> str:
    """Message, pending, reject, message, pending, accept, finished. Returns the conversation's id."""
    first = {"content": [{"type": "text", "text": "run: echo hi"}]}
    task = api.finished(api.start_task(title="Interop", initial_message=first)["id"])
    check("the start", (task["status"], task["detail"]), ("READY", None))
    conversation = task["app_conversation_id"]
    api.until(conversation, "waiting_for_confirmation")
    check("to reject", api.decide(conversation, False, reason="not today"), {"success": True})
    check("to reject again", api.decide(conversation, False), {"success": False})
    wait_until(lambda: api.count(conversation, kind="UserRejectObservation") == 1, "the rejection")

    api.send(conversation, "run: echo once more")
    api.until(conversation, "waiting_for_confirmation")
    check("to accept", api.decide(conversation, True), {"success": True})
    api.until(conversation, "finished")
    observed = [event["observation"]["kind"] for event in api.events(conversation, kind__eq="ObservationEvent")]
    check("what was observed", observed, ["TerminalObservation", "FinishObservation"])
    compare(api, conversation)
    return conversation


def survive(api: Api, conversation: str, folder: Path) -> None:
    """The agent server is killed while an action waits, then while a command runs; the conversation goes on."""
    api.send(conversation, "run: sleep 600")
    api.until(conversation, "waiting_for_confirmation")
    kill(api, conversation, folder, restarts=1)
    check("what waits after a kill", api.conversation(conversation)["execution_status"], "waiting_for_confirmation")
    compare(api, conversation)

    check("to accept after a kill", api.decide(conversation, True), {"success": True})
    api.until(conversation, "running")
    kill(api, conversation, folder, restarts=2)
    check("what ran before a kill", api.conversation(conversation)["execution_status"], "idle")
    told = [error["code"] for error in api.events(conversation, kind__eq="ConversationErrorEvent")]
    check("what is told", told, ["AgentServerRestarted", "AgentServerRestarted", "ActionInterrupted"])

    observed = api.count(conversation, kind="ObservationEvent")
    api.send(conversation, "run: echo and on")
    api.until(conversation, "waiting_for_confirmation")
    check("to accept after two kills", api.decide(conversation, True), {"success": True})
    api.until(conversation, "finished")
    check("what was observed since", api.count(conversation, kind="ObservationEvent") - observed, 2)
    compare(api, conversation)


def kill(api: Api, conversation: str, folder: Path, *, restarts: int) -> None:
    """Kill every process of the sandbox, and wait until its supervisor has started it again."""
    for process in in_sandboxes(folder):
        with suppress(psutil.Error):
            process.kill()
    wait_until(lambda: len(restarted(api, conversation)) == restarts, "the conversation to say why")
    api.wait_for(api.conversation(conversation)["sandbox_id"], "RUNNING")


def restarted(api: Api, conversation: str) -> list[dict[str, Any]]:
    errors = api.events(conversation, kind__eq="ConversationErrorEvent")
    return [error for error in errors if error["code"] == "AgentServerRestarted"]


def compare(api: Api, conversation: str) -> None:
    """For every kind and source: the count of the agent server and the count of this server.

    Events that this server made while the agent server was away are left out: only its own log has those.
    """
    state = api.conversation(conversation)
    with httpx.Client(headers={"X-Session-API-Key": state["session_api_key"]}) as agent:
        url = f"{state['conversation_url']}/events"
        wait_until(lambda: agent.get(f"{url}/count").json() <= api.count(conversation), "our log")
        theirs = agent.get(f"{url}/search", params={"limit": 100}).json()["items"]
        own, ours = apart(api.events(conversation), {event["id"] for event in theirs})
        mine = Counter((event["kind"], event["source"]) for event in own)
        for kind, source in sorted({(event["kind"], event["source"]) for event in theirs + ours}):
            query = {"kind": kind, "source": source}
            number = api.count(conversation, **query) - mine[kind, source]
            check(f"{kind} of {source}", number, agent.get(f"{url}/count", params=query).json())
        check("all events", api.count(conversation) - len(own), agent.get(f"{url}/count").json())
        check("the same events", [event["id"] for event in ours], [event["id"] for event in theirs])


def apart(events: list[dict[str, Any]], theirs: set[str]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The events that this server itself can have made, and all others."""
    made_here = [
        event
        for event in events
        if event["id"] not in theirs and event["kind"] in ("ConversationErrorEvent", "ConversationStateUpdateEvent")
    ]
    return made_here, [event for event in events if event not in made_here]


def check(what: str, got: object, wanted: object) -> None:
    if got != wanted:
        sys.exit(f"FAIL  {what}: {got}, wanted {wanted}")
    print(f"ok    {what}: {len(got) if isinstance(got, list) else got}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
