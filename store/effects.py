"""What an appended event means for its conversation: it opens an action, closes one, or sets state.

An effect is text for `append_events.lua`: a verb and its operands, one a line. Source: docs/wire.md, 4.
"""

import json
from typing import Any

from store.confirmations import RISKS, held_risks
from wire import Event, event_time

#: actions that end or ponder and do nothing: alone they never wait
_HARMLESS_ACTIONS = ("FinishAction", "ThinkAction")

#: every execution status of a conversation. Source: the agent-server wire
EXECUTION_STATUSES = (
    "idle",
    "running",
    "paused",
    "waiting_for_confirmation",
    "finished",
    "error",
    "stuck",
    "deleting",
)


def effect(event: Event) -> str:
    """The effect of one event; empty when it has none."""
    match event.kind:
        case "ActionEvent":
            return _opened(event)
        case "ObservationEvent" | "UserRejectObservation":
            action_id = event.fields.get("action_id")
            return f"close\n{action_id}" if isinstance(action_id, str) and encodable(action_id) else ""
        case "AgentErrorEvent":
            call = event.fields.get("tool_call_id")
            return f"close_call\n{json.dumps(call)}" if isinstance(call, str) else ""
        case "ConversationStateUpdateEvent":
            return _set(event.fields.get("key"), event.fields.get("value"))
    return ""


def is_stored(event: Event) -> bool:
    """Whether an event belongs into the log: a snapshot of the full state does not. Source: docs/wire.md, 5."""
    return event.kind != "ConversationStateUpdateEvent" or event.fields.get("key") != "full_state"


def encodable(text: str) -> bool:
    """Whether text can be written as UTF-8: not when it has a lone surrogate."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def _opened(event: Event) -> str:
    action = event.fields.get("action")
    if action is None:
        return ""
    risk = event.fields.get("security_risk")
    call = event.fields.get("tool_call_id")
    group = event.fields.get("llm_response_id")
    harmless = isinstance(action, dict) and action.get("kind") in _HARMLESS_ACTIONS
    fragment = json.dumps(
        {
            "tool_name": _text(event.fields.get("tool_name")),
            "tool_call_id": _text(call),
            "action_id": event.id,
        }
    )
    lines = [
        "open",
        risk if risk in RISKS else "UNKNOWN",
        "1" if harmless else "0",
        json.dumps(group) if isinstance(group, str) and group else "",
        json.dumps(call) if isinstance(call, str) else "",
        event_time(event.at),
        fragment[1:-1],
    ]
    return "\n".join(lines)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _set(key: Any, value: Any) -> str:
    if not isinstance(key, str):
        return ""
    settings = value if key == "full_state" and isinstance(value, dict) else {key: value}
    lines = ["set"]
    for name, setting in settings.items():
        lines += _setting(name, setting)
    return "\n".join(lines) if len(lines) > 1 else ""


def _setting(name: str, value: Any) -> list[str]:
    """The fields of the conversation's hash that one setting changes; none if it is not of the right shape."""
    match name, value:
        case "execution_status", str() if value in EXECUTION_STATUSES:
            return [name, value]
        case "title", str() | None:
            return [name, json.dumps(value)]
        case (("tags" | "stats"), dict()):
            return [name, json.dumps(value)]
        case "confirmation_policy", dict():
            try:
                return ["held", held_risks(value), name, json.dumps(value)]
            except ValueError:
                return []
    return []
