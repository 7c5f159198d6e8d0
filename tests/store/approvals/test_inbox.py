"""The inbox shows what each conversation says; every change is in its stream and its outbox once."""

import json
from collections import Counter

import pytest

from core.wire import now
from store.approvals.audit import SERVER, DecisionActor, audit_member
from store.approvals.decisions import Decision
from store.approvals.inbox import PART, InboxFilter
from store.keys import ConversationKeys
from tests.conftest import action, as_events, message, observation, status
from tests.store.conftest import ALWAYS, WAITING, shown, told

ALICE = DecisionActor("key", "alice")


def only(store, **filters):
    [item] = store.approvals.inbox.page(InboxFilter(**filters), descending=False, limit=1000, start=None)[0]
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
    assert item.digest == store.approvals.index.read_approvals(conversation).pending[0]["digest"]
    assert item.expires_at is None
    assert item.since.endswith("Z")


def test_in_a_sandbox_what_waits_is_decided_together_unless_its_agent_says_otherwise(store, begin):
    begin(action(), status(WAITING), sandbox_id="box", app={})
    assert only(store).decided_together
    assert only(store).sandbox_id == "box"


def test_an_action_whose_sub_task_has_begun_waits_no_longer(store, begin):
    task = action()
    part = action() | {"llm_response_id": f"{task['id']}/1"}
    begin(task, part, status(WAITING), sandbox_id="box", app={})
    assert only(store).action_id == part["id"]


@pytest.mark.parametrize("end", ["approve", "reject", "run", "message", "delete"])
def test_whatever_ends_the_wait_takes_the_action_out_and_is_told_once(store, index, begin, end):
    one = action()
    conversation = begin(one)
    match end:
        case "approve" | "reject":
            store.approvals.confirmations.decide(conversation, accept=end == "approve", reason="no", actor=ALICE)
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
    store.approvals.confirmations.decide_each(conversation, [Decision(first["id"], "reject", "no")], ALICE)
    assert shown(store) == [second["id"]]

    store.approvals.confirmations.decide_each(conversation, [Decision(second["id"], "approve")], ALICE)
    assert shown(store) == []
    names = [(kind, one) for kind, one in told(index) if kind == "decided"]
    assert names == [("decided", first["id"]), ("decided", second["id"])]


def test_a_decided_action_comes_with_its_entry_of_the_audit(store, index, begin):
    conversation = begin(action())
    store.approvals.confirmations.decide(conversation, accept=False, reason="too bold", actor=ALICE)

    [(_, opened), (_, decided)] = index.xrange("{approvals}:stream")
    assert json.loads(decided[b"entry"]) == json.loads(store.approvals.audit.of(conversation, limit=9)[0])
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
    store.conversations.forks.fork(conversation)
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


def test_a_reader_leaves_out_an_action_that_was_decided_and_refreshes_it(store, index, begin, killed):
    one = action()
    conversation = begin(one)
    with killed:
        store.approvals.confirmations.decide(conversation, accept=True, reason="", actor=ALICE)
    assert told(index) == [("opened", one["id"])]

    assert shown(store) == []
    assert told(index) == [("opened", one["id"]), ("decided", one["id"])]
    assert index.zcard("{approvals}:waiting") == 0


def test_a_reader_leaves_out_what_was_deleted_and_refreshes_it(store, index, begin, killed):
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
    store.approvals.confirmations.decide(conversation, accept=True, reason="", actor=ALICE)

    assert told(index) == []
    assert index.zrange("{approvals}:audit", 0, -1) == [audit_member(conversation, 1).encode()]


def test_notes_that_come_out_of_order_leave_the_newest(store, index, begin, monkeypatch):
    one = action()
    conversation = begin(one)
    scripts = store.approvals.index._scripts
    stale = scripts.read_unindexed(ConversationKeys(conversation).root, after=0, most=100)
    store.approvals.confirmations.decide(conversation, accept=True, reason="", actor=ALICE)

    with monkeypatch.context() as patched:
        patched.setattr(scripts, "read_unindexed", lambda *_, **__: stale)
        store.approvals.rule_decisions.refresh(conversation)
    assert index.zcard("{approvals}:waiting") == 0
    assert told(index) == [("opened", one["id"]), ("decided", one["id"])]


def test_any_number_of_refreshes_tell_once(store, index, begin):
    one = action()
    conversation = begin(one)
    for _ in range(3):
        store.approvals.rule_decisions.refresh(conversation)
    store.approvals.confirmations.decide(conversation, accept=True, reason="", actor=ALICE)
    for _ in range(3):
        store.approvals.rule_decisions.refresh(conversation)
    assert told(index) == [("opened", one["id"]), ("decided", one["id"])]


