"""What the workers and the app share about the requests of a server: bodies, its drain, the headers of every response.

Only the standard library stands here, as everywhere in `boot/` but in `boot/worker.py`.

A drain: a balancer takes a server that must stop out before its listener closes. gunicorn closes the listener as soon
as SIGTERM arrives, and the system resets the connections that wait to be accepted there. So for DRAIN_SECONDS after
SIGTERM the server serves as before, while `/ready` responds 503 and each response ends its connection. Then it stops,
as it does at once upon a second SIGTERM.
"""

import math
import mmap
import signal
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any

from core.pauses import take_turns

#: seconds before the least rate counts: a connection may begin slowly
_SLOW_START = 10.0

#: seconds in which a client must send what the app did not read of a body
_UNREAD_SECONDS = 5.0

#: seconds in which more must come of a body that is streamed: less than its receiver waits for the next chunk
_STREAM_SECONDS = 20.0

#: Seconds between two checks of who sends a body that is streamed.
_CALLER_POLL = 0.5

#: bytes of an unread body that are read at once, and of one in chunks: a piece may be hundreds of tiny ones
_CHUNK, _UNREAD_PIECE = 64 * 1024, 8 * 1024

#: of the time of this process, one in so many seconds at most goes to bodies that nobody reads, however many come
_UNREAD_SHARE = 5


#: no response but that of `/docs` is a page, and no page may show or load one
SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class BodyTooSlow(Exception):
    """A client did not send the body of its request in time; the message is for the client."""


class TimeBudget:
    """Bounds the part of this process's time that a kind of work takes, by pauses after each piece of it."""

    def __init__(self, share: int) -> None:
        """share: one in so many seconds."""
        self._share = share
        self._free_at = 0.0

    def pause(self, spent: float) -> float:
        """Seconds until the next piece may begin; spent: those that the last one took."""
        now = time.monotonic()
        self._free_at = max(self._free_at, now) + spent * (self._share - 1)
        return self._free_at - now


_unread = TimeBudget(_UNREAD_SHARE)


class RequestBody:
    """The body of one gunicorn request: stands between its parser and its connection, and is both to the other.

    A body must come whole within `seconds`, and from the tenth second on at `least_rate` bytes per second. A request
    whose body fails is the last one of its connection: nobody knows where the next one would begin.
    Exception: a body that the app streams (see `stream`) has its rate and the time between two pieces bounded alone,
    and only the time counts in which the app waits for the client: what takes the body may make the client wait.

    A client that asks before it sends the body (`Expect: 100-continue`) is told to when the app reads it, and not by
    gunicorn before the app has seen the request: a refused request costs no body.
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
            request.force_close()  # until the client is told: after a refusal it may send the body, or not

    def stream(self, require_caller: Callable[[], None] = lambda: None) -> None:
        """Let the body come for as long as it goes on. A response before its end ends the connection, and says so.

        require_caller: called every second of it; what it raises ends the body.
        """
        self._seconds, self._piece_seconds, self._require_caller = math.inf, _STREAM_SECONDS, require_caller
        if self._has_rest:
            self._request.force_close()

    def lines_of(self, name: str) -> int:
        """How many lines of the head have this header, which WSGI joins to one text."""
        return sum(line == name.upper() for line, _ in self._request.headers)

    @property
    def _is_streamed(self) -> bool:
        return self._piece_seconds < math.inf

    @property
    def _has_rest(self) -> bool:
        """Whether more may come. Of a body in chunks the end alone tells."""
        return getattr(self._reader, "length", None) != 0

    def read(self, size: int) -> bytes:
        """Up to so many bytes of the body; none at its end. Raises as `recv`, or gunicorn's ParseException."""
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
        """What the client sends next of the body. Raises BodyTooSlow, ConnectionError when it sends no more."""
        if self._is_asked:
            self._is_asked, self._request.must_close = False, self._is_streamed or is_draining()
            self._connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        if self._unread_until < math.inf:
            size = min(size, self._most_received)
            self._make_way()
        take_turns()  # a client that is faster than this worker makes no `recv` wait
        now = time.monotonic()
        self._began = self._began or now
        allowed = min(self._seconds, _SLOW_START + self._received / self._least_rate)
        spent = self._waited if self._is_streamed else now - self._began
        before = self._connection.gettimeout()
        # What has arrived already is read, however long this worker was busy meanwhile.
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
        """What has come within so many seconds. Raises TimeoutError, and what `require_caller` raises."""
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
        """Wait while others have their share of this process. Raises BodyTooSlow where that takes too long."""
        now = time.monotonic()
        pause = _unread.pause(now - self._received_at)
        if now + pause > self._unread_until:
            raise BodyTooSlow("Nobody reads the rest of this body")
        time.sleep(pause)

    def finish(self) -> bool:
        """Read what the app left of the body. False if its end was not found: the connection must be closed."""
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
        except Exception:  # whatever is wrong with it, the request has been answered
            return False
        return False


def body_of(environ: Mapping[str, Any]) -> RequestBody | None:
    """The body of the request that a WSGI environment describes; None under another server."""
    body = getattr(environ["wsgi.input"], "reader", None)
    return body if isinstance(body, RequestBody) else None


#: one byte that the master writes and that the workers, which it forks, read
_is_draining = mmap.mmap(-1, 1)


def is_draining() -> bool:
    """Whether the server of this process is about to stop, and serves until then."""
    return _is_draining[0] == 1


def drain_before_stopping(arbiter: Any, seconds: int) -> None:
    """In gunicorn's master: drain for so many seconds between the first SIGTERM and the stop. 0: stop at once."""
    stop = arbiter.handle_term

    def handle_term() -> None:
        if not seconds or is_draining():
            stop()  # raises StopIteration, as gunicorn's main loop expects
        _is_draining[0] = 1
        # A timer of the system: the master goes on to look after its workers, and a fork inherits no thread.
        signal.setitimer(signal.ITIMER_REAL, seconds)
        arbiter.log.info("Draining: /ready responds 503, and in %s s this server stops", seconds)

    arbiter.handle_term, arbiter.handle_alrm = handle_term, stop
    signal.signal(signal.SIGALRM, arbiter.signal)
