"""Calls of the agent servers in sandboxes: `client` makes them; the other modules say which ones, and when."""
