"""The tools of the reference agent: their schemas, the check of a call's arguments, and the file editor."""

import json
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from core.cuts import beginning
from reference_agent.events import Event, parts
from reference_agent.shell import COMMAND_SECONDS, SILENT_SECONDS

#: The risks that a model may give a call, in ascending order. Without one, the risk is UNKNOWN.
RISKS = ("LOW", "MEDIUM", "HIGH")
MOST_SUMMARY = 500  #: maximum characters of a summary
_TEXT, _NUMBER, _FLAG = {"type": "string"}, {"type": "integer", "minimum": 0}, {"type": "boolean"}
_PLACE = {**_TEXT, "description": "Where to search; default: the working folder."}
_TASK: dict[str, Any] = {
    "type": "object",
    "properties": {"title": _TEXT, "notes": _TEXT, "status": {**_TEXT, "enum": ["todo", "in_progress", "done"]}},
    "required": ["title"],
}

#: The Python type for each JSON type of a parameter.
_TYPES: dict[str, Any] = {"string": str, "integer": int, "array": list, "object": dict, "boolean": bool}

_RATING = {
    "security_risk": {
        **_TEXT,
        "enum": list(RISKS),
        "description": "LOW: reads, or changes files of the task. MEDIUM: changes more, or installs. "
        "HIGH: deletes, reaches other machines, or may reveal secrets.",
    },
    "summary": {**_TEXT, "description": "What this call does, in about ten words, for the person who approves it."},
}

#: Maximum bytes of a file, and maximum characters and entries of a view.
MOST_FILE, MOST_VIEW, MOST_ENTRIES = 1 << 20, 30_000, 500
_MOST_CHANGE = 20_000  #: maximum characters of a file in an observation, before and after a change
_AROUND = 4  #: lines that an edit shows around its change
MOST_UNDONE = 4 << 20  #: maximum characters of earlier file contents in memory, for `undo_edit`
MCP = "MCPTool"  #: stem of a tool whose own kinds clients do not know


class BadCall(Exception):
    """A call that cannot be executed. The message is for the model."""


class AgentTool(NamedTuple):
    stem: str  #: of the names of its kinds on the wire, such as TerminalAction
    description: str
    parameters: dict[str, dict[str, Any]]  #: JSON schemas by name
    required: tuple[str, ...]
    rated: bool = True  #: whether the model rates and summarizes its calls; otherwise their risk is LOW
    schema: dict[str, Any] | None = None  #: of an MCP server's tool; its server checks the arguments


Tools = Mapping[str, AgentTool]

