"""The list of all conversations, as pages and as a stream of its changes; and that stream of the list of sandboxes.

Source: docs/wire.md, 15.
"""

from typing import Any

from flask import Response

from blueprints import current_store
from blueprints.api import Blueprint, form_of, json_page, json_response, needs, repeated
from blueprints.following import ended_stream, event_lines, last_event_id, streamed
from core.wire import EXECUTION_STATUSES
from schemas.conversation_list import (
    ChangeNumber,
    ConversationListSearch,
    ListedConversation,
    ListedConversationPage,
    ListStreamQuery,
    read_statuses,
)
from schemas.cursors import page_id
from schemas.sandboxes import SandboxInfo
from store.conversations.lists import ListStream, Show
from store.errors import Stopping
from store.listing import Filter

conversation_list = Blueprint("Conversation List", __name__, url_prefix="/api/v1/conversations")

_LISTED = form_of("listed", ListedConversation().dump)

_STATUSES = {
    "in": "query",
    "name": "status",
    "schema": {"type": "array", "items": {"type": "string", "enum": list(EXECUTION_STATUSES)}},
    "description": "Repeat the parameter for each of several; absent: all.",
}


@conversation_list.get("/search")
@needs("read")
@conversation_list.fails()
@conversation_list.doc(parameters=[_STATUSES])
@conversation_list.arguments(ConversationListSearch(), location="query")
@conversation_list.response(200, ListedConversationPage)
def search_all_conversations(search: dict[str, Any]) -> Response:
    """List all conversations, those that changed last first. A page may be shorter than its limit and not the last."""
    page = {name: search.pop(name) for name in ("by", "descending", "limit", "start")}
    sandbox_id = search.pop("sandbox_id", None)
    group = None if sandbox_id is None else f"in-{sandbox_id}"
    filters = Filter(group=group, statuses=tuple(repeated("status", read_statuses)), **search)
    items, following = current_store.conversations.summaries.page(filters, _LISTED, **page)
    return json_response(json_page(items, page_id(page["by"], page["descending"], following)) + b"\n")


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
    return _stream(current_store.streams.conversations, _CONVERSATION.dump, **query)


@list_stream.get("/sandboxes/stream")
@needs("read", ticket=True)
@list_stream.fails(429)
@list_stream.doc(parameters=[_HEADER])
@list_stream.arguments(ListStreamQuery(), location="query")
@list_stream.response(200, {"type": "string"}, content_type="text/event-stream", description=_EVENTS)
def stream_sandboxes(query: dict[str, int]) -> Response:
    """Follow the list of sandboxes, which are shown without their keys; read its pages after `ready`."""
    return _stream(current_store.streams.sandboxes, _without_key, **query)


def _stream(stream: ListStream, show: Show, after: int | None = None) -> Response:
    after = last_event_id(ChangeNumber(), after)
    try:
        return streamed(stream.follow(after, show), lambda sent: event_lines(sent.raw, sent.id, sent.name))
    except Stopping:
        return ended_stream()


def _without_key(sandbox: Any) -> dict[str, Any]:
    """A sandbox for all who follow, whatever the key of the one whose request reads it may see."""
    return {**_SANDBOX.dump(sandbox), "session_api_key": None}
