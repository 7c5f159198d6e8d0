"""Warnings about members of a start request that an agent ignores: each names a member, and what happens instead."""

from typing import Any

from core.cuts import beginning
from core.visible import visible
from reference_agent.toolbox import names_in, own_name
from reference_agent.tools import TOOLS

_MOST_NAMES, _MOST_NAME = 10, 60  #: maximum number of names in a sentence, and characters of a name
_INSTEAD = "The OpenHands agent has them: make openhands."  #: the agent that supports these members

#: Members of a start request that this agent does not read, with what happens instead.
_OF_REQUEST = {
    "hook_config": "its hooks do not run",
    "plugins": "they are not loaded",
    "client_tools": "the agent does not call them",
    "agent_definitions": "sub-tasks are done by the agent itself",
    "agent_launch_additions": "nothing is added to the agent",
    "worktree": "the agent works in the folder itself",
}


def ignored(given: dict[str, Any], program: str = "") -> list[str]:
    """Return the warnings about a start request. program: the title of an agent program; "": the bundled agent."""
    agent = _object(given, "agent") or _object(given, "agent_settings")
    warnings = [] if program else _of_agent(agent)
    if program and brings_agent(agent):
        warnings = [f"agent is ignored: {program} works in its place, with its own model, tools and prompt."]
    warnings += [f"{name} is ignored: {instead}." for name, instead in _OF_REQUEST.items() if given.get(name)]
    secrets = _object(given, "secrets")
    objects = {name: _object(secrets, name) for name in secrets}
    if looked_up := [name for name, one in objects.items() if "url" in one and one.get("value") is None]:
        warnings.append(f"secrets are ignored: {_listed(looked_up)}. The agent does not look up secrets at URLs.")
    return [*warnings, _INSTEAD] if warnings and not program else warnings


def brings_agent(agent: dict[str, Any]) -> bool:
    """Return whether a client's start request sets more of its agent than a model of the server's provider."""
    llm = _object(agent, "llm")
    return bool(agent.keys() - {"llm"} or llm.get("base_url") or llm.get("api_key"))


def _of_agent(agent: dict[str, Any]) -> list[str]:
    condenser, kind = _object(agent, "condenser"), agent.get("kind") or agent.get("agent_kind")
    warnings = []
    if kind not in (None, "Agent", "openhands", "llm"):
        warnings.append(f"agent of the kind {_name(kind)} is ignored: the bundled agent works in its place.")
    if tools := [one for one in names_in(agent.get("tools")) if own_name(one) not in TOOLS]:
        warnings.append(f"tools are ignored: {_listed(tools)}. The agent has {', '.join(TOOLS)}.")
    if unused := [name for name, one in servers_in(agent.get("mcp_config")).items() if _is_unused(one)]:
        warnings.append(f"mcp_config is ignored: the agent calls no tool of {_listed(unused)}. It has no OAuth login.")
    if condenser and condenser.get("kind") != "NoOpCondenser":
        kind = _name(condenser.get("kind") or "the condenser")
        warnings.append(f"condenser is ignored: the agent shortens a long conversation by its own rule, not by {kind}.")
    return [*warnings, "agent.critic is ignored: nothing rates the agent's work."] if agent.get("critic") else warnings


def _object(given: dict[str, Any], name: str) -> dict[str, Any]:
    value = given.get(name)
    return value if isinstance(value, dict) else {}


def servers_in(config: Any) -> dict[str, Any]:
    """Return the MCP servers of `mcp_config` by name. Older clients nest them."""
    nested = config.get("mcpServers") if isinstance(config, dict) else None
    return nested if isinstance(nested, dict) else config if isinstance(config, dict) else {}


def _is_unused(server: Any) -> bool:
    given: dict[str, Any] = server if isinstance(server, dict) else {}
    return given.get("auth") == "oauth" or _object(given, "auth").get("strategy") == "oauth2"


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(map(_name, names[:_MOST_NAMES])) + more


def _name(value: Any) -> str:
    return beginning(visible(str(value)).replace("\n", " "), _MOST_NAME)
