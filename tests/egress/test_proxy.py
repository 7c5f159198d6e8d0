"""The proxy as a sandbox meets it: what passes, and the ways past it, each refused with a sentence."""

import contextlib
import json
import os
import socket
import ssl
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest

from core.wire import ConversationId
from egress import proxy as room
from egress.resolver import MOST_LOOKUPS
from store.approvals.audit import DecisionActor
from store.keys import SandboxKeys
from tests.chance import often
from tests.egress.test_client_hello import made, named
from tests.servers import free_port, running, wait_until

pytestmark = pytest.mark.process("runs the proxy and servers behind it on threads")


ME = DecisionActor("key", "me", "127.0.0.1")


def body(response: str) -> dict:
    return json.loads(response.partition("\r\n\r\n")[2])


def status(response: str) -> int:
    return int(response.split(" ", 2)[1])


def secured(client: socket.socket, name: str) -> ssl.SSLSocket:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket(client, server_hostname=name)


# what passes


def test_a_tunnel_reaches_an_allowed_name(sandbox, outside):
    client, head = sandbox.tunnel(f"allowed.example:{outside.tls}")
    assert status(head) == 200
    with secured(client, "allowed.example") as tls:
        tls.sendall(b"GET /hello HTTP/1.1\r\nHost: allowed.example\r\nConnection: close\r\n\r\n")
        said = b"".join(iter(lambda: tls.recv(65536), b"")).decode()
    assert body(said)["path"] == "/hello"


def test_a_plain_request_reaches_an_allowed_name_whatever_host_it_claims(sandbox, outside):
    said = body(sandbox.get(f"http://Plain.Example:{outside.plain}/a?b=c", "X-One: 1", "Proxy-Authorization: Basic x"))
    assert said["path"] == "/a?b=c"
    assert said["headers"] == {"host": f"plain.example:{outside.plain}", "x-one": "1", "connection": "close"}


def test_a_service_gets_its_credential_and_none_of_the_sandboxes(sandbox):
    text = '{"a": 1}'
    head = (
        f"POST /model/chat?x=1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer placeholder\r\nContent-Length: {len(text)}"
    )
    said = body(sandbox.said(f"{head}\r\nConnection: close\r\n\r\n{text}"))
    assert (said["path"], said["body"]) == ("/v1/chat?x=1", text)
    assert said["headers"]["authorization"] == "Bearer the-true-key"
    assert said["headers"]["host"].startswith("localhost:")


def test_a_plain_service_of_this_machine_is_reached(sandbox):
    said = body(sandbox.get("/near/x"))
    assert (said["path"], said["headers"]["x-key"]) == ("/base/x", "the-other-key")


