"""The events of the reference agent. Source: the agent-server wire."""

import json
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

Event = dict[str, Any]

#: the kinds of events that close an action
RESULTS = ("ObservationEvent", "UserRejectObservation", "AgentErrorEvent")


def now() -> str:
    """The time in UTC without a zone, as events bear it."""
    return datetime.now(UTC).replace(tzinfo=None).isoformat(timespec="microseconds")


def event(kind: str, source: str, **members: Any) -> Event:
    return {"id": str(uuid4()), "timestamp": now(), "source": source, **members, "kind": kind}


def parts(text: str) -> list[Event]:
    """Text as the content of a message, a thought or an observation; no part for no text."""
    return [{"type": "text", "text": text}] if text else []


def message(source: str, content: list[Event], **members: Any) -> Event:
    """members: further ones of the event's `llm_message`, such as `reasoning_content`."""
    said = {"role": {"agent": "assistant"}.get(source, source), "content": content, "thinking_blocks": [], **members}
    return event("MessageEvent", source, llm_message=said, activated_skills=[], extended_content=[])


def text_of(content: list[Event]) -> str:
    return "\n".join(part.get("text", "") for part in content)


def change(key: str, value: Any) -> Event:
    """The event of a change: of `execution_status`, `confirmation_policy` or `stats`."""
    return event("ConversationStateUpdateEvent", "environment", key=key, value=value)


def action(call: Event, action: Event | None, response_id: str, **members: Any) -> Event:
    """A proposal of the agent; one response proposes its actions together.

    call: `id`, `name` and `arguments`, a text. action: None for a call that cannot be executed.
    """
    details = {"thought": [], "action": action, "tool_name": call["name"], "tool_call_id": call["id"]}
    details |= {"tool_call": {**call, "origin": "completion"}, "llm_response_id": response_id}
    details |= {"security_risk": "UNKNOWN", "summary": None, **members}
    return event("ActionEvent", "agent", **details)


def observation(of: Event, seen: Event) -> Event:
    """The result of an executed action. seen: `content`, `is_error`, and what the tool adds.

    An action with `edited` was executed with these arguments instead of its own, which the result says.
    """
    if "edited" in of:
        notice = f"A person has edited the arguments before this was executed: {json.dumps(of['edited'])}"
        seen = {**seen, "content": [*parts(notice), *seen["content"]]}
    kind = of["action"]["kind"].replace("Action", "Observation")
    return event("ObservationEvent", "environment", **_call(of), action_id=of["id"], observation={**seen, "kind": kind})


def rejection(of: Event, reason: str) -> Event:
    details = {"action_id": of["id"], "rejection_reason": reason, "rejection_source": "user"}
    return event("UserRejectObservation", "environment", **_call(of), **details)


def failure(of: Event, error: str) -> Event:
    return event("AgentErrorEvent", "agent", **_call(of), error=error)


def error(code: str, detail: str) -> Event:
    """The end of a run that cannot go on. code: as the SDK's `classify_error` knows them."""
    return event("ConversationErrorEvent", "environment", code=code, detail=detail)


def _call(of: Event) -> Event:
    return {"tool_name": of["tool_name"], "tool_call_id": of["tool_call_id"]}
