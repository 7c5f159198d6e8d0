"""What a connection may send of a head: one that is long, or comes in crumbs, is looked through again and again."""

import socket

import pytest
from gunicorn.http.errors import LimitRequestHeaders

from boot.worker import Connection


@pytest.fixture
def client():
    """The client's end of a connection, and the server's."""
    ours, theirs = socket.socketpair()
    with ours, Connection(theirs.family, theirs.type, theirs.proto, fileno=theirs.detach()) as connection:
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
