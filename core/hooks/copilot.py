"""Copilot CLI 1.0: flat answers. Its `permissionRequest` comes before rules, and before `--allow-all-tools`."""

import json
from collections.abc import Mapping
from typing import Any

from core.hooks import Adapter, Heard, HookRefused, Kind, arguments_of, text_of

#: What each event means; any other means nothing to us.
_EVENTS: Mapping[str, Kind] = {
    "permissionRequest": "permission",
    "preToolUse": "gate",
    "postToolUse": "call",
    "userPromptSubmitted": "prompt",
    "agentStop": "turn",
    "sessionEnd": "end",
}


def read(event: Mapping[str, Any]) -> Heard:
    """What an event means. Raises HookRefused."""
    kind = _EVENTS.get(text_of(event, "hookName"), "nothing")
    if kind == "nothing":
        return Heard(kind)
    heard = Heard(kind, text_of(event, "sessionId"), text_of(event, "cwd"))
    if kind == "prompt":
        return heard._replace(text=text_of(event, "prompt"))
    if kind in ("turn", "end"):
        return heard
    if isinstance(arguments := event.get("toolArgs"), str):  # JSON in a text
        try:
            event = {**event, "toolArgs": json.loads(arguments)}
        except ValueError:
            raise HookRefused("The event of the hook has no JSON in toolArgs") from None
    call = heard._replace(tool_name=text_of(event, "toolName"), arguments=arguments_of(event, "toolInput", "toolArgs"))
    result = event.get("toolResult")
    failed = isinstance(result, Mapping) and result.get("resultType") in ("failure", "denied")
    return call._replace(result=result, is_error=failed)


def answer(event: Mapping[str, Any], request: Mapping[str, Any]) -> dict[str, Any]:
    """What a request's state says to the agent."""
    if request["state"] not in ("approved", "rejected"):
        return {}
    allows, reason = request["state"] == "approved", request.get("reason") or "Refused in the inbox."
    if event["hookName"] == "preToolUse":
        verdict = {"permissionDecision": "allow" if allows else "deny"}
        return verdict if allows else verdict | {"permissionDecisionReason": reason}
    return {"behavior": "allow"} if allows else {"behavior": "deny", "message": reason}


COPILOT = Adapter("copilot-cli", "first", 30, False, read, answer)
