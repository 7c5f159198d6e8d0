"""What a web page elsewhere, and a client that means harm, can do to a real server: nothing, and at no cost."""

import json
import random
import re
import socket as sockets
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.chance import often
from tests.conftest import action, status
from tests.servers import TIMEOUT, supervised_server
from tests.shared import ADMIN, shared_server
from tests.v1 import WireApi

pytestmark = pytest.mark.process("sends to a real server")

FOREIGN = {"Origin": "https://evil.example"}
#: what a browser sends for a page whose name was rebound to 127.0.0.1: the page and the server are of one origin
REBOUND = {"Host": "evil.example:8000", "Origin": "http://evil.example:8000", "Sec-Fetch-Site": "same-origin"}
#: what a page elsewhere can send without asking by a preflight
SIMPLE = [
    {**FOREIGN, "Content-Type": "text/plain"},
    {"Origin": "null", "Content-Type": "text/plain"},
    {**FOREIGN, "Sec-Fetch-Site": "cross-site", "Content-Type": "application/x-www-form-urlencoded"},
    {"Sec-Fetch-Site": "cross-site"},
]

#: seconds that the hostile requests may take on a slow machine; here 5
MOST_SECONDS = 240


@pytest.fixture(scope="module")
def server():
    """A server of two workers, as `make run` starts it."""
    return shared_server().client


@pytest.fixture(scope="module")
def keyed():
    """The same with a key."""
    return shared_server(ADMIN).client


@pytest.mark.process("starts a server with a supervisor and a sandbox")
def test_a_page_that_rebinds_its_name_starts_nothing_reads_no_key_and_approves_nothing(tmp_path):
    with supervised_server(tmp_path) as (client, _):
        api = WireApi(client)
        conversation = api.app_conversation()
        api.send(conversation["id"], "run: touch approved")
        api.until(conversation["id"], "waiting_for_confirmation")
        path = f"/api/conversations/{conversation['id']}"

        for headers in (REBOUND, *SIMPLE):
            expected = 421 if headers is REBOUND else 403
            for url in ("/api/v1/app-conversations", "/api/v1/app-conversations/stream-start", "/api/v1/sandboxes"):
                assert client.post(url, headers=headers).status_code == expected
            assert client.post(f"{path}/run", headers=headers).status_code == expected
            accept = {"content": b'{"accept": true}', "headers": headers}
            assert client.post(f"{path}/events/respond_to_confirmation", **accept).status_code == expected
        for read in ("/api/v1/sandboxes/search", "/api/v1/app-conversations/search", f"{path}/events/search"):
            stolen = client.get(read, headers=REBOUND)
            assert (stolen.status_code, list(stolen.json())) == (421, ["detail"])
            assert "Access-Control-Allow-Origin" not in client.get(read, headers=FOREIGN).headers

        assert len(api.call("GET", "/v1/sandboxes/search")["items"]) == 1
        assert len(api.call("GET", "/v1/app-conversations/search")["items"]) == 1
        assert api.conversation(conversation["id"])["execution_status"] == "waiting_for_confirmation"
        assert not list(tmp_path.rglob("approved"))
        api.clean()


def test_a_page_elsewhere_approves_no_action_of_a_detached_conversation(server, conversation):
    path = f"/api/conversations/{conversation}"
    policy = {"conversation_id": conversation, "confirmation_policy": {"kind": "AlwaysConfirm"}}
    server.post("/api/conversations", json=policy)
    events = [action(), status("waiting_for_confirmation")]
    server.post(f"/api/v1/webhooks/events/{conversation}", json=events).raise_for_status()
    before = server.get(f"{path}/events/count").json()

    for headers in (REBOUND, *SIMPLE):
        assert server.post(f"{path}/run", headers=headers).status_code in (403, 421)
        assert server.delete(path, headers=headers).status_code in (403, 421)

    assert [one["id"] for one in server.get(f"{path}/pending_actions").json()] == [events[0]["id"]]
    assert server.get(f"{path}/events/count").json() == before