def test_a_streamed_response_passes_as_it_comes(sandbox, outside):
    outside.go_on.clear()
    with sandbox.connect() as client:
        client.sendall(b"GET /model/stream HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        begun = b""
        while b"first" not in begun:
            begun += client.recv(65536)
        assert b"second" not in begun
        outside.go_on.set()
        rest = b"".join(iter(lambda: client.recv(65536), b""))
    assert b"second" in rest
    assert rest.endswith(b"0\r\n\r\n")


def test_several_requests_share_a_connection(sandbox):
    one = "GET /near/{} HTTP/1.1\r\nHost: x\r\n\r\n"
    said = sandbox.said(one.format(1) + one.format(2))
    assert [f'"/base/{number}"' in said for number in (1, 2)] == [True, True]


@pytest.mark.parametrize("asked", ["POST unread", "GET more", "HEAD more", "GET 204", "GET 304"])
@pytest.mark.parametrize("to", ["/near", "/model", "http://plain.example:{plain}/base"])
def test_no_request_meets_bytes_that_another_sandbox_left_behind(sandbox, neighbour, outside, to, asked):
    """Whoever asks next, or at the same moment, gets the response to its own words."""
    to = to.format(plain=outside.plain)
    (method, path), tries = asked.split(), often(16, 200)
    hidden = "GET /outside HTTP/1.1\r\nX-I: " if method == "POST" else ""
    hostile = f"{method} {to}/{path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(hidden)}\r\n\r\n{hidden}"

    def ask(number: int) -> str:
        threading.Thread(target=sandbox.said, args=(hostile,), daemon=True).start()
        return body(neighbour.get(f"{to}/mine-{number}"))["path"].rpartition("/")[2]

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, range(tries))) == [f"mine-{number}" for number in range(tries)]


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
@pytest.mark.parametrize("length", ["Content-Length: 42", "Transfer-Encoding: chunked"])
def test_a_body_that_servers_leave_unread_reaches_no_service(sandbox, outside, method, length):
    """A server that goes on after it would take the body for a request: outside of the base URL, and not counted."""
    hidden = "POST /v1/chat/completions HTTP/1.1\r\nX-I: "
    said = sandbox.said(f"{method} /near/unread HTTP/1.1\r\nHost: x\r\n{length}\r\n\r\n{hidden}")
    assert status(said) == 400
    assert f"{method} to a service has no body: send it with POST" in said or method == "HEAD"
    assert "/v1/chat/completions" not in outside.paths
    assert status(sandbox.get("/near/x", "Content-Length: 0")) == 200


def test_a_method_that_is_not_passed_on_is_405_and_names_those_that_are(sandbox, outside):
    said = sandbox.said("TRACE /model/x HTTP/1.1\r\nHost: x\r\n\r\n")
    assert status(said) == 405
    assert "PROPFIND" in body(said)["detail"]
    assert "the-true-key" not in said


def test_a_redirect_elsewhere_is_left_to_the_sandbox_which_has_no_credential(sandbox):
    said = sandbox.get("/model/redirect")
    assert status(said) == 302
    assert "location: https://other.example/x" in said
    assert "the-true-key" not in said


# ways past it


@pytest.mark.parametrize(
    "target",
    [
        "127.0.0.1:443",
        "[::1]:443",
        "[::ffff:127.0.0.1]:443",
        "169.254.169.254:80",
        "0x7f.1:443",
        "2130706433:443",
        "127.1:443",
        "localhost:443",
        "unknown.example:443",
        "allowed.example:443",
        "allowed.example:22",
        "*.example:443",
        "allowed.example..:443",
    ],
)
def test_a_tunnel_elsewhere_is_refused_with_a_sentence(sandbox, target):
    client, head = sandbox.tunnel(target)
    client.close()
    assert status(head) == 403


@pytest.mark.parametrize("target", ["allowed.example", "allowed.example:0", "allowed.example:99999", "a@b.example:443"])
def test_a_tunnel_to_no_destination_is_refused(sandbox, target):
    client, head = sandbox.tunnel(target)
    client.close()
    assert status(head) in (400, 403)


def test_an_unknown_name_is_refused_at_once_and_says_which(sandbox):
    client, head = sandbox.tunnel("unknown.example:443")
    client.close()
    assert "unknown.example:443 is not allowed" in head.splitlines()[0]


def asked(store, name: str):
    """What waits for a decision about that name."""
    return next(one for one in store.destinations.waiting() if one.name == name)


def test_an_unknown_name_passes_once_a_person_allowed_it_and_ends_with_the_rule_that_allows_it(sandbox, store, outside):
    target = f"asked.example:{outside.tls}"
    client, head = sandbox.tunnel(target)
    client.close()
    assert "a person was asked; try again when it is" in head.splitlines()[0]

    rule = store.destinations.decide(asked(store, "asked.example"), "approve", "always", ME)
    client, head = sandbox.tunnel(target)
    assert status(head) == 200
    with secured(client, "asked.example") as tls:
        store.destinations.revoke(rule.id, ME)
        with contextlib.suppress(OSError):
            assert tls.recv(1) == b""

    client, head = sandbox.tunnel(target)
    client.close()
    assert status(head) == 403


