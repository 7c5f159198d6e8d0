"""Copilot CLI 1.0: flat answers. Its `permissionRequest` comes before rules, and before `--allow-all-tools`."""

from collections.abc import Mapping
from typing import Any

from core.hooks import Adapter, Heard, HookRefused, Kind, arguments_of, reason_of, text_of, verdict_of
from core.wire import InvalidJson, as_unicode, parse_json

#: The members by which events without a call are known: only the question has a name.
_MEMBERS: Mapping[str, Kind] = {"prompt": "prompt", "stopReason": "turn", "reason": "end"}


def _kind(event: Mapping[str, Any]) -> Kind:
    if event.get("hookName") == "permissionRequest":
        return "permission"
    if "toolName" in event:
        return "call" if "toolResult" in event or "error" in event else "gate"
    return next((kind for member, kind in _MEMBERS.items() if member in event), "nothing")


def read(event: Mapping[str, Any]) -> Heard:
    """What an event means. Raises HookRefused."""
    kind = _kind(event)
    if kind == "nothing":
        return Heard(kind)
    heard = Heard(kind, text_of(event, "sessionId"), text_of(event, "cwd"))
    if kind == "prompt":
        return heard._replace(text=text_of(event, "prompt"))
    if kind in ("turn", "end"):
        return heard
    if isinstance(arguments := event.get("toolArgs"), str):  # JSON in a text
        try:
            event = {**event, "toolArgs": as_unicode(parse_json(arguments.encode(), strict=True))}
        except InvalidJson as fault:
            raise HookRefused(f"The event of the hook has no JSON in toolArgs: {fault}") from None
    arguments = arguments_of(event, "toolInput", "toolArgs")
    if (
        "command" in arguments
    ):  # the model's words stand in one of the events of a call alone: the other would be unknown
        arguments = {name: value for name, value in arguments.items() if name != "description"}
    result = event.get("toolResult", event.get("error"))
    failed = "error" in event or (isinstance(result, Mapping) and result.get("resultType") in ("failure", "denied"))
    return heard._replace(tool_name=text_of(event, "toolName"), arguments=arguments, result=result, is_error=failed)


def answer(event: Mapping[str, Any], request: Mapping[str, Any]) -> dict[str, Any]:
    """What a request's state says to the agent."""
    is_gate = _kind(event) == "gate"
    verdict = verdict_of(request, is_gate=is_gate)
    if not verdict:
        return {}
    said = reason_of(request)
    if is_gate:
        return {"permissionDecision": verdict} | ({"permissionDecisionReason": said} if verdict == "deny" else {})
    return {"behavior": verdict} | ({"message": said} if verdict == "deny" else {})


COPILOT = Adapter("copilot-cli", "first", 30, False, read, answer)
