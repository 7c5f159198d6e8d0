"""Previews: a port of a sandbox, the host that shows it, and the exchange with the program at the port.

The exchange is HTTP/1.1 by h11 on a tunnel (`agents/tunnels.py`). Neither the page nor the program is trusted.
Guarantee: no key, no cookie and no hop-by-hop header of ours reaches the program. No response gives a browser a cookie
of another host, a service worker's scope, or a rule for other hosts. Source: docs/console.md, "Preview".
"""

import base64
import binascii
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from http import HTTPStatus
from typing import NamedTuple

import h11

from agents.client import AgentUnreachable
from agents.forwarding import ForwardedCall, Forwarding
from agents.tunnels import Tunnel
from core.bounds import LEAST_PREVIEW_PORT
from core.cuts import beginning
from core.pauses import take_turns
from core.refused import RefusalKind, Refused
from core.wire import InvalidJson, parse_json
from store.sandboxes.sandboxes import SandboxId

#: Default domain of previews: loopback, for a browser on the server's machine.
LOOPBACK_HOST = "preview.localhost"

#: Maximum sizes in bytes: of a request body, of a response body, and of a response head.
MOST_SENT, MOST_RECEIVED, _MOST_HEAD = 256 << 20, 2 << 30, 64 * 1024

#: Maximum number of interim responses. They are dropped.
_MOST_INTERIM = 100

#: Maximum time without a byte, and interval between two checks of the client, in seconds.
SILENCE, _POLL = 120.0, 1.0

#: Cookie of a preview over plain HTTP, and over HTTPS, where no other host can set it.
COOKIES = ("agent_preview", "__Host-agent_preview")

#: Maximum length of a DNS label, in characters.
_LONGEST_LABEL = 63

_LABEL = re.compile(r"([1-9][0-9]{3,4})-([a-z2-7]+)")


#: Maximum size of a list of ports, in bytes.
_MOST_LIST = 512 * 1024

#: Maximum number of characters of a program's command line.
_MOST_PROGRAM = 300

#: Headers of a single connection. Source: RFC 9110, 7.6.1.
_HOP_BY_HOP = frozenset(
    {
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer"),
        *("transfer-encoding", "upgrade", "expect"),
    }
)

#: Headers of a request that are for this server only, or that it sets itself.
_OURS = frozenset({"authorization", "x-session-api-key", "x-person-proxy-secret", "forwarded", "x-real-ip", "via"})

#: Headers of a response that a browser gets, beside _KEPT_FAMILIES. Each affects only this response or page. Browsers
#: add new headers every year, and some affect the whole site, such as Sec-Session-Registration. So unknown headers are
#: dropped.
_KEPT = frozenset(
    {
        *("accept-patch", "accept-post", "accept-ranges", "age", "allow", "cache-control", "cache-status"),
        *("content-description", "content-digest", "content-disposition", "content-encoding", "content-language"),
        *(
            "content-length",
            "content-location",
            "content-md5",
            "content-range",
            "content-type",
            "dav",
            "date",
            "digest",
        ),
        *("etag", "expires", "last-modified", "link", "location", "pragma", "refresh", "repr-digest", "retry-after"),
        *("server", "server-timing", "set-cookie", "sourcemap", "timing-allow-origin", "vary", "www-authenticate"),
        *("content-security-policy", "content-security-policy-report-only", "cross-origin-embedder-policy"),
        *("cross-origin-embedder-policy-report-only", "document-policy", "feature-policy", "permissions-policy"),
        *("digest", "request-id", "traceparent", "tracestate", "idempotency-key", "last-event-id"),
        *("sec-websocket-accept", "sec-websocket-extensions", "sec-websocket-protocol", "sec-websocket-version"),
    }
)

#: Prefixes of further headers: of programs, of CORS, and of libraries that pages use.
_KEPT_FAMILIES = ("x-", "access-control-", "grpc-", "hx-", "mcp-", "openai-", "ratelimit", "turbo-", "upload-", "tus-")

