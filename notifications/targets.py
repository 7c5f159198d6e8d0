"""The targets of notifications that the settings name."""

from dataclasses import dataclass, field
from functools import cache
from hashlib import scrypt
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
