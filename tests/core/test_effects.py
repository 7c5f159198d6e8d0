"""What the server sees of an action: a corpus of shell lines, the tools, and what no change of a line may do.

Source: docs/approvals.md#what-the-server-sees.
"""

import json
import re
import tomllib
from pathlib import Path

import pytest
from hypothesis import example as also
from hypothesis import given
from hypothesis import strategies as st

from core.effects import RISK_OF, RISKS, WORDS_OF, greater, seen

CORPUS = tomllib.loads((Path(__file__).parent / "effect_lines.toml").read_text())
LINES = [(letters, text) for family in CORPUS["lines"].values() for letters, text in family]
OTHERS = tomllib.loads((Path(__file__).parent / "shell_lines.toml").read_text())
TEXTS = [text for _, text in LINES] + [text for family in OTHERS["lines"].values() for _, text in family]
TEXTS.remove("^status^push")  # it repeats an earlier command only where a line begins with it: any wrapper ends that
FOLDER = "/w/app"


def of_line(text, folder=FOLDER):
    return seen("terminal", {"command": text, "is_input": False, "reset": False}, folder)


def test_the_corpus_names_each_line_once_and_every_effect():
    assert len(LINES) >= 150
    assert len({text for _, text in LINES}) == len(LINES)
    assert set(CORPUS["letters"].values()) == set(RISK_OF) == set(WORDS_OF)
    assert {letter for letters, _ in LINES for letter in letters} == set(CORPUS["letters"])


def test_the_console_has_the_words_of_every_effect_in_their_order():
    shown = (Path(__file__).parent.parent.parent / "console/lib/effects.js").read_text()
    assert re.findall(r'^  (\w+): "(.+)",$', shown, re.MULTILINE) == list(WORDS_OF.items())


@pytest.mark.parametrize(("letters", "text"), LINES, ids=[text for _, text in LINES])
def test_a_line_has_the_effects_that_a_careful_person_would_name(letters, text):
    assert set(of_line(text).names) == {CORPUS["letters"][letter] for letter in letters}


def test_the_risk_of_an_action_is_the_greatest_of_its_effects():
    for _, text in LINES:
        found = of_line(text)
        assert found.risk == max((RISK_OF[name] for name in found.names), key=RISKS.index, default="LOW")
        assert all(one.because and len(one.because) <= 80 for one in found.effects)


@pytest.mark.parametrize(
    ("risk", "ours", "shown"),
    [("LOW", "HIGH", "HIGH"), ("HIGH", "LOW", "HIGH"), ("UNKNOWN", "LOW", "LOW"), (None, "MEDIUM", "MEDIUM")],
)
def test_the_shown_risk_is_never_less_than_the_agents_own(risk, ours, shown):
    assert greater(risk, ours) == shown


# tools


@pytest.mark.parametrize(
    ("tool", "arguments", "effects"),
    [
        ("file_editor", {"command": "view", "path": "/w/app/a.py"}, {"reads"}),
        ("file_editor", {"command": "view", "path": "/etc/hosts"}, {"reads_outside"}),
        ("file_editor", {"command": "create", "path": "/w/app/a.py", "file_text": "x"}, {"writes_inside"}),
        ("file_editor", {"command": "str_replace", "path": "src/a.py"}, {"writes_inside"}),
        ("file_editor", {"command": "insert", "path": "../a.py"}, {"writes_outside"}),
        ("file_editor", {"command": "create", "path": "/w/app/../a.py"}, {"writes_outside"}),
        ("file_editor", {"command": "create", "path": "/tmp/a.py"}, {"writes_temporary"}),
        ("file_editor", {"command": "view", "path": "/w/app/.env"}, {"reads", "credentials"}),
        ("file_editor", {"command": "create"}, {"writes_outside"}),
        ("file_editor", {"path": "a.py"}, {"writes_inside"}),
        ("Read", {"file_path": "/w/app/a.py"}, {"reads"}),
        ("Write", {"file_path": "/opt/a.py", "content": ""}, {"writes_outside"}),
        ("glob", {"pattern": "**/*.py"}, {"reads"}),
        ("browser_navigate", {"url": "https://example.org"}, {"network"}),
        ("finish", {"message": "done"}, set()),
        ("think", {"thought": "rm -rf /"}, set()),
        ("frobnicate", {"command": "ls"}, {"unknown"}),
        (None, None, {"unknown"}),
        ("terminal", {"command": "ls", "cwd": "/etc"}, {"reads_outside"}),
        ("terminal", {"command": "touch a", "cwd": "src"}, {"writes_inside"}),
        ("terminal", {"command": "touch a", "cwd": "/opt"}, {"writes_outside"}),
        ("terminal", {"command": "y", "is_input": True}, {"unreadable"}),
        ("terminal", {"command": "C-c", "is_input": True}, set()),
        ("terminal", {"command": ["rm", "-rf"]}, {"unreadable"}),
        ("terminal", {"command": "ls", "cmd": "rm a"}, {"unreadable"}),
        ("terminal", "ls", {"unreadable"}),
        ("terminal", {"reset": True}, set()),
        ("execute", {"commands": ["rm -rf /"]}, {"unreadable"}),
        ("execute", {"data": {"command": "rm -rf src", "cwd": FOLDER}}, {"deletes"}),
        ("Write", {"data": {"file_path": "/w/app/a.py", "content": ""}}, {"writes_inside"}),
        ("execute", {"data": {"title": "touch a", "kind": "execute", "_incomplete": "Words."}}, {"unreadable"}),
        ("read", {"data": {"title": "a.py", "kind": "read", "_incomplete": "Words."}}, {"unreadable"}),
    ],
)
def test_a_tool_has_the_effects_of_what_it_is_asked_to_do(tool, arguments, effects):
    assert seen(tool, arguments, FOLDER).names == effects


