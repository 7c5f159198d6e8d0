"""Counters of requests within windows, shared by all servers: what rate limits are decided by."""

from typing import Any

from redis import Redis

from store.keys import rate_key
from store.scripts import Scripts


class Counters:
    """One counter per limit and client, which expires with its window. Redis' clock ends a window."""

    def __init__(self, redis: "Redis", scripts: Scripts) -> None:
        self._redis = redis
        self._scripts = scripts

    def hit(self, name: str, seconds: int, number: int) -> int:
        """Count hits, and return the number within the window, which begins with the first. One round trip."""
        return int(self._scripts.count_hit([rate_key(name)], [number, seconds * 1000]))

    def hits(self, name: str) -> int:
        """The number of hits within the window."""
        stored: Any = self._redis.get(rate_key(name))
        return int(stored or 0)

    def seconds_left(self, name: str) -> float:
        """Seconds until the window ends; 0 without a window."""
        left: Any = self._redis.pttl(rate_key(name))
        return float(max(left, 0) / 1000)

    def forget(self, name: str) -> None:
        """Begin a new window with the next hit."""
        self._redis.delete(rate_key(name))
