"""The way out of a sandbox lets webhooks pass, whole and rewritten, and refuses everything else."""

import contextlib
import socket
import threading

import pytest

from net.carry import PIECE, join
from runtimes.isolation import hooks
from runtimes.isolation.hooks import WayOut, WebhooksGate, serve
from tests.runtimes.host import HOOK_KEY, PLANTED, api
from tests.servers import free_port, wait_until

pytestmark = pytest.mark.process("carries bytes between sockets on threads")


@pytest.fixture
def server():
    with api() as server:
        yield server


def way_out(base_url: str, head_seconds: float = 20.0) -> int:
    """The port of a way out, which ends with the test's process."""
    listener = socket.create_server(("127.0.0.1", 0))
    hooks.serve(listener, WebhooksGate(base_url, HOOK_KEY, head_seconds).carry, 4)
    return listener.getsockname()[1]


def exchange(port: int, *pieces: bytes) -> bytes:
    """What a client gets that sends these bytes and then nothing."""
    with socket.create_connection(("127.0.0.1", port), 10) as client:
        for piece in pieces:
            client.sendall(piece)
        received = b""
        with contextlib.suppress(ConnectionResetError):
            while piece := client.recv(65536):
                received += piece
        return received


def request(line: str, *headers: str, body: bytes = b"[]") -> bytes:
    head = [line, "Host: x", *(headers or (f"Content-Length: {len(body)}",))]
    return "\r\n".join([*head, "", ""]).encode("latin-1") + body


HOOK = "POST /api/v1/webhooks/events/abc HTTP/1.1"


def test_a_webhook_passes_without_what_a_proxy_would_say(server):
    text = request(
        HOOK,
        "Content-Length: 2",
        "X-Forwarded-For: 10.0.0.1",
        "Forwarded: for=10.0.0.1",
        "Connection: keep-alive, authorization",
    )
    response = exchange(way_out(server.hooks), text)

    assert response.startswith(b"HTTP/1.")
    assert response.endswith(PLANTED.encode())
    [(method, path, headers, body)] = server.requests
    assert (method, path, body) == ("POST", "/api/v1/webhooks/events/abc", b"[]")
    assert headers == {
        "Authorization": f"Bearer {HOOK_KEY}",
        "Host": f"127.0.0.1:{server.port}",
        "Connection": "close",
        "Content-Length": "2",
    }


@pytest.mark.parametrize(
    "sent",
    [(), ("Authorization: Bearer another",), ("X-Session-API-Key: another", "authorization: Basic b", "Cookie: a=b")],
)
def test_a_webhook_bears_the_key_of_its_own_sandbox_whatever_was_sent(server, sent):
    exchange(way_out(server.hooks), request(HOOK, "Content-Length: 2", *sent))

    [(_, _, headers, _)] = server.requests
    assert {**headers, "Host": ""} == {
        "Authorization": f"Bearer {HOOK_KEY}",
        "Host": "",
        "Connection": "close",
        "Content-Length": "2",
    }


def test_a_field_costs_time_in_proportion_to_its_length(server):
    # A check that is cubic in the blanks would take days for these, and be killed by the runner's timeout.
    text = request(HOOK, "Content-Length: 2", "A: " + " " * 60_000 + "\x01")

    assert exchange(way_out(server.hooks), text).split()[1] == b"411"


def test_a_head_that_comes_too_slowly_is_refused(server):
    port = way_out(server.hooks, head_seconds=0.05)

    assert exchange(port, b"POST /").split()[1] == b"408"


def test_a_large_body_passes_in_pieces(server):
    body = b"x" * 3_000_000
    text = request(HOOK, body=body)
    exchange(way_out(server.hooks), text[:50], text[50:200], text[200:])
    wait_until(lambda: server.requests, "the webhook")  # its client may hear of a reset before
    assert server.requests[0][3] == body


