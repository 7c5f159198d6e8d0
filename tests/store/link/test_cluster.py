"""A client of a cluster whose primaries die."""

import queue

from store.link.connection import connect
from store.link.signals import Signals
from store.link.wakeups import Wakeups, ask_supervisors
from tests.clusters import cluster
from tests.servers import wait_until

CHANNEL = "conv:{x}:signal"


def test_subscriptions_move_to_another_node_when_theirs_dies_for_good(tmp_path):
    with cluster(tmp_path, 1000) as nodes:
        clients, received = connect(nodes.url, timeout=1, max_connections=4), queue.Queue()
        Signals(clients.commands, clients.signals).watch(CHANNEL, received.put)
        wakeups = Wakeups(clients.signals)
        wakeups.wait(0.01)
        subscribed = [node for node in nodes.nodes if node.redis.client_list("pubsub")]
        assert subscribed

        killed = subscribed[0]
        killed.kill()

        def signal_arrives() -> bool:
            clients.commands.publish(CHANNEL, b"1")
            return received.get(timeout=0.5) == b"1"

        def request_arrives() -> bool:
            try:
                ask_supervisors(clients.commands, "log", "a", tail=1, reply="r")
                return bool(wakeups.wait(0.5))
            except Exception:
                wakeups.close()
                raise

        wait_until(signal_arrives, "a signal")
        wait_until(request_arrives, "a request")