def test_an_approval_for_one_connection_passes_one_and_none_below_its_name(sandbox, store, outside):
    once, below = (f"{name}:{outside.tls}" for name in ("once.example", "sub.once.example"))
    sandbox.tunnel(once)[0].close()
    store.destinations.decide(asked(store, "once.example"), "approve", "once", ME)

    heads = []
    for target in (below, once, once):
        client, head = sandbox.tunnel(target)
        client.close()
        heads.append(status(head))
    assert heads == [403, 200, 403]


def test_what_was_reached_and_refused_is_counted(sandbox, store, outside):
    sandbox.get(f"http://plain.example:{outside.plain}/counted")
    sandbox.tunnel("counted.example:443")[0].close()
    sandbox_id = asked(store, "counted.example").sandbox_id

    def counts() -> dict:
        return {one.name: (one.allowed > 0, one.refused > 0) for one in store.destinations.reached(sandbox_id)}

    wait_until(lambda: "plain.example" in counts(), "the count of what was reached")
    assert counts()["plain.example"] == (True, False)
    assert counts()["counted.example"] == (False, True)


def test_an_allowed_name_with_a_private_address_is_not_reached(sandbox):
    client, head = sandbox.tunnel("private.example:443")
    client.close()
    assert status(head) == 502
    assert "no public address" in head


def test_a_tunnel_whose_tls_names_another_server_is_closed_with_an_alert(sandbox, outside):
    client, head = sandbox.tunnel(f"allowed.example:{outside.tls}")
    assert status(head) == 200
    with pytest.raises(ssl.SSLError, match=r"(?i)unrecognized.name"):
        secured(client, "other.example")
    client.close()


def in_records(hello: bytes) -> bytes:
    """The same ClientHello in records of 7 bytes."""
    content = hello[5:]
    pieces = [content[at : at + 7] for at in range(0, len(content), 7)]
    return b"".join(hello[:3] + len(piece).to_bytes(2) + piece for piece in pieces)


@pytest.mark.parametrize(
    ("name", "sends"),
    [
        ("ALLOWED.Example", lambda hello: [hello]),
        ("allowed.example", lambda hello: [hello[at : at + 9] for at in range(0, len(hello), 9)]),
        ("allowed.example", lambda hello: [in_records(hello)]),
        ("allowed.example", lambda hello: [hello[:1], hello[1:]]),
    ],
    ids=["in-capitals", "in-pieces", "in-records", "after-a-byte"],
)
def test_a_tunnel_carries_tls_to_its_own_name_however_its_hello_comes(sandbox, outside, name, sends):
    client, head = sandbox.tunnel(f"allowed.example:{outside.tls}")
    context = ssl.create_default_context(cafile=outside.certificate)
    back, out = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(back, out, server_hostname=name)
    with client:
        assert status(head) == 200
        with pytest.raises(ssl.SSLWantReadError):
            tls.do_handshake()
        for piece in sends(out.read()):
            client.sendall(piece)
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                back.write(client.recv(65536))
        assert ("DNS", "allowed.example") in tls.getpeercert()["subjectAltName"]


@pytest.mark.parametrize(
    "name",
    [b"other.example", b"allowed.example..", b"127.0.0.1", b"allowed.example\0", b"x.allowed.example", b"", b"*"],
)
def test_a_tunnel_whose_hello_has_another_name_reaches_no_server(sandbox, outside, name):
    """Names that a library would not send stand in the place of its own, in a hello that is whole otherwise."""
    client, head = sandbox.tunnel(f"allowed.example:{outside.tls}")
    with client:
        assert status(head) == 200
        client.sendall(made((0, named(name)), (43, b"\2\3\4")))
        assert b"".join(iter(lambda: client.recv(65536), b"")) == b"\x15\x03\x01\x00\x02\x02\x70"


