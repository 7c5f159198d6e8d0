"""The console behind a proxy that serves the server below a path and strips it, in a browser; and a socket there."""

import contextlib
import socket
import socketserver
import threading
from uuid import uuid4

import httpx
import pytest
from websockets.sync.client import connect

from tests.servers import agent_server, store_server

pytestmark = pytest.mark.browser("shows the console in a browser, and starts a server and a proxy")


class Strip(socketserver.BaseRequestHandler):
    """One request of one connection: the head as a proxy at `/agents` sends it, and then both ways what comes."""

    def handle(self) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            if not (piece := self.request.recv(65_536)):
                return
            head += piece
        line, _, rest = head.partition(b"\r\n")
        if b" /agents/" not in line:
            self.request.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            return
        added = self.server.says + (b"" if b"Upgrade:" in rest else b"Connection: close\r\n")
        kept = rest.replace(b"Connection: keep-alive\r\n", b"")
        with socket.create_connection(("127.0.0.1", self.server.upstream)) as upstream:
            upstream.sendall(line.replace(b" /agents/", b" /", 1) + b"\r\n" + added + kept)
            threading.Thread(target=_pipe, args=(self.request, upstream), daemon=True).start()
            _pipe(upstream, self.request)


def _pipe(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while piece := source.recv(65_536):
            target.sendall(piece)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


class ConsoleProxy(socketserver.ThreadingTCPServer):
    daemon_threads, block_on_close = True, False


@contextlib.contextmanager
def proxy(upstream: int, says: bytes):
    """The address of the server behind a proxy that adds these headers."""
    with ConsoleProxy(("127.0.0.1", 0), Strip) as server:
        server.upstream, server.says = upstream, says
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}/agents"
        server.shutdown()


@pytest.fixture(scope="module")
def port(tmp_path_factory):
    """The port of a server that believes a proxy of this machine."""
    folder = tmp_path_factory.mktemp("proxied")
    with (
        store_server(folder) as (url, _),
        agent_server(folder / "log", REDIS_URL=url, TRUSTED_PROXIES="127.0.0.1") as (client, _),
    ):
        yield client.base_url.port


@pytest.mark.parametrize("says", [b"", b"X-Forwarded-Prefix: /agents\r\n"], ids=["says nothing", "says so"])
def test_the_console_is_live_below_the_path_of_a_proxy_whether_or_not_it_says_its_path(port, browsers, says):
    with proxy(port, says) as address:
        browser = browsers(base_url=f"http://{address}")
        browser.driver.get(f"http://{address}/")

        browser.says("Inbox")
        browser.wait(lambda: browser.find("connection").get_attribute("data-state") == "live", "a live inbox")
        assert browser.driver.current_url.startswith(f"http://{address}/console/")
        for place, words in (("conversations", "Conversations"), ("status", "Status"), ("start", "Start")):
            browser.go(place)
            browser.says(words)
        assert browser.errors() == []


def test_the_docs_page_asks_below_the_path_that_a_proxy_says(port, browsers):
    with proxy(port, b"X-Forwarded-Prefix: /agents\r\n") as address:
        browser = browsers(base_url=f"http://{address}")
        browser.driver.get(f"http://{address}/docs")

        browser.says("/api/conversations")
        [server] = browser.script("return window.ui.specSelectors.servers().toJS()")
        assert server["url"] == "/agents"
        assert browser.errors() == []


def test_a_socket_opens_below_the_path_of_a_proxy(port):
    conversation = str(uuid4())
    with proxy(port, b"X-Forwarded-Prefix: /agents\r\n") as address:
        httpx.post(f"http://{address}/api/conversations", json={"conversation_id": conversation}).raise_for_status()
        with connect(f"ws://{address}/sockets/events/{conversation}?resend_mode=all") as opened:
            assert "conversation" in opened.recv(timeout=30)
