"""Server-sent events: all pending actions, as a snapshot and then as they change. Source: docs/approvals.md."""

from typing import Any

from flask import Response

from blueprints import current_store
from blueprints.api import Blueprint, needs
from blueprints.event_stream import ended_stream, event_lines, last_event_id, streamed
from schemas.inbox_stream import ChangeId, InboxStreamQuery
from store.approvals.inbox import Filter
from store.approvals.inbox_stream import Sent
from store.errors import Stopping

inbox_stream = Blueprint("Inbox Stream", __name__, url_prefix="/api/v1/pending-actions")

_EVENTS = (
    "Events: `reset` (a snapshot follows, forget what you knew), `snapshot`, `ready`, then `opened`, `decided`, "
    "`expired`, `closed`; `id:` is to be sent back as Last-Event-ID"
)


@inbox_stream.get("/stream")
@needs("read", ticket=True)
@inbox_stream.fails(429)
@inbox_stream.doc(
    parameters=[
        {
            "in": "header",
            "name": "Last-Event-ID",
            "schema": {"type": "string", "pattern": ChangeId.pattern},
            "description": "Sent by a browser that connects again; last_event_id does not count then.",
        }
    ]
)
@inbox_stream.arguments(InboxStreamQuery(), location="query")
@inbox_stream.response(200, {"type": "string"}, content_type="text/event-stream", description=_EVENTS)
def stream_pending_actions(query: dict[str, Any]) -> Response:
    """Follow all pending actions: first a snapshot of what waits, then each change once."""
    after = last_event_id(ChangeId(), query.pop("last_event_id", None))
    try:
        return streamed(current_store.inbox_stream.follow(after, Filter(**query)), _lines)
    except Stopping:
        return ended_stream()


def _lines(sent: Sent) -> bytes:
    return event_lines(sent.raw, sent.id, sent.name)
