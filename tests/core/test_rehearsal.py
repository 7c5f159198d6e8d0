"""Ready answers about one action, with their sentences; and a draft that is tried on an action."""

import pytest

from core.approvals import Action, Rule, RuledConversation, matches, matching
from core.rehearsal import basis_of, like_answer, needed_words, ready_answers, would_answer
from core.shell import read_line
from core.shell.rules import allowed, command_pattern
from core.wire import ConversationId
from tests.core.test_shell_lines import CORPUS

HERE = RuledConversation(ConversationId("5f1c0000-0000-4000-8000-000000000000"), {})
EDIT = {"command": "str_replace", "old_str": "a", "new_str": "b"}


def like(tool_name="terminal", **arguments):
    return like_answer(Action(tool_name, arguments, "UNKNOWN"))


def test_a_command_is_like_others_with_the_same_words_before_their_options():
    answer = like(command="git status -s", is_input=False, timeout=30)
    assert answer.sentence == "Allows `git status` with any words after it, in every conversation."
    assert answer.rule.arguments == {"command": {"command": "git status *"}, "timeout": {"any": True}}


def test_a_command_is_like_others_in_its_folder():
    answer = like(command="git status", cwd="/work/a")
    assert answer.rule.arguments["cwd"] == {"equals": "/work/a"}
    assert answer.sentence == "Allows `git status` with any words after it run in `/work/a`, in every conversation."


def test_an_edit_is_like_others_of_the_kind_in_the_folder_of_its_file():
    answer = like("file_editor", path="src/app/a.py", **EDIT)
    assert answer.rule.arguments == {
        "path": {"path": "src/app/**"},
        "command": {"equals": "str_replace"},
        "old_str": {"any": True},
        "new_str": {"any": True},
    }
    assert answer.sentence == (
        "Allows `str_replace` by `file_editor` on any file in `src/app` and its folders, in every conversation."
    )


@pytest.mark.parametrize("path", ["src/a.py", "./src/a.py", "/workspace/a.py", "/home/ada/project/a.py", "/tmp/x/a"])
def test_a_file_in_a_folder_has_an_answer_like_it(path):
    assert like("file_editor", path=path, **EDIT) is not None


@pytest.mark.parametrize(
    "path",
    [
        *("a.py", "/a.py", "../a.py", "src/../a.py", "/etc/passwd", "/usr/lib/x/y", "/home/ada/a", "/root/a", "~/a/b"),
        *(".git/hooks/x", "src/.git/x", ".github/workflows/x", "/home/ada/.ssh/x", "src/*/a", "src//a", "", 1),
    ],
)
def test_a_file_elsewhere_has_none(path):
    assert like("file_editor", path=path, **EDIT) is None


@pytest.mark.parametrize(
    "arguments",
    [
        {"command": "git status", "is_input": True},
        {"command": "git status", "cmd": "rm x"},
        {"command": "git status", "env": {"PAGER": "x"}},
        {"command": ["git", "status"]},
        {"path": "src/a.py", "url": "https://example.com"},
        {"url": "https://example.com"},
        {},
    ],
)
def test_an_action_with_other_arguments_has_none(arguments):
    assert like(**arguments) is None


@pytest.mark.parametrize(
    "action",
    [
        Action("terminal", {"command": "git status", "is_input": False}, "HIGH"),
        Action("browser", {"url": "https://example.com", "new": True}, "UNKNOWN"),
        Action("file_editor", {"path": "src/a.py", **EDIT}, "LOW"),
        Action("finish", {}, "LOW"),
        Action("odd", ["no", "names"], "LOW"),
    ],
)
def test_each_ready_answer_approves_the_action_itself_and_none_of_another_tool(action):
    answers = ready_answers(action, HERE)
    assert "tool" in {ready.answer.kind for ready in answers}
    for scoped in (scoped for ready in answers for scoped in ready.scoped):
        assert matches(scoped.rule, action, HERE) is True
        assert matches(scoped.rule, Action("another", action.arguments, action.risk), HERE) is False


def test_the_exact_answer_names_the_command_and_defaults_are_no_condition():
    [(exactly, *_), *_] = ready_answers(Action("terminal", {"command": "rm `x`\n", "is_input": False}, "HIGH"), HERE)
    assert exactly.rule.arguments == {"command": {"equals": "rm `x`\n"}}
    assert exactly.sentence == 'Allows "rm `x`", exactly as it is written, in every conversation.'
    [(exactly, *_), *_] = ready_answers(Action("terminal", {"command": "y", "is_input": True}, "HIGH"), HERE)
    assert exactly.sentence == "Allows `terminal` with exactly these arguments, in every conversation."


def test_an_action_of_no_tool_has_no_ready_answer():
    assert ready_answers(Action(None, {"command": "ls"}, "LOW"), HERE) == []


def test_a_draft_answers_nothing_where_a_rule_that_rejects_is_unsure():
    draft = Rule("approve", "terminal", {"command": {"pattern": "git *"}})
    against = Rule("reject", "terminal", {"command": {"command": "git push *"}}, id="against")
    unsure = Action("terminal", {"command": "git -c x=y z"}, "LOW")
    fits = Rule("approve", "terminal", {"command": {"equals": "git -c x=y z"}})
    assert would_answer(fits, [], unsure, HERE)
    assert not would_answer(fits, [against], unsure, HERE)
    assert would_answer(draft, [against], Action("terminal", {"command": "git log"}, "LOW"), HERE)


