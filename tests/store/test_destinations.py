"""Destinations: a name that nobody allowed waits for a person once, and what was decided ends as it says."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.bounds import Limits
from store.destinations import (
    MOST_REACHED,
    MOST_REMEMBERED,
    MOST_WAITING,
    DestinationChanged,
    DestinationExpired,
    DestinationRuleExists,
    DestinationRuleNotFound,
    Destinations,
)
from tests.store.conftest import fresh_sandboxes, of_limits, running_sandbox

NAME = "example.org"


@pytest.fixture
def here(redis_url):
    """The destinations of a store without sandboxes, and a maker of running sandboxes."""
    sandboxes = fresh_sandboxes(redis_url, most=100)
    store = of_limits(redis_url, Limits(100, False, 60, 120))
    return store.destinations, lambda: running_sandbox(sandboxes).id, sandboxes


def expire(destinations: Destinations, sandbox: str, name: str = NAME, *, ago: int = 1) -> None:
    """Have what waits, or holds for a while, be over for so many seconds."""
    key = f"{{sandboxes}}:asked:{sandbox}"
    item = json.loads(destinations._redis.hget(key, f"{name}:443"))
    seconds, micros = destinations._redis.time()
    item["until_at"] = str(seconds * 1_000_000 + micros - ago * 1_000_000)
    destinations._redis.hset(key, f"{name}:443", json.dumps(item))


def test_an_unknown_name_asks_once_and_counts_its_tries(here):
    destinations, start, _ = here
    sandbox = start()
    first, second = (destinations.verdict(sandbox, NAME, 443, "pip") for _ in range(2))
    assert (first.is_allowed, first.asked, second.asked) == (False, True, False)
    assert first.reason == "example.org:443 is not allowed; a person was asked; try again when it is" == second.reason
    [item] = destinations.waiting()
    assert (item.sandbox_id, item.name, item.port, item.program, item.tries) == (sandbox, NAME, 443, "pip", 2)


def test_what_is_allowed_once_passes_once(here):
    destinations, start, _ = here
    sandbox = start()
    destinations.verdict(sandbox, NAME, 443)
    destinations.decide(destinations.waiting()[0], "approve", "once", "me")
    assert not destinations.verdict(sandbox, f"sub.{NAME}", 443).is_allowed
    assert not destinations.verdict(sandbox, NAME, 80).is_allowed
    assert destinations.verdict(sandbox, NAME, 443).is_allowed
    assert destinations.verdict(sandbox, NAME, 443).asked


def test_what_is_allowed_for_a_conversation_stays_and_is_no_other_sandboxs(here):
    destinations, start, _ = here
    sandbox, other = start(), start()
    destinations.verdict(sandbox, NAME, 443)
    destinations.decide(destinations.waiting()[0], "approve", "conversation", "me")
    assert all(destinations.verdict(sandbox, NAME, 443).is_allowed for _ in range(3))
    assert not destinations.verdict(other, NAME, 443).is_allowed


def test_a_rule_allows_everywhere_and_its_revocation_closes_at_once(here):
    destinations, start, _ = here
    sandbox, other = start(), start()
    destinations.verdict(sandbox, NAME, 443)
    rule = destinations.decide(destinations.waiting()[0], "approve", "always", "me")
    assert destinations.verdict(sandbox, NAME, 443).is_allowed
    assert destinations.verdict(other, NAME, 443).is_allowed
    assert [(one.name, one.uses, one.created_by) for one in destinations.rules()] == [(NAME, 2, "me")]
    destinations.revoke(rule.id)
    with pytest.raises(DestinationRuleNotFound):
        destinations.revoke(rule.id)
    assert not destinations.verdict(other, NAME, 443).is_allowed
    assert destinations.rules() == []


def test_a_rule_of_a_suffix_matches_what_is_below_it_and_one_that_rejects_wins(here):
    destinations, start, _ = here
    sandbox = start()
    destinations.make_rule("*.example.org", 443, "approve", "me")
    destinations.make_rule("bad.example.org", 443, "reject", "me")
    with pytest.raises(DestinationRuleExists):
        destinations.make_rule("*.example.org", 443, "reject", "me")
    assert destinations.verdict(sandbox, "a.b.example.org", 443).is_allowed
    assert not destinations.verdict(sandbox, "example.org", 443).is_allowed
    assert not destinations.verdict(sandbox, "badexample.org", 443).is_allowed
    assert "a rule rejects it" in destinations.verdict(sandbox, "bad.example.org", 443).reason


@pytest.mark.parametrize(
    "pattern", ["*", "*.org", "*.", "a.*.org", "*example.org", "Example.org", "1.2.3.4", "[::1]", "0x7f", "a..b", ""]
)
def test_a_rule_names_a_name_or_a_suffix_of_two_labels(here, pattern):
    destinations, _, _ = here
    with pytest.raises(ValueError, match="name"):
        destinations.make_rule(pattern, 443, "approve", "me")


@pytest.mark.parametrize(("name", "port"), [("127.0.0.1", 443), ("2130706433", 80), ("Example.org", 1), ("a.b", 0)])
def test_a_verdict_is_of_a_lower_case_name_and_a_port(here, name, port):
    destinations, _, _ = here
    with pytest.raises(ValueError, match=r"name|port"):
        destinations.verdict("box", name, port)


def test_what_expires_is_told_for_ten_minutes_and_then_asked_again(here):
    destinations, start, _ = here
    sandbox = start()
    destinations.verdict(sandbox, NAME, 443)
    [item] = destinations.waiting()
    expire(destinations, sandbox)
    assert destinations.waiting() == []
    assert "nobody answered in time" in destinations.verdict(sandbox, NAME, 443).reason
    with pytest.raises(DestinationExpired):
        destinations.decide(item, "approve", "conversation", "me")
    expire(destinations, sandbox)
    assert destinations.verdict(sandbox, NAME, 443).asked
    with pytest.raises(DestinationChanged):
        destinations.decide(item, "approve", "conversation", "me")


def test_the_first_decision_wins(here):
    destinations, start, _ = here
    sandbox = start()
    destinations.verdict(sandbox, NAME, 443)
    [item] = destinations.waiting()
    destinations.decide(item, "reject", "conversation", "me")
    with pytest.raises(DestinationChanged):
        destinations.decide(item, "approve", "conversation", "you")
    assert destinations.verdict(sandbox, NAME, 443).reason.endswith("a person rejected it")


def test_a_late_decision_makes_no_rule(here):
    destinations, start, _ = here
    sandbox = start()
    destinations.verdict(sandbox, NAME, 443)
    [item] = destinations.waiting()
    destinations.decide(item, "reject", "conversation", "me")
    with pytest.raises(DestinationChanged):
        destinations.decide(item, "approve", "always", "you")
    assert destinations.rules() == []
    assert not destinations.verdict(sandbox, NAME, 443).is_allowed


def test_what_a_rule_decides_waits_in_no_sandbox(here):
    destinations, start, _ = here
    first, second = start(), start()
    for sandbox in (first, second):
        destinations.verdict(sandbox, NAME, 443)
    destinations.decide(destinations.waiting(first)[0], "approve", "always", "me")
    assert destinations.waiting() == []
    assert destinations.verdict(second, NAME, 443).is_allowed


def test_a_storm_of_names_asks_a_bounded_number_and_says_so(here):
    destinations, start, _ = here
    sandbox = start()
    said = [destinations.verdict(sandbox, f"n{number}.example.org", 443) for number in range(MOST_WAITING + 30)]
    assert sum(one.asked for one in said) == MOST_WAITING == len(destinations.waiting(sandbox))
    assert f"{MOST_WAITING} destinations of this sandbox wait already" in said[-1].reason


def test_decisions_of_one_sandbox_are_bounded(here):
    destinations, start, _ = here
    sandbox = start()
    for number in range(MOST_REMEMBERED):
        destinations.verdict(sandbox, f"n{number}.example.org", 443)
        destinations.decide(destinations.waiting(sandbox)[0], "approve", "conversation", "me")
    assert "MOST_REMEMBERED" in destinations.verdict(sandbox, NAME, 443).reason


def test_sandboxes_that_ask_for_one_name_make_one_item_each(here):
    destinations, start, _ = here
    started = [start() for _ in range(50)]
    for sandbox in started * 2:
        destinations.verdict(sandbox, NAME, 443)
    assert sorted(item.sandbox_id for item in destinations.waiting()) == sorted(started)


def test_what_a_sandbox_asked_and_reached_ends_with_it(here):
    destinations, start, sandboxes = here
    sandbox = start()
    destinations.verdict(sandbox, NAME, 443)
    destinations.record(sandbox, NAME, 443, "refused", 0, 0)
    sandboxes.ask(sandbox, "delete")
    sandboxes.report(sandbox, "h", "supervisor", "GONE")
    assert "the sandbox has ended" in destinations.verdict(sandbox, NAME, 443).reason
    destinations.record(sandbox, NAME, 443, "refused", 0, 0)
    assert (destinations.waiting(), destinations.reached(sandbox)) == ([], [])


def test_what_is_reached_is_counted_by_name_and_beyond_the_bound_together(here):
    destinations, start, _ = here
    sandbox = start()
    destinations.record(sandbox, NAME, 443, "allowed", 10, 2_000_000_000_000)
    destinations.record(sandbox, NAME, 443, "refused", 0, 1)
    for number in range(MOST_REACHED + 1):
        destinations.record(sandbox, f"n{number}.example.org", 443, "allowed", 1, 1)
    reached = {one.name: one for one in destinations.reached(sandbox)}
    one, others = reached[NAME], reached[None]
    assert (one.allowed, one.refused, one.sent, one.received) == (1, 1, 10, 2_000_000_000_001)
    assert (len(reached), others.allowed, others.port) == (MOST_REACHED + 1, 2, None)
    assert destinations.totals()["allowed"] == MOST_REACHED + 2


STEPS = st.lists(
    st.sampled_from(["ask", "once", "conversation", "always", "reject", "revoke", "expire", "end"]), max_size=12
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_a_try_passes_only_where_a_decision_that_holds_allows_it(here, steps):
    destinations, start, sandboxes = here
    for rule in destinations.rules():
        destinations.revoke(rule.id)
    sandbox, state, ruled, has_ended = start(), None, False, False
    for step in steps:
        waiting = destinations.waiting(sandbox)
        assert bool(waiting) == (state == "waiting" and not ruled)
        if step == "ask":
            found = destinations.verdict(sandbox, NAME, 443)
            assert found.is_allowed == (not has_ended and (ruled or state in ("once", "conversation")))
            assert found.asked == (not has_ended and not ruled and state is None)
            if not has_ended:
                state = None if ruled or state == "once" else state or "waiting"
        elif step in ("once", "conversation", "always", "reject") and waiting and not (step == "always" and ruled):
            decision, scope = ("reject", "conversation") if step == "reject" else ("approve", step)
            destinations.decide(waiting[0], decision, scope, "me")
            state, ruled = (None if step == "always" else step), ruled or step == "always"
        elif step == "revoke":
            for rule in destinations.rules():
                destinations.revoke(rule.id)
            ruled = False
        elif step == "expire" and waiting:
            expire(destinations, sandbox)
            state = "expired"
        elif step == "end" and not has_ended:
            sandboxes.ask(sandbox, "delete")
            sandboxes.report(sandbox, "h", "supervisor", "GONE")
            state, has_ended = None, True
    if not has_ended:
        sandboxes.ask(sandbox, "delete")
        sandboxes.report(sandbox, "h", "supervisor", "GONE")
