"""What supervisors say of their hosts."""

import json
from typing import Any

from redis import Redis

from store.keys import SandboxKeys


class Hosts:
    """The hosts whose supervisor has a heartbeat, or had one a moment ago."""

    def __init__(self, redis: "Redis") -> None:
        self._redis = redis

    def note_isolation(self, host: str, isolation: dict[str, Any]) -> None:
        """Note what isolates the process sandboxes of a host. What lost hosts have said is forgotten."""
        known: Any = self._redis.hkeys(SandboxKeys.isolation)
        living = set(self._living())
        lost = [name for name in known if name not in living]
        if lost:
            self._redis.hdel(SandboxKeys.isolation, *lost)
        self._redis.hset(SandboxKeys.isolation, host, json.dumps(isolation))

    def isolation(self) -> list[dict[str, Any]]:
        """What isolates the process sandboxes of each living host: its name as `host`, and what it has said."""
        said: Any = self._redis.hgetall(SandboxKeys.isolation)
        return [{"host": host.decode(), **json.loads(said[host])} for host in self._living() if host in said]

    def _living(self) -> list[bytes]:
        found: Any = self._redis.zrange(SandboxKeys.hosts, 0, -1)
        return sorted(found)
