"""A cluster of three primaries and three replicas: real processes."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.replicated import Node
from tests.servers import free_port, redis_program, wait_until

#: the slots of each primary
SLOTS = ((0, 5460), (5461, 10922), (10923, 16383))


#: nodes hear of each other twice in the timeout. A primary pings its replicas each second, as nodes tell of no replica
#: that has received nothing yet
OPTIONS = ("--cluster-enabled", "yes", "--cluster-node-timeout", "4000", "--repl-ping-replica-period", "1")


class Cluster:
    """Nodes of a cluster, which change their roles at failovers."""

    def __init__(self, folder: Path, down_after: int) -> None:
        """down_after: milliseconds of silence after which the nodes take one of them for dead."""
        program = redis_program()
        self.nodes = [
            Node(program, folder / f"node-{number}", *OPTIONS, "--cluster-port", str(free_port()))
            for number in range(2 * len(SLOTS))
        ]
        self._down_after = down_after

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    def begin(self) -> None:
        primaries, replicas = self.nodes[: len(SLOTS)], self.nodes[len(SLOTS) :]
        for epoch, node in enumerate(self.nodes, 1):
            node.start()
            node.redis.execute_command("CLUSTER", "SET-CONFIG-EPOCH", epoch)
        for node, slots in zip(primaries, SLOTS, strict=True):
            node.redis.execute_command("CLUSTER", "ADDSLOTSRANGE", *slots)
        for node in self.nodes:
            bus = node.redis.config_get("cluster-port")["cluster-port"]
            for other in self.nodes:
                if other is not node:
                    other.redis.execute_command("CLUSTER", "MEET", "127.0.0.1", node.port, bus)
        for node in self.nodes:
            wait_until(lambda node=node: info(node)["cluster_known_nodes"] == "6", "the nodes to know each other")
        for primary, replica in zip(primaries, replicas, strict=True):
            identity = primary.redis.execute_command("CLUSTER", "MYID").decode()
            wait_until(
                lambda to=identity, of=replica: of.redis.execute_command("CLUSTER", "REPLICATE", to) == b"OK",
                "a replica to know its primary",
            )
        for primary, replica in zip(primaries, replicas, strict=True):
            replica.wait_until_it_confirms(primary)
        self.wait_until_whole()
        for node in self.nodes:
            node.redis.config_set("cluster-node-timeout", self._down_after)

    def wait_until_whole(self) -> None:
        for node in self.nodes:
            wait_until(lambda node=node: is_whole(node), "the cluster")

    def pair(self, shard: int) -> tuple[Node, Node]:
        """The primary and the replica of a range of slots, while the cluster is whole."""
        by_port = {node.port: node for node in self.nodes}
        found = {start: nodes for start, _, *nodes in self.nodes[0].redis.execute_command("CLUSTER", "SLOTS")}
        primary, replica = (by_port[port] for _, port, *_ in found[SLOTS[shard][0]])
        return primary, replica

    def end(self) -> None:
        for node in self.nodes:
            node.end()


def info(node: Node) -> dict[str, str]:
    """What a node says of its cluster."""
    lines = node.redis.execute_command("CLUSTER", "INFO").decode().split()
    return dict(line.split(":", 1) for line in lines)


def is_whole(node: Node) -> bool:
    """Whether a node takes commands, and sees a replica of every primary."""
    shards = node.redis.execute_command("CLUSTER", "SLOTS")
    return info(node)["cluster_state"] == "ok" and [len(nodes) for nodes in shards] == [4] * len(SLOTS)


@contextlib.contextmanager
def cluster(folder: Path, down_after: int = 60_000) -> Iterator[Cluster]:
    """A cluster of three primaries with a replica each. down_after: see `Cluster`."""
    made = Cluster(folder, down_after)
    try:
        made.begin()
        yield made
    finally:
        made.end()