def test_the_begin_of_a_body_that_comes_with_its_head_does_not_count_as_head(server):
    text = request(HOOK, body=b"x" * 100_000)
    client, accepted = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)  # each piece is read alone
    with client, accepted:
        for piece in (text[:50], text[50 : 50 + PIECE], text[50 + PIECE :]):
            client.sendall(piece)
        WebhooksGate(server.hooks, HOOK_KEY).carry(accepted)

    [(_, _, _, body)] = server.requests
    assert body == b"x" * 100_000


REFUSED = [
    (request("GET /api/v1/webhooks/events/abc HTTP/1.1"), b"403"),
    (request("DELETE /api/v1/webhooks/events/abc HTTP/1.1"), b"403"),
    (request("post /api/v1/webhooks/events/abc HTTP/1.1"), b"403"),
    (request("POST /api/v1/sandboxes HTTP/1.1"), b"403"),
    (request("POST /api/v1/webhooks HTTP/1.1"), b"403"),
    (request("POST /api/v1/webhooksx/a HTTP/1.1"), b"403"),
    (request("POST /api/v1/webhooks/../sandboxes HTTP/1.1"), b"403"),
    (request("POST /api/v1/webhooks/%2e%2e/sandboxes HTTP/1.1"), b"403"),
    (request("POST /api/v1/webhooks/.%2e/sandboxes HTTP/1.1"), b"403"),
    (request("POST /api/v1/webhooks/..%2fsandboxes HTTP/1.1"), b"403"),
    (request("POST /api/v1/webhooks/..\\sandboxes HTTP/1.1"), b"403"),
    (request("POST /api/v1/webhooks//sandboxes HTTP/1.1"), b"403"),
    (request("POST http://127.0.0.1/api/v1/webhooks/a HTTP/1.1"), b"403"),
    (request("POST  /api/v1/webhooks/a HTTP/1.1"), b"403"),
    (request("POST /api/v1/webhooks/a HTTP/2.0"), b"403"),
    (request("POST /api/v1/webhooks/a"), b"403"),
    (request(HOOK, "Content-Length: 2", "Content-Length: 2"), b"411"),
    (request(HOOK, "Content-Length: +2"), b"411"),
    (request(HOOK, "Content-Length: 2, 2"), b"411"),
    (request(HOOK, "Content-Length: 99999999999"), b"411"),
    (request(HOOK, "Transfer-Encoding: chunked", "Content-Length: 2"), b"411"),
    (request(HOOK, "Transfer-Encoding: chunked"), b"411"),
    (request(HOOK, "X-Other: 1"), b"411"),
    (request(HOOK, "Content-Length: 2", " folded: 1"), b"411"),
    (request(HOOK, "Content-Length : 2"), b"411"),
    (request(HOOK, "Content-Length: 2", "A: b\nTransfer-Encoding: chunked"), b"411"),
    (request(HOOK, "Content-Length: 2", "A: b\x00"), b"411"),
    (b"A" * 65_536, b"400"),  # refused at once: nothing more comes
    (b"A" * 70_000, b"400"),
]


def test_what_is_no_webhook_is_refused_and_never_reaches_the_server(server):
    port = way_out(server.hooks)

    wrong = []
    for text, status in REFUSED:
        response = exchange(port, text)
        if response.split()[1:2] != [status] or b'"detail"' not in response:
            wrong.append((text[:200], response))

    assert wrong == []
    assert server.requests == []


def test_a_request_behind_a_webhook_is_dropped(server):
    smuggled = request("DELETE /api/v1/sandboxes/abc HTTP/1.1")
    exchange(way_out(server.hooks), request(HOOK) + smuggled)
    exchange(way_out(server.hooks), request(HOOK), smuggled)
    assert [(method, path) for method, path, *_ in server.requests] == [("POST", HOOK.split()[1])] * 2


