"""What the bundled agent ignores of a start, told by name."""

import pytest

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
        ({"agent_settings": {"mcp_config": {"mcpServers": {"old": {"transport": "sse"}}}}}, "calls no tool of old."),
        ({"agent": {"mcp_config": {"a": {"auth": {"strategy": "oauth2"}}, "b": {}}}}, "calls no tool of a. Logins by"),
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
    ("given", "sentence"),
    [
        ({"agent": {"tools": [{"name": "terminal"}]}}, "tools are ignored: terminal. The agent has its own."),
        ({"agent": {"mcp_config": {"mcpServers": {"fetch": {}}}}}, "calls no tool of fetch."),
        ({"agent": {"agent_context": {"skills": [{"name": "git"}]}}}, "agent_context.skills are ignored: git."),
        ({"agent": {"agent_context": {"system_message_suffix": "x"}}}, "agent_context.system_message_suffix is"),
        ({"agent": {"system_prompt": "x"}}, "agent.system_prompt is ignored: the agent keeps its own prompt."),
    ],
)
def test_a_program_in_the_place_of_the_agent_reads_none_of_what_the_agent_reads(given, sentence):
    assert sentence in ignored(given, is_bundled=False)[0]
    assert ignored(given) == []


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
