"""What the approval mode `outside` lets pass: a corpus of lines, and what no change of a line may do.

Source: docs/approvals.md#modes.
"""

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.approvals import Action, Rule, RuledConversation, matching
from core.inside import beside_inside, stays_inside
from core.wire import ConversationId
from tests.core.test_effects import _COMMANDS, _PREFIXES, _WRAPPERS, TEXTS, quoted
from tests.core.test_shell_lines import CORPUS as RULED
from tests.core.test_shell_lines import LINES as RULED_LINES
from tests.core.test_shell_lines import right

CORPUS = tomllib.loads((Path(__file__).parent / "inside_lines.toml").read_text())
FOLDER = "/w/app"
HERE = RuledConversation(ConversationId("5f1c0000-0000-4000-8000-000000000000"), {}, FOLDER)


def of_line(text):
    return Action("terminal", {"command": text, "is_input": False}, "UNKNOWN")


def passes(text):
    return stays_inside(of_line(text), FOLDER)


@pytest.mark.parametrize("text", CORPUS["passes"])
def test_a_line_that_stays_inside_passes(text):
    assert passes(text)


@pytest.mark.parametrize("text", CORPUS["waits"])
def test_a_line_that_leaves_or_decides_what_runs_later_waits(text):
    assert not passes(text)


def test_the_corpus_names_each_line_once():
    lines = CORPUS["passes"] + CORPUS["waits"]
    assert len(lines) == len(set(lines)) >= 140


@pytest.mark.parametrize(
    ("path", "does"),
    [
        ("/w/app/src/a.py", True),
        ("src/a.py", True),
        ("/w/app/.github/workflows/release.yml", False),
        ("/w/app/package.json", False),
        ("web/Package.json", False),
        ("Makefile.am", False),
        ("/w/app/docs/makefiles.md", True),
        ("/w/app/build/a.txt", True),
        ("poetry.lock", False),
        ("src/.hidden/a.py", False),
        ("./src/../.husky/pre-push", False),
    ],
)
def test_an_edit_of_a_file_that_other_programs_obey_waits(path, does):
    action = Action("file_editor", {"command": "create", "path": path, "file_text": "x"}, "UNKNOWN")
    assert stays_inside(action, FOLDER) is does
    assert stays_inside(Action("file_editor", {"command": "view", "path": path}, "UNKNOWN"), FOLDER)


def test_a_folder_that_is_hidden_itself_hides_no_file_in_it():
    folder = "/home/ada/.work/shop"
    for path, does in ((f"{folder}/a.py", True), (f"{folder}/.envrc", False), ("/home/ada/.work/a.py", False)):
        action = Action("file_editor", {"command": "create", "path": path}, "UNKNOWN")
        assert stays_inside(action, folder) is does


# beside rules

LOGS = Rule("approve", "terminal", {"command": {"command": "npm view *"}}, id="logs")


def decided(text, *rules):
    action = of_line(text)
    return [one.id for one in beside_inside(matching(rules, action, HERE), action, FOLDER).deciding()]


@pytest.mark.parametrize(
    ("text", "does"),
    [
        ("npm view react | grep 19 | head -5", True),
        ("npm view react --json 2>&1 | tail -5", True),
        ("npm view react; npm view vue", True),
        ("ls && npm view react", True),
        ("npm view react && kubectl logs api", True),
        ("npm view react | tee out.txt", False),
        ("npm view react && curl https://example.org", False),
        ("npm view react | sh", False),
        ("npm view react && rm a", False),
        ("npm view react | grep -f ~/.ssh/id_rsa", False),
        ("npm view react; echo $GITHUB_TOKEN", False),
        ("cd /tmp && npm view react | cat", False),
        ("cd sub && npm view react", False),
        ("cat /etc/hosts; npm view react", False),
        ("export A=1; npm view react", False),
        ("npm view react > out.txt", False),
    ],
)
def test_beside_a_command_that_a_rule_approves_others_only_read(text, does):
    assert decided(text, LOGS) == (["logs"] if does else [])


def test_a_rule_that_may_reject_keeps_its_doubt():
    against = Rule("reject", "terminal", {"command": {"command": "grep *"}}, id="against")
    assert decided("npm view react | grep 19", LOGS, against) == ["against"]


# properties


@given(st.sampled_from(CORPUS["waits"]), st.lists(_WRAPPERS, min_size=1, max_size=3))
def test_no_wrapper_lets_a_line_pass_that_waits(text, wrappers):
    wrapped = text
    for wrapper in wrappers:
        wrapped = wrapper.format(wrapped)
    assert not passes(wrapped)


@given(st.sampled_from(_COMMANDS), st.lists(_PREFIXES, max_size=2), st.sampled_from(["{}", "sh -c {}", "eval {}"]))
def test_no_program_or_shell_before_a_line_lets_it_pass_unless_it_passes_itself(text, prefixes, shell):
    line = "".join(prefixes) + (shell.format(quoted(text)) if shell != "{}" else text)
    assert passes(text) or not passes(line)


@given(st.sampled_from(TEXTS), st.sampled_from([" > Makefile", " >> .envrc", " > ../x", " | tee package.json"]))
def test_a_redirection_into_a_file_that_others_obey_waits(text, redirection):
    assert "#" in text or "\n" in text or not passes(text + redirection)


def test_no_line_passes_beside_rules_that_a_rule_should_reject():
    rules = [
        Rule("approve", "terminal", {"command": {"command": text}}, id=text) for text in RULED["rules"]["for"].values()
    ]
    rules += [
        Rule("reject", "terminal", {"command": {"command": text}}, id="-")
        for text in RULED["rules"]["against"].values()
    ]
    for answers, text in RULED_LINES:
        action = of_line(text)
        matched = beside_inside(matching(rules, action, HERE), action, FOLDER)
        is_approved = any(one.decision == "approve" for one in matched.deciding()) and not matched.doubts
        if right(answers).rejecting or right(answers).unsure:
            assert not is_approved, text
