"""Previews: the operations that open a preview, and the hosts that show it. Source: docs/console.md, "Preview".
`PreviewHosts` wraps the app and routes by the `Host` header: a request to a preview host reaches no route of this
server, and a request to any other host reaches no preview.

The address of a preview contains a single-use ticket. It is exchanged for a cookie of the preview's host, sealed for a
port of a sandbox, and the browser is redirected to `/`. Requests from pages of other origins are refused even with the
cookie, because a browser treats all previews as the same site.
"""

import logging
import socket
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from hashlib import sha256
from html import escape
from typing import Any
from urllib.parse import parse_qs
from uuid import uuid4

from flask import Flask, g, request
from gunicorn.http.errors import ParseException
from werkzeug.datastructures import EnvironHeaders
from werkzeug.exceptions import Forbidden
from werkzeug.http import dump_cookie
from werkzeug.wsgi import get_input_stream

from agents.client import AgentUnreachable
from agents.forwarding import ClientGone, Forwarding
from agents.previews import (
    COOKIES,
    GUARDS,
    LOOPBACK_HOST,
    MOST_SENT,
    Exchange,
    NoPreview,
    Preview,
    PreviewBodyTooLong,
    PreviewHead,
    listening_ports,
    request_headers,
)
from agents.tunnels import PIECE, Tunnel, open_tunnel
from agents.waking import NotReachable
from blueprints import Server, actor_of, current_forwarding, current_server, current_store
from blueprints.api import Blueprint, needs
from blueprints.following import caller_required, client_of
from boot.http import BodyTooSlow, body_of
from core.access import Principal
from core.origins import Authority, authority, is_loopback, origin, origin_at
from core.refused import Refused
from core.wire import Micros, utc_time
from net.carry import end, pieces
from schemas.sandboxes import ListeningPorts, PreviewAddress, PreviewRequest, is_sandbox_id
from store.access import Quota, QuotaExceeded
from store.access.access_keys import SESSION_SECONDS, TICKET_SECONDS
from store.conversations.conversations import app_filter
from store.errors import UNAVAILABLE, SandboxNotFound
from store.sandboxes.sandboxes import SandboxId

previews = Blueprint("Previews", __name__, url_prefix="/api/v1/sandboxes")

#: Path that takes a ticket, and maximum length of its query. Reserved path: no previewed page can use it.
_OPENING, _LONGEST_QUERY = "/_preview", 512

#: Maximum number of concurrent exchanges with a sandbox in a worker.
_MOST_EXCHANGES = 64

#: Maximum number of a sandbox's conversations, the newest, whose audit records that a preview was opened.
_MOST_AUDITED = 100

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

NEEDS_BOTH = "A preview shows unapproved content: it needs a key with the scopes write and approve"

NO_HOST = (
    "This server has no host of previews: set PREVIEW_HOST to a domain whose names resolve to it, such as "
    "preview.example.org, or use a loopback name of the server"
)

_log = logging.getLogger(__name__)


#: Errors that may refuse a request after its sandbox was asked.
_REFUSALS: tuple[type[Exception], ...] = (Refused, NotReachable, BodyTooSlow, ParseException)

#: Style of a refusal in a tab: text in the console's colours, and no scripts.
_STYLE = """
:root { color-scheme: light dark; }
body { max-width: 34rem; margin: 18vh auto 0; padding: 0 1.25rem; font: 100%/1.5 system-ui, sans-serif;
  overflow-wrap: anywhere; color: light-dark(#1d2433, #d9e0ea); background: light-dark(#f7f8fb, #141922); }
h1 { margin: 0 0 0.5rem; font-size: 1.35rem; }
p { margin: 0 0 1rem; }
footer { font-size: 0.86rem; color: light-dark(#556070, #9aa6b8); }
"""