TOOLS = {
    "terminal": AgentTool(
        "Terminal",
        "Run a command in a bash that lasts: `cd`, variables, functions and background jobs stay for the next command. "
        "It begins in the working folder. Chain commands by && or ;. Run a server in the background, with its output "
        "in a file: `serve >server.log 2>&1 &`. A result with the exit code -1 is of a command that is still running: "
        "then send an empty command to wait for more output, or type into it with is_input.",
        {
            "command": {
                **_TEXT,
                "description": "The command. Empty: wait for more output. With is_input: a line for the program, or a "
                "key: C-c, C-d, C-z, UP, DOWN, LEFT, RIGHT, HOME, END, PGUP, PGDN, TAB, ESC, BS, ENTER.",
            },
            "is_input": {**_FLAG, "description": "Type the command into the program that is running."},
            "timeout": {
                **_NUMBER,
                "description": f"Seconds after which you are asked how to go on, at most {COMMAND_SECONDS}. Without it "
                f"you are asked after {SILENT_SECONDS} s without output. Set it for what is slow and silent.",
            },
            "reset": {**_FLAG, "description": "End the shell and begin a new one. Its variables and jobs are lost."},
        },
        ("command",),
    ),
    "file_editor": AgentTool(
        "FileEditor",
        "View, create and edit text files in the working folder. `view` numbers a file's lines, or lists a folder. "
        "`create` writes a new file and never replaces one. `str_replace` replaces the only occurrence of old_str. "
        "`insert` puts new_str after the line insert_line. `undo_edit` takes back your last edit of the file.",
        {
            "command": {**_TEXT, "enum": ["view", "create", "str_replace", "insert", "undo_edit"]},
            "path": {**_TEXT, "description": "Absolute, or relative to the working folder."},
            "file_text": {**_TEXT, "description": "The content, for `create`."},
            "old_str": {**_TEXT, "description": "The exact text to replace, for `str_replace`."},
            "new_str": {**_TEXT, "description": "The new text, for `str_replace` and `insert`."},
            "insert_line": {**_NUMBER, "description": "0 inserts before the first line."},
            "view_range": {
                "type": "array",
                "items": {"type": "integer"},
                "description": "First and last line, for `view`; -1 is the end of the file.",
            },
        },
        ("command", "path"),
    ),
    "grep": AgentTool(
        MCP,
        "Search files by a regular expression: each line that matches, with its file and number. Not in files that "
        "Git ignores.",
        {
            "pattern": _TEXT,
            "path": _PLACE,
            "include": {**_TEXT, "description": "Names of files, such as `*.{ts,tsx}`."},
        },
        ("pattern",),
        rated=False,
    ),
    "glob": AgentTool(
        MCP,
        "Find files by name, the newest first: `**/test_*.py`, or without a slash at any depth. Not those that "
        "Git ignores.",
        {"pattern": _TEXT, "path": _PLACE},
        ("pattern",),
        rated=False,
    ),
    "fetch": AgentTool(
        MCP,
        "Read a web page or a text by its URL; HTML becomes text. A person may have to allow the host first.",
        {"url": _TEXT, "start": {**_NUMBER, "description": "The first character, after a call that was cut off."}},
        ("url",),
    ),
    "task_tracker": AgentTool(
        "TaskTracker",
        "Keep the list of tasks of a job that takes several steps; the user sees it. `plan` replaces the whole list, "
        "`view` shows it. Have one task in progress at a time, and mark each as done as soon as it is.",
        {
            "command": {**_TEXT, "enum": ["view", "plan"]},
            "task_list": {"type": "array", "description": "All tasks, for `plan`.", "items": _TASK},
        },
        ("command",),
        rated=False,
    ),
    "delegate": AgentTool(
        MCP,
        "Give a part of the job to a helper, which works in the same folder and shell and returns a report. It knows "
        "nothing of this conversation. Use it for what takes many steps and has a short answer.",
        {
            "task": {**_TEXT, "description": "What to do, and what to report."},
            "context": {**_TEXT, "description": "What the helper has to know: paths, names, decisions."},
        },
        ("task",),
        rated=False,
    ),
    "invoke_skill": AgentTool(
        "InvokeSkill", "Read one of the skills that your instructions list.", {"name": _TEXT}, ("name",), rated=False
    ),
    "think": AgentTool(
        "Think", "Write down a thought. It changes nothing.", {"thought": _TEXT}, ("thought",), rated=False
    ),
    "finish": AgentTool(
        "Finish",
        "End the task: it is done, or you need the user's help.",
        {"message": {**_TEXT, "description": "What was done, or what is missing, for the user."}},
        ("message",),
        rated=False,
    ),
}


def for_model(tools: Tools = TOOLS) -> list[dict[str, Any]]:
    return [{"type": "function", "function": _function(name, tool)} for name, tool in tools.items()]


def _function(name: str, tool: AgentTool) -> dict[str, Any]:
    rating = _rating(tool)
    asked = {"properties": {**tool.parameters, **rating}, "required": [*tool.required, *rating]}
    schema = {**(tool.schema or {}), "type": "object", **asked}
    return {"name": name, "description": tool.description, "parameters": schema}


def _rating(tool: AgentTool) -> dict[str, Any]:
    """Return the rating parameters of a call, except a parameter of the tool itself."""
    return {name: schema for name, schema in _RATING.items() if tool.rated and name not in tool.parameters}


def for_clients(tools: Tools = TOOLS) -> list[Event]:
    definitions = list[Event]()
    for name, tool in tools.items():
        kinds = {"action_type": f"{tool.stem}Action", "observation_type": f"{tool.stem}Observation"}
        definitions.append({"title": name, "description": tool.description, **kinds, "kind": f"{tool.stem}Tool"})
        if tool.stem == MCP:
            called = {"name": name, "description": tool.description, "inputSchema": _function(name, tool)["parameters"]}
            definitions[-1] |= {"kind": "MCPToolDefinition", "mcp_tool": called}
    return definitions


