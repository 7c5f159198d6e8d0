"""Primaries of a cluster die while clients append to the whole server and others follow: with `replicas:1` all that was
acknowledged is there, once and in order, and every follower has received it.

FAILOVERS and WRITES make the run longer: `make test-fleet`.
"""

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from uuid import uuid4

import httpx
import pytest
from redis.crc import key_slot

from store.keys import ConversationKeys
from tests.backends import SLOTS, OwnRedisCluster, cluster
from tests.conftest import action
from tests.servers import TIMEOUT, agent_server, wait_until
from tests.sockets import inbox_of
from tests.test_failover import BATCH, LONG, Behind, FailoverWriter, cannot_send, has_written
from tests.test_live import SocketReader, StreamReader

pytestmark = pytest.mark.cluster("fails over primaries of a cluster under load")

#: failovers, and the writes of each
FAILOVERS, WRITES = int(os.environ.get("FAILOVERS", 1)), int(os.environ.get("WRITES", 300))

#: milliseconds of silence after which the nodes take one of them for dead
DOWN_AFTER = 1000


@contextmanager
def fleet(folder, durability: str) -> Iterator[tuple[httpx.Client, OwnRedisCluster]]:
    """The server on a cluster of three primaries and three replicas; a client for it."""
    with cluster(folder, DOWN_AFTER) as nodes:
        settings = {"REDIS_URL": nodes.url, "DURABILITY": durability, "REDIS_TIMEOUT": "0.5"}
        with agent_server(folder / "log", **settings, RATE_LIMIT_WRITES="none") as (client, _):
            wait_until(lambda: client.get("/ready").status_code == 200, "the fleet")
            yield client, nodes


def writers_of_each_shard(client: httpx.Client, text: str, batch: int) -> list[FailoverWriter]:
    """A writer for each range of slots, whose conversation lies there."""
    found: dict[int, FailoverWriter] = {}
    while len(found) < len(SLOTS):
        writer = FailoverWriter(client, text, batch)
        slot = key_slot(ConversationKeys(writer.conversation).root.encode())
        found[next(index for index, (_, last) in enumerate(SLOTS) if slot <= last)] = writer
    return [found[index] for index in range(len(SLOTS))]


def fail_over(nodes: OwnRedisCluster, shard: int, behind: Behind) -> None:
    """Kill the primary of a shard when its replica is behind; when the replica is promoted, start the primary again."""
    primary, replica = nodes.pair(shard)
    is_behind = behind(primary)
    replica.freeze()
    wait_until(is_behind, "the replica to fall behind")
    primary.kill()
    replica.thaw()
    wait_until(lambda: replica.redis.info("replication")["role"] == "master", "the promotion")
    primary.start()
    primary.wait_until_it_confirms(replica)
    nodes.wait_until_whole()


class Asker:
    """Has actions wait for a decision in a conversation of its own, and rejects each when it is acknowledged."""

    def __init__(self, client: httpx.Client) -> None:
        self.conversation = str(uuid4())
        self.decided: list[str] = []
        self.refusals = 0
        self._client = client
        policy = {"conversation_id": self.conversation, "confirmation_policy": {"kind": "AlwaysConfirm"}}
        client.post("/api/conversations", json=policy).raise_for_status()

    def ask_until(self, done: threading.Event) -> None:
        while not done.is_set():
            one = action()
            decision = {"decisions": [{"action_id": one["id"], "decision": "reject"}]}
            self._post_until_accepted(f"/api/v1/webhooks/events/{self.conversation}", [one])
            self._post_until_accepted(f"/api/v1/conversation/{self.conversation}/pending-actions/decisions", decision)
            self.decided.append(one["id"])

    def _post_until_accepted(self, path: str, body: object) -> None:
        last: list[httpx.Response] = []
        refused = self.refusals

        def is_answered() -> bool:
            last[:] = [self._client.post(path, json=body)]
            self.refusals += last[0].status_code == 503
            return last[0].status_code != 503

        wait_until(is_answered, path)
        # A decision that was refused with 503 may have happened: then its action waits no longer.
        is_repeat_of_decision = "not_pending" in last[0].text and self.refusals > refused
        assert last[0].status_code == 200 or is_repeat_of_decision, last[0].text


