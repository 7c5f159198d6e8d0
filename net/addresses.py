"""The addresses that this server may connect to on behalf of others: a table of networks, and a policy per caller.

`is_public` is the policy for sandboxes, which reach only the internet. `reach` is for notifications: an operator names
their targets, and the settings may allow private addresses.
"""

from collections.abc import Collection, Sequence
from enum import IntEnum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


class Reach(IntEnum):
    """The machines that can reach an address, the smallest group first."""

    NEVER = 0  #: nobody: the address is reserved, or a cloud's service for its own machines
    PRIVATE = 1  #: its own network
    PUBLIC = 2  #: the internet


def _networks(texts: str) -> tuple[Network, ...]:
    return tuple(map(ip_network, texts.split()))


#: Link-local, unspecified, multicast and reserved networks, and metadata services of clouds with other addresses.
_NEVER = (
    *_networks("0.0.0.0/8 169.254.0.0/16 192.88.99.0/24 224.0.0.0/4 240.0.0.0/4"),
    *_networks("::/128 fe80::/10 ff00::/8 5f00::/16"),
    *_networks("64:ff9b:1::/48"),  # NAT64 of one network, which alone knows where in it the IPv4 address is
    *_networks("100.100.100.200/32 168.63.129.16/32 192.0.0.192/32 fd00:ec2::/32 fd20:ce::254/128"),
)

#: Loopback, private networks, carrier-grade NAT, unique and site-local addresses, and networks for tests and examples.
_PRIVATE = (
    *_networks("127.0.0.0/8 10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 100.64.0.0/10 192.0.0.0/24"),
    *_networks("192.0.2.0/24 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24"),
    *_networks("::1/128 fc00::/7 fec0::/10 2001:db8::/32 3fff::/20"),
)

#: IPv6 networks whose last 32 bits are an IPv4 address: mapped, translated, compatible, NAT64.
_ENDS_IN_IPV4 = _networks("::ffff:0:0/96 ::ffff:0:0:0/96 ::/96 64:ff9b::/96")
_6TO4, _TEREDO = _networks("2002::/16 2001::/32")


def is_public(address: str, own: Collection[str] = ()) -> bool:
    """Return whether an address is on the internet, and a sandbox may reach it.

    own: addresses of this machine, which are refused. An IPv6 address with an embedded IPv4 address is not public.
    """
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    return reach(parsed) is Reach.PUBLIC and not _held(parsed) and str(parsed) not in own


def reach(address: Address) -> Reach:
    """Return who can reach an address. Of the IPv4 addresses in an IPv6 address the most private one counts."""
    if _is_in(address, _NEVER):
        return Reach.NEVER
    if _is_in(address, _PRIVATE):
        return Reach.PRIVATE
    if held := _held(address):
        return min(map(reach, held))
    # Python knows reserved networks that the table lacks, such as 100::/64, and each release adds more.
    is_assigned = address.is_global and not address.is_multicast and not address.is_reserved
    return Reach.PUBLIC if is_assigned else Reach.NEVER


def _held(address: Address) -> Sequence[IPv4Address]:
    """Return the IPv4 addresses that are embedded in an IPv6 address."""
    if isinstance(address, IPv4Address):
        return ()
    if address in _6TO4 and address.sixtofour:
        return (address.sixtofour,)
    if address in _TEREDO and address.teredo:
        return address.teredo
    return (IPv4Address(int(address) & 0xFFFFFFFF),) if _is_in(address, _ENDS_IN_IPV4) else ()


def _is_in(address: Address, networks: Sequence[Network]) -> bool:
    return any(address in network for network in networks)