def test_a_tunnel_without_a_server_name_is_closed(sandbox, outside):
    client, _ = sandbox.tunnel(f"allowed.example:{outside.tls}")
    with pytest.raises(ssl.SSLError):
        secured(client, "127.0.0.1")  # an address stands in no SNI
    client.close()


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"SSH-2.0-x\r\n", b"\x16\x03\x01\x00\x04\x02\x00\x00\x00"]
)
def test_a_tunnel_without_tls_is_closed(sandbox, outside, data):
    client, _ = sandbox.tunnel(f"allowed.example:{outside.tls}")
    with client:
        client.sendall(data)
        assert b"".join(iter(lambda: client.recv(65536), b"")) == b"\x15\x03\x01\x00\x02\x02\x70"


@pytest.mark.parametrize(
    "target", ["http://127.0.0.1/", "http://[::1]/", "http://169.254.169.254/latest", "http://2130706433/"]
)
def test_a_plain_request_to_an_address_is_refused(sandbox, target):
    assert status(sandbox.get(target)) == 403


@pytest.mark.parametrize(
    "target", ["https://allowed.example/", "ftp://allowed.example/", "http://a@plain.example/", "*"]
)
def test_a_plain_request_of_another_form_is_refused(sandbox, target):
    assert status(sandbox.get(target)) == 400


@pytest.mark.parametrize("rest", ["/../x", "/%2e%2e/x", "/%252e%252e/x", "/..%2fx", "/..;/x", "/..%5cx", "/%00"])
def test_a_path_that_could_leave_a_services_base_is_refused(sandbox, rest):
    assert status(sandbox.get(f"/model{rest}")) == 403


@pytest.mark.parametrize("header", ["Destination: /near/y", "Destination: http://127.0.0.1:1023/near/y"])
def test_the_destination_of_a_copy_stays_below_a_services_base(sandbox, header):
    said = body(sandbox.get("/near/x", header))
    assert said["headers"]["destination"].partition("//")[2].endswith("/base/y")


@pytest.mark.parametrize("header", ["Destination: /other/y", "Destination: /near/../other/y", "X-Copy-From: /other/y"])
def test_a_header_that_names_a_resource_outside_of_a_services_base_is_refused(sandbox, outside, header):
    outside.paths.clear()

    assert status(sandbox.get("/near/x", header)) == 403
    assert outside.paths == []


def test_an_unknown_service_is_refused_and_the_known_ones_are_named(sandbox):
    said = sandbox.get("/other/x")
    assert status(said) == 404
    assert "model" in body(said)["detail"]


def test_a_service_on_loopback_at_which_nothing_listens_says_where_and_what_to_set(sandbox):
    said = sandbox.get("/silent/x")
    assert status(said) == 502
    assert body(said)["detail"] == (
        "127.0.0.1:1 is not reached: [Errno 111] Connection refused. Nothing listens there on the server's machine: "
        "start it, or set the base URL of the service silent"
    )


def test_a_service_whose_certificate_is_not_its_own_gets_nothing(sandbox):
    said = sandbox.get("/distrusted/x")
    assert status(said) == 502
    assert "certificate" in body(said)["detail"].lower()
    assert "Nothing listens" not in body(said)["detail"]


def test_requests_that_mean_two_things_are_refused(sandbox):
    head = "POST /near/x HTTP/1.1\r\nHost: x\r\n"
    wrong = [
        f"{head}Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        f"{head}Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
        f"{head}Content-Length: +3\r\n\r\nabc",
        f"{head}Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        f"{head}Host: y\r\nContent-Length: 0\r\n\r\n",
        f"{head}Bad Name: y\r\nContent-Length: 0\r\n\r\n",
        "GET /near/x\r\n\r\n",
        "GET /near/x HTTP/1.1\r\n\r\n",
        "\x16\x03\x01\x00\x00\r\n\r\n",
    ]
    assert [request for request in wrong if status(sandbox.said(request)) not in (400, 501)] == []


