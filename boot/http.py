"""HTTP shared by the workers and the app: request bodies, draining, and the headers of every response.

Draining: a load balancer must remove a server before its listener closes. gunicorn closes the listener on SIGTERM, and
the kernel resets the connections in its backlog. Therefore the server keeps serving for DRAIN_SECONDS after SIGTERM,
while `/ready` responds 503 and each response closes its connection. A second SIGTERM stops it at once.

Standard library only, as everywhere in `boot/` except `boot/worker.py`.
"""

import math
import mmap
import signal
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any

from core.pauses import take_turns

#: Seconds before the minimum rate applies, because a connection may begin slowly.
_SLOW_START = 10.0

#: Timeout for the rest of a body that the app did not read, in seconds.
_UNREAD_SECONDS = 5.0

#: Timeout between two chunks of a streamed body, in seconds: shorter than that of its receiver.
_STREAM_SECONDS = 20.0

#: Seconds between two checks of who sends a body that is streamed.
_CALLER_POLL = 0.5

#: Read size for an unread body, in bytes, and for a chunked one, which may consist of hundreds of tiny chunks.
_CHUNK, _UNREAD_PIECE = 64 * 1024, 8 * 1024

#: Maximum share of this process's time for unread bodies: one in so many seconds.
_UNREAD_SHARE = 5


#: Headers of every response except pages: no page may embed or load it.
SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class BodyTooSlow(Exception):
    """A client did not send the body of its request in time. The message is for the client."""


class TimeBudget:
    """Limits the share of this process's time for a kind of work, by pauses after each piece."""

    def __init__(self, share: int) -> None:
        """share: one in this many seconds."""
        self._share = share
        self._free_at = 0.0

    def pause(self, spent: float) -> float:
        """Return the seconds until the next piece may begin. spent: seconds that the last one took."""
        now = time.monotonic()
        self._free_at = max(self._free_at, now) + spent * (self._share - 1)
        return self._free_at - now


_unread = TimeBudget(_UNREAD_SHARE)


