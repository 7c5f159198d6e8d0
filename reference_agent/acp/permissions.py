"""Permission requests of an ACP agent: the action that people see, and the option that a decision chooses.

An option is chosen by its kind. Its position and its id mean nothing: several agents put *always* first.
A lasting option (`allow_always`, `reject_always`) is never chosen, because a lasting decision is a rule of this server.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

from core.cuts import beginning
from core.incomplete import INCOMPLETE
from reference_agent.events import Event

#: Maximum number of options of a request that are read.
MOST_OPTIONS = 50

#: Maximum lengths of a tool's name and of a summary, in characters.
MOST_NAME, MOST_SUMMARY = 100, 500

#: Maximum size of an action, in characters of JSON. An event contains it twice and has at most 1 MiB.
MOST_ACTION = 300_000

#: The outcome of a request that nobody decides any more.
CANCELLED = {"outcome": "cancelled"}

#: Arguments of a command that change neither what runs nor where.
_BESIDE = frozenset({"command", "description", "timeout"})

#: Arguments that name the folder of a command.
FOLDERS = ("cwd", "workdir")

#: Names of shell tools. goose reports no kind for them.
_SHELLS = ("bash", "shell")

#: Members that are shown for a request without arguments.
_SHOWN = ("title", "kind", "content", "locations")

_WHY = "The agent does not show the arguments of this call. More may run than is shown here."


class ShownPermission(NamedTuple):
    tool_name: str
    action: Event  #: of a kind that published clients know
    summary: str
    complete: bool  #: False if the agent shows a text instead of arguments


def merged(known: dict[str, Any], update: dict[str, Any]) -> dict[str, Any]:
    """Merge an update into a tool call. Null members are ignored."""
    return {**known, **{name: value for name, value in update.items() if value is not None}}


def shown(call: dict[str, Any], folder: Path) -> ShownPermission:
    """Return the action that people decide about. call: a tool call, merged with its earlier updates.

    A command is a `TerminalAction` if it runs in the conversation's folder and no other argument changes what runs.
    Every other call is an `MCPToolAction`, whose `data` has all arguments.
    """
    name, title, given = tool_name(call), text(call.get("title")), call.get("rawInput")
    if not isinstance(given, dict) or not given:
        data = {member: call[member] for member in _SHOWN if call.get(member)}
        return ShownPermission(
            name, _of_tool({**data, INCOMPLETE: _WHY}), beginning(title or name, MOST_SUMMARY), complete=False
        )
    summary = beginning(text(given.get("description")) or title or name, MOST_SUMMARY)
    command = given.get("command")
    beside = _BESIDE | {one for one in FOLDERS if given.get(one) == str(folder)}
    is_shell = call.get("kind") in (None, "execute") or name in _SHELLS
    if is_shell and isinstance(command, str) and given.keys() <= beside:
        action = {"command": command, "is_input": False, "reset": False, "kind": "TerminalAction"}
        return ShownPermission("terminal", action, summary, complete=True)
    return ShownPermission(name, _of_tool(given), summary, complete=True)


def tool_name(call: dict[str, Any]) -> str:
    """Return the name of a call's tool: from its own members, otherwise from its kind."""
    meta = call.get("_meta")
    meta_members = meta if isinstance(meta, dict) else {}
    nested = [_nested_name(value) for value in meta_members.values() if isinstance(value, dict)]
    names = (call.get("name"), meta_members.get("toolName"), meta_members.get("tool_name"), *nested, call.get("kind"))
    return next((beginning(name, MOST_NAME) for name in map(text, names) if name), "other")


def _nested_name(members: dict[str, Any]) -> Any:
    """Return the tool's name from `{"toolName"}` or `{"toolCall": {"toolName"}}`, where agents nest it."""
    inner = members.get("toolCall")
    return (inner if isinstance(inner, dict) else members).get("toolName")


def arguments(action: Event) -> Event:
    """Return the arguments of an action as in its tool call."""
    if action["kind"] == "TerminalAction":
        return {"command": action["command"]}
    return dict(action["data"])


def is_too_long(action: Event) -> bool:
    """Return whether an action is too large for an event."""
    return len(json.dumps(action)) > MOST_ACTION


def outcome(options: Any, *, approve: bool) -> dict[str, str]:
    """Return the outcome of a request: the first option of the kind `allow_once` or `reject_once`.

    Without a `reject_once` option the outcome is `cancelled`, which agents take as a refusal. Without an `allow_once`
    option an approval is a refusal too: see `can_allow`.
    """
    by_kind = dict(reversed(_options(options)))
    chosen = by_kind.get("allow_once") if approve else None
    chosen = chosen if chosen is not None else by_kind.get("reject_once")
    return CANCELLED if chosen is None else {"outcome": "selected", "optionId": chosen}


def can_allow(options: Any) -> bool:
    """Return whether a request can be approved without a lasting effect."""
    return any(kind == "allow_once" for kind, _ in _options(options))


def _options(given: Any) -> list[tuple[str, str]]:
    """Return kind and id of the well-formed options."""
    listed = [one for one in given[:MOST_OPTIONS] if isinstance(one, dict)] if isinstance(given, list) else []
    pairs = [(one.get("kind"), one.get("optionId")) for one in listed]
    return [(kind, name) for kind, name in pairs if isinstance(kind, str) and isinstance(name, str)]


def _of_tool(data: Event) -> Event:
    return {"data": data, "kind": "MCPToolAction"}


def text(value: Any) -> str:
    """Return a value if it is text; otherwise ""."""
    return value if isinstance(value, str) else ""
