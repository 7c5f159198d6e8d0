"""What sandboxes spend on models: counted by sandbox, by key and in all by day, and by model."""

import json
from datetime import date

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from admin.audit import verify
from core import wire
from core.prices import SPENT_DAYS, Budgets, ModelBudget, Prices, Used
from core.wire import utc_time
from egress.spending import Accounts, OverBudget
from store.approvals.audit import AuditFilter, DecisionActor
from store.destinations import BudgetScopeRefused, DestinationChanged, DestinationExpired, DestinationNotFound
from store.keys import SandboxKeys
from store.spending import MOST_MODEL, StoredSpending
from tests.conftest import limits_of
from tests.store.conftest import fresh_sandboxes, of_limits

USED = Used(input=60, output=10, cached=40, written=5)


@pytest.fixture
def here(redis_url):
    """A store without sandboxes and without what was spent, and a maker of sandboxes of a key."""
    sandboxes = fresh_sandboxes(redis_url, most=100)
    store = of_limits(redis_url, limits_of(100, False, 60, 120))

    def start(owner: str) -> str:
        sandbox = sandboxes.start("spec", owner=owner)
        assert sandboxes.claim("h") == sandbox.id
        assert sandboxes.report(sandbox.id, "h", "supervisor", "RUNNING", handle={}, urls=[], agent_url="http://agent")
        return sandbox.id

    return store, start


def book(store, sandbox, owner, used=USED, nanos=1000, model="gpt-5.5", label="gpt-5.5", estimated=0):
    store.spending.book(sandbox, owner, label, used, nanos, model=model, calls=1, estimated=estimated)


def test_a_call_is_counted_by_sandbox_by_key_and_by_day(here):
    store, start = here
    mine, other, anyones = start("me"), start("you"), start("")
    book(store, mine, "me"), book(store, mine, "me", estimated=1), book(store, other, "you", nanos=5000)
    book(store, anyones, "")

    once = StoredSpending(1, 0, 0, 60, 10, 40, 5, 115, 1000, 0)
    twice = StoredSpending(2, 0, 1, 120, 20, 80, 10, 230, 2000, 0)
    assert store.spending.of_sandbox(mine) == twice
    day = store.spending.of_day()
    assert [(owner, one.nanos) for owner, one in day.keys] == [("you", 5000), ("me", 2000), ("", 1000)]
    assert dict(day.keys)["me"] == twice
    assert dict(day.keys)[""] == once
    assert (day.all.calls, day.all.nanos, day.all.tokens) == (4, 8000, 4 * 115)
    assert store.spending.of_day(day.day) == day
    assert store.spending.of_day(day.day.replace(year=2020)).all == StoredSpending()

    account = store.spending.so_far(mine)
    assert account.owner == "me"
    assert [each.nanos for each in (account.conversation, account.key, account.day)] == [2000, 2000, 8000]
    assert account.day.tokens == 4 * 115
    assert store.gauges.read().models["gpt-5.5"].calls == 4


def test_what_has_no_price_is_counted_apart_and_named(here):
    store, start = here
    mine = start("me")
    book(store, mine, "me", nanos=None, model="secret/" + 300 * "x", label="other")
    book(store, mine, "me")

    spent = store.spending.of_sandbox(mine)
    assert (spent.unpriced, spent.tokens, spent.nanos) == (115, 230, 1000)
    account = store.spending.so_far(mine)
    assert [each.unpriced for each in (account.conversation, account.key, account.day)] == [115, 115, 115]
    assert account.key.model == ("secret/" + 300 * "x")[:MOST_MODEL]
    assert store.spending.so_far(start("you")).conversation.model == ""


def test_a_large_number_is_counted_to_the_last_digit(here):
    store, start = here
    mine = start("me")
    book(store, mine, "me", nanos=9_007_199_254_740_993)
    book(store, mine, "me", nanos=1)
    assert store.spending.of_sandbox(mine).nanos == 9_007_199_254_740_994


def test_what_a_sandbox_spent_ends_with_it_and_its_key_and_day_keep_it(here):
    store, start = here
    mine = start("me")
    book(store, mine, "me")
    store.sandboxes.ask(mine, "delete")
    assert store.sandboxes.report(mine, "h", "supervisor", "GONE")
    book(store, mine, "me")  # of a call that was under way

    assert store.spending.so_far(mine) is None
    assert not store.spending._redis.exists(SandboxKeys.spent(mine))
    day = store.spending.of_day()
    assert dict(day.keys)["me"].calls == 2
    ends = store.spending._redis.ttl(SandboxKeys.spent_on((day.day - date(1970, 1, 1)).days))
    assert SPENT_DAYS * 86_400 - 60 < ends <= SPENT_DAYS * 86_400


