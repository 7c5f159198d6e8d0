"""A run is started after the end of the one before, also where the agent server tells of that end too early."""

import pytest

from agents.link import AgentRefused


@pytest.fixture
def linked(store, conversation, sandbox):
    store.conversations.create(conversation, sandbox_id=sandbox.id, app={})
    return conversation


@pytest.mark.parametrize("status", ["idle", "finished", "paused", "error"])
def test_a_run_is_retried_while_the_agent_ends_the_last_one(commands, linked, agent, status):
    agent.state = {"execution_status": status}
    agent.statuses = [409, 200, 409, 200]  # of runs, and of the question after each refusal

    commands.change_status(linked, "run")

    assert agent.count("/run") == 3


@pytest.mark.parametrize("status", ["running", "waiting_for_confirmation"])
def test_the_refusal_of_an_agent_that_runs_or_waits_is_final(commands, linked, agent, status):
    agent.state = {"execution_status": status}
    agent.statuses = [409]

    with pytest.raises(AgentRefused, match="409"):
        commands.change_status(linked, "run")
    assert agent.count("/run") == 1


def test_an_agent_that_never_ends_its_run_is_refused_in_the_end(commands, linked, agent):
    agent.state = {"execution_status": "idle"}
    agent.status_of = lambda path: 409 if path.endswith("/run") else 200

    with pytest.raises(AgentRefused, match="409"):
        commands.change_status(linked, "run")


@pytest.mark.parametrize("status", [422, 429, 500])
def test_any_other_refusal_of_a_run_is_final(commands, linked, agent, status):
    agent.state = {"execution_status": "idle"}
    agent.statuses = [status]

    with pytest.raises(AgentRefused, match=str(status)):
        commands.change_status(linked, "run")
    assert agent.count("/run") == 1
