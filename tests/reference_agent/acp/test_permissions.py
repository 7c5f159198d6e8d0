"""What people are shown of a request for permission, and which option a decision chooses. Shapes: nine agents'."""

from pathlib import Path

import pytest

from core.approvals import Action, Rule, RuledConversation, action_digest, matching, rule_of
from core.incomplete import is_complete
from core.wire import ConversationId
from reference_agent.acp import permissions, updates
from reference_agent.acp.permissions import CANCELLED, can_allow, outcome, shown

HERE = RuledConversation(ConversationId("5f1c8a52-0000-4000-8000-000000000001"), {})


def options(*pairs):
    return [{"optionId": name, "name": name, "kind": kind} for name, kind in pairs]


#: the options of published agents, in their order, and those that an approval and a rejection choose
AGENTS = {
    "claude": (
        options(("allow-once", "allow_once"), ("allow-with-updates", "allow_always"), ("reject", "reject_once")),
        ("allow-once", "reject"),
    ),
    "gemini": (
        options(("proceed_always", "allow_always"), ("proceed_once", "allow_once"), ("cancel", "reject_once")),
        ("proceed_once", "cancel"),
    ),
    "goose": (
        options(
            ("allow_always", "allow_always"),
            ("allow_once", "allow_once"),
            ("reject_once", "reject_once"),
            ("reject_always", "reject_always"),
        ),
        ("allow_once", "reject_once"),
    ),
    "two of a kind": (
        options(("first", "allow_once"), ("second", "allow_once"), ("no", "reject_once")),
        ("first", "no"),
    ),
}


@pytest.mark.parametrize(("offered", "chosen"), AGENTS.values(), ids=AGENTS)
def test_a_decision_chooses_the_first_option_of_its_kind(offered, chosen):
    approved, rejected = outcome(offered, approve=True), outcome(offered, approve=False)

    assert (approved["optionId"], rejected["optionId"]) == chosen


@pytest.mark.parametrize(
    "offered",
    [
        options(("always", "allow_always"), ("never", "reject_always")),
        [],
        None,
        "options",
        [None, 3, {"kind": "allow_once"}, {"optionId": "x"}, {"kind": ["allow_once"], "optionId": "x"}],
    ],
)
def test_no_lasting_and_no_malformed_option_is_chosen(offered):
    assert outcome(offered, approve=True) == outcome(offered, approve=False) == CANCELLED
    assert not can_allow(offered)


#: of the conversation
FOLDER = Path("/work")


def seen_of(call):
    return shown(call, FOLDER)


def test_a_command_is_a_terminal_action():
    call = {"toolCallId": "1", "kind": "execute", "title": "ls", "rawInput": {"command": "ls", "description": "Lists"}}

    seen = seen_of(call)

    assert seen.tool_name == "terminal"
    assert seen.action == {"command": "ls", "is_input": False, "reset": False, "kind": "TerminalAction"}
    assert (seen.summary, seen.complete) == ("Lists", True)


@pytest.mark.parametrize("name", ["cwd", "workdir"])
def test_a_command_in_the_folder_of_the_conversation_is_a_terminal_action(name):
    seen = seen_of({"kind": "execute", "title": "ls", "rawInput": {"command": "ls", name: "/work"}})

    assert seen.action == {"command": "ls", "is_input": False, "reset": False, "kind": "TerminalAction"}


def test_a_command_without_a_kind_is_a_terminal_action():
    call = {"kind": "other", "title": "shell · ls", "rawInput": {"command": "ls"}}

    assert seen_of({**call, "_meta": {"goose": {"toolCall": {"toolName": "shell"}}}}).tool_name == "terminal"
    assert seen_of(call).action["kind"] == "MCPToolAction"


@pytest.mark.parametrize("more", [{"cwd": "/etc"}, {"run_in_background": True}, {"sandbox_permissions": "escalated"}])
def test_a_command_with_other_arguments_shows_all_of_them(more):
    given = {"command": "ls", **more}

    seen = seen_of({"kind": "execute", "title": "ls", "rawInput": given, "_meta": {"claudeCode": {"toolName": "Bash"}}})

    assert (seen.tool_name, seen.action) == ("Bash", {"data": given, "kind": "MCPToolAction"})


def test_a_request_is_merged_with_earlier_reports_about_its_call():
    turn = updates.PromptTurn()
    turn.read({"sessionUpdate": "tool_call", "toolCallId": "1", "kind": "execute", "rawInput": {"command": "make"}})

    call = turn.merge("1", {"toolCallId": "1", "title": None})

    assert seen_of(call).action["command"] == "make"


def test_a_request_without_arguments_is_not_decided_by_rules_and_proposes_none():
    call = {"toolCallId": "1", "title": "Bash", "content": [{"type": "content", "content": {"text": "rm -rf …"}}]}
    seen = seen_of(call)
    event = {"tool_name": seen.tool_name, "action": seen.action}
    action = Action.of(event)

    assert not seen.complete
    assert not is_complete(action.arguments)
    rules = [Rule("approve", seen.tool_name, id="yes"), Rule("reject", seen.tool_name, id="no")]
    assert matching(rules, action, HERE).deciding() == ()
    with pytest.raises(ValueError, match="does not show what this action runs"):
        rule_of(True, event, HERE.id, "approve")


def test_the_digest_of_a_permission_request_covers_the_shown_text():
    shown_words = [seen_of({"title": "Bash", "content": [{"content": {"text": text}}]}) for text in ("ls", "rm", "ls")]

    digests = [action_digest(one.tool_name, Action.of({"action": one.action}).arguments) for one in shown_words]

    assert digests[0] == digests[2] != digests[1]


def test_an_argument_with_the_name_of_the_mark_does_not_hide_what_runs():
    seen = seen_of({"kind": "other", "rawInput": {"_incomplete": "x", "path": "/etc"}})

    assert seen.action["data"]["path"] == "/etc"
    assert not is_complete(Action.of({"action": seen.action}).arguments)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        ({"name": "Bash"}, "Bash"),
        ({"_meta": {"toolName": "run_shell_command"}}, "run_shell_command"),
        ({"_meta": {"tool_name": "shell"}}, "shell"),
        ({"_meta": {"claudeCode": {"toolName": "Edit"}}, "kind": "edit"}, "Edit"),
        ({"kind": "fetch"}, "fetch"),
        ({"_meta": {"goose": {"toolCall": {"toolName": "shell"}}}, "kind": "other"}, "shell"),
        ({"name": 3, "_meta": [], "kind": {}}, "other"),
    ],
)
def test_a_tool_is_named_as_its_agent_names_it(call, name):
    assert permissions.tool_name(call) == name
