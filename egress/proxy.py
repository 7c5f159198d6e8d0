"""The proxy: carries sandboxes' requests to services, plain requests by name, and tunnels by name.

A connection begins with a line that has the hook key of its sandbox. The sandbox's launcher writes it, so a sandbox
cannot pose as another. HTTP/1.1 follows; h11 parses it, and the proxy writes it anew.

    CONNECT example.org:443          a tunnel; TLS, whose ClientHello names example.org, and nothing else
    GET http://example.org/…         a plain request by name
    POST /NAME/…                     a request to a service of the spec, with the service's headers

A connection to a server carries one request. Leftovers on it could otherwise mix with another sandbox's traffic.

A refusal is immediate, with a sentence. The connection is not held open, although the destination may be allowed later.
Bounds: MOST_AT_ONCE connections of a sandbox, MOST_HEAD bytes of a head, HEAD_SECONDS for it, IDLE_SECONDS without
traffic.

Calls block; the process runs them in greenlets, tests in threads. All sandboxes of a host share the process, so it
yields between chunks. Otherwise a busy connection would starve the others. The connections of a sandbox share one
tenant's CPU time.
"""

import contextlib
import errno
import json
import logging
import re
import socket
import ssl
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakValueDictionary

import h11
import httpcore

from core.egress import destination_name
from core.origins import is_loopback
from core.pauses import TurnShare
from egress.client_hello import NotTls, received
from egress.gate import ALLOWED, FAILED, REFUSED, Gate, Speaker
from egress.resolver import CONNECT_SECONDS, Resolver, TooManyLookups, Unreachable
from egress.services import (
    METHODS,
    Base,
    Headers,
    Wrong,
    below,
    kept,
    kept_of_response,
    returned,
    split_target,
    toward,
    within,
)
from egress.spending import ModelCall, OverBudget, refused
from net.carry import PIECE, accept_all, drain, end, join
from settings.egress import MODEL_SERVICE, Service, UnusableSecret
from store.errors import UNAVAILABLE, StoreFull

#: Message of httpcore for a refused connection; it keeps no cause.
_REFUSED = f"[Errno {errno.ECONNREFUSED}]"

log = logging.getLogger("egress")

#: Maximum number of concurrent connections of a sandbox, and of all.
MOST_AT_ONCE, MOST_IN_ALL = 64, 4096

#: Maximum size of a head, in bytes.
MOST_HEAD = 64 * 1024

#: Timeouts in seconds: for a key, for a head or a ClientHello, between two requests, and without traffic.
_KEY_SECONDS, HEAD_SECONDS, KEEP_SECONDS, IDLE_SECONDS = 5.0, 20.0, 60.0, 600.0

#: Seconds between two checks that the rules of open tunnels are in force.
_LOOK = 0.5

#: Maximum size of the line with the key, in bytes.
_MOST_KEY = 600

_TUNNEL = re.compile(r"([^:/?#@\[\]]+):([0-9]{1,5})")
_PLAIN = re.compile(r"http://([^:/?#@\[\]]+)(?::([0-9]{1,5}))?((?:[/?].*)?)", re.IGNORECASE)
_ANY_AUTHORITY = re.compile(r"(?:[a-z][a-z0-9+.-]*://)?(?:[^/?#]*@)?(\[[^\]]*\]|[^/?#:]*)", re.IGNORECASE)

#: The TLS alert `unrecognized_name`. Source: RFC 8446, 6.2
_UNRECOGNIZED_NAME = b"\x15\x03\x01\x00\x02\x02\x70"


class Refusal(Exception):
    """A refused request. The message is the sentence for the sandbox."""

    def __init__(self, status: int, sentence: str, body: dict[str, Any] | None = None) -> None:
        """body: the refusal in the format of the model's provider, for a call of a model."""
        super().__init__(sentence)
        self.status, self.body = status, body


@dataclass(frozen=True)
class Destination:
    """The destination of a request, and the facts to record."""

    name: str
    port: int
    rule_id: str = ""  #: the rule that allows it; empty: the spec or a decision does