class InboxReader(threading.Thread):
    """Follows the inbox, and reconnects after the last change that it has received."""

    def __init__(self, client: httpx.Client) -> None:
        super().__init__(daemon=True)
        self.resets: list[str] = []
        self.opened: list[str] = []
        self.decided: list[str] = []
        self.wanted = True
        self.ready = threading.Event()
        self._url, self._last = client.base_url, ""

    def run(self) -> None:
        while self.wanted:
            with suppress(httpx.HTTPError), httpx.Client(base_url=self._url) as client:
                headers = {"Last-Event-ID": self._last} if self._last else {}
                with inbox_of(client, headers=headers) as events:
                    for name, data, identity in events:
                        self._last = identity or self._last
                        self._note(name, data)
            time.sleep(0.1)

    def _note(self, name: str, data: dict) -> None:
        if name == "reset":
            self.resets.append(data["reason"])
        elif name == "snapshot":
            self.opened += [item["action_id"] for item in data["items"]]
        elif name == "ready":
            self.ready.set()
        elif name in ("opened", "decided"):
            (self.opened if name == "opened" else self.decided).append(data["action_id"])


def under_load(
    client: httpx.Client,
    nodes: OwnRedisCluster,
    behind: Behind,
    failovers: int,
    writes: int,
    text: str = "short",
    batch: int = BATCH,
):
    """Fail over one shard after the other, each in the midst of a round of writes to all; the writers and the asker."""
    writers, asker = writers_of_each_shard(client, text, batch), Asker(client)
    for writer in writers:
        writer.write(1)
    readers = [kind(client, writer.conversation) for writer in writers for kind in (SocketReader, StreamReader)]
    inbox = InboxReader(client)
    for reader in (*readers, inbox):
        reader.start()
    # Of an action that opened before the stream began and was decided before its snapshot, only the decision is told.
    assert inbox.ready.wait(TIMEOUT)
    each = writes // len(writers)
    with ThreadPoolExecutor(len(writers) + 1) as pool:
        for number in range(failovers):
            done = threading.Event()
            asking = pool.submit(asker.ask_until, done)
            writing = [pool.submit(writer.write, each) for writer in writers]
            soon = 1 + number * each + each // 10
            wait_until(lambda soon=soon: all(len(one.acknowledged) >= soon for one in writers), "some writes")
            fail_over(nodes, number % len(SLOTS), behind)
            for future in writing:
                future.result()
            done.set()
            asking.result()
    return writers, readers, asker, inbox


def test_nothing_that_a_replica_confirmed_is_lost_or_doubled_by_failovers_of_a_cluster(tmp_path):
    with fleet(tmp_path, "replicas:1") as (client, nodes):
        writers, readers, asker, inbox = under_load(client, nodes, has_written, FAILOVERS, WRITES)

        assert sum(writer.refusals for writer in writers) >= FAILOVERS, "a failover met no write"
        for writer in writers:
            assert writer.found() == writer.acknowledged
        for reader in readers:
            [log] = [one.acknowledged for one in writers if one.conversation == reader.conversation]
            wait_until(lambda reader=reader, log=log: len(reader.received) >= len(log), "a follower")
            reader.wanted = False
            assert [identity for _, identity in reader.received] == log
        assert asker.decided
        wait_until(lambda: set(asker.decided) <= set(inbox.decided), "the decisions in the inbox")
        assert set(asker.decided) <= set(inbox.opened)
        inbox.wanted = False
        assert inbox.resets == ["new"]


@pytest.mark.skipif("FAILOVERS" not in os.environ, reason="make test-fleet runs it, as it writes 80 MB")
def test_the_same_failover_of_a_cluster_loses_what_nobody_confirmed(tmp_path):
    with fleet(tmp_path, "none") as (client, nodes):
        writers, *_ = under_load(client, nodes, cannot_send, 1, 800, 2 * LONG, batch=1)

        lost = sum(len(set(writer.acknowledged) - set(writer.found())) for writer in writers)
        print(f"{lost} of {sum(len(one.acknowledged) for one in writers)} acknowledged events are lost")
        assert lost > 0
