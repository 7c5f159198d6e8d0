"""The addresses that this server may connect to, for its sandboxes and for notifications."""

from ipaddress import IPv6Address, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from net.addresses import Reach, is_public, reach
from notifications.sending import refusal

#: networks that sandboxes, and those that notifications, must not reach: two tables before there was one
OF_SANDBOXES = (
    *("0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.88.99.0/24", "198.18.0.0/15", "240.0.0.0/4"),
    *("168.63.129.16/32", "64:ff9b:1::/48", "fec0::/10", "fc00::/7", "fe80::/10", "3fff::/20", "5f00::/16"),
)
OF_NOTIFICATIONS = (
    *("0.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "240.0.0.0/4", "100.100.100.200/32", "192.0.0.192/32"),
    *("168.63.129.16/32", "::/128", "fe80::/10", "ff00::/8", "fd00:ec2::/32", "fd20:ce::254/128", "64:ff9b:1::/48"),
)
PRIVATE = (
    *("127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "192.0.0.0/24"),
    *("192.0.2.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24"),
    *("::1/128", "fc00::/7", "fec0::/10", "2001:db8::/32"),
)
#: networks whose addresses hold an IPv4 address
HOLDING = ("::ffff:0:0/96", "::ffff:0:0:0/96", "::/96", "64:ff9b::/96", "2002::/16", "2001::/32")


def in_any(*networks: str) -> st.SearchStrategy[str]:
    """Addresses of these networks, as likely of a small one as of a large one."""
    return st.sampled_from(networks).flatmap(lambda one: st.ip_addresses(network=one)).map(str)


@given(in_any(*OF_SANDBOXES, *OF_NOTIFICATIONS, *PRIVATE, *HOLDING))
def test_sandboxes_reach_no_network_of_either_table(address):
    assert not is_public(address)


@given(in_any(*OF_SANDBOXES, *OF_NOTIFICATIONS, *PRIVATE))
def test_notifications_go_to_no_network_of_either_table(address):
    assert refusal(address, private=False)


@given(in_any(*OF_NOTIFICATIONS, "192.88.99.0/24", "5f00::/16"))
def test_no_setting_lets_notifications_go_where_no_host_is(address):
    assert "none is sent there" in refusal(address, private=True)


@given(in_any("fec0::/10", "3fff::/20", *(one for one in PRIVATE if one != "192.0.0.0/24")))
def test_a_setting_lets_notifications_go_into_private_networks(address):
    clouds = map(ip_network, ("100.100.100.200/32", "fd00:ec2::/32", "fd20:ce::254/128"))
    is_of_a_cloud = any(ip_address(address) in network for network in clouds)
    assert bool(refusal(address, private=True)) is is_of_a_cloud


@given(st.ip_addresses())
def test_what_python_calls_reserved_is_public_to_nobody(address):
    if not address.is_global or address.is_multicast or address.is_reserved:
        assert not is_public(str(address))
        if not any(address in ip_network(one) for one in HOLDING):
            assert reach(address) is not Reach.PUBLIC


@given(st.ip_addresses(v=4), st.sampled_from([one for one in HOLDING if one.endswith("/96")]))
def test_an_address_with_an_embedded_address_has_the_same_reach(held, network):
    holder = ip_network(network)[int(held)]
    assert reach(holder) is reach(held) or int(holder) < 2


@given(st.ip_addresses(v=4))
def test_a_6to4_address_has_the_reach_of_its_embedded_address(held):
    assert reach(IPv6Address((0x2002 << 112) | (int(held) << 80) | 1)) is reach(held)


@given(st.ip_addresses(v=4), st.ip_addresses(v=4))
def test_a_teredo_address_has_the_nearer_reach_of_its_two_embedded_addresses(server, client):
    teredo = IPv6Address((0x20010000 << 96) | (int(server) << 64) | (int(client) ^ 0xFFFFFFFF))
    assert reach(teredo) is min(reach(server), reach(client))


@pytest.mark.parametrize("address", ["1.1.1.1", "8.8.8.8", "2606:4700::1111", "2001:4860:4860::8888"])
def test_a_machine_of_the_internet_is_public(address):
    assert is_public(address)


def test_no_other_address_is_public():
    inside = "0.0.0.0 10.0.0.1 172.16.0.1 192.168.1.1 127.0.0.1 169.254.169.254 100.64.0.1 100.100.100.200 192.0.0.192"
    inside += " 168.63.129.16 198.18.0.1 203.0.113.1 224.0.0.1 240.0.0.1 255.255.255.255 :: ::1 fe80::1 fe80::1%eth0"
    inside += " fc00::1 fd00:ec2::254 ff02::1 2001:db8::1 fec0::1 ::ffff:1.1.1.1 ::ffff:10.0.0.1 ::1.1.1.1"
    inside += " 64:ff9b::1.1.1.1 64:ff9b::a00:1 64:ff9b:1::1 2002:a00:1::1 2001:0:1::1 nonsense"
    assert [address for address in inside.split() if is_public(address)] == []


def test_this_machines_own_address_is_not_public_to_its_sandboxes():
    assert not is_public("1.1.1.1", {"1.1.1.1"})
