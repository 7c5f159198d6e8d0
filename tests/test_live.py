"""Following under load and under faults: every event once and in order, whichever process dies, stalls or lags."""

import asyncio
import json
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from uuid import uuid4

import httpx
import psutil
import pytest
from redis import Redis
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus, WebSocketException

from tests.backends import cluster_of_six
from tests.chance import often
from tests.conftest import event
from tests.servers import agent_server, store_server, wait_until
from tests.sockets import events_of, socket

pytestmark = pytest.mark.faults("hundreds of followers, stalls and kills on servers of its own")


@pytest.fixture
def backend(tmp_path):
    """A folder, the URL of a real Redis, and its process."""
    with store_server(tmp_path) as (url, process):
        yield tmp_path, url, process


@pytest.fixture
def server(backend):
    folder, url, _ = backend
    with agent_server(folder / "log", REDIS_URL=url) as (client, master):
        yield client, master


def workers(master):
    return [child for child in psutil.Process(master.pid).children() if "gunicorn" in " ".join(child.cmdline())]


def append(client, conversation, *events):
    """Append as an agent does, with retries until the batch is acknowledged. Each try may reach another worker."""
    url = f"{client.base_url}/api/v1/webhooks/events/{conversation}"
    while True:
        with suppress(httpx.HTTPError):
            response = httpx.post(url, json=list(events), timeout=10)
            if response.status_code == 200:
                return
            assert response.status_code == 503
        time.sleep(0.1)


def log_of(client, conversation):
    """All (seq, id) of a conversation, page after page."""
    found, last = [], 0
    while True:
        url = f"/api/conversations/{conversation}/events/search"
        response = client.get(url, params={"after_seq": last})
        items = response.json()["items"]
        if not items:
            return found
        found += [(last + number, item["id"]) for number, item in enumerate(items, 1)]
        last = int(response.headers["X-Last-Seq"])


# many sockets


@asynccontextmanager
async def following(url):
    """A socket that got its first frame; a server whose store is too busy refuses the handshake, and the client
    retries."""
    while True:
        try:
            connection = await connect(url, max_size=None, compression=None, open_timeout=60, ping_interval=None)
            break
        except InvalidStatus as refusal:
            if refusal.response.status_code != 503:
                raise
            await asyncio.sleep(0.1)
    async with connection:
        await asyncio.wait_for(connection.recv(), 60)
        yield connection


async def _receive(address, conversation, count, opened):
    """The ids of the first events that a socket receives."""
    async with following(f"{address}/sockets/events/{conversation}") as connection:
        opened.release()
        return [json.loads(await asyncio.wait_for(connection.recv(), 60))["id"] for _ in range(count)]


def test_hundreds_of_sockets_receive_every_event_once_and_in_order(server):
    client, _ = server
    address = str(client.base_url).replace("http", "ws")
    conversations = [str(uuid4()) for _ in range(5)]
    for conversation in conversations:
        client.post("/api/conversations", json={"conversation_id": conversation})

    def append_all():
        """2,000 events, every conversation's through several connections, so through both workers."""
        with ThreadPoolExecutor(8) as pool:
            for _ in range(80):
                for conversation in conversations:
                    pool.submit(append, client, conversation, *(event() for _ in range(5)))

    async def receive_all():
        opened = asyncio.Semaphore(0)
        async with asyncio.TaskGroup() as group:
            received = [
                group.create_task(_receive(address, conversation, 400, opened))
                for _ in range(often(30, 100))
                for conversation in conversations
            ]
            for _ in received:
                await opened.acquire()
            await asyncio.to_thread(append_all)
        return [task.result() for task in received]

    received = asyncio.run(receive_all())

    logs = [[identity for _, identity in log_of(client, conversation)] for conversation in conversations]
    assert [len(log) for log in logs] == [400] * 5
    for number, ids in enumerate(received):
        assert ids == logs[number % 5]


def test_a_client_that_connects_while_events_are_appended_at_full_speed_misses_and_repeats_none(server, conversation):
    client, _ = server
    address = str(client.base_url).replace("http", "ws")
    append(client, conversation, *(event() for _ in range(50)))

    def append_all():
        with ThreadPoolExecutor(4) as pool:
            for _ in range(290):
                pool.submit(append, client, conversation, *(event() for _ in range(5)))

    async def receive(delay):
        await asyncio.sleep(delay)
        url = f"{address}/sockets/events/{conversation}?resend_mode=all"
        async with following(url) as connection:
            return [json.loads(await asyncio.wait_for(connection.recv(), 60))["id"] for _ in range(1500)]

    async def race():
        appended = asyncio.create_task(asyncio.to_thread(append_all))
        received = await asyncio.gather(*(receive(number * 0.03) for number in range(50)))
        await appended
        return received

    received = asyncio.run(race())

    log = [identity for _, identity in log_of(client, conversation)]
    assert len(log) == 1500
    assert all(ids == log for ids in received)


