"""Destinations: a name that nobody allowed waits for a person once, and what was decided ends as it says."""

import json
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from admin.audit import verify
from store.approvals.audit import AuditFilter, DecisionActor
from store.destinations import (
    MOST_ASKED,
    MOST_REACHED,
    MOST_REMEMBERED,
    MOST_WAITING,
    DestinationChanged,
    DestinationExpired,
    DestinationRuleExists,
    DestinationRuleNotFound,
    DestinationRuleWasRevoked,
    Destinations,
)
from store.link.attempts import Attempt, enter
from tests.conftest import limits_of
from tests.store.conftest import fresh_sandboxes, of_limits, running_sandbox

NAME = "example.org"
ME, YOU = DecisionActor("key", "me", "127.0.0.1"), DecisionActor("key", "you", "10.0.0.9")


@pytest.fixture
def here(redis_url):
    """The destinations of a store without sandboxes, and a maker of running sandboxes."""
    sandboxes = fresh_sandboxes(redis_url, most=100)
    store = of_limits(redis_url, limits_of(100, False, 60, 120))
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
    destinations.decide(destinations.waiting()[0], "approve", "once", ME)
    assert not destinations.verdict(sandbox, f"sub.{NAME}", 443).is_allowed
    assert not destinations.verdict(sandbox, NAME, 80).is_allowed
    assert destinations.verdict(sandbox, NAME, 443).is_allowed
    assert destinations.verdict(sandbox, NAME, 443).asked


def test_what_is_allowed_for_a_conversation_stays_and_is_no_other_sandboxs(here):
    destinations, start, _ = here
    sandbox, other = start(), start()
    destinations.verdict(sandbox, NAME, 443)
    destinations.decide(destinations.waiting()[0], "approve", "conversation", ME)
    assert all(destinations.verdict(sandbox, NAME, 443).is_allowed for _ in range(3))
    assert not destinations.verdict(other, NAME, 443).is_allowed


def test_a_rule_allows_everywhere_and_its_revocation_closes_at_once(here):
    destinations, start, _ = here
    sandbox, other = start(), start()
    destinations.verdict(sandbox, NAME, 443)
    rule = destinations.decide(destinations.waiting()[0], "approve", "always", ME)
    assert destinations.verdict(sandbox, NAME, 443).is_allowed
    assert destinations.verdict(other, NAME, 443).is_allowed
    assert [(one.name, one.uses, one.created_by) for one in destinations.rules()] == [(NAME, 2, "me")]
    destinations.revoke(rule.id, ME)
    with pytest.raises(DestinationRuleNotFound):
        destinations.revoke(rule.id, ME)
    assert not destinations.verdict(other, NAME, 443).is_allowed
    assert destinations.rules() == []


def test_a_rule_of_a_suffix_matches_what_is_below_it_and_one_that_rejects_wins(here):
    destinations, start, _ = here
    sandbox = start()
    destinations.make_rule("*.example.org", 443, "approve", ME)
    destinations.make_rule("bad.example.org", 443, "reject", ME)
    with pytest.raises(DestinationRuleExists):
        destinations.make_rule("*.example.org", 443, "reject", ME)
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
        destinations.make_rule(pattern, 443, "approve", ME)


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
        destinations.decide(item, "approve", "conversation", ME)
    expire(destinations, sandbox)
    assert destinations.verdict(sandbox, NAME, 443).asked
    with pytest.raises(DestinationChanged):
        destinations.decide(item, "approve", "conversation", ME)


def test_the_first_decision_wins(here):
    destinations, start, _ = here
    sandbox = start()
    destinations.verdict(sandbox, NAME, 443)
    [item] = destinations.waiting()
    destinations.decide(item, "reject", "conversation", ME)
    with pytest.raises(DestinationChanged):
        destinations.decide(item, "approve", "conversation", YOU)
    assert destinations.verdict(sandbox, NAME, 443).reason.endswith("a person rejected it")


def test_a_late_decision_makes_no_rule(here):
    destinations, start, _ = here
    sandbox = start()
    destinations.verdict(sandbox, NAME, 443)
    [item] = destinations.waiting()
    destinations.decide(item, "reject", "conversation", ME)
    with pytest.raises(DestinationChanged):
        destinations.decide(item, "approve", "always", YOU)
    assert destinations.rules() == []
    assert not destinations.verdict(sandbox, NAME, 443).is_allowed


