"""Which actions an approval rule matches, and the rule that "always" makes. Source: docs/approvals.md."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from approvals.rules import Action, Conversation, Rule, matches, matching, rule_of

HERE = Conversation("5f1c0000-0000-4000-8000-000000000000", {"team": "web", "env": "test"})


def rule(**members) -> Rule:
    return Rule(**{"id": "r", "decision": "approve", "tool_name": "terminal", **members})


def action(risk: str = "LOW", tool_name: str = "terminal", **arguments) -> Action:
    return Action(tool_name, arguments, risk)


def does_match(members, of: Action) -> bool:
    return matches(rule(**members), of, HERE)


@pytest.mark.parametrize(
    ("wanted", "value", "is_equal"),
    [
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
    ],
)
def test_equals_compares_json_values_exactly(wanted, value, is_equal):
    assert does_match({"arguments": {"x": {"equals": wanted}}}, action(x=value)) is is_equal


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


@pytest.mark.parametrize("value", [None, False, 0, 0.0, "", [], {}])
def test_an_argument_without_a_test_may_say_nothing(value):
    assert does_match({"arguments": {"command": {"any": True}}}, action(command="x", other=value))


@pytest.mark.parametrize("value", [True, 1, 0.5, " ", "0", [None], {"a": None}])
def test_an_argument_without_a_test_that_says_something_is_not_matched(value):
    of = action(command="C-c", is_input=value)
    assert not does_match({"arguments": {"command": {"equals": "C-c"}}}, of)
    assert not does_match({"arguments": {}}, of)
    assert does_match({}, of)


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


@pytest.mark.parametrize("tool_name", ["Terminal", "terminal ", "terminal*", "", None])
def test_the_name_of_the_tool_is_exact(tool_name):
    assert not does_match({}, action(tool_name=tool_name))
    assert not does_match({"tool_name": "*"}, action())


@pytest.mark.parametrize(
    ("most", "risk", "is_matched"),
    [
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
    ],
)
def test_an_unknown_risk_is_higher_than_any_that_a_rule_names(most, risk, is_matched):
    assert does_match({"max_risk": most}, action(risk)) is is_matched


@pytest.mark.parametrize(
    ("members", "is_matched"),
    [
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
    ],
)
def test_a_rule_holds_for_the_conversations_that_it_names(members, is_matched):
    assert does_match(members, action()) is is_matched


def test_rules_that_reject_are_tried_before_rules_that_approve_and_older_ones_first():
    rules = [
        rule(id="new", created_at=3),
        rule(id="old", created_at=1),
        rule(id="no", decision="reject", created_at=2),
        rule(id="other", tool_name="browser"),
    ]
    assert [one.id for one in matching(rules, action(), HERE)] == ["no", "old", "new"]


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
    assert not matches(made, Action.of(EVENT), Conversation("6f1c0000-0000-4000-8000-000000000000", HERE.tags))


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


@pytest.mark.parametrize("changed", [{"tool_name": None}, {"tool_name": 1}, {"action": "rm"}, {"action": None}])
def test_always_makes_no_rule_of_an_action_that_names_no_tool_or_no_arguments(changed):
    with pytest.raises(ValueError, match="has no rule"):
        rule_of(True, {**EVENT, **changed}, HERE.id, "approve")
