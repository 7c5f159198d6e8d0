"""What an event does to its conversation, and what the events of a sandbox claim of people.

An effect is a JSON object for `append_events.lua`, with any of these members. Source: docs/wire.md, 4 and 5.

| member       | value                                                                             |
|--------------|-----------------------------------------------------------------------------------|
| `open`       | object: `risk`, `harmless`, `time` (naive UTC text), `group` (llm_response_id) and |
|              | `call` (tool_call_id), each as JSON text and "" for none, `subject` (the members   |
|              | by which an observation names the action, as JSON text without braces), `name`     |
|              | (its id as canonical JSON), `tool` (as JSON text), `shown` (of `audit.py`),       |
|              | `digest` (of `core.approvals`), `size` (bytes of the event), and where it is      |
|              | traced `trace` (W3C traceparent)                                                  |
| `close`      | id of the action that was observed, or that an action of its sub-task shows begun |
| `close_call` | tool_call_id of the actions that failed, as JSON text                             |
| `set`        | object: field of the conversation's hash → its text                               |
| `snapshot`   | true: `set` is of a full state, which has no effect when it comes a second time     |
| `final`      | true: the agent finishes or speaks                                                |
| `claim`      | what the event of a sandbox claims of a person, see below                          |
| `live`       | true: the event is published to followers, and not stored                         |
| `fetched`    | true: the event is of the agent's own log, and later ones may have been posted     |

A text that may hold a lone surrogate stays JSON text inside, because cjson refuses a lone surrogate.

Code in a sandbox can make its agent server, or its webhooks, say anything. So `append_events.lua` takes an event that
speaks for a person only where this server expects it: as the echo of a message, a rejection or a policy that it has
sent to the agent. Else the event is stored as `disowned` makes it. Nothing is refused: an agent server sends a refused
batch again forever, and the honest events after it would be lost. Source: docs/promises.md.

| claim            | of                                             | expected from                              |
|------------------|------------------------------------------------|--------------------------------------------|
| `message SHA256` | a user's message with that content             | a message sent to the agent, its start     |
| `reject ID`      | the rejection of an action by a user           | the decision here, a settlement, a message |
|                  |                                                | that the agent got before the action came  |
| `policy RISKS`   | a policy that holds back those risks           | a change here; the present policy          |
| `person`         | any other event of source `user`               | never                                      |
"""

import json
import logging
from collections.abc import Iterable
from hashlib import sha256
from typing import Any

from core.approvals import action_digest, canonical, shown_arguments
from core.cuts import beginning
from core.wire import (
    EXECUTION_STATUSES,
    MOST_NAME,
    MOST_REPORTED_BYTES,
    MOST_TITLE,
    Event,
    are_capabilities,
    as_unicode,
    event_time,
)
from store.approvals.audit import shown
from store.conversation import Conversation, title_fields
from store.log.frames import compressed
from telemetry import traces

_log = logging.getLogger("request_log")

#: from harmless to dangerous; an action of any other risk counts as UNKNOWN
RISKS = ("LOW", "MEDIUM", "HIGH")


#: Kinds of actions that change nothing beside the conversation. A lone one waits only if its agent says that it does.
_HARMLESS_ACTIONS = ("FinishAction", "ThinkAction", "TaskTrackerAction")

#: kind of what a command that runs has printed so far. Source: docs/wire.md, 5
COMMAND_OUTPUT = "CommandOutputEvent"

#: kinds that followers receive and the log does not keep. Source: the agent-server wire, which has the first two
LIVE_KINDS = ("StreamingDeltaEvent", "ServerErrorEvent", COMMAND_OUTPUT)

#: kinds of the events that end an action
CLOSING_KINDS = ("ObservationEvent", "UserRejectObservation", "AgentErrorEvent")

#: a longer live event is dropped: Redis' channels, which carry it, have no bound of their own
MOST_LIVE_BYTES = 64 * 1024

#: code of the event that takes the place of a policy's
UNAPPROVED_POLICY = "unapproved_policy"

#: kinds of source `user` that say nothing but that the agent has stopped. Source: the agent-server wire
_SILENT_KINDS = ("PauseEvent", "InterruptEvent")


