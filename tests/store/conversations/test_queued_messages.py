"""Queues of messages in the store: bounded, in order, one driver at a time, and none that stays for ever."""

from uuid import uuid4

import pytest

from store.approvals.audit import DecisionActor
from store.conversations import queued_messages
from store.conversations.queued_messages import MOST_QUEUED, NobodyReceives, TooManyQueued
from store.errors import ConversationNotFound, StartTaskNotFound
from tests.conftest import store_of
from tests.store.conftest import forget, keys, present_for, stepped
from tests.store.sandboxes.test_start_tasks import LIMITS

SECRET = "a key for tests only"


@pytest.fixture
def store(redis_url, monkeypatch):
    """A store without start tasks and queues, with one living host; no lease ends by itself."""
    monkeypatch.setattr(queued_messages, "LEASE", 3600.0)
    store = store_of(redis_url, LIMITS, SECRET)
    forget(store.start_tasks._redis, "{starts}*")
    store.sandboxes.beat("h", "supervisor")
    return store


@pytest.fixture
def queue(store):
    return store.conversations.queued_messages


@pytest.fixture
def ready(store, conversation):
    """A conversation in a sandbox."""
    store.conversations.create(conversation, sandbox_id="box", app={})
    return conversation


def said(text):
    return {"content": [{"type": "text", "text": text}], "actor": DecisionActor("message", "someone", may_decide=False)}


def make_due(store, conversation):
    store.start_tasks._redis.zadd("{starts}:queues", {conversation: 0})


def left(store):
    """The keys of queues, but for what a repeat of a request finds."""
    return keys(store.start_tasks._redis, "{starts}:queue*")


def test_a_message_for_an_unknown_or_a_detached_conversation_is_refused(store, queue, conversation):
    with pytest.raises(ConversationNotFound):
        queue.put(conversation, **said("x"))
    store.conversations.create(conversation)
    with pytest.raises(ConversationNotFound):
        queue.put(conversation, **said("x"))
    with pytest.raises(StartTaskNotFound):
        queue.put_for_start(uuid4().hex, **said("x"))
    assert left(store) == []


def test_a_message_for_a_start_that_has_failed_is_refused_with_the_reason(store, queue):
    start = store.start_tasks.create({}, echo={})
    _, lease = store.start_tasks.claim()
    store.start_tasks.finish(start.id, lease, "ERROR", "no spec")

    for refused in (
        lambda: queue.put_for_start(start.id, **said("x")),
        lambda: queue.put(start.conversation_id, **said("x")),
    ):
        with pytest.raises(NobodyReceives, match="no spec"):
            refused()
    assert left(store) == []


def test_a_queue_is_dropped_when_its_start_fails_or_is_forgotten(store, queue):
    failed, forgotten = (store.start_tasks.create({}, echo={}) for _ in range(2))
    for start in (failed, forgotten):
        queue.put_for_start(start.id, **said("x"))
    for _ in range(2):
        start, lease = store.start_tasks.claim()
        store.start_tasks.finish(start.id, lease, "ERROR", "why")
    store.start_tasks.forget(forgotten.id)

    assert queue.claim() is None
    assert left(store) == []


def test_a_queue_is_full_at_its_bound_and_says_so(store, queue, ready):
    for number in range(MOST_QUEUED):
        _, position = queue.put(ready, **said(str(number)))
        assert position == number + 1

    with pytest.raises(TooManyQueued, match=f"Limit of {MOST_QUEUED} queued messages"):
        queue.put(ready, **said("one too many"))
    assert queue.settle(queue.claim())
    assert queue.put(ready, **said("again"))[1] == MOST_QUEUED


def test_a_repeated_request_adds_no_second_message_also_after_the_delivery(store, queue, ready, monkeypatch):
    identity = uuid4()
    monkeypatch.setattr(queued_messages, "minted", lambda _: identity)

    assert queue.put(ready, **said("x")) == (identity, 1)
    assert queue.put(ready, **said("x")) == (identity, 1)
    assert queue.settle(queue.claim())
    assert queue.put(ready, **said("x")) == (identity, 1)
    assert left(store) == []


def test_messages_wait_until_their_start_is_ready_then_come_in_order_to_one_driver(store, queue):
    start = store.start_tasks.create({}, echo={})
    for text in ("a", "b"):
        queue.put_for_start(start.id, **said(text))
    queue.put(start.conversation_id, **said("c"))
    assert queue.claim() is None

    _, lease = store.start_tasks.claim()
    store.start_tasks.finish(start.id, lease, "READY")
    for text in ("a", "b", "c"):
        make_due(store, start.conversation_id) if text == "a" else None
        message = queue.claim()
        assert (message.content[0]["text"], message.conversation_id) == (text, start.conversation_id)
        assert queue.claim() is None
        assert queue.settle(message)
    assert left(store) == []


def test_a_driver_whose_lease_has_ended_writes_nothing_after_the_next_claim(store, queue, ready):
    queue.put(ready, **said("x"))
    first = queue.claim()
    make_due(store, ready)
    second = queue.claim()

    assert second.id == first.id
    assert not queue.renew(first)
    assert not queue.note_sent(first, "an event")
    assert not queue.settle(first)
    assert queue.settle(second)


def test_the_next_driver_knows_that_an_agent_may_have_the_message(store, queue, ready):
    queue.put(ready, **said("x"))
    queue.put(ready, **said("y"))
    assert queue.note_sent(queue.claim(), "the last event")
    make_due(store, ready)

    second = queue.claim()
    assert (second.was_sent, second.after) == (True, "the last event")
    assert queue.settle(second)
    third = queue.claim()
    assert (third.was_sent, third.after, third.content[0]["text"]) == (False, "", "y")


def test_the_messages_of_a_conversation_that_is_gone_are_removed_at_once(store, queue, ready):
    queue.put(ready, **said("x"))

    queue.drop(ready)

    assert queue.claim() is None
    assert left(store) == []


@pytest.mark.parametrize("who", ["queues", "start tasks"])
def test_a_step_of_the_clock_ends_no_lease_of_a_queue(store, queue, ready, monkeypatch, who):
    monkeypatch.setattr(queued_messages, "LEASE", 300.0)
    queue.put(ready, **said("x"))
    present_for(store.start_tasks._redis, "{starts}", 2)
    queued = queue.claim()

    stepped(store.start_tasks._redis, 3600)

    if who == "start tasks":  # supervisors claim these first
        assert store.start_tasks.claim() is None
    assert queue.claim() is None
    assert queue.settle(queued)
    assert left(store) == []


def test_a_message_that_comes_while_no_supervisor_is_there_is_taken_by_the_first_that_comes(store, queue, ready):
    present_for(store.start_tasks._redis, "{starts}", 121)
    stepped(store.start_tasks._redis, 60)

    queue.put(ready, **said("x"))

    assert queue.claim() is not None


def test_gaps_that_follow_each_other_prolong_a_lease_once(store, queue, ready):
    """Else nothing would be due where each round of the supervisors takes longer than a gap."""
    queue.put(ready, **said("x"))
    redis = store.start_tasks._redis
    present_for(redis, "{starts}", 2)
    assert queue.claim() is not None
    stepped(redis, 7200)
    assert queue.claim() is None

    stepped(redis, 7200)

    assert queue.claim() is not None
