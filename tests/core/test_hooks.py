"""What each agent's hook sends, and the answer in exactly its form. The events are recorded, see docs/hooks.md."""

import pytest

from core.hooks import HookRefused
from core.hooks.claude import CLAUDE, QWEN
from core.hooks.copilot import COPILOT

CLAUDE_ASKS = {
    "session_id": "7bf5e061",
    "transcript_path": "/t.jsonl",
    "cwd": "/home/ada/x",
    "prompt_id": "a2e7cf5e",
    "permission_mode": "default",
    "hook_event_name": "PermissionRequest",
    "tool_name": "Bash",
    "tool_input": {"command": "touch proof"},
    "permission_suggestions": [],
}
COPILOT_ASKS = {
    "hookName": "permissionRequest",
    "sessionId": "3a71bdd3",
    "timestamp": 1795784915832,
    "cwd": "/home/ada/x",
    "toolName": "bash",
    "toolInput": {"command": "touch proof"},
    "permissionSuggestions": [],
}
#: what Copilot sends beside its question has no name
COPILOT_TELLS = {
    name: value for name, value in COPILOT_ASKS.items() if name not in ("hookName", "toolName", "toolInput")
}
COPILOT_CALLS = {**COPILOT_TELLS, "toolName": "bash", "toolArgs": '{"command": "ls", "description": "Lists"}'}
APPROVED, REJECTED = {"state": "approved", "reason": ""}, {"state": "rejected", "reason": "not today"}
TERMINAL = {"kind": "terminal", "name": "ada@laptop"}
#: what leaves a gate closed: nobody has answered, or the asker says that the terminal has
NO_ANSWERS = [{"state": "withdrawn"}, {"state": "expired"}, {**APPROVED, "by": TERMINAL}]
UNANSWERED = {"permissionDecision": "deny", "permissionDecisionReason": "Nobody has answered in the inbox."}
EDITED = {**APPROVED, "arguments": {"command": "ls"}}


def of_claude(**decision):
    return {"hookSpecificOutput": {"hookEventName": "PermissionRequest", "decision": decision}}


def of_gate(**verdict):
    return {"hookSpecificOutput": {"hookEventName": "PreToolUse", **verdict}}


@pytest.mark.parametrize(
    ("adapter", "event", "request_", "answer"),
    [
        (CLAUDE, CLAUDE_ASKS, APPROVED, of_claude(behavior="allow")),
        (CLAUDE, CLAUDE_ASKS, EDITED, of_claude(behavior="allow", updatedInput={"command": "ls"})),
        (CLAUDE, CLAUDE_ASKS, REJECTED, of_claude(behavior="deny", message="not today")),
        (QWEN, CLAUDE_ASKS, {"state": "rejected"}, of_claude(behavior="deny", message="Refused in the inbox.")),
        (CLAUDE, {**CLAUDE_ASKS, "hook_event_name": "PreToolUse"}, APPROVED, of_gate(permissionDecision="allow")),
        (
            CLAUDE,
            {**CLAUDE_ASKS, "hook_event_name": "PreToolUse"},
            REJECTED,
            of_gate(permissionDecision="deny", permissionDecisionReason="not today"),
        ),
        (COPILOT, COPILOT_ASKS, APPROVED, {"behavior": "allow"}),
        (COPILOT, COPILOT_ASKS, REJECTED, {"behavior": "deny", "message": "not today"}),
        (COPILOT, COPILOT_CALLS, APPROVED, {"permissionDecision": "allow"}),
        *((CLAUDE, {**CLAUDE_ASKS, "hook_event_name": "PreToolUse"}, one, of_gate(**UNANSWERED)) for one in NO_ANSWERS),
        *((COPILOT, COPILOT_CALLS, one, UNANSWERED) for one in NO_ANSWERS),
        *(
            (one, event, {**answer, "by": TERMINAL}, {})
            for one, event in ((CLAUDE, CLAUDE_ASKS), (QWEN, CLAUDE_ASKS), (COPILOT, COPILOT_ASKS))
            for answer in (APPROVED, REJECTED, EDITED)
        ),
        *(
            (one, event, {"state": state}, {})
            for one, event in ((CLAUDE, CLAUDE_ASKS), (COPILOT, COPILOT_ASKS))
            for state in ("pending", "expired", "withdrawn")
        ),
    ],
)
def test_an_answer_has_exactly_its_agents_form(adapter, event, request_, answer):
    assert adapter.answer(event, request_) == answer


