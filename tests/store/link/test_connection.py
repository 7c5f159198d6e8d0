"""Connections to Redis on real servers: topologies, bounds, passwords, idle connections, counted round trips."""

import contextlib
import queue
import socket
import subprocess
import sys
import threading
from urllib.parse import quote

import pytest
from redis import Redis
from redis.connection import ConnectionPool

from app import create_app
from settings.config import Config
from store.errors import UNAVAILABLE, FellBehind
from store.link.connection import Parser, connect
from store.link.signals import Signals, Wakeups, ask_supervisors
from telemetry.meter import Meter
from tests.backends import cluster
from tests.conftest import SECRET_KEY, as_events, event, message
from tests.round_trips import asks_by_request_alone, counted
from tests.servers import PROJECT, free_port, running, store_server, valkey_program, wait_until
from wiring import open_store_of

pytestmark = pytest.mark.cluster("starts a cluster, and a primary with a sentinel")

PASSWORD, SENTINEL_PASSWORD = "p@ss:w/rd %41,#", "s&nt=nel @%2F"


@contextlib.contextmanager
def cluster_at(folder, port: int):
    """A cluster of one node on a port that was chosen before; a client of that node."""
    options = ["--port", str(port), "--cluster-port", str(free_port()), "--dir", str(folder), "--save", ""]
    with running([valkey_program(), *options, "--cluster-enabled", "yes"], stdout=subprocess.DEVNULL):
        node = Redis(port=port, retry=None)
        wait_until(node.ping, "the node")
        if b"cluster_slots_assigned:16384" not in node.execute_command("CLUSTER", "INFO"):
            node.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        wait_until(lambda: b"cluster_state:ok" in node.execute_command("CLUSTER", "INFO"), "the cluster")
        yield node


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """The node of a cluster of one."""
    with cluster_at(tmp_path_factory.mktemp("cluster"), free_port()) as node:
        yield node


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """A primary and the port of its sentinel; each has a password of its own."""
    folder, port, sentinel_port = tmp_path_factory.mktemp("sentinel"), free_port(), free_port()
    settings = folder / "sentinel.conf"
    settings.write_text(
        f'port {sentinel_port}\ndir {folder}\nrequirepass "{SENTINEL_PASSWORD}"\n'
        f'sentinel monitor main 127.0.0.1 {port} 1\nsentinel auth-pass main "{PASSWORD}"\n'
    )
    primary = [valkey_program(), "--port", str(port), "--save", "", "--requirepass", PASSWORD]
    silent = {"stdout": subprocess.DEVNULL}
    with running(primary, **silent), running([valkey_program(), str(settings), "--sentinel"], **silent):
        admin = Redis(port=port, password=PASSWORD, retry=None)
        wait_until(admin.ping, "the primary")
        wait_until(Redis(port=sentinel_port, password=SENTINEL_PASSWORD, retry=None).ping, "the sentinel")
        yield admin, sentinel_port


def watched_url(sentinel_port: int, user: str) -> str:
    own = f"sentinel_password={quote(SENTINEL_PASSWORD, safe='')}"
    credentials = f"{quote(user, safe='')}:{quote(PASSWORD, safe='')}"
    return f"redis+sentinel://{credentials}@127.0.0.1:{sentinel_port}/main/0?{own}"


@pytest.mark.cluster("starts a cluster twice")
def test_a_server_starts_without_its_cluster_and_serves_when_the_cluster_is_up(tmp_path, conversation):
    port = free_port()
    client = create_app(Config.of(redis_url=f"redis+cluster://127.0.0.1:{port}")).test_client()
    append = f"/api/v1/webhooks/events/{conversation}"

    refused = client.post(append, json=[message("early")])
    assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
    for _ in range(2):  # the cluster starts, and restarts
        with cluster_at(tmp_path, port):
            wait_until(lambda: client.post(append, json=[message("once")]).status_code == 200, "the cluster")
            assert client.get("/ready").status_code == 200
        for path in ("/ready", f"/api/conversations/{conversation}/events/count"):
            assert client.get(path).status_code == 503


