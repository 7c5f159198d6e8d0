"""The WebSocket protocol below the conversation: frames, bounds and the handshake, over raw connections."""

import base64
import os
import signal
import socket
import struct
from contextlib import contextmanager, suppress
from threading import Event, Thread

import httpx
import pytest

from blueprints.websocket import MOST_FRAGMENTS
from tests.servers import TIMEOUT, agent_server, store_server, wait_until

pytestmark = pytest.mark.process("opens sockets to a real server")

TEXT, CONTINUATION, CLOSE, PING, PONG = 0x1, 0x0, 0x8, 0x9, 0xA


@pytest.fixture
def conversation(server, conversation):
    server.post("/api/conversations", json={"conversation_id": conversation})
    return conversation


def frame(opcode: int, payload: bytes = b"", *, final: bool = True) -> bytes:
    """A client's frame; the mask is all zero, so that the payload stays as it is."""
    size = bytes([0x80 | len(payload)]) if len(payload) < 126 else b"\xfe" + struct.pack("!H", len(payload))
    return bytes([0x80 * final | opcode]) + size + bytes(4) + payload


class RawSocket:
    """A connection whose handshake is sent; frames are read one by one."""

    def __init__(self, server: httpx.Client, conversation: str, *more: str) -> None:
        self.connection = socket.create_connection((server.base_url.host, server.base_url.port), TIMEOUT)
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [
            f"GET /sockets/events/{conversation} HTTP/1.1",
            "Host: localhost",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Key: {key}",
            "Sec-WebSocket-Version: 13",
            *more,
        ]
        self.connection.sendall("\r\n".join([*lines, "", ""]).encode("latin-1"))
        self.stream = self.connection.makefile("rb")

    def head(self) -> list[bytes]:
        """The lines of the response to the handshake."""
        lines = []
        while line := self.stream.readline().strip():
            lines.append(line)
        return lines

    def receive(self) -> tuple[int, bytes]:
        """The next frame: its opcode and its payload."""
        first, size = self.stream.read(2)
        if size > 125:
            size = int.from_bytes(self.stream.read(2 if size == 126 else 8))
        return first & 0xF, self.stream.read(size)

    def receive_until(self, opcode: int) -> bytes:
        """The payload of the next frame of that opcode."""
        found, payload = self.receive()
        while found != opcode:
            found, payload = self.receive()
        return payload

    def closed_with(self) -> tuple[int, str]:
        payload = self.receive_until(CLOSE)
        return int.from_bytes(payload[:2]), payload[2:].decode()


@contextmanager
def open_socket(server, conversation, *more):
    opened = RawSocket(server, conversation, *more)
    with opened.connection, opened.stream:
        yield opened


def send_in_the_background(connection: socket.socket, data: bytes) -> None:
    """Send all of it, or as much as the server takes before it closes the connection."""

    def send() -> None:
        with suppress(OSError):
            connection.sendall(data)

    Thread(target=send, daemon=True).start()


@pytest.mark.parametrize("payload", [b"x", b""], ids=["one byte each", "empty"])
def test_twenty_thousand_fragments_of_a_message_close_its_socket_with_1009(server, conversation, payload):
    with open_socket(server, conversation) as opened:
        assert opened.head()[0].startswith(b"HTTP/1.1 101 ")
        first = frame(TEXT, payload, final=False)
        send_in_the_background(opened.connection, first + frame(CONTINUATION, payload, final=False) * 20_000)

        assert opened.closed_with() == (1009, f"A message may have at most {MOST_FRAGMENTS} fragments")
    assert server.get("/alive").status_code == 200


def test_a_message_of_the_maximum_number_of_fragments_is_accepted(server, conversation):
    text = b'{"content": "' + b"x" * MOST_FRAGMENTS
    parts = [text[at : at + 1] for at in range(MOST_FRAGMENTS - 1)]
    with open_socket(server, conversation) as opened:
        opened.head()
        opened.connection.sendall(frame(TEXT, parts[0], final=False))
        for part in parts[1:]:
            opened.connection.sendall(frame(CONTINUATION, part, final=False))
        opened.connection.sendall(frame(CONTINUATION, b'"}'))

        while b"MessageEvent" not in (payload := opened.receive()[1]):
            pass
    assert b"x" * (MOST_FRAGMENTS - 14) in payload


