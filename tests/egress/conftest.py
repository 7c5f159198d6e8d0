"""A proxy that runs on threads, a sandbox that speaks to it as its launcher has it, and servers that it reaches."""

import json
import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from egress.gate import Gate
from egress.proxy import Proxy
from egress.resolver import Resolver
from settings.specs import Specs

#: names that lead to the servers of the tests, and one that leads into a private network
NAMES = ("allowed.example", "plain.example", "other.example")


def certificate(folder: Path) -> tuple[str, str]:
    """Files of a certificate that signed itself, for those names and localhost, and of its key."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    made = made.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    names = [x509.DNSName(one) for one in ("localhost", *NAMES)]
    made = made.add_extension(x509.SubjectAlternativeName(names), critical=False)
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    shown, private = folder / "certificate.pem", folder / "key.pem"
    shown.write_bytes(made.sign(key, SHA256()).public_bytes(Encoding.PEM))
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return str(shown), str(private)


#: a response that nobody asked for
FORGOTTEN = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nforgotten"


class _Echo(BaseHTTPRequestHandler):
    """Says what it was asked; `/redirect` leads elsewhere, `/stream` sends its second half when it may.

    `/unread` reads no body of a request and ignores `Connection: close`; `/more`, `/204` and `/304` are followed by a
    second response that nobody asked for.
    """

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    go_on: threading.Event
    paths: list[str]

    def do_GET(self) -> None:
        self.paths.append(self.path)
        body = (
            ""
            if self.path.endswith("/unread")
            else self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        )
        if self.path.endswith("/unread"):
            self.close_connection = False
        if self.path.endswith("/redirect"):
            self.send_response(302)
            self.send_header("Location", "https://other.example/x")
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif self.path.endswith("/stream"):
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"6\r\nfirst\n\r\n")
            self.go_on.wait(30)
            self.wfile.write(b"7\r\nsecond\n\r\n0\r\n\r\n")
        elif self.path.endswith("/broken"):
            self.send_response(200)
            self.send_header("Content-Length", "100")
            self.end_headers()
            self.wfile.write(b"half")
            self.close_connection = True
        elif self.path.endswith(("/204", "/304")):
            self.send_response(int(self.path[-3:]))
            self.end_headers()
            self.wfile.write(FORGOTTEN)
        else:
            said = json.dumps(
                {"path": self.path, "headers": {k.lower(): v for k, v in self.headers.items()}, "body": body}
            )
            self.send_response(200)
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(said.encode())
            if self.path.endswith("/more"):
                self.wfile.write(FORGOTTEN)

    do_POST = do_HEAD = do_GET

    def log_message(self, *_: object) -> None:
        pass


class _EgressServer(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """A connection that the proxy broke off is no news."""


@dataclass
class Outside:
    """What runs here: ports of a server with TLS and of a plain one, and the file of the certificate."""

    tls: int
    plain: int
    certificate: str
    go_on: threading.Event = field(default_factory=threading.Event)
    paths: list[str] = field(default_factory=list)  #: of all requests that the servers have read


@pytest.fixture(scope="module")
def outside(tmp_path_factory) -> Iterator[Outside]:
    shown, private = certificate(tmp_path_factory.mktemp("outside"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(shown, private)
    go_on, paths = threading.Event(), list[str]()
    echo = type("Echo", (_Echo,), {"go_on": go_on, "paths": paths})
    servers = [_EgressServer(("127.0.0.1", 0), echo) for _ in range(2)]
    servers[0].socket = context.wrap_socket(servers[0].socket, server_side=True, do_handshake_on_connect=False)
    for server in servers:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield Outside(servers[0].server_port, servers[1].server_port, shown, go_on, paths)
    go_on.set()
    for server in servers:
        server.shutdown()
        server.server_close()


@dataclass
class EgressSandbox:
    """A sandbox's end of the way out."""

    address: tuple[str, int]
    key: str
    proxy: Proxy
    id: str = ""

    def connect(self) -> socket.socket:
        """A connection on which the launcher has written the key."""
        client = socket.create_connection(self.address, 10)
        client.sendall(f"{self.key}\n".encode())
        return client

    def said(self, request: str | bytes) -> str:
        """All that comes back to some bytes, until the proxy ends the connection."""
        with self.connect() as client:
            client.sendall(request.encode("latin-1") if isinstance(request, str) else request)
            client.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: client.recv(65536), b"")).decode("latin-1")

    def get(self, target: str, *headers: str) -> str:
        lines = [f"GET {target} HTTP/1.1", "Host: x", *headers, "Connection: close"]
        return self.said("\r\n".join(lines) + "\r\n\r\n")

    def tunnel(self, target: str) -> tuple[socket.socket, str]:
        """A connection that has asked for a tunnel, and the head of the response."""
        client = self.connect()
        client.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
        head = b""
        while b"\r\n\r\n" not in head and (piece := client.recv(65536)):
            head += piece
        return client, head.decode()


SPECS = """\
[[spec]]
id = "named"
command = ["run"]
created_at = 2026-11-25T00:00:00Z
egress = "named"
presets = []
hosts = ["allowed.example:{tls}", "plain.example:{plain}", "private.example", "other.example:{tls}"]

[[spec.service]]
name = "model"
base_url = "https://localhost:{tls}/v1"
headers = {{ Authorization = "Bearer the-true-key" }}

[[spec.service]]
name = "distrusted"
base_url = "https://127.0.0.1:{tls}/v1"

[[spec.service]]
name = "near"
base_url = "http://127.0.0.1:{plain}/base"
headers = {{ X-Key = "the-other-key" }}

[[spec.service]]
name = "silent"
base_url = "http://127.0.0.1:1/v1"

[[spec.service]]
name = "user"
base_url = "http://127.0.0.1:{plain}/user"
headers = {{ Authorization = "token {{secrets.GIT}}", X-Also = "{{secrets.ALSO}}" }}

[[spec]]
id = "open"
command = ["run"]
created_at = 2026-11-25T00:00:00Z
"""


@pytest.fixture(scope="module")
def sandbox(store, outside, tmp_path_factory) -> Iterator[EgressSandbox]:
    """A sandbox of a spec whose way out is by name."""
    file = tmp_path_factory.mktemp("specs") / "specs.toml"
    file.write_text(SPECS.format(tls=outside.tls, plain=outside.plain))
    store.sandboxes.beat("h", "supervisor")
    started = store.sandboxes.start("named", host="h")
    key = store.sandboxes.begin(started.id, "h", "supervisor", "process")

    def look_up(name: str) -> list[str]:
        return ["10.0.0.1", "169.254.169.254"] if name == "private.example" else ["127.0.0.1"]

    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("SSL_CERT_FILE", outside.certificate)
        resolver = Resolver(look_up=look_up, is_open=lambda address, _: address == "127.0.0.1", own=tuple)
        proxy = Proxy(Gate(store, Specs.load(str(file))), resolver)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=proxy.serve, args=(listener,), daemon=True).start()
        yield EgressSandbox(listener.getsockname(), key, proxy, started.id)
        listener.shutdown(socket.SHUT_RDWR)
    proxy.by_name.close()
    proxy.to_services.close()


@pytest.fixture(scope="module")
def neighbour(store, sandbox) -> EgressSandbox:
    """Another sandbox of the same spec, behind the same proxy."""
    store.sandboxes.beat("h", "supervisor")
    started = store.sandboxes.start("named", host="h")
    return EgressSandbox(
        sandbox.address, store.sandboxes.begin(started.id, "h", "supervisor", "process"), sandbox.proxy, started.id
    )
