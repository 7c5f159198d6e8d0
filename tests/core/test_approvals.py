"""Which actions a rule and its patterns match, the rule that "always" makes, and the canonical JSON of what is shown.

Source: docs/approvals.md.
"""

import json
import string
from typing import Any

import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from core.approvals import (
    MOST_MATCHED,
    MOST_STARS,
    RUN,
    Action,
    Rule,
    RuledConversation,
    canonical,
    digest,
    fits_pattern,
    matches,
    matching,
    pattern_fault,
    rule_of,
)
from tests.refusals import taken

HERE = RuledConversation("5f1c0000-0000-4000-8000-000000000000", {"team": "web", "env": "test"})


def rule(**members) -> Rule:
    return Rule(**{"id": "r", "decision": "approve", "tool_name": "terminal", **members})


def action(risk: str = "LOW", tool_name: str = "terminal", **arguments) -> Action:
    return Action(tool_name, arguments, risk)


def does_match(members, of: Action) -> bool:
    return matches(rule(**members), of, HERE)


EQUAL = [
    (1, 1, True),
    (1, 1.0, True),
    (0, -0.0, True),
    (1, True, False),
    (0, False, False),
    (1, "1", False),
    (None, None, True),
    (None, False, False),
    ("a", "a", True),
    ("a", "A", False),
    ("é", "e\N{COMBINING ACUTE ACCENT}", False),
    ("git*", "git status", False),
    ([1, 2], [2, 1], False),
    ([1.0], [1], True),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1.0}, True),
    ({"a": 1}, {"a": 1, "b": None}, False),
    (2**53, 2**53 + 1, False),
    ("\ud800", "\ud800", True),
    ({"\ud800": 1}, {"\ud800": 1}, True),
    ("\ud800", "\\ud800", False),
]


def test_equals_compares_json_values_exactly():
    def is_equal(wanted, value) -> bool:
        return does_match({"arguments": {"x": {"equals": wanted}}}, action(x=value))

    assert [row for row in EQUAL if is_equal(*row[:2]) is not row[2]] == []


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


def _typed(value):
    """A value in which a boolean differs from a number, as in JSON."""
    if isinstance(value, list):
        return [_typed(one) for one in value]
    if isinstance(value, dict):
        return {name: _typed(one) for name, one in value.items()}
    return (isinstance(value, bool), value)


@given(_JSON, _JSON)
def test_values_that_equals_accepts_are_equal_json(wanted, value):
    members = {"arguments": {"x": {"equals": wanted}}}
    assert does_match(members, action(x=wanted))
    if does_match(members, action(x=value)):
        assert _typed(wanted) == _typed(value)


def test_an_argument_without_a_test_may_say_nothing():
    for value in (None, False, 0, 0.0, "", [], {}):
        assert does_match({"arguments": {"command": {"any": True}}}, action(command="x", other=value)), value


def test_an_argument_without_a_test_that_says_something_is_not_matched():
    for value in (True, 1, 0.5, " ", "0", [None], {"a": None}):
        of = action(command="C-c", is_input=value)
        matched = [
            does_match(members, of)
            for members in ({"arguments": {"command": {"equals": "C-c"}}}, {"arguments": {}}, {})
        ]
        assert matched == [False, False, True], value


def test_an_argument_that_is_absent_equals_nothing_and_fits_no_pattern():
    assert not does_match({"arguments": {"x": {"equals": None}}}, action())
    assert not does_match({"arguments": {"x": {"pattern": "*"}}}, action())
    assert does_match({"arguments": {"x": {"any": True}}}, action())


def test_arguments_that_are_no_object_are_matched_by_rules_without_arguments_alone():
    of = Action("terminal", ["rm"], "LOW")
    assert not does_match({"arguments": {}}, of)
    assert does_match({}, of)


def test_a_test_of_an_unknown_kind_matches_nothing():
    for test in ({}, {"any": False}, {"pattern": 1}, {"regex": ".*"}):
        assert not does_match({"arguments": {"command": test}}, action(command=""))


