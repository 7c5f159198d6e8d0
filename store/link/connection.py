"""Connections to Redis. A URL chooses the topology. Commands, signals and health probes have a client each.

redis://, rediss://, unix://       one server
redis+sentinel://HOST,HOST/NAME    the primary that the sentinels name; user, password and /DB as in redis://.
                                   Credentials of the sentinels: ?sentinel_username=…&sentinel_password=…
redis+cluster://HOST,HOST          a cluster

Users and passwords are percent-encoded. `create_app` makes the pools, and gunicorn calls it in every worker after the
fork.

DURABILITY says what must hold before a write is acknowledged. The round trip that writes also proves it:

| durability   | a write is acknowledged when                | command after the write, on the same connection  |
|--------------|---------------------------------------------|--------------------------------------------------|
| `none`       | Redis replies                               | none                                             |
| `fsync`      | it is on the disk of its server             | `CONFIG GET`: the server syncs before it replies |
| `replicas:N` | N replicas have it in memory                | `WAIT N`                                         |

`WAIT` covers the writes of its own connection. A repeated script may have nothing left to write, so `store/scripts` has
it write a mark. The repeat thereby proves the writes of the first call.
"""

import select
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from gevent.monkey import get_original  # type: ignore[import-untyped]
from redis import BlockingConnectionPool, RedisCluster
from redis import Redis as OneServer
from redis._parsers import _HiredisParser
from redis.backoff import NoBackoff
from redis.cluster import PRIMARY, ClusterNode
from redis.commands import RedisClusterCommands
from redis.connection import AbstractConnection, Connection, SSLConnection, UnixDomainSocketConnection
from redis.exceptions import ConnectionError, ResponseError
from redis.retry import Retry
from redis.sentinel import Sentinel, SentinelConnectionPool, SentinelManagedConnection

from core.bounds import AS_REDIS, Durability
from core.pauses import take_turns
from store.errors import UNAVAILABLE, TemporaryRefusal
from store.link.commands import Redis
from telemetry.meter import Meter

#: Settings with which Redis syncs each write to its disk before it replies.
SYNCED = {"appendonly": "yes", "appendfsync": "always", "no-appendfsync-on-rewrite": "no"}

#: Seconds to wait for a proof after its own timeout.
_MARGIN = 0.5


#: Share of the timeout that a health probe waits. It is retried only if its connection was closed.
_HEALTH_SHARE = 0.5

_SENTINEL_PORT, _REDIS_PORT = 26379, 6379

_CONNECTIONS: dict[str, Any] = {
    "redis": Connection,
    "rediss": SSLConnection,
    "unix": UnixDomainSocketConnection,
    "redis+sentinel": SentinelManagedConnection,
    "redis+cluster": Connection,
}


class NotKept(TemporaryRefusal):
    """A write is not known to be as durable as DURABILITY requires. It may have happened; a repeat finds it."""


def unsynced(settings: Mapping[str, str]) -> str | None:
    """Return the settings that keep Redis from syncing each write, as text; None if it syncs."""
    wrong = [
        f"{name} is {settings.get(name, 'not shown')}" for name, value in SYNCED.items() if settings.get(name) != value
    ]
    return " and ".join(wrong) or None


def proving(kind: type[AbstractConnection], durability: Durability, timeout: float) -> type[AbstractConnection]:
    """Return a class of connections that prove commands sent as `proven`. timeout: of the replicas, in seconds."""
    if not durability.is_proven:
        return kind
    members = {"_durability": durability, "_seconds": timeout}
    return type(f"Proving{kind.__name__}", (_ProvingConnection, kind), members)


class _ProvingConnection(AbstractConnection):
    """Sends a proof command after each `proven` command, in one packet, and reads both replies.

    Raises NotKept instead of the reply if the write is not proven.
    """

    _durability: Durability
    _seconds: float

    _is_proof_due = False  #: the reply to the proof follows the next reply

    def send_command(self, *args: Any, **options: Any) -> None:
        if not options.pop("proven", False):
            super().send_command(*args, **options)
            return
        replicas = ("WAIT", self._durability.replicas, round(self._seconds * 1000))
        question = ("CONFIG", "GET", *SYNCED) if self._durability.fsync else replicas
        self.send_packed_command(self.pack_commands([args, question]))
        self._is_proof_due = True

    def read_response(self, *args: Any, **options: Any) -> Any:
        if not self._is_proof_due:
            return super().read_response(*args, **options)
        self._is_proof_due = False
        try:
            reply = super().read_response(*args, **options)
        except ResponseError:
            with suppress(ResponseError):
                self._read_proof()
            raise
        if fault := self._fault():
            raise NotKept(
                f"{fault}, as DURABILITY={self._durability} asks. "
                "It may have happened, and may be lost yet; a repeat finds it"
            )
        return reply

    def disconnect(self, *args: Any, **options: Any) -> None:
        self._is_proof_due = False
        super().disconnect(*args, **options)

    def _read_proof(self) -> Any:
        return super().read_response(timeout=self._seconds + _MARGIN, disconnect_on_error=True)

    def _fault(self) -> str | None:
        try:
            proof = self._read_proof()
        except ResponseError as refusal:
            return f"Redis does not say whether this write is kept ({refusal})"
        if not self._durability.fsync:
            number = self._durability.replicas
            is_few = proof < number
            return f"Fewer than {number} replicas have confirmed this write in {self._seconds:g} s" if is_few else None
        wrong = unsynced(_texts(proof))
        return f"This write is not known to be on the disk of Redis ({wrong})" if wrong else None


