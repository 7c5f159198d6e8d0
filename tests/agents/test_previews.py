"""What crosses between a browser and a program at a port of a sandbox, and how a host names the port."""

import contextlib
import itertools
import socket
import threading
import time

import pytest

from agents import tunnels
from agents.client import AgentUnreachable
from agents.previews import (
    Exchange,
    NoPreview,
    Preview,
    PreviewBodyTooLong,
    own_cookie,
    request_headers,
    response_headers,
)
from agents.tunnels import Tunnel, open_tunnel
from store.sandboxes.sandboxes import SandboxId

SANDBOX = SandboxId("3ae4e3ee96yX3863PGC0sT")


@pytest.mark.parametrize("port", [1024, 8000, 65535])
def test_a_label_names_its_port_and_its_sandbox(port):
    preview = Preview(SANDBOX, port)

    assert len(preview.label) <= 63
    assert preview.label == preview.label.lower()
    assert Preview.of_label(preview.label) == preview


@pytest.mark.parametrize(
    "label",
    [
        *("", "8000", "8000-", "80-gaytemzu", "1023-gaytemzu", "65536-gaytemzu", "08000-gaytemzu", "8000-a"),
        *("8000-GAYTEMZU", "8000-gaytemz1", "8000-gb", "x.8000-gaytemzu", f"8000-{'a' * 64}"),
    ],
)
def test_what_names_no_port_of_a_sandbox_is_no_label(label):
    assert Preview.of_label(label) is None


def test_a_sandbox_with_a_long_id_has_no_preview():
    with pytest.raises(NoPreview, match="too long"):
        _ = Preview(SandboxId("x" * 37), 8000).label


def test_no_key_no_cookie_of_ours_and_no_hop_by_hop_header_goes_in():
    sent = [
        ("Host", "8000-x.preview.localhost"),
        ("Cookie", "a=1; agent_preview=sealed; __Host-agent_preview=sealed; b=2"),
        ("Authorization", "Bearer key"),
        ("X-Session-Api-Key", "key"),
        ("Connection", "keep-alive, X-Named"),
        ("X-Named", "1"),
        ("Transfer-Encoding", "chunked"),
        ("X-Forwarded-For", "10.0.0.1"),
        ("Accept", "*/*"),
    ]

    assert request_headers(sent, "http") == [
        ("Host", "8000-x.preview.localhost"),
        ("Cookie", "a=1; b=2"),
        ("Accept", "*/*"),
        ("X-Forwarded-Proto", "http"),
        ("X-Forwarded-Host", "8000-x.preview.localhost"),
    ]
    assert "Cookie" not in dict(request_headers([("Cookie", "agent_preview=sealed")], "http"))


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("a=1; Domain=preview.localhost; Path=/", "a=1; Path=/"),
        ("a=1;DOMAIN = .localhost;Secure", "a=1;Secure"),
        ("agent_preview=mine; Path=/", ""),
        ("__Host-agent_preview=mine; Secure; Path=/", ""),
        ("=agent_preview=mine", ""),
        ("agent_preview", ""),
        ("plain", "plain"),
    ],
)
def test_a_cookie_of_a_program_is_of_its_host_alone_and_takes_no_place_of_ours(sent, kept):
    assert own_cookie(sent) == kept


def test_a_program_sets_no_rule_for_a_browser_that_holds_beyond_its_page():
    sent = [
        (b"content-type", b"text/html"),
        (b"clear-site-data", b'"*"'),
        (b"service-worker-allowed", b"/"),
        (b"strict-transport-security", b"max-age=9; includeSubDomains"),
        (b"cross-origin-opener-policy", b"unsafe-none"),
        (b"content-security-policy", b"default-src 'self'"),
        (b"connection", b"close, x-named"),
        (b"x-named", b"1"),
    ]
    headers = response_headers(200, sent, 8000)

    assert [value for name, value in headers if name == "Content-Security-Policy"] == [
        "default-src 'self'",
        "frame-ancestors 'self'",
    ]
    assert {name.lower() for name, _ in headers} == {
        *("content-type", "content-security-policy", "cross-origin-opener-policy", "cross-origin-resource-policy"),
        *("origin-agent-cluster", "referrer-policy"),
    }
    assert dict(headers)["Cross-Origin-Opener-Policy"] == "same-origin"


