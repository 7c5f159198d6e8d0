"""Keys of access, and what one client may use."""

from redis import Redis

from store.access.access_keys import AccessKeys, Tickets
from store.access.idempotency import Idempotency
from store.access.quotas import Counters
from store.scripts import Scripts


class AccessWing:
    """The keys of clients, and what the store remembers of their requests."""

    def __init__(self, redis: "Redis", scripts: Scripts, *, most_idempotency_keys: int) -> None:
        self.keys = AccessKeys(scripts)
        self.tickets = Tickets(scripts)
        self.idempotency = Idempotency(scripts, most=most_idempotency_keys)
        self.counters = Counters(redis, scripts)
