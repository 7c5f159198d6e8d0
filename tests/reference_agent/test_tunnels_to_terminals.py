"""A terminal of the bundled agent, on a connection that it has switched to."""

import json
import re
import signal
import socket
import time
from pathlib import Path

import pytest

from reference_agent.tunnels import MOST_TYPED
from tests.reference_agent.program import KEY, ReferenceAgent
from tests.servers import TIMEOUT, wait_until

pytestmark = pytest.mark.process("starts an agent server, and shells in it")


@pytest.fixture(scope="module")
def agent(tmp_path_factory):
    agent = ReferenceAgent(tmp_path_factory.mktemp("terminals"))
    yield agent
    agent.kill()


@pytest.fixture
def opened(agent):
    """Opens terminals, whose connections end with the test."""
    terminals = []
    yield lambda *path: terminals.append(ReachedTerminal(agent, *path)) or terminals[-1]
    for terminal in terminals:
        terminal.socket.close()


class ReachedTerminal:
    """The server's end of a terminal."""

    def __init__(self, agent, path="/api/terminal"):
        place = agent.client.base_url
        self.socket = socket.create_connection((place.host, place.port), TIMEOUT)
        head = f"GET {path} HTTP/1.1\r\nHost: agent\r\nX-Session-API-Key: {KEY}\r\n"
        self.socket.sendall(f"{head}Connection: Upgrade\r\nUpgrade: terminal\r\n\r\n".encode())
        self.read = b""

    def reads(self, wanted: bytes) -> bytes:
        """What it prints up to a regular expression."""
        deadline = time.monotonic() + TIMEOUT
        while not re.search(wanted, self.read):
            piece = self.socket.recv(4096)
            assert piece, self.read
            assert time.monotonic() < deadline
            self.read += piece
        found, self.read = self.read, b""
        return found

    def types(self, text: str) -> None:
        self.socket.sendall(json.dumps({"input": text}).encode() + b"\n")


def test_a_terminal_has_the_size_that_was_asked_for_and_the_one_that_follows(opened):
    terminal = opened("/api/terminal?cols=101&rows=31")
    terminal.reads(b"101 Switching Protocols")

    terminal.types("stty size; test -t 0 && echo a-$((6*7))\r")
    assert b"31 101" in terminal.reads(b"a-42")

    terminal.socket.sendall(b'{"cols": 60, "rows": 20}\n')
    terminal.types("stty size\r")
    terminal.reads(b"20 60")


def test_the_end_of_the_connection_ends_what_runs_in_the_terminal(opened):
    terminal = opened()
    terminal.reads(b"101 Switching Protocols")
    terminal.types("sleep 300 & echo pid-$!-\r")
    pid = int(re.search(rb"pid-(\d+)-", terminal.reads(rb"pid-\d+-"))[1])

    terminal.socket.shutdown(socket.SHUT_RDWR)

    wait_until(lambda: not Path(f"/proc/{pid}").exists(), "the end of what ran")


def test_the_end_of_the_shell_ends_the_connection(opened):
    terminal = opened()
    terminal.reads(b"101 Switching Protocols")
    terminal.types("exit\r")

    while terminal.socket.recv(4096):
        pass


def test_what_is_typed_is_written_into_no_file(opened):
    terminal = opened()
    terminal.reads(b"101 Switching Protocols")

    terminal.types("echo history-in-[$HISTFILE][$LESSHISTFILE]\r")
    terminal.reads(rb"history-in-\[\]\[-\]")


def test_a_plain_request_for_a_terminal_is_told_what_is_missing(agent):
    response = agent.client.get("/api/terminal")

    assert response.status_code == 426
    assert "Upgrade: terminal" in response.json()["detail"]


#: lines of a paste that the terminal has no room for, as the report had them
LINES = [f"line {number:04} {'x' * 58}" for number in range(1, 1001)]


def pasted(terminal, text):
    """Types a text as the console does."""
    for at in range(0, len(text), 4096):
        terminal.types(text[at : at + 4096])


def test_every_line_of_a_paste_arrives_whenever_the_program_reads(opened, tmp_path):
    terminal, file = opened(), tmp_path / "pasted"
    terminal.reads(b"101 Switching Protocols")
    terminal.types(f"stty -echo; echo be''gins; sleep 9; head -n {len(LINES)} >{file}; echo has-$((6*7))\r")
    terminal.reads(b"begins")

    pasted(terminal, "\r".join(LINES) + "\r")
    terminal.reads(b"has-42")

    assert file.read_text().splitlines() == LINES


def test_what_is_too_much_to_wait_is_told_and_what_waited_arrives(opened, tmp_path):
    terminal, file, go_on = opened(), tmp_path / "pasted", tmp_path / "go on"
    terminal.reads(b"101 Switching Protocols")
    number = 2 * MOST_TYPED // 4096
    waits = f"until [ -e '{go_on}' ]; do sleep 0.1; done"
    terminal.types(f"stty -echo; echo be''gins; {waits}; cat >{file}; echo has-$((6*7))\r")
    terminal.reads(b"begins")

    for at in range(number):
        terminal.types(f"{at:04} ".ljust(4095, ".") + "\r")
    told = terminal.reads(rb"bytes were not typed: .* at most 1,048,576 bytes wait")
    go_on.touch()
    terminal.types("\x04")

    told += terminal.reads(b"has-42")
    refused = [int(count.replace(b",", b"")) for count in re.findall(rb"([\d,]+) bytes were not typed", told)]
    arrived = file.read_text().split("\n")[:-1]
    assert [int(line[:4]) for line in arrived] == list(range(len(arrived)))
    assert len(arrived) >= MOST_TYPED // 4096
    assert 4096 * len(arrived) + sum(refused) == 4096 * number


@pytest.mark.parametrize("count", [250, 4000])  # what Linux takes without a program that reads it, and more
def test_a_key_that_interrupts_reaches_a_program_that_reads_nothing(opened, count):
    terminal = opened()
    terminal.reads(b"101 Switching Protocols")
    terminal.types("sh -c 'echo be\"\"gins; exec sleep 300'\r")
    terminal.reads(b"begins")
    pasted(terminal, "echo never-$((6*7))\r" * count)
    time.sleep(0.5)  # until as much of it as fits is on the way to the program

    terminal.types("\x03")

    terminal.reads(b"the program had not read, was dropped")
    terminal.types("echo again-$((6*7))\r")
    assert b"never-42" not in terminal.reads(b"again-42")


def test_a_key_that_interrupts_does_so_where_a_script_began_the_server_in_the_background(tmp_path):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        agent = ReferenceAgent(tmp_path)
    finally:
        signal.signal(signal.SIGINT, before)
    try:
        terminal = ReachedTerminal(agent)
        terminal.reads(b"101 Switching Protocols")
        terminal.types("sh -c 'echo be\"\"gins; exec sleep 300'\r")
        terminal.reads(b"begins")

        terminal.types("\x03")

        terminal.types("echo again-$((6*7))\r")
        terminal.reads(b"again-42")
        terminal.socket.close()
    finally:
        agent.kill()


def test_a_terminal_changes_its_size_while_what_is_typed_waits(opened):
    terminal = opened()
    terminal.reads(b"101 Switching Protocols")
    terminal.types("sh -c 'echo be\"\"gins; for n in $(seq 50); do stty size; sleep 0.1; done'\r")
    terminal.reads(b"begins")
    pasted(terminal, ": not read\r" * 7000)

    terminal.socket.sendall(b'{"cols": 61, "rows": 21}\n')

    terminal.reads(b"21 61")
