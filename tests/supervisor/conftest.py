"""A scripted agent server in a sandbox, and conversations that it loses and finds again."""

from dataclasses import replace
from uuid import uuid4

import pytest

from supervisor.recovery import Recovery
from tests.agents import running_sandbox, scripted_agent
from tests.conftest import as_events


@pytest.fixture
def agent():
    with scripted_agent() as agent:
        yield agent


@pytest.fixture
def sandbox(store, agent):
    with running_sandbox(store, agent.url) as sandbox:
        yield replace(sandbox, start=1)


@pytest.fixture
def recovery(store):
    return Recovery(store)


@pytest.fixture
def begin(store, sandbox, agent):
    """Begin a conversation in the sandbox, whose agent has written these events and posted all, or so many of them."""

    def do(*events: dict, posted: int | None = None) -> str:
        conversation = str(uuid4())
        store.conversations.create(conversation, sandbox_id=sandbox.id, app={})
        agent.logs[conversation] = list(events)
        if batch := as_events(list(events)[:posted]):
            store.events.append(conversation, batch, sandbox_id=sandbox.id)
        return conversation

    return do


@pytest.fixture
def settle(recovery, sandbox, agent):
    """Settle after a start of that number."""

    def do(start: int = 2, *, resume_runs: bool = False):
        recovery.settle(replace(sandbox, start=start), agent.server(), resume_runs=resume_runs)

    return do
