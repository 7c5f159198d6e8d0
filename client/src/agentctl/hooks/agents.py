"""What each agent sends to a hook and reads from it. Measured with the versions of docs/hooks.md."""

import json
import os
import pwd
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

Json = dict[str, Any]

#: Tools that change nothing and reach nothing new: a gate lets them pass.
_UNGATED = {
    "read",
    "glob",
    "grep",
    "ls",
    "list",
    "todowrite",
    "todoread",
    "task",
    "agent",
    "skill",
    "toolsearch",
    "view",
}

#: Tools whose question a plain yes does not answer: the person answers them in the terminal.
_OF_THE_TERMINAL = {"AskUserQuestion", "ask_user_question", "question"}

#: Maximum length of a reported text, in characters.
_TEXT = 20_000


class InboxVerdict(NamedTuple):
    """An answer of the inbox."""

    allows: bool
    reason: str = ""
    arguments: Json | None = None  #: other arguments that were approved instead


class Question(NamedTuple):
    """A call that waits for an answer."""

    tool: str
    arguments: Json
    kind: str  #: `permission`, or `gate` where the agent itself asks nothing
    is_whole: bool = True  #: whether the arguments are all that the call does


class HookReport(NamedTuple):
    """What an agent tells besides: kind `prompt`, `call`, `turn` or `end`."""

    kind: str
    text: str = ""
    tool: str = ""
    arguments: Json | None = None
    result: str = ""
    is_error: bool = False


class HookedAgent(NamedTuple):
    """How one agent speaks to its hook."""

    name: str  #: as the inbox shows it
    races: bool  #: whether the terminal shows its question while the hook waits
    edits: bool  #: whether it takes other arguments
    question: Callable[[Json], Question | None]
    report: Callable[[Json], HookReport | None]
    form: Callable[[Question, InboxVerdict], Json]
    notice: str = ""  #: the member of an answer whose text the agent shows to its person


def event_of(event: Json) -> str:
    """Return the name of an event."""
    return str(event.get("hook_event_name") or event.get("hookName") or "")


def session_of(event: Json) -> Json:
    """Return the session that an event belongs to, as the server wants it."""
    mode = event.get("permission_mode")
    found = {
        "id": _line(event.get("session_id") or event.get("sessionId") or "none", 256),
        "cwd": _line(event.get("cwd") or Path.cwd(), 1024),
        "host": _name(os.uname().nodename)[:253],
        "user": _name(_user())[:100],
    }
    found |= {"mode": _line(mode, 64)} if mode else {}
    return found | ({"subagent": _line(event["agent_id"], 256)} if event.get("agent_id") else {})


def _name(text: str) -> str:
    """Return a name in the characters that the server takes for one."""
    found = "".join(one if one.isascii() and (one.isalnum() or one in "_.@+-\\") else "-" for one in text)
    return found if found[:1].isalnum() or found.startswith("_") else f"_{found}"


def _line(value: Any, most: int) -> str:
    """Return a text in one line."""
    return "".join(one if one.isprintable() else " " for one in str(value))[:most]


def _user() -> str:
    if name := os.environ.get("USER") or os.environ.get("LOGNAME"):
        return name
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _nested_question(event: Json) -> Question | None:
    """Read the question of Claude Code and of the agents that took its form."""
    kind = {"PermissionRequest": "permission", "PreToolUse": "gate"}.get(event_of(event))
    tool, arguments = str(event.get("tool_name") or ""), event.get("tool_input")
    if not kind or not tool or tool in _OF_THE_TERMINAL or (kind == "gate" and tool.lower() in _UNGATED):
        return None
    return Question(tool, arguments if isinstance(arguments, dict) else {"input": arguments}, kind)


def _undescribed(arguments: Any) -> Json:
    """Return the arguments of a call without the model's words about a command.

    An agent has them in only one of its two events, and what ran would not be known as what was asked.
    """
    if not isinstance(arguments, dict):
        return {"input": arguments}
    return {name: value for name, value in arguments.items() if name != "description" or "command" not in arguments}


def _codex_question(event: Json) -> Question | None:
    question = _nested_question(event)
    return question and question._replace(arguments=_undescribed(question.arguments))


