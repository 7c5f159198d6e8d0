"""The slot of a conversation moves to another node of a cluster while clients append, page and follow: each request is
answered rightly or refused with 503, and nothing is lost or doubled."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import httpx
import pytest
from redis.crc import key_slot

from store.errors import UNAVAILABLE
from store.keys import ConversationKeys
from tests.backends import OPTIONS, SLOTS, OwnRedisCluster, RedisNode, cluster
from tests.conftest import as_events, limits_of, message, store_of
from tests.servers import agent_server, free_port, valkey_program, wait_until
from tests.test_live import SocketReader, StreamReader, log_of

pytestmark = pytest.mark.cluster("moves slots of a cluster key by key under load")


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    with cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="module")
def joined(tmp_path_factory, nodes):
    """A primary that has joined the cluster, and that has no slots."""
    node = RedisNode(valkey_program(), tmp_path_factory.mktemp("joined") / "node", *OPTIONS)
    try:
        # By default a node that gives its last slot away becomes a replica.
        node.start("--cluster-port", str(free_port()), "--cluster-allow-replica-migration", "no")
        first = nodes.nodes[0]
        bus = first.redis.config_get("cluster-port")["cluster-port"]
        node.redis.execute_command("CLUSTER", "MEET", "127.0.0.1", first.port, bus)
        for one in (node, *nodes.nodes):
            wait_until(lambda one=one: is_known(one, len(nodes.nodes) + 1), "the nodes to know each other")
        yield node
    finally:
        node.end()


def is_known(node: RedisNode, number: int) -> bool:
    """Whether a node is connected to so many nodes, itself among them."""
    known = node.redis.execute_command("CLUSTER", "NODES").splitlines()
    return sum(b" connected" in line and b"handshake" not in line for line in known) == number


def identity_of(node: RedisNode) -> str:
    return node.redis.execute_command("CLUSTER", "MYID").decode()


def slot_of(conversation: str) -> int:
    return key_slot(ConversationKeys(conversation).root.encode())


def owner(nodes: OwnRedisCluster, slot: int) -> tuple[RedisNode, RedisNode]:
    """The primary of a slot, and another primary, of those that the cluster began with."""
    shard = next(shard for shard, (_, last) in enumerate(SLOTS) if slot <= last)
    return nodes.nodes[shard], nodes.nodes[(shard + 1) % len(SLOTS)]


def move(slot: int, source: RedisNode, target: RedisNode, between: Callable[[], None]) -> None:
    """Move a slot key by key as redis-cli does. between: called when it begins to move, and after each key."""
    target.redis.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", identity_of(source))
    source.redis.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", identity_of(target))
    between()
    while keys := source.redis.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 1):
        # Not REPLACE: a key that both nodes have is an error, as one of the two would be lost.
        source.redis.execute_command("MIGRATE", "127.0.0.1", target.port, keys[0], 0, 60_000)
        between()
    for node in (target, source):
        node.redis.execute_command("CLUSTER", "SETSLOT", slot, "NODE", identity_of(target))


# one client


class SlotClient:
    """Appends an event at each step and reads the log: each call is right, or is refused by Redis for now."""

    def __init__(self, url: str, conversation: str) -> None:
        self.store = store_of(url, limits_of(most=1, pause_idlest=False, host_seconds=60, start_seconds=120))
        self.conversation = conversation
        self.written: list[str] = []
        self.refusals = 0

    def use(self) -> None:
        one = message(f"text {len(self.written)}")
        if self._tries(lambda: self.store.events.append(self.conversation, as_events([one]))):
            self.written.append(one["id"])
        self._tries(self.reads)

    def reads(self) -> None:
        """Raises one of UNAVAILABLE."""
        events = self.store.events
        assert events.count(self.conversation) == len(self.written)
        assert events.count(self.conversation, body="text") == len(self.written)
        found, _ = events.search(self.conversation)
        assert [json.loads(one)["id"] for one in found] == self.written

    def _tries(self, call: Callable[[], object]) -> bool:
        try:
            call()
        except UNAVAILABLE:
            self.refusals += 1
            return False
        return True


def test_each_call_is_right_or_refused_while_a_slot_moves_to_a_node_that_has_none(nodes, joined, conversation):
    slot = slot_of(conversation)
    source, _ = owner(nodes, slot)
    client = SlotClient(nodes.url, conversation)
    client.use()

    move(slot, source, joined, client.use)
    client.use()
    move(slot, joined, source, lambda: None)
    client.use()

    client.reads()
    assert client.refusals
    assert len(client.written) >= 3


# the whole server


class SlotsWriter:
    """Appends events until the end, each until it is acknowledged."""

    def __init__(self, client: httpx.Client, conversation: str) -> None:
        self.acknowledged: list[str] = []
        self.responses = 0
        self._client, self._path = client, f"/api/v1/webhooks/events/{conversation}"

    def write_until(self, end: Event) -> None:
        while not end.is_set():
            one = message("short")
            while not self._appends(one):
                pass
            self.acknowledged.append(one["id"])

    def _appends(self, one: dict) -> bool:
        response = self._client.post(self._path, json=[one])
        self.responses += 1
        if response.status_code == 503:
            assert "Retry-After" in response.headers
            return False
        assert response.status_code == 200, response.text
        return True


class Pager:
    """Reads the log again and again; each page is right or refused."""

    def __init__(self, client: httpx.Client, conversation: str) -> None:
        self.seen: list[list[str]] = []
        self.responses = 0
        self._client, self._path = client, f"/api/conversations/{conversation}/events/search"

    def page_until(self, end: Event) -> None:
        while not end.is_set():
            response = self._client.get(self._path, params={"limit": 100, "sort_order": "TIMESTAMP_DESC"})
            self.responses += 1
            if response.status_code == 503:
                assert "Retry-After" in response.headers
                continue
            assert response.status_code == 200, response.text
            self.seen.append([one["id"] for one in response.json()["items"]])


def test_nothing_is_lost_or_doubled_while_a_slot_moves_under_load(nodes, tmp_path, conversation):
    slot = slot_of(conversation)
    source, target = owner(nodes, slot)
    settings = {"REDIS_URL": nodes.url, "DURABILITY": "replicas:1", "RATE_LIMIT_WRITES": "none"}
    with agent_server(tmp_path / "log", **settings) as (client, _):
        client.post("/api/conversations", json={"conversation_id": conversation}).raise_for_status()
        readers = [kind(client, conversation) for kind in (SocketReader, StreamReader)]
        for reader in readers:
            reader.start()
        writers, pager, end = (
            [SlotsWriter(client, conversation) for _ in range(2)],
            Pager(client, conversation),
            Event(),
        )

        def used() -> None:
            """Each client has had a response since this call."""
            goals = [(one, one.responses + 1) for one in (*writers, pager)]
            wait_until(lambda: all(one.responses >= goal for one, goal in goals), "responses")

        with ThreadPoolExecutor(len(writers) + 1) as pool:
            running = [pool.submit(writer.write_until, end) for writer in writers]
            running.append(pool.submit(pager.page_until, end))
            try:
                used()
                move(slot, source, target, used)
                used()
                move(slot, target, source, lambda: None)
                used()
            finally:
                end.set()
            for one in running:
                one.result()

        log = [identity for _, identity in log_of(client, conversation)]
        assert sorted(log) == sorted(identity for writer in writers for identity in writer.acknowledged)
        for writer in writers:
            assert [identity for identity in log if identity in set(writer.acknowledged)] == writer.acknowledged
        for page in pager.seen:
            last = log.index(page[0]) + 1 if page else 0
            assert page == log[max(0, last - 100) : last][::-1]
        for reader in readers:
            wait_until(lambda reader=reader: len(reader.received) >= len(log), "a follower")
            reader.wanted = False
            assert [identity for _, identity in reader.received] == log