def test_the_name_of_the_tool_is_exact():
    assert [
        name for name in ("Terminal", "terminal ", "terminal*", "", None) if does_match({}, action(tool_name=name))
    ] == []
    assert not does_match({"tool_name": "*"}, action())


RISKS = [
    (None, "UNKNOWN", True),
    (None, "HIGH", True),
    ("LOW", "LOW", True),
    ("LOW", "MEDIUM", False),
    ("MEDIUM", "LOW", True),
    ("MEDIUM", "MEDIUM", True),
    ("MEDIUM", "HIGH", False),
    ("HIGH", "HIGH", True),
    ("LOW", "UNKNOWN", False),
    ("HIGH", "UNKNOWN", False),
    ("HIGH", "low", False),
]


def test_an_unknown_risk_is_higher_than_any_that_a_rule_names():
    assert [row for row in RISKS if does_match({"max_risk": row[0]}, action(row[1])) is not row[2]] == []


NAMED = [
    ({"conversation_ids": (HERE.id,)}, True),
    ({"conversation_ids": ("6f1c0000-0000-4000-8000-000000000000",)}, False),
    ({"conversation_ids": ()}, False),
    ({"tags": {"team": "web"}}, True),
    ({"tags": {"team": None}}, True),
    ({"tags": {"team": "web", "env": "test"}}, True),
    ({"tags": {"team": "web", "env": "live"}}, False),
    ({"tags": {"team": "Web"}}, False),
    ({"tags": {"owner": None}}, False),
    ({"tags": {"team": "web"}, "conversation_ids": ("6f1c0000-0000-4000-8000-000000000000",)}, False),
]


def test_a_rule_holds_for_the_conversations_that_it_names():
    assert [row for row in NAMED if does_match(row[0], action()) is not row[1]] == []


def test_rules_that_reject_are_tried_before_rules_that_approve_and_older_ones_first():
    rules = [
        rule(id="new", created_at=3),
        rule(id="old", created_at=1),
        rule(id="no", decision="reject", created_at=2),
        rule(id="other", tool_name="browser"),
    ]
    assert [one.id for one in matching(rules, action(), HERE).rules] == ["no", "old", "new"]


# what a rule that rejects matches: more than one that approves would

PUSH = {"command": {"pattern": "*git push*"}}


def answer(members, of: Action) -> bool | None:
    return matches(rule(decision="reject", **members), of, HERE)


def test_an_argument_that_a_rejecting_rule_does_not_name_never_matters():
    for other in ({"timeout": 5}, {"is_input": True}, {"note": {"a": [1]}}):
        assert answer({"arguments": PUSH}, action(command="git push", **other)) is True


def test_arguments_that_a_rejecting_rule_cannot_read_leave_it_unsure():
    for of in (
        action(command=["git", "push"]),
        action(command={"line": "git push"}),
        action(command=None),
        action(script="git push"),
        Action("terminal", ["git push"], "LOW"),
    ):
        assert answer({"arguments": PUSH}, of) is None, of


def test_a_rejecting_rule_that_names_any_value_or_no_argument_matches_whatever_there_is():
    for members in ({}, {"arguments": {}}, {"arguments": {"command": {"any": True}}}):
        for of in (action(), action(command="ls", other=1), Action("terminal", "git push", "HIGH")):
            assert answer(members, of) is True


def test_one_argument_that_surely_differs_makes_another_that_is_unsure_no_matter():
    members = {"arguments": {"command": {"pattern": "*git push*"}, "is_input": {"equals": True}}}
    assert answer(members, action(command="git $verb", is_input=False)) is False
    assert answer(members, action(command="git $verb", is_input=True)) is None


REJECTED_VALUES = [
    ("git push", "git push ", True),
    ("git push", "ls", False),
    (10, 10.0, True),
    (10, 11, False),
    (10, "10", None),
    (True, 1, None),
    (True, False, False),
    (None, None, True),
    (["a"], ["a"], True),
    (["a"], ["a", ""], None),
]