def test_a_body_that_breaks_off_is_no_webhook(server):
    with socket.create_connection(("127.0.0.1", way_out(server.hooks)), 10) as client:
        client.sendall(request(HOOK, "Content-Length: 100"))
        client.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionResetError):
            assert PLANTED.encode() not in client.recv(1000)


def test_a_server_that_is_away_is_503_so_that_the_agent_tries_again():
    response = exchange(way_out(f"http://127.0.0.1:{free_port()}/api/v1/webhooks"), request(HOOK))
    assert response.split()[1] == b"503"


def test_silent_clients_delay_nobody_but_those_beyond_the_bound(server):
    port = way_out(server.hooks)
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        assert exchange(port, request(HOOK)).endswith(PLANTED.encode())


def test_a_flood_of_connections_is_accepted_at_a_bounded_pace():
    accepted, waits, may_go_on = [], [], threading.Semaphore(0)

    def wait(seconds: float) -> None:
        waits.append(seconds)
        may_go_on.acquire()

    def carry(client: socket.socket) -> None:
        accepted.append(client.recv(1))

    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    hooks.serve(listener, carry, 4, hooks.Pace(50, 10, clock=lambda: 0.0, wait=wait))
    with contextlib.ExitStack() as stack:
        for _ in range(40):
            client = stack.enter_context(socket.create_connection(listener.getsockname(), 10))
            client.sendall(b"x")
        wait_until(lambda: waits, "the first wait")
        wait_until(lambda: len(accepted) == 10, "the burst")
        for number in range(11, 14):
            may_go_on.release()
            wait_until(lambda n=number: len(accepted) == n and len(waits) == n - 9, "the next one")
        assert waits == pytest.approx([0.02, 0.04, 0.06, 0.08])


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_connection_that_gets_no_thread_is_closed_and_keeps_no_place(monkeypatch):
    """Of its own, or for its other direction."""
    start, refused, carried = threading.Thread.start, [], []

    def refuse(thread: threading.Thread) -> None:
        if len(refused) < 3:
            refused.append(thread)
            raise RuntimeError("can't start new thread")
        start(thread)

    def carry(client: socket.socket) -> None:
        carried.append(threading.current_thread())
        if len(carried) < 4:
            raise RuntimeError("can't start new thread")
        client.sendall(b"x")

    listener = socket.create_server(("127.0.0.1", 0))
    hooks.serve(listener, carry, 2)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    received = [exchange(listener.getsockname()[1]) for _ in range(7)]
    for thread in carried:
        thread.join()

    assert received == [b""] * 6 + [b"x"]


def test_a_pace_gives_its_burst_again_after_a_rest():
    now, waited = [0.0], []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        now[0] += seconds

    pace = hooks.Pace(50, 10, clock=lambda: now[0], wait=wait)
    for _ in range(1010):
        pace.keep()
    assert sum(waited) == pytest.approx(1000 / 50)
    now[0] += 60
    waited.clear()
    for _ in range(10):
        pace.keep()
    assert waited == []