@pytest.mark.parametrize(("adapter", "event", "tool"), [(CLAUDE, CLAUDE_ASKS, "Bash"), (COPILOT, COPILOT_ASKS, "bash")])
def test_a_permission_request_is_read(adapter, event, tool):
    heard = adapter.read(event)

    assert (heard.kind, heard.session, heard.cwd) == (
        "permission",
        event.get("session_id") or event["sessionId"],
        "/home/ada/x",
    )
    assert (heard.tool_name, heard.arguments) == (tool, {"command": "touch proof"})


def test_what_an_agent_reports_is_read():
    call = {**CLAUDE_ASKS, "hook_event_name": "PostToolUse", "tool_response": {"stdout": "x"}, "agent_id": "sub"}
    failed = {**CLAUDE_ASKS, "hook_event_name": "PostToolUseFailure", "error": "no"}
    prompt = {**CLAUDE_ASKS, "hook_event_name": "UserPromptSubmit", "prompt": "Mend it"}

    assert CLAUDE.read(call)[:7] == (
        "call",
        "7bf5e061",
        "/home/ada/x",
        "default",
        "sub",
        "Bash",
        {"command": "touch proof"},
    )
    assert (CLAUDE.read(failed).result, CLAUDE.read(failed).is_error) == ("no", True)
    assert CLAUDE.read(prompt).text == "Mend it"
    kinds = [
        CLAUDE.read({**CLAUDE_ASKS, "hook_event_name": name}).kind for name in ("Stop", "SessionEnd", "Notification")
    ]
    assert kinds == ["turn", "end", "nothing"]


@pytest.mark.parametrize(
    ("members", "kind"),
    [
        ({"prompt": "Mend it"}, "prompt"),
        ({"stopReason": "end_turn"}, "turn"),
        ({"reason": "complete"}, "end"),
        ({"error": "no network"}, "nothing"),
    ],
)
def test_copilot_names_its_question_alone(members, kind):
    assert COPILOT.read({**COPILOT_TELLS, **members}).kind == kind
    ran = COPILOT.read({**COPILOT_CALLS, "toolResult": {"resultType": "failure"}})
    assert (ran.kind, ran.arguments, ran.is_error) == ("call", {"command": "ls"}, True)


def test_a_question_to_the_person_is_left_to_the_terminal():
    """A bare allow does not answer it."""
    assert CLAUDE.read({**CLAUDE_ASKS, "tool_name": "AskUserQuestion"}).kind == "nothing"


@pytest.mark.parametrize(
    ("adapter", "event"),
    [
        (CLAUDE, {}),
        (CLAUDE, {**CLAUDE_ASKS, "session_id": 1}),
        (CLAUDE, {**CLAUDE_ASKS, "tool_input": "touch"}),
        (CLAUDE, {name: value for name, value in CLAUDE_ASKS.items() if name != "tool_name"}),
        (COPILOT, {**COPILOT_ASKS, "sessionId": ""}),
        (COPILOT, {**COPILOT_ASKS, "toolInput": None, "toolArgs": "{"}),
        (COPILOT, {**COPILOT_ASKS, "toolInput": None, "toolArgs": "[" * 5000}),
        (COPILOT, {**COPILOT_ASKS, "toolInput": None, "toolArgs": '{"size": 1e400}'}),
    ],
)
def test_an_event_that_lacks_what_it_needs_is_refused_by_name(adapter, event):
    with pytest.raises(HookRefused, match="The event of the hook has no"):
        adapter.read(event)
