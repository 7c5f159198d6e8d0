"""Ports of the bundled agent's sandbox: which it lists, and connections to one."""

import socket
import subprocess
import sys

import pytest

from tests.reference_agent.program import KEY, ReferenceAgent
from tests.servers import TIMEOUT, free_port, wait_until

pytestmark = pytest.mark.process("starts an agent server, and a program that listens")

ECHO = (
    "import socket, sys\n"
    "listener = socket.create_server(('127.0.0.1', int(sys.argv[1])))\n"
    "while True:\n"
    "    one, _ = listener.accept()\n"
    "    while data := one.recv(4096): one.sendall(data)\n"
    "    one.close()\n"
)


@pytest.fixture(scope="module")
def mark(tmp_path_factory):
    return str(tmp_path_factory.mktemp("sandbox"))


@pytest.fixture(scope="module")
def agent(tmp_path_factory, mark):
    agent = ReferenceAgent(tmp_path_factory.mktemp("ports"), AGENT_SANDBOX=mark)
    yield agent
    agent.kill()


@pytest.fixture
def listens():
    """Starts programs that listen, each with the mark of a sandbox; returns the port."""
    programs = []

    def start(mark: str) -> int:
        port = free_port()
        programs.append(subprocess.Popen([sys.executable, "-c", ECHO, str(port)], env={"AGENT_SANDBOX": mark}))
        return port

    yield start
    for program in programs:
        program.kill()
        program.wait()


def asked(agent, port, upgrade="tcp") -> tuple[socket.socket, bytes]:
    """A connection that has asked for a port, and the first bytes of the response."""
    place = agent.client.base_url
    connection = socket.create_connection((place.host, place.port), TIMEOUT)
    head = f"GET /api/ports/{port} HTTP/1.1\r\nHost: agent\r\nX-Session-API-Key: {KEY}\r\n"
    connection.sendall(f"{head}Connection: Upgrade\r\nUpgrade: {upgrade}\r\n\r\n".encode())
    return connection, connection.recv(4096)


def test_a_port_of_the_sandbox_is_listed_and_carries_bytes_both_ways(agent, listens, mark):
    port = listens(mark)
    wait_until(lambda: port in agent.client.get("/api/ports").json()["ports"], "the port")
    assert "python" in agent.client.get("/api/ports").json()["programs"][str(port)]

    connection, head = asked(agent, port)
    with connection:
        assert head.startswith(b"HTTP/1.1 101 ")
        for said in (b"one", b"x" * 100_000):
            connection.sendall(said)
            found = b""
            while len(found) < len(said):
                found += connection.recv(65536)
            assert found == said
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1) == b""


def test_a_port_of_another_sandbox_on_the_same_loopback_is_refused(agent, listens, mark):
    other, own = listens("/another/sandbox"), listens(mark)
    wait_until(lambda: own in agent.client.get("/api/ports").json()["ports"], "the port")

    def refused() -> bool:
        connection, head = asked(agent, other)
        connection.close()
        return head.startswith(b"HTTP/1.1 403 ")

    wait_until(refused, "a refusal of what listens by then")
    assert other not in agent.client.get("/api/ports").json()["ports"]


@pytest.mark.parametrize(("port", "status"), [(80, 422), (65536, 422), (9, 422)])
def test_a_port_that_is_none_is_refused(agent, port, status):
    connection, head = asked(agent, port)
    connection.close()
    assert head.startswith(f"HTTP/1.1 {status} ".encode())


def test_a_port_at_which_nothing_listens_says_so(agent):
    port = free_port()
    connection, head = asked(agent, port)
    connection.close()
    assert head.startswith(b"HTTP/1.1 409 ")
    assert agent.client.get(f"/api/ports/{port}").status_code == 426


def test_the_agent_servers_own_port_is_refused_and_not_listed(agent):
    own = agent.client.base_url.port
    connection, head = asked(agent, own)
    connection.close()
    assert head.startswith(b"HTTP/1.1 403 ")
    assert own not in agent.client.get("/api/ports").json()["ports"]


def test_no_port_is_opened_without_the_key(agent):
    assert agent.client.get("/api/ports", headers={"X-Session-API-Key": "wrong"}).status_code == 401
