"""Puts `agentctl hook NAME` into the files that agents read, and takes it out again."""

import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from agentctl.hooks import GATE, settings
from agentctl.hooks.edits import Node, NotJson, added, parse, removed

#: Timeout of a hook that only reports, in seconds.
_TELL_SECONDS = 30

#: Maximum number of bytes of a file that is edited.
_MOST_BYTES = 1 << 20

#: The first line of our plugin.
_MARK = "// Made by `agentctl hook install opencode`."

_OWN = re.compile(r"agentctl['\"]? hook (?:claude|codex|opencode|copilot|qwen)(?: --gate)?$")


class CannotEdit(Exception):
    """A file stays as it is; the message says why."""


class HookForm(NamedTuple):
    """Which hooks an agent gets, and what a person has to know of them."""

    measured: str  #: the version that docs/hooks.md is about
    user: str  #: its file below the home folder
    project: str  #: its file below the folder of a project; empty: not measured
    asks: tuple[str, ...]  #: events that wait for an answer
    gates: tuple[str, ...]
    tells: tuple[str, ...]
    timeout: int  #: of a hook that waits, in the agent's own unit
    order: str
    asked: str
    unasked: str
    trust: str
    variable: str = ""  #: names another folder for the user's file


FORMS = {
    "claude": HookForm(
        measured="2.1.332",
        user=".claude/settings.json",
        project=".claude/settings.json",
        asks=("PermissionRequest",),
        gates=("PreToolUse",),
        tells=("PostToolUse", "PostToolUseFailure", "UserPromptSubmit", "Stop", "SessionEnd"),
        timeout=86_400,
        order="The terminal and the inbox ask at the same time, and the first answer wins.",
        asked="whatever Claude Code asks at its terminal; with `-p` the inbox alone",
        unasked="read-only commands, allow rules, `acceptEdits` for edits, `bypassPermissions`, `--bare`, `!` commands",
        trust="Nothing: it is in force within 2 seconds. In a project, Claude Code asks whether you trust the folder.",
        variable="CLAUDE_CONFIG_DIR",
    ),
    "codex": HookForm(
        measured="0.171.0",
        user=".codex/hooks.json",
        project="",
        asks=("PermissionRequest",),
        gates=("PreToolUse",),
        tells=("PostToolUse", "UserPromptSubmit", "Stop"),
        timeout=86_400,
        order="The terminal and the inbox ask at the same time where Codex runs its app server; else the inbox first.",
        asked="escalations out of its sandbox, patches outside of what is writable, networks",
        unasked='commands inside its sandbox, `codex exec`, `approval_policy = "never"`, your rules',
        trust="Trust the hooks once: Codex asks at its next start, or type /hooks. Until then they do not run.",
        variable="CODEX_HOME",
    ),
    "opencode": HookForm(
        measured="1.18.33",
        user=".config/opencode/plugin/agent-server.js",
        project=".opencode/plugin/agent-server.js",
        asks=(),
        gates=(),
        tells=(),
        timeout=0,
        order="The terminal and the inbox ask at the same time, and the first answer wins.",
        asked="what `permission` in opencode.json sets to `ask`",
        unasked=(
            "everything, until opencode.json has "
            '"permission": {"bash": "ask", "edit": "ask", "webfetch": "ask"}; `--auto`, `--pure`; `opencode run`'
        ),
        trust="Start opencode again: it reads plugins at its start.",
    ),
    "copilot": HookForm(
        measured="1.0.102",
        user=".copilot/settings.json",
        project=".github/hooks/agent-server.json",
        asks=("permissionRequest",),
        gates=(),
        tells=("postToolUse", "userPromptSubmitted", "agentStop", "sessionEnd"),
        timeout=86_400,
        order="The inbox is asked first; the terminal asks after the patience.",
        asked="each command, read-only ones and those of `--allow-all-tools` too",
        unasked="tools that Copilot counts as safe, such as `view`",
        trust="Start Copilot again. In a project, the folder has to be trusted.",
    ),
    "qwen": HookForm(
        measured="0.24.4",
        user=".qwen/settings.json",
        project=".qwen/settings.json",
        asks=("PermissionRequest",),
        gates=("PreToolUse",),
        tells=("PostToolUse", "PostToolUseFailure", "UserPromptSubmit", "Stop", "SessionEnd"),
        timeout=3_600_000,  # Qwen reads a number of 1000 or more as milliseconds
        order="The inbox is asked first; the terminal asks after the patience.",
        asked="whatever Qwen Code asks in its mode `default`",
        unasked="its mode `auto`, where a model decides, and `--yolo`",
        trust="Start Qwen Code again, with `--approval-mode default`. In a project, the folder has to be trusted.",
    ),
}


