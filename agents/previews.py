"""Previews: a port of a sandbox, the host that shows it, and the exchange with the program that listens there.

The exchange is HTTP/1.1 by h11 on a tunnel (`agents/tunnels.py`). Both sides are foreign: the page belongs to the
sandbox, and the program too. Guarantee: no key, no cookie and no hop-by-hop header of ours goes in, and nothing that
comes out gives a browser a cookie of another host, a service worker's scope, or a rule for hosts beside this one.
Source: docs/console.md, "Preview".
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
from core.refused import Kind, Refused
from core.wire import InvalidJson, parse_json
from store.sandboxes.sandboxes import SandboxId

#: the domain of previews where the settings name none: of loopback, on the person's own machine
LOOPBACK_HOST = "preview.localhost"

#: most bytes of the body of a request and of a response, and of a head of the program's
MOST_SENT, MOST_RECEIVED, _MOST_HEAD = 256 << 20, 2 << 30, 64 * 1024

#: interim responses before a response, each of which is read and dropped
_MOST_INTERIM = 100

#: seconds in which a byte must come, and seconds between two looks whether the client is there
SILENCE, _POLL = 120.0, 1.0

#: the cookie of a preview over plain HTTP, and over HTTPS, where no other host can set one of that name
COOKIES = ("agent_preview", "__Host-agent_preview")

#: a label of DNS has at most so many characters
_LONGEST_LABEL = 63

_LABEL = re.compile(r"([1-9][0-9]{3,4})-([a-z2-7]+)")


#: most bytes of a list of ports
_MOST_LIST = 512 * 1024

#: most characters of the command line of a program
_MOST_PROGRAM = 300

#: headers that are about one connection. Source: RFC 9110, 7.6.1
_HOP_BY_HOP = frozenset(
    {
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer"),
        *("transfer-encoding", "upgrade", "expect"),
    }
)

#: headers of a request that are for this server alone, or that it says itself
_OURS = frozenset({"authorization", "x-session-api-key", "x-person-proxy-secret", "forwarded", "x-real-ip", "via"})

#: headers of a response that a browser gets, beside those of _KEPT_FAMILIES: each is about this response or page alone.
#: New ones that browsers obey come each year, and some hold for the whole site, such as Sec-Session-Registration: so
#: what is not known here is left out.
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

#: beginnings of such names: a program's own, those of CORS, and those of libraries that pages use
_KEPT_FAMILIES = ("x-", "access-control-", "grpc-", "hx-", "mcp-", "openai-", "ratelimit", "turbo-", "upload-", "tus-")

#: what every response of a preview has. A policy beside another one adds to it: the page's own holds too
GUARDS = (
    ("Content-Security-Policy", "frame-ancestors 'self'"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Origin-Agent-Cluster", "?1"),
    ("Referrer-Policy", "same-origin"),
)

_NAME, _VALUE = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"), re.compile(r"[\t\x20-\x7e\x80-\xff]*")

#: headers that say where a browser goes, or where a page is: with an address alone, or behind a number of seconds
_ADDRESSES = frozenset({"location", "content-location", "refresh"})

#: an address with the host of a machine's own, as a program names itself: what stands before it, and after its port
_OWN_ADDRESS = re.compile(
    r"(?P<before>\s*(?:[0-9.]+\s*[;,]\s*(?:url\s*=\s*)?[\"']?)?)"
    r"(?:https?:)?[/\\]{2}(?:[^/\\?#@]*@)?"
    r"(?:localhost\.?|127(?:\.[0-9]{1,3}){3}|0\.0\.0\.0|\[(?:::1?|::ffff:127(?:\.[0-9]{1,3}){3})\])"
    r":(?P<port>[0-9]{1,5})(?P<rest>[/\\?#\"'].*)?",
    re.IGNORECASE,
)


class NoPreview(Refused):
    """The port has no preview: it is out of range, or no host name can be given to it."""

    kind = Kind.CONFLICT


class PreviewBodyTooLong(Refused):
    """The body of the request to a preview is too large."""

    kind = Kind.TOO_LONG
    words = f"The body is longer than {MOST_SENT} bytes: send less at once"


class Preview(NamedTuple):
    """A port of a sandbox."""

    sandbox_id: SandboxId
    port: int

    @property
    def label(self) -> str:
        """The first label of its host: hosts have no case, so the id is in base 32. Raises NoPreview."""
        text = base64.b32encode(self.sandbox_id.encode()).decode().rstrip("=").lower()
        label = f"{self.port}-{text}"
        if len(label) > _LONGEST_LABEL:
            raise NoPreview("The id of this sandbox is too long for the name of a host: it has no previews")
        return label

    @classmethod
    def of_label(cls, label: str) -> "Preview | None":
        """The port that a label names; None for what is no label of a preview."""
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
    """The ports at which programs of a sandbox listen, each with its command line; empty: the agent does not tell it.

    Raises as `Forwarding.open`, and RouteLacking.
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
        """The status with its usual words: those of the program are not repeated."""
        try:
            return f"{self.status} {HTTPStatus(self.status).phrase}"
        except ValueError:
            return f"{self.status} Unknown"


