"""Server-sent events: the lists of conversations and of sandboxes as they change. Source: docs/wire.md, 15."""

from typing import Any

from flask import Response

from blueprints import current_store
from blueprints.api import Blueprint, needs
from blueprints.event_stream import ended_stream, event_lines, last_event_id, streamed
from schemas.conversation_list import ListedConversation
from schemas.list_stream import ChangeNumber, ListStreamQuery
from schemas.sandboxes import SandboxInfo
from store.conversations.list_stream import ListStream, Show
from store.errors import Stopping

list_stream = Blueprint("List Stream", __name__, url_prefix="/api/v1")

_EVENTS = (
    "Events: `reset` (read the list again, forget what you knew) and `ready`, then `changed` with an item of the list "
    "and `deleted` with its id; `id:` is to be sent back as Last-Event-ID"
)
_HEADER = {
    "in": "header",
    "name": "Last-Event-ID",
    "schema": {"type": "integer", "minimum": 0},
    "description": "Sent by a browser that connects again; last_event_id does not count then.",
}

_CONVERSATION, _SANDBOX = ListedConversation(), SandboxInfo(exclude=("session_api_key",))


@list_stream.get("/conversations/stream")
@needs("read", ticket=True)
@list_stream.fails(429)
@list_stream.doc(parameters=[_HEADER])
@list_stream.arguments(ListStreamQuery(), location="query")
@list_stream.response(200, {"type": "string"}, content_type="text/event-stream", description=_EVENTS)
def stream_conversations(query: dict[str, int]) -> Response:
    """Follow the list of all conversations; read its pages after `ready`, and nothing is missed between."""
    return _stream(current_store.conversation_stream, _CONVERSATION.dump, **query)


@list_stream.get("/sandboxes/stream")
@needs("read", ticket=True)
@list_stream.fails(429)
@list_stream.doc(parameters=[_HEADER])
@list_stream.arguments(ListStreamQuery(), location="query")
@list_stream.response(200, {"type": "string"}, content_type="text/event-stream", description=_EVENTS)
def stream_sandboxes(query: dict[str, int]) -> Response:
    """Follow the list of sandboxes, which are shown without their keys; read its pages after `ready`."""
    return _stream(current_store.sandbox_stream, _without_key, **query)


def _stream(stream: ListStream, show: Show, after: int | None = None) -> Response:
    after = last_event_id(ChangeNumber(), after)
    try:
        return streamed(stream.follow(after, show), lambda sent: event_lines(sent.raw, sent.id, sent.name))
    except Stopping:
        return ended_stream()


def _without_key(sandbox: Any) -> dict[str, Any]:
    """A sandbox for all who follow, whatever the key of the one whose request reads it may see."""
    return {**_SANDBOX.dump(sandbox), "session_api_key": None}