def _texts(reply: Any) -> dict[str, str]:
    """Return names and values, a map in RESP3 and a list in RESP2."""
    pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)
    return {name.decode(): value.decode() for name, value in pairs}


class _Cluster(RedisCluster):
    """redis-py's client, which also finds a node without slots, such as a new one to which the first slot moves."""

    def get_node(self, host: str | None = None, port: int | None = None, node_name: str | None = None) -> Any:
        node = super().get_node(host, port, node_name)
        if node is None and node_name is not None:
            # An ASK names a node that the list of slots lacks. redis-py would raise an AttributeError.
            name, _, number = node_name.rpartition(":")
            node = self.nodes_manager.nodes_cache.setdefault(node_name, ClusterNode(name, int(number), PRIMARY))
        return node


class LazyCluster(RedisClusterCommands):
    """The commands of `RedisCluster`. Every command raises one of UNAVAILABLE while no node answers.

    It connects with the first command. redis-py's constructor would already connect, and end a worker that starts while
    no node answers.
    """

    _event_dispatcher: Any = None  #: declared by redis-py's commands, and unused: the connected client has its own

    def __init__(self, nodes: Sequence[tuple[str, int]], *, timeout: float, **options: Any) -> None:
        """nodes: any of the cluster's. timeout: of a node's reply, in seconds.

        options: of every node's connections; max_connections is the limit per node.
        """
        self._nodes = nodes
        self._timeout = timeout
        self._options = options
        self._lock = threading.Lock()
        self._cluster: RedisCluster | None = None

    def execute_command(self, *args: Any, **options: Any) -> Any:
        return self._connected().execute_command(*args, **options)

    def pipeline(self, *args: Any, **options: Any) -> Any:
        return self._connected().pipeline(*args, **options)

    def pubsub(self, **options: Any) -> Any:
        """Subscribe at a current node of the cluster: a failed subscription does not refresh the nodes."""
        cluster = self._connected()
        cluster.nodes_manager.initialize()
        return cluster.pubsub(**options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connected(), name)

    def _connected(self) -> RedisCluster:
        if self._cluster is None:
            # One thread at a time asks for the nodes. The others wait for at most the timeout of a command.
            if not self._lock.acquire(timeout=self._timeout):
                raise ConnectionError("the nodes of the cluster are not known yet")
            try:
                self._cluster = self._cluster or self._connect()
            finally:
                self._lock.release()
        return self._cluster

    def _connect(self) -> RedisCluster:
        (host, port), *others = self._nodes
        return _Cluster(
            # redis-py accepts a class of pools only with a URL. With this class a request waits for a connection.
            url=f"redis://{f'[{host}]' if ':' in host else host}:{port}",
            startup_nodes=[ClusterNode(*node) for node in others],
            connection_pool_class=BlockingConnectionPool,
            timeout=self._timeout / 2,
            socket_timeout=self._timeout,
            socket_connect_timeout=self._timeout,
            **self._options,
        )


#: The operating system's poll, also in a process that gevent has patched.
_poll = get_original("select", "poll")


class Parser(_HiredisParser):
    """redis-py's own parser, with a check of idle connections that yields to gevent's loop at a fair rate.

    redis-py polls a connection each time it leaves the pool, and replaces it if it has unread bytes or was closed by
    the server. gevent's `select.poll` always yields to the loop, even if it need not wait, which costs every round trip
    20 µs. Without any yield, a connection whose client and Redis are always faster than this process would starve all
    others.
    """

    def can_read(self, timeout: float = 0) -> bool:
        """Return whether bytes arrive within the timeout, in seconds. Raises ConnectionError if Redis has closed."""
        take_turns()
        if timeout == 0 and self._reader and not self._reader.has_data() and not hasattr(self._sock, "pending"):
            poller = _poll()
            poller.register(self._sock, select.POLLIN)
            if not poller.poll(0):
                return False
        return super().can_read(timeout)


