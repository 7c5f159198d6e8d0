"""Policy for browsers and proxies: allowed Host and Origin, trusted X-Forwarded- headers, common response headers.

Source: docs/operations.md. A page that rebinds its name to our address sends its own name as `Host`. A page of another
site sends its own `Origin`, or a browser sends `Sec-Fetch-Site: cross-site`. Programs send neither, and are not
affected. Reads without an Origin check are safe: a browser hides a response from a page whose origin no CORS header
names.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any
from urllib.parse import urlsplit

from flask import Response, request
from werkzeug.datastructures import Headers
from werkzeug.exceptions import BadRequest, Forbidden, MisdirectedRequest
from werkzeug.middleware.proxy_fix import ProxyFix

from blueprints import current_server
from boot.http import SECURITY_HEADERS
from core.origins import authority, is_loopback, is_named, origin, origin_at

#: Methods that change nothing.
_SAFE = ("GET", "HEAD", "OPTIONS")

#: Path that sandboxes post to, and the name of this machine inside a container. Other posts use WEBHOOK_BASE_URL's
#: host.
_WEBHOOKS, _CONTAINERS_HOST = "/api/v1/webhooks/", "host.docker.internal"

#: Allowed form of `X-Forwarded-Prefix`. URLs begin with it, and two slashes would make the next part a host.
_PREFIX = re.compile(r"(?:/[A-Za-z0-9._~-]+)*/?")


#: Response headers that a page of an allowed origin may read, and their use. Browsers always show `Cache-Control`,
#: `Content-Length`, `Content-Type` and `Last-Modified`. A test lists all other headers.
EXPOSED = {
    "Accept-Ranges": "whether a file can be read in parts",
    "Allow": "the allowed methods of a path",
    "Content-Disposition": "the name of a download",
    "Content-Encoding": "whether `Content-Length` is the size of the decoded body",
    "Content-Range": "the part of a file in the response",
    "Date": "the difference from the page's clock",
    "ETag": "for the next conditional request",
    "Idempotency-Replayed": "whether the response is to an earlier request",
    "Location": "the place of the new resource",
    "Retry-After": "when to try again",
    "WWW-Authenticate": "how to show a key",
    "X-Archive-Branch": "the contents of an archive",
    "X-Archive-Head-Commit": "the contents of an archive",
    "X-Archive-Repo-Remote": "the contents of an archive",
    "X-Last-Seq": "the seq from which a long poll continues",
    "X-OpenHands-ServerConversation-ID": "the conversation of a call of OpenAI's API",
    "X-Key-Status": "whether an open server knows the sent key",
    "X-Request-Id": "finds the log lines of the request",
    "X-Sandbox-Id": "the sandbox of a call without a conversation",
    "X-Should-Retry": "forbids a repeat of the call",
    "X-Start-Detail": "the members of a start that the agent ignores",
}

_EXPOSED = ", ".join(EXPOSED)

#: Headers of every response. No cache may store it, because it may contain conversations, keys and secrets.
_HEADERS = {**SECURITY_HEADERS, "Cache-Control": "no-store"}

#: Lifetime of a preflight response in a browser, in seconds.
_MAX_AGE = 600

#: Header by which a browser asks whether a public page may reach a server with a private address, such as loopback.
_PRIVATE = "Access-Control-Request-Private-Network"


@dataclass(frozen=True, slots=True)
class Posture:
    """The hosts and origins that a request may name.

    is_open: no key is needed. allowed_hosts: as `origins.host_pattern` returns them. allowed_origins: as
    `origins.origin` returns them. webhook_host: host of the URL that sandboxes post to.
    """

    is_open: bool
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: frozenset[str] = frozenset()
    webhook_host: str = ""

    def refusal_of_host(self, host: str | None, target: str, path: str) -> str | None:
        """Return why a request is for another server, in words; None if it is for this server.

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
        """Return why a page may not send a request, in words; None if it may, or if no page sent the request.

        headers: with a Host that was accepted. scheme: of the URL that the client used.
        """
        if method in _SAFE and "Upgrade" not in headers:
            return None
        sent, site = headers.get("Origin"), headers.get("Sec-Fetch-Site", "none")
        if sent is not None and origin(sent) in self.allowed_origins:
            return None
        if site not in ("same-origin", "same-site", "none"):
            return _refused_page(sent or "")
        place = authority(headers.get("Host", ""))
        if sent is None or (place and origin(sent) == origin_at(scheme, place)):
            return None
        own = " If it is this server's own page behind a proxy, TRUSTED_PROXIES must name the proxy"
        return f"{_refused_page(sent)}.{own}"


