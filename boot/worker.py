"""The gunicorn worker: gevent's, on which no client holds a connection by sending nothing or by taking nothing.

gunicorn's master loads it, as it would load the one of gevent, when `gunicorn.conf.py` has been read.
"""

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

from gevent import Timeout, socket  # type: ignore[import-untyped]
from gevent.local import local  # type: ignore[import-untyped]
from gunicorn.http.errors import LimitRequestHeaders, UnsupportedTransferCoding
from gunicorn.workers.ggevent import GeventWorker

from boot.http import RequestBody, is_draining
from core.pauses import take_turns
from core.program import plugins_looked_up_once

#: the part of a worker's connections that may be taken before those that only wait for a head make room
_CROWDED = 0.9

#: seconds in which a client must send the head of a connection's first request; for a later one it has `keepalive`
_FIRST_HEAD_SECONDS = 20

#: most bytes of a head, and most pieces that it may come in: gunicorn looks through the whole of it after each piece
_MOST_HEAD_BYTES, _MOST_HEAD_PIECES = 64 * 1024, 256


class _Served(local):
    """What a connection's greenlet knows of it."""

    client: socket.socket
    network = ""
    is_new = True


def network_of(address: Any) -> str:
    """Where a client connects from: an IPv4 address, or the 64 bits that one IPv6 network has; "" for a Unix socket."""
    if not isinstance(address, tuple):
        return ""
    found: IPv4Address | IPv6Address = ip_address(address[0].partition("%")[0])
    if isinstance(found, IPv6Address) and found.ipv4_mapped is None:
        return found.packed[:8].hex()
    return str(getattr(found, "ipv4_mapped", None) or found)


class Connection(socket.socket):
    """A client's connection, whose timeout begins again with everything that the client takes."""

    _head: tuple[int, int] | None = None  #: bytes and pieces of a head that is being read

    @contextmanager
    def reading_head(self) -> Iterator[None]:
        """Bound what is received inside the block."""
        self._head = (0, 0)
        try:
            yield
        finally:
            self._head = None

    def recv(self, *arguments: Any) -> Any:
        """What the client has sent. Raises LimitRequestHeaders, a 431, of a head that is too long or in crumbs."""
        if self._head is None:
            return super().recv(*arguments)
        size, pieces = self._head
        if pieces:  # a head that drips fast enough always has a next piece; one that came whole waits for nobody
            take_turns()
        data = super().recv(*arguments)
        self._head = size, pieces = size + len(data), pieces + 1
        if size > _MOST_HEAD_BYTES or pieces > _MOST_HEAD_PIECES:
            raise LimitRequestHeaders(
                f"a head may have {_MOST_HEAD_BYTES} bytes, and come in {_MOST_HEAD_PIECES} pieces"
            )
        return data

    def sendall(self, data: Any, flags: int = 0) -> None:
        """Send all of it. Raises TimeoutError when the client takes nothing for the time of the timeout."""
        left = memoryview(data).cast("B")
        while left:
            left = left[self.send(left, flags) :]