def _nested_report(event: Json) -> HookReport | None:
    name = event_of(event)
    if name in ("PostToolUse", "PostToolUseFailure"):
        arguments, failed = event.get("tool_input"), name == "PostToolUseFailure"
        result = event.get("error") if failed else event.get("tool_response")
        whole = arguments if isinstance(arguments, dict) else {"input": arguments}
        return HookReport("call", "", str(event.get("tool_name") or ""), whole, text_of(result), failed)
    if name == "UserPromptSubmit":
        return HookReport("prompt", text_of(event.get("prompt")))
    kind = {"Stop": "turn", "Interrupt": "turn", "SessionEnd": "end"}.get(name)
    return HookReport(kind) if kind else None


def text_of(value: Any) -> str:
    """Return what a tool or a person has said as a text."""
    if isinstance(value, dict) and isinstance(value.get("stdout"), str):
        value = value["stdout"] + (value.get("stderr") or "")
    if isinstance(value, dict) and isinstance(value.get("textResultForLlm"), str):
        value = value["textResultForLlm"]
    if not isinstance(value, str):
        value = json.dumps(value, ensure_ascii=False)
    return str(value)[:_TEXT]


def _nested_form(question: Question, verdict: InboxVerdict) -> Json:
    if question.kind == "gate":
        found: Json = {"hookEventName": "PreToolUse", "permissionDecision": "allow" if verdict.allows else "deny"}
        found |= {} if verdict.allows else {"permissionDecisionReason": verdict.reason}
        found |= {"updatedInput": verdict.arguments} if verdict.arguments is not None else {}
        return {"hookSpecificOutput": found}
    decision: Json = {"behavior": "allow"} if verdict.allows else {"behavior": "deny", "message": verdict.reason}
    decision |= {"updatedInput": verdict.arguments} if verdict.arguments is not None else {}
    return {"hookSpecificOutput": {"hookEventName": "PermissionRequest", "decision": decision}}


def _copilot_question(event: Json) -> Question | None:
    tool, arguments = str(event.get("toolName") or ""), event.get("toolInput", event.get("toolArgs"))
    if event_of(event) != "permissionRequest" or not tool:
        return None
    return Question(tool, _undescribed(arguments), "permission")


def _copilot_report(event: Json) -> HookReport | None:
    """Read what Copilot tells: only its question has a name, so each event is known by its members."""
    if "toolResult" in event or "error" in event:
        arguments, result = event.get("toolArgs", event.get("toolInput")), event.get("toolResult", event.get("error"))
        failed = isinstance(result, dict) and result.get("resultType") in ("failure", "denied", "rejected")
        return HookReport(
            "call",
            "",
            str(event.get("toolName") or ""),
            _undescribed(arguments),
            text_of(result),
            failed or "error" in event,
        )
    if "prompt" in event:
        return HookReport("prompt", text_of(event["prompt"]))
    if "stopReason" in event:
        return HookReport("turn")
    return HookReport("end") if "reason" in event else None


def _copilot_form(_: Question, verdict: InboxVerdict) -> Json:
    return {"behavior": "allow"} if verdict.allows else {"behavior": "deny", "message": verdict.reason}


def _opencode_question(event: Json) -> Question | None:
    """Read a question of our plugin: {"hook_event_name": "ask" | "gate", "tool_name", "tool_input", "complete"}."""
    kind = {"ask": "permission", "gate": "gate"}.get(event_of(event))
    tool = str(event.get("tool_name") or "")
    if not kind or tool in _OF_THE_TERMINAL or (kind == "gate" and tool.lower() in _UNGATED):
        return None
    return Question(tool, event.get("tool_input") or {}, kind, bool(event.get("complete", True)))


def _opencode_report(event: Json) -> HookReport | None:
    name = event_of(event)
    if name == "call":
        return HookReport(
            "call", "", str(event.get("tool_name")), event.get("tool_input") or {}, text_of(event.get("result"))
        )
    if name == "prompt":
        return HookReport("prompt", text_of(event.get("prompt")))
    return HookReport(name) if name in ("turn", "end") else None


def _opencode_form(_: Question, verdict: InboxVerdict) -> Json:
    return {"reply": "once"} if verdict.allows else {"reply": "reject", "message": verdict.reason}


AGENTS = {
    "claude": HookedAgent("claude-code", True, True, _nested_question, _nested_report, _nested_form, "systemMessage"),
    "codex": HookedAgent("codex", False, False, _codex_question, _nested_report, _nested_form),
    "opencode": HookedAgent("opencode", True, False, _opencode_question, _opencode_report, _opencode_form, "notice"),
    "copilot": HookedAgent("copilot-cli", False, False, _copilot_question, _copilot_report, _copilot_form),
    "qwen": HookedAgent("qwen-code", False, True, _nested_question, _nested_report, _nested_form),
}
