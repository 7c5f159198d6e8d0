"""The effects of an event on its conversation, and the claims of a sandbox's events about people.

An effect is a JSON object for `append_events.lua`, with any of these members. Source: docs/wire.md, 4 and 5.

| member       | value                                                                             |
|--------------|-----------------------------------------------------------------------------------|
| `open`       | object: `risk`, `harmless`, `time` (naive UTC text), `group` (llm_response_id) and |
|              | `call` (tool_call_id), each as JSON text and "" for none, `subject` (the members   |
|              | by which an observation names the action, as JSON text without braces), `name`     |
|              | (its id as canonical JSON), `tool` (as JSON text), `shown` (of `audit.py`),       |
|              | `digest` (of `core.approvals`), `size` (bytes of the event), and `trace` (W3C     |
|              | traceparent) if it is traced                                                      |
| `close`      | id of the action that was observed, or whose sub-task has begun an action         |
| `close_call` | tool_call_id of the actions that failed, as JSON text                             |
| `set`        | object: field of the conversation's hash → its text                               |
| `snapshot`   | true: `set` is a full state, without effect when it arrives a second time         |
| `final`      | true: the agent finishes or speaks                                                |
| `claim`      | claim of a sandbox's event about a person, see below                              |
| `live`       | true: the event is published to followers, and not stored                         |
| `fetched`    | true: the event is from the agent's own log, and newer ones may be stored         |

Texts that may contain a lone surrogate are nested as JSON text, because cjson refuses lone surrogates.

Code in a sandbox can make its agent server, or its webhooks, send anything. So `append_events.lua` accepts an event in
the name of a person only if this server expects it: as the echo of a message, a rejection or a policy that it has sent
to the agent. Otherwise the event is stored as `disowned` rewrites it. Nothing is refused: an agent server retries a
refused batch forever, and the honest events after it would be lost. Source: docs/promises.md.

| claim            | of                                             | expected because of                        |
|------------------|------------------------------------------------|--------------------------------------------|
| `message SHA256` | a user's message with that content             | a message sent to the agent, its start     |
| `reject ID`      | the rejection of an action by a user           | a decision here, a settlement, a message   |
|                  |                                                | that the agent got before the action came  |
| `policy RISKS`   | a policy that holds back those risks           | a change here; the current policy          |
| `person`         | any other event of source `user`               | nothing                                    |
"""

import json
import logging
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any

from core.approvals import action_digest, canonical, shown_arguments
from core.cuts import beginning
from core.wire import (
    EXECUTION_STATUSES,
    MOST_NAME,
    MOST_REPORTED_BYTES,
    MOST_TITLE,
    ReceivedEvent,
    are_capabilities,
    as_unicode,
    event_time,
)
from store.approvals.audit import shown
from store.conversation import Conversation, title_fields
from store.log.frames import compressed
from telemetry import traces

_log = logging.getLogger("request_log")

#: From harmless to dangerous. An action with any other risk counts as UNKNOWN.
RISKS = ("LOW", "MEDIUM", "HIGH")


#: Actions that change only the conversation. A single one waits only if its agent says that it does.
_HARMLESS_ACTIONS = ("FinishAction", "ThinkAction", "TaskTrackerAction")

#: Kind of the output so far of a running command. Source: docs/wire.md, 5.
COMMAND_OUTPUT = "CommandOutputEvent"

#: Kinds that followers receive and the log does not store. Source: the agent-server wire, for the first two.
LIVE_KINDS = ("StreamingDeltaEvent", "ServerErrorEvent", COMMAND_OUTPUT)

CLOSING_KINDS = ("ObservationEvent", "UserRejectObservation", "AgentErrorEvent")

#: Maximum size of a live event, in bytes, because Redis' channels have no limit. Longer ones are dropped.
MOST_LIVE_BYTES = 64 * 1024

#: Code of the event that replaces a policy's.
UNAPPROVED_POLICY = "unapproved_policy"

#: Kinds of source `user` that only say that the agent has stopped. Source: the agent-server wire.
_SILENT_KINDS = ("PauseEvent", "InterruptEvent")


def held_risks(policy: dict[str, object]) -> str:
    """Return the risks that a policy holds back, joined by commas, for the scripts.

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


def held_levels(policy: Mapping[str, object]) -> set[str]:
    """Return the risks that a policy holds back. Raises ValueError as `held_risks`."""
    return {risk for risk in held_risks(dict(policy)).split(",") if risk}


#: `json.dumps` would make an encoder for each effect.
_json = json.JSONEncoder(ensure_ascii=False).encode


def effect(event: ReceivedEvent) -> dict[str, object]:
    """Return the effect of an event; empty if it has none."""
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


def final_effect(event: ReceivedEvent) -> dict[str, object]:
    """Return the part of an event's effect that also applies to a copy. Source: docs/wire.md, 8."""
    speaks = event.kind == "MessageEvent" or (event.kind == "ActionEvent" and finish_message(event.fields) is not None)
    return {"final": True} if speaks and event.source == "agent" else {}


