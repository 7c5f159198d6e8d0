"""What can be said of the Redis behind us: reachable, of which kind, and whether writes outlive it."""

from dataclasses import dataclass

from redis import Redis
from redis.exceptions import ResponseError

from store.errors import UNAVAILABLE


@dataclass(frozen=True, slots=True)
class StoreState:
    """kind is `redis` or `fakeredis`; durable is true when an append-only file is known to be kept."""

    kind: str
    durable: bool


class Health:
    """Probes with their own client, which waits half a second."""

    def __init__(self, redis: "Redis") -> None:
        self._redis = redis

    def probe(self) -> StoreState:
        """Ask the store how it is. Raises one of UNAVAILABLE."""
        try:
            persistence = self._redis.info("persistence")
        except ResponseError as refusal:
            # fakeredis has no INFO; a managed Redis may forbid it. Either has answered, and tells of no file.
            unknown = "unknown command" in str(refusal).lower()
            return StoreState("fakeredis" if unknown else "redis", durable=False)
        return StoreState("redis", durable=str(persistence.get("aof_enabled")) == "1")

    def state(self) -> StoreState | None:
        """As `probe`, None when the store cannot be reached."""
        try:
            return self.probe()
        except UNAVAILABLE:
            return None
