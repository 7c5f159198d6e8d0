"""An agent server that does what tests want, its sandbox, and a conversation there."""

import pytest

from tests.agents import running_sandbox
from tests.forwarding import upstream_agent


@pytest.fixture
def upstream():
    with upstream_agent() as agent:
        yield agent


@pytest.fixture
def sandbox(store, upstream):
    """A sandbox that runs, with that agent server and keys of its own, which a caller without a key has started."""
    with running_sandbox(store, upstream.url, owner="anyone") as sandbox:
        store.sandboxes.begin(sandbox.id, "scripted", "supervisor", "process")
        store.sandboxes.report(sandbox.id, "scripted", "supervisor", "RUNNING", agent_url=upstream.url)
        yield store.sandboxes.get(sandbox.id)


@pytest.fixture
def linked(store, conversation, sandbox):
    """A conversation in the sandbox."""
    folder = {"working_dir": "/work/project"}
    store.conversations.create(conversation, sandbox_id=sandbox.id, app={}, workspace=folder, asked_dir="/tmp/ws")
    return conversation
