"""The state of the Redis that we use: whether it answers, of which kind it is, and whether its data survive it."""

from dataclasses import dataclass

from redis import Redis
from redis.exceptions import ResponseError

from store.errors import UNAVAILABLE


@dataclass(frozen=True, slots=True)
class StoreState:
    """kind is `redis`, `valkey` or `fakeredis`; durable is true when an append-only file is known to be kept."""

    kind: str
    durable: bool


class Health:
    """Probes with their own client, which waits half a second."""

    def __init__(self, redis: "Redis") -> None:
        self._redis = redis

    def probe(self) -> StoreState:
        """Ask Redis for its state. Raises one of UNAVAILABLE."""
        try:
            info = self._redis.info()
        except UNAVAILABLE:
            raise
        except ResponseError as refusal:
            # fakeredis has no INFO; a managed Redis may forbid it. Neither shows whether it keeps a file.
            unknown = "unknown command" in str(refusal).lower()
            return StoreState("fakeredis" if unknown else "redis", durable=False)
        kind = "valkey" if "valkey_version" in info else "redis"
        return StoreState(kind, durable=str(info.get("aof_enabled")) == "1")

    def state(self) -> StoreState | None:
        """As `probe`, None when Redis does not answer."""
        try:
            return self.probe()
        except UNAVAILABLE:
            return None
