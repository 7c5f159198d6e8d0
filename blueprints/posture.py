"""What browsers and proxies may do: which Host and Origin are refused, whose X-Forwarded- headers count, and the
headers of every response. Source: docs/operations.md.

A page that rebinds its name to our address sends its own name as `Host`; a page elsewhere sends its own `Origin`, or a
browser says `Sec-Fetch-Site: cross-site`. Programs send neither, and are not concerned. Reads without an Origin check
are safe: the browser keeps a response from a page whose origin no CORS header names.
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

#: methods that change nothing
_SAFE = ("GET", "HEAD", "OPTIONS")

#: where sandboxes post to, under the host of WEBHOOK_BASE_URL or the one that a container has for this machine
_WEBHOOKS, _CONTAINERS_HOST = "/api/v1/webhooks/", "host.docker.internal"

#: what `X-Forwarded-Prefix` may be: addresses begin with it, and after two slashes the name of a host would follow
_PREFIX = re.compile(r"(?:/[A-Za-z0-9._~-]+)*/?")


#: headers of responses that a page of an allowed origin may read, and what for; browsers show `Cache-Control`,
#: `Content-Length`, `Content-Type` and `Last-Modified` to every page that may read the body. A test lists the others
EXPOSED = {
    "Accept-Ranges": "whether a file can be read in parts",
    "Allow": "what a path takes instead of the method that was refused",
    "Content-Disposition": "the name of a download",
    "Content-Encoding": "whether `Content-Length` is that of what the page reads",
    "Content-Range": "which part of a file this is",
    "Date": "how far the clock of the page is off",
    "ETag": "for the next conditional request",
    "Idempotency-Replayed": "whether the request had been sent before",
    "Location": "where the new resource is",
    "Retry-After": "when to try again",
    "WWW-Authenticate": "how to show a key",
    "X-Archive-Branch": "what an archive was made of",
    "X-Archive-Head-Commit": "what an archive was made of",
    "X-Archive-Repo-Remote": "what an archive was made of",
    "X-Last-Seq": "the seq from which a long poll goes on",
    "X-OpenHands-ServerConversation-ID": "the conversation of a call of OpenAI's API",
    "X-Key-Status": "whether an open server knows the key that was shown",
    "X-Request-Id": "finds the log lines of the request",
    "X-Sandbox-Id": "the sandbox that a call without a conversation went to",
    "X-Should-Retry": "that a call is not to be repeated",
    "X-Start-Detail": "what the agent of a new conversation ignores of its start",
}

_EXPOSED = ", ".join(EXPOSED)

#: of every response. Conversations, keys and secrets: no cache on the way keeps any of it
_HEADERS = {**SECURITY_HEADERS, "Cache-Control": "no-store"}

#: seconds for which a browser may keep the response to a preflight
_MAX_AGE = 600

#: by which a browser asks whether a page of a public address may reach a server of a private one, such as loopback
_PRIVATE = "Access-Control-Request-Private-Network"


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
            return _refused_page(sent or "")
        place = authority(headers.get("Host", ""))
        if sent is None or (place and origin(sent) == origin_at(scheme, place)):
            return None
        own = " If it is this server's own page behind a proxy, TRUSTED_PROXIES must name the proxy"
        return f"{_refused_page(sent)}.{own}"


def _refused_page(sent: str) -> str:
    """Why a page may not do something, and the setting by which it may. sent: its Origin header."""
    page = origin(sent)
    if page is None:
        return "A page of another site may not do this: ALLOWED_ORIGINS names those that may"
    return f"A page of {page} may not do this: to allow it, start the server with ALLOWED_ORIGINS={page}"


def admit() -> Response | None:
    """The response to a preflight; None for any other request. Raises MisdirectedRequest (421), Forbidden (403),
    BadRequest for a path of the proxy that is none.

    Nothing of the body has been read then, and the store has not been asked.
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
    """The response with the headers that every one has. A view's own header stands."""
    # One pass over the names: `setdefault` would read all headers for each of these.
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
    """Whether the address of a peer is in one of some networks. A Unix socket has none."""
    try:
        address = ip_address(peer)
    except ValueError:
        return False
    if isinstance(address, IPv6Address):
        address = address.ipv4_mapped or address
    return any(address in network for network in networks)


class TrustedProxies:
    """Sets the client's address, the scheme, the host and the path of this server (WSGI's `SCRIPT_NAME`) from the
    `X-Forwarded-` headers of a trusted proxy, which strips that path.

    Of each header the last value counts, which the proxy has added itself: what a client has sent before it does not.
    """

    def __init__(self, app: Any, networks: Iterable[str]) -> None:
        """networks: addresses or networks of proxies."""
        self._app = app
        self._behind_a_proxy = ProxyFix(app, x_for=1, x_proto=1, x_host=1, x_prefix=1)
        self._networks = [ip_network(network) for network in networks]

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        is_trusted = is_within(environ.get("REMOTE_ADDR", ""), self._networks)
        return (self._behind_a_proxy if is_trusted else self._app)(environ, start_response)
