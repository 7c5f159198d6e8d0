"""Keys of access, and what one client may use."""

from redis import Redis

from store.access.access_keys import AccessKeys, Tickets, WorkspaceSessions
from store.access.client_settings import ClientSettings
from store.access.idempotency import Idempotency
from store.access.quotas import Counters
from store.link.secrets import Sealer
from store.scripts import Scripts


class AccessWing:
    """The keys of clients, what each keeps, and what the store remembers of their requests."""

    def __init__(self, redis: "Redis", scripts: Scripts, sealer: Sealer, *, most_idempotency_keys: int) -> None:
        self.keys = AccessKeys(scripts)
        self.settings = ClientSettings(redis, scripts, sealer)
        self.sessions = WorkspaceSessions(sealer)
        self.tickets = Tickets(scripts)
        self.idempotency = Idempotency(scripts, most=most_idempotency_keys)
        self.counters = Counters(redis, scripts)
