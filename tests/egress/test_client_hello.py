"""The name in a ClientHello: read whole, in pieces and across records; refused if it is missing, double or hidden."""

import ssl

import pytest

from egress.client_hello import MOST_BYTES, NotTls, server_name
from tests.refusals import is_refused


def hello(name: str | None) -> bytes:
    """A ClientHello as Python sends it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname=name).do_handshake()
    return outgoing.read()


def vector(content: bytes, width: int = 2) -> bytes:
    return len(content).to_bytes(width) + content


def made(*extensions: tuple[int, bytes]) -> bytes:
    """A ClientHello with these extensions, in one record."""
    body = b"\3\3" + bytes(32) + vector(b"", 1) + vector(b"\x13\1") + vector(b"\0", 1)
    body += vector(b"".join(number.to_bytes(2) + vector(content) for number, content in extensions))
    return b"\x16\3\1" + vector(b"\1" + vector(body, 3))


def named(name: bytes, kind: int = 0) -> bytes:
    return vector(kind.to_bytes(1) + vector(name))


def test_the_name_is_read_in_small_letters():
    assert server_name(hello("Example.org")) == "example.org"


def test_a_hello_that_is_not_whole_waits_for_more():
    whole = hello("example.org")
    assert {server_name(whole[:length]) for length in range(len(whole))} == {None}


def test_a_hello_in_many_records_is_read():
    content = hello("example.org")[5:]
    records = [b"\x16\3\1" + vector(content[start : start + 9]) for start in range(0, len(content), 9)]
    assert server_name(b"".join(records)) == "example.org"


def test_what_comes_after_the_hello_changes_nothing():
    assert server_name(hello("example.org") + b"\x14\3\3\0\1\1") == "example.org"


def test_a_hello_without_a_name_is_refused():
    assert is_refused(server_name, hello(None), error=NotTls, words="names no server")


def test_a_hello_with_two_names_is_refused():
    two = vector(b"\0" + vector(b"a.org") + b"\0" + vector(b"b.org"))
    assert is_refused(server_name, made((0, two)), error=NotTls, words="more than one")
    assert is_refused(server_name, made((0, named(b"a.org")), (0, named(b"b.org"))), error=NotTls, words="twice")


def test_a_hello_with_an_encrypted_part_is_refused():
    assert is_refused(server_name, made((0, named(b"a.org")), (0xFE0D, b"\0")), error=NotTls, words="ECH")


def test_a_broken_hello_is_refused():
    broken = [made((0, b"")), made((0, b"\0\xff\0")), made((0, named(b"\xff.org"))), b"\x16\3\1\0\4\1\0\0\0"]
    assert [data for data in broken if not is_refused(server_name, data, error=NotTls)] == []


def test_other_protocols_are_refused_at_their_first_bytes():
    others = [
        b"GET / HTTP/1.1\r\n",
        b"SSH-2.0-x",
        b"\x80\x2e\1",
        b"\x16\2\0",
        b"\x17\3\3\0\1x",
        b"\x16\3\1\0\4\2\0\0\0",
    ]
    others.append(b"\x16\3\1\xff\xff")
    assert [data for data in others if not is_refused(server_name, data, error=NotTls)] == []


def test_a_hello_without_an_end_is_refused():
    endless = b"\x16\3\1\x40\0\1\xff\xff\xff" + bytes(0x3FFC) + (b"\x16\3\1\x40\0" + bytes(0x4000)) * 2
    assert len(endless) > MOST_BYTES
    assert is_refused(server_name, endless, error=NotTls, words="more than")