class Worker(GeventWorker):
    """Serves the app, whose settings say how long it waits for clients.

    Guarantee: connections on which no head comes keep nobody out, nor do those whose request was answered and whose
    body does not come. When a worker has nearly all the connections that it takes, each new one ends one that waits
    for a head, its first or its next, or for such a body: of the address with the most of these (of IPv6, of the /64
    network with the most), the one that has waited longest. And connections whose next bytes are always there, requests
    without a wait for responses or a head in crumbs, leave the others their turns.

    Why the address with the most, and no bound per address: a bound that one address reaches would refuse the clients
    of a proxy or of an office, which share one, in a worker that has room. In a crowd it is the address that fills it
    which pays. A client from elsewhere keeps its idle connection, and has all its time for a head, however fast new
    ones come; of the longest wait alone it would lose both to a flood. Limitation: of a flood from many addresses, or
    through the one of a trusted proxy, the longest wait decides.
    """

    alive: bool  #: gunicorn's: whether the worker goes on

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._served = _Served()
        self._open = 0
        self._waiting: dict[socket.socket, str] = {}  #: those that may be ended, the longest first, and from where

    def patch(self) -> None:
        """Have gevent patch what waits, before the app is loaded."""
        with plugins_looked_up_once():
            super().patch()

    def handle_quit(self, sig: int, frame: Any) -> None:
        """Stop at once, and only once: Ctrl-C reaches a worker from the terminal and from the master.

        A second exit would be raised while the interpreter shuts down, which prints a traceback.
        """
        if self.alive:
            self.alive = False
            super().handle_quit(sig, frame)

    @contextmanager
    def timeout_ctx(self) -> Iterator[None]:
        """The time for a request's head. A client that opens hundreds of connections at once is late with the first.

        One that sends its requests without waiting for the responses has the next head there already, and waits for
        nothing: the others get their turns here.
        """
        take_turns()
        is_new, self._served.is_new = self._served.is_new, False
        client = self._served.client
        reading = client.reading_head() if isinstance(client, Connection) else nullcontext()
        with self._giving_way(), reading, Timeout(_FIRST_HEAD_SECONDS if is_new else self.cfg.keepalive, False):
            yield

    @contextmanager
    def _giving_way(self) -> Iterator[None]:
        """While the present connection waits, a new one may end it."""
        client = self._served.client
        self._waiting[client] = self._served.network
        try:
            yield
        finally:
            self._waiting.pop(client, None)

    def handle(self, listener: Any, client: Any, addr: Any) -> None:
        """Serve a connection until it ends."""
        if type(client) is socket.socket:  # one with TLS stays as it is
            client = Connection(client.family, client.type, client.proto, fileno=client.detach())
        self._served.client, self._served.network = client, network_of(addr)
        self._open += 1
        if self._open > self.worker_connections * _CROWDED and self._waiting:
            self._end(self._least_missed())
        try:
            super().handle(listener, client, addr)
        finally:
            self._open -= 1

    def _least_missed(self) -> socket.socket:
        """Of the connections that wait, the first of the address with the most. Cost: O(w), w: those that wait."""
        [(network, _)] = Counter(self._waiting.values()).most_common(1)
        return next(waiting for waiting, its in self._waiting.items() if its == network)

    def _end(self, waiting: socket.socket) -> None:
        """End a connection that waits, as if its client had."""
        del self._waiting[waiting]
        # gevent's own shutdown would raise an error where the connection is read.
        with suppress(OSError), socket.socket(fileno=os.dup(waiting.fileno())) as same:
            same.shutdown(socket.SHUT_RDWR)

    def handle_request(self, listener_name: Any, req: Any, sock: Any, addr: Any) -> None:
        """Serve one request. Raises StopIteration, by which gunicorn knows that the connection ends.

        Raises UnsupportedTransferCoding of a body in another coding than chunks: gunicorn takes gzip, which it leaves
        to the app to decode, and what passes such a body on would change it.
        """
        for name, value in req.headers:
            if name == "TRANSFER-ENCODING" and value.strip(" \t").lower() != "chunked":
                raise UnsupportedTransferCoding(value)
        settings = self.wsgi.extensions["server"].config.http
        body = RequestBody(req, sock, seconds=settings.body_seconds, least_rate=settings.body_bytes_per_second)
        sock.settimeout(settings.idle_seconds)
        if is_draining():
            req.force_close()  # the client's next request goes to a host that stays
        try:
            super().handle_request(listener_name, req, sock, addr)
        except TimeoutError:
            self.log.info(
                "%s %s: the client took nothing of a response for %s s", req.method, req.path, sock.gettimeout()
            )
            raise StopIteration from None
        except StopIteration:
            self._finish(body)  # a connection that is closed upon unread bytes may lose the response
            raise
        if not self._finish(body):
            raise StopIteration
        sock.settimeout(None)

    def _finish(self, body: RequestBody) -> bool:
        """As `RequestBody.finish`: after the response, so a new connection need not wait for it."""
        with self._giving_way():
            return body.finish()
