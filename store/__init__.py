"""Redis, and the rules that must be atomic. No Flask here."""

from dataclasses import dataclass
from typing import Any

from redis import Redis

from meter import Meter
from store.access.access_keys import AccessKeys, Tickets
from store.access.idempotency import Idempotency
from store.access.rates import Counters
from store.approvals.approval_checks import ApprovalChecks
from store.approvals.audit import Audit
from store.approvals.confirmations import Confirmations
from store.approvals.deliveries import Deliveries
from store.approvals.inbox import Inbox
from store.approvals.inbox_stream import InboxStream
from store.approvals.link_uses import LinkUses
from store.approvals.rule_decisions import RuleDecisions
from store.approvals.rules import Rules
from store.bounds import Bounds
from store.conversations.app_conversations import AppConversations
from store.conversations.cold import Cold, Objects
from store.conversations.conversation_list import ConversationList
from store.conversations.conversation_pages import ConversationPages
from store.conversations.conversations import Conversations
from store.conversations.events import EventLog
from store.conversations.exports import Exports
from store.conversations.forks import Forks
from store.conversations.histogram import Histograms
from store.conversations.labels import Labels
from store.conversations.list_stream import ListStream
from store.conversations.message_search import MessageSearch
from store.conversations.packing import Packing
from store.conversations.queued_messages import QueuedMessages
from store.data_version import DataVersion
from store.keys import ListingKeys, SandboxKeys
from store.link.connection import connect
from store.link.durability import AS_REDIS, Durability
from store.link.health import Health
from store.link.round_trips import counted
from store.link.seal_check import SealCheck
from store.link.secrets import Sealer
from store.link.signals import Signals
from store.link.wakeups import Wakeups
from store.listing import Listing
from store.log.followers import Followers
from store.log.text import MessageText
from store.notifications.outbox import Outboxes
from store.notifications.targets import Targets
from store.sandboxes.archives import Archives
from store.sandboxes.checks import Checks
from store.sandboxes.echoes import Echoes
from store.sandboxes.gauges import Gauges
from store.sandboxes.hosts import Hosts
from store.sandboxes.places import Places
from store.sandboxes.sandbox_files import SandboxFiles
from store.sandboxes.sandbox_record import Limits
from store.sandboxes.sandboxes import Sandboxes
from store.sandboxes.start_tasks import StartTasks
from store.sandboxes.warm import WarmSandboxes
from store.scripts import Scripts

__all__ = ["Bounds", "Durability", "Limits", "Objects", "Store", "open_store"]


@dataclass(frozen=True, slots=True)
class Store:
    """The modules of the store, each for one kind of data."""

    data_version: DataVersion
    seal_check: SealCheck
    conversations: Conversations
    cold: Cold
    conversation_list: ConversationList
    conversation_pages: ConversationPages
    conversation_stream: ListStream
    echoes: Echoes
    events: EventLog
    exports: Exports
    histograms: Histograms
    message_search: MessageSearch
    packing: Packing
    confirmations: Confirmations
    deliveries: Deliveries
    app_conversations: AppConversations
    sandboxes: Sandboxes
    warm: WarmSandboxes
    sandbox_stream: ListStream
    sandbox_files: SandboxFiles
    archives: Archives
    checks: Checks
    start_tasks: StartTasks
    queued_messages: QueuedMessages
    wakeups: Wakeups
    followers: Followers
    forks: Forks
    health: Health
    access_keys: AccessKeys
    audit: Audit
    tickets: Tickets
    link_uses: LinkUses
    idempotency: Idempotency
    counters: Counters
    places: Places
    hosts: Hosts
    labels: Labels
    rules: Rules
    inbox: Inbox
    inbox_stream: InboxStream
    approval_checks: ApprovalChecks
    outboxes: Outboxes
    targets: Targets
    gauges: Gauges


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
    durability: Durability = AS_REDIS,
    limits: Limits,
    bounds: Bounds,
    objects: Objects | None = None,
    meter: Meter | None = None,
) -> Store:
    """The store in the Redis of a URL: `store/link/connection.py`. Its first command connects. Raises ValueError."""
    meter = meter or Meter()
    connected = connect(url, timeout=timeout, max_connections=max_connections, durability=durability)
    clients = counted(connected, meter)
    scripts, sealer = Scripts(clients.commands, durability), Sealer(secret_keys)
    listing, places = Listing(clients.commands, scripts), Places(scripts, limits.most_conversations)
    conversations = Conversations(clients.commands, scripts, listing, sealer, places, bounds.audit_days)
    sandboxes = Sandboxes(clients.commands, scripts, limits, sealer)
    start_tasks = StartTasks(clients.commands, scripts, sealer, sandboxes, places, meter)
    signals = Signals(clients.commands, clients.signals)
    deliveries = Deliveries(scripts, listing, bounds, limits, sealer)
    followers = Followers(scripts, signals, meter, ring_bytes=ring_bytes, most_followers=most_followers)
    return Store(
        data_version=DataVersion(clients.commands, clients.health, listing, sealer),
        conversations=conversations,
        echoes=Echoes(scripts),
        app_conversations=AppConversations(conversations, listing, sandboxes),
        sandboxes=sandboxes,
        **_of_sandboxes(clients.commands, scripts, limits, sealer),
        start_tasks=start_tasks,
        queued_messages=QueuedMessages(scripts, start_tasks, conversations),
        wakeups=Wakeups(clients.signals),
        followers=followers,
        forks=Forks(scripts, listing, conversations),
        idempotency=Idempotency(scripts, most=most_idempotency_keys),
        counters=Counters(clients.commands, scripts),
        places=places,
        labels=Labels(scripts),
        **_access(scripts),
        **_operations(clients.health, sealer, limits, durability),
        **_events(clients.commands, scripts, listing, conversations, text_cache_bytes, bounds, objects),
        **_lists(clients.commands, scripts, listing, conversations, sandboxes, followers),
        **_approvals(clients.commands, scripts, listing, bounds, deliveries, followers, sealer),
    )


