"""Approval rules in Redis: kept once, used as often as they may be, revoked at once."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest

from core import wire
from core.approvals import Rule
from store.approvals import rules as rules_module
from store.approvals.rules import (
    MOST_RULE_BYTES,
    RuleNotFound,
    RuleTooLong,
    RuleUse,
    RuleWasRevoked,
    RuleWouldBePast,
    TooManyRules,
)
from store.link import attempts
from tests.conftest import limits_of, store_of
from tests.store.conftest import forget, round_trips


@pytest.fixture
def rules(store):
    """The rules of a store that has none."""
    forget(store.approvals.rules._redis, "{rules}*")
    return store.approvals.rules


def wanted(**members) -> Rule:
    return Rule(**{"decision": "approve", "tool_name": "terminal", **members})


def use(rule, conversation, action: str = "a") -> RuleUse:
    return RuleUse.of(rule, conversation, action)


def uses_of(rules, rule) -> int:
    return rules.get(rule.id).uses


def expire(rules, rule):
    """Have a rule expire now."""
    stored = json.loads(rules._redis.hget("{rules}:uses", rule.id))
    rules._redis.hset("{rules}:uses", rule.id, json.dumps({**stored, "expires_at": "1"}))


class Retried:
    """A request with an Idempotency-Key: each `with` is an attempt at it."""

    def __init__(self):
        self.seed = uuid4()

    def __enter__(self):
        attempts.enter(attempts.Attempt(self.seed))

    def __exit__(self, *_):
        attempts.enter(None)


# made and listed


def test_a_rule_is_listed_with_all_its_members(rules, conversation):
    rule = wanted(
        arguments={"command": {"pattern": "git *"}, "n": {"equals": [1.0, None, {}, [], "\ud800", 2**60]}},
        max_risk="LOW",
        conversation_ids=(conversation,),
        tags={"team": None},
        expires_at=wire.now() + 3_600_000_000,
        max_uses=3,
        reason="Reads alone",
        created_by="Ada",
    )
    made = rules.make(rule)

    assert made.rule == Rule(
        **{**{name: getattr(rule, name) for name in rule.__slots__}, "id": made.rule.id}
        | {"created_at": made.rule.created_at}
    )
    assert (made.uses, made.last_used_at) == (0, None)
    assert rules.all() == [made]
    assert rules.get(made.rule.id) == made
    assert rules.current() == (made.rule,)


def test_rules_are_listed_newest_first(rules):
    made = [rules.make(wanted()).rule.id for _ in range(3)]
    assert [one.rule.id for one in rules.all()] == made[::-1]


def test_a_repeat_of_a_request_makes_no_second_rule(rules):
    request = Retried()
    with request:
        first = rules.make(wanted())
    with request:
        assert rules.make(wanted()) == first
    assert rules.all() == [first]


def test_a_repeat_of_a_request_does_not_bring_back_a_revoked_rule(rules):
    request = Retried()
    with request:
        made = rules.make(wanted())
    rules.revoke(made.rule.id)
    with request, pytest.raises(RuleWasRevoked):
        rules.make(wanted())
    assert rules.all() == []


def test_the_rule_beyond_the_bound_is_refused_by_name(rules, monkeypatch):
    monkeypatch.setattr(rules_module, "MOST_RULES", 2)
    for _ in range(2):
        rules.make(wanted())
    with pytest.raises(TooManyRules, match="MOST_RULES"):
        rules.make(wanted())
    rules.revoke(rules.all()[0].rule.id)
    rules.make(wanted())


def test_a_rule_that_expired_makes_room(rules, monkeypatch):
    monkeypatch.setattr(rules_module, "MOST_RULES", 1)
    expire(rules, rules.make(wanted(expires_at=wire.now() + 3_600_000_000)).rule)
    made = rules.make(wanted())
    assert rules.all() == [made]


def test_a_rule_that_is_too_long_is_refused_by_name(rules):
    with pytest.raises(RuleTooLong, match="MOST_RULE_BYTES"):
        rules.make(wanted(arguments={"x": {"equals": "a" * MOST_RULE_BYTES}}))


def test_a_rule_that_would_have_expired_is_refused(rules):
    with pytest.raises(RuleWouldBePast):
        rules.make(wanted(expires_at=wire.now() - 3_600_000_000))
    assert rules.all() == []


def test_rules_that_did_not_change_cost_one_round_trip(rules, monkeypatch):
    made = rules.make(wanted()).rule
    rules.current()
    with round_trips(rules._redis, monkeypatch) as sent:
        assert rules.current() == (made,)
    assert sent == ["GET"]


def test_a_change_by_another_worker_is_seen_at_the_next_read(rules, redis_url):
    others = store_of(redis_url, limits_of(3, False, 60, 120)).approvals.rules
    assert rules.current() == others.current() == ()
    made = others.make(wanted()).rule
    assert rules.current() == (made,)
    rules.revoke(made.id)
    assert others.current() == ()


def test_a_redis_that_was_emptied_gives_no_version_a_second_time(rules):
    rules.make(wanted())
    rules.current()
    forget(rules._redis, "{rules}*")
    made = rules.make(wanted()).rule
    assert rules.current() == (made,)


# used


def test_a_use_counts_once_by_its_claim(rules, conversation):
    rule = rules.make(wanted(max_uses=2)).rule
    for _ in range(3):
        assert rules.claim([use(rule, conversation)]) is None
    used = rules.get(rule.id)
    assert used.uses == 1
    assert used.last_used_at >= rule.created_at


def test_a_use_beyond_the_most_is_refused_and_a_repeat_is_not(rules, conversation):
    rule = rules.make(wanted(max_uses=1)).rule
    first, second = use(rule, conversation, "a"), use(rule, conversation, "b")
    assert rules.claim([first]) is None
    assert rules.claim([second]) == second
    assert rules.claim([first]) is None
    assert uses_of(rules, rule) == 1


def test_the_claim_of_a_use_is_remembered_for_a_day(rules, conversation):
    rule = rules.make(wanted()).rule
    one = use(rule, conversation)
    rules.claim([one])

    assert 86_000 < rules._redis.ttl(f"{{rules}}:use:{one.claim}") <= 86_400


def test_uses_are_counted_all_or_none(rules, conversation):
    rule, other = rules.make(wanted(max_uses=2)).rule, rules.make(wanted()).rule
    three = [use(other, conversation, "o"), *(use(rule, conversation, action) for action in "abc")]
    assert rules.claim(three) == three[3]
    assert (uses_of(rules, rule), uses_of(rules, other)) == (0, 0)
    assert rules.claim(three[:3]) is None
    assert (uses_of(rules, rule), uses_of(rules, other)) == (2, 1)


def test_a_use_that_is_given_back_can_be_made_again(rules, conversation):
    rule = rules.make(wanted(max_uses=1)).rule
    first, second = use(rule, conversation, "a"), use(rule, conversation, "b")
    rules.claim([first])
    for _ in range(2):
        rules.give_back([first])
    assert uses_of(rules, rule) == 0
    assert rules.claim([second]) is None
    assert rules.claim([first]) == first


def test_a_use_of_a_rule_that_was_revoked_since_is_given_back_without_effect(rules, conversation):
    rule = rules.make(wanted()).rule
    rules.claim([use(rule, conversation)])
    rules.revoke(rule.id)
    rules.give_back([use(rule, conversation)])
    assert rules.all() == []


def test_a_rule_that_expired_grants_nothing_also_no_repeat(rules, conversation):
    rule = rules.make(wanted(expires_at=wire.now() + 3_600_000_000)).rule
    one = use(rule, conversation)
    assert rules.claim([one]) is None
    expire(rules, rule)
    assert rules.claim([one]) == one
    assert rules.claim([use(rule, conversation, "b")])
    assert rules.all()[0].rule == rule


def test_a_revoked_rule_grants_nothing_also_no_repeat(rules, conversation):
    rule = rules.make(wanted()).rule
    one = use(rule, conversation)
    assert rules.claim([one]) is None
    rules.revoke(rule.id)
    assert rules.claim([one]) == one
    with pytest.raises(RuleNotFound):
        rules.revoke(rule.id)
    with pytest.raises(RuleNotFound):
        rules.get(rule.id)


def test_the_same_action_of_another_wait_or_rule_is_another_use(conversation):
    rule, other = wanted(id="r"), wanted(id="s")
    claims = {
        RuleUse.of(rule, conversation, "a", "1").claim,
        RuleUse.of(rule, conversation, "a", "2").claim,
        RuleUse.of(rule, str(uuid4()), "a", "1").claim,
        RuleUse.of(other, conversation, "a", "1").claim,
    }
    assert len(claims) == 4


# races


@pytest.mark.faults("a race of threads")
def test_of_fifty_claims_by_twenty_workers_as_many_are_granted_as_the_rule_has_uses(rules, conversation):
    rule = rules.make(wanted(max_uses=7)).rule
    uses = [use(rule, conversation, str(number)) for number in range(50)]
    with ThreadPoolExecutor(20) as workers:
        granted = [one is None for one in workers.map(lambda one: rules.claim([one]), uses)]
    assert granted.count(True) == 7
    assert uses_of(rules, rule) == 7


@pytest.mark.faults("a race of threads")
def test_one_claim_by_twenty_workers_counts_once_and_is_granted_to_all(rules, conversation):
    rule = rules.make(wanted(max_uses=1)).rule
    with ThreadPoolExecutor(20) as workers:
        assert set(workers.map(lambda _: rules.claim([use(rule, conversation)]), range(20))) == {None}
    assert uses_of(rules, rule) == 1


@pytest.mark.faults("a race of threads")
def test_no_claim_that_begins_after_a_revocation_was_answered_is_granted(rules, conversation):
    for _ in range(20):
        rule, is_revoked, late = rules.make(wanted()).rule, threading.Event(), []

        def claim_all(rule=rule, is_revoked=is_revoked, late=late):
            for number in range(1000):
                is_late = is_revoked.is_set()
                if (rules.claim([use(rule, conversation, str(number))]) is None) and is_late:
                    late.append(number)
                if is_late:
                    return

        with ThreadPoolExecutor(4) as workers:
            for _ in range(4):
                workers.submit(claim_all)
            rules.revoke(rule.id)
            is_revoked.set()
        assert late == []
