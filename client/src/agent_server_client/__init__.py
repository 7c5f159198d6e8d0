"""The Python client of the agent server: `Client`, or `AsyncClient` with the same methods to await."""

from agent_server_client._async import (
    AsyncClient,
    AsyncConversation,
    AsyncDestination,
    AsyncFiles,
    AsyncPendingAction,
    AsyncSandbox,
    AsyncTurn,
)
from agent_server_client._sync import Client, Conversation, Destination, Files, PendingAction, Sandbox, Turn
from agent_server_client.errors import AgentServerError
from agent_server_client.wire import Entry, Output

__all__ = [
    "AgentServerError",
    "AsyncClient",
    "AsyncConversation",
    "AsyncDestination",
    "AsyncFiles",
    "AsyncPendingAction",
    "AsyncSandbox",
    "AsyncTurn",
    "Client",
    "Conversation",
    "Destination",
    "Entry",
    "Files",
    "Output",
    "PendingAction",
    "Sandbox",
    "Turn",
]
