"""The addresses that notifications may be sent to."""

import socket

import pytest

from notifications.sending import AddressRefused, HostUnknown, checked, refusal
from tests.refusals import taken

NEVER = (
    "169.254.169.254",
    "169.254.0.1",
    "0.0.0.0",
    "0.1.2.3",
    "224.0.0.1",
    "239.255.255.250",
    "255.255.255.255",
    "240.0.0.1",
    "100.100.100.200",
    "192.0.0.192",
    "::",
    "fe80::1",
    "fe80::1%eth0",
    "febf::1",
    "ff02::1",
    "fd00:ec2::254",
    "fd20:ce::254",
    "::ffff:169.254.169.254",
    "::ffff:a9fe:a9fe",
    "::169.254.169.254",
    "64:ff9b::169.254.169.254",
    "2002:a9fe:a9fe::1",
    "::ffff:0.0.0.0",
    "64:ff9b:1::1",
    "64:ff9b:1:a9fe:a9:fe00::",
    "168.63.129.16",
    "::ffff:168.63.129.16",
)
PRIVATE = (
    "127.0.0.1",
    "127.255.255.254",
    "10.0.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "100.64.0.1",
    "100.127.255.255",
    "198.18.0.1",
    "::1",
    "fc00::1",
    "fd12:3456::1",
    "fec0::1",
    "::ffff:127.0.0.1",
    "::ffff:10.1.2.3",
    "::127.0.0.1",
    "64:ff9b::10.0.0.1",
    "2002:7f00:1::1",
)
PUBLIC = (
    "1.1.1.1",
    "172.15.255.255",
    "172.32.0.1",
    "100.63.255.255",
    "100.128.0.1",
    "169.253.255.255",
    "168.63.129.17",
    "2606:4700:4700::1111",
    "::ffff:1.1.1.1",
    "64:ff9b::1.1.1.1",
)


def test_link_local_multicast_and_reserved_addresses_are_always_refused():
    for private in (False, True):
        assert [one for one in NEVER if "none is sent there" not in refusal(one, private=private)] == []


def test_private_addresses_are_refused_unless_the_setting_allows_them():
    assert [one for one in PRIVATE if "NOTIFY_PRIVATE" not in refusal(one, private=False)] == []
    assert [one for one in PRIVATE if refusal(one, private=True)] == []


def test_public_addresses_are_allowed():
    assert [one for one in PUBLIC if refusal(one, private=False) or refusal(one, private=True)] == []


def test_a_host_is_judged_by_its_address_however_it_is_written():
    written = ("127.1", "2130706433", "0x7f.0.0.1", "0177.0.0.1", "localhost", "::1")
    assert taken(written, lambda host: checked(host, 80, private=False), AddressRefused, "private") == []


def test_one_forbidden_address_of_a_host_refuses_the_host(monkeypatch):
    def resolve(*_, **__):
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, 80)) for one in ("1.1.1.1", "169.254.169.254")]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)

    with pytest.raises(AddressRefused, match=r"169\.254\.169\.254"):
        checked("two.example", 80, private=True)


def test_a_host_without_an_address_is_refused():
    absent = ("a-name-that-is-not-there.invalid", "\0", "x" * 300, "a..b", "\udcff")
    assert taken(absent, lambda host: checked(host, 80, private=True), HostUnknown, "does not resolve") == []
