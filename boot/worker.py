"""The gunicorn worker: gevent's, on which no client holds a connection by sending nothing or by taking nothing.

gunicorn's master loads it, as it would load the one of gevent, when `gunicorn.conf.py` has been read.
"""

from typing import Any

from gevent import Timeout, socket  # type: ignore[import-untyped]
from gevent.local import local  # type: ignore[import-untyped]
from gunicorn.workers.ggevent import GeventWorker

from boot.body import RequestBody
from boot.draining import is_draining

#: seconds in which a client must send the head of a connection's first request; for a later one it has `keepalive`
_FIRST_HEAD_SECONDS = 20


class _Served(local):
    """What a connection's greenlet knows of it."""

    is_new = True


class Connection(socket.socket):
    """A client's connection, whose timeout begins again with everything that the client takes."""

    def sendall(self, data: Any, flags: int = 0) -> None:
        """Send all of it. Raises TimeoutError when the client takes nothing for the time of the timeout."""
        left = memoryview(data).cast("B")
        while left:
            left = left[self.send(left, flags) :]


class Worker(GeventWorker):
    """Serves the app, whose settings say how long it waits for clients."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._served = _Served()

    def timeout_ctx(self) -> Timeout:
        """The time for a request's head. A client that opens hundreds of connections at once is late with the first."""
        is_new, self._served.is_new = self._served.is_new, False
        return Timeout(_FIRST_HEAD_SECONDS if is_new else self.cfg.keepalive, False)

    def handle(self, listener: Any, client: Any, addr: Any) -> None:
        """Serve a connection until it ends."""
        if type(client) is socket.socket:  # one with TLS stays as it is
            client = Connection(client.family, client.type, client.proto, fileno=client.detach())
        super().handle(listener, client, addr)

    def handle_request(self, listener_name: Any, req: Any, sock: Any, addr: Any) -> None:
        """Serve one request. Raises StopIteration, by which gunicorn knows that the connection ends."""
        settings = self.wsgi.config
        body = RequestBody(req, sock, seconds=settings["BODY_SECONDS"], least_rate=settings["BODY_BYTES_PER_SECOND"])
        sock.settimeout(settings["IDLE_SECONDS"])
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
            body.finish()  # a connection that is closed upon unread bytes may lose the response
            raise
        if not body.finish():
            raise StopIteration
        sock.settimeout(None)