def command_of(name: str) -> str:
    """Return the command line of a hook. It has no settings in it: Codex trusts a line, not what it does."""
    if shutil.which("agentctl"):
        return f"agentctl hook {name}"
    return f"{shlex.quote(sys.executable)} -m agentctl hook {name}"


def file_of(name: str, project: Path | None) -> Path:
    """Return the file that an agent reads. Raises CannotEdit where a project has no such file, or one elsewhere."""
    form = FORMS[name]
    if project is not None:
        if not form.project:
            raise CannotEdit(f"Hooks of a project are not supported for {name}: install it for yourself")
        path = project / form.project
        if not path.resolve().is_relative_to(project.resolve()):
            raise CannotEdit(f"{path} is a link out of this project. It was not changed: replace the link by a file")
        return path
    if form.variable and (folder := os.environ.get(form.variable)):
        return Path(folder) / Path(form.user).name
    if name == "opencode" and (folder := os.environ.get("XDG_CONFIG_HOME")):
        return Path(folder) / Path(form.user).relative_to(".config")
    return Path.home() / form.user


def version_of(name: str) -> str | None:
    """Return the version of the agent on the PATH; empty where it tells none, None where there is no agent."""
    program = shutil.which(name)
    if program is None:
        return None
    try:
        ran = subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = re.search(r"\d+\.\d+\.\d+", ran.stdout)
    return found.group() if found else ""


def install(name: str, path: Path, *, gate: bool, require: bool) -> bool:
    """Put the hooks of an agent into a file. Return whether it changed. Raises CannotEdit."""
    if name == "opencode":
        return _install_plugin(path, gate=gate)
    wanted = _entries(name, gate=gate, require=require)
    before = _read(path)
    text = before or ""
    record: dict[str, Any] = _records().get(str(path)) or {"created": []} | ({"was": before} if _is_blank(text) else {})
    try:
        if _present(text) == wanted:
            return False
        text = _without(text, record)
        text, created = _with(text, wanted, _base(name, path))
    except NotJson as error:
        raise CannotEdit(f"{path} is not JSON: {error}. It was not changed: mend it first") from None
    # Written first: without it, a removal after a crash would leave empty lists behind.
    _record(path, {**record, "created": created})
    _write(path, before, text)
    return True


def remove(name: str, path: Path) -> bool:
    """Take the hooks of an agent out of a file, and nothing else. Return whether it changed. Raises CannotEdit."""
    before = _read(path)
    if before is None:
        return False
    if name == "opencode":
        if not before.startswith(_MARK):
            return False
        _writable(path)
        path.unlink()
        return True
    record = _records().get(str(path))
    try:
        if not _present(before):
            return False
        text = _without(before, record)
        is_empty = parse(text).value == _base(name, path)
    except NotJson as error:
        raise CannotEdit(f"{path} is not JSON: {error}. It was not changed: mend it first") from None
    is_empty = is_empty and "was" in (record or {})
    if record and is_empty and record["was"] is None:
        _writable(path)
        path.unlink()
    else:
        _write(path, before, record["was"] if record and is_empty else text)
    _record(path, None)
    return True


def is_installed(name: str, path: Path) -> bool:
    """Return whether a file has the hooks of an agent. Raises CannotEdit."""
    text = _read(path)
    if text is None:
        return False
    if name == "opencode":
        return text.startswith(_MARK)
    try:
        return bool(_present(text))
    except NotJson as error:
        raise CannotEdit(f"{path} is not JSON: {error}") from None


