"""Requests with an Idempotency-Key to an agent in a sandbox: an agent receives nothing twice, whatever was lost."""

from uuid import uuid4

import pytest

from agents.link import AgentUnreachable
from store.link.attempts import Attempt, OutcomeUnknown, enter

TEXT = [{"type": "text", "text": "hello"}]


@pytest.fixture
def attempt():
    """Begin an attempt, with one seed for all attempts of the test."""
    seed = uuid4()

    def begin(**members) -> Attempt:
        present = Attempt(seed, "token", **members)
        enter(present)
        return present

    yield begin
    enter(None)


@pytest.fixture
def idle(store, conversation, sandbox):
    """A conversation whose agent waits for nothing."""
    store.conversations.create(conversation, sandbox_id=sandbox.id, app={})
    return conversation


def test_a_message_that_may_have_reached_the_agent_is_not_sent_again(commands, idle, agent, attempt):
    first = attempt()
    commands.send(idle, content=TEXT, run=False)
    assert first.reached_agent
    sent = len(agent.requests)

    attempt(is_later=True)
    with pytest.raises(OutcomeUnknown):
        commands.send(idle, content=TEXT, run=False)

    assert len(agent.requests) == sent


def test_a_run_that_may_have_reached_the_agent_is_not_sent_again(commands, idle, agent, attempt):
    attempt(is_later=True)
    with pytest.raises(OutcomeUnknown):
        commands.change_status(idle, "run")

    assert not agent.requests


def test_a_message_that_got_no_response_has_reached_the_agent(commands, idle, agent, attempt):
    agent.statuses = [0]
    first = attempt()
    with pytest.raises(AgentUnreachable):
        commands.send(idle, content=TEXT, run=False)

    assert first.reached_agent


def test_a_pause_is_sent_again(commands, idle, agent, attempt):
    attempt(is_later=True)
    commands.change_status(idle, "pause")

    assert len(agent.requests) == 1


def test_the_repeat_of_an_outstanding_decision_succeeds_and_leaves_the_delivery_to_a_supervisor(
    commands, store, waiting, agent, attempt
):
    agent.statuses = [0]
    attempt()
    assert commands.decide(waiting, accept=True, reason="")
    sent = len(agent.requests)

    attempt(is_later=True)
    assert commands.decide(waiting, accept=True, reason="")

    assert len(agent.requests) == sent
    assert store.deliveries.get(waiting).accept


def test_the_repeat_of_a_settled_decision_finds_that_it_has_won(commands, waiting, agent, attempt):
    attempt()
    assert commands.decide(waiting, accept=False, reason="no")
    sent = len(agent.requests)

    attempt(is_later=True)
    assert commands.decide(waiting, accept=False, reason="no")

    assert len(agent.requests) == sent


def test_the_repeat_of_a_decision_that_nothing_remembers_does_not_claim_that_another_one_won(
    commands, store, waiting, agent, attempt
):
    attempt()
    assert commands.decide(waiting, accept=False, reason="no")
    store.events._redis.hdel(f"conv:{{{waiting}}}", "decision_id")  # as a later decision of another action does

    attempt(is_later=True)
    with pytest.raises(OutcomeUnknown):
        commands.decide(waiting, accept=False, reason="no")
