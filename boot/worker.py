"""The gunicorn worker: gevent's, with limits for clients that send or read too slowly.

gunicorn's master imports it after it has read `gunicorn.conf.py`.
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

#: Share of a worker's connections from which on those that wait for a head are closed for new ones.
_CROWDED = 0.9

#: Timeout for the head of a connection's first request, in seconds. Later requests have `keepalive`.
_FIRST_HEAD_SECONDS = 20

#: Maximum size of a head in bytes, and number of chunks, because gunicorn scans the whole head after each chunk.
_MOST_HEAD_BYTES, _MOST_HEAD_PIECES = 64 * 1024, 256


class _ServedConnection(local):
    """The connection of this greenlet."""

    client: socket.socket
    network = ""
    is_new = True


def network_of(address: Any) -> str:
    """Return a client's network: its IPv4 address, or the /64 network of its IPv6 address; "" for a Unix socket."""
    if not isinstance(address, tuple):
        return ""
    found: IPv4Address | IPv6Address = ip_address(address[0].partition("%")[0])
    if isinstance(found, IPv6Address) and found.ipv4_mapped is None:
        return found.packed[:8].hex()
    return str(getattr(found, "ipv4_mapped", None) or found)


class WorkerConnection(socket.socket):
    """A client's connection. Its write timeout restarts whenever the client reads."""

    _head: tuple[int, int] | None = None  #: bytes and chunks of the head that is being read

    @contextmanager
    def reading_head(self) -> Iterator[None]:
        """Limit the bytes and chunks that the block receives."""
        self._head = (0, 0)
        try:
            yield
        finally:
            self._head = None

    def recv(self, *arguments: Any) -> Any:
        """Receive bytes. Raises LimitRequestHeaders, a 431, for a head that is too long or in too many chunks."""
        if self._head is None:
            return super().recv(*arguments)
        size, pieces = self._head
        if pieces:  # yield if the head arrives in chunks: the next one may always be ready
            take_turns()
        data = super().recv(*arguments)
        self._head = size, pieces = size + len(data), pieces + 1
        if size > _MOST_HEAD_BYTES or pieces > _MOST_HEAD_PIECES:
            raise LimitRequestHeaders(
                f"a head may have {_MOST_HEAD_BYTES} bytes, and come in {_MOST_HEAD_PIECES} pieces"
            )
        return data

    def sendall(self, data: Any, flags: int = 0) -> None:
        """Send all bytes. Raises TimeoutError if the client reads nothing for the timeout."""
        left = memoryview(data).cast("B")
        while left:
            left = left[self.send(left, flags) :]


class Worker(GeventWorker):
    """Serves the app, with the timeouts of its settings.

    Guarantee: clients that send no head, or not the rest of a body that nobody reads, cannot lock others out. When a
    worker is nearly full, each new connection closes a waiting one: the oldest of the address with the most waiting
    connections (for IPv6, of the /64 network). A client that always has bytes ready, by pipelining or by a head in
    tiny chunks, cannot starve the others.

    Why there is no limit per address: it would refuse clients behind a proxy or of an office, who share an address,
    while the worker still has room. When it is full, the address with the most connections loses one first. Clients of
    other addresses keep their idle connections and their time for a head. Limitation: in a flood from many addresses,
    or through a trusted proxy, the oldest waiting connection is closed.
    """

    alive: bool  #: of gunicorn: whether the worker keeps running

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._served = _ServedConnection()
        self._open = 0
        self._waiting: dict[socket.socket, str] = {}  #: closable, the oldest first → network

    def patch(self) -> None:
        """Apply gevent's patches before the app is loaded."""
        with plugins_looked_up_once():
            super().patch()

    def handle_quit(self, sig: int, frame: Any) -> None:
        """Stop at once. Ctrl-C arrives twice, from the terminal and from the master.

        A second exit would raise during the interpreter's shutdown, which prints a traceback.
        """
        if self.alive:
            self.alive = False
            super().handle_quit(sig, frame)

    @contextmanager
    def timeout_ctx(self) -> Iterator[None]:
        """Limit the time for a request's head. The first of a connection has more: a client may open hundreds at once.

        A client that pipelines requests has the next head ready and never waits, so yield to the others here.
        """
        take_turns()
        is_new, self._served.is_new = self._served.is_new, False
        client = self._served.client
        reading = client.reading_head() if isinstance(client, WorkerConnection) else nullcontext()
        with self._giving_way(), reading, Timeout(_FIRST_HEAD_SECONDS if is_new else self.cfg.keepalive, False):
            yield

    @contextmanager
    def _giving_way(self) -> Iterator[None]:
        """Allow a new connection to close this one during the block."""
        client = self._served.client
        self._waiting[client] = self._served.network
        try:
            yield
        finally:
            self._waiting.pop(client, None)

    def handle(self, listener: Any, client: Any, addr: Any) -> None:
        """Serve a connection until it closes."""
        if type(client) is socket.socket:  # not one with TLS
            client = WorkerConnection(client.family, client.type, client.proto, fileno=client.detach())
        self._served.client, self._served.network = client, network_of(addr)
        self._open += 1
        if self._open > self.worker_connections * _CROWDED and self._waiting:
            self._end(self._least_missed())
        try:
            super().handle(listener, client, addr)
        finally:
            self._open -= 1

    def _least_missed(self) -> socket.socket:
        """Return the oldest waiting connection of the network with the most. Cost: O(w), w: waiting connections."""
        [(network, _)] = Counter(self._waiting.values()).most_common(1)
        return next(waiting for waiting, its in self._waiting.items() if its == network)

    def _end(self, waiting: socket.socket) -> None:
        """Close a waiting connection as if its client had."""
        del self._waiting[waiting]
        # gevent's own shutdown would raise an error in the reader.
        with suppress(OSError), socket.socket(fileno=os.dup(waiting.fileno())) as same:
            same.shutdown(socket.SHUT_RDWR)

    def handle_request(self, listener_name: Any, req: Any, sock: Any, addr: Any) -> None:
        """Serve one request. Raises StopIteration to tell gunicorn that the connection ends.

        Raises UnsupportedTransferCoding for every coding except chunks. gunicorn accepts gzip and leaves it to the app,
        which would have to decode a body that it forwards.
        """
        for name, value in req.headers:
            if name == "TRANSFER-ENCODING" and value.strip(" \t").lower() != "chunked":
                raise UnsupportedTransferCoding(value)
        settings = self.wsgi.extensions["server"].config.http
        body = RequestBody(req, sock, seconds=settings.body_seconds, least_rate=settings.body_bytes_per_second)
        sock.settimeout(settings.idle_seconds)
        if is_draining():
            req.force_close()  # the client's next request should go to another host
        try:
            super().handle_request(listener_name, req, sock, addr)
        except TimeoutError:
            self.log.info(
                "%s %s: the client took nothing of a response for %s s", req.method, req.path, sock.gettimeout()
            )
            raise StopIteration from None
        except StopIteration:
            self._finish(body)  # closing with unread bytes may lose the response
            raise
        if not self._finish(body):
            raise StopIteration
        sock.settimeout(None)

    def _finish(self, body: RequestBody) -> bool:
        """Like `RequestBody.finish`. A new connection may close this one meanwhile, because the response was sent."""
        with self._giving_way():
            return body.finish()