def test_a_refused_call_is_counted_and_the_first_of_a_day_is_audited(here):
    store, start = here
    mine = start("me")
    why = 'used up: 5 of 5 "tokens" (MODEL_BUDGET_DAY)'
    for setting in ("MODEL_BUDGET_DAY", "MODEL_BUDGET_DAY", "MODEL_BUDGET_KEY"):
        store.spending.refuse(mine, "me", setting, "api.example", 443, why)

    assert store.spending.of_sandbox(mine) == StoredSpending(refused=3)
    assert dict(store.spending.of_day().keys)["me"].refused == store.spending.of_day().all.refused == 3
    assert store.gauges.read().refused_calls == 3
    chain = AuditFilter(chain=f"destinations-{utc_time(wire.now())[:10]}")
    raws, _ = store.approvals.audit.search(chain, descending=False, limit=1000, start=None)
    verify(raw + b"\n" for raw in raws)
    entries = [json.loads(raw) for raw in raws]
    assert [(entry["decision"], entry["reason"]) for entry in entries] == [("refused", why), ("refused", why)]
    assert entries[0]["destination"] == {"name": "api.example", "port": 443, "sandbox_id": mine}


# asking for more

ME = DecisionActor("key", "me", "127.0.0.1")
CONVERSATION, KEY, DAY = "MODEL_BUDGET_CONVERSATION", "MODEL_BUDGET_KEY", "MODEL_BUDGET_DAY"
HUNDRED = ModelBudget(tokens=100)


def accounts_of(store, **budgets) -> Accounts:
    return Accounts(store.spending, Budgets(**budgets), Prices())


def spend(accounts, sandbox, owner="me", tokens=100):
    accounts.book(sandbox, owner, "mine", Used(tokens), calls=1, estimated=0)


def refused(accounts, sandbox) -> str:
    """The sentence of the refusal of a call."""
    with pytest.raises(OverBudget) as over:
        accounts.admit(sandbox, "127.0.0.1", 11434)
    return str(over.value)


def admitted(accounts, sandbox) -> bool:
    try:
        accounts.admit(sandbox, "127.0.0.1", 11434)
    except OverBudget:
        return False
    return True


def asked(store, sandbox=""):
    """What waits, which is a single budget."""
    [item] = store.destinations.waiting(sandbox)
    assert item.subject == item.shown["subject"] == "budget"
    assert item.name is item.port is None
    return item


def have_ended(store, asker: str, at: str) -> None:
    """Have what an asker waits for, or what holds for a while, be over."""
    key = f"{{sandboxes}}:asked:{asker}"
    item = json.loads(store.destinations._redis.hget(key, at))
    over = str(wire.now() - 1_000_000)
    store.destinations._redis.hset(key, at, json.dumps(item | {"until_at": over}))
    store.destinations._redis.zadd("{sandboxes}:asking_due", {f"{asker} {at}": over}, xx=True)


def test_a_refused_call_asks_once_for_its_budget_and_an_approval_adds_the_same_amount(here):
    store, start = here
    mine = start("me")
    accounts = accounts_of(store, conversation=HUNDRED)
    spend(accounts, mine)
    first, second = refused(accounts, mine), refused(accounts, mine)
    assert first == second
    assert first.endswith("; a person was asked to allow as much once more; try again when it is")
    item = asked(store, mine)
    assert (item.sandbox_id, item.tries) == (mine, 2)
    shown = {"setting": CONVERSATION, "key_id": None, "day": None, "dollars": None, "tokens": 100}
    assert item.shown["budget"] == shown

    assert store.destinations.decide(item, "approve", "once", ME) is None
    assert store.destinations.waiting() == []
    assert admitted(accounts, mine)
    assert store.spending.of_sandbox(mine).allowed_tokens == 100
    spend(accounts, mine, tokens=99)
    assert admitted(accounts, mine)
    spend(accounts, mine, tokens=1)
    assert "200 of 200 tokens" in refused(accounts, mine)
    assert asked(store).digest != item.digest
    with pytest.raises(DestinationChanged):
        store.destinations.decide(item, "approve", "once", ME)


