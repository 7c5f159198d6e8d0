"""Long-lived requests: sockets, streams of server-sent events, long polls, calls that are forwarded.

All of them end when their key does. A key may have MAX_FOLLOWERS_PER_KEY of them at once; forwarded calls, archives and
exports do not count. A worker asks Redis about the keys of all followers several times a second, in one round trip; a
request that moves bytes asks for itself (`caller_required`, `key_required`). While Redis does not answer nothing ends,
because nothing can be revoked either. A request also ends when its client hangs up: WSGI tells a view of that only when
it writes, so the connection is polled.
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

#: seconds between two checks
_POLL = 0.4

_log = logging.getLogger(__name__)


#: milliseconds after which a browser reconnects
RECONNECT = 1000
_RETRY = b"retry: %d\n\n" % RECONNECT

#: seconds between two checks that the client is still connected
_CLIENT_POLL = 2.0

_LINE_END = re.compile(rb"\r\n|\r|\n")


class Following:
    """The long-lived requests of this worker. The thread that checks keys starts with the first revocable key."""

    def __init__(self, keys: AccessKeys, quota: Quota) -> None:
        """quota: of what one key, or without a key one address, may have at once."""
        self._keys = keys
        self._quota = quota
        self._lock = threading.Lock()
        self._ends: dict[str, dict[object, Callable[[], None]]] = {}  #: key id → what ends each
        self._thread: threading.Thread | None = None

    @contextmanager
    def going_on(self, principal: Principal, end: Callable[[], None]) -> Iterator[None]:
        """Within the block the present request counts, and `end` is called, in a thread of its own, when the key of its
        principal opens nothing any more. Raises TooManyFollowersOfKey."""
        done = self.begin(principal, end)
        try:
            yield
        finally:
            done()

    def begin(self, principal: Principal, end: Callable[[], None], address: str = "") -> Callable[[], None]:
        """As `going_on`, without a block; returns what must be called once at its end.

        address: of the client, for what is no request of the app's.
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
        """Whether the principal's key still opens something. At most one round trip."""
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
            except Exception:  # no other thread restarts this one
                _log.exception("the keys of long-lived requests could not be checked")
                continue
            for key_id in gone:
                with self._lock:
                    ends = self._ends.pop(key_id, {})
                for end in ends.values():
                    # A client that reads nothing delays its own end, and no other.
                    threading.Thread(target=end, daemon=True).start()


class Source(Protocol):
    """What a stream sends: a `store.log.feed.Follower`, or whatever has the same methods."""

    @property
    def seq(self) -> object: ...

    @property
    def closed(self) -> bool: ...

    def next(self, timeout: float) -> Sequence[Any]: ...

    def pause(self) -> None: ...

    def close(self) -> None: ...


def streamed(source: Source, lines_of: Callable[[Any], bytes], first: bytes = _RETRY) -> Response:
    """A response that sends what a source has until either side ends; it counts as followed by the one who asks.

    lines_of: the lines of one entry of the source, b"" for none. first: what is sent before all of them. Raises
    TooManyFollowersOfKey.
    """
    try:
        done = current_server().guard.following.begin(g.principal, source.close)
    except BaseException:
        source.close()
        raise
    return _response(_Body(source, lines_of, first, request.environ.get("gunicorn.socket"), done))


def last_event_id(kind: fields.Field[Any], absent: Any) -> Any:
    """The id after which a browser that reconnects resumes; `absent` if it sends none. Raises InvalidInput."""
    text = request.headers.get("Last-Event-ID")
    with refused("header", "Last-Event-ID"):
        return kind.deserialize(text) if text else absent


def ended_stream() -> Response:
    """A stream that ends at once: a browser never retries after an error; after the end of a stream it does."""
    return _response([_RETRY])


def event_lines(raw: bytes, identity: str = "", name: str = "") -> bytes:
    """An event: its data, its `id:` and its name, where it has these."""
    head = (f"event: {name}\n" if name else "") + (f"id: {identity}\n" if identity else "")
    return head.encode() + b"".join(b"data: %b\n" % line for line in _LINE_END.split(raw)) + b"\n"


def _response(body: Any) -> Response:
    return Response(body, mimetype="text/event-stream", headers={"X-Accel-Buffering": "no"})  # no proxy buffers it


class _Body:
    """A class, because a generator that was never started is not closed."""

    def __init__(
        self,
        source: Source,
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
            except StoreError:  # stopping, too slow, or deleted: the client connects again and gets the error then
                return
            if lines or time.monotonic() - silent_since >= self._ping_seconds:
                silent_since = time.monotonic()
                yield lines or f": {self._source.seq}\n\n".encode()


def caller_required() -> Callable[[], None]:
    """A function that a long request calls while it goes on; it checks the key at most every `_POLL` seconds.

    Raises ClientGone once the client of the present request has ended its connection, Unauthorized once its key opens
    nothing.
    """
    require_client, require_key = client_of(request.environ.get("gunicorn.socket")), key_required(_POLL)

    def require_caller() -> None:
        require_client()
        require_key()

    return require_caller


def key_required(seconds: float = 0.0) -> Callable[[], None]:
    """A function that raises Unauthorized once the key of the present request opens nothing.

    seconds: between two checks, each of which is a round trip.
    """
    following, principal = current_server().guard.following, g.principal
    checked_at = time.monotonic()

    def require_key() -> None:
        nonlocal checked_at
        if time.monotonic() - checked_at < seconds:
            return
        with suppress(*UNAVAILABLE):  # while Redis does not answer nothing is revoked
            if not following.are_live(principal):
                raise Unauthorized(REVOKED)
        checked_at = time.monotonic()

    return require_key


def client_of(connection: socket.socket | None) -> Callable[[], None]:
    """The same, of a connection."""

    def require_client() -> None:
        if _has_ended(connection):
            raise ClientGone("The client has ended its connection")

    return require_client


def _has_ended(connection: socket.socket | None) -> bool:
    """Whether the client has ended a connection, which otherwise only the next write would find."""
    if connection is None:
        return False
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    try:
        return bool(poll.poll(0)) and connection.recv(1, socket.MSG_PEEK) == b""
    except ConnectionError:
        return True
    except (ValueError, OSError):  # a connection with TLS does not tell
        return False