def test_the_words_that_a_rule_needs_stand_in_every_line_that_it_allows():
    for pattern in CORPUS["rules"]["for"].values():
        needed = needed_words(Rule("approve", "terminal", {"command": {"command": pattern}}))
        for family in CORPUS["lines"].values():
            for _, text in family:
                if allowed(command_pattern(pattern), read_line(text)):
                    assert needed.may_match(text), (pattern, text)


@pytest.mark.parametrize(
    ("tests", "words", "may"),
    [
        ({"command": {"command": "git status *"}}, "g''it status", True),
        ({"command": {"command": "git status *"}}, "gi\\\nt status", True),
        ({"command": {"command": "git status *"}}, "$'\\x67it' status", True),
        ({"command": {"command": "git status *"}}, "ls && make", False),
        ({"command": {"command": "git status *"}}, "git log --stat", False),
        ({"command": {"command": "git log --format=*x *"}}, "git log '--for''mat=x'", True),
        ({"path": {"path": "./src//*/a.py"}}, "view src/x/a.py", True),
        ({"path": {"path": "src/**"}}, "view src", True),
        ({"path": {"path": "src/**"}}, "view docs/a.md", False),
        ({"command": {"equals": "str_replace"}}, "create src/a.py", False),
        ({"cmd": {"command": "git status *"}, "file_path": {"path": "src/**"}}, "{}", True),
        ({"command": {"pattern": "git*"}}, "ls", True),
    ],
)
def test_words_that_lack_what_a_rule_needs_do_not_match(tests, words, may):
    assert needed_words(Rule("approve", "any", tests)).may_match(words) is may


def test_a_rule_that_rejects_needs_no_words():
    assert needed_words(Rule("reject", "terminal", {"command": {"command": "git push"}})).may_match("GIT.EXE push")


@pytest.mark.parametrize(
    ("members", "basis"),
    [
        ({}, "digest"),
        ({"reason": "x", "max_uses": 3, "expires_at": 9}, "digest"),
        ({"tags": {"team": "web"}}, "conversation"),
        ({"conversation_ids": (HERE.id,)}, "conversation"),
        ({"effects": ("reads",)}, "conversation"),
        ({"max_risk": "LOW"}, "event"),
    ],
)
def test_how_a_rule_answers_depends_on_what_it_names(members, basis):
    assert basis_of([Rule("approve", "terminal"), Rule("approve", "terminal", **members)]) == basis


WORK = RuledConversation(ConversationId("5f1c0000-0000-4000-8000-000000000000"), {}, "/work/shop")


def reads(command, here=WORK, **more):
    found = ready_answers(Action("terminal", {"command": command, **more}, "UNKNOWN"), here)
    return next((one.first.rule for one in found if one.answer.kind == "reads"), None)


def test_a_command_that_only_reads_has_an_answer_for_all_that_only_read_as_far_outside_as_it():
    inside, outside = reads("git status -s"), reads("tail -n 5 /var/log/nginx/error.log")
    assert (inside.effects, outside.effects) == (("reads",), ("reads_outside", "reads"))
    for line, is_inside, is_outside in (
        ("cat src/a.py | sort | uniq -c", True, True),
        ("ls /var/log/*", False, True),
        ("cat ~/.ssh/id_rsa", False, False),
        ("echo $GITHUB_TOKEN", False, False),
        ("head -1 .env", False, False),
        ("cat a > b", False, False),
        ("git push", False, False),
        ("eval $x", False, False),
    ):
        action = Action("terminal", {"command": line}, "UNKNOWN")
        assert (matches(inside, action, WORK), matches(outside, action, WORK)) == (is_inside, is_outside), line


@pytest.mark.parametrize("line", ["cat ~/.ssh/id_rsa", "rm a", "npm test", "echo $SECRET_KEY", "touch a", "sleep 1"])
def test_a_command_that_does_more_than_read_has_none(line):
    assert reads(line) is None
    assert reads("ls", url="https://example.org") is None


@pytest.mark.parametrize(
    ("command", "secret"),
    [
        ("cat a", "cat ~/.ssh/id_rsa"),
        ("cat a", "cat $SECRET_FILE"),
        ("echo a", "echo $GITHUB_TOKEN"),
        ("echo a", 'echo "${API_KEY}"'),
        ("grep x a", "grep x $PRIVATE_KEY_PATH"),
        ("jq . a", "jq -n '$ENV.TOKEN'"),
        ("jq . a", "jq -n env"),
        ("git add a", "git add .env"),
        ("npm run build", "npm run build -- $NPM_TOKEN"),
    ],
)
def test_like_a_command_is_none_that_names_secrets(command, secret):
    rule = like(command=command).rule
    assert matches(rule, Action("terminal", {"command": command}, "LOW"), HERE)
    for text in (secret, f"{secret} && {command}", f"{command} && {secret}"):
        action = Action("terminal", {"command": text}, "LOW")
        assert not matches(rule, action, HERE), text
        assert not matching([rule], action, HERE).deciding(), text
