"""Requests that a web page elsewhere may have sent: which Host and Origin are refused. Source: docs/operations.md.

A page that rebinds its name to our address sends its own name as `Host`; a page elsewhere sends its own `Origin`, or a
browser says `Sec-Fetch-Site: cross-site`. Programs send neither, and are not concerned. Reads without an Origin check
are safe: the browser keeps a response from a page whose origin no CORS header names.
"""

from dataclasses import dataclass
from urllib.parse import urlsplit

from flask import Response, current_app, request
from werkzeug.datastructures import Headers
from werkzeug.exceptions import Forbidden, MisdirectedRequest

from origins import authority, is_loopback, is_named, origin, origin_at

#: methods that change nothing
_SAFE = ("GET", "HEAD", "OPTIONS")

#: where sandboxes post to, under the host of WEBHOOK_BASE_URL or the one that a container has for this machine
_WEBHOOKS, _CONTAINERS_HOST = "/api/v1/webhooks/", "host.docker.internal"


@dataclass(frozen=True, slots=True)
class Posture:
    """Which hosts and origins a request may name.

    is_open: whether no key is needed. allowed_hosts: as `origins.host_pattern` returns them. allowed_origins: as
    `origins.origin` returns them. webhook_host: that of the URL that sandboxes post to.
    """

    is_open: bool
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: frozenset[str] = frozenset()
    webhook_host: str = ""

    def refusal_of_host(self, host: str | None, target: str, path: str) -> str | None:
        """Why a request is for another server, in words; None if it is for this one.

        host: the header. target: of the request line, which may be an absolute URI. path: of the operation.
        """
        place = authority(host or "")
        if place is None:
            return "The Host header is missing" if not host else "The Host header is not a host with an optional port"
        if not target.startswith("/") and target != "*" and authority(urlsplit(target).netloc) != place:
            return "The host of the request's URI is not the one of its Host header"
        if not self.is_open and not self.allowed_hosts:
            return None
        if is_loopback(place.host) or is_named(place.host, self.allowed_hosts):
            return None
        if path.startswith(_WEBHOOKS) and place.host in (self.webhook_host, _CONTAINERS_HOST):
            return None
        return f"This server is not {place.host}: ALLOWED_HOSTS names the hosts by which it is reached"

    def refusal_of_origin(self, method: str, headers: Headers, scheme: str) -> str | None:
        """Why a page may not send a request, in words; None if it may, or if no page has sent it.

        headers: with a Host that is not refused. scheme: of the URL that the client has used.
        """
        if method in _SAFE and "Upgrade" not in headers:
            return None
        sent, site = headers.get("Origin"), headers.get("Sec-Fetch-Site", "none")
        if sent is not None and origin(sent) in self.allowed_origins:
            return None
        if site not in ("same-origin", "same-site", "none"):
            return "A page of another site may not do this: ALLOWED_ORIGINS names those that may"
        place = authority(headers.get("Host", ""))
        if sent is None or (place and origin(sent) == origin_at(scheme, place)):
            return None
        return (
            "A page of this Origin may not do this: ALLOWED_ORIGINS names those that may. If it is this server's own "
            "page behind a proxy, TRUSTED_PROXIES must name the proxy"
        )


def admit() -> Response | None:
    """The response to a preflight; None for any other request. Raises MisdirectedRequest (421), Forbidden (403).

    Nothing of the body has been read then, and the store has not been asked.
    """
    posture: Posture = current_app.extensions["posture"]
    environ, method = request.environ, request.method
    if refusal := posture.refusal_of_host(environ.get("HTTP_HOST"), environ.get("RAW_URI", "/"), request.path):
        raise MisdirectedRequest(refusal)
    if refusal := posture.refusal_of_origin(method, request.headers, environ["wsgi.url_scheme"]):
        raise Forbidden(refusal)
    if method != "OPTIONS" or "Access-Control-Request-Method" not in request.headers:
        return None
    if origin(request.headers.get("Origin", "")) not in posture.allowed_origins:
        raise Forbidden("A page of this Origin may not do this: ALLOWED_ORIGINS names those that may")
    return Response(status=204)