@pytest.mark.parametrize(
    ("headers", "refusal"),
    [
        (FOREIGN, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        (REBOUND, 421),
        ({"Host": "evil"}, 421),
        ({"Host": "127.0.0.1", "Origin": "http://localhost"}, 403),
    ],
)
def test_a_socket_of_a_page_elsewhere_is_refused_before_the_handshake(server, conversation, headers, refusal):
    server.post("/api/conversations", json={"conversation_id": conversation})
    host = f"127.0.0.1:{server.base_url.port}"
    upgrade = {"Host": host, "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    upgrade |= {"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", **headers}
    request = "".join(f"{name}: {value}\r\n" for name, value in upgrade.items())

    reply = exchange(server, f"GET /sockets/events/{conversation} HTTP/1.1\r\n{request}\r\n".encode())

    assert reply.startswith(b"HTTP/1.1 %d " % refusal)
    assert b"101" not in reply.split(b"\r\n")[0]


def test_a_socket_of_our_own_page_and_of_a_program_is_served(server, conversation):
    server.post("/api/conversations", json={"conversation_id": conversation})
    url = f"ws://127.0.0.1:{server.base_url.port}/sockets/events/{conversation}"

    for origin in (f"http://127.0.0.1:{server.base_url.port}", None):
        with connect(url, origin=origin, open_timeout=TIMEOUT) as connection:
            assert json.loads(connection.recv(TIMEOUT))["kind"] == "ConversationStateUpdateEvent"
    with pytest.raises(InvalidStatus, match="403"), connect(url, origin="https://evil.example"):
        pass


PATHS = [
    "/alive",
    "/docs",
    "/console/",
    "/openapi.json",
    "/api/v1/sandboxes/search",
    "/nope",
    "/docs/assets/page/docs.js",
]
LIVE = [
    "/api/conversations/{id}/events/stream",
    "/sockets/events/{id}",
    "/api/conversations/{id}/events/search?wait=60",
]


@pytest.mark.parametrize("path", [*PATHS, *LIVE])
def test_a_request_for_another_host_is_421_whatever_it_asks_for(server, conversation, path):
    server.post("/api/conversations", json={"conversation_id": conversation})
    path = path.format(id=conversation)

    for line, host in [
        (path, "Host: evil"),
        (path, "Host: evil:8000"),
        (path, "Host: 127.0.0.1.evil"),
        (path, "Host: user@127.0.0.1"),
        (path, "Host:"),
        (path, "X: no host"),
        (f"http://evil{path}", "Host: 127.0.0.1"),
        (f"http://127.0.0.1{path}", "Host: evil"),
        (f"http://127.0.0.1@evil{path}", "Host: 127.0.0.1"),
    ]:
        reply = exchange(server, f"GET {line} HTTP/1.1\r\n{host}\r\n\r\n".encode())
        assert reply.startswith(b"HTTP/1.1 421 "), (line, host, reply[:200])
    repeated = exchange(server, f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil\r\n\r\n".encode())
    assert repeated.startswith(b"HTTP/1.1 400 ")


def test_a_client_on_this_machine_cannot_rewrite_the_path_or_the_scheme(server):
    for lie in (
        "SCRIPT_NAME: /x",
        "PATH_INFO: /api/v1/sandboxes/search",
        "X-Forwarded-Proto: https",
        "X-Forwarded-Ssl: x",
    ):
        reply = exchange(server, f"GET /alive HTTP/1.1\r\nHost: localhost\r\n{lie}\r\n\r\n".encode())
        assert reply.startswith(b"HTTP/1.1 200 ")
        assert reply.endswith(b'{"status":"ok"}\n')
    own_in_https = "Host: localhost\r\nX-Forwarded-Proto: https\r\nOrigin: https://localhost\r\n"
    assert exchange(server, f"POST /alive HTTP/1.1\r\n{own_in_https}\r\n".encode()).startswith(b"HTTP/1.1 403 ")


@pytest.mark.parametrize("method", ["POST /api/conversations", "POST /api/v1/sandboxes", "DELETE /nope"])
@pytest.mark.parametrize("length", ["Content-Length: 8000000", "Transfer-Encoding: chunked"])
def test_a_refused_request_is_answered_before_its_body_is_sent(server, method, length):
    head = f"{method} HTTP/1.1\r\nHost: localhost\r\nOrigin: https://evil.example\r\n{length}\r\n\r\n"

    with sockets.create_connection(("127.0.0.1", server.base_url.port), TIMEOUT) as connection:
        connection.sendall(head.encode())
        assert connection.recv(65536).startswith(b"HTTP/1.1 403 ")


def test_a_client_that_asks_before_it_sends_a_body_is_told_to_only_by_a_request_that_is_admitted(server, conversation):
    body = json.dumps({"conversation_id": conversation}).encode()
    head = "POST /api/conversations HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(body)}\r\nExpect: 100-continue\r\nConnection: close\r\n"

    with sockets.create_connection(("127.0.0.1", server.base_url.port), TIMEOUT) as connection:
        connection.sendall(f"{head}Origin: null\r\n\r\n".encode())
        refusal = connection.recv(65536)
        assert refusal.startswith(b"HTTP/1.1 403 ")
        assert b"Connection: close" in refusal
    with sockets.create_connection(("127.0.0.1", server.base_url.port), TIMEOUT) as connection:
        connection.sendall(f"{head}\r\n".encode())
        assert connection.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(body)
        assert re.match(rb"HTTP/1.1 20[01] ", connection.recv(65536))


def exchange(server: httpx.Client, request: bytes) -> bytes:
    """What the server sends until it closes a connection on which a client sends this and nothing more."""
    with sockets.create_connection(("127.0.0.1", server.base_url.port), TIMEOUT) as connection:
        reply = b""
        try:
            connection.sendall(request)
            connection.shutdown(sockets.SHUT_WR)
            while part := connection.recv(65536):
                reply += part
        except ConnectionError:  # the server has closed it upon bytes that it never read
            pass
        return reply


def hostile(seed: int, origin: bytes) -> bytes:
    """One of many kinds of request that must not be served; the same seed makes the same one.

    origin: the header of a page elsewhere, which is refused where no key is needed.
    """
    chance = random.Random(seed)
    noise = chance.randbytes(chance.randrange(1, 400)).replace(b"\n", b"?").replace(b"\r", b"?")
    path = chance.choice(
        (b"/api/conversations", b"/api/v1/app-conversations", b"/docs")
    )  # each reads a body, or is none
    own = b"POST " + path + b" HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    chunked = own + b"Transfer-Encoding: chunked\r\n\r\n"
    return chance.choice(
        (
            noise + b"\r\n\r\n",
            b"GET " + noise + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: " + noise + b"\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: localhost\r\n" + noise + b"\r\n\r\n",
            own + b"Origin: " + noise.replace(b"\0", b"?") + b"\r\n\r\n",
            chunked + noise + b"\r\n\r\n",
            chunked + b"-1\r\n\r\n",
            chunked + b"ffffffffffffffffff\r\n" + noise,
            chunked + b"5\r\n" + noise[:3] + b"\r\n0\r\n\r\n",
            own + b"Content-Length: -1\r\n\r\n",
            own + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n" + noise,
            own + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n" + noise,
            own + b"Origin: https://evil.example\r\nContent-Length: 8000000\r\n\r\n",
            own
            + b"X-Session-API-Key: "
            + chance.randbytes(16).hex().encode()
            + b"\r\n"
            + origin
            + b"Content-Length: 8000000\r\n\r\n"
            + b"x" * 100_000,
        )
    )


@pytest.mark.parametrize(
    ("posture", "number"),
    [
        ("server", 200),
        pytest.param("server", often(1500, 5000), marks=pytest.mark.faults("thousands of requests")),
        pytest.param("keyed", often(1500, 5000), marks=pytest.mark.faults("thousands of requests")),
    ],
)
def test_hostile_requests_get_a_4xx_each_and_the_server_serves_on(request, posture, number):
    server = request.getfixturevalue(posture)
    origin = b"Origin: null\r\n" if posture == "server" else b""

    def answer(seed: int) -> bytes:
        return exchange(server, hostile(seed, origin))[:200]

    with ThreadPoolExecutor(16) as senders:
        answers = list(senders.map(answer, range(number), timeout=MOST_SECONDS))

    refused = [reply for reply in answers if re.match(rb"HTTP/1\.[01] 4\d\d ", reply)]
    assert set(filter(None, answers)) <= set(refused)
    assert len(refused) > number - max(5, number // 100)  # a closed connection may lose its last response
    assert server.get("/ready").status_code == 200
    assert server.get("/api/conversations/search").json()["items"] is not None


@pytest.mark.parametrize("line", [b"nonsense", b"GET / HTTP/9.9", b"GET /" + b"a" * 9000 + b" HTTP/1.1"])
def test_errors_of_requests_that_never_reach_the_app_have_the_shape_of_errors_too(server, line):
    head, _, body = exchange(server, line + b"\r\n\r\n").partition(b"\r\n\r\n")

    assert re.match(rb"HTTP/1.1 4\d\d ", head)
    assert b"Content-Type: application/json" in head
    assert re.fullmatch(rb'\{"detail": ".+"\}', body)