@dataclass
class _Count:
    """Bytes transferred, and the time of the last ones."""

    sent: int = 0
    received: int = 0
    at: float = field(default_factory=time.monotonic)

    def add(self, count: int, *, is_sent: bool) -> None:
        self.at = time.monotonic()
        if is_sent:
            self.sent += count
        else:
            self.received += count


class Proxy:
    """The proxy of a host. Serves connections concurrently."""

    def __init__(self, gate: Gate, resolver: Resolver | None = None) -> None:
        self.gate, self.resolver = gate, resolver or Resolver()
        self.by_name = _pool(self.resolver)
        self.to_services = _pool(self.resolver.to_services(), httpcore.default_ssl_context())
        self._lock = threading.Lock()
        self._at_once: Counter[str] = Counter()  #: by sandbox
        self._from: Counter[str] = Counter()  #: by address of a pod
        self._shares: WeakValueDictionary[str, TurnShare] = WeakValueDictionary()  #: of the sandboxes with a connection
        self._by_rule: defaultdict[str, set[socket.socket]] = defaultdict(set)  #: rule → both ends of its open tunnels

    def serve(self, listener: socket.socket) -> None:
        """Serve the connections of a listener until it is closed."""
        threading.Thread(target=self._watch, args=(listener,), daemon=True).start()
        accept_all(listener, self.carry, MOST_IN_ALL)

    def carry(self, client: socket.socket) -> None:
        """Serve one connection of a sandbox to its end. Raises OSError."""
        talk = _SandboxConnection(client)
        # Limit pods that send no key like those that do. Launchers have their own limit.
        address = "" if client.family == socket.AF_UNIX else client.getpeername()[0]
        with self._room(self._from, address) as has_room:
            try:
                speaker = self.gate.speaker(talk.key()) if has_room else None
            except UNAVAILABLE:
                talk.refuse(Refusal(503, "The store does not answer: try again"))
                return
            if speaker is None and has_room:
                talk.refuse(Refusal(403, "This sandbox has no way out, or has none any more"))
                return
            with self._room(self._at_once, speaker.sandbox_id if speaker else "") as is_free:
                if speaker is None or not is_free:
                    talk.refuse(Refusal(429, f"A sandbox has at most {MOST_AT_ONCE} connections at once"))
                    return
                with self._lock:
                    talk.share = self._shares.setdefault(speaker.sandbox_id, talk.share)
                with self.resolver.lookups.of(speaker.sandbox_id):
                    while self._serve_one(talk, speaker):
                        talk.begin_again()

    @contextlib.contextmanager
    def _room(self, at_once: Counter[str], owner: str) -> Iterator[bool]:
        """Count a connection of an owner. Yield whether it is within MOST_AT_ONCE. The owner "" is not counted."""
        if not owner:
            yield True
            return
        with self._lock:
            at_once[owner] += 1
            has_room = at_once[owner] <= MOST_AT_ONCE
        try:
            yield has_room
        finally:
            with self._lock:
                at_once[owner] -= 1
                if not at_once[owner]:
                    del at_once[owner]

    def _serve_one(self, talk: "_SandboxConnection", speaker: Speaker) -> bool:
        """Serve one request. Return whether the connection may carry another."""
        try:
            request = talk.request()
            if request is None:
                return False
            target = request.target.decode("ascii")
            if request.method == b"CONNECT":
                self._tunnel(talk, speaker, request, target)
                return False
            if request.method.decode() not in METHODS:
                said = f"{_shown(request.method.decode())} is not passed on; these are: {' '.join(METHODS)}"
                raise Refusal(405, said)
            if target.startswith("/"):
                self._to_service(talk, speaker, request, target)
            else:
                self._plain(talk, speaker, request, target)
        except Refusal as refusal:
            talk.refuse(refusal)
            return False
        except (Wrong, h11.RemoteProtocolError, UnicodeDecodeError) as error:
            status = getattr(error, "error_status_hint", 400)
            talk.refuse(Refusal(status, f"The request cannot be understood: {_sentence(error)}"))
            return False
        except TooManyLookups as full:
            talk.refuse(Refusal(full.status, _sentence(full)))
            return False
        except StoreFull:
            talk.refuse(Refusal(503, "The store is nearly full, so nobody can be asked: try again"))
            return False
        except UNAVAILABLE:
            talk.refuse(Refusal(503, "The store does not answer, so nothing is allowed: try again"))
            return False
        return talk.may_go_on

    def _allowed(self, speaker: Speaker, request: h11.Request, name: str, port: int) -> Destination:
        """Return the destination if the sandbox may reach it. Raises Refusal."""
        try:
            name = destination_name(name)
        except ValueError as error:
            self.gate.record(speaker, _shown(name), port, REFUSED)
            raise Refusal(403, f"{_sentence(error)}") from None
        if not 0 < port < 65_536:
            raise Refusal(400, f"{port} is no valid port of {name}")
        agent = next((value for header, value in request.headers if header == b"user-agent"), b"")
        verdict = self.gate.verdict(speaker, name, port, _shown(agent.decode("latin-1")))
        if not verdict.is_allowed:
            self.gate.record(speaker, name, port, REFUSED)
            raise Refusal(403, verdict.reason)
        return Destination(name, port, verdict.rule_id)

    # a service

    def _to_service(self, talk: "_SandboxConnection", speaker: Speaker, request: h11.Request, target: str) -> None:
        name, rest = split_target(target)
        service = speaker.service(name)
        if service is None:
            known = ", ".join(service.name for service in speaker.spec.services) or "none"
            raise Refusal(404, f"There is no service {_shown(name)} here; the services of this sandbox: {known}")
        base = Base.of(service)
        to = Destination(base.host, base.port)
        try:
            service = self.gate.with_secrets(speaker, service)
        except UnusableSecret as error:
            raise Refusal(409, _sentence(error)) from None
        try:
            path, given = below(base.path, rest), within(service, base, request.headers)
        except Wrong as error:
            self.gate.record(speaker, to.name, to.port, REFUSED)
            raise Refusal(403, _sentence(error)) from None
        url = httpcore.URL(scheme=base.scheme, host=base.host, port=base.port, target=path)
        headers = [(b"host", base.authority), *toward(service, request.method, given)]
        call = self._call(speaker, to, service, request, path)
        self._pass_on(talk, speaker, to, self.to_services, request, url, headers, service, call)

    def _call(
        self, speaker: Speaker, to: Destination, service: Service, request: h11.Request, path: str
    ) -> ModelCall | None:
        """Admit a call of a model; None for other requests. Raises Refusal."""
        if not service.is_model or request.method in (b"GET", b"HEAD", b"OPTIONS"):
            return None
        path = path.partition("?")[0]
        try:
            owner = self.gate.accounts.admit(speaker.sandbox_id, to.name, to.port)
        except OverBudget as over:
            self.gate.record(speaker, to.name, to.port, REFUSED)
            status, body = refused(path, list(request.headers), over)
            raise Refusal(status, str(over), body) from None
        return ModelCall(self.gate.accounts, speaker.sandbox_id, owner, path, speaker.model_of(service))

    # a plain request by name

    def _plain(self, talk: "_SandboxConnection", speaker: Speaker, request: h11.Request, target: str) -> None:
        match = _PLAIN.fullmatch(target)
        if match is None:
            host = _ANY_AUTHORITY.match(target)
            if host and host[1].startswith("["):
                self.gate.record(speaker, _shown(host[1]), 0, REFUSED)
                raise Refusal(403, f"{_shown(host[1])} is an address: a destination has a name")
            raise Refusal(400, "The target must be /SERVICE/PATH or http://NAME/PATH; https goes by CONNECT")
        port = int(match[2] or 80)
        to = self._allowed(speaker, request, match[1], port)
        rest = match[3] if match[3].startswith("/") else f"/{match[3]}"
        url = httpcore.URL(scheme="http", host=to.name, port=port, target=rest)
        host_header = to.name.encode() if port == 80 else f"{to.name}:{port}".encode()
        headers = [(b"host", host_header), *kept(request.headers)]
        self._pass_on(talk, speaker, to, self.by_name, request, url, headers)

    def _pass_on(
        self,
        talk: "_SandboxConnection",
        speaker: Speaker,
        to: Destination,
        pool: httpcore.ConnectionPool,
        request: h11.Request,
        url: httpcore.URL,
        headers: Headers,
        service: Service | None = None,
        call: ModelCall | None = None,
    ) -> None:
        """Forward a request and stream its response. Raises Refusal if no response has begun."""
        count, begun = _Count(), False
        is_chunked = any(name == b"transfer-encoding" for name, _ in request.headers)
        is_long = is_chunked or any(name == b"content-length" for name, _ in request.headers)
        headers = [*headers, (b"connection", b"close")]
        if is_chunked:
            headers.append((b"transfer-encoding", b"chunked"))
        timeouts = {"connect": CONNECT_SECONDS, "read": IDLE_SECONDS, "write": IDLE_SECONDS, "pool": CONNECT_SECONDS}
        outgoing = httpcore.Request(
            request.method,
            url,
            headers=headers,
            content=talk.body(count) if is_long else None,
            extensions={"timeout": timeouts},
        )
        outcome = FAILED
        try:
            response = pool.handle_request(outgoing)
            with contextlib.closing(response):
                begun = True
                back = (
                    returned(service, Base.of(service), response.headers)
                    if service
                    else kept_of_response(response.headers)
                )
                reason = response.extensions.get("reason_phrase", b"")
                if call:
                    call.begin(response.status, back)
                talk.send(h11.Response(status_code=response.status, headers=back, reason=reason))
                for piece in _pieces(response, talk.share):
                    count.add(len(piece), is_sent=False)
                    if call:
                        call.read(piece, count.sent)
                    talk.send(h11.Data(data=piece))
                if call:
                    call.book(count.sent, is_whole=True)
                talk.send(h11.EndOfMessage())
                outcome = ALLOWED
        except (
            httpcore.NetworkError,
            httpcore.TimeoutException,
            httpcore.ProtocolError,
            h11.LocalProtocolError,
        ) as error:
            if begun:  # the sandbox notices that the response is truncated
                raise OSError(f"{to.name}:{to.port} broke off") from None
            cause = _sentence(error) or type(error).__name__
            raise Refusal(502, f"{to.name}:{to.port} is not reached: {cause}{_hint(error, to, service)}") from None
        finally:
            if call and begun and outcome != ALLOWED:  # the response was not completed
                call.book(count.sent, is_whole=False)
            self.gate.record(speaker, to.name, to.port, outcome, count.sent, count.received)

    # a tunnel

    def _tunnel(self, talk: "_SandboxConnection", speaker: Speaker, request: h11.Request, target: str) -> None:
        match = _TUNNEL.fullmatch(target)
        if match is None:
            host = target.rpartition(":")[0] or target
            self.gate.record(speaker, _shown(host), 0, REFUSED)
            is_address = host.startswith("[") or ":" in host
            said = "is an address: a destination has a name" if is_address else "is not NAME:PORT"
            raise Refusal(403 if is_address else 400, f"{_shown(target)} {said}")
        to = self._allowed(speaker, request, match[1], int(match[2]))
        count, outcome = _Count(), FAILED
        try:
            try:
                server = self.resolver.connect(to.name, to.port)
            except Unreachable as error:
                raise Refusal(502, _sentence(error)) from None
            with server:
                begun = talk.switch()
                try:
                    hello = received(talk.client, begun, to.name, HEAD_SECONDS)
                except NotTls as error:
                    outcome = REFUSED
                    log.info("sandbox %s: a tunnel to %s:%s: %s", speaker.sandbox_id, to.name, to.port, error)
                    talk.client.sendall(_UNRECOGNIZED_NAME)
                    return
                outcome = ALLOWED
                with self._open_tunnel(to.rule_id, talk.client, server):
                    server.sendall(hello)
                    count.add(len(hello), is_sent=True)
                    _splice(talk.client, server, count, talk.share)
        finally:
            self.gate.record(speaker, to.name, to.port, outcome, count.sent, count.received)

    @contextlib.contextmanager
    def _open_tunnel(self, rule_id: str, client: socket.socket, server: socket.socket) -> Iterator[None]:
        """Close the tunnel, while the block runs, when the rule that allows it is revoked."""
        if not rule_id:
            yield
            return
        with self._lock:
            self._by_rule[rule_id].update((client, server))
        try:
            yield
        finally:
            with self._lock:
                self._by_rule[rule_id].difference_update((client, server))
                if not self._by_rule[rule_id]:
                    del self._by_rule[rule_id]

    def _watch(self, listener: socket.socket) -> None:
        """Close the tunnels of revoked rules."""
        while listener.fileno() >= 0:
            time.sleep(_LOOK)
            with self._lock:
                ends = {rule_id: list(both) for rule_id, both in self._by_rule.items()}
            try:
                standing = self.gate.standing(ends)
            except UNAVAILABLE:  # keep tunnels open while the store is unavailable
                continue
            for rule_id in ends.keys() - standing:
                end(*ends[rule_id])


