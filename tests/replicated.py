"""A primary with a replica, and three sentinels that promote the replica: real processes."""

import contextlib
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from redis import Redis

from tests.servers import free_port, redis_program, running, valkey_program, wait_until

#: programs by the kind of the server
PROGRAMS: dict[str, Callable[[], str]] = {"redis": redis_program, "valkey": valkey_program}

#: milliseconds of silence after which the sentinels take a server for dead
DOWN_AFTER = 500


class Node:
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

    def follow(self, other: "Node") -> None:
        """Be a replica of another node, and wait until it is."""
        self.redis.replicaof("127.0.0.1", str(other.port))
        self.wait_until_it_confirms(other)

    def wait_until_it_confirms(self, primary: "Node") -> None:
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
def replicated(folder: Path, program: str, *options: str) -> Iterator[tuple[Node, Node]]:
    """A primary and its replica, in this order."""
    primary, replica = (Node(program, folder / name, *options) for name in ("primary", "replica"))
    try:
        primary.start()
        replica.start()
        replica.follow(primary)
        yield primary, replica
    finally:
        for node in (primary, replica):
            node.end()


@contextlib.contextmanager
def replicated_cluster(folder: Path, program: str) -> Iterator[tuple[Node, Node]]:
    """A cluster of one primary, which has all slots, and its replica."""
    options = ("--cluster-enabled", "yes", "--cluster-port")
    primary, replica = (Node(program, folder / name) for name in ("primary", "replica"))
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
def two_primaries(folder: Path, program: str, *options: str) -> Iterator[tuple[Node, Node]]:
    """A cluster of two primaries, each with half of the slots."""
    first, second = (Node(program, folder / name, *options) for name in ("first", "second"))
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
def sentinels(folder: Path, primary: Node, number: int = 3) -> Iterator[list[Redis]]:
    """Sentinels of a primary, which they call `main`; a client of each."""
    clients = []
    with contextlib.ExitStack() as stack:
        for index in range(number):
            port = free_port()
            settings = folder / f"sentinel-{index}.conf"
            settings.write_text(
                f"port {port}\ndir {folder}\nsentinel monitor main 127.0.0.1 {primary.port} 2\n"
                f"sentinel down-after-milliseconds main {DOWN_AFTER}\nsentinel failover-timeout main 1000\n"
            )
            command = [redis_program(), str(settings), "--sentinel"]
            stack.enter_context(running(command, stdout=subprocess.DEVNULL))
            clients.append(Redis(port=port, retry=None))
            wait_until(clients[-1].ping, "the sentinel")
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
