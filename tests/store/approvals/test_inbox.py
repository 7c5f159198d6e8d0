"""The inbox shows what each conversation says; every change is in its stream and its outbox once."""

import json
from collections import Counter

import pytest

from store.approval_keys import audit_member
from store.approvals.audit import Actor
from store.approvals.decisions import Decision
from store.approvals.inbox import Filter
from tests.conftest import action, as_events, message, observation, status
from tests.store.conftest import ALWAYS, WAITING, shown, told

ALICE = Actor("key", "alice")


def only(store, **filters):
    [item] = store.inbox.page(Filter(**filters), descending=False, limit=1000, start=None)[0]
    return item


def test_an_action_that_waits_is_shown_with_what_a_person_needs(store, begin):
    one = action(
        "rm -r build",
        summary="Removes the build folder",
        thought=[{"type": "text", "text": "It is stale."}, {"type": "text", "text": "So it goes."}],
        security_risk="HIGH",
    )
    conversation = begin(one, title="Build", tags={"team": "web"})

    item = only(store)
    assert (item.conversation_id, item.conversation_title, item.action_id) == (conversation, "Build", one["id"])
    assert (item.tool_name, item.summary) == ("terminal", "Removes the build folder")
    assert item.thought == "It is stale.\nSo it goes."
    assert (item.security_risk, item.arguments) == ("HIGH", {"command": "rm -r build"})
    assert (item.sandbox_id, item.can, item.decided_together) == (None, ["approve", "reject"], False)
    assert item.digest == store.confirmations.read_approvals(conversation).pending[0]["digest"]
    assert item.expires_at is None
    assert item.since.endswith("Z")


def test_in_a_sandbox_what_waits_is_decided_together_unless_its_agent_says_otherwise(store, begin):
    begin(action(), status(WAITING), sandbox_id="box", app={})
    assert only(store).decided_together
    assert only(store).sandbox_id == "box"


@pytest.mark.parametrize("end", ["approve", "reject", "run", "message", "delete"])
def test_whatever_ends_the_wait_takes_the_action_out_and_is_told_once(store, index, begin, end):
    one = action()
    conversation = begin(one)
    match end:
        case "approve" | "reject":
            store.confirmations.decide(conversation, accept=end == "approve", reason="no", actor=ALICE)
        case "run":
            store.conversations.change_status(conversation, "run")
        case "message":
            store.events.send(conversation, content=[{"type": "text", "text": "Stop"}], run=False)
        case "delete":
            store.conversations.delete(conversation)

    assert shown(store) == []
    assert told(index) == [("opened", one["id"]), ("decided", one["id"])]
    assert not index.exists("{approvals}:waiting", "{approvals}:items", f"{{approvals}}:of:{conversation}")


def test_each_action_of_a_group_is_told_when_it_is_decided(store, index, begin):
    first, second = action("ls"), action("pwd")
    second["llm_response_id"] = first["llm_response_id"]
    conversation = begin(first, second)
    store.confirmations.decide_each(conversation, [Decision(first["id"], "reject", "no")], ALICE)
    assert shown(store) == [second["id"]]

    store.confirmations.decide_each(conversation, [Decision(second["id"], "approve")], ALICE)
    assert shown(store) == []
    names = [(kind, one) for kind, one in told(index) if kind == "decided"]
    assert names == [("decided", first["id"]), ("decided", second["id"])]


def test_a_decided_action_comes_with_its_entry_of_the_audit(store, index, begin):
    conversation = begin(action())
    store.confirmations.decide(conversation, accept=False, reason="too bold", actor=ALICE)

    [(_, opened), (_, decided)] = index.xrange("{approvals}:stream")
    assert json.loads(decided[b"entry"]) == json.loads(store.audit.of(conversation, limit=9)[0])
    assert {name: opened[name] for name in (b"seq", b"since")} == {name: decided[name] for name in (b"seq", b"since")}
    assert index.zrange("{approvals}:audit", 0, -1) == [audit_member(conversation, 1).encode()]


def test_an_action_that_its_agent_observes_unasked_is_taken_out(store, index, begin):
    one = action()
    conversation = begin(one)
    store.events.append(conversation, as_events([status("running"), observation(one)]))

    assert shown(store) == []
    assert len(told(index)) == 2


def test_a_fork_of_a_waiting_conversation_waits_for_nothing(store, index, begin):
    one = action()
    conversation = begin(one)
    store.forks.fork(conversation)
    assert shown(store) == [one["id"]]
    assert len(told(index)) == 1


def test_an_id_that_is_used_again_shows_the_later_conversation(store, index, begin):
    first = action("ls")
    conversation = begin(first)
    store.conversations.delete(conversation)
    second = {**action("pwd"), "id": first["id"]}
    begin(second, conversation_id=conversation)

    assert only(store).arguments == {"command": "pwd"}
    assert [kind for kind, _ in told(index)] == ["opened", "decided", "opened"]


def test_a_reader_leaves_out_an_action_that_was_decided_and_settles_it(store, index, begin, killed):
    one = action()
    conversation = begin(one)
    with killed:
        store.confirmations.decide(conversation, accept=True, reason="", actor=ALICE)
    assert told(index) == [("opened", one["id"])]

    assert shown(store) == []
    assert told(index) == [("opened", one["id"]), ("decided", one["id"])]
    assert index.zcard("{approvals}:waiting") == 0