def read_call(name: str, arguments: str, tools: Tools = TOOLS) -> tuple[Event, dict[str, str]]:
    """Return the action of a call and its rating, `security_risk` and `summary`. Raises BadCall."""
    tool = tools.get(name)
    if tool is None:
        raise BadCall(f"There is no tool {beginning(name, 100)!r}. The tools are: {', '.join(tools)}.")
    try:
        given = json.loads(arguments or "{}")
        json.dumps(given, ensure_ascii=False).encode()  # a lone surrogate is not text
    except (ValueError, RecursionError) as error:
        raise BadCall(f"The arguments of {name} are not JSON: {beginning(str(error), 200)}.") from None
    if not isinstance(given, dict):
        raise BadCall(f"The arguments of {name} are not a JSON object.")
    rating = _rating(tool)
    risk, summary = (given.get(key) if key in rating else None for key in _RATING)
    rated = {"security_risk": (risk if risk in RISKS else "UNKNOWN") if tool.rated else "LOW"}
    if isinstance(summary, str) and summary.strip():
        rated["summary"] = beginning(summary.strip(), MOST_SUMMARY)
    if tool.schema is not None:
        return {"data": {key: given[key] for key in given if key not in rating}, "kind": f"{MCP}Action"}, rated
    action = {key: _meant(given[key], schema) for key, schema in tool.parameters.items() if given.get(key) is not None}
    if missing := [key for key in tool.required if key not in action]:
        raise BadCall(f"{name} needs the argument {missing[0]}.")
    for key, value in action.items():
        _check(f"{name}: {key}", tool.parameters[key], value)
    if tool.stem == MCP:
        return {"data": action, "kind": f"{MCP}Action"}, rated
    default = {"is_input": False, "reset": False} if name == "terminal" else {}
    return {**default, **action, "kind": f"{tool.stem}Action"}, rated


def _meant(value: Any, schema: dict[str, Any]) -> Any:
    """Return a value that came as a text of JSON, because some models write lists and numbers so."""
    if schema["type"] == "string" or not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _check(place: str, schema: dict[str, Any], value: Any) -> None:
    if not isinstance(value, _TYPES[schema["type"]]) or isinstance(value, bool) != (schema["type"] == "boolean"):
        raise BadCall(f"{place} should be of the type {schema['type']}.")
    if value not in schema.get("enum", [value]):
        raise BadCall(f"{place} should be one of: {', '.join(schema['enum'])}.")
    if "minimum" in schema and value < schema["minimum"]:
        raise BadCall(f"{place} should be at least {schema['minimum']}.")
    for number, item in enumerate(value if isinstance(value, list) else (), 1):
        _check(f"{place}, item {number}", schema["items"], item)
    for name, one in schema.get("properties", {}).items():
        if name in value:
            _check(f"{place}: {name}", one, value[name])
        elif name in schema["required"]:
            raise BadCall(f"{place} needs {name}.")


class ToolRefused(Exception):
    """The tool refuses an action. The message is for the model."""


