"""Installs the published OpenHands agent server, and writes the specs that run it: `make openhands`.

    python docs/examples/openhands_agent.py

The agent server gets its own virtual environment, `.venv-openhands`, because it needs a newer Python than this server
and some 300 packages. OPENHANDS_PYTHON names that Python; default: the first of python3.13, 3.12 and 3.14 on the PATH,
otherwise the Python that runs this program. `openhands.toml` gets the specs. Exit status 3: no Python is new enough.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parent.parent.parent
VENV, REQUIREMENTS, SPECS = (
    PROJECT / ".venv-openhands",
    PROJECT / "requirements/openhands.txt",
    PROJECT / "openhands.toml",
)

#: minimum Python version of the packages. Source: their `Requires-Python`
OLDEST = (3, 12)

NO_PYTHON = 3

#: How to install a new enough Python.
WAYS = """\
With uv (https://docs.astral.sh/uv), on any system:
    uv python install 3.13 && OPENHANDS_PYTHON=$(uv python find 3.13) make openhands
Debian 13, Ubuntu 24.04 and newer have one, which is taken by itself:
    sudo apt-get install -y python3 python3-venv && make openhands"""

#: Prints facts about a Python: its real program and library folder.
_ABOUT = """\
import json, os, sys
program = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
print(json.dumps({"version": sys.version_info[:2], "program": program, "library": os.path.realpath(sys.base_prefix)}))
"""

SPEC = """\
# The published OpenHands agent server as sandboxes. Written by `make openhands`; SANDBOX_SPECS=openhands.toml uses it.
# specs.toml explains the keys. {{env:NAME}} is a variable of the server's environment: no response shows its value.

[[spec]]
id = "openhands"
created_at = 2026-11-21T00:00:00Z
command = ["{{PROJECT}}/.venv-openhands/bin/agent-server", "--host", "127.0.0.1", "--port", "{{AGENT_SERVER}}"]
readable = {readable}
# warm = 2     two of them run before anybody asks: a new conversation waits for no start of a sandbox
idle_pause_seconds = 1200
idle_stop_seconds = 3600

[spec.initial_env]
PATH = "/usr/local/bin:/usr/bin:/bin"
{environment}
{conversation}
# The same in a container: `docker pull` its image, and start with "sandbox_spec_id": "openhands-docker".
[[spec]]
id = "openhands-docker"
created_at = 2026-11-21T00:00:00Z
runtime = "docker"
image = "ghcr.io/openhands/agent-server:1.58.0-python"
command = ["--host", "0.0.0.0", "--port", "{{AGENT_SERVER}}"]
working_dir = "/workspace"
idle_pause_seconds = 1200
idle_stop_seconds = 3600
limits = {{ memory_mb = 4096 }}

[spec.initial_env]
HOME = "{{WORK}}"
{environment}
{conversation}"""

ENVIRONMENT = """\
LANG = "C.UTF-8"
OH_WORKSPACE_PATH = "{WORK}"
OH_BASH_EVENTS_DIR = "{WORK}/.agent-server/bash_events"
OH_ENABLE_VSCODE = "0"
OH_PRELOAD_TOOLS = "0"
OPENHANDS_SUPPRESS_BANNER = "1"
LITELLM_LOCAL_MODEL_COST_MAP = "True"
"""

CONVERSATION = """\
[spec.conversation]
confirmation_policy = { kind = "AlwaysConfirm" }

[spec.conversation.agent]
kind = "Agent"
tools = [{ name = "terminal" }, { name = "file_editor" }, { name = "task_tracker" }]

[spec.conversation.agent.llm]
usage_id = "agent"
model = "{env:LLM_MODEL}"
api_key = "{env:LLM_API_KEY}"
base_url = "{env:LLM_BASE_URL}"

[spec.conversation.agent.condenser]
kind = "LLMSummarizingCondenser"
max_size = 80
keep_first = 4

[spec.conversation.agent.condenser.llm]
usage_id = "condenser"
model = "{env:LLM_MODEL}"
api_key = "{env:LLM_API_KEY}"
base_url = "{env:LLM_BASE_URL}"
"""


def main() -> None:
    """Install everything. Exits with a sentence if that fails."""
    python = found_python()
    installed, wanted = VENV / "installed", f"{python['program']}\n{REQUIREMENTS.read_text()}"
    if not installed.exists() or installed.read_text() != wanted:
        run(python["program"], "-m", "venv", "--clear", str(VENV))
        run(f"{VENV}/bin/pip", "install", "--quiet", "--disable-pip-version-check", "-r", str(REQUIREMENTS))
        installed.write_text(wanted)
    SPECS.write_text(specs(python["library"]))
    print("openhands.toml has the specs. Next:  SANDBOX_SPECS=openhands.toml LLM_MODEL=… LLM_API_KEY=… make run")


def found_python() -> dict[str, Any]:
    """Return the facts about the agent server's Python. Exits with a sentence if it is missing or too old."""
    named = os.environ.get("OPENHANDS_PYTHON")
    used = f"{VENV}/bin/python"  # by an earlier run
    programs = [named] if named else [used, "python3.13", "python3.12", "python3.14", sys.executable]
    for program in filter(shutil.which, programs):
        completed = subprocess.run([program, "-c", _ABOUT], capture_output=True)
        if completed.returncode == 0:  # otherwise a shim without a chosen Python, as pyenv's
            about: dict[str, Any] = json.loads(completed.stdout)
            if tuple(about["version"]) >= OLDEST:
                return about
    found = f"OPENHANDS_PYTHON={named} is none" if named else "none runs from the PATH"
    print(f"The OpenHands agent server needs Python 3.12 or newer, and {found}: name one in OPENHANDS_PYTHON.")
    print(WAYS)
    sys.exit(NO_PYTHON)


def run(*command: str) -> None:
    """Run a command to its end. Exits with a sentence after a failure, whose reason the command has printed."""
    if subprocess.run(command).returncode:
        sys.exit(f"{' '.join(command)} failed, for the reason above.")


def specs(library: str) -> str:
    """Return the file of the specs. library: the Python's library folder, which a sandbox must be able to read."""
    is_seen = library == "/usr" or library.startswith("/usr/")  # as every sandbox sees it
    readable = json.dumps([str(VENV), *([] if is_seen else [library])])
    return SPEC.format(readable=readable, environment=ENVIRONMENT, conversation=CONVERSATION)


if __name__ == "__main__":
    main()
