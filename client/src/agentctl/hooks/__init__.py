"""`agentctl hook`: agents that run elsewhere ask in the inbox of an agent server.

`agentctl hook NAME` runs at each call of an agent's tool. This package imports the standard library alone.
"""

#: The agents with a hook, in the order of the documentation.
NAMES = ("claude", "codex", "opencode", "copilot", "qwen")

#: Marks a command whose questions are gates, of an agent that has one event for both.
GATE = "--gate"

#: The version of this client, which each request of a hook names. client/pyproject.toml has the same.
VERSION = "0.1.0"
