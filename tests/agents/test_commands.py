"""What is passed on to an agent and how often: a scripted agent server, real sockets."""

import pytest

from agents.commands import NotReachable
from agents.link import AgentRefused, AgentUnreachable
from store.errors import ConversationNotFound
from store.sandboxes import SandboxId


def test_a_message_is_passed_on_with_the_key_and_written_by_nobody_else(store, commands, conversation, sandbox, agent):
    store.conversations.create(conversation, sandbox_id=sandbox.id, app={})
    content = [{"type": "text", "text": "hello"}]

    commands.send(conversation, content=content, run=True)

    assert agent.posted("/events") == [{"role": "user", "content": content, "run": True}]
    assert agent.keys == {sandbox.session_api_key}
    assert store.events.count(conversation) == 0


def test_what_can_be_repeated_is_tried_twice_and_what_cannot_once(store, commands, conversation, sandbox, agent):
    store.conversations.create(conversation, sandbox_id=sandbox.id, app={})
    agent.statuses = [0]
    commands.change_status(conversation, "pause")
    assert len(agent.posted("/pause")) == 2

    agent.statuses = [0, 0]
    with pytest.raises(AgentUnreachable):
        commands.send(conversation, content=[], run=False)
    with pytest.raises(AgentUnreachable):
        commands.change_status(conversation, "run")
    assert len(agent.posted("/events")) == len(agent.posted("/run")) == 1


@pytest.mark.parametrize("told", ["PAUSED", "MISSING", "ERROR"])
def test_nothing_is_asked_of_a_sandbox_that_does_not_run(store, commands, conversation, sandbox, agent, told):
    store.conversations.create(conversation, sandbox_id=sandbox.id, app={})
    if told == "PAUSED":
        store.sandboxes.ask(sandbox.id, "pause")
    store.sandboxes.report(sandbox.id, "scripted", "supervisor", told)

    with pytest.raises(NotReachable, match=told):
        commands.send(conversation, content=[], run=True)
    assert agent.asked == []


def test_nobody_is_asked_of_a_sandbox_that_was_forgotten(store, commands, conversation):
    store.conversations.create(conversation, sandbox_id=SandboxId("forgotten"), app={})
    with pytest.raises(NotReachable, match="MISSING"):
        commands.set_policy(conversation, {"kind": "NeverConfirm"})
    commands.delete(conversation)


def test_a_refusal_says_what_the_agent_said(store, commands, conversation, sandbox, agent):
    store.conversations.create(conversation, sandbox_id=sandbox.id, app={})
    agent.statuses = [409]
    with pytest.raises(AgentRefused, match="409: as scripted"):
        commands.change_status(conversation, "run")


def test_a_message_to_an_agent_finds_no_detached_conversation(store, commands, conversation):
    store.conversations.create(conversation)
    with pytest.raises(ConversationNotFound):
        commands.send_to_agent(conversation, content=[], run=True)
    assert store.events.count(conversation) == 0