class Files:
    """The files of one conversation. Guarantee: no link and no `..` leads out of the folder, or into the private one.

    Limitation: a command that races by replacing a folder with a link can lead a file out of it.
    """

    def __init__(self, folder: Path, private: Path) -> None:
        self.folder, self.private = (Path(os.path.realpath(path)) for path in (folder, private))
        self._edits: list[tuple[Path, str | None, int]] = []  # path, content before, hash after; the newest is the last

    def text(self, given: str) -> str:
        return _read(self.inside(given))

    def observe(self, action: Event) -> Event:
        """Execute an action. A refusal by it or the system is an observation too."""
        said = {"command": action["command"], "path": action["path"]}
        try:
            text, more = self._execute(action)
        except (ToolRefused, OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            text, more = f"{action['command']} {action['path']}: {reason}", {"is_error": True}
        return {"content": parts(text), "is_error": False, **said, **more}

    def _execute(self, action: Event) -> tuple[str, dict[str, Any]]:
        path = self.inside(action["path"])
        match action["command"]:
            case "view" if path.is_dir():
                return self._listing(path), {}
            case "view":
                return _numbered(_read(path), *_range(action)), {}
            case "undo_edit":
                return self._undo(path)
            case "create":
                if os.path.lexists(path):
                    raise ToolRefused("already exists; edit it with str_replace or insert")
                path.parent.mkdir(parents=True, exist_ok=True)
                old, new, line = None, _needed(action, "file_text"), 0
            case "str_replace":
                old, replaced = _read(path), _needed(action, "old_str")
                if old.count(replaced) != 1 or not replaced:
                    raise ToolRefused(f"old_str occurs {old.count(replaced) if replaced else 0} times, not once")
                new, line = old.replace(replaced, action.get("new_str", "")), old[: old.index(replaced)].count("\n")
            case _:
                old, line = _read(path), action.get("insert_line", 0)
                lines = old.split("\n")
                if line > len(lines) - (lines[-1] == ""):
                    raise ToolRefused(f"insert_line is {line}, and the file has fewer lines")
                lines.insert(line, _needed(action, "new_str").removesuffix("\n"))
                new = "\n".join(lines)
        _write(path, new)
        self._edits.append((path, old, hash(new)))
        while sum(len(before or "") for _, before, _ in self._edits) > MOST_UNDONE:
            del self._edits[0]
        is_told = max(len(old or ""), len(new)) <= _MOST_CHANGE
        contents = {"old_content": old, "new_content": new} if is_told else {}
        text = f"{path.relative_to(self.folder)} now reads:\n{_numbered(new, line + 1 - _AROUND, line + 1 + _AROUND)}"
        return text, {"prev_exist": old is not None, **contents}

    def _undo(self, path: Path) -> tuple[str, dict[str, Any]]:
        """Undo the last edit of a file. Edits are known until the agent server ends."""
        last = next((edit for edit in reversed(self._edits) if edit[0] == path), None)
        if last is None:
            raise ToolRefused("has no edit that can be undone")
        _, before, after = last
        if hash(_read(path)) != after:
            raise ToolRefused("has changed since your last edit, so the edit was not undone")
        if before is None:
            path.unlink()
            text = f"{path.relative_to(self.folder)} is deleted, because the edit had created it."
        else:
            _write(path, before)
            text = f"Your last edit of {path.relative_to(self.folder)} is undone."
        self._edits.remove(last)
        return text, {"prev_exist": True}

    def inside(self, given: str) -> Path:
        path = Path(os.path.realpath(self.folder / given))
        if not path.is_relative_to(self.folder):
            raise ToolRefused(f"is outside of the working folder, {self.folder}")
        if path.is_relative_to(self.private):
            raise ToolRefused("belongs to the agent server")
        return path

    def _listing(self, folder: Path) -> str:
        names = list(islice(_below(folder, 2), MOST_ENTRIES + 1))
        if len(names) > MOST_ENTRIES:
            names[-1] = f"… more than {MOST_ENTRIES} entries: those after {names[-2]} are not shown"
        return "\n".join([f"{folder.relative_to(self.folder)}, without hidden files:", *names])


def _below(folder: Path, depth: int, prefix: str = "") -> Iterator[str]:
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if not entry.name.startswith("."):
            is_folder = entry.is_dir(follow_symlinks=False)
            yield f"{prefix}{entry.name}{'/' if is_folder else ''}"
            if is_folder and depth > 1 and os.access(entry.path, os.R_OK | os.X_OK):
                yield from _below(Path(entry.path), depth - 1, f"{prefix}{entry.name}/")


def _read(path: Path) -> str:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe would block
    with open(path, "rb", opener=lambda name, _: os.open(name, flags)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ToolRefused("is not a regular file")
        content = file.read(MOST_FILE + 1)
    if len(content) > MOST_FILE:
        raise ToolRefused(f"is larger than {MOST_FILE} bytes; the terminal can show a part")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise ToolRefused("is not UTF-8 text") from None


def _write(path: Path, text: str) -> None:
    if len(content := text.encode()) > MOST_FILE:
        raise ToolRefused(f"would be larger than {MOST_FILE} bytes")
    with replaced(path) as draft:
        draft.write_bytes(content)


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """Yield a draft that replaces a file at the end. A kill or a full disk leaves the file unchanged."""
    draft = path.with_name(f".{uuid4().hex}.new")
    try:
        yield draft
        with suppress(FileNotFoundError):
            shutil.copymode(path, draft)
        draft.replace(path)
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def _needed(action: Event, name: str) -> str:
    if name not in action:
        raise ToolRefused(f"{action['command']} needs {name}")
    return str(action[name])


def _range(action: Event) -> tuple[int, int]:
    match action.get("view_range", [1, -1]):
        case [first, last]:
            return first, MOST_FILE if last == -1 else last
    raise ToolRefused("view_range should have two numbers")


def _numbered(text: str, first: int, last: int) -> str:
    lines = text.removesuffix("\n").split("\n")
    first = max(first, 1)
    shown = "\n".join(f"{number:6}\t{line}" for number, line in enumerate(lines[first - 1 : last], first))
    if len(shown) <= MOST_VIEW:
        return shown
    head = shown[:MOST_VIEW].rpartition("\n")[0] or shown[:MOST_VIEW]
    return f"{head}\n… cut off: {len(shown) - len(head):,} characters are not shown; view_range shows other lines"
