"""What the bundled agent ignores of a start, told by name."""

import pytest

from reference_agent.api import llm_of
from reference_agent.ignored import ignored


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            {"agent": {"tools": [{"name": "terminal"}, {"name": "browser_tool_set"}, {"name": "task_tracker"}]}},
            "tools are ignored: browser_tool_set. The agent has terminal, file_editor, grep, ",
        ),
        (
            {"agent": {"mcp_config": {"mail": {"url": "x", "auth": "oauth"}}}},
            "mcp_config is ignored: the agent calls no",
        ),
        ({"agent": {"mcp_config": {"a": {"auth": {"strategy": "oauth2"}}, "b": {}}}}, "calls no tool of a. It has no"),
        (
            {"agent": {"condenser": {"kind": "LLMSummarizingCondenser"}}},
            "condenser is ignored: the agent shortens a long conversation by its own rule, not by LLMSummarizing",
        ),
        ({"agent": {"kind": "ACPAgent"}}, "agent of the kind ACPAgent is ignored: the bundled agent works in its"),
        ({"agent": {"critic": {"kind": "x"}}}, "agent.critic is ignored: nothing rates the agent's work."),
        ({"hook_config": {"pre_tool_use": []}}, "hook_config is ignored: its hooks do not run."),
        ({"secrets": {"T": {"kind": "LookupSecret", "url": "http://x"}}}, "secrets are ignored: T."),
        ({"agent": {"tools": [{"name": f"t{one}"} for one in range(99)]}}, "t9 and 89 more."),
    ],
)
def test_each_ignored_member_is_told_by_name_with_what_happens_instead(given, sentence):
    told = ignored(given)
    assert sentence in told[0]
    assert told[-1] == "The OpenHands agent has them: make openhands."


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"agent": None, "secrets": {"A": "plain", "B": {"value": "x"}}},
        {
            "agent": {
                "kind": "Agent",
                "tools": [{"name": "terminal"}, {"name": "FileEditorTool"}, {"name": "BashTool"}, {"name": "GrepTool"}],
                "mcp_config": {},
                "include_default_tools": ["FinishTool", "ThinkTool"],
                "agent_context": {"skills": [], "system_message_suffix": None},
                "condenser": None,
                "system_prompt_filename": "system_prompt.j2",
            },
            "hook_config": None,
            "client_tools": [],
        },
        {"agent": {"tools": "x", "mcp_config": [], "agent_context": [], "condenser": 3}, "secrets": []},
    ],
)
def test_a_start_of_which_nothing_is_ignored_is_told_nothing(given):
    assert ignored(given) == []


def test_a_name_of_a_client_is_one_short_line():
    [told, _] = ignored({"agent": {"tools": [{"name": "a\nb\u202ec" + "x" * 999}]}})
    assert ("\n" in told, "\u202e" in told, len(told) < 250) == (False, False, True)


OWN = "agent is ignored: Claude Code works in its place, with its own model, tools and prompt."


@pytest.mark.parametrize(
    ("agent", "told", "model"),
    [
        ({"llm": {"model": "opus"}}, [], "opus"),
        ({"llm": {"model": "openai/gpt", "api_key": "sk"}}, [OWN], ""),
        ({"llm": {"model": "openai/gpt", "base_url": "http://127.0.0.1:9/v1"}}, [OWN], ""),
        ({"llm": {"model": "opus"}, "tools": [{"name": "terminal"}]}, [OWN], ""),
        ({}, [], ""),
    ],
)
def test_another_program_keeps_its_endpoint_and_its_key_whatever_agent_a_client_brings(agent, told, model):
    assert ignored({"agent": agent}, "Claude Code") == told
    assert llm_of({"agent": agent}, is_own=False) == {
        "model": model,
        "base_url": "",
        "api_key": "",
        "max_input_tokens": None,
    }
