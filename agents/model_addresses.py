"""Base URLs of models in a client's own body, as its sandbox reaches them.

A client names a model on loopback, such as Ollama or a proxy of its machine. A sandbox has a loopback of its own. If
the URL is that of a service of the sandbox's spec, which LLM_BASE_URL or [[spec.service]] names, the agent gets the
address of that service, and the proxy puts in the service's headers. Any other one stays, and the start is told.

Guarantee: a sandbox reaches nothing more by this. The services of its own spec alone are put in, which it reaches at
`{EGRESS}/NAME` anyway: no other port and no other path of the server's loopback, and no key of the server.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from marshmallow import ValidationError

from core.cuts import beginning
from core.origins import is_loopback
from core.visible import visible
from settings.egress import Service, check_base_url
from settings.specs import Spec

#: members of a body below which models are named
_AGENTS = ("agent", "agent_settings")

#: names of this machine that mean the same one
_SAME = ("localhost", "127.0.0.1", "::1")

#: most characters that are shown of a base URL, and of the place where it stands
_MOST_URL, _MOST_PLACE = 200, 100


class _Address(NamedTuple):
    """A base URL in its parts; `path` is empty, or begins with a slash and ends with none."""

    scheme: str
    host: str
    port: int
    path: str

    @classmethod
    def of(cls, url: str) -> "_Address | None":
        """The parts of a base URL; None of one that could be read in two ways."""
        try:
            check_base_url(url, may_be_plain=True)
        except ValidationError:
            return None
        parts = urlsplit(url)
        host = (parts.hostname or "").removesuffix(".")
        port = parts.port or (443 if parts.scheme == "https" else 80)
        return cls(parts.scheme, "localhost" if host in _SAME else host, port, parts.path.rstrip("/"))

    def below(self, base: "_Address") -> str | None:
        """The path below a base URL, empty or with a slash at its beginning; None of an address elsewhere."""
        rest = self.path.removeprefix(base.path)
        is_below = self[:3] == base[:3] and self.path.startswith(base.path) and rest[:1] in ("", "/")
        return rest if is_below else None


def within_reach(
    body: Mapping[str, Any], spec: Spec, egress_url: str, names: Sequence[str] = _AGENTS
) -> tuple[dict[str, Any], list[str]]:
    """A body whose models on loopback have addresses that a sandbox reaches, and what a start is told about them.

    egress_url: of the sandbox's way out; empty: it has none. names: members of the body below which models are named.
    """
    told: list[str] = []

    def inside(value: Any, place: str) -> Any:
        if isinstance(value, list):
            return [inside(one, place) for one in value]
        if not isinstance(value, dict):
            return value
        members = {name: inside(one, f"{place}.{name}") for name, one in value.items()}
        url = value.get("base_url")
        if isinstance(url, str) and "model" in value and _is_on_loopback(url):
            members["base_url"] = reached(url, f"{place}.base_url")
        return members

    def reached(url: str, place: str) -> str:
        shown, place = beginning(shown_url(url), _MOST_URL), beginning(visible(place), _MOST_PLACE)
        if found := service_at(url, spec.services if egress_url else ()):
            service, rest = found
            told.append(f"{place}: the agent reaches {shown} as the service {service.name} of the spec {spec.id}.")
            return f"{egress_url}/{service.name}{rest}"
        told.append(
            f"{place}: the sandbox does not reach {shown}, which is on loopback outside of it. Set "
            f"LLM_BASE_URL of the server to this URL, or name it as a [[spec.service]] of the spec {spec.id}."
        )
        return url

    if spec.runtime == "process" and spec.isolation == "none":
        return dict(body), []  # its loopback is that of the server
    changed = {name: inside(value, name) if name in names else value for name, value in body.items()}
    return changed, list(dict.fromkeys(told))


def shown_url(url: str) -> str:
    """A URL as a person may see it: without a user, a password or a query."""
    parts = urlsplit(url)
    return visible(f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}")


def _is_on_loopback(url: str) -> bool:
    try:
        return is_loopback((urlsplit(url).hostname or "").removesuffix("."))
    except ValueError:
        return False


def service_at(url: str, services: Sequence[Service]) -> tuple[Service, str] | None:
    """The service with the longest base URL that a URL is below, and the path below it. A model's comes first."""
    address, found = _Address.of(url), []
    for service in services:
        base = _Address.of(service.base_url)
        if address and base and (rest := address.below(base)) is not None:
            found.append(((len(base.path), service.is_model), service, rest))
    return max(found, key=lambda one: one[0])[1:] if found else None
