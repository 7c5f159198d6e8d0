"""People who come through an authenticating proxy: how a request names a person, and which rights they have.

Source: docs/access.md, "People".
"""

import hmac
from collections.abc import Mapping
from ipaddress import ip_network
from typing import Any

from flask import request
from werkzeug.exceptions import Unauthorized

from blueprints.posture import is_within
from boot.http import body_of
from core.people import Person, PersonRefused, read_person
from settings.access import AccessSettings

#: Header with the proxy's secret.
SECRET_HEADER = "X-Person-Proxy-Secret"


class ProxiedPeople:
    """Reads the person from the proxy's headers. It refuses every ambiguous request."""

    def __init__(self, settings: AccessSettings) -> None:
        """settings: with a PERSON_HEADER."""
        self._header, self._groups_header = settings.person_header, settings.person_groups_header
        self._networks = [ip_network(network) for network in settings.person_proxies]
        self._secret = settings.person_proxy_secret.encode()

    def of_request(self) -> Person | None:
        """Return the person that the current request names; None if it names nobody. Raises Unauthorized."""
        environ = request.environ
        values = {name: environ.get(_variable(name)) for name in self._names}
        name, groups = values[self._header], values.get(self._groups_header) or ""
        if all(value is None for value in values.values()):
            return None
        if not is_within(peer_of(environ), self._networks):
            raise Unauthorized(
                f"A request with {self._header} is taken from the proxy alone (PERSON_PROXIES), and this one comes "
                "from elsewhere: leave the header out, and show a key"
            )
        shown = environ.get(_variable(SECRET_HEADER), "").encode("utf-8", "surrogatepass")
        if not hmac.compare_digest(shown, self._secret):
            raise Unauthorized(
                f"The proxy has to send {SECRET_HEADER} beside {self._header}, with the value of PERSON_PROXY_SECRET"
            )
        body = body_of(environ)
        for one in (*self._names, SECRET_HEADER):
            if body and body.lines_of(one) > 1:
                raise Unauthorized(f"The request has {one} several times: the proxy must replace what a client sends")
        if name is None:
            raise Unauthorized(
                f"The proxy sends {self._groups_header} without {self._header}: it has authenticated nobody"
            )
        try:
            return read_person(name, groups)
        except PersonRefused as error:
            raise Unauthorized(f"{self._header}: {error}") from None

    @property
    def _names(self) -> list[str]:
        return [name for name in (self._header, self._groups_header) if name]


def peer_of(environ: Mapping[str, Any]) -> str:
    """Return the address of the connection's peer, ignoring the client address that a trusted proxy reports."""
    original = environ.get("werkzeug.proxy_fix.orig")
    return str((original or environ).get("REMOTE_ADDR") or "")


def _variable(header: str) -> str:
    return "HTTP_" + header.upper().replace("-", "_")
