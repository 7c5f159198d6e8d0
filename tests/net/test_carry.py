"""Listeners whose connections are served each in a thread, and their end."""

import logging
import socket
import threading

import pytest

from net.carry import accept_all, join
from tests.servers import wait_until

pytestmark = pytest.mark.process("carries bytes between sockets on threads")


def test_a_connection_whose_service_fails_is_closed_and_logged_and_the_next_one_is_served(caplog):
    def serve(client: socket.socket) -> None:
        if client.recv(1) == b"!":
            raise ValueError("a bug of ours")
        client.sendall(b"served")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept_all, args=(listener, serve, 1), daemon=True).start()
        received = []
        with caplog.at_level(logging.ERROR, "net.carry"):
            for byte in (b"!", b"x", b"!", b"x"):
                with socket.create_connection(listener.getsockname(), 10) as client:
                    client.sendall(byte)
                    received.append(client.recv(100))

    assert received == [b"", b"served", b"", b"served"]
    assert [record.message for record in caplog.records] == ["a connection failed"] * 2


def test_the_loop_ends_with_its_listener():
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(0.05)
    loop = threading.Thread(target=accept_all, args=(listener, lambda _: None, 1), daemon=True)
    loop.start()
    listener.close()
    wait_until(lambda: not loop.is_alive(), "the end of the loop")


def test_an_error_of_one_side_ends_the_other_one():
    ends = [socket.socketpair() for _ in range(2)]
    (ours, client), (server, theirs) = ends

    def read(source: socket.socket):
        yield source.recv(100)
        raise TimeoutError("nothing passed for too long")

    with ours, client, server, theirs:
        carrying = threading.Thread(target=join, args=(client, server, read), daemon=True)
        carrying.start()
        ours.sendall(b"some")
        assert theirs.recv(100) == b"some"
        assert theirs.recv(100) == ours.recv(100) == b""
        carrying.join(10)
        assert not carrying.is_alive()