def test_a_budget_of_a_key_is_asked_for_once_by_all_its_sandboxes_and_is_no_other_keys(here):
    store, start = here
    one, other, yours = start("me"), start("me"), start("you")
    accounts = accounts_of(store, key=ModelBudget(nanos=1_500_000_000, tokens=100))
    spend(accounts, one), spend(accounts, yours, "you")
    refused(accounts, one), refused(accounts, other)
    item = asked(store, one)
    day = store.spending.of_day().day.isoformat()
    budget = {"setting": KEY, "key_id": "me", "day": day, "dollars": 1.5, "tokens": 100}
    assert (item.tries, item.shown["budget"]) == (2, budget)
    assert item.shown["expires_at"] > day  # with the day at the latest
    assert store.destinations.waiting(other) == [item]  # its calls were refused too
    assert store.destinations.waiting(yours) == []

    refused(accounts, yours)
    store.destinations.decide(item, "approve", "once", ME)
    assert admitted(accounts, one)
    assert admitted(accounts, other)
    assert not admitted(accounts, yours)
    assert asked(store).budget.key_id == "you"
    by_key = dict(store.spending.of_day().keys)
    assert (by_key["me"].allowed_nanos, by_key["me"].allowed_tokens) == (1_500_000_000, 100)
    assert by_key["you"].allowed_tokens == store.spending.of_day().all.allowed_tokens == 0


def test_a_rejected_budget_stays_closed_for_its_owner(here):
    store, start = here
    mine, yours = start("me"), start("you")
    accounts = accounts_of(store, day=HUNDRED)
    spend(accounts, mine)
    refused(accounts, mine)
    item = asked(store)
    store.destinations.decide(item, "reject", "conversation", ME, "Enough")
    for sandbox in (mine, yours):
        assert refused(accounts, sandbox).endswith("; a person was asked for more, and rejected it")
    assert store.destinations.waiting() == []
    with pytest.raises(DestinationChanged):
        store.destinations.decide(item, "approve", "once", ME)
    assert store.spending.of_day().all.allowed_tokens == 0


def test_a_budget_is_not_allowed_always(here):
    store, start = here
    mine = start("me")
    accounts = accounts_of(store, day=HUNDRED)
    spend(accounts, mine)
    refused(accounts, mine)
    for wrong in (("approve", "always"), ("approve", "conversation"), ("reject", "always"), ("reject", "once")):
        with pytest.raises(BudgetScopeRefused, match=r"always is not offered, .* MODEL_BUDGET_DAY"):
            store.destinations.decide(asked(store), *wrong, ME)


def test_a_budget_expires_as_a_destination_does_and_is_asked_for_again(here):
    store, start = here
    mine = start("me")
    accounts = accounts_of(store, conversation=HUNDRED)
    spend(accounts, mine)
    refused(accounts, mine)
    item = asked(store)
    have_ended(store, *item.place)
    assert store.destinations.waiting() == []
    assert "nobody answered in time" in refused(accounts, mine)
    with pytest.raises(DestinationExpired):
        store.destinations.decide(item, "approve", "once", ME)
    have_ended(store, *item.place)
    assert "a person was asked to allow" in refused(accounts, mine)
    assert asked(store).digest != item.digest


def test_what_a_person_cannot_mend_asks_nobody(here):
    store, start = here
    mine = start("me")
    accounts = accounts_of(store, day=ModelBudget(nanos=1_000_000_000))
    spend(accounts, mine)  # of a model whose price is not known
    assert "a person" not in refused(accounts, mine)
    assert store.destinations.waiting() == []


def test_a_refusal_that_an_approval_or_a_new_day_has_overtaken_asks_nobody(here):
    store, start = here
    mine = start("me")
    accounts = accounts_of(store, day=HUNDRED)
    spend(accounts, mine)
    account = store.spending.so_far(mine)
    refused(accounts, mine)
    store.destinations.decide(asked(store), "approve", "once", ME)
    late = {"more": HUNDRED, "day": account.today, "allowed": (0, 0)}
    for words in (late, late | {"day": account.today - 1, "allowed": (0, 100)}):
        assert "try again" in store.spending.refuse(mine, "me", DAY, "127.0.0.1", 1, "why", **words)
        assert store.destinations.waiting() == []


