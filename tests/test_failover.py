"""Sentinels promote the replica of a primary that dies while writers append to the whole server: with `replicas:1` all
that was acknowledged is there, once and in order.

FAILOVERS and WRITES make the run longer: `make test-fleet`.
"""

import base64
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from uuid import uuid4

import httpx
import pytest
from redis import Redis

from tests.backends import RedisNode, knows_all, replicated, sentinels
from tests.conftest import message
from tests.servers import agent_server, valkey_program, wait_until

pytestmark = pytest.mark.cluster("fails over a primary under load")

#: failovers, and the writes of each
FAILOVERS, WRITES = int(os.environ.get("FAILOVERS", 3)), int(os.environ.get("WRITES", 500))

WRITERS = 4

#: writes of a request, all of which it acknowledges or none: in a long run the client's own work would be most of it
BATCH = max(1, WRITES // 1000)

#: a text that stays as long where it is kept: more of it than the buffers of a connection take
LONG = base64.b64encode(Random(5).randbytes(40_000)).decode()


class FailoverWriter:
    """Appends events to a conversation of its own, each batch until it is acknowledged, and then the next one."""

    def __init__(self, client: httpx.Client, text: str, batch: int = BATCH) -> None:
        self.conversation = str(uuid4())
        self.acknowledged: list[str] = []
        self.refusals = 0
        self._client = client
        self._text, self._batch = text, batch

    def write(self, number: int) -> None:
        for begin in range(0, number, self._batch):
            events = [message(self._text) for _ in range(min(self._batch, number - begin))]
            wait_until(lambda events=events: self._appends(events), "an acknowledgment")
            self.acknowledged += [event["id"] for event in events]

    def _appends(self, events: list[dict]) -> bool:
        response = self._client.post(f"/api/v1/webhooks/events/{self.conversation}", json=events)
        self.refusals += response.status_code != 200
        assert response.status_code in (200, 503), response.text
        return response.status_code == 200

    def found(self) -> list[str]:
        """The ids of the conversation's log, in its order."""
        ids, page = [], {"limit": 100}
        while True:
            answer = self._client.get(f"/api/conversations/{self.conversation}/events/search", params=page)
            ids += [one["id"] for one in answer.json()["items"]]
            if (cursor := answer.json()["next_page_id"]) is None:
                return ids
            page["page_id"] = cursor


@contextmanager
def fleet(folder, durability: str) -> Iterator[tuple[httpx.Client, list[RedisNode], list[Redis]]]:
    """The server on a primary that three sentinels watch; a client, the pair, the sentinels."""
    with replicated(folder, valkey_program()) as pair, sentinels(folder, pair[0]) as watching:
        hosts = ",".join(f"127.0.0.1:{one.get_connection_kwargs()['port']}" for one in watching)
        settings = {"REDIS_URL": f"redis+sentinel://{hosts}/main", "DURABILITY": durability, "REDIS_TIMEOUT": "0.5"}
        with agent_server(folder / "log", **settings, RATE_LIMIT_WRITES="none") as (client, _):
            wait_until(lambda: client.get("/ready").status_code == 200, "the fleet")
            yield client, list(pair), watching


#: whether the primary has writes that its replica cannot have
Behind = Callable[[RedisNode], Callable[[], bool]]


def has_written(primary: RedisNode) -> Callable[[], bool]:
    """It has written something since this call."""

    def offset() -> int:
        return int(primary.redis.info("replication")["master_repl_offset"])

    before = offset()
    return lambda: offset() > before + 1000  # more than its pings to replicas


def cannot_send(primary: RedisNode) -> Callable[[], bool]:
    """The system takes no more from it for its replica, so that many writes lie in its memory alone."""
    return lambda: int(primary.redis.client_list("replica")[0]["omem"]) > 100_000


def fail_over(nodes: list[RedisNode], watching: list[Redis], behind: Behind) -> None:
    """Kill the primary when its replica is behind; when that has been promoted, start the primary again as its replica.

    nodes: primary and replica, which change their places. Until the one that starts again has copied the other's data,
    the sentinels may not promote it: it has the old ones, and they know no better.
    """
    primary, replica = nodes
    is_behind = behind(primary)
    replica.freeze()
    wait_until(is_behind, "the replica to fall behind")
    primary.kill()
    replica.thaw()
    for sentinel in watching:
        wait_until(lambda one=sentinel: promoted(one) == replica.port, "the promotion")
    primary.start("--replicaof", "127.0.0.1", str(replica.port), "--replica-priority", "0")
    primary.wait_until_it_confirms(replica)
    primary.redis.config_set("replica-priority", 100)
    nodes.reverse()


def promoted(sentinel: Redis) -> int:
    """The port of the primary that a sentinel names."""
    return sentinel.sentinel_get_master_addr_by_name("main")[1]


def under_load(
    fleet, failovers: int, writes: int, behind: Behind, text: str = "short", batch: int = BATCH
) -> list[FailoverWriter]:
    """Fail over in the midst of each round of writes; the writers."""
    client, nodes, watching = fleet
    writers = [FailoverWriter(client, text, batch) for _ in range(WRITERS)]
    for number in range(failovers):
        for sentinel in watching:  # before the writes, which must not have ended when the primary dies
            wait_until(lambda sentinel=sentinel: knows_all(sentinel, len(watching)), "the sentinels to be content")
        threads = [threading.Thread(target=writer.write, args=(writes // WRITERS,)) for writer in writers]
        for thread in threads:
            thread.start()
        soon = number * (writes // WRITERS) * WRITERS + writes // 10
        wait_until(lambda soon=soon: sum(len(one.acknowledged) for one in writers) >= soon, "some writes")
        fail_over(nodes, watching, behind)
        for thread in threads:
            thread.join()
        assert {len(writer.acknowledged) for writer in writers} == {(number + 1) * (writes // WRITERS)}
    return writers


def test_nothing_that_a_replica_confirmed_is_lost_or_doubled_by_failovers_under_load(tmp_path):
    with fleet(tmp_path, "replicas:1") as running:
        writers = under_load(running, FAILOVERS, WRITES, has_written)

        assert sum(writer.refusals for writer in writers) >= FAILOVERS, "a failover met no write"
        for writer in writers:
            assert writer.found() == writer.acknowledged


def test_the_same_failover_loses_what_nobody_confirmed(tmp_path):
    with fleet(tmp_path, "none") as running:
        writers = under_load(running, 1, 800, cannot_send, LONG, batch=1)

        lost = sum(len(set(writer.acknowledged) - set(writer.found())) for writer in writers)
        assert lost > 0
