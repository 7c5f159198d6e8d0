"""An agent server on real sockets that does to a forwarded call whatever a test wants, and a sandbox that it serves."""

import hashlib
import json
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

from tests.quick import serve
from tests.servers import TIMEOUT

_PIECE = b"0123456789abcdef" * 4096


class Upstream(ThreadingHTTPServer):
    """Responds by the last step of a path; keeps the requests, and which of them were ended by the other side."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), ForwardedHandler)
        self.requests: list[dict] = []
        self.headers: list[tuple[str, str]] = []  #: of every response, beside its length
        self.status = 200
        self.arrived, self.ended, self.go_on = threading.Event(), threading.Event(), threading.Event()
        serve(self)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request, client_address):
        """Ignore a connection that ends during a request: tests provoke it."""


class ForwardedHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Upstream

    def do_GET(self):
        place = urlsplit(self.path)
        query = dict(parse_qsl(place.query, keep_blank_values=True))
        size, digest, body = self.received()
        self.server.requests.append(
            {
                "method": self.command,
                "path": place.path,
                "query": query,
                "headers": dict(self.headers.items()),
                "body": body.decode(errors="replace"),
                "size": size,
                "digest": digest,
            }
        )
        act = getattr(self, place.path.rstrip("/").rpartition("/")[2], self.echo)
        act(query)

    do_POST = do_DELETE = do_GET

    def do_HEAD(self):
        self.server.requests.append({"method": "HEAD", "path": self.path})
        self.send_response(405)
        self.end_headers()

    def received(self) -> tuple[int, str, bytes]:
        """Length, digest and beginning of the body."""
        digest, size, first = hashlib.sha256(), 0, b""
        for piece in self.pieces():
            digest.update(piece)
            size, first = size + len(piece), (first + piece)[:65536]
        return size, digest.hexdigest(), first

    def pieces(self) -> Iterator[bytes]:
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            while length := int(self.rfile.readline(), 16):
                yield self.rfile.read(length)
                self.rfile.readline()
            self.rfile.readline()
        left = int(self.headers.get("Content-Length") or 0)
        while left:
            piece = self.rfile.read(min(left, 65536))
            if not piece:
                self.server.ended.set()
                raise ConnectionError("the body ended early")
            left -= len(piece)
            yield piece

    def head(self, length: int | None) -> None:
        self.send_response(self.server.status)
        for name, value in self.server.headers:
            self.send_header(name, value)
        if length is None:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(length))
        self.end_headers()

    def echo(self, _query):
        raw = json.dumps(self.server.requests[-1]).encode()
        self.head(len(raw))
        self.wfile.write(raw)

    def url(self, query):
        """The URL of VS Code."""
        raw = query["answer"].encode()
        self.head(len(raw))
        self.wfile.write(raw)

    def says(self, query):
        """A refusal with that detail."""
        raw = json.dumps({"detail": query["detail"]}).encode()
        self.head(len(raw))
        self.wfile.write(raw)

    def download(self, query):
        """So many bytes, as long as the other side takes them."""
        left = int(query["size"])
        self.head(left)
        try:
            while left:
                piece = _PIECE[:left]
                self.wfile.write(piece)
                left -= len(piece)
        except OSError:
            self.server.ended.set()

    def dies(self, query):
        """A part of a response, and the end of the connection."""
        self.head(1_000_000 if query.get("framing") == "length" else None)
        self.wfile.write(b"x" * 1000 if query.get("framing") == "length" else b"3e8\r\n" + b"x" * 1000 + b"\r\n")
        self.wfile.flush()
        self.server.arrived.set()
        self.server.go_on.wait(TIMEOUT)
        self.close_connection = True

    def refuses(self, _query):
        """No response at all."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.connection.close()
        self.close_connection = True

    def waits(self, _query):
        """Nothing, until the other side ends the connection or the test lets it go on."""
        self.server.arrived.set()
        while not self.server.go_on.is_set():
            readable, _, _ = select.select([self.connection], [], [], 0.05)
            if readable and not self.connection.recv(1, socket.MSG_PEEK):
                self.server.ended.set()
                self.close_connection = True
                return
        self.echo({})

    def log_message(self, *args):
        pass


@contextmanager
def upstream_agent() -> Iterator[Upstream]:
    agent = Upstream()
    try:
        yield agent
    finally:
        agent.go_on.set()
        agent.shutdown()
        agent.server_close()
