"""Redis, and the rules that must be atomic. No Flask here.

After a write the conversation is listed, the approval rules decide its pending actions, and the inbox is updated:
`Projections.settle` calls `RuleDecisions.refresh`, which calls `Index.refresh`.
"""

from dataclasses import dataclass

from settings.limits import ConversationLimits, SandboxLimits
from settings.redis import RedisSettings
from store.access import AccessWing
from store.approvals import ApprovalWing
from store.approvals.inbox import Index
from store.approvals.inbox_stream import InboxStream
from store.approvals.quorums import Rights
from store.conversations import ConversationWing
from store.conversations.cold import Cold, Objects
from store.conversations.events import EventLog
from store.conversations.lists import ListStream
from store.conversations.masks import Masks
from store.destinations import Destinations
from store.devices import Devices
from store.gauges import Gauges
from store.go_aheads import GoAheads
from store.keys import ListingKeys, SandboxKeys
from store.link import LinkWing
from store.link.connection import connect, counted
from store.link.health import DataVersion, Health
from store.link.secrets import SealCheck, Sealer
from store.link.signals import Signals, Wakeups
from store.listing import Listing
from store.log.feed import Followers
from store.log.text import MessageText
from store.notifications import NotificationWing
from store.sandboxes import SandboxWing
from store.sandboxes.start_tasks import StartTasks
from store.scripts import Scripts
from store.spending import ModelSpending
from telemetry.meter import Meter

__all__ = ["Objects", "Store", "open_store"]


@dataclass(frozen=True, slots=True)
class Streams:
    """The streams that clients follow."""

    events: Followers
    conversations: ListStream
    sandboxes: ListStream
    inbox: InboxStream


@dataclass(frozen=True, slots=True)
class Store:
    events: EventLog
    conversations: ConversationWing
    approvals: ApprovalWing
    sandboxes: SandboxWing
    destinations: Destinations
    go_aheads: GoAheads
    spending: ModelSpending
    start_tasks: StartTasks
    streams: Streams
    access: AccessWing
    notifications: NotificationWing
    devices: Devices
    link: LinkWing
    data_version: DataVersion
    gauges: Gauges
    masks: Masks


def open_store(
    settings: RedisSettings,
    bounds: ConversationLimits,
    limits: SandboxLimits,
    *,
    cold: Objects | None = None,
    meter: Meter | None = None,
) -> Store:
    """Open the store in the Redis of the settings (`store/link/connection.py`). Its first command connects.

    cold: place for the events of cold conversations. meter: counts the store's operations. Raises ValueError.
    """
    meter, durability = meter or Meter(), settings.write_durability
    timeout, most = settings.redis_timeout, settings.redis_connections
    clients = counted(connect(settings.redis_url, timeout=timeout, max_connections=most, durability=durability), meter)
    redis, probe, sealer = clients.commands, clients.health, Sealer(settings.secret_keys)
    health = Health(probe, durability, settings.embedded_folder)
    text = MessageText(redis, settings.text_cache_bytes)
    bare = Scripts(redis, durability, health.require_room)
    index = Index(redis, bare)
    listing = Listing(redis, bare)
    resting = Cold(redis, bare, listing, bounds, cold)
    scripts = bare.thawing(resting.thaw_below)
    access = AccessWing(
        redis, scripts, sealer, health.recent_clock, most_idempotency_keys=settings.max_idempotency_keys
    )
    approvals = ApprovalWing(
        redis, scripts, listing, index, bounds, limits, sealer, Rights(access.people.scopes, access.keys.live)
    )
    sandboxes = SandboxWing(redis, probe, scripts, limits, sealer, health)
    start_tasks = StartTasks(redis, scripts, sealer, sandboxes, sandboxes.places, meter)
    conversations = ConversationWing(
        redis,
        scripts,
        listing,
        approvals.projections,
        text,
        sealer,
        sandboxes,
        start_tasks,
        resting,
        bounds,
        approvals.quorums.read,
    )
    destinations = Destinations(redis, scripts, bounds)
    masks = Masks(redis, sealer, sandboxes, sandboxes.places)
    followers = Followers(
        scripts,
        Signals(redis, clients.signals),
        meter,
        ring_bytes=settings.follower_bytes,
        most_followers=settings.max_followers,
    )
    return Store(
        events=EventLog(redis, scripts, approvals.projections, conversations, text, bounds, masks),
        conversations=conversations,
        approvals=approvals,
        sandboxes=sandboxes,
        destinations=destinations,
        go_aheads=GoAheads(scripts),
        spending=ModelSpending(redis, scripts, destinations, bounds),
        start_tasks=start_tasks,
        streams=Streams(
            events=followers,
            conversations=ListStream(ListingKeys, scripts, followers, conversations.summaries.get_many),
            sandboxes=ListStream(SandboxKeys, scripts, followers, sandboxes.listed),
            inbox=InboxStream(redis, scripts, followers, approvals.inbox, destinations, approvals.quorums),
        ),
        access=access,
        notifications=NotificationWing(redis, scripts, sealer),
        devices=Devices(redis, scripts, sealer),
        link=LinkWing(health, SealCheck(probe, sealer), Wakeups(clients.signals)),
        data_version=DataVersion(redis, probe),
        gauges=Gauges(probe, limits),
        masks=masks,
    )