#: Headers of every response of a preview. Several policies add up, so the page's own policy still applies.
GUARDS = (
    ("Content-Security-Policy", "frame-ancestors 'self'"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Origin-Agent-Cluster", "?1"),
    ("Referrer-Policy", "same-origin"),
)

_NAME, _VALUE = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"), re.compile(r"[\t\x20-\x7e\x80-\xff]*")

#: Headers with a URL, alone or after a number of seconds.
_ADDRESSES = frozenset({"location", "content-location", "refresh"})

#: A URL with a loopback host, as a program names itself: the text before it, and the text after its port.
_OWN_ADDRESS = re.compile(
    r"(?P<before>\s*(?:[0-9.]+\s*[;,]\s*(?:url\s*=\s*)?[\"']?)?)"
    r"(?:https?:)?[/\\]{2}(?:[^/\\?#@]*@)?"
    r"(?:localhost\.?|127(?:\.[0-9]{1,3}){3}|0\.0\.0\.0|\[(?:::1?|::ffff:127(?:\.[0-9]{1,3}){3})\])"
    r":(?P<port>[0-9]{1,5})(?P<rest>[/\\?#\"'].*)?",
    re.IGNORECASE,
)


class NoPreview(Refused):
    """The port has no preview: it is out of range, or no host name can be given to it."""

    kind = RefusalKind.CONFLICT


class PreviewBodyTooLong(Refused):
    """The body of the request to a preview is too large."""

    kind = RefusalKind.TOO_LONG
    words = f"The body is longer than {MOST_SENT} bytes: send less at once"


class Preview(NamedTuple):
    """A port of a sandbox."""

    sandbox_id: SandboxId
    port: int

    @property
    def label(self) -> str:
        """Return the first label of its host, with the id in base 32, because hosts are case-insensitive.

        Raises NoPreview.
        """
        text = base64.b32encode(self.sandbox_id.encode()).decode().rstrip("=").lower()
        label = f"{self.port}-{text}"
        if len(label) > _LONGEST_LABEL:
            raise NoPreview("The id of this sandbox is too long for the name of a host: it has no previews")
        return label

    @classmethod
    def of_label(cls, label: str) -> "Preview | None":
        """Return the port of a label; None if the label is invalid."""
        match = _LABEL.fullmatch(label)
        if match is None or len(label) > _LONGEST_LABEL or not LEAST_PREVIEW_PORT <= int(match[1]) <= 65535:
            return None
        text = match[2].upper()
        try:
            sandbox_id = base64.b32decode(text + "=" * (-len(text) % 8)).decode("ascii")
        except (binascii.Error, UnicodeDecodeError):
            return None
        found = cls(SandboxId(sandbox_id), int(match[1]))
        return found if found.label == label else None


def listening_ports(
    forwarding: Forwarding, sandbox_id: SandboxId, require_client: Callable[[], None] = lambda: None
) -> dict[int, str]:
    """Return the listening ports of a sandbox's programs with their command lines; empty lines if unknown.

    Raises RouteLacking and the errors of `Forwarding.open`.
    """
    call = ForwardedCall("GET", "/api/ports", b"", lambda _: None, require_client=require_client)
    answer = forwarding.open(sandbox_id, call)
    try:
        answer.require_route(call.path)
        raw = b""
        for piece in answer:
            raw += piece
            if len(raw) > _MOST_LIST:
                raise AgentUnreachable("The agent server's list of ports is too long")
    finally:
        answer.close()
    try:
        told = parse_json(raw)
    except InvalidJson:
        told = None
    found = told.get("ports") if answer.status == HTTPStatus.OK and isinstance(told, dict) else None
    if not isinstance(found, list):
        raise AgentUnreachable(f"The agent server answered {answer.status}, and not with a list of ports")
    programs = told.get("programs") if isinstance(told, dict) else None
    known = programs if isinstance(programs, dict) else {}
    ports = sorted({port for port in found if type(port) is int and LEAST_PREVIEW_PORT <= port <= 65535})
    return {port: beginning(str(known.get(str(port), "")), _MOST_PROGRAM) for port in ports}


class PreviewHead(NamedTuple):
    """The head of a program's response, as the browser gets it."""

    status: int
    headers: list[tuple[str, str]]

    @property
    def line(self) -> str:
        """Return the status line with the standard phrase, not the program's."""
        try:
            return f"{self.status} {HTTPStatus(self.status).phrase}"
        except ValueError:
            return f"{self.status} Unknown"


class Exchange:
    """A request to the program, and its response; iterate over its body, then close it."""

    def __init__(self, tunnel: Tunnel, port: int, seconds: float, require_client: Callable[[], None]) -> None:
        """port: of the program. seconds: maximum duration. require_client: raises ClientGone if the client has
        disconnected.
        """
        self._tunnel, self._port = tunnel, port
        self._until = time.monotonic() + seconds
        self._require_client = require_client
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MOST_HEAD)
        self._received = 0

    def ask(self, method: str, target: str, headers: list[tuple[str, str]], body: Iterable[bytes]) -> PreviewHead:
        """Send a request, and return the head of its response. The head of an upgrade is a 101, see `rest`.

        Raises AgentUnreachable, PreviewBodyTooLong, ClientGone, and the errors of the body.
        """
        try:
            with suppress(AgentUnreachable):  # a program may respond and end before it has read the whole body
                self._send(h11.Request(method=method, target=target, headers=headers))
                self._send_body(body)
                self._send(h11.EndOfMessage())
        except h11.LocalProtocolError as error:
            raise AgentUnreachable(f"The request cannot be sent on: {error}") from error
        interim = 0
        while not isinstance(event := self._next(), h11.Response):
            if isinstance(event, h11.InformationalResponse) and event.status_code == HTTPStatus.SWITCHING_PROTOCOLS:
                break
            if not isinstance(event, h11.InformationalResponse):
                raise AgentUnreachable("The program at this port does not answer by HTTP")
            interim += 1
            if interim > _MOST_INTERIM:
                raise AgentUnreachable(f"The program at this port sends more than {_MOST_INTERIM} interim responses")
        return PreviewHead(event.status_code, response_headers(event.status_code, event.headers, self._port))

    def _send_body(self, body: Iterable[bytes]) -> None:
        sent = 0
        for piece in body:
            sent += len(piece)
            if sent > MOST_SENT:
                raise PreviewBodyTooLong
            self._send(h11.Data(data=piece))

    def _send(self, event: h11.Event) -> None:
        if data := self._http.send(event):
            self._tunnel.send(data)

    def _next(self) -> h11.Event:
        """Return the next event of the program. Raises AgentUnreachable after SILENCE, and ClientGone."""
        take_turns()  # a chunk may contain thousands of events
        silent_since = time.monotonic()
        try:
            while (event := self._http.next_event()) is h11.NEED_DATA:
                data = self._tunnel.receive(_POLL)
                now = time.monotonic()
                if data is None and now - silent_since > SILENCE:
                    raise AgentUnreachable(f"The program at this port was silent for {SILENCE:g} s")
                if now > self._until:
                    raise AgentUnreachable("The preview has ended")
                self._require_client()
                if data == b"" and self._http.their_state is h11.SEND_RESPONSE:
                    raise AgentUnreachable("The program at this port has ended the connection without a response")
                if data is not None:
                    self._http.receive_data(data)
        except h11.RemoteProtocolError as error:
            raise AgentUnreachable(f"The program at this port does not answer by HTTP: {error}") from error
        if isinstance(event, h11.ConnectionClosed):
            raise AgentUnreachable("The program at this port has ended the connection")
        assert not isinstance(event, type), event  # PAUSED only follows the end
        return event

    @property
    def rest(self) -> bytes:
        """Return the bytes of the other protocol that followed a 101."""
        return self._http.trailing_data[0]

    def __iter__(self) -> Iterator[bytes]:
        """Yield the body in chunks. Raises the errors of `_next`, so that the browser sees a broken response."""
        while isinstance(event := self._next(), h11.Data):
            self._received += len(event.data)
            if self._received > MOST_RECEIVED:
                raise AgentUnreachable(f"The response is longer than {MOST_RECEIVED} bytes")
            yield bytes(event.data)

    def close(self) -> None:
        """End the exchange, even before the end of the body."""
        self._tunnel.close()