@contextlib.contextmanager
def carried(serve):
    """A port that leads to a listener whose connections `serve` gets, each in a thread."""
    target = socket.create_server(("127.0.0.1", 0))

    def carry(client: socket.socket) -> None:
        with socket.create_connection(target.getsockname()) as agent:
            join(client, agent)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(target.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    front = socket.create_server(("127.0.0.1", 0))
    hooks.serve(front, carry, 8)
    yield front.getsockname()[1]
    target.close()


def test_the_end_of_one_direction_is_passed_on_and_the_other_goes_on():
    def answers_at_the_end(client: socket.socket) -> None:
        with client:
            size = 0
            while piece := client.recv(65536):
                size += len(piece)
            client.sendall(b"%d" % size)

    with carried(answers_at_the_end) as port, socket.create_connection(("127.0.0.1", port), 10) as client:
        client.sendall(b"x" * 1_000_000)
        client.shutdown(socket.SHUT_WR)
        assert client.recv(100) == b"1000000"
        assert client.recv(100) == b""


def test_a_reader_that_is_slow_slows_its_writer_and_loses_nothing():
    pieces, written = 2000, []

    def writes(client: socket.socket) -> None:
        with client:
            for _ in range(pieces):
                client.sendall(b"y" * 50_000)
                written.append(50_000)

    with carried(writes) as port, socket.create_connection(("127.0.0.1", port), 10) as client:
        received = len(client.recv(1))
        assert len(written) < pieces  # what waits for the reader is more than all buffers between them hold
        while piece := client.recv(1_000_000):
            received += len(piece)
        assert received == pieces * 50_000


def test_connections_that_end_make_room_for_further_ones():
    def echoes(client: socket.socket) -> None:
        with client:
            client.sendall(client.recv(10))

    with carried(echoes) as port:

        def one(number: int) -> bool:
            with socket.create_connection(("127.0.0.1", port), 10) as client:
                client.sendall(b"%d" % number)
                return client.recv(10) == b"%d" % number

        assert all(one(number) for number in range(50))


def test_an_agent_that_is_not_there_ends_the_connection():
    def carry(client: socket.socket) -> None:
        with socket.create_connection(("127.0.0.1", free_port())):
            pass

    front = socket.create_server(("127.0.0.1", 0))
    hooks.serve(front, carry, 8)
    with socket.create_connection(front.getsockname(), 10) as client:
        wait_until(lambda: client.recv(10) == b"", "the end")


# the way out


@pytest.fixture
def proxy(tmp_path):
    """The listener of a proxy, and the address where a launcher carries to it."""
    with socket.socket(socket.AF_UNIX) as listener, socket.create_server(("127.0.0.1", 0)) as near:
        listener.bind(str(tmp_path / "egress.sock"))
        listener.listen()
        listener.settimeout(10)
        serve(near, WayOut(str(tmp_path / "egress.sock"), "hook").carry)
        yield listener, near.getsockname()


def read(served: socket.socket, end: bytes) -> bytes:
    """What comes up to some bytes."""
    data = b""
    while not data.endswith(end):
        data += served.recv(65536)
    return data


def all_of(client: socket.socket) -> bytes:
    client.settimeout(10)
    return b"".join(iter(lambda: client.recv(65536), b""))


REQUEST = b"GET /model/x HTTP/1.1\r\nHost: x\r\n\r\n"
RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@pytest.mark.parametrize("first", [b"", RESPONSE])
@pytest.mark.parametrize("request_", [REQUEST, b"CONNECT pypi.org:443 HTTP/1.1\r\nHost: pypi.org:443\r\n\r\n"])
def test_a_request_under_way_when_the_proxy_ends_is_told_so(proxy, first, request_):
    listener, address = proxy
    with socket.create_connection(address, 10) as client:
        client.sendall(REQUEST if first else request_)
        served, _ = listener.accept()
        with served:
            assert read(served, b"\r\n\r\n").startswith(b"hook\n")
            if first:  # a later request of a connection is told as the first one is
                served.sendall(first)
                assert client.recv(65536) == first
                client.sendall(request_)
                read(served, b"\r\n\r\n")
        said = all_of(client)
    assert said.startswith(b"HTTP/1.1 502 The way out of sandboxes is restarting")


def test_what_has_begun_to_come_back_and_a_tunnel_get_no_sentence_of_another(proxy):
    listener, address = proxy
    for begins, answer in (
        (REQUEST, RESPONSE[:-1]),
        (b"CONNECT a.example:443 HTTP/1.1\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n"),
    ):
        with socket.create_connection(address, 10) as client:
            client.sendall(begins)
            served, _ = listener.accept()
            with served:
                read(served, b"\r\n\r\n")
                served.sendall(answer)
                assert client.recv(65536) == answer
                client.sendall(b"\x16\x03\x01GET /")
                read(served, b"GET /")
            assert all_of(client) == b""
