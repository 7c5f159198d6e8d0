"""Deleted conversations stay deleted: no webhook of their sandbox creates them again while that sandbox can post."""

from uuid import uuid4

import pytest

from store.conversations import conversations as module
from store.errors import ConversationNotFound
from store.keys import ConversationKeys, SandboxKeys
from tests.conftest import as_events, event


@pytest.fixture
def start(store):
    """Start sandboxes on a host of this test's own, which ends them."""
    host, ids = str(uuid4()), []

    def start():
        store.sandboxes.beat(host, "supervisor")
        sandbox = store.sandboxes.start("spec")
        while store.sandboxes.get(sandbox.id).host != host:
            assert store.sandboxes.claim(host)
        store.sandboxes.report(sandbox.id, host, "supervisor", "RUNNING", agent_url="http://agent", urls=[], handle={})
        ids.append(sandbox.id)
        return sandbox.id

    start.end = lambda one: store.sandboxes.report(one, host, "supervisor", "GONE")
    yield start
    for one in ids:
        start.end(one)


@pytest.fixture
def sandbox(start):
    return start()


def begin(store, conversation, sandbox):
    """A conversation in a sandbox, with one event."""
    store.conversations.create(conversation, sandbox_id=sandbox, app={})
    post(store, conversation, sandbox)


def post(store, conversation, sandbox):
    store.events.append(conversation, as_events([event()]), sandbox_id=sandbox)


def let_a_minute_pass(store, conversation):
    """Let the minute pass for which a repeat of the deletion is known."""
    assert 0 < store.conversations._redis.ttl(f"{ConversationKeys(conversation).root}:deleted") <= 60
    store.conversations._redis.delete(f"{ConversationKeys(conversation).root}:deleted")


def test_a_late_webhook_does_not_create_a_deleted_conversation_again(store, conversation, sandbox):
    # Given a conversation that was deleted while its sandbox was paused, which resumes after more than a minute
    begin(store, conversation, sandbox)
    store.conversations.delete(conversation)
    let_a_minute_pass(store, conversation)

    # Then the last batch of its agent is refused, and no conversation is created
    for late in (post, lambda *_: store.conversations.in_sandboxes.report(sandbox, conversation, {"title": "x"})):
        with pytest.raises(ConversationNotFound):
            late(store, conversation, sandbox)
    assert store.conversations.get_many([conversation]) == [None]


def test_a_child_that_was_deleted_is_not_created_again_by_a_late_report(store, conversation, sandbox):
    store.conversations.create(conversation, sandbox_id=sandbox, app={})
    child, report = str(uuid4()), {"parent_conversation_id": conversation}
    store.conversations.in_sandboxes.report(sandbox, child, report)
    assert store.conversations.get(child)["app"] == report
    store.conversations.delete(child)
    let_a_minute_pass(store, child)

    with pytest.raises(ConversationNotFound):
        store.conversations.in_sandboxes.report(sandbox, child, report)

    store.conversations.in_sandboxes.report(sandbox, str(uuid4()), report)
    assert store.conversations.in_sandboxes.in_sandbox(sandbox) == 2


def test_an_id_that_was_deleted_can_be_taken_again_by_a_client(store, conversation, sandbox):
    begin(store, conversation, sandbox)
    store.conversations.delete(conversation)
    let_a_minute_pass(store, conversation)

    store.conversations.create(conversation, sandbox_id=sandbox, app={})
    post(store, conversation, sandbox)

    assert store.events.count(conversation) == 1


def test_tombstones_end_with_their_sandbox(store, conversation, start):
    sandbox = start()
    begin(store, conversation, sandbox)
    store.conversations.delete(conversation)
    key = SandboxKeys.gone(sandbox)
    assert store.conversations._redis.zrange(key, 0, -1) == [conversation.encode()]

    start.end(sandbox)

    assert not store.conversations._redis.exists(key)


def test_a_conversation_that_is_deleted_after_its_sandbox_leaves_no_tombstone(store, conversation, start):
    sandbox = start()
    begin(store, conversation, sandbox)
    start.end(sandbox)

    store.conversations.delete(conversation)

    assert not store.conversations._redis.exists(SandboxKeys.gone(sandbox))


def test_a_sandbox_has_a_bounded_number_of_tombstones_the_oldest_are_forgotten(store, sandbox, monkeypatch):
    monkeypatch.setattr(module, "MOST_TOMBSTONES", 3)
    ids = [str(uuid4()) for _ in range(5)]
    for one in ids:
        begin(store, one, sandbox)
        store.conversations.delete(one)

    kept = store.conversations._redis.zrange(SandboxKeys.gone(sandbox), 0, -1)

    assert [one.decode() for one in kept] == ids[2:]


def test_a_worker_that_was_killed_before_a_deletion_leaves_a_working_conversation(store, conversation, sandbox):
    begin(store, conversation, sandbox)
    store.conversations.bury(conversation, sandbox)

    post(store, conversation, sandbox)

    assert store.events.count(conversation) == 2


def test_the_repeat_of_a_deletion_takes_the_conversation_off_the_list(store, conversation, monkeypatch):
    # Given a worker that was killed after the deletion, before it removed the conversation from the listing
    store.conversations.create(conversation)
    listed = store.conversations.count()
    with monkeypatch.context() as killed:
        killed.setattr(store.conversations._listing, "forget", lambda *_: None)
        store.conversations.delete(conversation)
    assert store.conversations.count() == listed

    with pytest.raises(ConversationNotFound):
        store.conversations.delete(conversation)

    assert store.conversations.count() == listed - 1


def test_a_post_to_a_deleted_detached_conversation_creates_it_again(store, conversation):
    store.conversations.create(conversation)
    store.conversations.delete(conversation)

    post(store, conversation, None)

    assert store.events.count(conversation) == 1
