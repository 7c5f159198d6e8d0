"""Server-sent events: a conversation's log as it grows, resumed by `Last-Event-ID`. Source: docs/wire.md, 7."""

import re
import select
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from flask import Response, current_app, g, request
from marshmallow import ValidationError

from blueprints import current_store
from blueprints.api import Blueprint, InvalidInput, needs
from schemas.fields import Place
from schemas.live import Stream
from store.errors import UNAVAILABLE, Stopping, StoreError
from store.feed import Entry, Follower
from store.matching import passes
from wire import ConversationId

stream = Blueprint("Stream", __name__, url_prefix="/api/conversations/<conversation_id:conversation_id>")

#: milliseconds after which a browser connects again
RECONNECT = 1000
_RETRY = b"retry: %d\n\n" % RECONNECT

#: seconds between two checks that the client is still connected
_CLIENT_POLL = 2.0

_LINE_END = re.compile(rb"\r\n|\r|\n")


@stream.get("/events/stream")
@needs("read", ticket=True)
@stream.fails(404)
@stream.doc(
    parameters=[
        {
            "in": "header",
            "name": "Last-Event-ID",
            "schema": {"type": "integer", "minimum": 0},
            "description": "Sent by a browser that connects again; after_seq is ignored then.",
        }
    ]
)
@stream.arguments(Stream(), location="query")
@stream.response(200, {"type": "string"}, content_type="text/event-stream", description="`id:` is the event's seq")
def stream_conversation_events(filters: dict[str, Any], conversation_id: ConversationId) -> Response:
    """Follow events: first those of the log, then each as it is appended."""
    after = filters.pop("after_seq", 0)
    if last := request.headers.get("Last-Event-ID"):
        after = _seq(last)
    lines: Iterable[bytes]
    try:
        follower = current_store.followers.follow(conversation_id, after)
        lines = _Lines(follower, filters, request.environ.get("gunicorn.socket"), _begun(follower))
    except Stopping:  # a browser never retries after an error; after the end of a stream it does
        lines = [_RETRY]
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}  # no cache stores it, no proxy buffers it
    return Response(lines, mimetype="text/event-stream", headers=headers)


def _seq(text: str) -> int:
    try:
        return Place().deserialize(text)
    except ValidationError as fault:
        raise InvalidInput("header", {"Last-Event-ID": fault.messages}) from None


def _begun(follower: Follower) -> Callable[[], None]:
    """Count the stream; returns what its end must call. Raises TooManyFollowersOfKey."""
    try:
        done: Callable[[], None] = current_app.extensions["guard"].following.begin(g.principal, follower.close)
    except BaseException:
        follower.close()
        raise
    return done


class _Lines:
    """The body of the response. A class, because a generator that was never started is not closed."""

    def __init__(
        self,
        follower: Follower,
        filters: dict[str, Any],
        connection: socket.socket | None,
        done: Callable[[], None],
    ) -> None:
        self._follower = follower
        self._filters = filters
        self._connection = connection
        self._done = done
        self._ping_seconds = current_app.config["PING_SECONDS"]
        self._body = self._chunks()

    def __iter__(self) -> Iterator[bytes]:
        return self._body

    def close(self) -> None:
        done, self._done = self._done, lambda: None  # a server may close a response twice
        done()
        self._follower.close()

    def _chunks(self) -> Iterator[bytes]:
        yield _RETRY
        silent_since = time.monotonic()
        while not self._hung_up():
            lines = b""
            try:
                entries = self._follower.next(min(_CLIENT_POLL, self._ping_seconds))
                lines = b"".join(self._lines(entry) for entry in entries if entry.raw)
            except UNAVAILABLE:
                self._follower.pause()
            except StoreError:  # stopping, too slow, or deleted: the client connects again and gets the error then
                return
            if lines or time.monotonic() - silent_since >= self._ping_seconds:
                silent_since = time.monotonic()
                yield lines or b": %d\n\n" % self._follower.seq

    def _hung_up(self) -> bool:
        """Whether the client has disconnected, which otherwise only the next write would find."""
        if self._follower.closed or self._connection is None:
            return self._follower.closed
        poll = select.poll()
        poll.register(self._connection, select.POLLIN)
        try:
            return bool(poll.poll(0)) and not self._connection.recv(1, socket.MSG_PEEK)
        except OSError:
            return True

    def _lines(self, entry: Entry) -> bytes:
        if not passes(entry.fields, **self._filters):
            return b""
        identity = b"id: %d\n" % entry.seq if entry.seq else b""
        return identity + b"".join(b"data: %b\n" % line for line in _LINE_END.split(entry.raw)) + b"\n"
