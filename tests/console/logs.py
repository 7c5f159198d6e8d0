"""Conversations with events, which the tests of a conversation's view post as an agent does."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx

RECORDED = Path(__file__).parent.parent / "recorded"

BEGIN = datetime(2026, 11, 20, 8, tzinfo=UTC)

#: most events in one post
BATCH = 500


def time(second: float) -> str:
    """A time of an event, so many seconds after the first one."""
    return (BEGIN + timedelta(seconds=second)).isoformat()


def recorded(name: str) -> list[dict[str, Any]]:
    """The events of a real log."""
    return [json.loads(line) for line in (RECORDED / f"{name}.events.jsonl").read_text().splitlines()]


def message(name: str, second: float = 0, text: str = "", source: str = "user", **members: Any) -> dict[str, Any]:
    content = [{"type": "text", "text": text or f"message {name}"}]
    said = {"role": "user" if source == "user" else "assistant", "content": content, **members}
    return {"id": name, "kind": "MessageEvent", "source": source, "timestamp": time(second), "llm_message": said}


def action(name: str, second: float = 0, command: str = "ls", **members: Any) -> dict[str, Any]:
    return {
        "id": name,
        "kind": "ActionEvent",
        "source": "agent",
        "timestamp": time(second),
        "tool_name": "terminal",
        "tool_call_id": f"call-{name}",
        "llm_response_id": f"response-{name}",
        "security_risk": "LOW",
        "thought": [],
        "action": {"kind": "TerminalAction", "command": command},
        **members,
    }


def observation(name: str, of: str, second: float = 0, text: str = "done", **members: Any) -> dict[str, Any]:
    content = [{"type": "text", "text": text}]
    seen = {"kind": "TerminalObservation", "content": content, "exit_code": 0, "is_error": False, **members}
    return {
        "id": name,
        "kind": "ObservationEvent",
        "source": "environment",
        "timestamp": time(second),
        "tool_name": "terminal",
        "tool_call_id": f"call-{of}",
        "action_id": of,
        "observation": seen,
    }


def conversation(server: httpx.Client, *events: dict[str, Any], policy: str = "NeverConfirm", title: str = "") -> str:
    """The id of a new conversation of an agent that posts its events itself."""
    identity = str(uuid4())
    body = {"conversation_id": identity, "confirmation_policy": {"kind": policy}}
    server.post("/api/conversations", json=body).raise_for_status()
    if title:
        server.patch(f"/api/conversations/{identity}", json={"title": title}).raise_for_status()
    post(server, identity, *events)
    return identity


def post(server: httpx.Client, identity: str, *events: dict[str, Any]) -> None:
    """Append events, each once."""
    for start in range(0, len(events), BATCH):
        url = f"/api/v1/webhooks/events/{identity}"
        server.post(url, json=events[start : start + BATCH]).raise_for_status()


def event(kind: str, name: str, second: float = 0, **members: Any) -> dict[str, Any]:
    return {"id": name, "kind": kind, "source": "environment", "timestamp": time(second), **members}
