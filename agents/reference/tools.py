"""The tools that a model may call: their schemas, and the check of a call's arguments."""

import json
from typing import Any, NamedTuple

from agents.reference.events import Event

#: the risks that a model may give a call, from the least on; without one of them a risk is UNKNOWN
RISKS = ("LOW", "MEDIUM", "HIGH")

#: most characters of a summary
_SUMMARY = 500

_TEXT, _NUMBER = {"type": "string"}, {"type": "integer", "minimum": 0}

#: how a parameter's JSON type is called in Python
_TYPES = {"string": str, "integer": int, "array": list}


class BadCall(Exception):
    """A call that cannot be executed; the message tells the model why."""


class Tool(NamedTuple):
    stem: str  #: of the names of its kinds on the wire, such as TerminalAction
    description: str
    parameters: dict[str, dict[str, Any]]  #: JSON schemas by name
    required: tuple[str, ...]
    rated: bool = True  #: whether its calls bear a risk and a summary


TOOLS = {
    "terminal": Tool(
        "Terminal",
        "Run a shell command in the working folder. Each has a shell of its own: `cd` and variables do not last. "
        "There is no terminal: a command that asks for input fails. Send the output of a background process to a file.",
        {
            "command": {**_TEXT, "description": "What `/bin/sh -c` runs."},
            "timeout": {**_NUMBER, "description": "Seconds after which the command is killed; default and most: 600."},
        },
        ("command",),
    ),
    "file_editor": Tool(
        "FileEditor",
        "View, create and edit text files in the working folder. `view` numbers a file's lines, or lists a folder. "
        "`create` writes a new file and never replaces one. `str_replace` replaces the only occurrence of old_str. "
        "`insert` puts new_str after the line insert_line.",
        {
            "command": {**_TEXT, "enum": ["view", "create", "str_replace", "insert"]},
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
    "finish": Tool(
        "Finish",
        "End the task: it is done, or you need the user's help.",
        {"message": {**_TEXT, "description": "What was done, or what is missing, for the user."}},
        ("message",),
        rated=False,
    ),
}

_RATING = {
    "security_risk": {
        **_TEXT,
        "enum": list(RISKS),
        "description": "LOW: reads, or changes files of the task. MEDIUM: changes more, or installs. "
        "HIGH: deletes, reaches other machines, or may reveal secrets.",
    },
    "summary": {**_TEXT, "description": "What this call does, in about ten words, for the person who approves it."},
}


def for_model() -> list[dict[str, Any]]:
    """The tools as a chat completion takes them."""
    return [{"type": "function", "function": _function(name, tool)} for name, tool in TOOLS.items()]


def _function(name: str, tool: Tool) -> dict[str, Any]:
    rating = _RATING if tool.rated else {}
    schema = {"type": "object", "properties": {**tool.parameters, **rating}, "required": [*tool.required, *rating]}
    return {"name": name, "description": tool.description, "parameters": schema}


def for_clients() -> list[Event]:
    """The tools as a SystemPromptEvent has them."""
    return [
        {
            "title": name,
            "description": tool.description,
            "action_type": f"{tool.stem}Action",
            "observation_type": f"{tool.stem}Observation",
            "kind": f"{tool.stem}Tool",
        }
        for name, tool in TOOLS.items()
    ]


def read_call(name: str, arguments: str) -> tuple[Event, dict[str, str]]:
    """The action of a call, and its rating: `security_risk` and `summary`. Raises BadCall."""
    tool = TOOLS.get(name)
    if tool is None:
        raise BadCall(f"There is no tool {name[:100]!r}. The tools are: {', '.join(TOOLS)}.")
    try:
        given = json.loads(arguments or "{}")
        json.dumps(given, ensure_ascii=False).encode()  # half a surrogate pair is no text
    except (ValueError, RecursionError) as error:
        raise BadCall(f"The arguments of {name} are not JSON: {str(error)[:200]}.") from None
    if not isinstance(given, dict):
        raise BadCall(f"The arguments of {name} are no JSON object.")
    action = {key: given[key] for key in tool.parameters if given.get(key) is not None}
    if missing := [key for key in tool.required if key not in action]:
        raise BadCall(f"{name} needs the argument {missing[0]}.")
    for key, value in action.items():
        _check(f"{name}: {key}", tool.parameters[key], value)
    risk, summary = given.get("security_risk"), given.get("summary")
    rating = {"security_risk": risk if risk in RISKS else "UNKNOWN"}
    if isinstance(summary, str) and summary.strip():
        rating["summary"] = summary.strip()[:_SUMMARY]
    more = {"is_input": False, "reset": False} if name == "terminal" else {}
    return {**action, **more, "kind": f"{tool.stem}Action"}, rating


def _check(place: str, schema: dict[str, Any], value: Any) -> None:
    if not isinstance(value, _TYPES[schema["type"]]) or isinstance(value, bool):
        raise BadCall(f"{place} should be of the type {schema['type']}.")
    if value not in schema.get("enum", [value]):
        raise BadCall(f"{place} should be one of: {', '.join(schema['enum'])}.")
    if isinstance(value, int) and value < schema["minimum"]:
        raise BadCall(f"{place} should be at least {schema['minimum']}.")
    for item in value if isinstance(value, list) else ():
        if not isinstance(item, int) or isinstance(item, bool):
            raise BadCall(f"{place} should be a list of integers.")
