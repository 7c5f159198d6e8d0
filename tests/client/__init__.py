"""The Python client and agentctl."""
