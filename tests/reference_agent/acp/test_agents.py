"""The table of agents, and the agent that the environment chooses."""

import pytest

from reference_agent.acp.agents import chosen, refusal, table

ASKS, HOLDS_NOTHING = {"kind": "AlwaysConfirm"}, {"kind": "NeverConfirm"}


def test_no_agent_is_chosen_by_an_empty_environment():
    assert chosen({}) is None


def test_an_agent_of_the_table_brings_its_command():
    agent = chosen({"ACP_AGENT": "opencode"})

    assert agent is not None
    assert agent.command == ("opencode", "acp")


def test_any_command_is_an_agent():
    agent = chosen({"ACP_COMMAND": "/opt/mine --acp 'a b'", "ACP_MODE": "ask"})

    assert agent is not None
    assert (agent.command, agent.mode, agent.title) == (("/opt/mine", "--acp", "a b"), "ask", "mine")


def test_an_unknown_agent_is_refused_with_the_names_of_the_known_ones():
    with pytest.raises(ValueError, match=r"The agents are: .*opencode"):
        chosen({"ACP_AGENT": "nobody"})


@pytest.mark.parametrize("agent", table().values(), ids=table())
def test_an_agent_that_never_asks_is_refused_under_a_policy_that_holds_something(agent):
    assert refusal(agent, HOLDS_NOTHING) == ""
    assert bool(refusal(agent, ASKS)) is not agent.asks
    assert bool(refusal(agent, {"kind": "ConfirmRisky"})) is not agent.asks
