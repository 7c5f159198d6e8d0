"""What this server sends to an agent is expected to come back, and what never reached the agent is not."""

from uuid import uuid4

import pytest

from agents.commands import Commands
from agents.link import AgentRefused, AgentUnreachable, http_client
from store.approvals.claims import message_claim, policy_claim
from tests.agents import SPECS, propose

CONTENT = [{"type": "text", "text": "hello"}]
ALWAYS = {"kind": "AlwaysConfirm"}


@pytest.fixture
def commands(store):
    with http_client(5) as client:
        yield Commands(store, client, SPECS)


@pytest.fixture
def begun(store, sandbox):
    identity = str(uuid4())
    store.conversations.create(identity, sandbox_id=sandbox.id, app={})
    return identity


def expected(store, conversation) -> list[str]:
    """The claims that the agent of a conversation may make."""
    members = store.events._redis.zrange(f"conv:{{{conversation}}}:echoes", 0, -1)
    return sorted(member.decode().rpartition(" ")[0] for member in members)


def test_a_message_is_expected_before_the_agent_has_it(store, commands, agent, begun):
    seen = []
    agent.on_request = lambda _path: seen.append(expected(store, begun))
    commands.send(begun, content=CONTENT, run=False)
    assert seen == [[message_claim(CONTENT)]]


def test_a_message_that_the_agent_refuses_is_not_expected(store, commands, agent, begun):
    agent.statuses = [422]
    with pytest.raises(AgentRefused):
        commands.send(begun, content=CONTENT, run=False)
    assert expected(store, begun) == []


def test_a_message_that_got_no_response_is_expected_for_the_agent_may_have_it(store, commands, agent, begun):
    agent.statuses = [0]
    with pytest.raises(AgentUnreachable):
        commands.send(begun, content=CONTENT, run=False)
    assert expected(store, begun) == [message_claim(CONTENT)]


def test_a_message_behind_a_rejection_that_the_agent_did_not_receive_is_not_expected(store, commands, agent, sandbox):
    identity = str(uuid4())
    proposed = propose(store, identity, sandbox.id)
    agent.statuses = [0]
    with pytest.raises(AgentUnreachable):
        commands.send(identity, content=CONTENT, run=False)
    assert expected(store, identity) == [f"reject {proposed['id']}"]


@pytest.mark.parametrize("accept", [True, False])
def test_a_rejection_is_expected_and_an_acceptance_is_not(store, commands, agent, sandbox, accept):
    identity = str(uuid4())
    agent.latest = propose(store, identity, sandbox.id)["id"]
    assert commands.decide(identity, accept=accept, reason="no")
    assert expected(store, identity) == ([] if accept else [f"reject {agent.latest}"])


def test_a_policy_is_expected_before_the_agent_has_it(store, commands, agent, begun):
    seen = []
    agent.on_request = lambda _path: seen.append(expected(store, begun))
    commands.set_policy(begun, ALWAYS)
    assert seen == [[policy_claim(ALWAYS)]]
