"""What the hooks of published agents send and take, an adapter for each: `read` an event, and write the `answer`.

An answer has nothing of ours in it, and `{}` is no opinion: the agent then does what it does without a hook. Sources:
the published packages, as docs/hooks.md says. No store and no Flask.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

Kind = Literal["permission", "gate", "call", "prompt", "turn", "end", "nothing"]


class HookRefused(ValueError):
    """An event of a hook that lacks what it needs; the message is for whoever set the hook up."""


class Heard(NamedTuple):
    """What an event of a hook means."""

    kind: Kind
    session: str = ""  #: its id, as the agent has it
    cwd: str = ""
    mode: str = ""
    subagent: str = ""
    tool_name: str = ""
    arguments: Mapping[str, Any] = {}
    text: str = ""  #: of a prompt
    result: Any = None  #: of a call
    is_error: bool = False


class Adapter(NamedTuple):
    """The hooks of one agent."""

    agent: str
    order: Literal["races", "first"]  #: whether the terminal asks at the same time
    patience: int  #: seconds that its hook waits, unless it says otherwise
    can_edit: bool  #: whether an answer may have other arguments
    read: Callable[[Mapping[str, Any]], Heard]
    answer: Callable[
        [Mapping[str, Any], Mapping[str, Any]], dict[str, Any]
    ]  #: of an event and a request as it is shown


def verdict_of(request: Mapping[str, Any], *, is_gate: bool) -> Literal["allow", "deny", ""]:
    """What a request's state says to an agent; empty: no opinion. A gate allows nothing that the inbox does not.

    An answer of the terminal is none: whoever has the key can claim one.
    """
    is_of_inbox = (request.get("by") or {}).get("kind") != "terminal"
    if request["state"] == "approved" and is_of_inbox:
        return "allow"
    return "deny" if is_gate or (request["state"] == "rejected" and is_of_inbox) else ""


def reason_of(request: Mapping[str, Any]) -> str:
    """Why a request was not approved, in words for the agent."""
    given = str(request.get("reason") or "Refused in the inbox.")
    return given if request["state"] == "rejected" else "Nobody has answered in the inbox."


def text_of(event: Mapping[str, Any], name: str, *, required: bool = True) -> str:
    """A text of an event. Raises HookRefused."""
    value = event.get(name)
    if value is None and not required:
        return ""
    if not isinstance(value, str) or (required and not value):
        raise HookRefused(f"The event of the hook has no text {name}")
    return value


def arguments_of(event: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    """The arguments of a call, by the first of the names that the event has. Raises HookRefused."""
    value: Any = next((event[name] for name in names if event.get(name) is not None), {})
    if not isinstance(value, Mapping):
        raise HookRefused(f"The event of the hook has no object {names[0]}")
    return value
