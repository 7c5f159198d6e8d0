"""What a connection may send of a head: one that is long, or comes in crumbs, is looked through again and again."""

import socket

import pytest
from gunicorn.http.errors import LimitRequestHeaders

from boot.worker import Worker, WorkerConnection, network_of


@pytest.fixture
def client():
    """The client's end of a connection, and the server's."""
    ours, theirs = socket.socketpair()
    with ours, WorkerConnection(theirs.family, theirs.type, theirs.proto, fileno=theirs.detach()) as connection:
        yield ours, connection


def test_a_head_in_more_than_256_pieces_is_refused(client):
    ours, theirs = client
    with theirs.reading_head():
        for _ in range(256):
            ours.sendall(b"x")
            assert theirs.recv(8192) == b"x"
        ours.sendall(b"x")
        with pytest.raises(LimitRequestHeaders, match="256 pieces"):
            theirs.recv(8192)


def test_a_head_of_more_than_64_kib_is_refused(client):
    ours, theirs = client
    with theirs.reading_head():
        for _ in range(8):
            ours.sendall(b"x" * 8192)
            assert len(theirs.recv(8192)) == 8192
        ours.sendall(b"x")
        with pytest.raises(LimitRequestHeaders, match="65536 bytes"):
            theirs.recv(8192)


def test_each_head_has_its_own_bound_and_a_body_has_none_of_a_head(client):
    ours, theirs = client
    for number in range(600):
        ours.sendall(b"x")
        if number % 200:
            assert theirs.recv(1) == b"x"
        else:
            with theirs.reading_head():
                assert theirs.recv(1) == b"x"


def test_in_a_crowd_the_connection_that_waits_longest_of_the_address_with_the_most_makes_room():
    worker = Worker.__new__(Worker)
    worker._waiting = dict.fromkeys(["idle", "early"], "10.0.0.1") | {f"flood {n}": "10.0.0.2" for n in range(3)}

    ended = []
    while worker._waiting:
        ended.append(worker._least_missed())
        del worker._waiting[ended[-1]]

    assert ended == [
        "flood 0",
        "idle",
        "flood 1",
        "early",
        "flood 2",
    ]  # of two with as many, the one that waits longest


def test_a_network_of_ipv6_is_one_place_and_an_address_of_ipv4_is_one_however_it_is_written():
    assert network_of(("2001:db8::1", 1, 0, 0)) == network_of(("2001:db8::ffff:2", 2, 0, 0))
    assert network_of(("2001:db8::1", 1, 0, 0)) != network_of(("2001:db8:0:1::1", 1, 0, 0))
    assert network_of(("::ffff:10.0.0.1", 1, 0, 0)) == network_of(("10.0.0.1", 1)) != network_of(("10.0.0.2", 1))
    assert network_of(("fe80::1%eth0", 1, 0, 2)) == network_of(("fe80::2", 1, 0, 2))
    assert network_of("") == network_of(b"") == ""