def _pool(resolver: Resolver, context: ssl.SSLContext | None = None) -> httpcore.ConnectionPool:
    """Create a connection pool without keep-alive."""
    return httpcore.ConnectionPool(
        context, max_connections=MOST_IN_ALL, max_keepalive_connections=0, network_backend=resolver.backend()
    )


class _SandboxConnection:
    """A sandbox's HTTP connection, on top of h11."""

    def __init__(self, client: socket.socket) -> None:
        self.client = client
        self.share = TurnShare()  #: its own until the sandbox is known
        self._http = self._new()
        self._is_first = True

    @staticmethod
    def _new() -> h11.Connection:
        return h11.Connection(h11.SERVER, max_incomplete_event_size=MOST_HEAD)

    def key(self) -> str:
        """Read the launcher's line. Raises OSError if it does not arrive."""
        line, deadline = b"", time.monotonic() + _KEY_SECONDS
        while not line.endswith(b"\n"):
            piece = self._receive(1, deadline)
            if not piece or len(line) > _MOST_KEY:
                raise OSError("the connection has no key")
            line += piece
        return line.strip().decode("ascii", "replace")

    def request(self) -> h11.Request | None:
        """Read the head of the next request; None if the sandbox hung up or sent none in time."""
        deadline = time.monotonic() + (HEAD_SECONDS if self._is_first else KEEP_SECONDS)
        while (event := self._http.next_event()) is h11.NEED_DATA:
            try:
                self._http.receive_data(self._receive(PIECE, deadline))
            except TimeoutError:
                if not self._http.trailing_data[0]:
                    return None
                raise Refusal(408, "The head of the request did not come in time") from None
        if isinstance(event, h11.Request):
            return event
        if isinstance(event, h11.ConnectionClosed):
            return None
        raise h11.RemoteProtocolError("a request was expected")

    def body(self, count: _Count) -> Iterator[bytes]:
        """Stream the body of a request. Raises OSError if it is truncated."""
        if self._http.they_are_waiting_for_100_continue:
            self.send(h11.InformationalResponse(status_code=100, headers=[]))
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                if not (piece := self._receive(PIECE, time.monotonic() + IDLE_SECONDS)):
                    raise OSError("the body of a request is not whole")
                self._http.receive_data(piece)
            elif isinstance(event, h11.Data):
                self.share.take_turns()  # a chunk may have one byte
                count.add(len(event.data), is_sent=True)
                yield bytes(event.data)
            else:
                return

    def send(self, event: h11.Event) -> None:
        """Send an h11 event. Raises OSError, also when the sandbox reads nothing for IDLE_SECONDS."""
        if data := self._http.send(event):
            self.client.settimeout(IDLE_SECONDS)
            self.client.sendall(data)

    def switch(self) -> bytes:
        """Open the tunnel. Return the bytes that the sandbox has already sent."""
        self._http.next_event()  # a CONNECT has no body
        self.send(h11.Response(status_code=200, reason=b"Connection established", headers=[]))
        return bytes(self._http.trailing_data[0])

    def refuse(self, refusal: Refusal) -> None:
        """Send a refusal unless a response has begun, and close the connection."""
        sentence = _sentence(refusal)
        error = {"message": sentence, "type": "egress_refused", "code": refusal.status}
        body = json.dumps(refusal.body or {"detail": sentence, "error": error}).encode()
        reason = re.sub(r"[^ -~]", "?", sentence).encode()
        head = f"HTTP/1.1 {refusal.status} ".encode() + reason + b"\r\nContent-Type: application/json\r\n"
        if refusal.body:
            # clients of providers retry a 429 unless told not to; source: openai and anthropic, _base_client.py
            head += b"X-Should-Retry: false\r\n"
        head += b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
        if self._http.our_state not in (h11.IDLE, h11.SEND_RESPONSE, h11.ERROR):
            return
        self.client.settimeout(HEAD_SECONDS)
        with contextlib.suppress(OSError):
            self.client.sendall(head + body)
            self.client.shutdown(socket.SHUT_WR)
            drain(self.client)

    @property
    def may_go_on(self) -> bool:
        """Return whether the connection can carry another request."""
        if self._http.their_state is h11.SEND_BODY and not isinstance(self._http.next_event(), h11.EndOfMessage):
            return False  # the body was not read before the response
        return self._http.our_state is h11.DONE and self._http.their_state is h11.DONE

    def begin_again(self) -> None:
        """Start the next request."""
        self._is_first = False
        self._http.start_next_cycle()

    def _receive(self, most: int, deadline: float) -> bytes:
        """Receive bytes. Raises TimeoutError after the deadline, and OSError."""
        self.share.take_turns()
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self.client.settimeout(left)
        return self.client.recv(most)