def held_risks(policy: dict[str, object]) -> str:
    """The risks that a policy holds back, joined by commas, as the scripts read them.

    Source: the agent-server wire. Raises ValueError for any other value.
    """
    match policy:
        case {"kind": "NeverConfirm"}:
            return ""
        case {"kind": "AlwaysConfirm"}:
            return ",".join((*RISKS, "UNKNOWN"))
        case {"kind": "ConfirmRisky"}:
            threshold, unknown = policy.get("threshold", "HIGH"), policy.get("confirm_unknown", True)
            if threshold in RISKS and isinstance(unknown, bool):
                held = RISKS[RISKS.index(threshold) :]
                return ",".join((*held, "UNKNOWN") if unknown else held)
    raise ValueError(f"not a confirmation policy: {policy!r}")


#: `json.dumps` would make an encoder for each effect
_json = json.JSONEncoder(ensure_ascii=False).encode


def effect(event: Event) -> dict[str, object]:
    """The effect of one event; empty when it has none."""
    match event.kind:
        case "ActionEvent":
            return _opened(event) | _begun(event) | final_effect(event)
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


def final_effect(event: Event) -> dict[str, object]:
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


def written(effect: dict[str, object]) -> str:
    """An effect as `append_events.lua` gets it; empty when there is none."""
    return _json(effect) if effect else ""


def _is_snapshot(event: Event) -> bool:
    return event.kind == "ConversationStateUpdateEvent" and event.fields.get("key") == "full_state"


def finish_message(action: dict[str, object]) -> str | None:
    """The message of an ActionEvent that finishes; None if the event does not finish."""
    details = action.get("action")
    if not isinstance(details, dict) or details.get("kind") != "FinishAction":
        return None
    message = details.get("message")
    return message if isinstance(message, str) else ""


def encodable(text: str) -> bool:
    """Whether text can be written as UTF-8: not when it has a lone surrogate."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def _opened(event: Event) -> dict[str, object]:
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
            "harmless": isinstance(action, dict) and (action.get("kind") in _HARMLESS_ACTIONS or _only_waits(action)),
            "group": json.dumps(group) if isinstance(group, str) and group else "",
            "call": json.dumps(call) if isinstance(call, str) else "",
            "time": event_time(event.at),
            "subject": json.dumps(subject)[1:-1],
            "size": len(event.raw),
            "name": canonical(event.id).decode(),
            "tool": json.dumps(subject["tool_name"]),
            "shown": shown(subject["tool_name"], event.fields.get("summary"), shown_arguments(action)),
            "digest": action_digest(event.fields.get("tool_name"), shown_arguments(action)),
            **traces.kept(),
        }
    }


def _only_waits(action: dict[str, object]) -> bool:
    """Whether an action waits for the output of a command that runs already. It types nothing."""
    return (action.get("kind"), action.get("command"), action.get("reset")) == ("TerminalAction", "", False)


def _begun(event: Event) -> dict[str, object]:
    """The end of the wait of an action in whose sub-task another action is proposed. Source: docs/wire.md, 4."""
    task, slash, _ = _text(event.fields.get("llm_response_id")).partition("/")
    return {"close": task} if slash and task and encodable(task) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _set(key: object, value: object) -> dict[str, object]:
    if not isinstance(key, str):
        return {}
    if key != "full_state":
        fields = _fields(key, value)
        return {"set": fields} if fields else {}
    fields = {}
    for name, setting in value.items() if isinstance(value, dict) else ():
        fields |= _fields(name, setting)
    return {"set": fields, "snapshot": True} if fields else {}


def _fields(name: str, value: object) -> dict[str, str]:
    """The fields of the conversation's hash that one setting changes; none if it is not of the right shape."""
    match name, value:
        case "execution_status", str() if value in EXECUTION_STATUSES:
            return Conversation.fields_of(execution_status=value)
        case "title", str() | None:
            return title_fields(value and beginning(as_unicode(value), MOST_TITLE))
        case "tags", dict() if _are_texts(value.values()) and _is_kept(value):
            return Conversation.fields_of(**{name: value})
        case "stats", dict() if _is_kept(value):
            return Conversation.fields_of(**{name: value})
        case "last_user_message_id" | "leaf_event_id", str() if len(value) <= MOST_NAME:
            return Conversation.fields_of(told={name: value})
        case "capabilities", list() if are_capabilities(value):
            return Conversation.fields_of(told={name: value})
        # The published agent server adds to these without an event, and posts them in the snapshot at the end of a run.
        case "invoked_skills" | "activated_knowledge_skills", list() if _are_texts(value) and _is_kept(value):
            return Conversation.fields_of(told={name: value})
        case "blocked_actions" | "blocked_messages", dict() if _are_texts(value.values()) and _is_kept(value):
            return Conversation.fields_of(told={name: value})
        case "confirmation_policy", dict():
            try:
                return Conversation.fields_of(held=held_risks(value), confirmation_policy=value)
            except ValueError:
                return {}
    return {}


