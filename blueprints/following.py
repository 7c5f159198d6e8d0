"""Long-lived requests: sockets, streams of server-sent events, long polls and forwarded calls.

They all end when their key does. MAX_FOLLOWERS_PER_KEY limits how many a key has at once; forwarded calls, archives and
exports do not count. A worker checks the keys of all followers several times a second, in one round trip. A request
that transfers bytes checks its own key (`caller_required`, `key_required`). While Redis is unavailable no request ends,
because no key can be revoked either. A request also ends when its client disconnects. WSGI reports that only on a
write, so the connection is polled.
"""

import logging
import re
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from flask import Response, g, request
from marshmallow import fields
from werkzeug.exceptions import Unauthorized

from agents.forwarding import ClientGone
from blueprints import current_server
from blueprints.api import refused
from core.access import REVOKED, Principal, is_revocable
from store.access import Quota
from store.access.access_keys import AccessKeys
from store.errors import UNAVAILABLE, StoreError

#: Interval between two checks of the keys, in seconds.
_POLL = 0.4

_log = logging.getLogger(__name__)


#: Delay in milliseconds after which a browser reconnects.
RECONNECT = 1000
_RETRY = b"retry: %d\n\n" % RECONNECT

#: Interval between two checks that the client is connected, in seconds.
_CLIENT_POLL = 2.0

_LINE_END = re.compile(rb"\r\n|\r|\n")


class FollowingRequests:
    """The long-lived requests of this worker. The thread that checks keys starts with the first revocable key."""

    def __init__(self, keys: AccessKeys, quota: Quota) -> None:
        """quota: limit of long-lived requests per key, or per address without a key."""
        self._keys = keys
        self._quota = quota
        self._lock = threading.Lock()
        self._ends: dict[str, dict[object, Callable[[], None]]] = {}  #: key id → callbacks that end its requests
        self._thread: threading.Thread | None = None

    @contextmanager
    def going_on(self, principal: Principal, end: Callable[[], None]) -> Iterator[None]:
        """Count the current request as long-lived within the block. Raises TooManyFollowersOfKey.

        end: called in its own thread when the principal's key ends.
        """
        done = self.begin(principal, end)
        try:
            yield
        finally:
            done()

    def begin(self, principal: Principal, end: Callable[[], None], address: str = "") -> Callable[[], None]:
        """Begin a long-lived request as `going_on` does, without a block. Return a function to call once at its end.

        address: the client's, outside of a request of the app.
        """
        holder, identity = principal.key_id or f"address {address or request.remote_addr}", object()
        self._quota.take(holder)
        if is_revocable(principal):
            with self._lock:
                self._ends.setdefault(principal.key_id, {})[identity] = end
                if self._thread is None:
                    self._thread = threading.Thread(target=self._check, name="keys", daemon=True)
                    self._thread.start()

        def done() -> None:
            self._quota.give_back(holder)
            self._forget(principal.key_id, identity)

        return done

    def are_live(self, principal: Principal) -> bool:
        """Return whether the principal's key is still valid. Cost: at most one round trip."""
        return not is_revocable(principal) or bool(self._keys.live([principal.key_id]))

    def _forget(self, key_id: str, identity: object) -> None:
        with self._lock:
            ends = self._ends.get(key_id, {})
            ends.pop(identity, None)
            if not ends:
                self._ends.pop(key_id, None)

    def _check(self) -> None:
        while True:
            time.sleep(_POLL)
            with self._lock:
                watched = list(self._ends)
            try:
                gone = set(watched) - self._keys.live(watched)
            except UNAVAILABLE:
                continue
            except Exception:  # nothing restarts this thread
                _log.exception("the keys of long-lived requests could not be checked")
                continue
            for key_id in gone:
                with self._lock:
                    ends = self._ends.pop(key_id, {})
                for end in ends.values():
                    # In separate threads, because a client that reads nothing delays its own end.
                    threading.Thread(target=end, daemon=True).start()


class StreamSource(Protocol):
    """Source of a stream: a `store.log.feed.Follower`, or an object with the same methods."""

    @property
    def seq(self) -> object: ...

    @property
    def closed(self) -> bool: ...

    def next(self, timeout: float) -> Sequence[Any]: ...

    def pause(self) -> None: ...

    def close(self) -> None: ...


