"""Rules and what the server sees of an action: effects as a filter, and the greater of two risks.

Source: docs/approvals.md#what-the-server-sees.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.approvals import Action, Rule, RuledConversation, matches, matching, rule_of
from core.effects import RISK_OF, RISKS, seen
from tests.core.test_effects import TEXTS

HERE = RuledConversation("5f1c0000-0000-4000-8000-000000000000", {}, "/w/app")
TOOL = {"tool_name": "terminal"}


def action(command, risk="LOW"):
    return Action("terminal", {"command": command}, risk)


def approving(**members):
    return Rule("approve", "terminal", id="for", **members)


def rejecting(**members):
    return Rule("reject", "terminal", id="against", **members)


@pytest.mark.parametrize(
    ("command", "is_approved"),
    [
        ("cat a.py", True),
        ("cd /w/app && ls | head", True),
        ("echo x > a.txt", True),
        ("true", True),
        ("cat a.py && make", False),
        ("cat /etc/hosts", False),
        ("echo x > /etc/motd", False),
        ("rm a.txt", False),
        ("cat .env", False),
        ("frobnicate", False),
        ("if true", False),
        ("rg --pre ./x a", False),
    ],
)
def test_a_rule_that_approves_allows_no_effect_that_it_does_not_name(command, is_approved):
    assert matches(approving(effects=("reads", "writes_inside")), action(command), HERE) is is_approved


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        ("rm a.txt", True),
        ("ls && sh -c 'rm -rf build'", True),
        ("rm a.txt && if", None),
        ("ls", False),
        ("make", False),
        ("frobnicate", None),
        ("python -c 'print(1)'", None),
        ("if true", None),
    ],
)
def test_a_rule_that_rejects_needs_one_of_its_effects_and_is_unsure_about_what_cannot_be_read(command, answer):
    assert matches(rejecting(effects=("deletes",)), action(command), HERE) is answer


def test_where_a_rule_that_rejects_effects_is_unsure_no_rule_approves():
    found = matching([approving(), rejecting(effects=("deletes",))], action("frobnicate"), HERE)
    assert [rule.id for rule in found.doubts] == ["against"]


def test_a_push_by_another_name_is_seen_as_network_and_one_by_make_as_a_script():
    never = rejecting(effects=("network",))
    for command in ("git push", "git send-pack origin", "git subtree push --prefix a origin main", "git -C . push"):
        assert matches(never, action(command), HERE) is True
    assert seen("terminal", {"command": "make push"}).names == {"scripts"}
    assert matches(approving(effects=("reads", "network")), action("make push"), HERE) is False


def test_the_folder_of_the_conversation_says_what_lies_outside():
    rule, write = approving(effects=("writes_inside",)), action("touch /w/app/a")
    assert matches(rule, write, HERE)
    assert not matches(rule, write, RuledConversation(HERE.id, {}, "/w/other"))
    assert not matches(rule, write, RuledConversation(HERE.id, {}))


def test_several_rules_approve_a_line_together_only_if_each_allows_its_effects():
    listing = Rule("approve", "terminal", {"command": {"command": "ls *"}}, id="ls", effects=("reads",))
    making = Rule("approve", "terminal", {"command": {"command": "make *"}}, id="make")
    both = matching([listing, making], action("ls && make"), HERE)
    assert both.deciding() == ()

    wide = Rule("approve", "terminal", {"command": {"command": "ls *"}}, id="ls", effects=("reads", "scripts"))
    both = matching([wide, making], action("ls && make"), HERE)
    assert {rule.id for rule in both.deciding()} == {"ls", "make"}


# the risk


@pytest.mark.parametrize(
    ("command", "risk", "most", "is_approved"),
    [
        ("ls", "LOW", "LOW", True),
        ("ls", "MEDIUM", "LOW", False),
        ("make", "LOW", "LOW", False),
        ("make", "LOW", "MEDIUM", True),
        ("rm a", "LOW", "MEDIUM", False),
        ("rm a", "LOW", "HIGH", True),
        ("ls", "UNKNOWN", "HIGH", False),
    ],
)
def test_the_highest_risk_of_a_rule_that_approves_holds_for_both_risks(command, risk, most, is_approved):
    assert matches(approving(max_risk=most), action(command, risk), HERE) is is_approved


def test_the_risk_of_a_rule_that_rejects_stays_the_agents_word():
    assert matches(rejecting(max_risk="LOW"), action("rm a", "LOW"), HERE) is True
    assert matches(rejecting(max_risk="LOW"), action("rm a", "UNKNOWN"), HERE) is None


_RULES = st.builds(
    Rule,
    st.sampled_from(["approve", "reject"]),
    st.just("terminal"),
    st.sampled_from([None, {"command": {"any": True}}, {"command": {"command": "ls *"}}]),
    st.sampled_from([None, *RISKS]),
)


@given(_RULES, st.sampled_from(TEXTS), st.sampled_from([*RISKS, "UNKNOWN"]))
def test_no_rule_is_less_safe_than_by_the_agents_word_alone(rule, text, risk):
    def plain(most, risk):
        return risk in RISKS and RISKS.index(risk) <= RISKS.index(most)

    without = Rule(rule.decision, rule.tool_name, rule.arguments)
    before, now = matches(without, action(text, risk), HERE), matches(rule, action(text, risk), HERE)
    if rule.decision == "approve" and now:
        assert before
        assert rule.max_risk is None or plain(rule.max_risk, risk)
    if rule.decision == "reject" and before and (rule.max_risk is None or plain(rule.max_risk, risk)):
        assert now is True


def test_always_names_the_greater_risk_so_that_the_same_action_is_approved_again():
    event = {**TOOL, "action": {"kind": "TerminalAction", "command": "rm a"}, "security_risk": "LOW"}
    made = rule_of(True, event, HERE.id, "approve", folder=HERE.folder)
    assert made.max_risk == "HIGH"
    assert matches(made, Action.of(event), HERE)


@given(st.sampled_from(TEXTS), st.lists(st.sampled_from(list(RISK_OF)), min_size=1), st.sampled_from(list(RISK_OF)))
def test_one_effect_more_never_makes_a_rule_approve_less(text, effects, more):
    few, many = approving(effects=tuple(effects)), approving(effects=(*effects, more))
    assert matches(few, action(text), HERE) <= matches(many, action(text), HERE)
