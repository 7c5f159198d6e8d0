"""The kinds of Redis that the store runs on, as real processes, and which tests run on which.

They differ in what a script may do (fakeredis has a Lua of its own), in types of replies, in the clock, in the slots of
a cluster and in who the primary is. All of that is the store's business: its tests run on `SCRIPTED`, where a script
may meet what it meets nowhere else. The servers behind a sentinel, and in a cluster of one, are no others; they are
reached in another way. `ON_ALL` is about that way and runs on every kind; every other test runs on Valkey, which the
set-up installs.

A pair is a primary with a replica, which sentinels promote. A cluster has three primaries and three replicas.
"""

import contextlib
import signal
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from redis import Redis

from tests.servers import (
    answers,
    fakeredis_server,
    free_port,
    redis_program,
    running,
    store_server,
    valkey_program,
    wait_until,
)

#: milliseconds of silence after which the sentinels take a server for dead
DOWN_AFTER = 500


class RedisNode:
    """A server of the pair, on a port that it keeps when it starts again."""

    def __init__(self, program: str, folder: Path, *options: str) -> None:
        self.port = free_port()
        self.redis = Redis(port=self.port, retry=None, socket_timeout=5)
        folder.mkdir()
        own = ["--port", str(self.port), "--dir", str(folder), "--save", "", "--repl-diskless-sync-delay", "0"]
        self._command = [program, *own, *options]
        self._process = contextlib.ExitStack()

    def start(self, *options: str) -> None:
        command = [*self._command, *options]
        self.process = self._process.enter_context(running(command, stdout=subprocess.DEVNULL))
        wait_until(self.redis.ping, f"the server on port {self.port}")

    def follow(self, other: "RedisNode") -> None:
        """Be a replica of another node, and wait until it is."""
        self.redis.replicaof("127.0.0.1", str(other.port))
        self.wait_until_it_confirms(other)

    def wait_until_it_confirms(self, primary: "RedisNode") -> None:
        wait_until(lambda: self.redis.info("replication")["master_link_status"] == "up", "the replica's link")
        wait_until(lambda: primary.redis.wait(1, 500) == 1, "a word of the replica")

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it as a power cut does: it writes nothing more, and says good-bye to nobody."""
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        self._process.close()


@contextlib.contextmanager
def replicated(folder: Path, program: str, *options: str) -> Iterator[tuple[RedisNode, RedisNode]]:
    """A primary and its replica, in this order."""
    primary, replica = (RedisNode(program, folder / name, *options) for name in ("primary", "replica"))
    try:
        primary.start()
        replica.start()
        replica.follow(primary)
        yield primary, replica
    finally:
        for node in (primary, replica):
            node.end()


@contextlib.contextmanager
def replicated_cluster(folder: Path, program: str) -> Iterator[tuple[RedisNode, RedisNode]]:
    """A cluster of one primary, which has all slots, and its replica."""
    options = ("--cluster-enabled", "yes", "--cluster-port")
    primary, replica = (RedisNode(program, folder / name) for name in ("primary", "replica"))
    try:
        for node in (primary, replica):
            node.start(*options, str(free_port()))
        primary.redis.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        identity = primary.redis.execute_command("CLUSTER", "MYID").decode()
        bus = primary.redis.config_get("cluster-port")["cluster-port"]
        replica.redis.execute_command("CLUSTER", "MEET", "127.0.0.1", primary.port, bus)
        wait_until(lambda: replica.redis.execute_command("CLUSTER", "REPLICATE", identity) == b"OK", "the replica")
        replica.wait_until_it_confirms(primary)
        for node in (primary, replica):
            wait_until(lambda node=node: b"cluster_state:ok" in node.redis.execute_command("CLUSTER", "INFO"), "both")
        yield primary, replica
    finally:
        for node in (primary, replica):
            node.end()


@contextlib.contextmanager
def two_primaries(folder: Path, program: str, *options: str) -> Iterator[tuple[RedisNode, RedisNode]]:
    """A cluster of two primaries, each with half of the slots."""
    first, second = (RedisNode(program, folder / name, *options) for name in ("first", "second"))
    try:
        for node, slots in ((first, (0, 8191)), (second, (8192, 16383))):
            node.start("--cluster-enabled", "yes", "--cluster-port", str(free_port()))
            node.redis.execute_command("CLUSTER", "ADDSLOTSRANGE", *slots)
        second.redis.execute_command("CLUSTER", "SET-CONFIG-EPOCH", 2)
        bus = first.redis.config_get("cluster-port")["cluster-port"]
        second.redis.execute_command("CLUSTER", "MEET", "127.0.0.1", first.port, bus)
        for node in (first, second):
            wait_until(lambda node=node: b"cluster_state:ok" in node.redis.execute_command("CLUSTER", "INFO"), "both")
        yield first, second
    finally:
        for node in (first, second):
            node.end()


@contextlib.contextmanager
def sentinel(folder: Path, primary: RedisNode, quorum: int) -> Iterator[int]:
    """The port of a sentinel of a primary, which it calls `main`."""
    port = free_port()
    settings = folder / f"sentinel-{port}.conf"
    settings.write_text(
        f"port {port}\ndir {folder}\nsentinel monitor main 127.0.0.1 {primary.port} {quorum}\n"
        f"sentinel down-after-milliseconds main {DOWN_AFTER}\nsentinel failover-timeout main 1000\n"
    )
    with running([valkey_program(), str(settings), "--sentinel"], stdout=subprocess.DEVNULL):
        wait_until(answers(Redis(port=port, retry=None)), "the sentinel")
        yield port


@contextlib.contextmanager
def sentinels(folder: Path, primary: RedisNode, number: int = 3) -> Iterator[list[Redis]]:
    """Sentinels of a primary that has a replica; a client of each."""
    with contextlib.ExitStack() as stack:
        clients = []
        for _ in range(number):
            port = stack.enter_context(sentinel(folder, primary, quorum=2))
            clients.append(stack.enter_context(Redis(port=port, retry=None)))
            # By default a sentinel asks its servers every ten seconds who follows whom.
            clients[-1].execute_command("SENTINEL DEBUG", "INFO-PERIOD", 200)
        for client in clients:
            wait_until(lambda client=client: knows_all(client, number), "the sentinels to know each other")
        yield clients


def knows_all(sentinel: Redis, number: int) -> bool:
    """Whether a sentinel knows the other sentinels, and the replica as one that it may promote."""
    main = sentinel.sentinel_master("main")
    [replica] = sentinel.sentinel_slaves("main")
    is_linked = replica["master-link-status"] == "ok" and not (replica["is_sdown"] or replica["is_disconnected"])
    return int(main["num-other-sentinels"]) == number - 1 and is_linked and int(replica["slave-priority"]) > 0


#: the slots of each primary
SLOTS = ((0, 5460), (5461, 10922), (10923, 16383))


#: nodes hear of each other twice in the timeout. A primary pings its replicas each second, as nodes tell of no replica
#: that has received nothing yet
OPTIONS = ("--cluster-enabled", "yes", "--cluster-node-timeout", "4000", "--repl-ping-replica-period", "1")


class OwnRedisCluster:
    """Nodes of a cluster, which change their roles at failovers."""

    def __init__(self, folder: Path, down_after: int) -> None:
        """down_after: milliseconds of silence after which the nodes take one of them for dead."""
        program = valkey_program()
        self.nodes = [
            RedisNode(program, folder / f"node-{number}", *OPTIONS, "--cluster-port", str(free_port()))
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

    def pair(self, shard: int) -> tuple[RedisNode, RedisNode]:
        """The primary and the replica of a range of slots, while the cluster is whole."""
        by_port = {node.port: node for node in self.nodes}
        found = {start: nodes for start, _, *nodes in self.nodes[0].redis.execute_command("CLUSTER", "SLOTS")}
        primary, replica = (by_port[port] for _, port, *_ in found[SLOTS[shard][0]])
        return primary, replica

    def end(self) -> None:
        for node in self.nodes:
            node.end()


def info(node: RedisNode) -> dict[str, str]:
    """What a node says of its cluster."""
    lines = node.redis.execute_command("CLUSTER", "INFO").decode().split()
    return dict(line.split(":", 1) for line in lines)


def is_whole(node: RedisNode) -> bool:
    """Whether a node takes commands, and sees a replica of every primary."""
    shards = node.redis.execute_command("CLUSTER", "SLOTS")
    return info(node)["cluster_state"] == "ok" and [len(nodes) for nodes in shards] == [4] * len(SLOTS)


@contextlib.contextmanager
def cluster(folder: Path, down_after: int = 60_000) -> Iterator[OwnRedisCluster]:
    """A cluster of three primaries with a replica each. down_after: see `OwnRedisCluster`."""
    made = OwnRedisCluster(folder, down_after)
    try:
        made.begin()
        yield made
    finally:
        made.end()


@contextlib.contextmanager
def whole_cluster(folder: Path) -> Iterator[RedisNode]:
    """A cluster of one node, which has all slots."""
    node = RedisNode(valkey_program(), folder / "node", *OPTIONS, "--cluster-port", str(free_port()))
    try:
        node.start()
        node.redis.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        wait_until(lambda: info(node)["cluster_state"] == "ok", "the node to take its slots")
        yield node
    finally:
        node.end()


#: the tests that run on every backend, below the folder `tests`: the way to the store, and one file that walks the wire
ON_ALL = ("store/link", "test_whole_wire.py")

#: tests of the store's folder that run on one, as they are about no script and no reply of Redis
ON_ONE = ("store/test_over_http.py",)

DEFAULT = "valkey"


@contextlib.contextmanager
def redis_server(folder: Path) -> Iterator[tuple[str, subprocess.Popen]]:
    """A redis-server."""
    with store_server(folder, redis_program()) as server:
        yield server


@contextlib.contextmanager
def cluster_of_one(folder: Path) -> Iterator[tuple[str, subprocess.Popen]]:
    """A cluster of one node, which has all slots."""
    with whole_cluster(folder) as node:
        yield f"redis+cluster://127.0.0.1:{node.port}", node.process


@contextlib.contextmanager
def cluster_of_six(folder: Path) -> Iterator[tuple[str, subprocess.Popen]]:
    """A cluster of three primaries and three replicas; the process of its first primary."""
    with cluster(folder) as nodes:
        yield nodes.url, nodes.nodes[0].process


@contextlib.contextmanager
def watched_server(folder: Path) -> Iterator[tuple[str, subprocess.Popen]]:
    """A server whose address a sentinel tells."""
    node = RedisNode(valkey_program(), folder / "primary")
    try:
        node.start()
        with sentinel(folder, node, quorum=1) as watching:
            yield f"redis+sentinel://127.0.0.1:{watching}/main", node.process
    finally:
        node.end()


BACKENDS = {
    DEFAULT: store_server,
    "redis": redis_server,
    "fakeredis": fakeredis_server,
    "one-node": cluster_of_one,
    "cluster": cluster_of_six,
    "sentinel": watched_server,
}

#: programs by their kind, and each as a parameter of a test
PROGRAMS = {"valkey": valkey_program, "redis": redis_program}
EVERY_PROGRAM = [DEFAULT, pytest.param("redis", marks=pytest.mark.stores("the same on redis-server"))]

#: where scripts and replies may differ
SCRIPTED = (DEFAULT, "redis", "fakeredis", "cluster")


def each(names: Iterable[str]) -> list:
    """Backends as parameters of a test; all but the default are slow."""
    slow = pytest.mark.stores("the same on another kind of Redis")
    return [name if name == DEFAULT else pytest.param(name, marks=slow) for name in names]


EVERY_BACKEND = each(BACKENDS)


def runs_on_all(path: Path) -> bool:
    """Whether the tests of a file run on every backend."""
    below = path.relative_to(Path(__file__).parent)
    return any(below.is_relative_to(one) for one in ON_ALL)


def runs_on_scripted(path: Path) -> bool:
    """Whether the tests of a file of the store's folder run where scripts may differ."""
    return not runs_on_all(path) and path.relative_to(Path(__file__).parent).as_posix() not in ON_ONE
