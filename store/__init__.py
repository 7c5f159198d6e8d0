"""Redis, and the rules that must be atomic. No Flask here."""

from dataclasses import dataclass

from store.confirmations import Confirmations
from store.connection import Clients, connect
from store.conversations import Conversations
from store.events import EventLog
from store.health import Health
from store.scripts import Scripts
from store.text import MessageText

__all__ = ["Store", "open_store"]


@dataclass(frozen=True, slots=True)
class Store:
    """Everything that a request can ask for."""

    conversations: Conversations
    events: EventLog
    confirmations: Confirmations
    health: Health


def open_store(url: str, *, timeout: float, max_connections: int, text_cache_bytes: int) -> Store:
    """The store behind a Redis URL (see `store/connection.py`). Connects when first asked. Raises ValueError."""
    clients: Clients = connect(url, timeout=timeout, max_connections=max_connections)
    scripts = Scripts(clients.commands)
    conversations = Conversations(clients.commands, scripts)
    text = MessageText(clients.commands, text_cache_bytes)
    return Store(
        conversations=conversations,
        events=EventLog(clients.commands, scripts, conversations, text),
        confirmations=Confirmations(scripts),
        health=Health(clients.health),
    )