def test_a_reader_leaves_out_what_was_deleted_and_settles_it(store, index, begin, killed):
    one = action()
    conversation = begin(one)
    with killed:
        store.conversations.delete(conversation)

    assert shown(store) == []
    assert told(index)[1:] == [("decided", one["id"])]


def test_a_reader_leaves_out_an_action_of_an_earlier_life_of_the_id(store, index, begin, killed):
    one = action("ls")
    conversation = begin(one)
    with killed:
        store.conversations.delete(conversation)
        store.conversations.create(conversation, confirmation_policy=ALWAYS)
    assert shown(store) == []

    store.events.append(conversation, as_events([{**action("pwd"), "id": one["id"]}]))
    assert only(store).arguments == {"command": "pwd"}
    assert [kind for kind, _ in told(index)] == ["opened", "decided", "opened"]


def test_an_action_that_was_decided_before_the_index_knew_of_it_is_never_shown(store, index, begin, killed):
    with killed:
        conversation = begin(action())
    store.confirmations.decide(conversation, accept=True, reason="", actor=ALICE)

    assert told(index) == []
    assert index.zrange("{approvals}:audit", 0, -1) == [audit_member(conversation, 1).encode()]


def test_notes_that_come_out_of_order_leave_the_newest(store, index, begin, monkeypatch):
    one = action()
    conversation = begin(one)
    read = store.confirmations.read_approvals
    stale = read(conversation, 0)
    store.confirmations.decide(conversation, accept=True, reason="", actor=ALICE)

    with monkeypatch.context() as patched:
        patched.setattr(type(store.confirmations), "read_approvals", lambda *_: stale)
        store.inbox.settle(conversation)
    assert index.zcard("{approvals}:waiting") == 0
    assert told(index) == [("opened", one["id"]), ("decided", one["id"])]


def test_any_number_of_settlements_tell_once(store, index, begin):
    one = action()
    conversation = begin(one)
    for _ in range(3):
        store.inbox.settle(conversation)
    store.confirmations.decide(conversation, accept=True, reason="", actor=ALICE)
    for _ in range(3):
        store.inbox.settle(conversation)
    assert told(index) == [("opened", one["id"]), ("decided", one["id"])]


def test_more_audit_entries_than_one_note_takes_are_all_indexed(store, index, begin, killed):
    conversation = begin(action())
    with killed:
        for _ in range(120):
            store.confirmations.decide(conversation, accept=False, reason="", actor=ALICE)
            store.events.append(conversation, as_events([action()]))
        store.confirmations.decide(conversation, accept=False, reason="", actor=ALICE)

    store.inbox.settle(conversation)
    members = [one.decode().split()[1] for one in index.zrange("{approvals}:audit", 0, -1)]
    assert sorted(map(int, members)) == list(range(1, 122))
    assert Counter(kind for kind, _ in told(index)) == {"opened": 1, "decided": 1}


def test_a_conversation_whose_audit_has_expired_is_forgotten(store, index, begin):
    conversation = begin(action())
    store.conversations.delete(conversation)
    index.delete(f"conv:{{{conversation}}}:audit")

    store.inbox.settle(conversation)
    assert not index.hexists("{approvals}:noted", conversation)
    assert index.zscore("{approvals}:checks", conversation) is None


def test_the_audit_of_a_later_life_is_indexed_from_its_beginning(store, index, begin):
    conversation = begin(action())
    store.conversations.delete(conversation)
    index.delete(f"conv:{{{conversation}}}:audit", "{approvals}:audit")

    begin(action(), conversation_id=conversation)
    store.confirmations.decide(conversation, accept=True, reason="", actor=ALICE)
    assert index.zrange("{approvals}:audit", 0, -1) == [audit_member(conversation, 1).encode()]


def test_the_stream_names_the_entry_by_which_an_action_was_opened(store, index, begin):
    begin(action())
    [(entry, _)] = index.xrange("{approvals}:stream")
    assert only(store).opened == entry.decode()


def test_a_message_of_a_user_takes_nothing_in(store, begin):
    begin(message("hello"))
    assert shown(store) == []


def test_actions_that_the_recovery_drops_are_closed_without_a_decision(store, index, begin):
    first, second = action("ls"), action("pwd")
    conversation = begin(first, second, status(WAITING), sandbox_id="box", app={})
    store.confirmations.drop(conversation, [first["id"]])

    assert shown(store) == [second["id"]]
    assert told(index)[2:] == [("closed", first["id"])]


def test_an_action_that_the_recovery_opens_again_is_told_as_opened_again(store, index, begin):
    one = action()
    conversation = begin(one, status(WAITING), sandbox_id="box", app={})
    store.confirmations.reopen(conversation, [])
    assert shown(store) == []

    store.confirmations.reopen(conversation, as_events([one]))
    assert shown(store) == [one["id"]]
    assert told(index) == [("opened", one["id"]), ("closed", one["id"]), ("opened", one["id"])]


def test_a_settlement_ends_where_a_later_state_was_noted_before_the_audit_was(store, index, begin, killed):
    conversation = begin(action())
    with killed:
        for _ in range(101):
            store.confirmations.decide(conversation, accept=False, reason="", actor=ALICE)
            store.events.append(conversation, as_events([action()]))
    index.hset("{approvals}:noted", conversation, f"{10**17} 0")

    store.inbox.settle(conversation)

    assert index.hget("{approvals}:noted", conversation).decode() == f"{10**17} 0"