_PAGE = f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Preview not available</title>
<style>{_STYLE}</style>
<h1>This preview cannot be shown</h1>
"""

_STYLE_HASH = b64encode(sha256(_STYLE.encode()).digest()).decode()

#: Interval in seconds between two checks whether a WebSocket must end.
_POLL = 1.0


class TooManyExchanges(QuotaExceeded):
    """Raised if a worker has its maximum number of exchanges with the previews of a sandbox."""

    words = "At most {most} requests to the previews of one sandbox are served at once: try again shortly"


@previews.get("/<sandbox_id>/ports")
@needs("write")
@previews.fails(405, 409, 410, 429, 500, 502)
@previews.response(200, ListeningPorts)
def list_ports(sandbox_id: str) -> dict[str, Any]:
    """List the ports at which programs of a sandbox listen, if its agent server can tell."""
    identity = _allowed(sandbox_id)
    programs = listening_ports(current_forwarding, identity, caller_required())
    told = {str(port): text for port, text in programs.items() if text}
    return {"ports": list(programs), "programs": current_store.masks.in_sandbox(identity).value(told)}


@previews.post("/<sandbox_id>/previews")
@needs("write")
@previews.replay(has_key=True)
@previews.fails(409, 410, 429, 502)
@previews.arguments(PreviewRequest())
@previews.response(201, PreviewAddress)
def open_preview(wanted: dict[str, int], sandbox_id: str) -> dict[str, Any]:
    """Make the address of a preview, which shows a port of a sandbox on its own origin."""
    preview = Preview(_allowed(sandbox_id), wanted["port"])
    label, place = preview.label, authority(request.host)
    host = current_server().config.http.preview_host or LOOPBACK_HOST
    if place is None or (host == LOOPBACK_HOST and not is_loopback(place.host)):
        raise NoPreview(NO_HOST)
    _tunnel(current_forwarding, preview).close()  # fail here rather than in a new tab if no program listens
    ticket = current_store.access.tickets.make(g.principal, _about(label), g.principal.scopes)
    own = origin_at(request.scheme, Authority(f"{label}.{host}", place.port))
    expires_at = Micros(current_store.link.health.recent_clock() + TICKET_SECONDS * 1_000_000)
    return {"url": f"{own}{_OPENING}?ticket={ticket}", "expires_at": utc_time(expires_at)}


def _allowed(sandbox_id: str) -> SandboxId:
    """Return the sandbox if the caller may preview it. Raises Forbidden, SandboxNotFound."""
    if not g.principal.may("approve"):
        raise Forbidden(NEEDS_BOTH)
    if not is_sandbox_id(sandbox_id):
        raise SandboxNotFound
    return current_store.sandboxes.get(SandboxId(sandbox_id)).id


def _about(label: str) -> str:
    """Return the subject of a preview's ticket, which is never the id of a conversation."""
    return f"preview {label}"


def _tunnel(forwarding: Forwarding, preview: Preview, *, wakes: bool = True) -> Tunnel:
    """Connect to the program. Raises NotReachable, TooManySandboxes, AgentUnreachable, NoTunnel."""
    url, key = forwarding.awake(preview.sandbox_id, wakes=wakes)
    return open_tunnel(url, key, f"/api/ports/{preview.port}", "tcp")


