"""The state of Redis: availability, kind, durability, settings that the server relies on, and version of the data."""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from redis import RedisCluster
from redis.exceptions import RedisError, ResponseError

from core.bounds import Durability
from core.disk import shortage
from core.refused import RefusalKind
from core.wire import Micros
from store.errors import UNAVAILABLE, DiskFull, NewerData, StoreError, StoreFull
from store.keys import DATA_VERSION, VERSION
from store.link.commands import Redis
from store.link.connection import SYNCED, LazyCluster, unsynced

#: Seconds of silence after which a replica does not count. Each replica reports once a second.
_SILENT = 5


#: Share of Redis' `maxmemory` from which on new data are refused. A deletion needs some memory too.
_NEARLY = 0.95

#: Seconds for which Redis' memory use is cached.
_ROOM_SECONDS = 0.5

#: Seconds for which Redis' clock is extrapolated.
_CLOCK_SECONDS = 10


#: {}: the message of Redis
_UNWRITTEN = (
    "Redis cannot write its file, and refuses writes ({}). Its log names the reason: if its disk is full, delete "
    "files there or enlarge the disk; Redis then continues"
)

_NOT_SYNCED = (
    "DURABILITY=fsync does not hold: {}. Writes are refused until appendonly is yes, appendfsync is always and "
    "no-appendfsync-on-rewrite is no."
)

#: Migrations by the version that each leads to. A migration may be interrupted and is then repeated from its beginning.
#: No other server writes meanwhile.
MIGRATIONS: Mapping[int, Callable[[Redis], None]] = MappingProxyType({})


class NotReady(StoreError):
    """Redis answers, but not as the settings require."""

    kind = RefusalKind.LATER


@dataclass(frozen=True, slots=True)
class RedisState:
    """The state that Redis reports. Other members are None if it does not report them.

    kind: `redis`, `valkey` or `fakeredis`. durable: it is known to write an append-only file. durability: the setting.
    faults: sentences about what Redis lacks; a server with faults is not ready.
    """

    kind: str
    durable: bool
    durability: str
    faults: tuple[str, ...] = ()
    version: str | None = None
    used_memory_bytes: int | None = None
    max_memory_bytes: int | None = None  #: 0: no limit of its own
    policy: str | None = None  #: maxmemory-policy: what Redis does at that limit
    fsync: str | None = None  #: appendfsync: how often Redis syncs its file


class Health:
    """Probes with a client of their own, with half of the timeout. In a cluster, every primary is probed."""

    def __init__(self, redis: Redis, durability: Durability, folder: Path | None = None) -> None:
        """folder: of the embedded store's file; None for another Redis."""
        self._redis = redis
        self._durability = durability
        self._folder = folder
        self._asked_again_at = 0.0
        self._full: tuple[int, int] | None = None
        self._shortage: str | None = None
        #: the time of Redis, and our monotonic clock when we read it, in seconds
        self._read: tuple[Micros, float] | None = None

    def require_room(self) -> None:
        """Raise StoreFull while Redis has nearly reached `maxmemory`, DiskFull while the embedded store's disk is full.

        One caller asks Redis, at most twice a second. Without a prompt reply, Redis counts as having room.
        """
        now = time.monotonic()
        if now >= self._asked_again_at:
            self._asked_again_at = now + _ROOM_SECONDS
            with suppress(*UNAVAILABLE, ResponseError):
                nodes = self._of_primaries(self._redis.info, "memory")
                self._full = next((full for node in nodes if (full := _full(node))), None)
            self._shortage = self.shortage()
        if self._full:
            raise StoreFull(*self._full)
        if self._shortage:
            raise DiskFull(f"{self._shortage}. Until then it takes nothing new")

    def shortage(self) -> str | None:
        """Describe a full disk of the embedded store; None otherwise. Redis is not asked: it may have ended."""
        return shortage(self._folder) if self._folder else None

    def hindrance(self, error: Exception) -> str | None:
        """Describe the disk problem that keeps Redis from serving a command; None if that is not the known cause."""
        if found := self.shortage():
            return found
        refusal = str(error)
        return _UNWRITTEN.format(refusal.removesuffix(".")) if "writing to the AOF file" in refusal else None

    def clock(self) -> Micros:
        """Return the time of Redis, which is the same for all hosts. One round trip. Raises one of UNAVAILABLE."""
        seconds, micro = self._redis.time()
        return Micros(seconds * 1_000_000 + micro)

    def recent_clock(self) -> Micros:
        """Return the time of Redis, extrapolated for up to _CLOCK_SECONDS by our monotonic clock.

        A step of Redis' clock, or a suspended machine, thus shows after at most _CLOCK_SECONDS. One round trip if the
        last reading is older. Raises one of UNAVAILABLE.
        """
        if self._read is None or time.monotonic() - self._read[1] >= _CLOCK_SECONDS:
            self._read = self.clock(), time.monotonic()  # never ahead of Redis by the round trip
        read, at = self._read
        return Micros(read + round((time.monotonic() - at) * 1_000_000))

    def probe(self) -> RedisState:
        """Read the state of Redis. Two round trips. Raises one of UNAVAILABLE."""
        try:
            nodes = self._of_primaries(self._redis.info)
        except UNAVAILABLE:
            raise
        except ResponseError as refusal:
            # fakeredis has no INFO, and a managed Redis may forbid it. We then do not know whether Redis writes a file.
            kind = "fakeredis" if "unknown command" in str(refusal).lower() else "redis"
            unknown = (f"DURABILITY={self._durability} cannot be known to hold: {kind} does not show its state (INFO)",)
            return RedisState(kind, False, str(self._durability), unknown if self._durability.is_proven else ())
        durable = all(str(node.get("aof_enabled")) == "1" for node in nodes)
        settings = self._settings() if durable or self._durability.fsync else []
        info = nodes[0]
        kind = "valkey" if "valkey_version" in info else "redis"
        faults = [fault for node in nodes for fault in self._faults(node)]
        if found := self.shortage():
            faults.append(f"{found}.")
        if self._durability.fsync:
            faults += [_NOT_SYNCED.format(wrong) for one in settings or [{}] if (wrong := unsynced(one))]
        return RedisState(
            kind,
            durable,
            str(self._durability),
            tuple(dict.fromkeys(faults)),
            version=_text(info.get(f"{kind}_version")),
            used_memory_bytes=info.get("used_memory"),
            max_memory_bytes=info.get("maxmemory"),
            policy=_text(info.get("maxmemory_policy")),
            fsync=settings[0].get("appendfsync") if durable and settings else None,
        )

    def ready(self) -> RedisState:
        """Read the state of Redis. Raises NotReady if it has faults, or one of UNAVAILABLE."""
        state = self.probe()
        if state.faults:
            raise NotReady(" ".join(state.faults))
        return state

    def state(self) -> RedisState | None:
        """Read the state of Redis; None if it does not answer."""
        try:
            return self.probe()
        except UNAVAILABLE:
            return None

    def _faults(self, node: dict[str, object]) -> list[str]:
        full = _full(node)
        is_unwritten = node.get("aof_last_write_status", "ok") != "ok"
        found = (
            _evicting(node),
            f"{StoreFull(*full)}." if full else None,
            f"{_UNWRITTEN.format('aof_last_write_status is err')}." if is_unwritten else None,
            self._too_few_replicas(node),
        )
        return [fault for fault in found if fault]

    def _too_few_replicas(self, info: dict[str, Any]) -> str | None:
        found = (info.get(f"slave{number}") for number in range(int(info.get("connected_slaves") or 0)))
        number = sum(
            isinstance(one, dict) and one.get("state") == "online" and int(one.get("lag", _SILENT)) < _SILENT
            for one in found
        )
        if number >= self._durability.replicas:
            return None
        return (
            f"DURABILITY={self._durability} does not hold: {number} replicas are connected and up to date. "
            "Writes are refused until there are more."
        )

    def _settings(self) -> list[dict[str, str]]:
        """Return how each primary writes its file; empty if one of them does not tell."""
        try:
            return self._of_primaries(self._redis.config_get, *SYNCED)
        except UNAVAILABLE:
            raise
        except RedisError:  # a managed Redis may forbid it
            return []

    def _of_primaries(self, ask: Callable[..., Any], *words: str) -> list[dict[str, Any]]:
        if not isinstance(self._redis, LazyCluster):
            return [ask(*words)]
        found = ask(*words, target_nodes=RedisCluster.PRIMARIES)
        return list(found.values()) if all(isinstance(one, dict) for one in found.values()) else [found]