def _is_blank(text: str) -> bool:
    return not text.strip("\ufeff \t\r\n")


def _base(name: str, path: Path) -> dict[str, Any]:
    """Return what a new file has beside the hooks."""
    return {"version": 1} if name == "copilot" and path.parent.name == "hooks" else {}


def _entries(name: str, *, gate: bool, require: bool) -> dict[str, Any]:
    """Return the entry of each event."""
    form, command = FORMS[name], command_of(name)
    entries: dict[str, Any] = {}
    for event in (*form.asks, *(form.gates if gate else ()), *form.tells):
        waits = event not in form.tells
        seconds = form.timeout if waits else _TELL_SECONDS
        if name == "copilot":
            # Its question comes before its rules, so it is the gate too.
            line = f"{command} {GATE}" if gate and waits else command
            entries[event] = {"type": "command", "bash": line, "timeoutSec": seconds}
            continue
        hook: dict[str, Any] = {"type": "command", "command": command, "timeout": seconds}
        if name == "claude" and waits and (require or event in form.gates):
            hook["onFailure"] = "block"
        matched = {"matcher": "*"} if name != "codex" and event.endswith(("Request", "Use", "UseFailure")) else {}
        entries[event] = {**matched, "hooks": [hook]}
    return entries


def _is_own(entry: Any) -> bool:
    """Return whether an entry, or a hook in one, is ours."""
    if not isinstance(entry, dict):
        return False
    line = entry.get("command", entry.get("bash"))
    return isinstance(line, str) and bool(_OWN.search(line))


def _holds_own(entry: Any) -> bool:
    inner = entry.get("hooks") if isinstance(entry, dict) else None
    return _is_own(entry) or (isinstance(inner, list) and any(map(_is_own, inner)))


def _hooks(text: str) -> Node | None:
    """Return the member `hooks`. Raises NotJson where it is not as agents read it."""
    if _is_blank(text):
        return None
    node = parse(text).get("hooks")
    if node is None:
        return None
    if not isinstance(node.value, dict):
        raise NotJson("`hooks` should be an object")
    for event, _, one in node.members:
        node.get(event)  # raises for a name that stands twice
        if not isinstance(one.value, list):
            raise NotJson(f"`hooks.{event}` should be a list")
    return node


def _present(text: str) -> dict[str, Any]:
    """Return our entries by event; a list where an event has several."""
    found: dict[str, Any] = {}
    node = _hooks(text)
    for event, _, one in node.members if node else ():
        own = [entry for entry in one.value if _holds_own(entry)]
        if own:
            found[event] = own[0] if len(own) == 1 else own
    return found


def _with(text: str, wanted: dict[str, Any], base: dict[str, Any]) -> tuple[str, list[str]]:
    """Return a text with entries at the ends of their lists, and the names of the containers that are new."""
    if _is_blank(text):
        document = json.dumps({**base, "hooks": {event: [entry] for event, entry in wanted.items()}}, indent=2)
        mark = "\ufeff" if text.startswith("\ufeff") else ""
        return f"{mark}{document}\n", ["", *wanted]
    node = _hooks(text)
    if node is None:
        return added(text, (), {event: [entry] for event, entry in wanted.items()}, "hooks"), ["", *wanted]
    created = []
    for event, entry in wanted.items():
        if (hooks := _hooks(text)) and hooks.get(event):
            text = added(text, ("hooks", event), entry)
        else:
            text = added(text, ("hooks",), [entry], event)
            created.append(event)
    return text, created


def _without(text: str, record: dict[str, Any] | None) -> str:
    """Return a text without our entries and the containers that we made. record None: those that are empty then."""
    node = _hooks(text)
    touched = []
    for event in list(node.value) if node else ():
        place = ("hooks", event)
        while True:
            items = _at(text, place).items
            which = next((n for n, one in enumerate(items) if _holds_own(one.value)), None)
            if which is None:
                break
            inner = items[which].get("hooks") if items[which].members else None
            others = [one for one in (inner.items if inner else ()) if not _is_own(one.value)]
            text = _without_inner(text, inner) if inner and others else removed(text, place, which)
            touched.append(event)
    made = record["created"] if record else ["", *touched]
    for event in dict.fromkeys(touched):
        if event in made and not _at(text, ("hooks", event)).items:
            text = removed(text, ("hooks",), list(_at(text, ("hooks",)).value).index(event))
    if touched and "" in made and not _at(text, ("hooks",)).members:
        text = removed(text, (), list(parse(text).value).index("hooks"))
    return text


