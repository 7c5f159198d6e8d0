"""Runs the published agent server as a sandbox and compares its events with those of this server.

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
from pathlib import Path

import httpx

from tests.interop import model
from tests.servers import supervised_server, wait_until
from tests.v1 import Api

SPEC = """
[[spec]]
id = "published"
command = {command}
created_at = 2026-11-21T00:00:00Z
working_dir = "/tmp"
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
            drive(Api(client))
    scripted.shutdown()
    return 0


def drive(api: Api) -> None:
    """Message, pending, reject, message, pending, accept, finished."""
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


def compare(api: Api, conversation: str) -> None:
    """For every kind and source: the count of the agent server and the count of this server."""
    state = api.conversation(conversation)
    with httpx.Client(headers={"X-Session-API-Key": state["session_api_key"]}) as agent:
        url = f"{state['conversation_url']}/events"
        wait_until(lambda: agent.get(f"{url}/count").json() <= api.count(conversation), "our log")
        theirs = agent.get(f"{url}/search", params={"limit": 100}).json()["items"]
        ours = api.events(conversation)
        pairs = Counter((event["kind"], event["source"]) for event in theirs + ours)
        for kind, source in sorted(pairs):
            query = {"kind": kind, "source": source}
            check(
                f"{kind} of {source}", api.count(conversation, **query), agent.get(f"{url}/count", params=query).json()
            )
        check("all events", api.count(conversation), agent.get(f"{url}/count").json())
        check("the same events", {event["id"] for event in ours}, {event["id"] for event in theirs})


def check(what: str, got: object, wanted: object) -> None:
    if got != wanted:
        sys.exit(f"FAIL  {what}: {got}, wanted {wanted}")
    print(f"ok    {what}: {len(got) if isinstance(got, set) else got}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