def _evicting(info: dict[str, object]) -> str | None:
    policy, most = _text(info.get("maxmemory_policy")), info.get("maxmemory")
    if not most or policy in (None, "noeviction"):
        return None
    return (
        f"Redis deletes acknowledged data when its memory is full: maxmemory is {most}, maxmemory-policy is {policy}. "
        "Set maxmemory-policy to noeviction, or maxmemory to 0."
    )


def _full(info: dict[str, Any]) -> tuple[int, int] | None:
    """Return the used bytes and the limit of a node if it is nearly full."""
    used, most = int(info.get("used_memory") or 0), int(info.get("maxmemory") or 0)
    return (used, most) if most and used > most * _NEARLY else None


def _text(value: object) -> str | None:
    """Return a value as text: redis-py reads a version such as 7.2 as a number."""
    return None if value is None else str(value)


class DataVersion:
    """Migrates the data to VERSION before the first request, and detects data of a newer release.

    `store/keys.toml` describes version 1. A store without the key is empty. The next version raises VERSION and adds
    its migration to MIGRATIONS; tests/store/test_data_version.py shows how.
    """

    def __init__(self, redis: Redis, probe: Redis) -> None:
        """probe: a client whose timeout is so short that a request may ask first."""
        self._redis = redis
        self._probe = probe
        self.is_current = False  #: result of the last check

    def ensure(self) -> None:
        """Migrate older data. One round trip if nothing is to be done: every process checks repeatedly.

        Raises NewerData, or one of UNAVAILABLE.
        """
        stored = self._stored()
        if stored == str(VERSION) and self.is_current:
            return
        self.is_current = False
        if stored is not None and not _is_known(stored):
            raise NewerData(stored, VERSION)
        for version in range(int(stored or VERSION) + 1, VERSION + 1):
            MIGRATIONS[version](self._redis)
        self._redis.set(DATA_VERSION, VERSION)
        self.is_current = True

    def _stored(self) -> str | None:
        """Return the stored version, None for an empty store. Raises NewerData, or one of UNAVAILABLE."""
        try:
            stored = self._probe.get(DATA_VERSION)
        except ResponseError as refusal:
            if not str(refusal).startswith("WRONGTYPE"):
                raise
            raise NewerData("a list or a table", VERSION) from None
        return None if stored is None else stored.decode(errors="replace")


def _is_known(stored: str) -> bool:
    """Return whether this release or an earlier one wrote the version."""
    return stored in map(str, range(1, VERSION + 1))
