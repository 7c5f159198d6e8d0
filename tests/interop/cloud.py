"""Has the published OpenHandsCloudWorkspace start, use and delete a sandbox of this server, which runs the published
agent server.

    python -m tests.interop.cloud

INTEROP_COMMAND is the command before `--host … --port …`, as in `outage.py`. INTEROP_PYTHON is the command of an
interpreter with openhands-workspace and openhands-tools; unset: `python`. Exit status 2: one of both does not exist.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.interop import model
from tests.interop.outage import check
from tests.servers import supervised_server, wait_until
from tests.v1 import WireApi

KEY = "an-admin-key-for-tests-only"

SPEC = """
[[spec]]
id = "published"
command = {command}
created_at = 2026-11-21T00:00:00Z
working_dir = "/tmp"
isolation = "none" # INTEROP_COMMAND may change its root and mount
initial_env = {{ PATH = "{path}", HOME = "/tmp", OH_ENABLE_VSCODE = "0", OH_PRELOAD_TOOLS = "0", \
OH_CONVERSATIONS_PATH = "{conversations}", OPENHANDS_SUPPRESS_BANNER = "1", LITELLM_LOCAL_MODEL_COST_MAP = "True", \
LLM_MODEL = "openai/scripted", LLM_BASE_URL = "{model}" }}
secret_env = {{ LLM_API_KEY = "key-of-the-model", GITHUB_TOKEN = "of-github" }}

[spec.conversation]
confirmation_policy = {{ kind = "NeverConfirm" }}

[spec.conversation.agent]
kind = "Agent"
tools = [{{ name = "terminal" }}]

[spec.conversation.agent.llm]
model = "openai/scripted"
base_url = "{model}"
api_key = "key-of-the-model"
usage_id = "agent"
"""

#: what the agent makes in its folder: a repository with a changed file, a skill and a hook
MAKE = """run: mkdir -p {root}/.openhands/skills && cd {root} && git init -q . && echo old > a.txt && git add a.txt \
&& git -c user.name=x -c user.email=x@x commit -qm first && echo new > a.txt \
&& printf -- '---\\nname: greet\\ntriggers:\\n- hello\\n---\\nSay hello.' > .openhands/skills/greet.md \
&& echo '{{"stop": [{{"matcher": "*", "hooks": [{{"command": "true"}}]}}]}}' > .openhands/hooks.json"""


def main() -> int:
    agent = shlex.split(os.environ.get("INTEROP_COMMAND") or "agent-server")
    python = shlex.split(os.environ.get("INTEROP_PYTHON") or "python")
    for words in (agent, python):
        if shutil.which(words[0]) is None:
            print(f"{words[0]} is not on the PATH: see {Path(__file__).name}", file=sys.stderr)
            return 2
    with model.served(model.InteropModel) as url, tempfile.TemporaryDirectory(prefix="interop-") as name:
        folder = Path(name)
        text = SPEC.format(
            command=json.dumps([shutil.which(agent[0]), *agent[1:], "--host", "127.0.0.1", "--port", "{AGENT_SERVER}"]),
            path=os.environ["PATH"],
            conversations=f"/tmp/{folder.name}-conversations",
            model=url,
        )
        (folder / "specs.toml").write_text(text)
        settings = {
            "SANDBOX_SPECS": str(folder / "specs.toml"),
            "SESSION_API_KEY": KEY,
            "SANDBOX_START_SECONDS": "240",  # as in outage.py: the published agent server loads for long
            "WEB_CONCURRENCY": "2",
        }
        with supervised_server(folder, **settings) as (client, _):
            # The interpreter may see other files than this one: it gets the text.
            script = (Path(__file__).parent / "cloud_client.py").read_text()
            ended = subprocess.run([*python, "-c", script, str(client.base_url).rstrip("/"), KEY, url], check=False)
            client.headers["Authorization"] = f"Bearer {KEY}"
            api = WireApi(client)
            wait_until(lambda: not api.call("GET", "/v1/sandboxes/search")["items"], "the deletion by the client")
            if ended.returncode == 0:
                ask_about_the_folder(api, f"/tmp/{folder.name}-conversations")
    return ended.returncode


def ask_about_the_folder(api: WireApi, root: str) -> None:
    """Git, skills and hooks of a conversation's folder, and a message that was queued before it was READY."""
    task = api.start_task()
    message = {"content": [{"type": "text", "text": MAKE.format(root=f"{root}/made")}]}
    path = f"/v1/conversations/task-{task['id']}/pending-messages"
    check("to queue", api.call("POST", path, json=message, status=201)["position"], 1)
    wait_until(lambda: api.task(task["id"])["status"] in ("READY", "ERROR"), "the start", seconds=300)
    conversation = api.finished(task["id"])["app_conversation_id"]
    api.until(conversation, "finished")
    path = f"/v1/app-conversations/{conversation}"
    inner = {"path": f"{root}/made".removeprefix("/tmp/"), "ref": "HEAD"}
    changes = api.call("GET", f"{path}/git/changes", params=inner)
    check("the changes", {"status": "UPDATED", "path": "a.txt"} in changes, True)
    inner["path"] += "/a.txt"
    check("a difference", api.call("GET", f"{path}/git/diff", params=inner), {"modified": "new", "original": "old"})
    # The agent server asks the internet first, and longer than this server waits where there is none. It also walks its
    # folder, which is /tmp: with hundreds of thousands of files there it is not done in time.
    wait_until(lambda: isinstance(api.call("GET", f"{path}/skills")["skills"], list), "the skills", seconds=90)
    check("the hooks", api.call("GET", f"{path}/hooks"), {"hooks": []})
    refused = api.call("GET", f"{path}/files", status=404)["detail"]
    check("files elsewhere", refused, "The folder /tmp is not among the persistent files of the sandbox")


if __name__ == "__main__":
    sys.exit(main())