def test_more_audit_entries_than_one_note_takes_are_all_indexed(store, index, begin, killed):
    conversation = begin(action())
    with killed:
        for _ in range(120):
            store.approvals.confirmations.decide(conversation, accept=False, reason="", actor=ALICE)
            store.events.append(conversation, as_events([action()]))
        store.approvals.confirmations.decide(conversation, accept=False, reason="", actor=ALICE)

    store.approvals.rule_decisions.refresh(conversation)
    members = [one.decode().split()[1] for one in index.zrange("{approvals}:audit", 0, -1)]
    assert sorted(map(int, members)) == list(range(1, 122))
    assert Counter(kind for kind, _ in told(index)) == {"opened": 1, "decided": 1}


def test_a_conversation_whose_audit_has_expired_is_forgotten(store, index, begin):
    conversation = begin(action())
    store.conversations.delete(conversation)
    index.delete(f"conv:{{{conversation}}}:audit")

    store.approvals.rule_decisions.refresh(conversation)
    assert not index.hexists("{approvals}:noted", conversation)
    assert index.zscore("{approvals}:checks", conversation) is None


def test_the_audit_of_a_later_life_is_indexed_from_its_beginning(store, index, begin):
    conversation = begin(action())
    store.conversations.delete(conversation)
    index.delete(f"conv:{{{conversation}}}:audit", "{approvals}:audit")

    begin(action(), conversation_id=conversation)
    store.approvals.confirmations.decide(conversation, accept=True, reason="", actor=ALICE)
    assert index.zrange("{approvals}:audit", 0, -1) == [audit_member(conversation, 1).encode()]


def test_the_stream_names_the_entry_by_which_an_action_was_opened(store, index, begin):
    begin(action())
    [(entry, _)] = index.xrange("{approvals}:stream")
    assert only(store).opened == entry.decode()


def test_a_message_of_a_user_takes_nothing_in(store, begin):
    begin(message("hello"))
    assert shown(store) == []


def test_actions_that_the_recovery_does_not_open_again_are_closed_without_a_decision(store, index, begin):
    first, second = action("ls"), action("pwd")
    conversation = begin(first, second, status(WAITING), sandbox_id="box", app={})
    store.approvals.confirmations.reopen(conversation, as_events([second]))

    assert shown(store) == [second["id"]]
    assert told(index)[2:] == [("closed", first["id"])]


def test_an_action_that_the_recovery_opens_again_is_told_as_opened_again(store, index, begin):
    one = action()
    conversation = begin(one, status(WAITING), sandbox_id="box", app={})
    store.approvals.confirmations.reopen(conversation, [])
    assert shown(store) == []

    store.approvals.confirmations.reopen(conversation, as_events([one]))
    assert shown(store) == [one["id"]]
    assert told(index) == [("opened", one["id"]), ("closed", one["id"]), ("opened", one["id"])]


def test_a_refresh_ends_where_a_later_state_was_noted_before_the_audit_was(store, index, begin, killed):
    conversation = begin(action())
    with killed:
        for _ in range(101):
            store.approvals.confirmations.decide(conversation, accept=False, reason="", actor=ALICE)
            store.events.append(conversation, as_events([action()]))
    index.hset("{approvals}:noted", conversation, f"{10**17} 0")

    store.approvals.rule_decisions.refresh(conversation)

    assert index.hget("{approvals}:noted", conversation).decode() == f"{10**17} 0"


pytestmark = pytest.mark.usefixtures("alone")  # a sweep goes through all conversations


@pytest.fixture
def sweep(store, index):
    """Sweep until every conversation was compared."""

    def do() -> None:
        index.hset("{approvals}:sweep", mapping={"created": "", "id": ""})
        while True:
            index.hdel("{approvals}:sweep", "at")
            store.approvals.checks.sweep()
            if index.hget("{approvals}:sweep", "id") == b"":
                return

    return do


def expire(index, conversation: str) -> None:
    """Let the index say that the deadline of a conversation has passed."""
    index.zadd("{approvals}:due", {conversation: 1})


def test_a_conversation_is_due_once_the_deadline_of_its_first_action_has_passed(store, index, begin):
    conversation = begin(action())
    assert store.approvals.checks.due() == []
    expire(index, conversation)
    assert store.approvals.checks.due() == [conversation]