def streamed(source: StreamSource, lines_of: Callable[[Any], bytes], first: bytes = _RETRY) -> Response:
    """Stream a source until either side ends. It counts for the caller's limit. Raises TooManyFollowersOfKey.

    lines_of: the lines of an entry of the source; b"" for none. first: sent before all entries.
    """
    try:
        done = current_server().guard.following.begin(g.principal, source.close)
    except BaseException:
        source.close()
        raise
    return _response(_Body(source, lines_of, first, request.environ.get("gunicorn.socket"), done))


def last_event_id(kind: fields.Field[Any], absent: Any) -> Any:
    """Return the id after which a reconnecting browser resumes; `absent` without the header. Raises InvalidInput."""
    text = request.headers.get("Last-Event-ID")
    with refused("header", "Last-Event-ID"):
        return kind.deserialize(text) if text else absent


def ended_stream() -> Response:
    """Return a stream that ends at once. A browser reconnects after the end of a stream, but not after an error."""
    return _response([_RETRY])


def event_lines(raw: bytes, identity: str = "", name: str = "") -> bytes:
    """Format a server-sent event: its data, with its `id:` and its name if it has them."""
    head = (f"event: {name}\n" if name else "") + (f"id: {identity}\n" if identity else "")
    return head.encode() + b"".join(b"data: %b\n" % line for line in _LINE_END.split(raw)) + b"\n"


def _response(body: Any) -> Response:
    # the header keeps proxies from buffering
    return Response(body, mimetype="text/event-stream", headers={"X-Accel-Buffering": "no"})


class _Body:
    """The body of a stream. A class, because a generator that never started is not closed."""

    def __init__(
        self,
        source: StreamSource,
        lines_of: Callable[[Any], bytes],
        first: bytes,
        connection: socket.socket | None,
        done: Callable[[], None],
    ) -> None:
        self._source = source
        self._lines_of = lines_of
        self._first = first
        self._connection = connection
        self._done = done
        self._ping_seconds = current_server().config.http.ping_seconds
        self._body = self._chunks()

    def __iter__(self) -> Iterator[bytes]:
        return self._body

    def close(self) -> None:
        done, self._done = self._done, lambda: None  # a server may close a response twice
        done()
        self._source.close()

    def _chunks(self) -> Iterator[bytes]:
        yield self._first
        silent_since = time.monotonic()
        while not (self._source.closed or _has_ended(self._connection)):
            lines = b""
            try:
                lines = b"".join(map(self._lines_of, self._source.next(min(_CLIENT_POLL, self._ping_seconds))))
            except UNAVAILABLE:
                self._source.pause()
            except StoreError:  # stopping, too slow, or deleted: the client reconnects and gets the error then
                return
            if lines or time.monotonic() - silent_since >= self._ping_seconds:
                silent_since = time.monotonic()
                yield lines or f": {self._source.seq}\n\n".encode()


def caller_required() -> Callable[[], None]:
    """Return a function that a long request calls repeatedly; it checks the key at most every `_POLL` seconds.

    The function raises ClientGone if the client has disconnected, Unauthorized if the key has ended.
    """
    require_client, require_key = client_of(request.environ.get("gunicorn.socket")), key_required(_POLL)

    def require_caller() -> None:
        require_client()
        require_key()

    return require_caller


def key_required(seconds: float = 0.0) -> Callable[[], None]:
    """Return a function that raises Unauthorized once the key of the current request has ended.

    seconds: minimum interval between two checks. Cost: one round trip per check.
    """
    following, principal = current_server().guard.following, g.principal
    checked_at = time.monotonic()

    def require_key() -> None:
        nonlocal checked_at
        if time.monotonic() - checked_at < seconds:
            return
        with suppress(*UNAVAILABLE):  # no key is revoked while Redis is unavailable
            if not following.are_live(principal):
                raise Unauthorized(REVOKED)
        checked_at = time.monotonic()

    return require_key


def client_of(connection: socket.socket | None) -> Callable[[], None]:
    """Return a function that raises ClientGone once the client of a connection has disconnected."""

    def require_client() -> None:
        if _has_ended(connection):
            raise ClientGone("The client has ended its connection")

    return require_client


def _has_ended(connection: socket.socket | None) -> bool:
    """Return whether the client has closed a connection. Otherwise only the next write would show it."""
    if connection is None:
        return False
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    try:
        return bool(poll.poll(0)) and connection.recv(1, socket.MSG_PEEK) == b""
    except ConnectionError:
        return True
    except (ValueError, OSError):  # a TLS connection cannot be peeked
        return False
