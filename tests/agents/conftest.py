"""An agent server, a sandbox and a conversation that waits for a decision."""

import pytest

from agents.commands import Commands
from tests.agents import SPECS, agent_client, propose, running_sandbox, scripted_agent


@pytest.fixture
def agent():
    with scripted_agent() as agent:
        yield agent


@pytest.fixture
def commands(store):
    return Commands(store, agent_client(2), SPECS)


@pytest.fixture
def sandbox(store, agent):
    """A sandbox that runs, with that agent in it."""
    with running_sandbox(store, agent.url) as sandbox:
        yield sandbox


@pytest.fixture
def waiting(store, conversation, sandbox, agent):
    """A conversation whose agent waits for a decision about one action."""
    agent.latest = propose(store, conversation, sandbox.id)["id"]
    return conversation