def test_a_value_equal_to_a_rejected_one_is_rejected_and_one_of_another_type_is_unsure():
    def rejected(wanted, value) -> bool | None:
        return answer({"arguments": {"x": {"equals": wanted}}}, action(x=value))

    assert [row for row in REJECTED_VALUES if rejected(*row[:2]) is not row[2]] == []


def test_a_rejecting_rule_with_a_risk_is_unsure_where_the_risk_is_unknown():
    members = {"arguments": PUSH, "max_risk": "MEDIUM"}
    of = {risk: answer(members, action(risk, command="git push")) for risk in ("LOW", "MEDIUM", "HIGH", "UNKNOWN")}
    assert of == {"LOW": True, "MEDIUM": True, "HIGH": False, "UNKNOWN": None}
    assert answer(members, action("UNKNOWN", command="ls")) is False


def test_a_rejecting_rule_of_another_tool_or_conversation_or_tag_does_not_match():
    for members in ({"tool_name": "browser"}, {"conversation_ids": ()}, {"tags": {"team": "ops"}}):
        assert answer({"arguments": PUSH, **members}, action(command="git $verb")) is False


def test_rules_that_reject_and_may_match_are_told_apart_from_those_that_match():
    no, maybe, yes = (
        rule(id="no", decision="reject"),
        rule(id="maybe", decision="reject", arguments=PUSH),
        rule(id="yes"),
    )
    assert matching([yes, maybe], action(command="git $verb"), HERE)[:2] == ([yes], [maybe])
    assert matching([yes, maybe, no], action(command="git $verb"), HERE)[:2] == ([no, yes], [maybe])
    assert matching([yes, maybe], action(command="ls"), HERE)[:2] == ([yes], [])


# "always" beside a decision

EVENT = {
    "tool_name": "terminal",
    "action": {"kind": "TerminalAction", "command": "git push", "is_input": False},
    "security_risk": "MEDIUM",
}


def test_always_matches_the_same_arguments_in_that_conversation_at_no_higher_risk():
    made = rule_of(True, EVENT, HERE.id, "approve", created_by="Ada")

    assert (made.decision, made.tool_name, made.created_by, made.max_risk) == ("approve", "terminal", "Ada", "MEDIUM")
    assert matches(made, Action.of(EVENT), HERE)
    for changed in (
        {"security_risk": "HIGH"},
        {"security_risk": None},
        {"tool_name": "browser"},
        {"action": {**EVENT["action"], "command": "git push -f"}},
        {"action": {**EVENT["action"], "is_input": True}},
    ):
        assert not matches(made, Action.of({**EVENT, **changed}), HERE)
    assert not matches(made, Action.of(EVENT), RuledConversation("6f1c0000-0000-4000-8000-000000000000", HERE.tags))


def test_always_names_no_risk_where_it_is_unknown_or_rejected():
    assert rule_of(True, {**EVENT, "security_risk": "?"}, HERE.id, "approve").max_risk is None
    assert rule_of(True, EVENT, HERE.id, "reject").max_risk is None


def test_members_of_always_replace_the_defaults_and_null_removes_them():
    wanted = {"arguments": {"command": {"pattern": "git *"}}, "conversation_ids": None, "tags": {"team": None}}
    made = rule_of({**wanted, "max_uses": 3}, EVENT, HERE.id, "approve")

    assert (made.arguments, made.conversation_ids, made.tags, made.max_uses, made.max_risk) == (
        wanted["arguments"],
        None,
        wanted["tags"],
        3,
        "MEDIUM",
    )


def test_always_makes_no_rule_of_an_action_that_names_no_tool_or_no_arguments():
    unfit = [{"tool_name": None}, {"tool_name": 1}, {"action": "rm"}, {"action": None}]

    def made(changed: dict):
        return rule_of(True, {**EVENT, **changed}, HERE.id, "approve")

    assert taken(unfit, made, ValueError, "cannot have a rule") == []


