"""Connections to ports of this machine, as the kernel tells of them: on real sockets."""

import socket

import pytest

from runtimes.connections import are_used


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


def test_a_port_that_only_listens_is_not_used(listener):
    assert not are_used([listener.getsockname()[1]])
    assert not are_used([])


def test_a_port_is_used_while_a_connection_to_it_stands(listener):
    with socket.create_connection(listener.getsockname()):
        assert are_used([listener.getsockname()[1]])


@pytest.mark.parametrize("first", ["client", "server"])
def test_a_port_was_used_whoever_ended_the_connection_first(listener, first):
    client = socket.create_connection(listener.getsockname())
    server, _ = listener.accept()
    sides = {"client": client, "server": server}

    ending, other = sides.pop(first), next(iter(sides.values()))
    ending.close()
    assert other.recv(1) == b""
    other.close()

    assert are_used([listener.getsockname()[1]])


def test_a_port_with_connections_of_ipv6_is_used():
    try:
        listener = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("this machine has no IPv6")
    with listener, socket.create_connection(listener.getsockname()[:2]):
        assert are_used([listener.getsockname()[1]])


def test_connections_to_other_ports_do_not_count(listener):
    with socket.create_server(("127.0.0.1", 0)) as other, socket.create_connection(listener.getsockname()):
        assert not are_used([other.getsockname()[1]])