def test_a_ping_within_a_message_gets_a_pong_and_is_no_fragment(server, conversation):
    with open_socket(server, conversation) as opened:
        opened.head()
        opened.connection.sendall(frame(TEXT, b'{"content"', final=False))
        for number in range(MOST_FRAGMENTS + 1):
            opened.connection.sendall(frame(PING, b"%d" % number))
        assert opened.receive_until(PONG)
        opened.connection.sendall(frame(CONTINUATION, b': "after pings"}'))

        while b"after pings" not in opened.receive()[1]:
            pass


def test_the_last_of_many_pings_gets_a_pong(server, conversation):
    with open_socket(server, conversation) as opened:
        opened.head()
        opened.connection.sendall(frame(PING, b"first") + frame(PING, b"second") + frame(PING, b"last"))

        while opened.receive_until(PONG) != b"last":
            pass


@pytest.fixture(scope="module")
def lone_worker(backend):
    """A server of one worker."""
    folder, url = backend
    with agent_server(folder / "lone", REDIS_URL=url, WEB_CONCURRENCY="1") as (client, _):
        client.timeout = TIMEOUT
        yield client


@pytest.mark.faults("floods a server of its own")
@pytest.mark.parametrize(
    "flood",
    [frame(PING, b"x") * 1000, frame(PONG) * 1000, (frame(TEXT, final=False) + frame(CONTINUATION)) * 500],
    ids=["pings", "pongs", "empty messages"],
)
def test_a_client_that_sends_without_end_does_not_monopolize_a_worker(lone_worker, conversation, flood):
    with open_socket(lone_worker, conversation) as opened:
        opened.head()
        finished = Event()

        def send() -> None:
            with suppress(OSError):
                while not finished.is_set():
                    opened.connection.sendall(flood)

        def read() -> None:
            with suppress(OSError):
                while opened.connection.recv(1 << 16):
                    pass

        threads = [Thread(target=send), Thread(target=read)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(3):
                assert lone_worker.get(f"/api/conversations/{conversation}").status_code == 200
        finally:
            finished.set()
            threads[0].join()
            opened.connection.shutdown(socket.SHUT_RDWR)
            threads[1].join()


@pytest.mark.faults("stops the store of a server of its own")
@pytest.mark.parametrize("header", ["Protocol", "Extensions"])
def test_a_handshake_with_a_header_that_is_no_text_is_refused_in_words(server, conversation, header):
    with open_socket(server, conversation, f"Sec-WebSocket-{header}: a, \xff") as refused:
        assert refused.head()[0].startswith(b"HTTP/1.1 400")
        assert b"This is not a valid WebSocket handshake" in refused.stream.readline()


def test_a_handshake_during_a_stall_of_redis_is_refused_before_the_upgrade(tmp_path):
    with store_server(tmp_path) as (url, redis), agent_server(tmp_path / "log", REDIS_URL=url) as (client, _):
        created = client.post("/api/conversations", json={}).json()["id"]
        redis.send_signal(signal.SIGSTOP)

        with open_socket(client, created) as opened:
            raw = opened.stream.read()
        assert raw.startswith(b"HTTP/1.1 503 ")
        assert raw.count(b"HTTP/1.1") == 1
        assert b"Retry-After" in raw

        # And when Redis responds again, so does the socket
        redis.send_signal(signal.SIGCONT)
        wait_until(lambda: client.get("/ready").status_code == 200, "the store")
        with open_socket(client, created) as opened:
            assert opened.head()[0].startswith(b"HTTP/1.1 101 ")
            assert b"full_state" in opened.receive_until(TEXT)
