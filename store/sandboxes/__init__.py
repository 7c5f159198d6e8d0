"""Sandboxes and start tasks, with their desired and observed states, and the hosts with live supervisors."""

import json
from dataclasses import dataclass
from typing import Any

from core.wire import Micros
from settings.limits import SandboxLimits
from store.keys import SandboxKeys
from store.link.attempts import minted_text
from store.link.commands import Redis
from store.link.health import Health
from store.link.secrets import Sealer
from store.sandboxes.checks import Checks, Echoes
from store.sandboxes.files import Archives, SandboxFiles
from store.sandboxes.sandboxes import Places, Sandboxes, SandboxId
from store.sandboxes.start_tasks import WarmSandboxes
from store.scripts import Scripts


class SandboxWing(Sandboxes):
    """All sandboxes, and the stores of what belongs to them."""

    def __init__(
        self, redis: Redis, probe: Redis, scripts: Scripts, limits: SandboxLimits, sealer: Sealer, health: Health
    ) -> None:
        """probe: a client with a short timeout."""
        super().__init__(redis, scripts, limits, sealer)
        self.warm = WarmSandboxes(redis, scripts, limits, sealer)
        self.workspaces = WorkspaceSandboxes(redis, scripts, limits)
        self.files = SandboxFiles(redis, health)
        self.archives = Archives(redis, scripts)
        self.checks = Checks(scripts, limits)
        self.echoes = Echoes(redis, scripts)
        self.hosts = Hosts(probe)
        self.places = Places(redis, scripts, limits.max_conversations_per_sandbox)


class WorkspaceSandboxes:
    """Workspace sandboxes, which serve the calls of a key before it has a conversation. Source: docs/wire.md, 14.

    A client of the published SDK may run a command or upload a file before it starts its conversation. Such a call
    starts the one workspace sandbox of its key. The key's next conversation of the same spec adopts the sandbox with
    its files. A sandbox that is unused for `SandboxLimits.workspace_seconds` is deleted. It is never warm. Each method
    takes one round trip, `known` two.
    """

    def __init__(self, redis: Redis, scripts: Scripts, limits: SandboxLimits) -> None:
        self._redis = redis
        self._scripts = scripts
        self._limits = limits

    def named(self, owner: str) -> SandboxId | None:
        """Return the id of a key's workspace sandbox, which the caller must start once; None without a live host.

        If that start is refused, the next call of the key gets the same id, and starts it.
        """
        named = self._scripts.name_workspace(
            SandboxKeys.root, owner=owner, fresh=minted_text("workspace"), host_span=self._limits.spans[0]
        )
        return SandboxId(named) if named else None

    def known(self, owner: str) -> SandboxId | None:
        """Return the id of a key's workspace sandbox that no conversation has adopted, or None."""
        named = self._redis.hget(SandboxKeys.workspaces, owner)
        known = SandboxId(named.decode()) if named else None
        return known if known and self._redis.exists(SandboxKeys.box(known)) else None

    def adopt(self, owner: str, spec_id: str, start_id: str, *, gives_way: bool) -> SandboxId | None:
        """Bind a key's workspace sandbox of a spec to a start task. A repeat returns it again. None: there is none."""
        adopted = self._scripts.adopt_workspace(
            SandboxKeys.root, owner=owner, spec=spec_id, start=start_id, gives_way=gives_way
        )
        return SandboxId(adopted) if adopted else None

    def give_back(self, sandbox_id: SandboxId, start_id: str) -> bool:
        """Return a sandbox to its key after the start task that adopted it has failed; False for any other sandbox.

        True also if a later start of the key has it by now: the end of that start decides.
        """
        return self._scripts.return_workspace(SandboxKeys.root, id=sandbox_id, start=start_id)

    def expire(self) -> None:
        """Delete the workspace sandboxes that have been unused for too long."""
        self._scripts.expire_workspaces(SandboxKeys.root, unused=round(self._limits.workspace_seconds * 1e6))


@dataclass(frozen=True, slots=True)
class SupervisedHost:
    """A host whose supervisor has a heartbeat, or had one recently."""

    id: str
    seen_at: Micros  #: its last heartbeat, by Redis' clock
    sandboxes: int  #: number of its sandboxes, whatever their status
    said: dict[str, object] | None  #: isolation of its process sandboxes; None: not reported yet
    version: str | None  #: of its supervisor


class Hosts:
    """The hosts of all supervisors, with the version and the isolation that each reports."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    def note(self, host: str, isolation: dict[str, object], version: str) -> None:
        """Record the isolation of a host's process sandboxes, and its supervisor's version; delete lost hosts."""
        known = self._redis.hkeys(SandboxKeys.isolation)
        living = {name for name, _ in self._living()}
        lost = [name for name in known if name not in living]
        if lost:
            self._redis.hdel(SandboxKeys.isolation, *lost)
        self._redis.hset(SandboxKeys.isolation, host, json.dumps({**isolation, "version": version}))

    def seen_at(self, host: str) -> Micros | None:
        """Return the last heartbeat of a host's supervisor, or None. One round trip."""
        found = self._redis.zscore(SandboxKeys.hosts, host)
        return None if found is None else Micros(int(found))

    def all(self) -> list[SupervisedHost]:
        """Return the hosts, sorted by id. Three round trips."""
        living = self._living()
        said = self._redis.hgetall(SandboxKeys.isolation)
        with self._redis.pipeline(transaction=False) as pipe:
            for name, _ in living:
                pipe.scard(SandboxKeys.of_host(name.decode()))
            numbers = pipe.execute() if living else []
        return [
            _host(name.decode(), at, number, json.loads(said.get(name, b"null")))
            for (name, at), number in zip(living, numbers, strict=True)
        ]

    def _living(self) -> list[tuple[bytes, float]]:
        found = self._redis.zrange(SandboxKeys.hosts, 0, -1, withscores=True)
        return sorted(found)


def _host(name: str, at: float, sandboxes: int, said: dict[str, Any] | None) -> SupervisedHost:
    version = said.pop("version") if said else None
    return SupervisedHost(name, Micros(int(at)), sandboxes, said, version)