def _are_texts(values: Iterable[object]) -> bool:
    return all(isinstance(value, str) for value in values)


def _is_kept(value: dict[str, object] | list[object]) -> bool:
    """Whether lists, reports and imports carry it too."""
    return len(json.dumps(value)) <= MOST_REPORTED_BYTES


def claim(event: Event) -> str | None:
    """What an event claims of a person; None: nothing."""
    if event.source == "user" and event.kind not in _SILENT_KINDS:
        said = event.fields.get("llm_message")
        if event.kind != "MessageEvent" or not isinstance(said, dict):
            return "person"
        return message_claim(said.get("content"))
    if _rejects(event):
        action_id = event.fields.get("action_id")
        return reject_claim(action_id) if isinstance(action_id, str) and encodable(action_id) else "person"
    if _sets_policy(event):
        return f"policy {_risks(event.fields.get('value'))}"
    return None


def message_claim(content: object) -> str:
    """The claim of the echo of a message; what an agent adds to its parts by itself counts for nothing."""
    parts = [_said(part) for part in content] if isinstance(content, list) else content
    return "message " + sha256(json.dumps(parts).encode()).hexdigest()


def reject_claim(action_id: str) -> str:
    return f"reject {action_id}"


def policy_claim(policy: dict[str, object]) -> str:
    return f"policy {_risks(policy)}"


def disowned(event: Event) -> Event:
    """What is stored, under the same id, of an event whose claim nothing bears out; it claims nothing."""
    fields = dict(event.fields)
    if event.source == "user":
        fields["source"] = "environment"
    if _rejects(event):
        fields["rejection_source"] = "hook"
    if _sets_policy(event):
        kept = {name: fields[name] for name in ("id", "timestamp", "source")}
        policy = beginning(json.dumps(fields.get("value")), 1024)
        detail = f"The agent has a confirmation policy that was not set here: {policy}"
        fields = {**kept, "code": UNAPPROVED_POLICY, "detail": detail, "kind": "ConversationErrorEvent"}
    kind = "ConversationErrorEvent" if _sets_policy(event) else event.kind
    return event._replace(kind=kind, source=fields["source"], fields=fields, raw=json.dumps(fields).encode())


def disowned_code(event: Event) -> str:
    """The name that a line of the log gives an event whose claim nothing bears out."""
    if _sets_policy(event):
        return UNAPPROVED_POLICY
    return "unapproved_rejection" if _rejects(event) else "unapproved_message"


def _rejects(event: Event) -> bool:
    """Whether an event rejects an action for a user, which it does unless it names another source."""
    return event.kind == "UserRejectObservation" and event.fields.get("rejection_source") != "hook"


def _sets_policy(event: Event) -> bool:
    return event.kind == "ConversationStateUpdateEvent" and event.fields.get("key") == "confirmation_policy"


def _risks(policy: Any) -> str:
    try:
        return held_risks(policy)
    except ValueError:
        return "unknown"


def _said(part: object) -> object:
    if not isinstance(part, dict):
        return part
    return [part.get(name) for name in ("type", "text", "image_urls")]


def log_unapproved(conversation_id: str, sandbox_id: str | None, code: str, ids: list[str]) -> None:
    """One line of JSON about what an agent did, or claimed, without a person of this server. ids: of events."""
    line = {"event": code, "conversation_id": conversation_id, "sandbox_id": sandbox_id, "ids": ids}
    _log.warning(json.dumps(line))