def _without_inner(text: str, inner: Node) -> str:
    """Take one hook of ours out of an entry in which a person has put others."""
    which = next(n for n, one in enumerate(inner.items) if _is_own(one.value))
    start, end = inner.items[which].start, inner.items[which].end
    if which:
        return text[: inner.items[which - 1].end] + text[end:]
    return text[:start] + text[inner.items[1].start :]


def _at(text: str, place: tuple[str, ...]) -> Node:
    """Return the value at a path that the text has."""
    node: Node | None = parse(text)
    for name in place:
        node = node.get(name) if node else None
    assert node is not None
    return node


def _install_plugin(path: Path, *, gate: bool) -> bool:
    before = _read(path)
    if before is not None and not before.startswith(_MARK):
        raise CannotEdit(f"{path} is not ours and stays. Move it away, then install again")
    text = files("agentctl.hooks").joinpath("opencode.js").read_text(encoding="utf-8")
    words = shlex.split(command_of("opencode"))
    text = text.replace('["agentctl", "hook", "opencode"]', json.dumps(words))
    text = text.replace("const GATE = false;", "const GATE = true;") if gate else text
    if text == before:
        return False
    _write(path, before, text)
    return True


def _read(path: Path) -> str | None:
    """Return the text of a file with its line ends; None where there is none. Raises CannotEdit."""
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise CannotEdit(f"{path} is no regular file. It was not changed")
        if found.st_size > _MOST_BYTES:
            raise CannotEdit(f"{path} has more than {_MOST_BYTES} bytes. It was not changed")
        return path.read_bytes().decode()
    except FileNotFoundError:
        if path.is_symlink():
            raise CannotEdit(f"{path} is a link to a file that is missing. It was not changed") from None
        return None
    except UnicodeDecodeError:
        raise CannotEdit(f"{path} is not UTF-8. It was not changed") from None
    except OSError as error:
        raise CannotEdit(f"{path} cannot be read: {error.strerror}") from None


def _writable(path: Path) -> None:
    """Raises CannotEdit where a person has made the file read-only."""
    real = path.resolve()
    if real.exists() and not stat.S_IMODE(real.stat().st_mode) & 0o222:
        raise CannotEdit(f"{path} is read-only. It was not changed: chmod u+w {path}")


def _write(path: Path, before: str | None, text: str) -> None:
    """Replace a file in one step, through a symbolic link, with its mode. Raises CannotEdit."""
    _writable(path)
    real = path.resolve()
    draft = real.with_name(f".{real.name}.{os.getpid()}")
    try:
        real.parent.mkdir(parents=True, exist_ok=True)
        # What the person has hidden stays hidden meanwhile. A link that waits under this name is not followed.
        draft.touch(mode=0o666 if before is None else 0o600, exist_ok=False)
    except OSError as error:
        raise CannotEdit(f"{path} cannot be written: {error.strerror}") from None
    try:
        draft.write_bytes(text.encode())
        if before is not None:
            draft.chmod(stat.S_IMODE(real.stat().st_mode))
        if _read(path) != before:
            raise CannotEdit(f"{path} has just been changed by another program. Try again")
        draft.replace(real)
    except OSError as error:
        raise CannotEdit(f"{path} cannot be written: {error.strerror}") from None
    finally:
        draft.unlink(missing_ok=True)


def _records() -> dict[str, Any]:
    found = settings.read().get("files")
    return found if isinstance(found, dict) else {}


def _record(path: Path, value: dict[str, Any] | None) -> None:
    """Remember which containers of a file are ours, and that it was missing or blank."""
    values = settings.read()
    records = {name: one for name, one in _records().items() if name != str(path)}
    values["files"] = records | ({str(path): value} if value else {})
    settings.write(values)
