"""The effect of an event on its conversation: it opens or closes an action, sets state, or is a final response.

An effect is a JSON object for `append_events.lua`, with any of these members. Source: docs/wire.md, 4 and 5.

| member       | value                                                                             |
|--------------|-----------------------------------------------------------------------------------|
| `open`       | object: `risk`, `harmless`, `time` (naive UTC text), `group` (llm_response_id) and |
|              | `call` (tool_call_id), each as JSON text and "" for none, `subject` (the members   |
|              | by which an observation names the action, as JSON text without braces), `name`     |
|              | (its id as canonical JSON), `tool` (as JSON text), `digest` (of                |
|              | `approvals.digests`), `size` (bytes of the event), and where it is traced `trace`  |
|              | (W3C traceparent)                                                                 |
| `close`      | id of the action that was observed                                                |
| `close_call` | tool_call_id of the actions that failed, as JSON text                             |
| `set`        | object: field of the conversation's hash → its text                               |
| `snapshot`   | true: `set` is of a full state, which has no effect when it comes a second time     |
| `final`      | true: the agent finishes or speaks                                                |
| `claim`      | what the event of a sandbox claims of a person, see `claims.py`                    |
| `live`       | true: the event is published to followers, and not stored                         |
| `fetched`    | true: the event is of the agent's own log, and later ones may have been posted     |

A text that may hold a lone surrogate stays JSON text inside, because cjson refuses a lone surrogate.
"""

import json
from typing import Any

from approvals.digests import action_digest, canonical, shown_arguments
from store.keys import TOLD_FIELD
from store.link import traces
from store.log.frames import compressed
from store.policies import RISKS, held_risks
from wire import EXECUTION_STATUSES, MOST_NAME, MOST_TITLE, Event, are_capabilities, event_time

#: `json.dumps` would make an encoder for each effect
_json = json.JSONEncoder(ensure_ascii=False).encode

#: actions without a tool: a lone one never waits
_HARMLESS_ACTIONS = ("FinishAction", "ThinkAction")

#: kinds that followers receive and the log does not keep. Source: the agent-server wire
LIVE_KINDS = ("StreamingDeltaEvent", "ServerErrorEvent")

#: kinds of the events that end an action
CLOSING_KINDS = ("ObservationEvent", "UserRejectObservation", "AgentErrorEvent")

#: a longer live event is dropped: Redis' channels, which carry it, have no bound of their own
MOST_LIVE_BYTES = 64 * 1024


def effect(event: Event) -> dict[str, Any]:
    """The effect of one event; empty when it has none."""
    match event.kind:
        case "ActionEvent":
            return _opened(event) | final_effect(event)
        case "MessageEvent":
            return final_effect(event)
        case "ObservationEvent" | "UserRejectObservation":
            action_id = event.fields.get("action_id")
            return {"close": action_id} if isinstance(action_id, str) and encodable(action_id) else {}
        case "AgentErrorEvent":
            call = event.fields.get("tool_call_id")
            return {"close_call": json.dumps(call)} if isinstance(call, str) else {}
        case "ConversationStateUpdateEvent":
            return _set(event.fields.get("key"), event.fields.get("value"))
        case kind if kind in LIVE_KINDS and len(event.raw) <= MOST_LIVE_BYTES:
            return {"live": True}
    return {}


def final_effect(event: Event) -> dict[str, Any]:
    """The part of an event's effect that a copy of it has too. Source: docs/wire.md, 8."""
    speaks = event.kind == "MessageEvent" or (event.kind == "ActionEvent" and finish_message(event.fields) is not None)
    return {"final": True} if speaks and event.source == "agent" else {}


def stored_bytes(event: Event) -> bytes:
    """What `append_events.lua` gets of an event: as the log keeps it, or as it came where followers alone receive it.

    Empty for a snapshot, and for a live event that is too long. Source: docs/wire.md, 5.
    """
    if _is_snapshot(event):
        return b""
    if event.kind in LIVE_KINDS:
        return event.raw if len(event.raw) <= MOST_LIVE_BYTES else b""
    return compressed(event.raw)


def is_kept(event: Event) -> bool:
    """Whether a log keeps an event: no snapshot, and none that followers alone receive."""
    return event.kind not in LIVE_KINDS and not _is_snapshot(event)


def closes(event: Event, action: Event) -> bool:
    """Whether an event ends an action: it observes or rejects the action, or is an error of the action's tool call."""
    found = effect(event)
    call = action.fields.get("tool_call_id")
    return found.get("close") == action.id or ("close_call" in found and found["close_call"] == json.dumps(call))


def written(effect: dict[str, Any]) -> str:
    """An effect as `append_events.lua` gets it; empty when there is none."""
    return _json(effect) if effect else ""


def _is_snapshot(event: Event) -> bool:
    return event.kind == "ConversationStateUpdateEvent" and event.fields.get("key") == "full_state"


def finish_message(action: dict[str, Any]) -> str | None:
    """The message of an ActionEvent that finishes; None if the event does not finish."""
    details = action.get("action")
    if not isinstance(details, dict) or details.get("kind") != "FinishAction":
        return None
    message = details.get("message")
    return message if isinstance(message, str) else ""


def encodable(text: str) -> bool:
    """Whether text can be written as UTF-8: not when it has a lone surrogate."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def _opened(event: Event) -> dict[str, Any]:
    action = event.fields.get("action")
    if action is None:
        return {}
    risk = event.fields.get("security_risk")
    call = event.fields.get("tool_call_id")
    group = event.fields.get("llm_response_id")
    subject = {
        "tool_name": _text(event.fields.get("tool_name")),
        "tool_call_id": _text(call),
        "action_id": event.id,
    }
    return {
        "open": {
            "risk": risk if risk in RISKS else "UNKNOWN",
            "harmless": isinstance(action, dict) and action.get("kind") in _HARMLESS_ACTIONS,
            "group": json.dumps(group) if isinstance(group, str) and group else "",
            "call": json.dumps(call) if isinstance(call, str) else "",
            "time": event_time(event.at),
            "subject": json.dumps(subject)[1:-1],
            "size": len(event.raw),
            "name": canonical(event.id).decode(),
            "tool": json.dumps(subject["tool_name"]),
            "digest": action_digest(event.fields.get("tool_name"), shown_arguments(action)),
            **traces.kept(),
        }
    }


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _set(key: Any, value: Any) -> dict[str, Any]:
    if not isinstance(key, str):
        return {}
    if key != "full_state":
        fields = _fields(key, value)
        return {"set": fields} if fields else {}
    fields = {}
    for name, setting in value.items() if isinstance(value, dict) else ():
        fields |= _fields(name, setting)
    return {"set": fields, "snapshot": True} if fields else {}


def _fields(name: str, value: Any) -> dict[str, str]:
    """The fields of the conversation's hash that one setting changes; none if it is not of the right shape."""
    match name, value:
        case "execution_status", str() if value in EXECUTION_STATUSES:
            return {name: value}
        case "title", str() | None:
            return {name: json.dumps(value and value[:MOST_TITLE])}
        case "tags", dict() if all(isinstance(label, str) for label in value.values()):
            return {name: json.dumps(value)}
        case "stats", dict():
            return {name: json.dumps(value)}
        case "last_user_message_id" | "leaf_event_id", str() if len(value) <= MOST_NAME:
            return {TOLD_FIELD + name: json.dumps(value)}
        case "capabilities", list() if are_capabilities(value):
            return {TOLD_FIELD + name: json.dumps(value)}
        case "confirmation_policy", dict():
            try:
                return {"held": held_risks(value), name: json.dumps(value)}
            except ValueError:
                return {}
    return {}
