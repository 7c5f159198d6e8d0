"""The state of the Redis that we use: whether it answers, of which kind it is, and whether its data survive it."""

from dataclasses import dataclass, replace
from typing import Any

from redis import Redis
from redis.exceptions import RedisError, ResponseError

from store.errors import UNAVAILABLE


@dataclass(frozen=True, slots=True)
class StoreState:
    """kind is `redis`, `valkey` or `fakeredis`; durable is true when an append-only file is known to be kept.

    The other members are None where that Redis does not tell them.
    """

    kind: str
    durable: bool
    version: str | None = None
    used_memory_bytes: int | None = None
    max_memory_bytes: int | None = None  #: 0: it has no limit of its own
    policy: str | None = None  #: maxmemory-policy: what it does at that limit
    fsync: str | None = None  #: appendfsync: how often a durable Redis writes its file through; `probe` does not ask


class Health:
    """Probes with their own client, which waits half a second."""

    def __init__(self, redis: "Redis") -> None:
        self._redis = redis

    def probe(self) -> StoreState:
        """Ask Redis for its state. Raises one of UNAVAILABLE."""
        try:
            info: dict[str, Any] = self._redis.info()
        except UNAVAILABLE:
            raise
        except ResponseError as refusal:
            # fakeredis has no INFO; a managed Redis may forbid it. Neither shows whether it keeps a file.
            unknown = "unknown command" in str(refusal).lower()
            return StoreState("fakeredis" if unknown else "redis", durable=False)
        kind = "valkey" if "valkey_version" in info else "redis"
        return StoreState(
            kind,
            durable=str(info.get("aof_enabled")) == "1",
            version=_text(info.get(f"{kind}_version")),
            used_memory_bytes=info.get("used_memory"),
            max_memory_bytes=info.get("maxmemory"),
            policy=_text(info.get("maxmemory_policy")),
        )

    def state(self) -> StoreState | None:
        """As `probe`, with `fsync`; None when Redis does not answer."""
        try:
            state = self.probe()
            return replace(state, fsync=self._fsync()) if state.durable else state
        except UNAVAILABLE:
            return None

    def _fsync(self) -> str | None:
        try:
            found: Any = self._redis.config_get("appendfsync")
        except UNAVAILABLE:
            raise
        except RedisError:  # a managed Redis may forbid it
            return None
        return _text(found.get("appendfsync"))


def _text(value: Any) -> str | None:
    """redis-py reads a version such as 7.2 as a number."""
    return None if value is None else str(value)
