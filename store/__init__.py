"""Redis, and the rules that must be atomic. No Flask here."""

from dataclasses import dataclass

from store.confirmations import Confirmations
from store.connection import Clients, connect
from store.conversations import Conversations
from store.events import EventLog
from store.feeds import Feeds
from store.forks import Forks
from store.health import Health
from store.listing import Listing
from store.scripts import Scripts
from store.secrets import Sealer
from store.signals import Signals
from store.text import MessageText

__all__ = ["Store", "open_store"]


@dataclass(frozen=True, slots=True)
class Store:
    """Everything that a request can ask for."""

    conversations: Conversations
    events: EventLog
    confirmations: Confirmations
    feeds: Feeds
    forks: Forks
    health: Health


def open_store(
    url: str,
    *,
    timeout: float,
    max_connections: int,
    text_cache_bytes: int,
    ring_bytes: int,
    most_followers: int,
    secret_key: str,
) -> Store:
    """The store behind a Redis URL (see `store/connection.py`). Connects when first asked. Raises ValueError."""
    clients: Clients = connect(url, timeout=timeout, max_connections=max_connections)
    scripts = Scripts(clients.commands)
    listing = Listing(clients.commands, scripts)
    conversations = Conversations(clients.commands, scripts, listing, Sealer(secret_key))
    text = MessageText(clients.commands, text_cache_bytes)
    signals = Signals(clients.commands, clients.signals)
    return Store(
        conversations=conversations,
        events=EventLog(clients.commands, scripts, listing, conversations, text),
        confirmations=Confirmations(scripts, listing),
        feeds=Feeds(scripts, signals, ring_bytes=ring_bytes, most_followers=most_followers),
        forks=Forks(clients.commands, scripts, listing, conversations),
        health=Health(clients.health),
    )
