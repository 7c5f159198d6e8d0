"""The nginx of docs/access.md, with a stand-in for oauth2-proxy: whom it lets through, and what a client cannot say.

Limitation: oauth2-proxy itself is not run; the stand-in has its address and its two headers.
"""

import contextlib
import shutil
import socket
import subprocess
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from uuid import uuid4

import httpx
import pytest

from blueprints.people import SECRET_HEADER
from tests.people import SECRET
from tests.quick import serve
from tests.servers import PROJECT, agent_server, free_port, running, store_server, wait_until
from tests.shared import ADMIN

pytestmark = [
    pytest.mark.process("starts nginx and a server"),
    pytest.mark.skipif(not shutil.which("nginx"), reason="nginx is not installed: apt-get install nginx"),
]

ADA, SESSION = "ada@example.org", {"Cookie": "_oauth2_proxy=ada"}


class _SignsIn(BaseHTTPRequestHandler):
    """What oauth2-proxy answers: `/oauth2/auth` says who has a session, any other page leads to the provider."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.path != "/oauth2/auth":
            self.send_response(302)
            self.send_header("Location", "https://id.example.org/authorize")
        elif self.headers.get("Cookie") == SESSION["Cookie"]:
            self.send_response(202)
            self.send_header("X-Auth-Request-Email", ADA)
            self.send_header("X-Auth-Request-Groups", "payments")
        else:
            self.send_response(401)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def nginx(folder, server, stand_in):
    """The nginx of the page, on a port of this machine."""
    page, port = (PROJECT / "docs/access.md").read_text(), free_port()
    config = page.partition("```nginx\n")[2].partition("```")[0]
    for text, here in (
        ("listen 443 ssl;", f"listen 127.0.0.1:{port};"),
        ("127.0.0.1:4180", f"127.0.0.1:{stand_in}"),
        ("10.0.0.7:8000", f"127.0.0.1:{server}"),
        ("the value of PERSON_PROXY_SECRET", SECRET),
    ):
        assert text in config
        config = config.replace(text, here)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temporary = "".join(f"{kind}_temp_path {folder}/{kind};" for kind in kinds)
    http = f"http {{ access_log off; {temporary} {config} }}"
    (folder / "nginx.conf").write_text(f"daemon off; pid {folder}/pid; error_log stderr; events {{}} {http}")
    with (
        running(["nginx", "-p", str(folder), "-c", str(folder / "nginx.conf")], stderr=subprocess.DEVNULL),
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=20) as client,
    ):
        wait_until(lambda: _answers(client), "nginx")
        yield client


def _answers(client):
    with contextlib.suppress(httpx.ConnectError):
        return client.get("/alive").status_code


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    folder = tmp_path_factory.mktemp("nginx")
    settings = {
        "AUTH": "keys",
        "SESSION_API_KEY": ADMIN,
        "PERSON_HEADER": "X-Forwarded-User",
        "PERSON_GROUPS_HEADER": "X-Forwarded-Groups",
        "PERSON_PROXIES": "127.0.0.1",
        "PERSON_PROXY_SECRET": SECRET,
        "TRUSTED_PROXIES": "127.0.0.1",
        "WEB_CONCURRENCY": "1",
    }
    stand_in = ThreadingHTTPServer(("127.0.0.1", 0), _SignsIn)
    serve(stand_in)
    with (
        contextlib.ExitStack() as stack,
        store_server(folder) as (url, _),
        agent_server(folder / "log", REDIS_URL=url, **settings) as (server, _),
        nginx(folder, server.base_url.port, stand_in.server_port) as found,
    ):
        stack.callback(stand_in.server_close)
        stack.callback(stand_in.shutdown)
        for role in ("ask", "approve"):
            body, shown = {"role": role, "group": "payments"}, {"Authorization": f"Bearer {ADMIN}"}
            assert server.post("/api/v1/grants", json=body, headers=shown).status_code == 201
        yield found


def me(client, **headers):
    response = client.get("/api/v1/users/me", headers={**SESSION, **headers})
    assert response.status_code == 200, response.text
    return response.json()


def test_who_is_not_signed_in_is_led_to_the_provider_whatever_they_send(client):
    spoofed = {"X-Forwarded-User": "root", SECRET_HEADER: SECRET, "Authorization": f"Bearer {ADMIN}"}
    for headers in ({}, spoofed, {"X-Auth-Request-Email": "root"}):
        response = client.get("/api/v1/users/me", headers=headers)
        assert (response.status_code, response.headers["Location"]) == (302, "https://id.example.org/authorize")


def test_who_is_signed_in_is_that_person_with_their_groups(client):
    found = me(client)
    assert (found["person"], found["groups"]) == (ADA, ["payments"])
    assert "approve" in found["scopes"]


@pytest.mark.parametrize(
    "spoofed",
    [
        [("X-Forwarded-User", "root")],
        [("X-Forwarded-User", "root"), ("X-Forwarded-User", "admin")],
        [("x-forwarded-user", "root"), ("X-Forwarded-Groups", "admins")],
        [("X_Forwarded_User", "root"), ("X_Forwarded_Groups", "admins")],
        [("X-Auth-Request-Email", "root"), ("X-Auth-Request-Groups", "admins")],
        [(SECRET_HEADER, "wrong")],
        [("Authorization", f"Bearer {ADMIN}")],
        [("X-Session-API-Key", ADMIN)],
        [("X-Forwarded-For", "10.1.2.3")],
    ],
)
def test_a_client_says_nothing_of_who_it_is(client, spoofed):
    response = client.get("/api/v1/users/me", headers=[*SESSION.items(), *spoofed])
    assert response.status_code == 200, response.text
    found = response.json()
    assert (found["person"], found["groups"], "admin" in found["scopes"]) == (ADA, ["payments"], False)


def test_what_has_a_body_and_what_is_a_socket_pass(client):
    identity = str(uuid4())
    body = {"conversation_id": identity, "tags": {"long": "x" * 100}}
    assert client.post("/api/conversations", json=body, headers=SESSION).status_code == 201
    head = [
        f"GET /sockets/events/{identity} HTTP/1.1",
        f"Host: 127.0.0.1:{client.base_url.port}",
        *(f"{name}: {value}" for name, value in SESSION.items()),
        *("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"),
        *("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "", ""),
    ]
    with socket.create_connection(("127.0.0.1", client.base_url.port), timeout=20) as one:
        one.sendall("\r\n".join(head).encode())
        assert one.recv(4096).startswith(b"HTTP/1.1 101 ")