#: a pattern, and texts that try to bring in more than its author meant
SMUGGLED = [
    # a second command
    ("git status*", "git status; rm -rf /"),
    ("git status*", "git status;rm -rf /"),
    ("git status*", "git status && rm -rf /"),
    ("git status*", "git status || rm -rf /"),
    ("git status*", "git status | sh"),
    ("git status*", "git status |& sh"),
    ("git status*", "git status & rm -rf /"),
    ("git status*", "git status &"),
    # line ends, and what some readers take for them
    ("git status*", "git status\nrm -rf /"),
    ("git status*", "git status\r\nrm -rf /"),
    ("git status*", "git status\rrm -rf /"),
    ("git status*", "git status\n"),
    ("git status", "git status\n"),
    ("git status*", "git status\vrm -rf /"),
    ("git status*", "git status\frm -rf /"),
    ("git status*", "git status\x85rm -rf /"),
    ("git status*", "git status\N{LINE SEPARATOR}rm -rf /"),
    ("git status*", "git status\N{PARAGRAPH SEPARATOR}rm -rf /"),
    ("git status*", "git status\x1crm -rf /"),
    ("git status*", "git status \\\nrm"),
    ("git status*", "git status\0; rm -rf /"),
    ("git status*", "git status\0"),
    # substitution
    ("git log *", "git log $(rm -rf /)"),
    ("git log *", "git log `rm -rf /`"),
    ("git log *", "git log $HOME"),
    ("git log *", "git log ${IFS}x"),
    ("git log *", "git log$IFS-x"),
    ("git log *", "git log $'\\x3b'"),
    ("git log *", 'git log $"x"'),
    ("git log *", "git log $((1+1))"),
    ("git log *", "git log <(rm x)"),
    ("git log *", "git log >(rm x)"),
    # redirection
    ("echo *", "echo x > /etc/passwd"),
    ("echo *", "echo x >> /etc/passwd"),
    ("echo *", "echo x 2>/etc/passwd"),
    ("echo *", "echo x >| /etc/passwd"),
    ("cat *", "cat < /etc/shadow"),
    ("cat *", "cat << END"),
    ("cat *", "cat <<< x"),
    # expansion
    ("cat *", "cat ~/.ssh/id_rsa"),
    ("cat *", "cat ~root/x"),
    ("cat *", "cat /etc/pass*"),
    ("cat *", "cat /etc/passw?"),
    ("cat *", "cat /etc/[p]asswd"),
    ("cat *", "cat {/etc/passwd,x}"),
    ("cat *", "cat {1..9}"),
    ("cat *", "cat !$"),
    ("cat *", "cat !!"),
    ("cat *", "cat ^x^y"),
    ("cat *", "cat %1"),
    ("cat *", "cat %COMSPEC%"),
    ("cat *", "cat x # y"),
    ("cat *", "cat #"),
    # quotes
    ("cat *", "cat 'x'"),
    ("cat *", 'cat "x"'),
    ("cat *", "cat \\x"),
    ('git commit -m "*"', 'git commit -m "x"; rm -rf "/"'),
    ('git commit -m "*"', 'git commit -m "$(rm -rf /)"'),
    ('git commit -m "*"', 'git commit -m "`id`"'),
    ('git commit -m "*"', 'git commit -m "x\\"'),
    ('git commit -m "*"', 'git commit -m "x" "y"'),
    ("git commit -m '*'", "git commit -m 'x' ; rm '/'"),
    ("echo '*' '*'", "echo 'x'';' '"),
    # a variable that is set makes a command of the next word
    ("git*", "git=1 rm -rf /"),
    ("git*", "git+=1 rm -rf /"),
    ("git*", "git_=1 rm -rf /"),
    ("*make", "LD_PRELOAD=./x make"),
    ("*", "PATH=. ls"),
    ("*", "x=1 -y=2 z=3"),
    ("-a;git*", "-a;git=1 rm"),
    ("a[0]*", "a[0]=1 rm"),
    ("git *", "git =ls"),
    ("git *", "git a=b"),
    # out of a directory
    ("cat docs/*", "cat docs/../../etc/shadow"),
    ("cat docs/*", "cat docs/.."),
    ("/work/*", "/work/../etc/passwd"),
    ("/work/.*", "/work/../etc/passwd"),
    ("/work/*./x", "/work/../x"),
    ("a*", "a..b"),
    # letters that look like others, blanks that look like spaces
    ("git status*", "gіt status"),
    ("git status*", "git\N{NO-BREAK SPACE}status"),
    ("git *", "git st\N{CYRILLIC SMALL LETTER A}tus"),
    ("git *", "git \N{FULLWIDTH SEMICOLON} rm"),
    ("git *", "git x\N{IDEOGRAPHIC SPACE}y"),
    ("git *", "git \N{RIGHT-TO-LEFT OVERRIDE}x"),
    ("git *", "git \N{ZERO WIDTH SPACE}x"),
    ("git *", "git ١"),
    ("git *", "git \ud800"),
    ("git *", "git \x1b[2K"),
    ("git *", "git \x08x"),
    ("git *", "git\tstatus"),
    ("git *", "git x\ty"),
    # the pattern is the whole text, and its literal parts are exact
    ("git status*", " git status"),
    ("git status*", "sudo git status"),
    ("git status*", "x; git status"),
    ("git status*", "Git status"),
    ("git status*", "git  status"),
    ("git status*", "git statu"),
    ("git status", "git status "),
    ("git status", "git status*"),
    ("git * --stat", "git log --stat x"),
    ("ls; *", "ls ; x"),
    # the author wrote metacharacters once, and they are there twice
    ("ls | head -n *", "ls | head -n 1 | sh"),
    ("ls * | head", "ls | sh | head"),
    ("cd x && make *", "cd x && make && rm"),
    ("echo $HOME/*", "echo $HOME/$HOME"),
    # no text
    ("*", None),
    ("*", 1),
    ("*", True),
    ("*", ["git status"]),
    ("*", {"command": "ls"}),
    ("git*", "git" + " x" * MOST_MATCHED),
]

