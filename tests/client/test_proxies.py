"""A server on loopback is reached directly, whatever proxy the environment names."""

import asyncio
import queue
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from agent_server_client import AgentServerError, AsyncClient, Client
from agent_server_client.cli import agentctl
from click.testing import CliRunner

from admin import mcp_server
from admin.audit import ExportUnreadable, _lines
from tests.servers import running

pytestmark = pytest.mark.process("listens on loopback")

NO_SERVER = "127.0.0.1:1"
PROXIES = [f"http://{NO_SERVER}", f"socks5://{NO_SERVER}", "nonsense://x"]

#: the paths of requests that arrived
ARRIVED = queue.Queue()


class ProxyServer(BaseHTTPRequestHandler):
    def do_GET(self):
        ARRIVED.put(self.path)
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    do_POST = do_GET

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def port():
    with ThreadingHTTPServer(("127.0.0.1", 0), ProxyServer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@pytest.fixture(params=PROXIES)
def proxy(request, monkeypatch):
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("ALL_PROXY", "HTTP_PROXY", "http_proxy", "all_proxy"):
        monkeypatch.setenv(name, request.param)
    return request.param


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0", "[::ffff:127.0.0.1]"])
def test_the_clients_reach_loopback_directly(port, proxy, host):
    with Client(f"http://{host}:{port}", retry_seconds=0) as client:
        assert client.get("/x") == {}

    async def ask():
        async with AsyncClient(f"http://{host}:{port}", retry_seconds=0) as client:
            return await client.get("/x")

    assert asyncio.run(ask()) == {}


def test_the_mcp_server_and_the_audit_reach_loopback_directly(port, proxy):
    assert mcp_server.ServerApi(f"http://127.0.0.1:{port}", "").ask("GET", "/x") == {}
    with _lines(f"http://127.0.0.1:{port}/x") as lines:
        assert b"".join(lines) == b"{}"


@pytest.mark.parametrize("proxy", PROXIES[1:], indirect=True)
def test_a_proxy_that_cannot_be_used_is_one_sentence(proxy):
    with pytest.raises(AgentServerError, match="proxy"):
        Client("http://agents.invalid")
    with pytest.raises(mcp_server.ToolError, match="proxy"):
        mcp_server.ServerApi("http://agents.invalid", "")
    with pytest.raises(ExportUnreadable, match="proxy"), _lines("http://agents.invalid/x"):
        pass
    result = CliRunner().invoke(agentctl, ["status"], env={"AGENT_SERVER_URL": "http://agents.invalid"})
    assert result.exit_code == 3
    assert "proxy" in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize("url", ["http://[::1", "http://127.0.0.1:port"])
def test_a_url_that_cannot_be_read_is_one_sentence_about_the_url(url):
    for client in (Client, AsyncClient):
        with pytest.raises(AgentServerError, match="URL of the server"):
            client(url)


@pytest.mark.parametrize("example", ["demo.py", "aais_envelopes.py", "echo_agent.py"])
def test_the_examples_reach_loopback_directly(port, proxy, example):
    url = f"http://127.0.0.1:{port}"
    words = [url] if example == "demo.py" else ["conversation", url]
    while not ARRIVED.empty():
        ARRIVED.get()
    with running([sys.executable, f"docs/examples/{example}", *words], stderr=subprocess.DEVNULL):
        assert ARRIVED.get(timeout=30).startswith(("/api", "/sockets"))