def test_a_stalled_cluster_delays_each_of_many_requests_for_a_bounded_time():
    with socket.create_server(("127.0.0.1", 0)) as listener:  # the cluster accepts connections and sends no replies
        redis = connect(f"redis+cluster://127.0.0.1:{listener.getsockname()[1]}", timeout=0.1, max_connections=4)
        refused = []

        def ask() -> None:
            try:
                redis.commands.get("key")
            except UNAVAILABLE as error:
                refused.append(error)

        threads = [threading.Thread(target=ask) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert len(refused) == 20


def test_a_cluster_client_opens_no_more_connections_than_it_may(node):
    port, others = node.get_connection_kwargs()["port"], len(node.client_list())
    commands = connect(f"redis+cluster://127.0.0.1:{port}", timeout=5, max_connections=3).commands
    commands.ping()

    threads = [threading.Thread(target=commands.blpop, args=([f"{{q}}{n}"], 0.1)) for n in range(9)]
    for thread in threads:
        thread.start()
    most = 0
    while any(thread.is_alive() for thread in threads):
        most = max(most, len(node.client_list()))
    assert most <= others + 3
    assert commands.ping()


def test_a_password_of_a_cluster_is_percent_decoded(node):
    port = node.get_connection_kwargs()["port"]
    node.acl_setuser("named", enabled=True, passwords=["+" + PASSWORD], keys=["*"], categories=["+@all"])

    url = f"redis+cluster://named:{quote(PASSWORD, safe='')}@127.0.0.1:{port}"
    assert connect(url, timeout=5, max_connections=2).commands.ping()


def test_passwords_and_users_in_a_url_of_sentinels_are_percent_decoded(watched):
    admin, sentinel_port = watched
    for user in ("default", "us@r:%"):
        admin.acl_setuser(user, enabled=True, passwords=["+" + PASSWORD], keys=["*"], categories=["+@all"])
        commands = connect(watched_url(sentinel_port, user), timeout=5, max_connections=2).commands
        assert commands.ping()
        assert commands.acl_whoami() == user


def test_who_finds_all_connections_to_the_primary_of_sentinels_busy_waits_for_one(watched):
    admin, sentinel_port = watched
    commands = connect(watched_url(sentinel_port, "default"), timeout=60, max_connections=1).commands
    wait_until(commands.ping, "the sentinel")

    busy = threading.Thread(target=commands.blpop, args=(["queue"], 50))
    busy.start()
    wait_until(lambda: admin.info("clients")["blocked_clients"] == 1, "a busy connection")
    threading.Timer(0.1, admin.rpush, ("queue", "end")).start()
    assert commands.ping()
    busy.join()


@pytest.mark.parametrize(
    ("hosts", "nodes"),
    [
        ("one,two:7000", [("one", 26379), ("two", 7000)]),
        ("[::1]:7000,[fe80::2]", [("::1", 7000), ("fe80::2", 26379)]),
    ],
)
def test_every_sentinel_of_a_url_is_known(hosts, nodes):
    pool = connect(f"redis+sentinel://{hosts}/main", timeout=1, max_connections=1).commands.connection_pool

    known = [sentinel.connection_pool.connection_kwargs for sentinel in pool.sentinel_manager.sentinels]
    assert [(one["host"], one["port"]) for one in known] == nodes


CHANNEL = "conv:{x}:signal"


@pytest.mark.cluster("starts a cluster of six nodes, and kills one")
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


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    with store_server(tmp_path_factory.mktemp("redis")) as (url, _):
        yield url


@pytest.fixture
def client(url):
    with Redis(connection_pool=ConnectionPool.from_url(url, parser_class=Parser, max_connections=1)) as client:
        yield client


def test_the_store_reads_replies_by_it(url):
    connection = connect(url, timeout=5, max_connections=1).commands.connection_pool.get_connection()

    assert type(connection._parser) is Parser


def test_a_connection_with_a_reply_that_nobody_read_is_replaced(client):
    connection = client.connection_pool.get_connection()
    connection.send_command("ECHO", "of another request")
    assert connection.can_read(timeout=5)
    client.connection_pool.release(connection)

    assert client.echo("mine") == b"mine"


def test_a_connection_that_the_server_has_closed_is_replaced(client, url):
    before = client.client_id()
    with Redis.from_url(url) as other:
        assert other.client_kill_filter(_id=before) == 1

    assert client.client_id() != before


def test_a_connection_with_a_reply_that_was_received_and_not_read_can_be_read(client):
    connection = client.connection_pool.get_connection()
    connection.send_packed_command(connection.pack_commands([("ECHO", "one"), ("ECHO", "two")]))
    assert connection.read_response() == b"one"

    assert connection.can_read()
    assert connection.read_response() == b"two"
    assert not connection.can_read()
    client.connection_pool.release(connection)


#: another greenlet is ready to run: whoever waits lets it run
UNDER_GEVENT = """
from gevent import monkey, spawn
monkey.patch_all()
import sys
from redis import Redis
from redis.connection import ConnectionPool
from store.link.connection import Parser

ran = []
for parser in ({"parser_class": Parser}, {}):
    client = Redis(connection_pool=ConnectionPool.from_url(sys.argv[1], **parser))
    client.ping()
    connection = client.connection_pool.get_connection()
    other = spawn(ran.append, len(parser))
    assert connection.can_read() is False
    print(ran)
    other.join()
    ran.clear()
"""


@pytest.mark.process("starts a process of its own, in which gevent patches the standard library")
def test_under_gevent_the_check_does_not_wait_for_the_loop_as_that_of_redis_py_does(url):
    found = subprocess.run(
        [sys.executable, "-c", UNDER_GEVENT, url], cwd=PROJECT, capture_output=True, text=True, check=True
    )

    assert found.stdout.splitlines() == ["[]", "[0]"]


def opened(url, **settings):
    """A store of its own, as another process has it, and its meter."""
    meter = Meter()
    return open_store_of(Config.of(redis_url=url, redis_timeout=10, secret_key=SECRET_KEY, **settings), meter), meter


def process(meter):
    return meter.read()[1][0]


OPERATIONS = {
    "a script": lambda store, conversation: store.conversations.get(conversation),
    "a pipeline": lambda store, _: store.notifications.outboxes.states(),
    "a command": lambda store, conversation: store.conversations._redis.exists(conversation),
    "several": lambda store, conversation: store.events.append(conversation, as_events([event()])),
}


def test_an_operation_counts_as_many_round_trips_as_it_sends(redis_url, conversation):
    store, meter = opened(redis_url)
    asks_by_request_alone(store)
    store.conversations.create(conversation)
    for name, operation in OPERATIONS.items():
        operation(store, conversation)  # loads scripts and connects
        before = sum(process(meter).trips.counts)

        with counted() as sent:
            operation(store, conversation)

        assert sum(process(meter).trips.counts) - before == sent.number > 0, name
    assert process(meter).trips.sum > 0
    assert process(meter).failed_trips == 0


def test_a_request_counts_its_own_round_trips(redis_url, conversation):
    store, meter = opened(redis_url)
    meter.add_routes([("/route", "GET")])
    store.notifications.outboxes.states()

    meter.begin_request()
    store.notifications.outboxes.states()
    store.notifications.outboxes.states()
    meter.end_request("/route", "GET", 200)

    [route] = meter.read()[0]
    assert (route.route, route.trips, route.by_class["2xx"]) == ("/route", 2, 1)


@pytest.mark.parametrize("scheme", ["redis", "redis+cluster", "redis+sentinel"])
def test_a_round_trip_without_a_reply_is_a_failure(scheme):
    store, meter = opened(f"{scheme}://127.0.0.1:{free_port()}" + ("/name" if "sentinel" in scheme else ""))

    with pytest.raises(UNAVAILABLE):
        store.conversations._redis.get("x")
    with pytest.raises(UNAVAILABLE):
        store.notifications.outboxes.states()

    assert process(meter).failed_trips == 2


def test_followers_are_counted_while_they_follow_and_when_they_are_dropped(redis_url, conversation):
    store, meter = opened(redis_url, follower_bytes=65_536)
    store.conversations.create(conversation)
    with (
        store.streams.events.follow(conversation, None) as slow,
        store.streams.events.follow(conversation, None) as quick,
    ):
        assert process(meter).followers == 2
        assert slow.next(0) == quick.next(0) == []
        for _ in range(4):
            store.events.append(conversation, as_events([event(filler="x" * 30_000)]))
            assert quick.next(20.0)

        with pytest.raises(FellBehind):
            slow.next(0)

        assert process(meter).dropped == 1
    assert process(meter).followers == 0


def test_a_start_task_that_ends_is_counted_once_by_its_outcome(redis_url):
    store, meter = opened(redis_url, host_seconds=3600)
    store.sandboxes.beat("h", "supervisor")
    for end in ("READY", "ERROR", "ERROR"):
        start = store.start_tasks.create({}, echo={})
        while (claimed := store.start_tasks.claim())[0].id != start.id:
            pass  # one of another test
        assert store.start_tasks.finish(start.id, claimed[1], end)
        assert not store.start_tasks.finish(start.id, "another", end)

    assert process(meter).starts == {"READY": 1, "ERROR": 2}