FITTING = [
    ("git status*", "git status"),
    ("git status*", "git status -s --porcelain"),
    ("git log *", "git log --format=short -n 3 v1.2.3"),
    ("git log *", "git log HEAD@ a,b c:d x+y"),
    ("git * --stat", "git log -p --stat"),
    ("git commit -m '*'", "git commit -m 'Fix the door'"),
    ("ls * | head -n *", "ls -la /tmp | head -n 10"),
    ("cd /work && make *", "cd /work && make test"),
    ("rm '*'", "rm ''"),
    ("*", ""),
    ("*", "ls -la"),
    ("**", "ls"),
    ("a*b*c", "a-b-b-c"),
    ("*a*a*", "aaa"),
    ("cat docs/*.md", "cat docs/a/b.md"),
    ("cat ./*", "cat ./x/.hidden"),
    ("git diff *..*", "git diff main..next"),
    ("FOO=1 make *", "FOO=1 make -j=2 all"),
    ("git status", "git status"),
    ("echo; ls", "echo; ls"),
    ("день *", "день 1"),
]


def test_a_pattern_matches_nothing_that_was_smuggled_in():
    assert [pair for pair in SMUGGLED if fits_pattern(*pair)] == []


def test_a_pattern_matches_what_its_author_meant():
    assert [pair for pair in FITTING if not fits_pattern(*pair)] == []


def test_a_run_holds_no_character_that_any_shell_reads_as_more_than_a_letter_of_a_word():
    assert not RUN & set(";&|<>()$`\\\"'#~!?*[]{}^%\n\r\t\0")
    assert set(string.printable) >= RUN


@pytest.mark.parametrize("pattern", ["echo $*", "echo \\*", "!*", "echo `*`", "*" * (MOST_STARS + 1)])
def test_a_pattern_that_would_run_what_a_star_stands_for_is_refused(pattern):
    assert pattern_fault(pattern)


@pytest.mark.parametrize("pattern", ["git status*", "echo $HOME *", "*" * MOST_STARS, "'*'", "x"])
def test_a_pattern_without_such_a_star_is_accepted(pattern):
    assert pattern_fault(pattern) is None


