"""The body of a response of server-sent events: what a source has, comments while it has nothing, an end with it."""

import re
import select
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from flask import Response, current_app, g, request
from marshmallow import ValidationError, fields

from blueprints.api import InvalidInput
from store.errors import UNAVAILABLE, StoreError

#: milliseconds after which a browser connects again
RECONNECT = 1000
_RETRY = b"retry: %d\n\n" % RECONNECT

#: seconds between two checks that the client is still connected
_CLIENT_POLL = 2.0

_LINE_END = re.compile(rb"\r\n|\r|\n")


class Source(Protocol):
    """What a stream sends: a `store.feed.Follower`, or another one that is asked alike."""

    @property
    def seq(self) -> object: ...

    @property
    def closed(self) -> bool: ...

    def next(self, timeout: float) -> Sequence[Any]: ...

    def pause(self) -> None: ...

    def close(self) -> None: ...


def streamed(source: Source, lines_of: Callable[[Any], bytes]) -> Response:
    """A response that sends what a source has until either side ends; it counts as followed by the one who asks.

    lines_of: the lines of one entry of the source, b"" for none. Raises TooManyFollowersOfKey.
    """
    try:
        done = current_app.extensions["guard"].following.begin(g.principal, source.close)
    except BaseException:
        source.close()
        raise
    return _response(_Body(source, lines_of, request.environ.get("gunicorn.socket"), done))


def last_event_id(kind: fields.Field[Any], absent: Any) -> Any:
    """The id after which a browser that connects again goes on; `absent` where it sends none. Raises InvalidInput."""
    text = request.headers.get("Last-Event-ID")
    try:
        return kind.deserialize(text) if text else absent
    except ValidationError as fault:
        raise InvalidInput("header", {"Last-Event-ID": fault.messages}) from None


def ended_stream() -> Response:
    """A stream that ends at once: a browser never retries after an error; after the end of a stream it does."""
    return _response([_RETRY])


def event_lines(raw: bytes, identity: str = "", name: str = "") -> bytes:
    """An event: its data, its `id:` and its name, where it has these."""
    head = (f"event: {name}\n" if name else "") + (f"id: {identity}\n" if identity else "")
    return head.encode() + b"".join(b"data: %b\n" % line for line in _LINE_END.split(raw)) + b"\n"


def _response(body: Any) -> Response:
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}  # no cache stores it, no proxy buffers it
    return Response(body, mimetype="text/event-stream", headers=headers)


class _Body:
    """A class, because a generator that was never started is not closed."""

    def __init__(
        self,
        source: Source,
        lines_of: Callable[[Any], bytes],
        connection: socket.socket | None,
        done: Callable[[], None],
    ) -> None:
        self._source = source
        self._lines_of = lines_of
        self._connection = connection
        self._done = done
        self._ping_seconds = current_app.config["PING_SECONDS"]
        self._body = self._chunks()

    def __iter__(self) -> Iterator[bytes]:
        return self._body

    def close(self) -> None:
        done, self._done = self._done, lambda: None  # a server may close a response twice
        done()
        self._source.close()

    def _chunks(self) -> Iterator[bytes]:
        yield _RETRY
        silent_since = time.monotonic()
        while not self._hung_up():
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

    def _hung_up(self) -> bool:
        """Whether the client has disconnected, which otherwise only the next write would find."""
        if self._source.closed or self._connection is None:
            return self._source.closed
        poll = select.poll()
        poll.register(self._connection, select.POLLIN)
        try:
            return bool(poll.poll(0)) and not self._connection.recv(1, socket.MSG_PEEK)
        except OSError:
            return True
