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

#: agents that never ask, which only ACP_AGENT of a spec runs
SILENT = ["pi", "fast-agent"]

TEXT = Path(agents.__file__).with_name("agents.toml").read_text()


def every(names):
    return pytest.mark.parametrize("name", names)


def test_the_table_has_the_agents_that_people_ask_for_with_the_strongest_open_one_first():
    assert list(table()) == [*NAMES, *SILENT]
    assert acp_names() == [*NAMES[1:], *SILENT]
    assert [name for name in table() if table()[name].is_installed_by_make] == NAMES
    assert [name for name in table() if not table()[name].asks] == SILENT


@every([*NAMES, *SILENT])
def test_a_line_says_what_asking_holds_and_what_only_the_way_out_holds(name):
    agent = table()[name]
    assert agent.title
    assert agent.version
    assert agent.holds
    assert agent.passes
    assert all(trap.endswith(".") for trap in agent.traps)


@every([*NAMES, *SILENT])
def test_versions_are_pinned(name):
    agent = table()[name]
    assert agent.version.split()[-1] in str((*agent.npm, *agent.pip))
    assert bool(agent.npm) != bool(agent.pip)
    assert all(re.fullmatch(r"(@[\w-]+/)?[\w{}-]+@\d+\.\d+\.\d+", package) for package in agent.npm)
    if agent.by:
        assert set(agent.pip) <= set((PROJECT / "requirements/openhands.txt").read_text().splitlines())
    else:
        assert all(re.fullmatch(r"[\w-]+==\d+\.\d+\.\d+", package) for package in agent.pip)


@every(NAMES[1:])
def test_the_model_is_a_service_of_the_way_out_and_its_key_is_put_in_outside(name):
    agent = table()[name]
    assert re.fullmatch(r"\{env:[A-Z_]+:-https://[^{}]+\}", agent.service["base_url"])
    [header] = agent.service["headers"].values()
    assert header.removeprefix("Bearer ") == f"{{env:{agent.key}}}"
    assert agent.model
    for value in ("{MODEL}", "{LLM_BASE_URL}", "{LLM_API_KEY}"):
        assert value in str((agent.command, agent.environment))


@every(NAMES[1:])
def test_a_variable_that_holds_json_is_json_whatever_the_model_is_called(name):
    agent = table()[name].with_model('openai/the "best"', "http://127.0.0.1:1023/model", "placeholder")
    for value in agent.environment.values():
        if value.startswith(("[{", '{"')):
            json.loads(value)


def test_no_line_has_a_member_that_nothing_reads():
    for members in tomllib.loads(TEXT).values():
        assert set(members) <= set(agents.AcpAgent._fields)


def test_no_text_looks_like_a_key():
    assert not re.search(r"sk-|AIza|ghp_|gho_|eyJ|[A-Za-z0-9+/]{40}", TEXT)


def test_an_agent_that_is_an_agent_server_itself_is_not_run_as_a_program():
    with pytest.raises(ValueError, match=r'ACP_AGENT "openhands" is unknown\. The agents are: claude, codex'):
        chosen({"ACP_AGENT": "openhands"})


def test_the_command_line_of_the_spec_replaces_that_of_the_table_and_the_mode_stays():
    agent = chosen({"ACP_AGENT": "claude", "ACP_COMMAND": "/opt/claude-agent-acp --debug"})
    assert agent is not None
    assert (agent.title, agent.command, agent.mode) == ("Claude Code", ("/opt/claude-agent-acp", "--debug"), "default")