# properties

#: texts in which shells see more than words, often enough
_SHELLISH = st.text(st.sampled_from("ab .-=/;|&$`'\"\\\n{}()<>#~!\u2028\0"), max_size=12) | st.text(max_size=12)
_PATTERNS = st.lists(_SHELLISH, min_size=1, max_size=4).map("*".join)


@st.composite
def _filled(draw):
    """A pattern, and a text that has something in the place of each `*`."""
    pattern = draw(_PATTERNS)
    parts = pattern.split("*")
    runs = [draw(_SHELLISH) for _ in parts[1:]]
    return pattern, parts[0] + "".join(run + part for run, part in zip(runs, parts[1:], strict=True))


@given(_filled() | st.tuples(_PATTERNS, _SHELLISH))
def test_a_text_that_matches_has_the_metacharacters_of_the_literal_parts_and_no_other(filled):
    pattern, value = filled
    if fits_pattern(pattern, value) and pattern != value:
        literal = [one for one in pattern if one not in RUN and one != "*"]
        assert [one for one in value if one not in RUN] == literal


@given(_filled())
def test_a_text_matches_if_its_runs_have_only_letters_digits_and_spaces(filled):
    pattern, _ = filled
    assert fits_pattern(pattern, pattern.replace("*", "a 1"))
    assert fits_pattern(pattern, pattern.replace("*", ""))


@given(st.text(), st.text())
def test_a_pattern_without_a_star_matches_itself_alone(pattern, value):
    if "*" not in pattern and len(value) <= MOST_MATCHED:
        assert fits_pattern(pattern, value) == (pattern == value)


@given(st.text(st.characters(exclude_characters="".join(RUN)), min_size=1), st.text(max_size=8), st.text(max_size=8))
def test_a_star_crosses_no_character_outside_its_allow_list(foreign, before, after):
    assert not fits_pattern("*", before + foreign + after)
    assert not fits_pattern("git *", f"git {before}{foreign}{after}")


_NUMBERS = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.text() | _NUMBERS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner, max_size=5),
    max_leaves=10,
)


@settings(max_examples=50)
@given(_VALUES)
def test_the_canonical_form_is_that_of_rfc_8785_wherever_that_has_one(value: Any):
    try:
        expected = rfc8785.dumps(value)
    except rfc8785.CanonicalizationError:
        expected = json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
    assert canonical(value) == expected


@pytest.mark.parametrize(
    ("value", "form"),
    [
        ({"b": [1, -0, True, None], "a": "\u20ac\x7f\x1f\n"}, '{"a":"\u20ac\x7f\\u001f\\n","b":[1,0,true,null]}'),
        ({"\ufb01": 1, "\U0001f600": 2}, '{"\U0001f600":2,"\ufb01":1}'),  # by UTF-16, not by code point
        ({"a": 1.0, "b": 1e21}, '{"a":1,"b":1e+21}'),
        (2**53 - 1, "9007199254740991"),
    ],
)
def test_names_numbers_and_escapes_have_one_form(value: Any, form: str):
    assert canonical(value) == form.encode()


@pytest.mark.parametrize("value", [2**53, -(2**64), ["\ud800"], {"\udfff": 1}])
def test_a_value_without_a_form_in_rfc_8785_has_one_that_json_reads_back(value: Any):
    assert json.loads(canonical(value)) == value
    assert len(digest(value)) == 64


# tests of commands and paths

GIT_STATUS = {"arguments": {"command": {"command": "git status *"}}}


def test_a_rule_about_a_command_approves_lines_that_run_nothing_else():
    assert does_match(GIT_STATUS, action(command="git status -s | env git status"))
    for line in ("git status; ls", "git status > x", "git status $x", "git push", "", "git status '"):
        assert not does_match(GIT_STATUS, action(command=line)), line
    for value in (None, 1, ["git status"], {"command": "git status"}):
        assert not does_match(GIT_STATUS, action(command=value)), value
    assert not does_match(GIT_STATUS, action(cmd="git status"))


