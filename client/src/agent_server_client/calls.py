"""What a call of a tool does, in words made of its arguments alone: a summary by the model is no part of them."""

import json
from typing import Any

#: what tools call the path of a file, and the commands of a file tool
PATHS, FILE_COMMANDS = ("path", "file_path"), ("create", "str_replace", "insert", "view")

#: arguments of terminals that say nothing at these values
UNSET = {"is_input": False, "reset": False}

#: arguments of a file tool beside its path
FILE_ARGUMENTS = ("command", "file_text", "old_str", "new_str", "insert_line", "view_range")

#: members that are prose, where a call has nothing else
_PROSE = ("message", "thought")


def member(values: dict[str, Any], names: tuple[str, ...]) -> str | None:
    """The first of the names that has a text."""
    return next((name for name in names if isinstance(values.get(name), str)), None)


def command_of(arguments: Any) -> str | None:
    """The shell command of a call; None where it has another form."""
    command = arguments.get("command") if isinstance(arguments, dict) else None
    return command if isinstance(command, str) and member(arguments, PATHS) is None else None


def call_of(arguments: Any) -> str:
    """The command, or the path with what is done to it, and the other arguments as JSON behind it."""
    if not isinstance(arguments, dict):
        return json.dumps(arguments, ensure_ascii=False)
    if isinstance(arguments.get("data"), dict) and arguments.keys() <= {"data", "kind"}:
        return call_of(arguments["data"])  # a call of a tool that is not the server's own
    command = command_of(arguments)
    unset = UNSET if command is not None else {}
    rest = {name: value for name, value in arguments.items() if name != "kind" and value is not None}
    rest = {name: value for name, value in rest.items() if unset.get(name) is not value}
    if command is not None:
        head = rest.pop("command")
    elif path := member(rest, PATHS):
        verb = rest.pop("command") if rest.get("command") in FILE_COMMANDS else ""
        head = f"{verb} {rest.pop(path)}".strip()
    elif len(rest) == 1 and (only := member(rest, _PROSE)):
        return str(rest[only])
    else:
        return json.dumps(rest, ensure_ascii=False)
    return f"{head}  {json.dumps(rest, ensure_ascii=False)}" if rest else str(head)