def test_a_head_that_is_too_long_is_refused(sandbox):
    said = sandbox.said("GET /near/x HTTP/1.1\r\nHost: x\r\nX: " + "a" * room.MOST_HEAD)
    assert status(said) == 431


def test_half_a_request_leaves_nothing_behind(sandbox):
    assert sandbox.said("POST /near/x HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc") == ""
    assert body(sandbox.get("/near/x"))["path"] == "/base/x"


def test_half_a_response_does_not_look_whole(sandbox):
    said = sandbox.get("/near/broken")
    assert "content-length: 100" in said
    assert said.endswith("half")


# who speaks


def test_a_key_that_is_nobodys_opens_nothing(sandbox, store):
    other = type(sandbox)(sandbox.address, "k" * 43, sandbox.proxy)
    assert status(other.get("/model/x")) == 403
    assert "the-true-key" not in other.get("/model/x")


def test_a_sandbox_whose_way_out_is_not_by_name_has_none_here(sandbox, store):
    store.sandboxes.beat("h", "supervisor")
    started = store.sandboxes.start("open", host="h")
    key = store.sandboxes.begin(started.id, "h", "supervisor", "process")
    assert status(type(sandbox)(sandbox.address, key, sandbox.proxy).get("/model/x")) == 403


def test_a_sandbox_that_is_deleted_has_no_way_out(sandbox, store):
    store.sandboxes.beat("h", "supervisor")
    started = store.sandboxes.start("named", host="h")
    key = store.sandboxes.begin(started.id, "h", "supervisor", "process")
    speaks = type(sandbox)(sandbox.address, key, sandbox.proxy)
    assert status(speaks.get("/near/x")) == 200
    store.sandboxes.ask(started.id, "delete")
    assert status(speaks.get("/near/x")) == 403


# secrets of conversations


@pytest.fixture
def talks(sandbox, store):
    """Make a conversation in the sandbox with these secrets; it is deleted after the test."""
    made = []

    def talk(key: str = "", /, **secrets: object) -> None:
        made.append(ConversationId(str(uuid4())))
        store.conversations.create(made[-1], sandbox_id=sandbox.id, app={"started_by": key}, secrets=secrets)

    yield talk
    for one in made:
        store.conversations.delete(one, ME)


def test_a_service_gets_the_secret_of_the_conversation_and_a_header_without_one_is_left_out(sandbox, talks):
    assert "authorization" not in body(sandbox.get("/user/x"))["headers"]
    talks(GIT={"kind": "StaticSecret", "value": "canary\n"}, MINE="inside")
    talks(OTHER="x")

    seen = body(sandbox.get("/user/x", "Authorization: Bearer its-own"))["headers"]

    assert seen["authorization"] == "token canary"
    assert "x-also" not in seen
    assert "canary" not in sandbox.get("/near/x")


def test_the_secret_of_the_sandboxs_owner_counts_whatever_another_key_brings(sandbox, talks, store):
    store.sandboxes._redis.hset(SandboxKeys.box(sandbox.id), "owner", "the owner")
    talks("the owner", GIT="the-owners")
    talks("another key", GIT="the-joiners", ALSO="canary\r\nX-More: 1")

    assert body(sandbox.get("/user/x"))["headers"]["authorization"] == "token the-owners"
    store.sandboxes._redis.hset(SandboxKeys.box(sandbox.id), "owner", "")


def test_a_secret_that_is_not_one_or_no_header_can_have_is_refused_without_its_value(sandbox, talks):
    talks(GIT="first-canary")
    talks(GIT="second-canary")
    said = sandbox.get("/user/x")
    assert (status(said), "different secrets GIT" in said, "canary" in said) == (409, True, False)

    talks(ALSO="canary\r\nX-More: 1")
    said = sandbox.get("/user/x")
    assert (status(said), "canary" in said) == (409, False)


# bounds


