"""Clients that send or take nothing, and bodies that cannot be read, over raw connections to a real server."""

import json
import re
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack, suppress

import httpx
import pytest

from tests.conftest import message
from tests.servers import PROJECT, TIMEOUT, agent_server, fakeredis_server, wait_until

pytestmark = pytest.mark.process("starts a server of its own")

PATH = "/api/v1/webhooks/events/0e7bd7c3-9f6c-4a4e-8e8f-0d4c7d3b7d11"


@pytest.fixture(scope="module")
def running_server(tmp_path_factory):
    """The folder of a server, and a client for it."""
    folder = tmp_path_factory.mktemp("worker")
    settings = {
        "MAX_FOLLOWERS": "10",
        "WEB_CONCURRENCY": "1",
        "BODY_SECONDS": "3",
        "IDLE_SECONDS": "2",
    }
    with (
        fakeredis_server(folder) as (url, _),
        agent_server(folder / "log", REDIS_URL=url, **settings) as (client, _),
    ):
        yield folder, client


@pytest.fixture
def server(running_server):
    return running_server[1]


def connected(server: httpx.Client) -> socket.socket:
    return socket.create_connection((server.base_url.host, server.base_url.port), TIMEOUT)


def head(*lines: str, path: str = PATH, method: str = "POST") -> bytes:
    common = ("Host: localhost", "Content-Type: application/json")
    return "\r\n".join([f"{method} {path} HTTP/1.1", *common, *lines, "", ""]).encode()


def received(connection: socket.socket) -> bytes:
    """Everything that the server sends until it closes the connection."""
    parts = []
    while part := connection.recv(65536):
        parts.append(part)
    return b"".join(parts)


def is_open(connection: socket.socket) -> bool:
    """Whether the server has neither sent anything nor closed the connection."""
    connection.setblocking(False)
    try:
        connection.recv(1)
    except BlockingIOError:
        return True
    return False


def one_response(raw: bytes) -> tuple[int, str, dict]:
    """Status, headers and JSON body of a response; fails the test if there is a second one."""
    headers, _, body = raw.partition(b"\r\n\r\n")
    assert b"HTTP/1.1" not in body
    return int(headers.split()[1]), headers.decode(), json.loads(body)


@pytest.mark.process("starts a server of its own")
def test_the_first_head_may_come_later_than_the_next_one(running_server):
    # Given a server that closes a connection which is idle for a second
    folder, _ = running_server
    settings = {"WEB_CONCURRENCY": "1", "GUNICORN_CMD_ARGS": "--keep-alive 1"}
    with (
        fakeredis_server(folder) as (url, _),
        agent_server(folder / "heads", REDIS_URL=url, **settings) as (client, _),
        connected(client) as late,
        connected(client) as idle,
    ):
        idle.sendall(head(path="/alive", method="GET"))

        # When another client sends its first head after the server has closed the idle connection
        received(idle)
        late.sendall(head("Connection: close", path="/alive", method="GET"))

        # Then it gets its response
        assert received(late).startswith(b"HTTP/1.1 200 ")


