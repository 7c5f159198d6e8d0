"""Redis, and the rules that must be atomic. No Flask here."""

from dataclasses import dataclass

from store.access_keys import AccessKeys, Tickets
from store.app_conversations import AppConversations
from store.archives import Archives
from store.bounds import Bounds
from store.checks import Checks
from store.confirmations import Confirmations
from store.connection import Clients, connect
from store.conversations import Conversations
from store.data_version import DataVersion
from store.deliveries import Deliveries
from store.echoes import Echoes
from store.events import EventLog
from store.followers import Followers
from store.forks import Forks
from store.health import Health
from store.hosts import Hosts
from store.idempotency import Idempotency
from store.labels import Labels
from store.listing import Listing
from store.places import Places
from store.queued_messages import QueuedMessages
from store.rates import Counters
from store.sandbox_files import SandboxFiles
from store.sandbox_record import Limits
from store.sandboxes import Sandboxes
from store.scripts import Scripts
from store.seal_check import SealCheck
from store.secrets import Sealer
from store.signals import Signals
from store.start_bodies import StartBodies
from store.start_tasks import StartTasks
from store.text import MessageText
from store.wakeups import Wakeups

__all__ = ["Bounds", "Limits", "Store", "open_store"]


@dataclass(frozen=True, slots=True)
class Store:
    """The modules of the store, each for one kind of data."""

    data_version: DataVersion
    seal_check: SealCheck
    conversations: Conversations
    echoes: Echoes
    events: EventLog
    confirmations: Confirmations
    deliveries: Deliveries
    app_conversations: AppConversations
    sandboxes: Sandboxes
    sandbox_files: SandboxFiles
    archives: Archives
    checks: Checks
    start_tasks: StartTasks
    start_bodies: StartBodies
    queued_messages: QueuedMessages
    wakeups: Wakeups
    followers: Followers
    forks: Forks
    health: Health
    access_keys: AccessKeys
    tickets: Tickets
    idempotency: Idempotency
    counters: Counters
    places: Places
    hosts: Hosts
    labels: Labels


def open_store(
    url: str,
    *,
    timeout: float,
    max_connections: int,
    text_cache_bytes: int,
    ring_bytes: int,
    most_followers: int,
    secret_keys: tuple[str, ...],
    most_idempotency_keys: int = 50_000,
    limits: Limits,
    bounds: Bounds,
) -> Store:
    """The store in the Redis of a URL (see `store/connection.py`). Its first command connects. Raises ValueError."""
    clients: Clients = connect(url, timeout=timeout, max_connections=max_connections)
    scripts = Scripts(clients.commands)
    listing = Listing(clients.commands, scripts)
    sealer = Sealer(secret_keys)
    places = Places(scripts, limits.most_conversations)
    conversations = Conversations(clients.commands, scripts, listing, sealer, places)
    confirmations = Confirmations(scripts, listing, bounds)
    sandboxes = Sandboxes(clients.commands, scripts, limits, sealer)
    start_tasks = StartTasks(clients.commands, scripts, sealer, sandboxes, places)
    text, signals = MessageText(clients.commands, text_cache_bytes), Signals(clients.commands, clients.signals)
    return Store(
        data_version=DataVersion(clients.commands, clients.health, listing, sealer),
        seal_check=SealCheck(clients.health, sealer),
        conversations=conversations,
        echoes=Echoes(scripts),
        events=EventLog(clients.commands, scripts, listing, conversations, text, bounds),
        confirmations=confirmations,
        deliveries=Deliveries(scripts, bounds, limits, sealer),
        app_conversations=AppConversations(conversations, listing, sandboxes),
        sandboxes=sandboxes,
        sandbox_files=SandboxFiles(clients.commands),
        archives=Archives(clients.commands, scripts),
        checks=Checks(scripts, limits),
        start_tasks=start_tasks,
        start_bodies=StartBodies(clients.commands, sealer),
        queued_messages=QueuedMessages(scripts, start_tasks, conversations),
        wakeups=Wakeups(clients.signals),
        followers=Followers(scripts, signals, ring_bytes=ring_bytes, most_followers=most_followers),
        forks=Forks(scripts, listing, conversations),
        health=Health(clients.health),
        access_keys=AccessKeys(scripts),
        tickets=Tickets(scripts),
        idempotency=Idempotency(scripts, most=most_idempotency_keys),
        counters=Counters(clients.commands, scripts),
        places=places,
        hosts=Hosts(clients.health),
        labels=Labels(scripts),
    )