def test_arguments_at_their_defaults_are_no_condition_of_a_rule_about_a_command():
    assert does_match(GIT_STATUS, action(command="git status", is_input=False, reset=False, timeout=None))
    for other in ({"is_input": True}, {"reset": True}, {"timeout": 5}):
        assert not does_match(GIT_STATUS, action(command="git status", **other)), other


def test_a_rule_against_a_command_finds_it_however_it_is_wrapped():
    members = {"arguments": {"command": {"command": "git push"}}}
    for line in ("git push", "sudo git -C . push", "sh -c 'ls; git push'", "ls $(git push)"):
        assert answer(members, action(command=line)) is True, line
    for line in ("$x", "git push '", "foo git push", "python -c x"):
        assert answer(members, action(command=line)) is None, line
    assert answer(members, action(command="git status")) is False
    for unread in (action(command=None), action(command=["git push"]), action(cmd="git push")):
        assert answer(members, unread) is None


def test_a_rule_about_a_path_approves_files_below_it_and_one_that_rejects_sees_more():
    members = {"arguments": {"path": {"path": "src/**"}, "command": {"any": True}}}
    assert does_match(members, action(path="src/a.py", command="create"))
    assert not does_match(members, action(path="src/../x", command="create"))
    assert answer(members, action(path="SRC/a")) is True
    assert answer(members, action(path="/w/src/a")) is None
    assert answer(members, action(path="docs/a")) is False


def test_a_text_pattern_that_rejects_a_command_reads_its_line_too():
    for line, expected in (
        ("git -C . push", True),
        ("/usr/lib/git-core/git-push", True),
        ("git 'pu'\"sh\"", True),
        ("(cd a; ls)", False),
        ("(ls | cat)", None),
        ("ls *.py", None),
        ("cat < pu*", None),
        ("ls > git.push", None),
    ):
        assert answer({"arguments": PUSH}, action(command=line)) is expected, line
    assert answer({"arguments": {"text": {"pattern": "*git push*"}}}, action(text="git -C . push")) is None


def part_of(line: str, *commands: str) -> list[str]:
    """The rules about these commands, by their names, that decide a line together."""
    rules = [
        rule(id=command, created_at=number, arguments={"command": {"command": command}})
        for number, command in enumerate(commands)
    ]
    return [one.id for one in matching(rules, action(command=line), HERE).deciding()]


def test_rules_approve_a_line_together_where_each_of_its_commands_is_one_of_theirs():
    assert part_of("ls; cat x", "ls *", "cat *") == ["ls *", "cat *"]
    assert part_of("ls; cat x", "cat *", "ls *") == ["ls *", "cat *"]
    assert part_of("ls; cat x; ls", "ls", "ls *", "cat *") == ["ls", "cat *"]
    assert part_of("ls; cat x", "ls *") == []
    assert part_of("ls; $x", "ls *") == []
    assert part_of("ls; ls -la", "ls", "ls *") == ["ls *"]


def test_rules_that_have_no_use_left_are_passed_over():
    rules = [
        rule(id=name, created_at=number, arguments={"command": {"command": command}})
        for number, (name, command) in enumerate([("a", "ls"), ("b", "ls *"), ("c", "cat *"), ("d", "cat x")])
    ]
    matched = matching(rules, action(command="ls; cat x"), HERE)
    assert [[one.id for one in matched.deciding(without)] for without in ((), {"a"}, {"a", "c"}, {"c", "d"})] == [
        ["a", "c"],
        ["b", "c"],
        ["b", "d"],
        [],
    ]


def test_always_names_no_argument_that_is_at_its_default():
    event = {**EVENT, "action": {**EVENT["action"], "reset": False, "timeout": None}}
    made = rule_of(True, event, HERE.id, "approve")
    assert made.arguments == {"command": {"equals": "git push"}}
    assert matches(made, Action.of({**event, "action": {"command": "git push"}}), HERE)
