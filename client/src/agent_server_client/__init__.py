"""The Python client of the agent server: `Client`, or `AsyncClient` with the same methods to await."""

from agent_server_client._async import AsyncClient, AsyncConversation, AsyncFiles, AsyncPendingAction
from agent_server_client._sync import Client, Conversation, Files, PendingAction
from agent_server_client.errors import AgentServerError
from agent_server_client.wire import Entry, Output

__all__ = [
    "AgentServerError",
    "AsyncClient",
    "AsyncConversation",
    "AsyncFiles",
    "AsyncPendingAction",
    "Client",
    "Conversation",
    "Entry",
    "Files",
    "Output",
    "PendingAction",
]
