"""Base URLs of models in a client's own body, mapped for its sandbox.

A client may name a model on loopback, such as Ollama or a proxy on its machine. A sandbox has its own loopback. If the
URL belongs to a service of the sandbox's spec, from LLM_BASE_URL or [[spec.service]], the agent gets the address of the
service, and the proxy adds the service's headers. Other URLs are unchanged, and the start gets a notice.

Guarantee: this gives a sandbox no further access. It only inserts services of the sandbox's spec, which are reachable
at `{EGRESS}/NAME` anyway: no other port or path of the server's loopback, and no key of the server.
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

#: Members of a body that contain models.
_AGENTS = ("agent", "agent_settings")

#: Synonyms of this machine.
_SAME = ("localhost", "127.0.0.1", "::1")

#: Maximum number of characters of a base URL and of its path, in notices.
_MOST_URL, _MOST_PLACE = 200, 100


class _Address(NamedTuple):
    """A parsed base URL. `path` is empty, or begins with a slash and does not end with one."""

    scheme: str
    host: str
    port: int
    path: str

    @classmethod
    def of(cls, url: str) -> "_Address | None":
        """Parse a base URL; None if it is ambiguous."""
        try:
            check_base_url(url, may_be_plain=True)
        except ValidationError:
            return None
        parts = urlsplit(url)
        host = (parts.hostname or "").removesuffix(".")
        port = parts.port or (443 if parts.scheme == "https" else 80)
        return cls(parts.scheme, "localhost" if host in _SAME else host, port, parts.path.rstrip("/"))

    def below(self, base: "_Address") -> str | None:
        """Return the path below a base URL, empty or with a leading slash; None if it is not below."""
        rest = self.path.removeprefix(base.path)
        is_below = self[:3] == base[:3] and self.path.startswith(base.path) and rest[:1] in ("", "/")
        return rest if is_below else None


def within_reach(
    body: Mapping[str, Any], spec: Spec, egress_url: str, names: Sequence[str] = _AGENTS
) -> tuple[dict[str, Any], list[str]]:
    """Return a body with its models on loopback mapped for a sandbox, and notices for the start.

    egress_url: of the sandbox's egress proxy; empty: none. names: members of the body that contain models.
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
        return dict(body), []  # the sandbox shares the server's loopback
    changed = {name: inside(value, name) if name in names else value for name, value in body.items()}
    return changed, list(dict.fromkeys(told))


def shown_url(url: str) -> str:
    """Return a URL for people: without a user, a password or a query."""
    parts = urlsplit(url)
    return visible(f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}")


def _is_on_loopback(url: str) -> bool:
    try:
        return is_loopback((urlsplit(url).hostname or "").removesuffix("."))
    except ValueError:
        return False


def service_at(url: str, services: Sequence[Service]) -> tuple[Service, str] | None:
    """Return the service with the longest base URL that contains a URL, and the path below it.

    A model's service wins ties.
    """
    address, found = _Address.of(url), []
    for service in services:
        base = _Address.of(service.base_url)
        if address and base and (rest := address.below(base)) is not None:
            found.append(((len(base.path), service.is_model), service, rest))
    return max(found, key=lambda one: one[0])[1:] if found else None
