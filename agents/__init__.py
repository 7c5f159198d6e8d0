"""Agents: how the server talks to those in sandboxes, and one to begin with."""