# faults


class LiveReader(threading.Thread):
    """A client that reconnects after its last received event until the test ends it."""

    def __init__(self, client, conversation):
        super().__init__(daemon=True)
        self.base_url = client.base_url
        self.conversation = conversation
        self.received = []
        self.breaks = 0
        self.wanted = True

    def run(self):
        with httpx.Client(base_url=self.base_url) as self.client:
            while self.wanted:
                self.follow(self.received[-1][0] if self.received else 0)
                time.sleep(0.1)

    def follow(self, last):
        """Receive over one connection what comes after the last event, until the connection ends."""
        with suppress(WebSocketException, httpx.HTTPError, OSError):
            self.read(last)
        self.breaks += 1


class SocketReader(LiveReader):
    def read(self, last):
        with socket(self.client, self.conversation, after_seq=last) as listener:
            while True:
                frame = json.loads(listener.connection.recv())
                if frame["seq"] is not None:
                    self.received.append((frame["seq"], frame["event"]["id"]))


class StreamReader(LiveReader):
    def read(self, last):
        with events_of(self.client, self.conversation, headers={"Last-Event-ID": str(last)}) as stream:
            self.received += ((seq, one["id"]) for seq, one in stream)


@contextmanager
def followed(client, conversation):
    """Six clients follow while events are appended; all of them must have received the log when the block has ended."""
    client.post("/api/conversations", json={"conversation_id": conversation})
    readers = [kind(client, conversation) for kind in (SocketReader, StreamReader) for _ in range(3)]
    for reader in readers:
        reader.start()
    stop = threading.Event()

    def append_on():
        while not stop.is_set():
            append(client, conversation, event())

    appenders = [threading.Thread(target=append_on) for _ in range(2)]
    for appender in appenders:
        appender.start()
    wait_until(lambda: all(reader.received for reader in readers), "clients that follow")
    try:
        yield readers
        time.sleep(0.5)
    finally:
        stop.set()
        for appender in appenders:
            appender.join()
    wait_until(lambda: client.get("/ready").status_code == 200, "the server")
    log = log_of(client, conversation)
    for reader in readers:
        wait_until(lambda reader=reader: len(reader.received) >= len(log), "a client that follows")
        reader.wanted = False
        assert reader.received == log


def test_followers_receive_the_log_after_a_worker_is_killed(server, conversation):
    client, master = server
    with followed(client, conversation) as readers:
        for worker in workers(master):
            worker.kill()
            time.sleep(1)

        wait_until(lambda: all(reader.breaks for reader in readers), "the end of every connection")


def test_followers_receive_the_log_after_redis_stalls_for_six_seconds(backend, server, conversation):
    client, _ = server
    _, _, redis = backend
    with followed(client, conversation) as readers:
        redis.send_signal(signal.SIGSTOP)
        for _ in range(3):
            began = time.monotonic()
            refused = httpx.post(f"{client.base_url}/api/v1/webhooks/events/{conversation}", json=[event()], timeout=20)
            assert refused.status_code == 503
            time.sleep(max(0.0, began + 2 - time.monotonic()))
        redis.send_signal(signal.SIGCONT)

    assert not any(reader.breaks for reader in readers if isinstance(reader, SocketReader))


def test_followers_receive_the_log_after_the_connections_of_subscribers_are_cut(backend, server, conversation):
    client, _ = server
    _, url, _ = backend
    with Redis.from_url(url) as redis, followed(client, conversation) as readers:
        for _ in range(5):
            redis.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
            time.sleep(0.3)

    assert not any(reader.breaks for reader in readers)


def test_lost_signals_delay_events_and_lose_none(backend, conversation):
    # Given a Redis that refuses subscriptions
    folder, url, _ = backend
    with Redis.from_url(url) as redis:
        redis.acl_setuser("default", enabled=True, nopass=True, keys="*", commands=["+@all", "-subscribe"])
    with agent_server(folder / "deaf", REDIS_URL=url) as (client, _):
        client.post("/api/conversations", json={"conversation_id": conversation})
        with socket(client, conversation, after_seq=0) as listener:
            listener.receive()

            append(client, conversation, event())

            assert listener.receive()["seq"] == 1


