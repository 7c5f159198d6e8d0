"""A client of a Redis Cluster that contacts no node before its first command.

redis-py asks the cluster for its nodes in the constructor. So a worker that starts while no node answers would end.
"""

import threading
from collections.abc import Sequence
from typing import Any

from redis import BlockingConnectionPool, RedisCluster
from redis.cluster import PRIMARY, ClusterNode
from redis.commands import RedisClusterCommands
from redis.exceptions import ConnectionError


class _Cluster(RedisCluster):
    """redis-py's client, which also finds a node that has no slots yet, and to which the first one moves."""

    def get_node(self, host: str | None = None, port: int | None = None, node_name: str | None = None) -> Any:
        node = super().get_node(host, port, node_name)
        if node is None and node_name is not None:
            # An ASK names it, and the list of slots does not: redis-py would fail with an AttributeError.
            name, _, number = node_name.rpartition(":")
            node = self.nodes_manager.nodes_cache.setdefault(node_name, ClusterNode(name, int(number), PRIMARY))
        return node


class LazyCluster(RedisClusterCommands):
    """The commands of `RedisCluster`. Every command raises one of UNAVAILABLE while no node answers."""

    _event_dispatcher: Any = None  #: declared by redis-py's commands; the one in use is that of the connected client

    def __init__(self, nodes: Sequence[tuple[str, int]], *, timeout: float, **options: Any) -> None:
        """nodes: any of the cluster's. timeout: seconds in which a node must answer.

        options: of every node's connections; max_connections is the most to one node.
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
        """A subscription at a node that the cluster has now: a subscription that fails asks for no nodes by itself."""
        cluster = self._connected()
        cluster.nodes_manager.initialize()
        return cluster.pubsub(**options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connected(), name)

    def _connected(self) -> RedisCluster:
        if self._cluster is None:
            # One thread at a time asks for the nodes; the others wait at most for the timeout of a command.
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
            # Only with a URL redis-py takes a class of pools. This one has a request wait for a connection.
            url=f"redis://{f'[{host}]' if ':' in host else host}:{port}",
            startup_nodes=[ClusterNode(*node) for node in others],
            connection_pool_class=BlockingConnectionPool,
            timeout=self._timeout / 2,
            socket_timeout=self._timeout,
            socket_connect_timeout=self._timeout,
            **self._options,
        )