class Exchange:
    """One request to the program, and its response; iterate over its body, then close it."""

    def __init__(self, tunnel: Tunnel, port: int, seconds: float, require_client: Callable[[], None]) -> None:
        """port: of the program. seconds: after which it ends. require_client: raises ClientGone once nobody waits."""
        self._tunnel, self._port = tunnel, port
        self._until = time.monotonic() + seconds
        self._require_client = require_client
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MOST_HEAD)
        self._received = 0

    def ask(self, method: str, target: str, headers: list[tuple[str, str]], body: Iterable[bytes]) -> PreviewHead:
        """Send a request, and return the head of its response; of an upgrade it is a 101, see `rest`.

        Raises AgentUnreachable, PreviewBodyTooLong, ClientGone, and what the body raises.
        """
        try:
            with suppress(AgentUnreachable):  # a program may answer, and end, before it has read all
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
        """The next thing that the program says. Raises AgentUnreachable at its silence, and ClientGone."""
        take_turns()  # a piece may hold thousands of them
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
        assert not isinstance(event, type), event  # PAUSED comes after the end alone
        return event

    @property
    def rest(self) -> bytes:
        """After a 101: what the program has sent already of the other protocol."""
        return self._http.trailing_data[0]

    def __iter__(self) -> Iterator[bytes]:
        """The body, a piece at a time. Raises as `_next`: the response breaks off, so that the browser notices."""
        while isinstance(event := self._next(), h11.Data):
            self._received += len(event.data)
            if self._received > MOST_RECEIVED:
                raise AgentUnreachable(f"The response is longer than {MOST_RECEIVED} bytes")
            yield bytes(event.data)

    def close(self) -> None:
        """End it, also before the end of the body."""
        self._tunnel.close()


def request_headers(sent: Iterable[tuple[str, str]], scheme: str) -> list[tuple[str, str]]:
    """The headers that a program gets of those that a browser has sent, which an upgrade may keep its two.

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
    """The names that `Connection` lists, which are about the connection too."""
    listed = [value for name, value in headers if name.lower() == "connection"]
    return frozenset(name.strip().lower() for value in listed for name in value.split(","))


def _without_ours(cookies: str) -> str:
    """What `Cookie` says, without the cookies of previews."""
    pairs = (pair.strip() for pair in cookies.split(";"))
    return "; ".join(pair for pair in pairs if pair.partition("=")[0].strip() not in COOKIES)


def response_headers(status: int, sent: Iterable[tuple[bytes, bytes]], port: int) -> list[tuple[str, str]]:
    """The headers that a browser gets of those that a program at this port has sent."""
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
    """A `Location` or `Refresh` that stays in the preview: on the browser's machine, loopback is another one's port."""
    match = _OWN_ADDRESS.fullmatch(address)
    if match is None or int(match["port"]) != port:
        return address
    rest = (match["rest"] or "").replace("\t", "")  # which browsers leave out
    if not rest.startswith(("/", "\\")):
        rest = f"/{rest}"
    # Two slashes would begin the name of a host.
    return match["before"] + ("/." if rest[1:2] in ("/", "\\") else "") + rest


def own_cookie(cookie: str) -> str:
    """A `Set-Cookie` for the host of the preview alone; empty where it would take the place of the preview's own."""
    pair, *attributes = cookie.split(";")
    name = pair.partition("=")[0].strip() if "=" in pair else ""
    if name in COOKIES or (not name and any(ours in pair for ours in COOKIES)):
        return ""
    return ";".join([pair, *(one for one in attributes if one.partition("=")[0].strip().lower() != "domain")])
