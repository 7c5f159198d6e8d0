"""The targets of notifications that the settings name, the addresses that they may have, and how one fails.

A host is resolved once and each of its addresses is checked, so that a name cannot lead to the metadata service of a
cloud or, without NOTIFY_PRIVATE, into the network of the server. The caller connects to an address that was checked.
"""

import socket
from dataclasses import dataclass, field
from functools import cache
from hashlib import scrypt
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import urlsplit

from settings.approvals import ApprovalSettings

#: schemes of Apprise whose URLs have a host where those of other services have a token
_WITH_HOST = ("form", "json", "mailto", "xml")


@dataclass(frozen=True, slots=True)
class Target:
    """A webhook or a service of Apprise. Neither its id nor its name tells a secret."""

    id: str  #: of its URL: the same after a restart, and with another secret
    name: str  #: scheme and host
    url: str = field(repr=False)
    secret: str = field(default="", repr=False)  #: `whsec_…`; empty: Apprise sends

    @property
    def kind(self) -> str:
        """`webhook` or `apprise`."""
        return "webhook" if self.secret else "apprise"


def targets_of(settings: ApprovalSettings) -> tuple[Target, ...]:
    """The targets in the order of the settings, each URL once."""
    pairs = [one.rpartition("|")[::2] for one in settings.notify_webhooks.split()]
    found = [Target(_id(url), _name(url), url, secret) for url, secret in pairs]
    found += [Target(_id(url), _name(url), url) for url in settings.notify_urls.split()]
    return tuple({target.id: target for target in found}.values())


@cache
def _id(url: str) -> str:
    # Slow, so that nobody tries passwords until the id of their URL is this one.
    return scrypt(url.encode(), salt=b"agent-server target", n=2**13, r=8, p=1, dklen=6).hex()


def _name(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme in ("http", "https"):
        host = parts.hostname or ""
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}{port}"
    scheme = url.partition("://")[0].lower()
    return f"{scheme}://{parts.hostname or ''}" if scheme.removesuffix("s") in _WITH_HOST else f"{scheme}://…"


#: link-local, unspecified, multicast, reserved, and the metadata services of clouds that lie outside of link-local
_NEVER = [
    ip_network(text)
    for text in (
        *("0.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "240.0.0.0/4", "100.100.100.200/32", "192.0.0.192/32"),
        "168.63.129.16/32",
        *("::/128", "fe80::/10", "ff00::/8", "fd00:ec2::/32", "fd20:ce::254/128"),
        "64:ff9b:1::/48",  # a NAT64 of its network: which part of it is an IPv4 address only that network knows
    )
]

#: loopback, private networks, carrier-grade NAT, unique local addresses, and those of tests and documents
_PRIVATE = [
    ip_network(text)
    for text in (
        *("127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "192.0.0.0/24"),
        *("192.0.2.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24"),
        *("::1/128", "fc00::/7", "fec0::/10", "2001:db8::/32"),
    )
]

#: networks of IPv6 whose last 32 bits are an IPv4 address: mapped, compatible, NAT64
_ENDS_IN_IPV4 = [ip_network(text) for text in ("::ffff:0:0/96", "::ffff:0:0:0/96", "::/96", "64:ff9b::/96")]
_6TO4, _TEREDO = ip_network("2002::/16"), ip_network("2001::/32")


class AddressRefused(Exception):
    """A host must not be sent to; the message is a sentence that names no path."""


class HostUnknown(AddressRefused):
    """A host has no address."""


def checked(host: str, port: int, *, private: bool) -> list[str]:
    """The addresses of a host, each allowed. private: those of private networks are, too.

    Raises AddressRefused if one of them is not, HostUnknown if the host has none.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise HostUnknown(f"The host {host} does not resolve") from None
    addresses = list(dict.fromkeys(str(info[4][0]) for info in found))
    for address in addresses:
        if reason := refusal(address, private=private):
            raise AddressRefused(f"The host {host} has the address {address}, which is {reason}")
    return addresses


def refusal(address: str, *, private: bool) -> str:
    """Why an address must not be sent to; empty: it may."""
    for one in _meant(ip_address(address.partition("%")[0])):
        if any(one in network for network in _NEVER):
            return "link-local, multicast or reserved: none is sent there"
        if not private and any(one in network for network in _PRIVATE):
            return "private: NOTIFY_PRIVATE=1 allows it"
    return ""


def _meant(address: IPv4Address | IPv6Address) -> list[IPv4Address | IPv6Address]:
    """An address, and the IPv4 address that it stands for."""
    if isinstance(address, IPv4Address):
        return [address]
    if address in _6TO4 and address.sixtofour:
        return [address, address.sixtofour]
    if address in _TEREDO and address.teredo:
        return [address, *address.teredo]
    if any(address in network for network in _ENDS_IN_IPV4) and int(address) > 1:
        return [address, IPv4Address(int(address) & 0xFFFFFFFF)]
    return [address]


class NotDelivered(Exception):
    """A target did not take a message; the message says why."""


class TargetGone(NotDelivered):
    """A target rejects further messages."""