def test_many_that_are_due_are_all_taken_in_the_end(store, index):
    ids = {f"{number:036}" for number in range(350)}
    index.zadd("{approvals}:due", dict.fromkeys(ids, 1))
    index.zadd("{approvals}:due", {"later": 4e15})

    found = set()
    while len(found) < len(ids):
        found |= set(store.approvals.checks.due())
    assert found == ids


def test_the_sweep_finds_an_action_that_was_never_indexed(store, begin, killed, sweep):
    one = action()
    with killed:
        conversation = begin(one)
    assert shown(store, conversation_id=conversation) == []
    sweep()
    assert shown(store, conversation_id=conversation) == [one["id"]]


def test_the_sweep_finds_a_decision_that_was_never_indexed(store, index, begin, killed, sweep):
    conversation = begin(action())
    with killed:
        store.approvals.confirmations.decide(conversation, accept=True, reason="", actor=ALICE)
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


def test_the_sweep_refreshes_nothing_where_the_index_is_right(store, begin, sweep, monkeypatch):
    for _ in range(3):
        conversation = begin(action())
    store.approvals.confirmations.decide(conversation, accept=True, reason="", actor=ALICE)
    store.conversations.delete(conversation)
    sweep()

    monkeypatch.setattr(type(store.approvals.rule_decisions), "refresh", lambda *_: pytest.fail("refreshed"))
    sweep()


def test_all_supervisors_together_take_one_part_of_the_sweep_each_second(store, index, begin, monkeypatch):
    begin(action())
    store.approvals.checks.sweep()
    monkeypatch.setattr(type(store.approvals.checks), "_wrong", lambda *_: pytest.fail("compared"))
    monkeypatch.setattr("store.approvals.inbox._SWEEP_SPAN", 3600 * 1_000_000)  # however slow the machine
    store.approvals.checks.sweep()


def test_a_clock_that_steps_back_holds_up_no_sweep(store, index, begin, killed):
    with killed:
        begin(action())
    index.hset("{approvals}:sweep", mapping={"created": "", "id": "", "at": now() + 3600 * 1_000_000})

    store.approvals.checks.sweep()

    assert len(shown(store)) == 1


def test_parts_of_the_sweep_rotate_over_the_index(store, index, monkeypatch):
    ids = {f"{number:08}-0000-4000-8000-000000000000" for number in range(2 * PART)}
    index.zadd("{approvals}:checks", dict.fromkeys(ids, 1))
    compared: list[str] = []
    monkeypatch.setattr(type(store.approvals.checks), "_wrong", lambda _, among: compared.extend(among) or [])
    for _ in range(2):
        index.hdel("{approvals}:sweep", "at")
        store.approvals.checks.sweep()
    assert ids <= set(compared)


def test_a_conversation_that_cannot_be_refreshed_holds_up_no_other(
    store, index, begin, killed, sweep, monkeypatch, caplog
):
    with killed:
        both = [begin(action()) for _ in range(2)]
    refresh = store.approvals.rule_decisions.refresh

    def failing(conversation_id):
        if conversation_id == both[0]:
            raise RuntimeError("a fault")
        refresh(conversation_id)

    monkeypatch.setattr(store.approvals.rule_decisions, "refresh", failing)
    sweep()

    assert len(shown(store)) == 1
    assert f"what waits in conversation {both[0]} cannot be refreshed" in caplog.text


def test_the_sweep_leaves_what_is_right(store, begin, sweep):
    waiting = [action() for _ in range(3)]
    conversations = [begin(one) for one in waiting]
    sweep()
    for one, conversation in zip(waiting, conversations, strict=True):
        assert shown(store, conversation_id=conversation) == [one["id"]]


@pytest.mark.parametrize("verb", ["approve", "expire"])
def test_a_conversation_goes_on_with_what_is_decided_where_its_agent_ended_the_last_action_by_itself(
    store, begin, verb
):
    first, second = action(), action()
    conversation = begin(first, second)
    store.approvals.confirmations.decide_each(conversation, [Decision(first["id"], "approve")], SERVER)
    store.events.append(conversation, as_events([observation(second)]))
    assert conversation in store.approvals.checks.due()

    if verb == "expire":
        store.approvals.confirmations.expire(conversation)
    else:
        assert not store.approvals.confirmations.decide(conversation, accept=True, reason="")
    store.approvals.rule_decisions.refresh(conversation)

    assert store.conversations.get(conversation)["execution_status"] == "running"
    assert [one["action_id"] for one in store.approvals.confirmations.decided(conversation)] == [first["id"]]
    assert conversation not in store.approvals.checks.due()