def test_a_storm_of_what_waits_says_that_nobody_was_asked(here, monkeypatch):
    store, start = here
    mine = start("me")
    accounts = accounts_of(store, day=HUNDRED)
    spend(accounts, mine)
    monkeypatch.setattr("store.spending.MOST_ASKING", 1)
    store.destinations.verdict(mine, "example.org", 443)
    assert "nobody was asked for more" in refused(accounts, mine)
    assert "(MOST_ASKING)" in refused(accounts, mine)
    assert [one.subject for one in store.destinations.waiting()] == ["destination"]


def test_a_budget_of_a_conversation_ends_with_its_sandbox(here):
    store, start = here
    mine = start("me")
    accounts = accounts_of(store, conversation=HUNDRED)
    spend(accounts, mine)
    refused(accounts, mine)
    item = asked(store)
    store.sandboxes.ask(mine, "delete")
    assert store.sandboxes.report(mine, "h", "supervisor", "GONE")
    assert store.destinations.waiting() == []
    with pytest.raises(DestinationNotFound):
        store.destinations.decide(item, "approve", "once", ME)
    assert store.destinations.close_over() == 1
    assert audited(store)[-1] == ("deletion", "deleted", {"sandbox_id": mine, "setting": CONVERSATION}, [item.digest])


def audited(store):
    """Who did what about budgets: the entries of today's chain, which verifies."""
    chain = AuditFilter(chain=f"destinations-{utc_time(wire.now())[:10]}")
    raws, _ = store.approvals.audit.search(chain, descending=False, limit=1000, start=None)
    verify(raw + b"\n" for raw in raws)
    found = [json.loads(raw) for raw in raws]
    return [(one["actor"]["kind"], one["decision"], one["budget"], one["digests"]) for one in found if "budget" in one]


def test_each_step_of_a_budget_is_audited_in_the_chain_of_the_day(here):
    store, start = here
    mine = start("me")
    accounts = accounts_of(store, key=HUNDRED)
    spend(accounts, mine)
    refused(accounts, mine)
    first = asked(store)
    store.destinations.decide(first, "approve", "once", ME, "Go on")
    spend(accounts, mine)
    refused(accounts, mine)
    second = asked(store)
    have_ended(store, *second.place)
    assert store.destinations.close_over() == 1
    assert store.destinations.close_over() == 0
    budget = {"key_id": "me", "sandbox_id": mine, "setting": KEY}
    assert audited(store)[-4:] == [
        ("sandbox", "asked", budget, [first.digest]),
        ("key", "approve", budget, [first.digest]),
        ("sandbox", "asked", budget, [second.digest]),
        ("expiry", "reject", budget, [second.digest]),
    ]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("call"), st.integers(0, 2), st.integers(1, 60)),
        st.tuples(st.sampled_from(["approve", "reject", "expire"]), st.integers(0, 3), st.just(0)),
    ),
    max_size=40,
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_no_more_is_spent_than_was_allowed_and_is_under_way_whatever_comes_in_which_order(here, redis_url, steps):
    fresh_sandboxes(redis_url, most=100)
    store, start = here
    owners, caps = ("me", "me", "you"), {CONVERSATION: 100, KEY: 150, DAY: 200}
    boxes = [start(owner) for owner in owners]
    accounts = accounts_of(
        store, **dict(zip(Budgets._fields, map(ModelBudget, 3 * [None], caps.values()), strict=True))
    )
    spent, times = {}, {}
    for verb, number, tokens in steps:
        waiting = store.destinations.waiting()
        if verb == "call":
            mine = [(CONVERSATION, boxes[number]), (KEY, owners[number]), (DAY, None)]
            has_room = all(spent.get(one, 0) < caps[one[0]] * (1 + times.get(one, 0)) for one in mine)
            assert admitted(accounts, boxes[number]) is has_room
            if has_room:  # it is under way, and uses at most 60
                spend(accounts, boxes[number], owners[number], tokens)
                spent |= {one: spent.get(one, 0) + tokens for one in mine}
        elif waiting:
            item = waiting[number % len(waiting)]
            if verb == "expire":
                have_ended(store, *item.place)
            else:
                store.destinations.decide(item, verb, "once" if verb == "approve" else "conversation", ME)
            if verb == "approve":
                whose = {CONVERSATION: item.sandbox_id, KEY: item.budget.key_id, DAY: None}[item.budget.setting]
                times[item.budget.setting, whose] = times.get((item.budget.setting, whose), 0) + 1
        places = [one.place for one in store.destinations.waiting()]
        assert len(places) == len(set(places)) <= len(boxes) + 3
    for of, total in spent.items():
        assert total < caps[of[0]] * (1 + times.get(of, 0)) + 60