def request_headers(sent: Iterable[tuple[str, str]], scheme: str) -> list[tuple[str, str]]:
    """Return a browser's headers for a program. A caller may add those of an upgrade.

    scheme: by which the browser reaches this server.
    """
    named = [(name, value) for name, value in sent if _NAME.fullmatch(name) and _VALUE.fullmatch(value)]
    dropped = _HOP_BY_HOP | _OURS | _listed(named)
    kept = list[tuple[str, str]]()
    host = ""
    for name, value in named:
        lower = name.lower()
        if lower == "cookie":
            value = _without_ours(value)
        if lower == "host":
            host = value
        if value and lower not in dropped and not lower.startswith("x-forwarded-"):
            kept.append((name, value))
    return [*kept, ("X-Forwarded-Proto", scheme), ("X-Forwarded-Host", host)]


def _listed(headers: Iterable[tuple[str, str]]) -> frozenset[str]:
    """Return the names in `Connection`, which are hop-by-hop too."""
    listed = [value for name, value in headers if name.lower() == "connection"]
    return frozenset(name.strip().lower() for value in listed for name in value.split(","))


def _without_ours(cookies: str) -> str:
    """Remove the cookies of previews from a `Cookie` header."""
    pairs = (pair.strip() for pair in cookies.split(";"))
    return "; ".join(pair for pair in pairs if pair.partition("=")[0].strip() not in COOKIES)