def _splice(client: socket.socket, server: socket.socket, count: _Count, share: TurnShare) -> None:
    """Carry bytes both ways until both directions end, or until IDLE_SECONDS pass without traffic."""

    def read(source: socket.socket) -> Iterator[bytes]:
        while True:
            share.take_turns()
            try:
                piece = source.recv(PIECE)
            except TimeoutError:
                if time.monotonic() - count.at < IDLE_SECONDS:
                    continue
                raise
            if not piece:
                return
            yield piece
            count.add(len(piece), is_sent=source is client)  # already forwarded

    for each in (client, server):
        each.settimeout(IDLE_SECONDS)
    join(client, server, read)


def _pieces(response: httpcore.Response, share: TurnShare) -> Iterator[bytes]:
    """Stream the body of a response, and yield in between, because a chunk may have one byte."""
    for piece in response.iter_stream():
        share.take_turns()
        yield piece


def _shown(text: str) -> str:
    """Quote a sandbox's text for a sentence."""
    return _in_ascii(text, 100)


def _hint(error: Exception, to: Destination, service: Service | None) -> str:
    """Return advice if nothing listens at a service on loopback, which is the server's loopback here."""
    if service is None or _REFUSED not in str(error) or not is_loopback(to.name):
        return ""
    named = "LLM_BASE_URL" if service.name == MODEL_SERVICE else f"the base URL of the service {service.name}"
    return f". Nothing listens there on the server's machine: start it, or set {named}"


def _sentence(error: Exception) -> str:
    return _in_ascii(str(error), 500)


def _in_ascii(text: str, most: int) -> str:
    """Truncate a text to ASCII for a status line; a longer one ends in three dots."""
    kept = text if len(text) <= most else f"{text[: most - 3]}..."
    return re.sub(r"[^ -~]", "?", kept)
