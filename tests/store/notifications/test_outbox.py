"""The outboxes: what pushes an entry, that it does so once, and that nothing is pushed without a target."""

import json
from uuid import uuid4

import pytest

from store.approval_keys import OUTBOXES
from store.notifications.outbox import OutboxState
from tests.conftest import as_events, message, status
from tests.notifications import entry, forget_notifications, push
from tests.store.conftest import fresh_sandboxes, running_sandbox


@pytest.fixture
def outboxes(store):
    """Outboxes that a supervisor wants to be filled."""
    forget_notifications(store)
    store.outboxes.want()
    yield store.outboxes
    forget_notifications(store)


def pushed(outboxes, name) -> list[dict]:
    return [json.loads(raw) for raw in outboxes.read(1000).get(name, [])]


@pytest.mark.parametrize("end", ["finished", "error"])
def test_a_conversation_that_ends_is_notified_of_once_per_change(store, outboxes, conversation, end):
    store.events.append(conversation, as_events([status("running"), status(end)]))
    state = store.conversations.get(conversation)
    store.events.append(conversation, as_events([message("afterwards", "environment")]))

    [entry] = pushed(outboxes, "conversations")
    assert entry["type"] == f"conversation.{end}"
    assert entry["conversation_id"] == conversation
    assert entry["id"] == f"msg_{conversation}-{state['revision']}"

    store.events.append(conversation, as_events([status("running")]))
    store.events.append(conversation, as_events([status(end)]))
    assert len({one["id"] for one in pushed(outboxes, "conversations")}) == 2


@pytest.mark.parametrize("present", ["running", "paused", "idle", "stuck"])
def test_any_other_change_of_a_conversation_is_not_notified_of(store, outboxes, conversation, present):
    store.events.append(conversation, as_events([message("hello"), status("running")]))
    store.events.append(conversation, as_events([status(present)]))

    assert pushed(outboxes, "conversations") == []


def test_a_repeated_or_late_note_of_an_end_is_not_notified_of_again(store, outboxes):
    listing, identity, times = store.conversations._listing, str(uuid4()), ("2026-11-20T20:37:22Z",) * 2
    listing.note(identity, 1, "running", *times)
    for revision in (3, 3, 2, 3):
        listing.note(identity, revision, "finished", *times)
    listing.note(identity, 4, "finished", *times)

    [one] = pushed(outboxes, "conversations")
    assert one["id"] == f"msg_{identity}-3"


def test_a_conversation_that_is_listed_for_the_first_time_has_not_changed(store, outboxes):
    store.conversations._listing.note(str(uuid4()), 1, "finished", *("2026-11-20T20:37:22Z",) * 2)

    assert pushed(outboxes, "conversations") == []


def test_a_sandbox_that_fails_is_notified_of_once(redis_url, outboxes):
    sandboxes = fresh_sandboxes(redis_url)
    outboxes.want()
    sandbox = running_sandbox(sandboxes)
    for _ in range(3):
        sandboxes.report(sandbox.id, "h", "supervisor", "ERROR", detail="It ended")

    [one] = pushed(outboxes, "sandboxes")
    assert (one["type"], one["sandbox_id"]) == ("sandbox.error", sandbox.id)
    assert one["id"].startswith(f"msg_{sandbox.id}-")
    sandboxes.ask(sandbox.id, "resume")
    sandboxes.report(sandbox.id, "h", "supervisor", "ERROR", detail="It ended again")
    assert len({one["id"] for one in pushed(outboxes, "sandboxes")}) == 2


def test_a_sandbox_that_no_host_takes_is_notified_of(redis_url, outboxes):
    sandboxes = fresh_sandboxes(redis_url, start_seconds=0)
    outboxes.want()
    sandbox = sandboxes.start("spec")
    assert sandboxes.get(sandbox.id).status == "ERROR"

    assert [one["sandbox_id"] for one in pushed(outboxes, "sandboxes")] == [sandbox.id]


def test_nothing_is_pushed_while_no_supervisor_has_targets(store, redis_url, outboxes, conversation):
    forget_notifications(store)
    sandboxes = fresh_sandboxes(redis_url)
    sandboxes.report(running_sandbox(sandboxes).id, "h", "supervisor", "ERROR")
    store.events.append(conversation, as_events([status("running"), status("finished")]))

    assert outboxes.read(1000) == {}
    assert [one.waiting for one in outboxes.states()] == [0, 0, 0]


def test_the_word_that_there_are_targets_ends_after_a_day(store, outboxes):
    for outbox in OUTBOXES.values():
        assert 86_000 < outboxes._redis.ttl(f"{outbox}:wanted") <= 86_400


def test_a_full_outbox_drops_its_oldest_entry_and_counts_it(store, outboxes, conversation):
    redis, key = outboxes._redis, OUTBOXES["conversations"]
    redis.rpush(key, *range(10_000))
    store.events.append(conversation, as_events([status("running")]))
    store.events.append(conversation, as_events([status("finished")]))

    assert outboxes.states()[1] == OutboxState("conversations", 10_000, 1)
    assert redis.lindex(key, 0) == b"1"


def test_entries_are_taken_out_once_whoever_was_faster(store, outboxes):
    push(store, "approvals", *(entry(n) for n in range(6)))
    mine = outboxes.read(4)["approvals"]
    theirs = outboxes.read(2)["approvals"]
    outboxes.remove("approvals", theirs)

    outboxes.remove("approvals", mine)
    outboxes.remove("approvals", mine)

    assert pushed(outboxes, "approvals") == [entry(4), entry(5)]
