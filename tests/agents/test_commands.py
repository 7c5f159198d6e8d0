"""Commands to an agent and their retries, against a scripted agent server on real sockets."""

import pytest

from agents.commands import NotReachable
from agents.deletions import delete
from agents.link import AgentRefused, AgentUnreachable
from store.errors import ConversationNotFound
from store.sandboxes.sandbox_record import SandboxId


def test_a_message_is_forwarded_with_the_key_and_only_the_agent_writes_it(
    store, commands, conversation, sandbox, agent
):
    store.conversations.create(conversation, sandbox_id=sandbox.id, app={})
    content = [{"type": "text", "text": "hello"}]

    commands.send(conversation, content=content, run=True)

    assert agent.posted("/events") == [{"role": "user", "content": content, "run": True}]
    assert agent.keys == {sandbox.session_api_key}
    assert store.events.count(conversation) == 0


def test_idempotent_calls_are_tried_twice_and_others_once(store, commands, conversation, sandbox, agent):
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


@pytest.mark.parametrize("reported", ["PAUSED", "MISSING", "ERROR"])
def test_no_call_goes_to_a_sandbox_that_does_not_run(store, commands, conversation, sandbox, agent, reported):
    store.conversations.create(conversation, sandbox_id=sandbox.id, app={})
    if reported == "PAUSED":
        store.sandboxes.ask(sandbox.id, "pause")
    store.sandboxes.report(sandbox.id, "scripted", "supervisor", reported)

    with pytest.raises(NotReachable, match=reported):
        commands.send(conversation, content=[], run=True)
    assert agent.requests == []


def test_no_call_goes_to_a_forgotten_sandbox(store, commands, conversation):
    store.conversations.create(conversation, sandbox_id=SandboxId("forgotten"), app={})
    with pytest.raises(NotReachable, match="MISSING"):
        commands.set_policy(conversation, {"kind": "NeverConfirm"})
    delete(commands, conversation)


def test_a_refusal_repeats_the_detail_of_the_agent(store, commands, conversation, sandbox, agent):
    store.conversations.create(conversation, sandbox_id=sandbox.id, app={})
    agent.statuses = [409]
    with pytest.raises(AgentRefused, match="409: as scripted"):
        commands.change_status(conversation, "run")


def test_a_message_to_an_agent_finds_no_detached_conversation(store, commands, conversation):
    store.conversations.create(conversation)
    with pytest.raises(ConversationNotFound):
        commands.send_to_agent(conversation, content=[], run=True)
    assert store.events.count(conversation) == 0
