"""The table of agents: every line is whole, its versions are pinned, and no key stands in it."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from reference_agent.acp import agents
from reference_agent.acp.agents import acp_names, chosen, table
from tests.servers import PROJECT

NAMES = ["openhands", "claude", "codex", "opencode", "gemini", "goose", "copilot", "qwen", "vibe", "kimi"]

TEXT = Path(agents.__file__).with_name("agents.toml").read_text()


def every(names):
    return pytest.mark.parametrize("name", names)


def test_the_table_has_the_agents_that_people_ask_for_with_the_strongest_open_one_first():
    assert list(table()) == NAMES
    assert acp_names() == NAMES[1:]


@every(NAMES)
def test_a_line_says_what_asking_holds_and_what_only_the_way_out_holds(name):
    agent = table()[name]
    assert agent.title
    assert agent.version
    assert agent.holds
    assert agent.passes
    assert all(trap.endswith(".") for trap in agent.traps)


@every(NAMES)
def test_versions_are_pinned(name):
    agent = table()[name]
    assert bool(agent.npm) != bool(agent.pip)
    assert all(re.fullmatch(r"(@[\w-]+/)?[\w{}-]+@\d+\.\d+\.\d+", package) for package in agent.npm)
    if agent.by:
        assert set(agent.pip) <= set((PROJECT / "requirements/openhands.txt").read_text().splitlines())
    else:
        assert all(re.fullmatch(r"[\w-]+==\d+\.\d+\.\d+", package) for package in agent.pip)


@every(NAMES[1:])
def test_the_model_is_a_service_of_the_way_out_and_its_key_is_put_in_outside(name):
    agent = table()[name]
    [(service, members)] = agent.services.items()
    assert re.fullmatch(r"\{env:[A-Z_]+:-https://[^{}]+\}", members["base_url"])
    [(_, header)] = members["headers"].items()
    assert header.removeprefix("Bearer ") == f"{{env:{agent.key}}}"
    assert re.search(rf"\{{EGRESS\}}/{service}\b|'{service}/", str(agent.environment))
    keys = [value for variable, value in agent.environment.items() if variable.endswith("_KEY")]
    assert set(keys) <= {"placeholder"}
    assert "placeholder" in str(agent.environment)


@every(NAMES[1:])
def test_a_variable_that_holds_json_is_json(name):
    for value in table()[name].environment.values():
        if value.startswith(("[", '{"')):
            json.loads(value)


@every(NAMES[1:])
def test_an_agent_whose_variables_name_a_model_has_one_unless_it_knows_its_own(name):
    agent = table()[name]
    composed = [value for value in agent.environment.values() if "{MODEL}" in value and value != "{MODEL}"]
    assert agent.model or not composed


def test_no_line_has_a_member_that_nothing_reads():
    for members in tomllib.loads(TEXT).values():
        assert set(members) <= set(agents.Agent._fields)


def test_no_text_looks_like_a_key():
    assert not re.search(r"sk-|AIza|ghp_|gho_|eyJ|[A-Za-z0-9+/]{40}", TEXT)


def test_an_agent_that_is_an_agent_server_itself_is_not_run_as_a_program():
    with pytest.raises(ValueError, match=r'ACP_AGENT "openhands" is unknown\. The agents are: claude, codex'):
        chosen({"ACP_AGENT": "openhands"})


def test_the_command_line_of_the_spec_replaces_that_of_the_table_and_the_mode_stays():
    agent = chosen({"ACP_AGENT": "claude", "ACP_COMMAND": "/opt/claude-agent-acp --debug"})
    assert agent is not None
    assert (agent.title, agent.command, agent.mode) == ("Claude Code", ("/opt/claude-agent-acp", "--debug"), "default")
