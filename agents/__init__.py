"""Calls of the agent servers in sandboxes: `client` makes them; the other modules decide which calls, and when."""