def stored_bytes(event: ReceivedEvent) -> bytes:
    """Return an event's bytes for `append_events.lua`: as the log stores them, or unchanged for a live event.

    Empty for a snapshot, and for a live event that is too long. Source: docs/wire.md, 5.
    """
    if _is_snapshot(event):
        return b""
    if event.kind in LIVE_KINDS:
        return event.raw if len(event.raw) <= MOST_LIVE_BYTES else b""
    return compressed(event.raw)


def is_kept(event: ReceivedEvent) -> bool:
    """Return whether a log stores an event: all but snapshots and live events."""
    return event.kind not in LIVE_KINDS and not _is_snapshot(event)


def closes(event: ReceivedEvent, action: ReceivedEvent) -> bool:
    """Return whether an event ends an action: it observes or rejects it, or is an error of the action's tool call."""
    found = effect(event)
    call = action.fields.get("tool_call_id")
    return found.get("close") == action.id or ("close_call" in found and found["close_call"] == json.dumps(call))


def written(effect: dict[str, object]) -> str:
    """Return an effect for `append_events.lua`; empty if there is none."""
    return _json(effect) if effect else ""


def _is_snapshot(event: ReceivedEvent) -> bool:
    return event.kind == "ConversationStateUpdateEvent" and event.fields.get("key") == "full_state"


def finish_message(action: dict[str, object]) -> str | None:
    """Return the message of an ActionEvent that finishes; None if the event does not finish."""
    details = action.get("action")
    if not isinstance(details, dict) or details.get("kind") != "FinishAction":
        return None
    message = details.get("message")
    return message if isinstance(message, str) else ""


def encodable(text: str) -> bool:
    """Return whether a text can be encoded as UTF-8, which lone surrogates cannot."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def _opened(event: ReceivedEvent) -> dict[str, object]:
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


def _begun(event: ReceivedEvent) -> dict[str, object]:
    """Return the end of an action's wait, because its sub-task proposes another action. Source: docs/wire.md, 4."""
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
    """Return the fields of the conversation's hash that a setting changes; none if it is malformed."""
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
    """Return whether a value is short enough for lists, reports and imports."""
    return len(json.dumps(value)) <= MOST_REPORTED_BYTES


def claim(event: ReceivedEvent) -> str | None:
    """Return an event's claim about a person, or None."""
    if event.source == "user" and event.kind not in _SILENT_KINDS:
        message = event.fields.get("llm_message")
        if event.kind != "MessageEvent" or not isinstance(message, dict):
            return "person"
        return message_claim(message.get("content"))
    if _rejects(event):
        action_id = event.fields.get("action_id")
        return reject_claim(action_id) if isinstance(action_id, str) and encodable(action_id) else "person"
    if _sets_policy(event):
        return f"policy {_risks(event.fields.get('value'))}"
    return None


def message_claim(content: object) -> str:
    """Return the claim of a message's echo. What an agent adds to its parts does not count."""
    parts = [_message_part(part) for part in content] if isinstance(content, list) else content
    return "message " + sha256(json.dumps(parts).encode()).hexdigest()


def reject_claim(action_id: str) -> str:
    return f"reject {action_id}"


def policy_claim(policy: dict[str, object]) -> str:
    return f"policy {_risks(policy)}"


def disowned(event: ReceivedEvent) -> ReceivedEvent:
    """Rewrite an event whose claim nothing supports, under the same id. The result claims nothing."""
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


def disowned_code(event: ReceivedEvent) -> str:
    """Return the name of an event whose claim nothing supports, for the log."""
    if _sets_policy(event):
        return UNAPPROVED_POLICY
    return "unapproved_rejection" if _rejects(event) else "unapproved_message"


def _rejects(event: ReceivedEvent) -> bool:
    """Return whether an event rejects an action for a user, as it does unless it names another source."""
    return event.kind == "UserRejectObservation" and event.fields.get("rejection_source") != "hook"


def _sets_policy(event: ReceivedEvent) -> bool:
    return event.kind == "ConversationStateUpdateEvent" and event.fields.get("key") == "confirmation_policy"


def _risks(policy: Any) -> str:
    try:
        return held_risks(policy)
    except ValueError:
        return "unknown"


def _message_part(part: object) -> object:
    if not isinstance(part, dict):
        return part
    return [part.get(name) for name in ("type", "text", "image_urls")]


def log_unapproved(conversation_id: str, sandbox_id: str | None, code: str, ids: list[str]) -> None:
    """Log a line of JSON about actions or claims of an agent without a person of this server. ids: of events."""
    line = {"event": code, "conversation_id": conversation_id, "sandbox_id": sandbox_id, "ids": ids}
    _log.warning(json.dumps(line))