def test_of_what_a_program_says_a_browser_gets_what_is_about_this_response_and_no_name_that_is_not_known():
    gets = [
        *("Content-Type", "Content-Encoding", "Cache-Control", "Etag", "Link", "Location", "Retry-After", "Vary"),
        *("Access-Control-Allow-Origin", "Permissions-Policy", "X-Own", "Hx-Redirect", "Mcp-Session-Id"),
        *("Sec-Websocket-Accept", "Sec-Websocket-Protocol", "Www-Authenticate", "X-Accel-Buffering"),
    ]
    lacks = [
        *("Sec-Session-Registration", "Secure-Session-Registration", "Sec-Session-Challenge", "Set-Login", "Accept-Ch"),
        *("Critical-Ch", "Origin-Trial", "Use-As-Dictionary", "Speculation-Rules", "Attribution-Reporting-Info"),
        *("Observe-Browsing-Topics", "Expect-Ct", "Reporting-Endpoints", "Alt-Svc", "Activate-Storage-Access"),
        *("Clear-Site-Data", "A-Header-Of-Next-Year", "Sec-Another", "Authentication-Info", "Proxy-Status"),
    ]
    sent = [(name.lower().encode(), b"1") for name in [*gets, *lacks]]

    assert [name for name, value in response_headers(200, sent, 8000) if value == "1"] == gets


def exchange(said: bytes) -> tuple[Exchange, socket.socket]:
    """An exchange with a program that has said all of it already, and the program's end."""
    ours, program = socket.socketpair()
    program.sendall(said)
    program.shutdown(socket.SHUT_WR)
    return Exchange(Tunnel(ours, b""), 8000, 60, lambda: None), program


#: what a program at port 8000 says, and where its page stays
LEADS = [
    ("http://localhost:8000/login", "/login"),
    ("http://LOCALHOST.:8000/login?next=%2Fa#b", "/login?next=%2Fa#b"),
    ("https://127.0.0.1:8000/x", "/x"),
    ("http://127.1.2.3:8000", "/"),
    ("//0.0.0.0:8000/x", "/x"),
    ("http://[::1]:8000/x", "/x"),
    ("http://[::]:8000/x", "/x"),
    ("http://[::ffff:127.0.0.1]:8000/x", "/x"),
    ("http://me@localhost:8000?a=1", "/?a=1"),
    ("http://localhost:8000//evil.example/x", "/.//evil.example/x"),
    ("http://localhost:8000/\\evil.example/x", "/./\\evil.example/x"),
    ("http://localhost:8000/\t/evil.example", "/.//evil.example"),
    *((one, one) for one in ("/login", "login", "?a", "", "https://example.com/", "http://localhost/", "data:,x")),
    *(
        (one, one)
        for one in ("http://localhost:8001/x", "http://localhost:80000/x", "http://localhost:8000.evil.example/")
    ),
    *(
        (one, one)
        for one in ("http://localhost.evil.example:8000/", "http://127.0.0.1.nip.io:8000/", "ftp://localhost:8000/")
    ),
]


