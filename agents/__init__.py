"""The link to agents: sends clients' commands to the agent servers in sandboxes. `reference/` is one itself."""
