"""The subscriber of a process receives signals again after its Redis was away; watchers learn of possible gaps."""

import queue

import pytest

from store.link import signals
from store.link.connection import connect
from store.link.signals import MAYBE_MISSED, Signals, Wakeups, Woken, ask_supervisors
from tests.servers import free_port, store_server, wait_until
from tests.store.link.test_connection import cluster_at

CHANNEL = "a channel"


def is_received(received: queue.Queue, signal: bytes) -> bool:
    while not received.empty():
        if received.get() == signal:
            return True
    return False


def sent_and_received(redis, received: queue.Queue) -> bool:
    redis.publish(CHANNEL, b"news")
    return received.get(timeout=0.5) == b"news"


def test_a_watcher_receives_published_signals_after_a_first_signal_of_possible_gaps(redis_url):
    clients, received = connect(redis_url, timeout=5, max_connections=4), queue.Queue()
    subscriber = Signals(clients.commands, clients.signals)

    subscriber.watch(CHANNEL, received.put)
    assert received.get(timeout=20) == MAYBE_MISSED
    wait_until(lambda: sent_and_received(clients.commands, received), "a signal")


def test_every_signal_after_the_return_of_watch_is_received(redis_url):
    clients = connect(redis_url, timeout=5, max_connections=4)
    subscriber = Signals(clients.commands, clients.signals)

    for number in range(30):
        received = queue.Queue()
        subscriber.watch(f"{CHANNEL} {number}", received.put)
        clients.commands.publish(f"{CHANNEL} {number}", b"once")

        while (signal := received.get(timeout=20)) == MAYBE_MISSED:
            pass
        assert signal == b"once"


def test_a_watcher_is_told_of_possible_gaps_again_and_again(redis_url, monkeypatch):
    monkeypatch.setattr(signals, "POLL_SECONDS", 0.01)
    clients, received = connect(redis_url, timeout=5, max_connections=4), queue.Queue()

    Signals(clients.commands, clients.signals).watch(CHANNEL, received.put)

    assert [received.get(timeout=20) for _ in range(4)] == [MAYBE_MISSED] * 4


@pytest.mark.process("starts servers, ends them, and waits for a connection that is tried again")
@pytest.mark.parametrize("topology", ["server", "cluster"])
def test_a_watcher_receives_signals_again_after_redis_was_away(tmp_path, topology):
    port = free_port()
    if topology == "server":
        url, begin = f"unix://{tmp_path}/redis.sock", lambda: store_server(tmp_path)
    else:
        url, begin = f"redis+cluster://127.0.0.1:{port}", lambda: cluster_at(tmp_path, port)
    clients, received = connect(url, timeout=1, max_connections=4), queue.Queue()
    subscriber = Signals(clients.commands, clients.signals)

    subscriber.watch(CHANNEL, received.put)  # before the first start of Redis
    for _ in range(2):
        with begin():
            wait_until(lambda: sent_and_received(clients.commands, received), "a signal")
        wait_until(lambda: is_received(received, MAYBE_MISSED), "the signal of lost signals")


def test_a_supervisor_is_told_which_requests_and_sandboxes_its_signals_were_about(redis_url):
    clients = connect(redis_url, timeout=5, max_connections=4)
    wakeups = Wakeups(clients.signals)
    nothing = Woken([], set(), False)
    assert wakeups.wait(0.01) == nothing
    for channel, data in (("{starts}:signal", "a start"), ("{sandboxes}:signal", "an id")):
        clients.commands.publish(channel, data)
    ask_supervisors(clients.commands, "log", "a", tail=1, reply="r")
    clients.commands.publish("{sandboxes}:signal", "")

    woken = [wakeups.wait(30)]
    while not woken[-1].others:  # the last signal; one that does not come fails below
        woken.append(wakeups.wait(30))
        assert woken[-1] != nothing
    assert [request for each in woken for request in each.requests] == [("log", "a", {"tail": 1, "reply": "r"})]
    assert set().union(*(each.sandboxes for each in woken)) == {"an id"}
    wakeups.close()
    assert wakeups.wait(0.01) == nothing
