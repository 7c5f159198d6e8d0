"""Access keys, and the limits of one client."""

import threading
from collections import Counter
from collections.abc import Callable

from core.refused import RefusalKind
from core.wire import Micros
from store.access.access_keys import AccessKeys, Sessions, Tickets
from store.access.client_settings import ClientSettings
from store.access.idempotency import Idempotency
from store.access.people import People
from store.errors import StoreError
from store.keys import rate_key
from store.link.commands import Redis
from store.link.secrets import Sealer
from store.scripts import Scripts


class AccessWing:
    """The keys of clients, the settings of each key, and idempotency records."""

    def __init__(
        self,
        redis: Redis,
        scripts: Scripts,
        sealer: Sealer,
        clock: Callable[[], Micros],
        *,
        most_idempotency_keys: int,
    ) -> None:
        """clock: reads Redis' clock."""
        self.keys = AccessKeys(scripts)
        self.people = People(redis, scripts)
        self.settings = ClientSettings(redis, scripts, sealer, clock)
        self.sessions = Sessions(sealer, clock)
        self.tickets = Tickets(scripts)
        self.idempotency = Idempotency(scripts, most=most_idempotency_keys)
        self.counters = Counters(redis, scripts)


class Quota:
    """A limit per holder, counted in this process without Redis."""

    def __init__(self, most: int, error: type["QuotaExceeded"]) -> None:
        self._most = most
        self._error = error
        self._lock = threading.Lock()
        self._taken: Counter[str] = Counter()

    def take(self, holder: str) -> None:
        """Count one more for a holder, until `give_back`. Raises the quota's error at the limit."""
        with self._lock:
            if self._taken[holder] >= self._most:
                raise self._error(self._most)
            self._taken[holder] += 1

    def give_back(self, holder: str) -> None:
        with self._lock:
            self._taken[holder] -= 1
            if self._taken[holder] <= 0:
                del self._taken[holder]


class QuotaExceeded(StoreError):
    """The limit of concurrent connections is reached."""

    kind = RefusalKind.FULL

    def __init__(self, most: int) -> None:
        super().__init__(self.words.format(most=most))

    words = ""


class TooManyFollowersOfKey(QuotaExceeded):
    """One key has the maximum number of sockets, streams and long polls in this process."""

    words = (
        "At most {most} connections with one key may follow conversations here (MAX_FOLLOWERS_PER_KEY): close one first"
    )


class TooManySilentSockets(QuotaExceeded):
    """One address has the maximum number of sockets in this process that have not shown a key."""

    words = "At most {most} sockets of one address may wait here to show their key (MAX_SILENT_SOCKETS): show it first"


class Counters:
    """Fixed-window counters, one per limit and client. The window is measured by Redis' clock."""

    def __init__(self, redis: Redis, scripts: Scripts) -> None:
        self._redis = redis
        self._scripts = scripts

    def hit(self, name: str, seconds: int, number: int) -> int:
        """Count hits, and return the number in the window, which begins with the first hit. One round trip."""
        return self._scripts.count_hit(rate_key(name), number=number, window=seconds * 1000)

    def seconds_left(self, name: str) -> float:
        """Return the seconds until the window ends; 0 without a window."""
        left = self._redis.pttl(rate_key(name))
        return float(max(left, 0) / 1000)