def _refused_page(sent: str) -> str:
    """Return why a page may not do something, and the setting that would allow it. sent: its Origin header."""
    page = origin(sent)
    if page is None:
        return "A page of another site may not do this: ALLOWED_ORIGINS names those that may"
    return f"A page of {page} may not do this: to allow it, start the server with ALLOWED_ORIGINS={page}"


def admit() -> Response | None:
    """Return the response to a preflight; None for any other request.

    Runs before the body is read and before the store is asked. Raises MisdirectedRequest (421), Forbidden (403), and
    BadRequest for an invalid path prefix of the proxy.
    """
    posture = current_server().posture
    environ, method = request.environ, request.method
    if refusal := posture.refusal_of_host(environ.get("HTTP_HOST"), environ.get("RAW_URI", "/"), request.path):
        raise MisdirectedRequest(refusal)
    if refusal := posture.refusal_of_origin(method, request.headers, environ["wsgi.url_scheme"]):
        raise Forbidden(refusal)
    if not _PREFIX.fullmatch(environ.get("SCRIPT_NAME", "")):
        raise BadRequest("X-Forwarded-Prefix is not a path such as /agents, of letters, digits and - . _ ~")
    if method != "OPTIONS" or "Access-Control-Request-Method" not in request.headers:
        return None
    if origin(request.headers.get("Origin", "")) not in posture.allowed_origins:
        raise Forbidden(_refused_page(request.headers.get("Origin", "")))
    return Response(status=204)


def with_headers(response: Response) -> Response:
    """Add the common headers to a response. Headers of the view take precedence."""
    # A single pass over the names, because `setdefault` would read all headers each time.
    given = {name.lower() for name, _ in response.headers}
    for name, value in _HEADERS.items():
        if name.lower() not in given:
            response.headers.add(name, value)
    allowed = current_server().posture.allowed_origins
    if not allowed:
        return response
    response.vary.add("Origin")
    sent = request.headers.get("Origin", "")
    if origin(sent) in allowed:
        response.headers["Access-Control-Allow-Origin"] = sent
        response.headers["Access-Control-Allow-Credentials"] = "true"
        response.headers["Access-Control-Expose-Headers"] = _EXPOSED
        if request.method == "OPTIONS":
            _grant(response)
    return response


def _grant(response: Response) -> None:
    """Complete the response to a preflight: a page may send what it asks for."""
    response.vary.update(("Access-Control-Request-Method", "Access-Control-Request-Headers", _PRIVATE))
    response.headers["Access-Control-Allow-Methods"] = "DELETE, GET, HEAD, PATCH, POST, PUT"
    response.headers["Access-Control-Max-Age"] = str(_MAX_AGE)
    if wanted := request.headers.get("Access-Control-Request-Headers"):
        response.headers["Access-Control-Allow-Headers"] = wanted
    if request.headers.get(_PRIVATE) == "true":
        response.headers["Access-Control-Allow-Private-Network"] = "true"


def is_within(peer: str, networks: Iterable[IPv4Network | IPv6Network]) -> bool:
    """Return whether a peer's address is in one of the networks; false for a Unix socket."""
    try:
        address = ip_address(peer)
    except ValueError:
        return False
    if isinstance(address, IPv6Address):
        address = address.ipv4_mapped or address
    return any(address in network for network in networks)


class TrustedProxies:
    """Applies the `X-Forwarded-` headers of a trusted proxy: client address, scheme, host and `SCRIPT_NAME`.

    The proxy strips the path in `SCRIPT_NAME`. Only the last value of each header counts, because the proxy added it.
    Earlier values come from the client.
    """

    def __init__(self, app: Any, networks: Iterable[str]) -> None:
        """networks: addresses or networks of proxies."""
        self._app = app
        self._behind_a_proxy = ProxyFix(app, x_for=1, x_proto=1, x_host=1, x_prefix=1)
        self._networks = [ip_network(network) for network in networks]

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        is_trusted = is_within(environ.get("REMOTE_ADDR", ""), self._networks)
        return (self._behind_a_proxy if is_trusted else self._app)(environ, start_response)