def test_followers_receive_events_from_a_cluster(tmp_path, conversation):
    with cluster_of_six(tmp_path) as (url, _), agent_server(tmp_path / "log", REDIS_URL=url) as (client, _):
        client.post("/api/conversations", json={"conversation_id": conversation})
        others = [str(uuid4()) for _ in range(5)]
        for other in others:
            client.post("/api/conversations", json={"conversation_id": other})
        with socket(client, conversation) as listener, socket(client, others[0]) as beside:
            listener.receive(), beside.receive()

            for number in range(20):
                append(client, conversation, event(number=number))
                append(client, others[number % 5], event(number=number))

            assert [listener.receive()["number"] for _ in range(20)] == list(range(20))
            assert [beside.receive()["number"] for _ in range(4)] == [0, 5, 10, 15]


# clients that lag, and clients that connect and disconnect


def big_event(number):
    return event(number=number, text="x" * 500_000)


def test_a_client_that_stops_reading_delays_no_other_and_takes_little_memory(backend, conversation):
    folder, url, _ = backend
    settings = {"REDIS_URL": url, "FOLLOWER_BYTES": str(4 * 1024 * 1024), "WEB_CONCURRENCY": "1"}
    with agent_server(folder / "lag", **settings) as (client, master):
        client.post("/api/conversations", json={"conversation_id": conversation})
        [worker] = workers(master)
        with socket(client, conversation, most=4) as slow, socket(client, conversation) as quick:
            slow.receive(), quick.receive()
            append(client, conversation, event(number=-1))
            slow.receive(), quick.receive()
            before = worker.memory_info().rss
            # When 60 MB are appended, far more than the kernel's buffers take
            for number in range(120):
                append(client, conversation, big_event(number))
                assert quick.receive()["number"] == number

            # Then the worker has kept no more than its settings allow, with room for its current work
            assert worker.memory_info().rss - before < 40 * 1024 * 1024
            # And the slow client is disconnected, and finds all events in the log
            assert slow.closed_with() in (1013, 1006)
        with socket(client, conversation, after_seq=120) as again:
            again.receive()
            assert again.receive()["event"]["number"] == 119


def test_a_client_that_reads_nothing_is_dropped(backend, conversation):
    folder, url, _ = backend
    settings = {"REDIS_URL": url, "PING_SECONDS": "0.5", "IDLE_SECONDS": "1", "WEB_CONCURRENCY": "1"}
    with agent_server(folder / "dead", **settings) as (client, master):
        client.post("/api/conversations", json={"conversation_id": conversation})
        [worker] = workers(master)
        before = len(worker.net_connections())
        with (
            socket(client, conversation, most=4) as dead,
            client.stream("GET", f"/api/conversations/{conversation}/events/stream") as stream,
        ):
            assert stream.status_code == 200
            dead.connection.socket.settimeout(None)
            for number in range(60):
                append(client, conversation, big_event(number))

            wait_until(lambda: len(worker.net_connections()) <= before, "the end of dead connections")


def test_clients_that_connect_and_disconnect_leave_no_resources(backend, conversation):
    folder, url, _ = backend
    with agent_server(folder / "cycles", REDIS_URL=url, WEB_CONCURRENCY="1") as (client, master):
        append(client, conversation, *(event() for _ in range(100)))
        [worker] = workers(master)

        def cycle(times):
            for number in range(times):
                with socket(client, conversation, after_seq=95) as listener:
                    assert [listener.receive()["seq"] for _ in range(6)] == [None, 96, 97, 98, 99, 100]
                with client.stream("GET", f"/api/conversations/{conversation}/events/stream") as stream:
                    next(stream.iter_lines())
                with socket(client, str(uuid4())) as nowhere:
                    nowhere.closed_with()
                if number % 10 == 0:
                    append(client, conversation, event())

        def settled():
            """The number of open files once it no longer falls."""
            files = worker.num_fds()
            time.sleep(0.5)
            return files if worker.num_fds() == files else 0

        cycle(30)
        wait_until(settled, "the end of the connections")
        files, memory = worker.num_fds(), worker.memory_info().rss

        cycle(100)

        wait_until(lambda: worker.num_fds() <= files + 2, "the end of the connections")
        assert worker.memory_info().rss - memory < 3 * 1024 * 1024
