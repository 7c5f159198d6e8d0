"""An agent server, a sandbox and a conversation that waits for a decision."""

import pytest

from agents.commands import Commands
from agents.link import http_client
from tests.agents import SPECS, propose, running_sandbox, scripted_agent
from tests.agents.scripted_model import scripted_model


@pytest.fixture
def agent():
    with scripted_agent() as agent:
        yield agent


@pytest.fixture
def commands(store):
    return Commands(store, http_client(2), SPECS)


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


@pytest.fixture
def effects(tmp_path):
    """A file that commands of an agent append a line to."""
    path = tmp_path / "effects"
    path.touch()
    return path


@pytest.fixture(scope="module")
def model():
    """A model that says what a test puts into its script."""
    with scripted_model() as model:
        yield model


@pytest.fixture
def fresh(model):
    """Lets the model begin with an empty script, and with no request noted."""
    model.script.clear()
    model.asked.clear()
    model.keys.clear()
