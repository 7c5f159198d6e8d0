"""Parsing of `Host` and `Origin` headers, and the patterns of the settings that match them.

Standard library only. Sources: RFC 9110, 7.2 (Host); RFC 6454 (Origin); RFC 6761, 6.3 (localhost).
"""

import re
from functools import lru_cache
from ipaddress import ip_address, ip_network
from typing import NamedTuple

_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]{1,253})(?::([0-9]{1,5}))?")
_ORIGIN = re.compile(r"([a-z][a-z0-9+.-]*)://([^\s/?#@*]+)", re.IGNORECASE)
_DEFAULT_PORTS = {"http": 80, "https": 443}
_LOOPBACKS = (ip_network("127.0.0.0/8"), ip_network("::1/128"))


_DOMAIN = re.compile(r"(?=.{1,190}$)(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?")


class Authority(NamedTuple):
    """A host and a port.

    host: lower case, without a final dot; an IPv6 address in its shortest form, in brackets.
    """

    host: str
    port: int | None


@lru_cache(maxsize=64)
def authority(text: str) -> Authority | None:
    """Parse a `Host` header; None if it is malformed, such as one with a user, a blank or a non-ASCII letter."""
    match = _AUTHORITY.fullmatch(text)
    if match is None or int(match[2] or 1) not in range(1, 65536):
        return None
    host = match[1].lower().removesuffix(".")
    if host.startswith("["):
        try:
            host = f"[{ip_address(host[1:-1]).compressed}]"
        except ValueError:
            return None
    return Authority(host, int(match[2]) if match[2] else None) if host.strip(".") else None


def origin(text: str) -> str | None:
    """Normalize an origin to the form that browsers send; None for `null` and for malformed ones.

    The origin of an application, such as `vscode-webview://id`, may have any text after its scheme.
    """
    match = _ORIGIN.fullmatch(text)
    if match is None:
        return None
    scheme = match[1].lower()
    if scheme not in _DEFAULT_PORTS:
        return text.lower()
    place = authority(match[2])
    return place and origin_at(scheme, place)


def origin_at(scheme: str, place: Authority) -> str:
    """Return the origin of a server's pages. scheme: http or https."""
    has_port = place.port not in (None, _DEFAULT_PORTS.get(scheme))
    return f"{scheme}://{place.host}" + (f":{place.port}" if has_port else "")


@lru_cache(maxsize=64)  # every request has a Host, nearly always the same
def is_loopback(host: str) -> bool:
    """Return whether a host is this machine: localhost, a name below .localhost, 127.0.0.0/8 or ::1."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ip_address(host.strip("[]"))
    except ValueError:
        return False
    return any(address in network for network in _LOOPBACKS)


def is_domain(text: str) -> bool:
    """Return whether a text is a domain: at least two labels, lower case, and not an address."""
    return _DOMAIN.fullmatch(text) is not None


def host_pattern(text: str) -> str:
    """Parse an entry of ALLOWED_HOSTS for `is_named`: a host, `*.DOMAIN` or `*`. Raises ValueError."""
    if text == "*":
        return text
    wildcard, name = ("*.", text[2:]) if text.startswith("*.") else ("", text)
    place = authority(name if name.isascii() else name.encode("idna").decode())
    if place is None or place.port is not None or (wildcard and place.host.startswith("[")):
        raise ValueError("no host")
    return wildcard + place.host


def is_named(host: str, patterns: tuple[str, ...]) -> bool:
    """Return whether a pattern matches the host. `*.example.org` matches hosts below example.org, not itself."""
    return any(
        pattern in ("*", host) or (pattern.startswith("*.") and host.endswith(pattern[1:])) for pattern in patterns
    )