def response_headers(status: int, sent: Iterable[tuple[bytes, bytes]], port: int) -> list[tuple[str, str]]:
    """Return a program's headers for a browser. port: of the program."""
    named = [(name.decode("latin-1"), value.decode("latin-1").strip()) for name, value in sent]
    names = {name.lower() for name, _ in named}
    dropped = _HOP_BY_HOP | _listed(named)
    if status < 200 or status in (204, 304) or "transfer-encoding" in names:
        dropped |= {"content-length"}
    kept = list[tuple[str, str]]()
    for name, value in named:
        lower = name.lower()
        if lower == "set-cookie":
            value = own_cookie(value)
        if lower in _ADDRESSES:
            value = within_preview(value, port)
        if lower in dropped or not (lower in _KEPT or lower.startswith(_KEPT_FAMILIES)):
            continue
        if (value or lower != "set-cookie") and _VALUE.fullmatch(value):
            kept.append((name.title(), value))
    return [*kept, *GUARDS]


def within_preview(address: str, port: int) -> str:
    """Keep a `Location` or `Refresh` in the preview, because loopback of the browser is another machine."""
    match = _OWN_ADDRESS.fullmatch(address)
    if match is None or int(match["port"]) != port:
        return address
    rest = (match["rest"] or "").replace("\t", "")  # browsers ignore tabs
    if not rest.startswith(("/", "\\")):
        rest = f"/{rest}"
    # Two slashes would begin a host name.
    return match["before"] + ("/." if rest[1:2] in ("/", "\\") else "") + rest


def own_cookie(cookie: str) -> str:
    """Limit a `Set-Cookie` to the preview's host; empty if it would replace the preview's own cookie."""
    pair, *attributes = cookie.split(";")
    name = pair.partition("=")[0].strip() if "=" in pair else ""
    if name in COOKIES or (not name and any(ours in pair for ours in COOKIES)):
        return ""
    return ";".join([pair, *(one for one in attributes if one.partition("=")[0].strip().lower() != "domain")])