def test_a_sandbox_has_a_bounded_number_of_connections_at_once(sandbox, monkeypatch):
    monkeypatch.setattr(room, "MOST_AT_ONCE", 3)
    wait_until(lambda: not sandbox.proxy._at_once, "the end of earlier connections")
    held = [sandbox.connect() for _ in range(3)]
    wait_until(lambda: sum(sandbox.proxy._at_once.values()) == 3, "three connections")
    said = sandbox.get("/near/x")
    for each in held:
        each.close()
    assert status(said) == 429
    assert "at most 3 connections" in said
    wait_until(lambda: not sandbox.proxy._at_once, "the end of the connections")
    assert status(sandbox.get("/near/x")) == 200


def test_a_sandbox_whose_look_ups_are_slow_reads_the_bound_of_them(sandbox, outside, monkeypatch):
    lookups = sandbox.proxy.resolver.lookups
    monkeypatch.setattr(lookups, "_seconds", 0.1)
    with lookups.of(sandbox.id), contextlib.ExitStack() as slow:
        for _ in range(MOST_LOOKUPS):
            slow.enter_context(lookups.place())
        client, tunnel = sandbox.tunnel(f"allowed.example:{outside.tls}")
        client.close()
        plain = sandbox.get(f"http://plain.example:{outside.plain}/lookups")
    for said in (tunnel, plain):
        assert status(said) == 429
        assert f"looking up {MOST_LOOKUPS} names, the most allowed at once" in said
    assert status(sandbox.get(f"http://plain.example:{outside.plain}/lookups")) == 200


def test_a_pod_that_shows_no_key_takes_no_more_room_than_one_that_does(sandbox, monkeypatch):
    monkeypatch.setattr(room, "MOST_AT_ONCE", 3)
    wait_until(lambda: not sandbox.proxy._from, "the end of earlier connections")
    silent = [socket.create_connection(sandbox.address, 10) for _ in range(3)]
    wait_until(lambda: sandbox.proxy._from["127.0.0.1"] == 3, "three connections")
    said = sandbox.said("GET /near/x HTTP/1.1\r\nHost: x\r\n\r\n")
    for each in silent:
        each.close()
    assert status(said) == 429
    wait_until(lambda: not sandbox.proxy._from, "the end of the connections")
    assert status(sandbox.get("/near/x")) == 200


def test_the_container_of_a_pod_carries_to_a_proxy_of_its_cluster_with_the_key_of_its_sandbox(sandbox):
    port = free_port()
    proxy = ":".join(map(str, sandbox.address))
    command = [sys.executable, "-m", "runtimes.isolation.hooks", str(port), proxy]
    with running(command, env={**os.environ, "HOOK_KEY": sandbox.key}):
        wait_until(lambda: answers(port), "the way out")
        with socket.create_connection(("127.0.0.1", port), 10) as client:
            client.sendall(b"GET /near/x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            said = b"".join(iter(lambda: client.recv(65536), b"")).decode()
    assert status(said) == 200
    assert body(said)["headers"]["x-key"] == "the-other-key"


def answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 1):
            return True
    except OSError:
        return False


def test_a_head_that_does_not_come_is_given_up(sandbox, monkeypatch):
    monkeypatch.setattr(room, "HEAD_SECONDS", 0.3)
    with sandbox.connect() as client:
        client.sendall(b"GET /near/x HTTP/1.1\r\nHo")
        said = b"".join(iter(lambda: client.recv(65536), b"")).decode()
    assert status(said) == 408


def test_a_tunnel_in_which_nothing_passes_is_closed(sandbox, outside, monkeypatch):
    monkeypatch.setattr(room, "IDLE_SECONDS", 0.5)
    client, _ = sandbox.tunnel(f"allowed.example:{outside.tls}")
    with secured(client, "allowed.example") as tls:
        began = time.monotonic()
        assert tls.recv(1) == b""
    assert time.monotonic() - began < 10


def test_many_sandboxes_are_served_at_once(sandbox):
    statuses = []
    threads = [threading.Thread(target=lambda: statuses.append(status(sandbox.get("/near/x")))) for _ in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == [200] * 30
