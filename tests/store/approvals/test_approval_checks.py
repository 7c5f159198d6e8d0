"""Supervisors find what is due to expire, and what a killed worker did not index."""

import pytest

from store.approvals.approval_checks import PART
from store.approvals.audit import SERVER, Actor
from store.approvals.decisions import Decision
from tests.conftest import action, as_events, observation
from tests.store.conftest import shown, told

ALICE = Actor("key", "alice")


@pytest.fixture
def sweep(store, index):
    """Sweep until every conversation was compared."""

    def do() -> None:
        index.hset("{approvals}:sweep", mapping={"created": "", "id": ""})
        while True:
            index.hdel("{approvals}:sweep", "at")
            store.approval_checks.sweep()
            if index.hget("{approvals}:sweep", "id") == b"":
                return

    return do


def expire(index, conversation: str) -> None:
    """Let the index say that the deadline of a conversation has passed."""
    index.zadd("{approvals}:due", {conversation: 1})


def test_a_conversation_is_due_once_the_deadline_of_its_first_action_has_passed(store, index, begin):
    conversation = begin(action())
    assert store.approval_checks.due() == []
    expire(index, conversation)
    assert store.approval_checks.due() == [conversation]


def test_many_that_are_due_are_all_taken_in_the_end(store, index):
    ids = {f"{number:036}" for number in range(350)}
    index.zadd("{approvals}:due", dict.fromkeys(ids, 1))
    index.zadd("{approvals}:due", {"later": 4e15})

    found = set()
    while len(found) < len(ids):
        found |= set(store.approval_checks.due())
    assert found == ids


def test_the_sweep_finds_an_action_that_was_never_indexed(store, begin, killed, sweep):
    one = action()
    with killed:
        begin(one)
    assert shown(store) == []
    sweep()
    assert one["id"] in shown(store)


def test_the_sweep_finds_a_decision_that_was_never_indexed(store, index, begin, killed, sweep):
    conversation = begin(action())
    with killed:
        store.confirmations.decide(conversation, accept=True, reason="", actor=ALICE)
    sweep()
    assert [kind for kind, _ in told(index, conversation)] == ["opened", "decided"]


def test_the_sweep_finds_a_deletion_that_was_never_indexed(store, index, begin, killed, sweep):
    conversation = begin(action())
    with killed:
        store.conversations.delete(conversation)
    sweep()
    assert [kind for kind, _ in told(index, conversation)] == ["opened", "decided"]
    assert not index.exists(f"{{approvals}}:of:{conversation}")


def test_the_sweep_finds_an_entry_of_a_former_life_of_an_id(store, index, begin, killed, sweep):
    conversation = begin(action())
    index.delete(f"conv:{{{conversation}}}:pending")
    with killed:
        store.conversations.delete(conversation)
        store.conversations.create(conversation)
    sweep()
    assert not index.exists(f"{{approvals}}:of:{conversation}")
    assert [kind for kind, _ in told(index, conversation)] == ["opened", "closed"]


def test_the_sweep_forgets_a_conversation_whose_audit_has_expired(store, index, begin, sweep):
    conversation = begin(action())
    store.conversations.delete(conversation)
    index.delete(f"conv:{{{conversation}}}:audit")
    sweep()
    assert not index.hexists("{approvals}:noted", conversation)
    assert index.zscore("{approvals}:checks", conversation) is None


def test_the_sweep_settles_nothing_where_the_index_is_right(store, begin, sweep, monkeypatch):
    for _ in range(3):
        conversation = begin(action())
    store.confirmations.decide(conversation, accept=True, reason="", actor=ALICE)
    store.conversations.delete(conversation)
    sweep()

    monkeypatch.setattr(type(store.inbox), "settle", lambda *_: pytest.fail("settled"))
    sweep()


def test_all_supervisors_together_take_one_part_of_the_sweep_each_second(store, index, begin, monkeypatch):
    begin(action())
    store.approval_checks.sweep()
    monkeypatch.setattr(type(store.approval_checks), "_wrong", lambda *_: pytest.fail("compared"))
    index.hset("{approvals}:sweep", "at", 4_000_000_000_000_000)
    store.approval_checks.sweep()


def test_parts_of_the_sweep_rotate_over_the_index(store, index, monkeypatch):
    ids = {f"{number:08}-0000-4000-8000-000000000000" for number in range(2 * PART)}
    index.zadd("{approvals}:checks", dict.fromkeys(ids, 1))
    compared: list[str] = []
    monkeypatch.setattr(type(store.approval_checks), "_wrong", lambda _, among: compared.extend(among) or [])
    for _ in range(2):
        index.hdel("{approvals}:sweep", "at")
        store.approval_checks.sweep()
    assert ids <= set(compared)


def test_the_sweep_leaves_what_is_right(store, begin, sweep):
    ids = []
    for _ in range(3):
        ids.append(action())
        begin(ids[-1])
    sweep()
    assert {one["id"] for one in ids} <= set(shown(store))


@pytest.mark.parametrize("verb", ["approve", "expire"])
def test_a_conversation_goes_on_with_what_is_decided_where_its_agent_ended_the_last_action_by_itself(
    store, begin, verb
):
    first, second = action(), action()
    conversation = begin(first, second)
    store.confirmations.decide_each(conversation, [Decision(first["id"], "approve")], SERVER)
    store.events.append(conversation, as_events([observation(second)]))
    assert conversation in store.approval_checks.due()

    if verb == "expire":
        store.confirmations.expire(conversation)
    else:
        assert not store.confirmations.decide(conversation, accept=True, reason="")
    store.inbox.settle(conversation)

    assert store.conversations.get(conversation)["execution_status"] == "running"
    assert [one["action_id"] for one in store.confirmations.decided(conversation)] == [first["id"]]
    assert conversation not in store.approval_checks.due()
