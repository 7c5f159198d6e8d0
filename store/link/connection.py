"""Connections to Redis: a URL chooses the topology; commands, signals and health probes have a client each.

redis://, rediss://, unix://       one server
redis+sentinel://HOST,HOST/NAME    the primary that the sentinels name; user, password and /DB as in redis://.
                                   The sentinels' own: ?sentinel_username=…&sentinel_password=…
redis+cluster://HOST,HOST          a cluster

Users and passwords are percent-encoded. Pools are made by `create_app`, which gunicorn calls in every worker after
the fork.
"""

from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from redis import BlockingConnectionPool, Redis
from redis.backoff import NoBackoff
from redis.connection import Connection, SSLConnection, UnixDomainSocketConnection
from redis.exceptions import ConnectionError
from redis.retry import Retry
from redis.sentinel import Sentinel, SentinelConnectionPool, SentinelManagedConnection

from store.link.cluster import LazyCluster
from store.link.durability import AS_REDIS, Durability, proving
from store.link.parser import Parser

#: seconds a health probe waits; it is repeated only when its connection turns out to be closed
HEALTH_TIMEOUT = 0.5

_SENTINEL_PORT, _REDIS_PORT = 26379, 6379

_CONNECTIONS: dict[str, Any] = {
    "redis": Connection,
    "rediss": SSLConnection,
    "unix": UnixDomainSocketConnection,
    "redis+sentinel": SentinelManagedConnection,
    "redis+cluster": Connection,
}


class WaitingSentinelPool(SentinelConnectionPool, BlockingConnectionPool):
    """Connections to the primary; who finds all of them busy waits for one, as with one server."""


@dataclass(frozen=True)
class Clients:
    """The connections of one process: for commands, for the subscriber, and for health probes."""

    commands: Redis
    signals: Redis
    health: Redis


def connect(url: str, *, timeout: float, max_connections: int, durability: Durability = AS_REDIS) -> Clients:
    """Clients for a URL; no connection is opened yet. Raises ValueError for a URL that names no server.

    timeout is in seconds, for one attempt. A command is tried twice: every write script is idempotent,
    so the second try cannot write twice. durability: of the commands that ask to be proven.
    """
    return Clients(
        commands=_client(url, timeout, max_connections, Retry(NoBackoff(), 1), durability),
        signals=_client(url, timeout, 2, Retry(NoBackoff(), 0)),  # one subscribes; a cluster's asks for nodes
        health=_client(url, HEALTH_TIMEOUT, 2, Retry(NoBackoff(), 1, supported_errors=(ConnectionError,))),
    )


def _client(url: str, timeout: float, max_connections: int, retry: Retry, durability: Durability = AS_REDIS) -> Redis:
    parts = urlsplit(url)
    if parts.scheme not in _CONNECTIONS:
        raise ValueError(f"no Redis at a URL of the scheme {parts.scheme!r}")
    kind = proving(_CONNECTIONS[parts.scheme], durability, timeout)
    bounds: dict[str, Any] = {"max_connections": max_connections, "retry": retry, "connection_class": kind}
    timeouts = {"socket_timeout": timeout, "socket_connect_timeout": timeout}
    # A request that finds every connection busy waits half a timeout for one, then gets 503.
    waiting: dict[str, Any] = {"timeout": timeout / 2, "parser_class": Parser, **bounds, **timeouts}
    match parts.scheme:
        case "redis+cluster":
            cluster = LazyCluster(_hosts(parts, _REDIS_PORT), timeout=timeout, **bounds, **_credentials(parts))
            return cast(Redis, cluster)  # the same commands; redis-py gives them no common type
        case "redis+sentinel":
            name, _, database = parts.path.strip("/").partition("/")
            sentinels = Sentinel(
                _hosts(parts, _SENTINEL_PORT), sentinel_kwargs={"retry": retry, **timeouts, **_of_sentinels(parts)}
            )
            pool = WaitingSentinelPool(name, sentinels, db=int(database or 0), **waiting, **_credentials(parts))
            return Redis(connection_pool=pool)
        case _:
            return Redis(connection_pool=BlockingConnectionPool.from_url(url, **waiting))


def _hosts(parts: SplitResult, default_port: int) -> list[tuple[str, int]]:
    names = parts.netloc.rpartition("@")[2].split(",")
    hosts = [urlsplit(f"//{name}") for name in names]  # also [IPv6]:PORT
    return [(host.hostname or "", host.port or default_port) for host in hosts]


def _credentials(parts: SplitResult) -> dict[str, str]:
    given = {"username": parts.username, "password": parts.password}
    return {name: unquote(value) for name, value in given.items() if value}


def _of_sentinels(parts: SplitResult) -> dict[str, str]:
    given = parse_qs(parts.query)
    return {name: given[f"sentinel_{name}"][0] for name in ("username", "password") if f"sentinel_{name}" in given}