@pytest.mark.parametrize(("said", "kept"), LEADS)
def test_an_address_by_which_a_program_names_itself_stays_in_the_preview(said, kept):
    sent = [(name, said.encode("latin-1")) for name in (b"Location", b"Content-Location")]
    found = dict(response_headers(302, sent, 8000))

    assert (found["Location"], found["Content-Location"]) == (kept, kept)


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("5; url=http://localhost:8000/x", "5; url=/x"),
        ("0;URL='http://127.0.0.1:8000/x'", "0;URL='/x'"),
        ('1.5, url = "http://[::1]:8000"', '1.5, url = "/"'),
        ("3, http://0.0.0.0:8000/x", "3, /x"),
        ("5", "5"),
        (
            "5; url=https://example.com/?u=http://localhost:8000/",
            "5; url=https://example.com/?u=http://localhost:8000/",
        ),
    ],
)
def test_a_page_that_loads_another_one_by_itself_stays_in_the_preview(said, kept):
    assert dict(response_headers(200, [(b"Refresh", said.encode())], 8000))["Refresh"] == kept


def test_an_exchange_sends_a_request_and_returns_the_response():
    one, program = exchange(
        b"HTTP/1.1 100 Continue\r\n\r\n"
        b"HTTP/1.1 299 Whatever\r\nTransfer-Encoding: chunked\r\nContent-Length: 9\r\n\r\n"
        b"5\r\nfirst\r\n4\r\nnext\r\n0\r\n\r\n"
    )
    head = one.ask("POST", "/a?b=%2F", [("Host", "h"), ("Content-Length", "4")], [b"bo", b"dy"])

    assert head.line == "299 Unknown"
    assert "Content-Length" not in dict(head.headers)
    assert b"".join(one) == b"firstnext"
    assert program.recv(4096) == b"POST /a?b=%2F HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody"
    one.close(), program.close()


@pytest.mark.parametrize("said", [b"", b"\0\1\2\r\n\r\n", b"HTTP/1.1 200 OK\r\nA: " + b"a" * 70_000, b"HTTP/1.1 200"])
def test_a_program_that_does_not_speak_http_is_unreachable(said):
    one, program = exchange(said)
    with pytest.raises(AgentUnreachable, match="program at this port"):
        one.ask("GET", "/", [("Host", "h")], [])
    one.close(), program.close()


def test_interim_responses_without_end_are_refused():
    interim = b"HTTP/1.1 102 Processing\r\n\r\n"
    one, program = exchange(interim * 100 + b"HTTP/1.1 204 No Content\r\n\r\n")
    assert one.ask("GET", "/", [("Host", "h")], []).status == 204
    one.close(), program.close()

    one, program = exchange(interim * 101)
    with pytest.raises(AgentUnreachable, match="more than 100 interim responses"):
        one.ask("GET", "/", [("Host", "h")], [])
    one.close(), program.close()


def test_a_response_that_ends_early_breaks_off():
    one, program = exchange(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort")
    one.ask("GET", "/", [("Host", "h")], [])
    with pytest.raises(AgentUnreachable):
        b"".join(one)
    one.close(), program.close()


def test_a_body_beyond_its_bound_is_refused(monkeypatch):
    monkeypatch.setattr("agents.previews.MOST_SENT", 3)
    one, program = exchange(b"")
    with pytest.raises(PreviewBodyTooLong):
        one.ask("POST", "/", [("Host", "h"), ("Transfer-Encoding", "chunked")], [b"ab", b"cd"])
    one.close(), program.close()


@pytest.mark.process("a stand-in of an agent server sends a byte at a time")
@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 404 Not Found\r\nContent-Length: 4000\r\n\r\n"], ids=["head", "body"])
def test_a_refusal_of_a_connection_that_comes_a_byte_at_a_time_ends_in_time(monkeypatch, head):
    monkeypatch.setattr(tunnels, "_HEAD", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            connection, _ = server.accept()
            with connection, contextlib.suppress(OSError):
                connection.sendall(head)
                for _ in itertools.repeat(None, 100):
                    connection.sendall(b"x")
                    time.sleep(0.1)

        dripping = threading.Thread(target=drip)
        dripping.start()
        began = time.monotonic()
        with pytest.raises(AgentUnreachable):
            open_tunnel(f"http://127.0.0.1:{server.getsockname()[1]}", "key", "/api/ports", "port")
        assert time.monotonic() - began < 5
        dripping.join()