class RequestBody:
    """The body of a gunicorn request. It stands between gunicorn's parser and the connection.

    A body must arrive within `seconds`, and after ten seconds at `least_rate` bytes per second. If it does not, the
    connection closes, because the beginning of the next request is unknown. A body that the app streams (`stream`) has
    only its rate and the time between chunks limited. Time in which the app does not wait for the client is not
    counted, because the receiver of the body may be slow.

    The response to `Expect: 100-continue` is sent when the app reads the body, not by gunicorn beforehand. A refused
    request so costs no body.
    """

    def __init__(self, request: Any, connection: socket.socket, *, seconds: float, least_rate: float) -> None:
        self._request = request
        self._connection = connection
        self._seconds, self._least_rate = seconds, least_rate
        self._piece_seconds = math.inf
        self._require_caller: Callable[[], None] = lambda: None
        self._reader = request.body.reader
        self._began: float | None = None
        self._received = 0
        self._waited = 0.0
        self._failed = False
        self._unread_until, self._most_received, self._received_at = math.inf, 0, 0.0
        request.body.reader = request.unreader.sock = self
        self._is_asked, request._expected_100_continue = request._expected_100_continue, False
        if self._is_asked:
            request.force_close()  # a client that is refused before `100 Continue` may or may not send the body

    def stream(self, require_caller: Callable[[], None] = lambda: None) -> None:
        """Remove the total timeout. A response before the end of the body closes the connection, and says so.

        require_caller: called every second; an exception from it ends the body.
        """
        self._seconds, self._piece_seconds, self._require_caller = math.inf, _STREAM_SECONDS, require_caller
        if self._has_rest:
            self._request.force_close()

    def lines_of(self, name: str) -> int:
        """Count the lines of a header, which WSGI joins to one text."""
        return sum(line == name.upper() for line, _ in self._request.headers)

    @property
    def _is_streamed(self) -> bool:
        return self._piece_seconds < math.inf

    @property
    def _has_rest(self) -> bool:
        """Return whether more may follow. The end of a chunked body is known only when it is read."""
        return getattr(self._reader, "length", None) != 0

    def read(self, size: int) -> bytes:
        """Read up to a number of bytes; none at the end. Raises like `recv`, or gunicorn's ParseException."""
        try:
            data: bytes = self._reader.read(size)
        except Exception:
            self._failed = True
            self._request.force_close()
            raise
        if self._is_streamed and not (data and self._has_rest):
            self._request.must_close = is_draining()
        return data

    def recv(self, size: int) -> bytes:
        """Receive the next bytes of the body. Raises BodyTooSlow, and ConnectionError if the client hung up."""
        if self._is_asked:
            self._is_asked, self._request.must_close = False, self._is_streamed or is_draining()
            self._connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        if self._unread_until < math.inf:
            size = min(size, self._most_received)
            self._make_way()
        take_turns()  # with a fast client `recv` never waits, and so never yields
        now = time.monotonic()
        self._began = self._began or now
        allowed = min(self._seconds, _SLOW_START + self._received / self._least_rate)
        spent = self._waited if self._is_streamed else now - self._began
        before = self._connection.gettimeout()
        # Data that is already in the socket buffer is always read, even past the deadline.
        try:
            data = self._receive(size, min(allowed - spent, self._piece_seconds))
        except TimeoutError:
            within = f"within {self._seconds:g} s" if self._seconds < math.inf else f"every {self._piece_seconds:g} s"
            raise BodyTooSlow(
                f"The body of a request must come {within}, "
                f"and after {_SLOW_START:g} s at {self._least_rate:g} bytes per second"
            ) from None
        finally:
            self._connection.settimeout(before)
            self._waited += time.monotonic() - now
        if not data:
            raise ConnectionError("the client ended the connection within the body of its request")
        self._received += len(data)
        self._received_at = time.monotonic()
        return data

    def _receive(self, size: int, seconds: float) -> bytes:
        """Receive bytes within a timeout in seconds. Raises TimeoutError, and the errors of `require_caller`."""
        last = time.monotonic() + seconds
        while True:
            self._require_caller()
            self._connection.settimeout(max(min(_CALLER_POLL, last - time.monotonic()), 0.001))
            try:
                return self._connection.recv(size)
            except TimeoutError:
                if time.monotonic() >= last:
                    raise

    def _make_way(self) -> None:
        """Wait for this body's share of the process. Raises BodyTooSlow if that takes too long."""
        now = time.monotonic()
        pause = _unread.pause(now - self._received_at)
        if now + pause > self._unread_until:
            raise BodyTooSlow("Nobody reads the rest of this body")
        time.sleep(pause)

    def finish(self) -> bool:
        """Read the rest of the body. Return false if its end was not found: close the connection then."""
        self._is_asked, self._require_caller = False, lambda: None
        in_chunks = any(name == "TRANSFER-ENCODING" for name, _ in self._request.headers)
        self._most_received = _UNREAD_PIECE if in_chunks else _CHUNK
        self._received_at = time.monotonic()
        self._unread_until = deadline = self._received_at + _UNREAD_SECONDS
        self._seconds = min(self._seconds, deadline - (self._began or time.monotonic()))
        try:
            while not self._failed and time.monotonic() < deadline:
                if not self._request.body.read(_CHUNK):
                    self._request.unreader.sock = self._connection
                    return True
        except Exception:  # the request has been answered already
            return False
        return False


def body_of(environ: Mapping[str, Any]) -> RequestBody | None:
    """Return the body of a WSGI request; None under another server than gunicorn."""
    body = getattr(environ["wsgi.input"], "reader", None)
    return body if isinstance(body, RequestBody) else None


#: Shared byte: the master writes it, the forked workers read it.
_is_draining = mmap.mmap(-1, 1)


def is_draining() -> bool:
    """Return whether the server is draining."""
    return _is_draining[0] == 1


def drain_before_stopping(arbiter: Any, seconds: int) -> None:
    """Drain between the first SIGTERM and the stop, in gunicorn's master. seconds: 0 stops at once."""
    stop = arbiter.handle_term

    def handle_term() -> None:
        if not seconds or is_draining():
            stop()  # raises StopIteration, as gunicorn's main loop expects
        _is_draining[0] = 1
        # A system timer, so that the master keeps watching its workers. A thread would not survive a fork.
        signal.setitimer(signal.ITIMER_REAL, seconds)
        arbiter.log.info("Draining: /ready responds 503, and in %s s this server stops", seconds)

    arbiter.handle_term, arbiter.handle_alrm = handle_term, stop
    signal.signal(signal.SIGALRM, arbiter.signal)