def test_without_a_known_folder_an_absolute_path_lies_outside():
    assert of_line("touch /w/app/x", None).names == {"writes_outside"}
    assert of_line("touch x", None).names == {"writes_inside"}
    assert of_line("touch x", "relative").names == {"writes_inside"}
    assert of_line("touch /x", "/").names == {"writes_outside"}


# properties

_WRAPPERS = st.sampled_from(
    [
        *("({})", "{{ {}; }}", "{} && ls", "ls; {}", "git status | {}", "true || {}", "! {}", "{} &"),
        *("if ls; then {}; fi", "for i in 1; do {}; done", "ls $({})", "cat <({})"),
        *("{} > /dev/null", "{} 2>&1", "{} >> x", "{} < x"),
    ]
)
_PREFIXES = st.sampled_from(
    [
        *("timeout 5 ", "nice ", "sudo ", "time ", "command ", "nohup ", "setsid ", "A=1 ", "env -i B=2 ", "exec "),
        *("stdbuf -o0 ", "xargs ", "env ", "/usr/bin/env ", "busybox "),
    ]
)
_COMMANDS = [
    text for text in TEXTS if text and "\n" not in text and "#" not in text and "<<" not in text and text[0] != "|"
]


def risk_of(text):
    return RISKS.index(of_line(text).risk)


def quoted(text):
    """A text as one word of a shell."""
    return "'" + text.replace("'", "'\\''") + "'"


@given(st.sampled_from(TEXTS), st.lists(_WRAPPERS, min_size=1, max_size=4))
def test_no_wrapper_and_no_redirection_lowers_the_risk(text, wrappers):
    wrapped = text
    for wrapper in wrappers:
        wrapped = wrapper.format(wrapped)
    assert risk_of(wrapped) >= risk_of(text)


@given(st.sampled_from(_COMMANDS), st.lists(_PREFIXES, min_size=1, max_size=3))
def test_no_program_before_a_line_lowers_the_risk(text, prefixes):
    assert risk_of("".join(prefixes) + text) >= risk_of(text)


@given(st.sampled_from(TEXTS), st.lists(st.sampled_from(["sh -c {}", "bash -lc {}", "eval {}"]), max_size=3))
def test_no_shell_around_a_line_lowers_the_risk(text, shells):
    wrapped = text
    for shell in shells:
        wrapped = shell.format(quoted(wrapped))
    assert risk_of(wrapped) >= risk_of(text)


@given(st.sampled_from(_COMMANDS), st.sampled_from([" > /etc/x", " >> ../x", ' 2> "$x"', " > ~/x"]))
def test_a_redirection_elsewhere_is_a_write_outside_the_folder(text, redirection):
    assert not {"writes_outside", "unreadable"}.isdisjoint(of_line(text + redirection).names)


@given(
    st.one_of(
        st.text(max_size=60),
        st.text(st.sampled_from("git rm ~/.env$x=|;&()<>`'\"\\\n{}*-"), max_size=60),
        st.lists(st.sampled_from(TEXTS), max_size=3).map(" ; ".join),
    ),
    st.one_of(st.none(), st.just(FOLDER), st.text(max_size=8)),
)
@also("\ud800", "\ud800")
@also("/" * 5000, "/" * 5000)
@also("a" * 100_000, "/")
def test_no_text_is_an_error_and_each_is_seen_alike_twice(text, folder):
    for tool in ("terminal", "file_editor", "write", text):
        arguments = {"command": text, "path": text}
        first = seen(tool, arguments, folder)
        assert first == seen(tool, json.loads(json.dumps(arguments)), folder)
        assert set(first.names) <= set(RISK_OF)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(
    st.sampled_from(["terminal", "file_editor", "read", "bash", "finish", "x", None, 1]),
    st.one_of(
        _JSON, st.dictionaries(st.sampled_from(["command", "cmd", "path", "cwd", "is_input", "file_path"]), _JSON)
    ),
)
def test_arguments_of_any_form_are_no_error(tool, arguments):
    assert seen(tool, arguments, FOLDER).risk in RISKS