def test_connections_without_a_head_keep_nobody_out(server):
    # Given more connections without a whole head than the worker takes
    with ExitStack() as stack:
        waiting = [stack.enter_context(connected(server)) for _ in range(1010)]
        for connection in waiting:
            connection.sendall(b"GET /alive HTT")

        # Then another client is served, while the one that came last may still send its head
        # long before the time of the others is over
        assert httpx.get(f"{server.base_url}/alive", timeout=10).status_code == 200
        waiting[-1].sendall(b"P/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert received(waiting[-1]).startswith(b"HTTP/1.1 200 ")

        # And the one that came first was closed for them, and no more than was needed
        assert received(waiting[0]) == b""
        assert 850 < sum(map(is_open, waiting[:-1])) < 950


@pytest.mark.parametrize(
    ("first", "each"),
    [
        (b"", b"GET /alive HTTP/1.1\r\nHost: localhost\r\n\r\n" * 200),
        (b"GET /alive HTTP/1.1\r\n" + b"".join(b"X-%d: %s\r\n" % (n, b"x" * 8000) for n in range(90)), b"x"),
    ],
    ids=["requests without a wait for responses", "a long head in crumbs"],
)
def test_a_client_that_never_waits_holds_up_no_other(server, first, each):
    def send() -> None:
        with suppress(OSError):
            flood.sendall(first)
            while True:
                flood.sendall(each)

    def receive() -> None:
        with suppress(OSError):
            received(flood)

    with connected(server) as flood:
        flood.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threads = [threading.Thread(target=one) for one in (send, receive)]
        for thread in threads:
            thread.start()
        try:
            # Each of these would wait until the flood ends
            for _ in range(10):
                assert httpx.get(f"{server.base_url}/alive", timeout=TIMEOUT / 9).status_code == 200
        finally:
            with suppress(OSError):
                flood.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join()


@pytest.mark.process("waits for a timeout")
def test_a_body_that_does_not_arrive_gets_408_and_its_connection_is_closed(server):
    with connected(server) as connection:
        connection.sendall(head("Content-Length: 100"))

        status, headers, body = one_response(received(connection))

    assert status == 408
    assert "connection: close" in headers.lower()
    assert "within 3" in body["detail"]


@pytest.mark.process("starts a server of its own")
def test_a_body_that_drips_gets_408(running_server):
    folder, _ = running_server
    settings = {"WEB_CONCURRENCY": "1", "BODY_SECONDS": "600", "BODY_BYTES_PER_SECOND": "1000000"}
    with (
        fakeredis_server(folder) as (url, _),
        agent_server(folder / "drips", REDIS_URL=url, **settings) as (client, _),
        connected(client) as connection,
    ):
        # When a client sends single bytes, far below the minimum rate
        connection.sendall(head("Content-Length: 300"))
        connection.settimeout(0.1)
        response = b""
        for _ in range(299):
            connection.sendall(b" ")
            with suppress(TimeoutError):
                response = connection.recv(65536)
                break

    # Then the client receives 408 before the body is complete
    assert response.startswith(b"HTTP/1.1 408 ")


@pytest.mark.process("opens a thousand connections, and waits for their timeout")
def test_a_thousand_bodies_that_do_not_arrive_release_their_connections(server):
    # Given as many requests without their bodies as a worker takes connections
    with ExitStack() as stack:
        waiting = [stack.enter_context(connected(server)) for _ in range(1010)]
        for connection in waiting:
            connection.sendall(head("Content-Length: 100"))

        # Then another client is served, and each connection received a response
        wait_until(lambda: httpx.get(f"{server.base_url}/alive", timeout=TIMEOUT).status_code == 200, "the worker")
        assert {one_response(received(connection))[0] for connection in waiting} == {408}


@pytest.mark.process("starts a server of its own")
def test_a_body_at_the_minimum_rate_is_read(running_server):
    folder, _ = running_server
    settings = {"WEB_CONCURRENCY": "1", "BODY_SECONDS": "600", "BODY_BYTES_PER_SECOND": "1"}
    body = json.dumps([message("slowly")]).encode()
    with (
        fakeredis_server(folder) as (url, _),
        agent_server(folder / "slow", REDIS_URL=url, **settings) as (client, _),
        connected(client) as connection,
    ):
        connection.sendall(head(f"Content-Length: {len(body)}", "Connection: close"))
        for byte in body:
            connection.sendall(bytes([byte]))

        assert one_response(received(connection))[0] == 200


def test_a_truncated_body_gets_400(server):
    with connected(server) as connection:
        connection.sendall(head("Content-Length: 100") + b"[]")
        connection.shutdown(socket.SHUT_WR)

        status, headers, body = one_response(received(connection))

    assert (status, "connection: close" in headers.lower()) == (400, True)
    assert body["detail"]


@pytest.mark.process("waits for a timeout")
def test_headers_that_do_not_arrive_end_their_connection(server):
    with connected(server) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\n")

        assert received(connection) == b""


@pytest.mark.parametrize(
    "chunks",
    [
        b"xyz\r\n[]\r\n0\r\n\r\n",
        b"\r\n\r\n",
        b"2\r\n[]XX0\r\n\r\n",
        b"-1\r\n",
        b"2;=\r\n[]\r\n0\r\n\r\n",
        b"0\r\nbad\r\n\r\n",
    ],
)
def test_a_bad_chunk_gets_400_without_a_traceback(running_server, chunks):
    folder, server = running_server
    with connected(server) as connection:
        connection.sendall(head("Transfer-Encoding: chunked") + chunks)

        status, headers, body = one_response(received(connection))

    assert (status, "connection: close" in headers.lower()) == (400, True)
    assert body["detail"].startswith("The body cannot be read: ")
    assert "Traceback" not in (folder / "log").read_text()


@pytest.mark.parametrize(
    "coding", ["gzip, chunked", "gzip\r\nTransfer-Encoding: chunked", "identity, Chunked", "br, chunked"]
)
def test_a_body_in_a_transfer_coding_that_nobody_here_decodes_is_501_and_the_last_of_its_connection(server, coding):
    """Whoever passes it on as `chunked` alone would have another body behind it than the client has sent."""
    with connected(server) as connection:
        connection.sendall(head(f"Transfer-Encoding: {coding}") + b"2\r\n[]\r\n0\r\n\r\n")
        connection.sendall(head("Connection: close", path="/alive", method="GET"))

        assert re.findall(rb"HTTP/1.1 (\d+)", received(connection)) == [b"501"]


@pytest.mark.parametrize("path", ["/nowhere", "/alive", f"{PATH}?"])
def test_an_unread_bad_body_gets_one_response_and_its_connection_is_closed(running_server, path):
    folder, server = running_server
    with connected(server) as connection:
        connection.sendall(head("Transfer-Encoding: chunked", path=path, method="PUT") + b"xyz\r\n\r\n")

        status, _, _ = one_response(received(connection))

    assert status in (404, 405)
    assert "Traceback" not in (folder / "log").read_text()


def test_an_unread_body_does_not_become_the_next_request(server):
    smuggled = b"GET /server_info HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with connected(server) as connection:
        connection.sendall(head(f"Content-Length: {len(smuggled)}", path="/nowhere") + smuggled)
        connection.sendall(head("Connection: close", path="/alive", method="GET"))

        responses = received(connection)

    assert re.findall(rb"HTTP/1.1 (\d+)", responses) == [b"404", b"200"]
    assert b"sdk_version" not in responses


def test_a_body_that_is_too_long_is_refused_also_when_it_is_sent_whole(server):
    with connected(server) as connection:
        connection.sendall(head("Content-Length: 9000000"))
        connection.sendall(b" " * 9_000_000)
        connection.sendall(head("Connection: close", path="/alive", method="GET"))

        assert re.findall(rb"HTTP/1.1 (\d+)", received(connection)) == [b"413", b"200"]


@pytest.mark.process("waits for a timeout")
def test_the_server_gives_up_a_response_that_no_client_reads(running_server, conversation):
    folder, server = running_server
    url = f"/api/v1/webhooks/events/{conversation}"
    for _ in range(4):
        server.post(url, json=[message("x" * 1_000_000)]).raise_for_status()

    # Given a client that reads no byte of a page of 4 MB
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(TIMEOUT)
        connection.connect((server.base_url.host, server.base_url.port))
        connection.sendall(head(path=f"/api/conversations/{conversation}/events/search", method="GET"))

        # Then the server logs it without a traceback, and never sends the rest of the page
        wait_until(lambda: "took nothing of a response" in (folder / "log").read_text(), "the end of the response")
        try:
            taken = len(received(connection))
        except ConnectionResetError:
            taken = 0
    assert taken < 4_000_000
    assert "Traceback" not in (folder / "log").read_text()


@pytest.mark.process("starts a server of its own")
def test_no_collection_of_a_worker_looks_through_the_app(tmp_path, conversation):
    with (
        fakeredis_server(tmp_path) as (url, _),
        agent_server(tmp_path / "log", "tests.apps:frozen_app()", REDIS_URL=url) as (client, _),
    ):
        frozen = client.get(f"/api/conversations/{conversation}/events/count").json()

    assert frozen > 10_000


#: what gunicorn calls in a worker before and after it loads the app
BEGIN = """
import gc, runpy
from types import SimpleNamespace as Fake
hooks = runpy.run_path("gunicorn.conf.py")
hooks["post_fork"](None, None)
loads = gc.isenabled()
stops = Fake(stop=list)
store, expiry = Fake(streams=Fake(events=stops)), Fake(run=lambda stop: None)
extensions = {"server": Fake(store=store, bash_sockets=stops, expiry=expiry)}
hooks["post_worker_init"](Fake(slot=None, alive=False, wsgi=Fake(extensions=extensions)))
print(loads, gc.isenabled())
"""


def test_a_worker_collects_no_garbage_while_it_loads_and_does_while_it_serves():
    done = subprocess.run([sys.executable, "-c", BEGIN], cwd=PROJECT, capture_output=True, text=True, check=True)

    assert done.stdout == "False True\n"