class WaitingSentinelPool(SentinelConnectionPool, BlockingConnectionPool):
    """Connections to the primary. A caller waits while all are busy, as with one server."""


@dataclass(frozen=True)
class Clients:
    """The connections of one process: for commands, for the subscriber, and for health probes."""

    commands: Redis
    signals: Redis
    health: Redis


def connect(url: str, *, timeout: float, max_connections: int, durability: Durability = AS_REDIS) -> Clients:
    """Make the clients for a URL, without connecting. Raises ValueError for a URL that names no server.

    timeout: of one attempt, in seconds. A command is tried twice; every write script is idempotent, so that the retry
    does not write twice. durability: of the commands that are sent as `proven`.
    """
    return Clients(
        commands=_client(url, timeout, max_connections, Retry(NoBackoff(), 1), durability),
        signals=_client(url, timeout, 2, Retry(NoBackoff(), 0)),  # subscriber; nodes of a cluster
        health=_client(url, timeout * _HEALTH_SHARE, 2, Retry(NoBackoff(), 1, supported_errors=(ConnectionError,))),
    )


def _client(url: str, timeout: float, max_connections: int, retry: Retry, durability: Durability = AS_REDIS) -> Redis:
    parts = urlsplit(url)
    if parts.scheme not in _CONNECTIONS:
        raise ValueError(f"no Redis at a URL of the scheme {parts.scheme!r}")
    kind = proving(_CONNECTIONS[parts.scheme], durability, timeout)
    bounds: dict[str, Any] = {"max_connections": max_connections, "retry": retry, "connection_class": kind}
    timeouts = {"socket_timeout": timeout, "socket_connect_timeout": timeout}
    # A request that finds every connection busy waits for half a timeout. Then it gets 503.
    waiting: dict[str, Any] = {"timeout": timeout / 2, "parser_class": Parser, **bounds, **timeouts}
    match parts.scheme:
        case "redis+cluster":
            cluster = LazyCluster(_hosts(parts, _REDIS_PORT), timeout=timeout, **bounds, **_credentials(parts))
            return cast(Redis, cluster)
        case "redis+sentinel":
            name, _, database = parts.path.strip("/").partition("/")
            sentinels = Sentinel(
                _hosts(parts, _SENTINEL_PORT), sentinel_kwargs={"retry": retry, **timeouts, **_of_sentinels(parts)}
            )
            pool = WaitingSentinelPool(name, sentinels, db=int(database or 0), **waiting, **_credentials(parts))
            return cast(Redis, OneServer(connection_pool=pool))
        case _:
            return cast(Redis, OneServer(connection_pool=BlockingConnectionPool.from_url(url, **waiting)))


def _hosts(parts: SplitResult, default_port: int) -> list[tuple[str, int]]:
    names = parts.netloc.rpartition("@")[2].split(",")
    hosts = [urlsplit(f"//{name}") for name in names]  # also [IPv6]:PORT
    return [(host.hostname or "", host.port or default_port) for host in hosts]


def _credentials(parts: SplitResult) -> dict[str, str]:
    credentials = {"username": parts.username, "password": parts.password}
    return {name: unquote(value) for name, value in credentials.items() if value}


def _of_sentinels(parts: SplitResult) -> dict[str, str]:
    options = parse_qs(parts.query)
    return {name: options[f"sentinel_{name}"][0] for name in ("username", "password") if f"sentinel_{name}" in options}


def counted(clients: Clients, meter: Meter) -> Clients:
    """Return the clients, with a client for commands that reports every round trip to the meter.

    A command is a round trip, and so is a pipeline, even one that a cluster's client divides among nodes. The duration
    includes the caller's wait for a connection and for the retry of a command.
    """
    redis: Any = clients.commands
    pipeline = redis.pipeline

    def counted_pipeline(*args: Any, **options: Any) -> Any:
        began = time.monotonic()
        try:
            pipe = pipeline(*args, **options)
        except UNAVAILABLE:  # a cluster's client asks for the nodes first
            meter.count_trip(time.monotonic() - began, failed=True)
            raise
        pipe.execute = _timed(pipe.execute, meter)
        return pipe

    redis.execute_command = _timed(redis.execute_command, meter)
    redis.pipeline = counted_pipeline
    return clients


def _timed(send: Callable[..., Any], meter: Meter) -> Callable[..., Any]:
    def timed(*args: Any, **options: Any) -> Any:
        began, failed = time.monotonic(), False
        try:
            return send(*args, **options)
        except UNAVAILABLE:
            failed = True
            raise
        finally:
            meter.count_trip(time.monotonic() - began, failed=failed)

    return timed
