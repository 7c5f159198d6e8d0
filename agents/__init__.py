"""The link to agents: passes clients' words on to the agent servers in sandboxes. `reference/` is an agent itself."""
