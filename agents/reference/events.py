"""The events of the reference agent. Source: the agent-server wire."""

import json
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

Event = dict[str, Any]


def now() -> str:
    """The time in UTC without a zone, as events bear it."""
    return datetime.now(UTC).replace(tzinfo=None).isoformat(timespec="microseconds")


def event(kind: str, source: str, **members: Any) -> Event:
    return {"id": str(uuid4()), "timestamp": now(), "source": source, **members, "kind": kind}


def message(source: str, content: list[Event]) -> Event:
    said = {"role": {"agent": "assistant"}.get(source, source), "content": content, "thinking_blocks": []}
    return event("MessageEvent", source, llm_message=said, activated_skills=[], extended_content=[])


def text_of(a_message: Event) -> str:
    return "\n".join(part.get("text", "") for part in a_message["llm_message"]["content"])


def change(key: str, value: Any) -> Event:
    """The event of a change: of `execution_status` or `confirmation_policy`."""
    return event("ConversationStateUpdateEvent", "environment", key=key, value=value)


def action(command: str, response_id: str) -> Event:
    """A proposal to execute a command; one response of the agent proposes its actions together."""
    arguments = {"command": command, "is_input": False, "reset": False}
    call = {"id": f"call_{uuid4().hex}", "name": "terminal", "arguments": json.dumps(arguments)}
    details = {"thought": [], "action": {**arguments, "kind": "TerminalAction"}, "tool_name": "terminal"}
    details |= {"tool_call_id": call["id"], "tool_call": {**call, "origin": "completion"}}
    details |= {"llm_response_id": response_id, "security_risk": "UNKNOWN", "summary": command}
    return event("ActionEvent", "agent", **details)


def observation(of: Event, output: str, code: int) -> Event:
    seen = {"content": [{"type": "text", "text": output}], "is_error": code != 0, "exit_code": code}
    seen |= {"command": of["action"]["command"], "kind": "TerminalObservation"}
    return event("ObservationEvent", "environment", **_call(of), action_id=of["id"], observation=seen)


def rejection(of: Event, reason: str) -> Event:
    details = {"action_id": of["id"], "rejection_reason": reason, "rejection_source": "user"}
    return event("UserRejectObservation", "environment", **_call(of), **details)


def failure(of: Event, error: str) -> Event:
    return event("AgentErrorEvent", "agent", **_call(of), error=error)


def _call(of: Event) -> Event:
    return {"tool_name": "terminal", "tool_call_id": of["tool_call_id"]}
