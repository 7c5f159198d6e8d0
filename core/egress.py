"""Destinations of a sandbox's traffic, and the names that a spec allows.

A destination is a name and a port, as in `pypi.org:443`, never an address. The proxy resolves the name outside of the
sandbox, and `net/addresses.py` decides which of its addresses a sandbox may reach.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from core.cuts import beginning

#: Default port of a destination.
HTTPS = 443

#: Maximum length of a name, in characters. Source: RFC 1035
MOST_NAME = 253

_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")

#: A name whose last label begins with a digit is an address, such as `127.1` and `0x7f.0.0.1`. Source: WHATWG URL
_LAST = re.compile(r"[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?")


def destination_name(text: str) -> str:
    """Normalize a host name: lower case, no final dot. Raises ValueError with a sentence.

    A name has at least two labels in ASCII (`xn--…` for others) and is not an address in any form.
    """
    name = text.lower().removesuffix(".")
    labels = name.split(".")
    if not text.isascii() or len(name) > MOST_NAME or not all(map(_LABEL.fullmatch, labels)):
        raise ValueError(f"{beginning(text, 80)!r} is not a host name")
    if not _LAST.fullmatch(labels[-1]):
        raise ValueError(f"{beginning(text, 80)!r} is an address: a destination has a name")
    if len(labels) < 2:
        raise ValueError(f"{beginning(text, 80)!r} has one label: a destination's name has two or more")
    return name


def is_destination_name(text: str) -> bool:
    """Return whether a text is a normalized host name."""
    try:
        return destination_name(text) == text
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class AllowedHost:
    """One name at one port, or with `is_suffix` all names below it."""

    name: str
    port: int = HTTPS
    is_suffix: bool = False

    @classmethod
    def read(cls, text: str) -> "AllowedHost":
        """Parse `example.org`, `example.org:8443`, `*.example.org` or `*.example.org:8443`. Raises ValueError."""
        host, colon, port = text.partition(":")
        is_suffix = host.startswith("*.")
        if colon and not (port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
            raise ValueError(f"{beginning(text, 80)!r} has no port from 1 to 65535 after its colon")
        return cls(destination_name(host.removeprefix("*.")), int(port) if colon else HTTPS, is_suffix)

    def allows(self, name: str, port: int) -> bool:
        """Return whether it allows a destination with a normalized name."""
        is_named = name.endswith(f".{self.name}") if self.is_suffix else name == self.name
        return is_named and port == self.port


def _hosts(texts: str) -> tuple[AllowedHost, ...]:
    return tuple(map(AllowedHost.read, texts.split()))


#: Hosts of package registries and repositories. Source: the documentation of each
PRESETS: dict[str, tuple[AllowedHost, ...]] = {
    "pypi": _hosts("pypi.org files.pythonhosted.org"),
    "npm": _hosts("registry.npmjs.org registry.yarnpkg.com"),
    "crates": _hosts("crates.io index.crates.io static.crates.io"),
    "go": _hosts("proxy.golang.org sum.golang.org go.dev"),
    "rubygems": _hosts("rubygems.org index.rubygems.org"),
    "maven": _hosts("repo.maven.apache.org repo1.maven.org"),
    "debian": _hosts(
        "deb.debian.org:80 deb.debian.org security.debian.org:80 security.debian.org archive.ubuntu.com:80 "
        "security.ubuntu.com:80 ports.ubuntu.com:80"
    ),
    "github": _hosts("github.com api.github.com codeload.github.com *.githubusercontent.com"),
    "gitlab": _hosts("gitlab.com"),
    "codeberg": _hosts("codeberg.org"),
    "bitbucket": _hosts("bitbucket.org"),
}


def allows(hosts: Iterable[AllowedHost], name: str, port: int) -> bool:
    """Return whether one of the hosts allows a destination."""
    return any(host.allows(name, port) for host in hosts)
