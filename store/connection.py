"""How to reach Redis: a URL chooses the topology; commands, signals and health probes have a client each.

redis://, rediss://, unix://       one server
redis+sentinel://HOST,HOST/NAME    the primary that the sentinels name; user, password and /DB as in redis://
redis+cluster://HOST,HOST          a cluster

Pools are made by `create_app`, which gunicorn calls in every worker after the fork.
"""

from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import SplitResult, urlsplit

from redis import BlockingConnectionPool, Redis, RedisCluster
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode
from redis.exceptions import ConnectionError
from redis.retry import Retry
from redis.sentinel import Sentinel, SentinelConnectionPool

#: seconds a health probe waits; it is repeated only when its connection turns out to be closed
HEALTH_TIMEOUT = 0.5

_SENTINEL_PORT, _REDIS_PORT = 26379, 6379


@dataclass(frozen=True)
class Clients:
    """The connections of one process: for commands, for the one that only listens, and for health probes."""

    commands: Redis
    signals: Redis
    health: Redis


def connect(url: str, *, timeout: float, max_connections: int) -> Clients:
    """Clients for a URL; no connection is opened yet. Raises ValueError for a URL that names no server.

    timeout is in seconds, for one attempt. A command is tried twice: every write script is idempotent,
    so the second try cannot write twice.
    """
    return Clients(
        commands=_client(url, timeout, max_connections, Retry(NoBackoff(), 1)),
        signals=_client(url, timeout, 1, Retry(NoBackoff(), 0)),
        health=_client(url, HEALTH_TIMEOUT, 2, Retry(NoBackoff(), 1, supported_errors=(ConnectionError,))),
    )


def _client(url: str, timeout: float, max_connections: int, retry: Retry) -> Redis:
    parts = urlsplit(url)
    options: dict[str, Any] = {"socket_timeout": timeout, "socket_connect_timeout": timeout, "retry": retry}
    credentials: dict[str, Any] = _credentials(parts)
    match parts.scheme:
        case "redis+cluster":
            nodes = [ClusterNode(host, port) for host, port in _hosts(parts, _REDIS_PORT)]
            cluster = RedisCluster(startup_nodes=nodes, **options, **credentials)
            return cast(Redis, cluster)  # the same commands; redis-py gives them no common type
        case "redis+sentinel":
            name, _, database = parts.path.strip("/").partition("/")
            sentinel = Sentinel(_hosts(parts, _SENTINEL_PORT), sentinel_kwargs={**options})
            pool = SentinelConnectionPool(
                name,
                sentinel,
                db=int(database or 0),
                max_connections=max_connections,
                **options,
                **_credentials(parts),
            )
            return Redis(connection_pool=pool)
        case "redis" | "rediss" | "unix":
            # A request that finds every connection busy waits half a time-out for one, then gets 503.
            return Redis(
                connection_pool=BlockingConnectionPool.from_url(
                    url,
                    max_connections=max_connections,
                    timeout=timeout / 2,
                    **options,
                )
            )
    raise ValueError(f"no Redis at a URL of the scheme {parts.scheme!r}")


def _hosts(parts: SplitResult, default_port: int) -> list[tuple[str, int]]:
    names = parts.netloc.rpartition("@")[2].split(",")
    pairs = [name.partition(":") for name in names]
    return [(host, int(port or default_port)) for host, _, port in pairs]


def _credentials(parts: SplitResult) -> dict[str, str]:
    return {name: value for name, value in (("username", parts.username), ("password", parts.password)) if value}