def _of_sandboxes(redis: "Redis", scripts: Scripts, limits: Limits, sealer: Sealer) -> dict[str, Any]:
    """The modules of supervisors, beside the sandboxes themselves."""
    return {
        "warm": WarmSandboxes(redis, scripts, limits, sealer),
        "sandbox_files": SandboxFiles(redis),
        "archives": Archives(redis, scripts),
        "checks": Checks(scripts, limits),
    }


def _operations(redis: "Redis", sealer: Sealer, limits: Limits, durability: Durability) -> dict[str, Any]:
    """The modules that operators ask, with the client that waits half a second."""
    return {
        "health": Health(redis, durability),
        "seal_check": SealCheck(redis, sealer),
        "hosts": Hosts(redis),
        "gauges": Gauges(redis, limits),
    }


def _access(scripts: Scripts) -> dict[str, Any]:
    """The modules about what opens the server."""
    return {"access_keys": AccessKeys(scripts), "tickets": Tickets(scripts), "link_uses": LinkUses(scripts)}


def _events(
    redis: "Redis",
    scripts: Scripts,
    listing: Listing,
    conversations: Conversations,
    text_cache_bytes: int,
    bounds: Bounds,
    objects: Objects | None,
) -> dict[str, Any]:
    """The modules about events, which share a cache of the text of messages."""
    text = MessageText(redis, text_cache_bytes)
    return {
        "cold": Cold(redis, scripts, listing, bounds, objects),
        "events": EventLog(redis, scripts, listing, conversations, text, bounds),
        "exports": Exports(scripts, listing, conversations, bounds),
        "histograms": Histograms(scripts, text),
        "message_search": MessageSearch(redis, scripts, listing, text),
        "packing": Packing(redis, scripts),
    }


def _lists(
    redis: "Redis",
    scripts: Scripts,
    listing: Listing,
    conversations: Conversations,
    sandboxes: Sandboxes,
    followers: Followers,
) -> dict[str, Any]:
    """The modules about lists: their pages, and what clients follow."""
    summaries = ConversationList(redis, scripts, listing)
    return {
        "conversation_pages": ConversationPages(redis, scripts, listing, conversations.get_many),
        "conversation_list": summaries,
        "conversation_stream": ListStream(ListingKeys, scripts, followers, summaries.get_many),
        "sandbox_stream": ListStream(SandboxKeys, scripts, followers, sandboxes.get_many),
    }


def _approvals(
    redis: "Redis",
    scripts: Scripts,
    listing: Listing,
    bounds: Bounds,
    deliveries: Deliveries,
    followers: Followers,
    sealer: Sealer,
) -> dict[str, Any]:
    """The modules about approvals: what the listing writes, the inbox settles, which asks the rules first."""
    confirmations, rules, audit = (
        Confirmations(redis, scripts, listing, bounds),
        Rules(redis, scripts),
        Audit(redis, scripts),
    )
    inbox = Inbox(redis, scripts, confirmations, audit_days=bounds.audit_days)
    inbox.apply_rules = RuleDecisions(rules, confirmations, deliveries, audit, bounds).apply
    listing.on_approvals = inbox.settle
    return {
        "confirmations": confirmations,
        "deliveries": deliveries,
        "audit": audit,
        "inbox": inbox,
        "inbox_stream": InboxStream(redis, scripts, followers, inbox),
        "rules": rules,
        "outboxes": Outboxes(redis, scripts),
        "targets": Targets(redis, scripts, sealer),
        "approval_checks": ApprovalChecks(redis, scripts, listing, inbox),
    }
