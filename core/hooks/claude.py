"""Claude Code 2.1, and agents with its forms: Qwen Code 0.24. Codex 0.171 takes the same answers, and is strict."""

from collections.abc import Mapping
from typing import Any

from core.hooks import Adapter, Heard, Kind, arguments_of, reason_of, text_of, verdict_of

#: What each event means; any other means nothing to us.
_EVENTS: Mapping[str, Kind] = {
    "PermissionRequest": "permission",
    "PreToolUse": "gate",
    "PostToolUse": "call",
    "PostToolUseFailure": "call",
    "UserPromptSubmit": "prompt",
    "Stop": "turn",
    "SessionEnd": "end",
}

#: Tools that ask the person a question, which an allow does not answer.
_QUESTIONS = ("AskUserQuestion",)


def read(event: Mapping[str, Any]) -> Heard:
    """What an event means. Raises HookRefused."""
    name = text_of(event, "hook_event_name")
    kind = _EVENTS.get(name, "nothing")
    if kind == "nothing" or (kind in ("permission", "gate") and event.get("tool_name") in _QUESTIONS):
        return Heard("nothing")
    session = (text_of(event, "session_id"), text_of(event, "cwd"), text_of(event, "permission_mode", required=False))
    heard = Heard(kind, *session, subagent=text_of(event, "agent_id", required=False))
    if kind == "prompt":
        return heard._replace(text=text_of(event, "prompt"))
    if kind in ("turn", "end"):
        return heard
    result = event.get("tool_response", event.get("error"))
    call = heard._replace(tool_name=text_of(event, "tool_name"), arguments=arguments_of(event, "tool_input"))
    return call._replace(result=result, is_error=name == "PostToolUseFailure")


def answer(event: Mapping[str, Any], request: Mapping[str, Any]) -> dict[str, Any]:
    """What a request's state says to the agent."""
    name = event["hook_event_name"]
    verdict = verdict_of(request, is_gate=name == "PreToolUse")
    if not verdict:
        return {}
    edited = {"updatedInput": request["arguments"]} if verdict == "allow" and "arguments" in request else {}
    if name == "PreToolUse":
        said = {"permissionDecisionReason": reason_of(request)} if verdict == "deny" else {}
        return {"hookSpecificOutput": {"hookEventName": name, "permissionDecision": verdict, **said, **edited}}
    said = {"message": reason_of(request)} if verdict == "deny" else {}
    return {"hookSpecificOutput": {"hookEventName": name, "decision": {"behavior": verdict, **said, **edited}}}


CLAUDE = Adapter("claude-code", "races", 590, True, read, answer)
QWEN = Adapter("qwen-code", "first", 30, True, read, answer)
