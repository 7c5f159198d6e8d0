"""Answers to the agent of a sandbox: one is decided, due until it is settled, and the actions are pending no more."""

from concurrent.futures import ThreadPoolExecutor

import pytest

import wire
from store.errors import ConversationNotFound
from store.keys import ANSWERS
from tests.conftest import action, as_events, observation, status


@pytest.fixture
def waiting(store, conversation):
    """A conversation in a sandbox whose agent waits for an answer to one action, and that action."""
    proposed = action("uname")
    store.conversations.create(conversation, sandbox_id="box", app={})
    batch = as_events([status("running"), proposed, status("waiting_for_confirmation")])
    store.events.append(conversation, batch, sandbox_id="box")
    return conversation, proposed


def make_due(store, conversation):
    store.answers._redis.zadd(ANSWERS, {conversation: wire.now() - 1})


def claimed(store, conversation) -> bool:
    """Whether a driver finds the answer of this conversation due."""
    found = set()
    while (one := store.answers.claim()) is not None:
        found.add(one)
    return conversation in found


@pytest.mark.parametrize("accept", [True, False])
def test_an_answer_is_decided_once_and_changes_no_status(store, waiting, accept):
    conversation, proposed = waiting
    before = store.events.count(conversation)

    won, answer = store.answers.decide(conversation, accept=accept, reason="line\nbreak é😀")

    assert won
    assert (answer.accept, answer.reason, answer.actions) == (accept, "line\nbreak é😀", [proposed["id"]])
    assert store.answers.get(conversation) == answer
    assert store.answers.decide(conversation, accept=not accept, reason="") == (False, None)
    assert store.confirmations.pending(conversation) == []
    assert store.events.count(conversation) == before  # what comes of it the agent says


def test_of_many_one_wins(store, waiting):
    conversation, _ = waiting

    def decide(number):
        return store.answers.decide(conversation, accept=number % 2 == 0, reason=str(number))

    with ThreadPoolExecutor(8) as pool:
        decided = list(pool.map(decide, range(16)))

    [answer] = [answer for won, answer in decided if won]
    assert store.answers.get(conversation) == answer


def test_it_is_due_until_it_is_settled(store, waiting):
    conversation, _ = waiting
    _, answer = store.answers.decide(conversation, accept=True, reason="")
    assert not claimed(store, conversation)  # whoever decided it delivers it first
    make_due(store, conversation)
    assert claimed(store, conversation)
    assert not claimed(store, conversation)  # not twice at once
    make_due(store, conversation)
    store.answers.settle(conversation, answer)
    assert store.answers.get(conversation) is None
    assert not claimed(store, conversation)


def test_an_older_answer_settles_no_newer_one(store, waiting):
    conversation, _ = waiting
    _, older = store.answers.decide(conversation, accept=False, reason="")
    store.answers.settle(conversation, older)
    batch = as_events([action("next"), status("running"), status("waiting_for_confirmation")])
    store.events.append(conversation, batch, sandbox_id="box")
    won, newer = store.answers.decide(conversation, accept=True, reason="")
    assert won

    store.answers.settle(conversation, older)

    assert store.answers.get(conversation) == newer


def test_nothing_pending_is_no_answer(store, conversation):
    store.conversations.create(conversation, sandbox_id="box", app={})
    assert store.answers.decide(conversation, accept=True, reason="") == (False, None)
    with pytest.raises(ConversationNotFound):
        store.answers.decide("5f1c8a52-7d0e-4c39-9a41-2f6f6a1f0bbb", accept=True, reason="")


def test_what_the_agent_observed_meanwhile_is_answered_no_more(store, waiting):
    conversation, proposed = waiting
    store.events.append(conversation, as_events([observation(proposed)]), sandbox_id="box")
    assert store.answers.decide(conversation, accept=True, reason="") == (False, None)
