"""The keys of an unfinished fork expire, and no reader sees half a copy."""

from uuid import uuid4

import pytest
from redis.exceptions import TimeoutError

import store.conversations.copies as module
from store.errors import ConversationNotFound
from store.keys import ConversationKeys, audit_key
from tests.conftest import action, as_events, event, message
from tests.store.conftest import keys


@pytest.fixture
def source(store, conversation):
    """A conversation of three pages."""
    for _ in range(3):
        store.events.append(conversation, as_events([*(event() for _ in range(99)), message("text")]))
    return conversation


def keys_of(store, conversation):
    return keys(store.conversations._redis, f"conv:{{{conversation}}}*")


def test_every_key_of_a_copy_whose_worker_was_killed_expires(store, source, monkeypatch):
    read, target = module.read_log, str(uuid4())

    def killed(scripts, conversation_id, after, most):
        if after:
            raise KeyboardInterrupt
        return read(scripts, conversation_id, after, most)

    monkeypatch.setattr(module, "read_log", killed)
    with pytest.raises(KeyboardInterrupt):
        store.conversations.forks.fork(source, id=target)

    left = keys_of(store, target)
    assert left
    assert all(store.conversations._redis.ttl(key) > 0 for key in left)
    with pytest.raises(ConversationNotFound):
        store.conversations.get(target)


@pytest.mark.parametrize("after", [100, 300], ids=["between two pages", "before it is adopted"])
def test_a_copy_that_has_expired_ends_the_fork_and_creates_nothing(store, source, monkeypatch, after):
    read, target = module.read_log, str(uuid4())

    def slow(scripts, conversation_id, seq, most):
        reply = read(scripts, conversation_id, seq, most)
        if seq == after:
            expire()
        return reply

    def expire():
        for key in keys_of(store, target):
            store.conversations._redis.delete(key)

    monkeypatch.setattr(module, "read_log", slow)
    if after == 300:
        adopt = store.conversations.forks._scripts.adopt_fork
        monkeypatch.setattr(
            store.conversations.forks._scripts,
            "adopt_fork",
            lambda *args, **named: (expire(), adopt(*args, **named))[1],
        )

    with pytest.raises(TimeoutError, match="expired"):
        store.conversations.forks.fork(source, id=target)

    with pytest.raises(ConversationNotFound):
        store.conversations.get(target)


def test_a_copy_that_is_adopted_expires_no_more(store, source):
    target = store.conversations.forks.fork(source)

    assert store.events.count(target) == 300
    assert {store.conversations._redis.ttl(key) for key in keys_of(store, target)} == {-1}


def test_the_audit_of_a_fork_that_takes_the_id_of_a_deleted_conversation_expires_no_more(store, source):
    target, redis = str(uuid4()), store.conversations._redis
    store.conversations.create(target, confirmation_policy={"kind": "AlwaysConfirm"})
    store.events.append(target, as_events([action()]))
    store.conversations.delete(target)
    audit = audit_key(ConversationKeys(target))
    assert redis.ttl(audit) > 0

    store.conversations.forks.fork(source, id=target)

    assert redis.ttl(audit) == -1