class _Refusal(Exception):
    """Raised to refuse a request to a preview host. Its sentence is for the person."""

    def __init__(self, status: str, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


#: Refusal of a preview that this browser has not opened, or that has ended.
_NOT_OPEN = _Refusal(
    "403 Forbidden",
    "This preview is not open in this browser, or has ended. Open it again: Preview, in the console's conversation.",
)


StartResponse = Callable[..., Any]


class PreviewHosts:
    """Serves the preview hosts, and passes requests for other hosts to the app."""

    def __init__(self, app: Flask, served: Any, host: str) -> None:
        """served: the WSGI app of the other hosts. host: the domain of previews; empty: LOOPBACK_HOST."""
        self._app = app
        self._served = served
        self._host = host or LOOPBACK_HOST
        self._exchanges = Quota(_MOST_EXCHANGES, TooManyExchanges)

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        place = authority(environ.get("HTTP_HOST", ""))
        if place is None or not f".{place.host}".endswith(f".{self._host}"):
            served: Iterable[bytes] = self._served(environ, start_response)
            return served
        try:
            return _HostRequest(self._app, self._exchanges, environ, place, self._host).serve(start_response)
        except _Refusal as refusal:
            return _respond(environ, start_response, refusal.status, refusal)
        except _REFUSALS as refusal:
            return _respond(environ, start_response, _status_of(refusal), refusal)
        except UNAVAILABLE:
            sentence = "The store does not answer: try again shortly"
            return _respond(environ, start_response, "503 Service Unavailable", sentence)
        except (ClientGone, ConnectionError):
            raise StopIteration from None  # this exception makes gunicorn's workers close a connection


def _status_of(refusal: Exception) -> str:
    if isinstance(refusal, PreviewBodyTooLong):
        return "413 Content Too Large"
    if isinstance(refusal, QuotaExceeded):
        return "429 Too Many Requests"
    if isinstance(refusal, BodyTooSlow):
        return "408 Request Timeout"
    if isinstance(refusal, ParseException):
        return "400 Bad Request"
    return "503 Service Unavailable" if isinstance(refusal, NotReachable) else "502 Bad Gateway"


def _respond(
    environ: dict[str, Any], start_response: StartResponse, status: str, refusal: Exception | str
) -> list[bytes]:
    """Respond with a sentence: as a page if a browser shows it in a tab, otherwise as text."""
    sentence = f"{str(refusal).removesuffix('.')}."
    destination = environ.get("HTTP_SEC_FETCH_DEST", "document")
    is_page = destination == "document" and "text/html" in environ.get("HTTP_ACCEPT", "")
    text, kind, style = f"{sentence}\n", "text/plain", ""
    if is_page:
        text = f"{_PAGE}<p>{escape(sentence)}</p>\n<footer>Agent Server: {status}</footer>\n</html>\n"
        kind, style = "text/html", f"; style-src 'sha256-{_STYLE_HASH}'"
    raw = text.encode()
    policy = [("Content-Security-Policy", f"default-src 'none'{style}"), ("X-Content-Type-Options", "nosniff")]
    fixed = [("Content-Type", f"{kind}; charset=utf-8"), ("Cache-Control", "no-store"), *policy, *GUARDS]
    start_response(status, [("Content-Length", str(len(raw))), *fixed])
    return [raw]


class _HostRequest:
    """A request to a preview host."""

    def __init__(self, app: Flask, exchanges: Quota, environ: dict[str, Any], place: Authority, host: str) -> None:
        self._exchanges = exchanges
        self._environ = environ
        self._method: str = environ["REQUEST_METHOD"]
        self._headers = EnvironHeaders(environ)
        self._scheme: str = environ["wsgi.url_scheme"]
        self._origin = origin_at(self._scheme, place)
        self._label = place.host.removesuffix(f".{host}")
        server: Server = app.extensions["server"]
        self._store, self._guard, self._forwarding = server.store, server.guard, server.forwarding

    def serve(self, start_response: StartResponse) -> Iterable[bytes]:
        """Respond.

        Raises _Refusal, one of _REFUSALS or UNAVAILABLE, ClientGone; StopIteration to close the connection.
        """
        target: str = self._environ.get("RAW_URI") or self._environ.get("REQUEST_URI") or "/"
        preview = Preview.of_label(self._label)
        if preview is None or not is_sandbox_id(preview.sandbox_id):
            raise _Refusal("404 Not Found", "There is no such preview")
        if not target.startswith("/"):
            raise _Refusal("400 Bad Request", "The request's URI must be a path")
        if self._method not in _METHODS:
            raise _Refusal("501 Not Implemented", f"A preview takes {', '.join(sorted(_METHODS))}")
        self._refuse_other_pages()
        if target.partition("?")[0] == _OPENING:
            return self._open(preview, start_response)
        principal, seconds = self._bearer()
        return self._exchange(preview, principal, seconds, target, start_response)

    def _refuse_other_pages(self) -> None:
        """Raise _Refusal for a request from a page of another origin, unless it opens a page in a tab."""
        site, sent = self._headers.get("Sec-Fetch-Site"), self._headers.get("Origin")
        if site == "same-origin":
            return
        refused = _Refusal("403 Forbidden", "Other pages may not request this: open it in a separate tab")
        if site not in (None, "none") and not self._opens_page():
            raise refused
        if sent is not None and origin(sent) != self._origin:
            raise refused

    def _opens_page(self) -> bool:
        """Return whether a browser declares that it shows the response in a tab or window."""
        fetched = (self._headers.get("Sec-Fetch-Mode"), self._headers.get("Sec-Fetch-Dest"))
        return self._method == "GET" and fetched == ("navigate", "document")

    def _open(self, preview: Preview, start_response: StartResponse) -> list[bytes]:
        """Redeem the ticket, record it in the audit, and give the browser its cookie."""
        if self._method != "GET":
            raise _Refusal("405 Method Not Allowed", "A preview is opened by GET")
        query = parse_qs(self._environ.get("QUERY_STRING", "")[:_LONGEST_QUERY])
        about = _about(self._label)
        principal = self._store.access.tickets.take(query.get("ticket", [""])[0], about)
        if principal is None or principal.conversation_id != about or not self._guard.stands(principal):
            raise _NOT_OPEN
        self._audit(preview, principal)
        cookie = dump_cookie(
            self._cookie,
            self._store.access.sessions.make(principal, about),
            max_age=SESSION_SECONDS,
            path="/",
            secure=self._is_secure,
            httponly=True,
            samesite="Lax",  # browsers do not send a Strict cookie after a redirect from the console's page
        )
        headers = [("Location", "/"), ("Set-Cookie", cookie), ("Content-Length", "0"), ("Cache-Control", "no-store")]
        start_response("303 See Other", [*headers, *GUARDS])
        return [b""]

    def _audit(self, preview: Preview, principal: Principal) -> None:
        """Record in the audit that a preview opens. Raises one of UNAVAILABLE: without the entry it does not open."""
        actor = actor_of(principal, self._address)
        identity = uuid4().hex[:12]
        filters = app_filter(sandbox_id=preview.sandbox_id, with_children=True)
        found, _ = self._store.conversations.in_sandboxes.search(
            filters, by="created", descending=True, limit=_MOST_AUDITED, start=None
        )
        for state in found:
            self._store.approvals.terminals.previewed(state["id"], actor, identity, preview.sandbox_id, preview.port)

    @property
    def _address(self) -> str:
        return str(self._environ.get("REMOTE_ADDR") or "")

    @property
    def _is_secure(self) -> bool:
        return self._scheme == "https"

    @property
    def _cookie(self) -> str:
        return COOKIES[self._is_secure]

    def _bearer(self) -> tuple[Principal, float]:
        """Return the principal whose cookie opens this preview, and its remaining seconds. Raises _Refusal.

        There may be several cookies of the name. Pages can set useless ones for longer paths and for all previews, and
        browsers send those first. So all cookies in the head are tried, at about 15 µs each.
        """
        pairs = (pair.strip().partition("=") for pair in self._headers.get("Cookie", "").split(";"))
        for value in [value for name, _, value in pairs if name == self._cookie]:
            found = self._store.access.sessions.find(value, _about(self._label))
            if found and self._guard.stands(found[0]):
                return found
        raise _NOT_OPEN

    def _exchange(
        self, preview: Preview, principal: Principal, seconds: float, target: str, start_response: StartResponse
    ) -> Iterable[bytes]:
        if "Service-Worker" in self._headers or self._headers.get("Sec-Fetch-Dest") == "serviceworker":
            raise _Refusal("403 Forbidden", "A preview has no service workers: they would stay in the browser")
        upgrade = self._upgrade()
        self._exchanges.take(preview.sandbox_id)
        served = _ServedBody(lambda: self._exchanges.give_back(preview.sandbox_id))
        try:
            # Requests of scripts resume no sandbox. Otherwise a tab that polls would keep a paused sandbox running.
            tunnel = _tunnel(self._forwarding, preview, wakes=self._opens_page())
            served.ends.append(tunnel.close)
            served.ends.append(self._guard.following.begin(principal, tunnel.close, self._address))
            exchange = Exchange(tunnel, preview.port, seconds, client_of(self._environ.get("gunicorn.socket")))
            head = exchange.ask(self._method, target, self._sent_headers(upgrade), self._body())
            if head.status == 101:
                _join(self._environ["gunicorn.socket"], tunnel, head, exchange.rest, time.monotonic() + seconds)
                raise StopIteration  # nothing more is written on the connection
            served.pieces = iter(exchange)
            start_response(head.line, head.headers)
            return served
        except BaseException:
            served.close()
            raise

    def _upgrade(self) -> bool:
        """Return whether this is a WebSocket handshake. Other upgrades are not forwarded. Raises _Refusal."""
        if self._headers.get("Upgrade", "").lower() != "websocket":
            return False
        if self._headers.get("Origin") is None or self._environ.get("gunicorn.socket") is None:
            raise _Refusal("403 Forbidden", "Only the preview's own page can open its WebSockets")
        return True

    def _sent_headers(self, upgrade: bool) -> list[tuple[str, str]]:
        kept = request_headers(self._headers.items(), self._scheme)
        if upgrade:
            return [*kept, ("Connection", "Upgrade"), ("Upgrade", "websocket")]
        if self._is_chunked:
            kept = [(name, value) for name, value in kept if name.lower() != "content-length"]
            kept.append(("Transfer-Encoding", "chunked"))
        return [*kept, ("Connection", "close")]

    @property
    def _is_chunked(self) -> bool:
        return "chunked" in self._headers.get("Transfer-Encoding", "").lower()

    def _body(self) -> Iterator[bytes]:
        """Yield the request's body in chunks as it arrives. Raises PreviewBodyTooLong, BodyTooSlow, ParseException."""
        length = self._environ.get("CONTENT_LENGTH") or "0"
        if not self._is_chunked and (not length.isdigit() or length == "0"):
            return iter(())
        if int(length) > MOST_SENT:
            raise PreviewBodyTooLong
        stream = get_input_stream(self._environ)
        if body := body_of(self._environ):
            body.stream()
        return iter(lambda: stream.read(PIECE), b"")


class _ServedBody:
    """The body of a response, with its cleanup. A class, because a generator that never started is not closed."""

    def __init__(self, *ends: Callable[[], None]) -> None:
        self.ends = [*ends]
        self.pieces: Iterator[bytes] = iter(())

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        """Return the next chunk.

        Raises ConnectionError if the program ends early, so that the browser sees a broken response.
        """
        try:
            return next(self.pieces)
        except (AgentUnreachable, ClientGone) as error:
            raise ConnectionError(str(error)) from None

    def close(self) -> None:
        ends, self.ends = self.ends, []  # a server may close a response twice
        for finish in reversed(ends):
            finish()


def _join(client: socket.socket, tunnel: Tunnel, head: PreviewHead, rest: bytes, until: float) -> None:
    """Respond to a handshake, and forward bytes both ways until either side or the preview ends.

    `join` of net/carry.py expects sockets that end by themselves. Here a deadline and the end of the preview end both.
    """
    names = "".join(f"{name}: {value}\r\n" for name, value in head.headers)
    ending = threading.Event()

    def to_program() -> None:
        with suppress(OSError, AgentUnreachable):
            for piece in pieces(client):
                tunnel.send(piece)
        ending.set()
        tunnel.close()

    with suppress(OSError):
        client.sendall(
            f"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n{names}\r\n".encode(
                "latin-1"
            )
            + rest
        )
        client.settimeout(None)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sender = threading.Thread(target=to_program, daemon=True)
        sender.start()
        while not ending.is_set() and time.monotonic() < until and (piece := tunnel.receive(_POLL)) != b"":
            if piece:
                client.sendall(piece)
    end(client)
