"""Sandboxes and starts: what is desired of each, what its host has observed; and the hosts whose supervisors live."""

import json
from dataclasses import dataclass
from typing import Any

from redis import Redis

from core.bounds import Limits
from core.wire import Micros
from store.keys import SandboxKeys
from store.link.health import Health
from store.link.secrets import Sealer
from store.sandboxes.checks import Checks, Echoes
from store.sandboxes.files import Archives, SandboxFiles
from store.sandboxes.sandboxes import Places, Sandboxes
from store.sandboxes.start_tasks import WarmSandboxes
from store.sandboxes.workspaces import Workspaces
from store.scripts import Scripts


class SandboxWing(Sandboxes):
    """All sandboxes, and by name what belongs to them."""

    def __init__(
        self, redis: "Redis", probe: "Redis", scripts: Scripts, limits: Limits, sealer: Sealer, health: Health
    ) -> None:
        """probe: a client that waits briefly."""
        super().__init__(redis, scripts, limits, sealer)
        self.warm = WarmSandboxes(redis, scripts, limits, sealer)
        self.workspaces = Workspaces(redis, scripts, limits)
        self.files = SandboxFiles(redis, health)
        self.archives = Archives(redis, scripts)
        self.checks = Checks(scripts, limits)
        self.echoes = Echoes(redis, scripts)
        self.hosts = Hosts(probe)
        self.places = Places(redis, scripts, limits.most_conversations)


@dataclass(frozen=True, slots=True)
class Host:
    """A host whose supervisor has a heartbeat, or had one a moment ago."""

    id: str
    seen_at: Micros  #: its last heartbeat, by Redis' clock
    sandboxes: int  #: that it has, whatever their status
    said: dict[str, Any] | None  #: what isolates its process sandboxes, as it has said; None: it has said nothing yet
    version: str | None  #: of its supervisor


class Hosts:
    """The hosts of all supervisors, and what each says of itself: its version, and what isolates its sandboxes."""

    def __init__(self, redis: "Redis") -> None:
        self._redis = redis

    def note(self, host: str, isolation: dict[str, Any], version: str) -> None:
        """Note what isolates the process sandboxes of a host, and its supervisor's version; forget lost hosts."""
        known: Any = self._redis.hkeys(SandboxKeys.isolation)
        living = {name for name, _ in self._living()}
        lost = [name for name in known if name not in living]
        if lost:
            self._redis.hdel(SandboxKeys.isolation, *lost)
        self._redis.hset(SandboxKeys.isolation, host, json.dumps({**isolation, "version": version}))

    def all(self) -> list[Host]:
        """The hosts by their ids. Three round trips."""
        living = self._living()
        said: Any = self._redis.hgetall(SandboxKeys.isolation)
        with self._redis.pipeline(transaction=False) as pipe:
            for name, _ in living:
                pipe.scard(SandboxKeys.of_host(name.decode()))
            numbers: list[Any] = pipe.execute() if living else []
        return [
            _host(name.decode(), at, number, json.loads(said.get(name, b"null")))
            for (name, at), number in zip(living, numbers, strict=True)
        ]

    def _living(self) -> list[tuple[bytes, float]]:
        found: Any = self._redis.zrange(SandboxKeys.hosts, 0, -1, withscores=True)
        return sorted(found)


def _host(name: str, at: float, sandboxes: int, said: dict[str, Any] | None) -> Host:
    version = said.pop("version") if said else None
    return Host(name, Micros(int(at)), sandboxes, said, version)
