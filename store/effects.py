"""What an appended event means for its conversation: it opens an action, closes one, or sets state.

An effect is text for `append_events.lua`: a verb and its operands, one a line. Source: docs/wire.md, 4.
"""

import json
from typing import Any

from store.confirmations import RISKS, held_risks
from wire import EXECUTION_STATUSES, MOST_TITLE, Event, event_time

#: actions that end or ponder and do nothing: alone they never wait
_HARMLESS_ACTIONS = ("FinishAction", "ThinkAction")

#: kinds that followers hear and the log does not keep. Source: the agent-server wire
LIVE_KINDS = ("StreamingDeltaEvent", "ServerErrorEvent")

#: a longer one is dropped: it travels through Redis' channels, which have no bound of their own
MOST_LIVE_BYTES = 64 * 1024


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
        case kind if kind in LIVE_KINDS:
            return f"live\n{event.raw.decode()}" if len(event.raw) <= MOST_LIVE_BYTES else ""
    return ""


def is_stored(event: Event) -> bool:
    """Whether an event belongs into the log: a snapshot of the full state and what is live only do not.

    Source: docs/wire.md, 5.
    """
    return event.kind not in LIVE_KINDS and not _is_snapshot(event)


def _is_snapshot(event: Event) -> bool:
    return event.kind == "ConversationStateUpdateEvent" and event.fields.get("key") == "full_state"


def finish_message(action: dict[str, Any]) -> str | None:
    """What an ActionEvent finishes with; None if it does not finish."""
    details = action.get("action")
    if not isinstance(details, dict) or details.get("kind") != "FinishAction":
        return None
    message = details.get("message")
    return message if isinstance(message, str) else ""


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
    snapshot = key == "full_state" and isinstance(value, dict)
    settings = value if snapshot else {key: value}
    lines = ["snapshot" if snapshot else "set"]
    for name, setting in settings.items():
        lines += _setting(name, setting)
    return "\n".join(lines) if len(lines) > 1 else ""


def _setting(name: str, value: Any) -> list[str]:
    """The fields of the conversation's hash that one setting changes; none if it is not of the right shape."""
    match name, value:
        case "execution_status", str() if value in EXECUTION_STATUSES:
            return [name, value]
        case "title", str() | None:
            return [name, json.dumps(value and value[:MOST_TITLE])]
        case "tags", dict() if all(isinstance(label, str) for label in value.values()):
            return [name, json.dumps(value)]
        case "stats", dict():
            return [name, json.dumps(value)]
        case "confirmation_policy", dict():
            try:
                return ["held", held_risks(value), name, json.dumps(value)]
            except ValueError:
                return []
    return []