def test_what_a_rule_decides_waits_in_no_sandbox(here):
    destinations, start, _ = here
    first, second = start(), start()
    for sandbox in (first, second):
        destinations.verdict(sandbox, NAME, 443)
    destinations.decide(destinations.waiting(first)[0], "approve", "always", ME)
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
        destinations.decide(destinations.waiting(sandbox)[0], "approve", "conversation", ME)
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


def test_what_is_reached_is_counted_by_name_and_beyond_the_bound_together(here, store):
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
    assert store.gauges.read().destinations["allowed"] == MOST_REACHED + 2


@pytest.fixture
def audited(here, store):
    """The entries of the audit about destinations of this test's sandboxes and rules, the oldest first."""
    destinations, _, _ = here

    def entries() -> list[dict]:
        destinations.close_over()
        days = destinations._redis.keys("{sandboxes}:audit:*")
        chains = sorted(f"destinations-{day.decode().rpartition(':')[2]}" for day in days)
        raws = []
        for chain in chains:
            found, following = store.approvals.audit.search(
                AuditFilter(chain=chain), descending=False, limit=1000, start=None
            )
            assert following is None
            raws += found
        verify(raw + b"\n" for raw in raws)
        return [json.loads(raw) for raw in raws]

    return entries


def said(entries: list[dict]) -> list[tuple[str, str, str]]:
    return [(one["actor"]["kind"], one["decision"], one["destination"]["name"]) for one in entries]


def test_the_audit_has_who_asked_and_who_decided_from_where(here, audited):
    destinations, start, _ = here
    sandbox = start()
    destinations.verdict(sandbox, NAME, 443, 'pip "é"')
    destinations.verdict(sandbox, NAME, 443, "pip")
    [item] = destinations.waiting()
    destinations.decide(item, "approve", "conversation", YOU, "Needed \u2028 today")
    asked, decided = audited()
    where = {"name": NAME, "port": 443, "sandbox_id": sandbox}
    assert asked["destination"] == {**where, "program": 'pip "é"'}
    assert asked["actor"] == {"kind": "sandbox", "name": sandbox, "address": ""}
    assert decided["destination"] == where
    assert decided["actor"] == {"kind": "key", "name": "you", "address": "10.0.0.9"}
    assert (decided["decision"], decided["scope"]) == ("approve", "conversation")
    assert decided["reason"] == "Needed \u2028 today"
    assert asked["digests"] == decided["digests"] == [item.digest]


def test_the_audit_has_rules_that_were_made_and_revoked_and_what_they_decided(here, audited):
    destinations, start, _ = here
    first, second = start(), start()
    for sandbox in (first, second):
        destinations.verdict(sandbox, NAME, 443)
    rule = destinations.decide(destinations.waiting(first)[0], "reject", "always", ME)
    assert destinations.waiting() == []
    destinations.revoke(rule.id, YOU)
    entries = audited()
    assert said(entries) == [
        ("sandbox", "asked", NAME),
        ("sandbox", "asked", NAME),
        ("key", "rule_made", NAME),
        ("key", "reject", NAME),
        ("rule", "reject", NAME),
        ("key", "rule_revoked", NAME),
    ]
    assert {one["rule_id"] for one in entries[2:]} == {rule.id}
    assert entries[4]["destination"]["sandbox_id"] == second
    assert entries[5]["actor"]["name"] == "you"


def test_a_refused_try_is_audited_once_a_day_for_each_name_and_sandbox(here, audited):
    destinations, start, _ = here
    sandbox, other = start(), start()
    destinations.make_rule(NAME, 443, "reject", ME)
    for one in (sandbox, sandbox, other):
        destinations.verdict(one, NAME, 443)
    assert said(audited())[1:] == [("sandbox", "refused", NAME)] * 2


def test_names_whose_refusals_are_audited_are_bounded(here, audited, monkeypatch):
    monkeypatch.setattr("store.destinations.MOST_REFUSALS", 3)
    destinations, start, _ = here
    sandbox = start()
    destinations.make_rule("*.example.org", 443, "reject", ME)
    for number in range(9):
        destinations.verdict(sandbox, f"n{number}.example.org", 443)
    assert 3 <= sum(one["decision"] == "refused" for one in audited()) <= 4


