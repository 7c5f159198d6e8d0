"""REDIS_URL on real servers: clusters that start later, bounds, and passwords of any characters."""

import contextlib
import socket
import subprocess
import threading
from urllib.parse import quote

import pytest
from redis import Redis

from app import create_app
from config import Config
from store.errors import UNAVAILABLE
from store.link.connection import connect
from tests.conftest import message
from tests.servers import free_port, redis_program, running, wait_until

PASSWORD, SENTINEL_PASSWORD = "p@ss:w/rd %41,#", "s&nt=nel @%2F"


@contextlib.contextmanager
def cluster_at(folder, port: int, *words: str):
    """A cluster of one node on a port that was chosen before; a client of that node."""
    options = ["--port", str(port), "--cluster-port", str(free_port()), "--dir", str(folder), "--save", ""]
    with running([redis_program(), *options, "--cluster-enabled", "yes", *words], stdout=subprocess.DEVNULL):
        node = Redis(port=port, password=words[-1] if words else None, retry=None)
        wait_until(node.ping, "the node")
        if b"cluster_slots_assigned:16384" not in node.execute_command("CLUSTER", "INFO"):
            node.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        wait_until(lambda: b"cluster_state:ok" in node.execute_command("CLUSTER", "INFO"), "the cluster")
        yield node


def test_a_server_starts_without_its_cluster_and_serves_when_the_cluster_is_up(tmp_path, conversation):
    port = free_port()
    client = create_app(Config(redis_url=f"redis+cluster://127.0.0.1:{port}")).test_client()
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
        redis = connect(f"redis+cluster://127.0.0.1:{listener.getsockname()[1]}", timeout=0.5, max_connections=4)
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
            thread.join(5)
        assert len(refused) == 20


def test_a_cluster_client_opens_no_more_connections_than_it_may(tmp_path):
    port = free_port()
    with cluster_at(tmp_path, port) as node:
        commands = connect(f"redis+cluster://127.0.0.1:{port}", timeout=5, max_connections=3).commands
        commands.ping()

        threads = [threading.Thread(target=commands.blpop, args=([f"{{q}}{n}"], 0.2)) for n in range(9)]
        for thread in threads:
            thread.start()
        most = 0
        while any(thread.is_alive() for thread in threads):
            most = max(most, len(node.client_list()))
        assert most <= 1 + 3  # the node's own client has one connection
        assert commands.ping()


def test_a_password_of_a_cluster_is_percent_decoded(tmp_path):
    port = free_port()
    with cluster_at(tmp_path, port, "--requirepass", PASSWORD):
        url = f"redis+cluster://default:{quote(PASSWORD, safe='')}@127.0.0.1:{port}"
        assert connect(url, timeout=5, max_connections=2).commands.ping()


@pytest.mark.parametrize("user", ["default", "us@r:%"])
def test_passwords_and_users_in_a_url_of_sentinels_are_percent_decoded(tmp_path, user):
    port, sentinel_port = free_port(), free_port()
    silent = {"stdout": subprocess.DEVNULL}
    settings = tmp_path / "sentinel.conf"
    settings.write_text(
        f'port {sentinel_port}\ndir {tmp_path}\nrequirepass "{SENTINEL_PASSWORD}"\n'
        f'sentinel monitor main 127.0.0.1 {port} 1\nsentinel auth-pass main "{PASSWORD}"\n'
    )
    primary = [redis_program(), "--port", str(port), "--save", "", "--requirepass", PASSWORD]
    with running(primary, **silent), running([redis_program(), str(settings), "--sentinel"], **silent):
        admin = Redis(port=port, password=PASSWORD, retry=None)
        wait_until(admin.ping, "the primary")
        wait_until(Redis(port=sentinel_port, password=SENTINEL_PASSWORD, retry=None).ping, "the sentinel")
        admin.acl_setuser(user, enabled=True, passwords=["+" + PASSWORD], keys=["*"], categories=["+@all"])

        credentials = f"{quote(user, safe='')}:{quote(PASSWORD, safe='')}"
        own = f"sentinel_password={quote(SENTINEL_PASSWORD, safe='')}"
        url = f"redis+sentinel://{credentials}@127.0.0.1:{sentinel_port}/main/0?{own}"
        commands = connect(url, timeout=5, max_connections=2).commands
        assert commands.ping()
        assert commands.acl_whoami() == user


def test_who_finds_all_connections_to_the_primary_of_sentinels_busy_waits_for_one(tmp_path):
    port, sentinel_port = free_port(), free_port()
    settings = tmp_path / "sentinel.conf"
    settings.write_text(f"port {sentinel_port}\ndir {tmp_path}\nsentinel monitor main 127.0.0.1 {port} 1\n")
    primary, sentinel = [redis_program(), "--port", str(port), "--save", ""], [redis_program(), str(settings)]
    silent = {"stdout": subprocess.DEVNULL}
    with running(primary, **silent), running([*sentinel, "--sentinel"], **silent):
        admin = Redis(port=port, retry=None)
        wait_until(admin.ping, "the primary")
        commands = connect(f"redis+sentinel://127.0.0.1:{sentinel_port}/main", timeout=60, max_connections=1).commands
        wait_until(commands.ping, "the sentinel")

        busy = threading.Thread(target=commands.blpop, args=(["queue"], 50))
        busy.start()
        wait_until(lambda: admin.info("clients")["blocked_clients"] == 1, "a busy connection")
        threading.Timer(0.5, admin.rpush, ("queue", "end")).start()
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
