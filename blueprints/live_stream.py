"""Server-sent events: a conversation's log as it grows, resumed by `Last-Event-ID`. Source: docs/wire.md, 7."""

from typing import Any

from flask import Response

from blueprints import current_store
from blueprints.api import Blueprint, needs
from blueprints.event_stream import ended_stream, event_lines, last_event_id, streamed
from schemas.fields import Place
from schemas.live import Stream
from store.errors import Stopping
from store.log.feed import Entry
from store.log.matching import passes
from wire import ConversationId

stream = Blueprint("Stream", __name__, url_prefix="/api/conversations/<conversation_id:conversation_id>")


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
    after = last_event_id(Place(), filters.pop("after_seq", 0))
    try:
        return streamed(current_store.followers.follow(conversation_id, after), lambda entry: _lines(entry, filters))
    except Stopping:
        return ended_stream()


def _lines(entry: Entry, filters: dict[str, Any]) -> bytes:
    if not entry.raw or not passes(entry.fields, **filters):
        return b""
    return event_lines(entry.raw, str(entry.seq or ""))