def test_a_deadline_is_audited_though_nobody_looks(here, audited, monkeypatch):
    destinations, start, _ = here
    monkeypatch.setattr(destinations, "_span", 1)
    sandbox = start()
    destinations.verdict(sandbox, NAME, 443)
    assert destinations.close_over() == 1
    assert destinations.close_over() == 0
    assert said(audited()) == [("sandbox", "asked", NAME), ("expiry", "reject", NAME)]
    assert destinations.waiting() == []


def test_what_waits_as_its_sandbox_ends_is_audited_as_deleted(here, audited):
    destinations, start, sandboxes = here
    sandbox = start()
    destinations.verdict(sandbox, NAME, 443)
    sandboxes.ask(sandbox, "delete")
    sandboxes.report(sandbox, "h", "supervisor", "GONE")
    assert said(audited()) == [("sandbox", "asked", NAME), ("deletion", "deleted", NAME)]


def test_what_a_killed_process_left_is_noted_once(here, audited, store):
    destinations, start, _ = here
    sandbox = start()
    destinations.verdict(sandbox, "a.example.org", 443)
    noted = destinations._redis.xlen("{approvals}:stream")
    destinations.note = lambda: None
    try:
        destinations.verdict(sandbox, NAME, 443)
    finally:
        del destinations.note
    assert destinations._redis.xlen("{sandboxes}:unnoted") == 1
    stored = destinations._redis.xrange("{sandboxes}:unnoted")
    destinations.close_over()
    assert destinations._redis.xlen("{approvals}:stream") == noted + 1
    destinations._redis.delete("{sandboxes}:unnoted")
    destinations._redis.xadd("{sandboxes}:unnoted", stored[0][1], id="0-1")  # an earlier place: it was noted
    destinations.note()
    assert destinations._redis.xlen("{approvals}:stream") == noted + 1


def test_a_sandbox_asks_a_bounded_number_of_times_a_day(here, monkeypatch):
    assert MOST_ASKED == 500
    monkeypatch.setattr("store.destinations.MOST_ASKED", 2)
    destinations, start, _ = here
    sandbox = start()
    said = [destinations.verdict(sandbox, f"n{number}.example.org", 443) for number in range(3)]
    assert [one.asked for one in said] == [True, True, False]
    assert "this sandbox has asked 2 times today (MOST_ASKED)" in said[-1].reason


def test_a_repeated_request_does_not_remake_a_revoked_rule(here):
    destinations, _, _ = here
    seed = uuid4()
    enter(Attempt(seed))
    try:
        rule = destinations.make_rule(NAME, 443, "approve", ME)
        assert destinations.make_rule(NAME, 443, "approve", ME).id == rule.id
        destinations.revoke(rule.id, ME)
        destinations.revoke(rule.id, ME)  # a repeat of the same request
        with pytest.raises(DestinationRuleWasRevoked):
            destinations.make_rule(NAME, 443, "approve", ME)
    finally:
        enter(None)
    assert destinations.rules() == []


def test_pages_follow_each_other_without_a_gap(here):
    destinations, start, _ = here
    sandboxes = [start() for _ in range(3)]
    for number in range(9):
        destinations.verdict(sandboxes[number % 3], f"n{number}.example.org", 443)
    found, cursor = [], None
    while True:
        page, cursor = destinations.page(limit=2, start=cursor)
        found += [one.name for one in page]
        if cursor is None:
            break
    assert found == [f"n{number}.example.org" for number in range(9)]
    page, cursor = destinations.page(sandboxes[1], limit=2)
    rest, end = destinations.page(sandboxes[1], limit=2, start=cursor)
    assert ([one.name for one in page + rest], end) == ([f"n{number}.example.org" for number in (1, 4, 7)], None)


STEPS = st.lists(
    st.sampled_from(["ask", "once", "conversation", "always", "reject", "revoke", "expire", "end"]), max_size=12
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_a_try_passes_only_where_a_decision_that_holds_allows_it(here, steps):
    destinations, start, sandboxes = here
    for rule in destinations.rules():
        destinations.revoke(rule.id, ME)
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
            destinations.decide(waiting[0], decision, scope, ME)
            state, ruled = (None if step == "always" else step), ruled or step == "always"
        elif step == "revoke":
            for rule in destinations.rules():
                destinations.revoke(rule.id, ME)
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
