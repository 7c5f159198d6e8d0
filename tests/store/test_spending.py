"""What sandboxes spend on models: counted by sandbox, by key and in all by day, and by model."""

import json
from datetime import date

import pytest

from admin.audit import verify
from core import wire
from core.bounds import Limits
from core.prices import SPENT_DAYS, Used
from core.wire import utc_time
from store.approvals.audit import AuditFilter
from store.keys import SandboxKeys
from store.spending import MOST_MODEL, Spending
from tests.store.conftest import fresh_sandboxes, of_limits

USED = Used(input=60, output=10, cached=40, written=5)


@pytest.fixture
def here(redis_url):
    """A store without sandboxes and without what was spent, and a maker of sandboxes of a key."""
    sandboxes = fresh_sandboxes(redis_url, most=100)
    store = of_limits(redis_url, Limits(100, False, 60, 120))

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

    once = Spending(1, 0, 0, 60, 10, 40, 5, 115, 1000, 0)
    twice = Spending(2, 0, 1, 120, 20, 80, 10, 230, 2000, 0)
    assert store.spending.of_sandbox(mine) == twice
    day = store.spending.of_day()
    assert [(owner, one.nanos) for owner, one in day.keys] == [("you", 5000), ("me", 2000), ("", 1000)]
    assert dict(day.keys)["me"] == twice
    assert dict(day.keys)[""] == once
    assert (day.all.calls, day.all.nanos, day.all.tokens) == (4, 8000, 4 * 115)
    assert store.spending.of_day(day.day) == day
    assert store.spending.of_day(day.day.replace(year=2020)).all == Spending()

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

    assert store.spending.of_sandbox(mine) == Spending(refused=3)
    assert dict(store.spending.of_day().keys)["me"].refused == store.spending.of_day().all.refused == 3
    assert store.gauges.read().refused_calls == 3
    chain = AuditFilter(chain=f"destinations-{utc_time(wire.now())[:10]}")
    raws, _ = store.approvals.audit.search(chain, descending=False, limit=1000, start=None)
    verify(raw + b"\n" for raw in raws)
    entries = [json.loads(raw) for raw in raws]
    assert [(entry["decision"], entry["reason"]) for entry in entries] == [("refused", why), ("refused", why)]
    assert entries[0]["destination"] == {"name": "api.example", "port": 443, "sandbox_id": mine}
