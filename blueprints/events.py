"""The events of a conversation: count, search, get and follow; messages to it, and decisions about pending actions.

Also a search in the messages of all conversations, and the queue of messages to a conversation that may not have
started. The agent-server wire and the app-server wire have separate paths. `Last-Event-ID` resumes a stream of
server-sent events. Sources: docs/wire.md, 7 and 8; the app-server wire.
"""

import json
from functools import partial
from typing import Any

from flask import Response, g, request

from blueprints import current_actor, current_commands, current_server, current_store
from blueprints.api import (
    Blueprint,
    InvalidInput,
    array_with_holes,
    json_body,
    json_page,
    json_response,
    needs,
    read_body,
    refused,
    repeated,
    repeated_parameter,
)
from blueprints.following import ended_stream, event_lines, last_event_id, streamed
from core.wire import ConversationId
from schemas.app_conversations import AppEventFilter, AppEventPage, AppEventSearch
from schemas.approvals import ConfirmationResponse, ConfirmationResult, PendingAction
from schemas.events import (
    Event,
    EventFilterQuery,
    EventPage,
    EventSearch,
    FoundMessagePage,
    Histogram,
    HistogramQuery,
    MessageQuery,
    PendingMessage,
    QueuedPendingMessage,
    SentMessage,
    Stream,
    action_ids,
    message_page_id,
    read_ids,
    read_receiver,
    read_some_ids,
)
from schemas.fields import UUID_TEXT, EventPlace, FieldFault, Success
from store.approvals.audit import is_decision
from store.conversations.events import EventHistogram
from store.conversations.message_search import Cursor, MessageMatch, Query
from store.errors import EventsTooLong, Stopping
from store.log.feed import FeedEntry
from store.log.text import passes

events = Blueprint("Events", __name__, url_prefix="/api/conversations/<conversation_id:conversation_id>")
stream = Blueprint("Stream", __name__, url_prefix="/api/conversations/<conversation_id:conversation_id>")
app_events = Blueprint("App Conversation Events", __name__, url_prefix="/api/v1/conversation")

#: A number of events, for the OpenAPI document.
_NUMBER = {"type": "integer", "minimum": 0}
_SEQ = {"schema": _NUMBER}


_RECEIVER = {
    "in": "path",
    "name": "receiver_id",
    "required": True,
    "schema": {"type": "string", "pattern": f"^(task-)?{UUID_TEXT}$"},
    "description": "A conversation's id, or `task-` and the id of its start task.",
}


@events.get("/events/count")
@needs("read")
@events.fails(414)
@events.arguments(EventFilterQuery(), location="query")
@events.response(200, _NUMBER, description="The number of matching events")
def count_conversation_events(filters: dict[str, Any], conversation_id: ConversationId) -> Response:
    """Count local events matching the given filters."""
    return json_response(b"%d" % current_store.events.count(conversation_id, **filters))


@events.get("/events/histogram")
@needs("read")
@events.fails(409, 414)
@events.arguments(HistogramQuery(), location="query")
@events.response(200, Histogram)
def get_event_histogram(query: dict[str, Any], conversation_id: ConversationId) -> EventHistogram:
    """Count events over time, by kind or by source, in equal buckets."""
    return current_store.events.histograms.of(conversation_id, **query)


@events.get("/events/search")
@needs("read")
@events.fails(409, 414)
@events.arguments(EventSearch(), location="query")
@events.response(
    200, EventPage, headers={"X-Last-Seq": {"description": "With after_seq: the after_seq of the next page", **_SEQ}}
)
def search_conversation_events(search: dict[str, Any], conversation_id: ConversationId) -> Response:
    """Search events, a page at a time, in the order of their timestamps; or read the events after a seq."""
    if "after_seq" in search:
        return _read_after(conversation_id, search)
    return _page(conversation_id, search)


def _page(conversation_id: ConversationId, search: dict[str, Any]) -> Response:
    """Return a page of events, byte for byte as they were appended."""
    items, following = current_store.events.search(conversation_id, **search)
    return json_response(json_page(items, following))


def _read_after(conversation_id: ConversationId, search: dict[str, Any]) -> Response:
    after, wait, limit = search.pop("after_seq"), search.pop("wait", 0.0), search.pop("limit")
    search.pop("descending")
    ending = partial(current_server().guard.following.going_on, g.principal)
    items, last = current_store.streams.events.read(
        conversation_id, after, wait=wait, limit=limit, ending=ending, **search
    )
    response = json_response(json_page(items, None))
    response.headers["X-Last-Seq"] = str(last)
    return response


@events.get("/events/<event_id:event_id>")
@needs("read")
@events.fails(409)
@events.response(200, Event)
def get_conversation_event(conversation_id: ConversationId, event_id: str) -> Response:
    """Get one event as it was appended."""
    return json_response(current_store.events.get(conversation_id, event_id))


@events.get("/events")
@needs("read")
@events.fails(409, 413, 414, 415)
@events.doc(
    parameters=[
        {
            "in": "query",
            "name": "event_ids",
            "schema": {"type": "array", "items": {"type": "string"}, "maxItems": 100},
            "description": "Ids of the events; repeat the parameter for each.",
        }
    ],
    requestBody={
        "description": "The ids as an array, for existing clients; the query is then ignored.",
        "content": {"application/json": {"schema": {"type": "array", "items": {"type": "string"}, "maxItems": 100}}},
    },
)
@events.response(200, {"type": "array", "items": {"anyOf": [{"$ref": "#/components/schemas/Event"}, {"type": "null"}]}})
def batch_get_conversation_events(conversation_id: ConversationId) -> Response:
    """Get events by id, in the order of the ids, with null for an unknown id."""
    place, ids = _ids()
    try:
        return _batch(conversation_id, ids)
    except EventsTooLong as error:
        faults = [FieldFault(str(error), "too_long")]
        raise InvalidInput(place, faults if place == "body" else {"event_ids": faults}) from None


def _batch(conversation_id: ConversationId, ids: list[str]) -> Response:
    """Return events by id, in the order of the ids and byte for byte, with null for an unknown id.

    Raises EventsTooLong.
    """
    found = current_store.events.get_many(conversation_id, ids)
    return json_response(b"[%b]" % b",".join(event or b"null" for event in found))


def _ids() -> tuple[str, list[str]]:
    """Return where the requested ids are, `body` or `query`, and the ids."""
    raw = json_body()
    place, ids = ("body", read_body(raw)) if raw else ("query", request.args.getlist("event_ids"))
    if not raw and not ids:
        raise InvalidInput("body", ["Missing data for required field."])
    with refused(place, "" if place == "body" else "event_ids"):
        return place, read_ids(ids)


@events.post("/events")
@needs("write")
@events.fails(409, 410, 429, 502)
@events.arguments(SentMessage())
@events.response(200, Success)
def send_message(message: dict[str, Any], conversation_id: ConversationId) -> dict[str, bool]:
    """Send a user's message. It may reject the pending actions, and never approves them."""
    words = {name: message[name] for name in ("content", "run", "rejects")}
    current_commands.send(conversation_id, **words)
    return {"success": True}


@events.post("/events/respond_to_confirmation")
@needs("approve")
@events.fails(409)
@events.arguments(ConfirmationResponse())
@events.response(200, ConfirmationResult)
def respond_to_confirmation(decision: dict[str, Any], conversation_id: ConversationId) -> dict[str, bool]:
    """Accept or reject the pending actions. The first decision wins."""
    return {"success": current_commands.decide(conversation_id, **decision)}


@events.get("/pending_actions")
@needs("read")
@events.fails()
@events.response(200, PendingAction(many=True))
def list_pending_actions(conversation_id: ConversationId) -> list[dict[str, Any]]:
    """List the pending actions, in the order of the log."""
    return current_store.approvals.confirmations.shown_pending(conversation_id)


@app_events.get("/<conversation_id:conversation_id>/events/search")
@needs("read")
@app_events.fails(409, 414)
@app_events.arguments(AppEventSearch(), location="query")
@app_events.response(200, AppEventPage)
def search_app_conversation_events(search: dict[str, Any], conversation_id: ConversationId) -> Response:
    """Search the events of a conversation, a page at a time. `decisions=true` adds who decided their actions."""
    if not search.pop("with_decisions"):
        return _page(conversation_id, search)
    items, following = current_store.events.search(conversation_id, **search)
    decisions = current_store.approvals.audit.decisions(conversation_id, action_ids(items))
    return json_response(json_page(items, following, decisions=decisions))


@app_events.get("/<conversation_id:conversation_id>/events/count")
@needs("read")
@app_events.fails(414)
@app_events.arguments(AppEventFilter(), location="query")
@app_events.response(200, _NUMBER, description="The number of matching events")
def count_app_conversation_events(filters: dict[str, Any], conversation_id: ConversationId) -> Response:
    """Count the events of a conversation."""
    return json_response(b"%d" % current_store.events.count(conversation_id, **filters))


@app_events.get("/<conversation_id:conversation_id>/events/histogram")
@needs("read")
@app_events.fails(409, 414)
@app_events.arguments(HistogramQuery(), location="query")
@app_events.response(200, Histogram)
def get_app_conversation_event_histogram(query: dict[str, Any], conversation_id: ConversationId) -> EventHistogram:
    """Count the events of a conversation over time, by kind or by source, in equal buckets."""
    return current_store.events.histograms.of(conversation_id, **query)


@app_events.get("/<conversation_id:conversation_id>/events")
@needs("read")
@app_events.fails(409, 414)
@app_events.doc(parameters=[repeated_parameter("id", "the events")])
@app_events.response(200, array_with_holes("Event"))
def batch_get_app_conversation_events(conversation_id: ConversationId) -> Response:
    """Get events by id, in the order of the ids, with null for an unknown id."""
    return _batch(conversation_id, repeated("id", read_some_ids))


@stream.get("/events/stream")
@needs("read", ticket=True)
@stream.fails(409)
@stream.doc(
    parameters=[
        {
            "in": "header",
            "name": "Last-Event-ID",
            "schema": {"type": "integer", "minimum": 0},
            "description": "Sent by a reconnecting browser; after_seq is then ignored.",
        }
    ]
)
@stream.arguments(Stream(), location="query")
@stream.response(200, {"type": "string"}, content_type="text/event-stream", description="`id:` is the event's seq")
def stream_conversation_events(filters: dict[str, Any], conversation_id: ConversationId) -> Response:
    """Follow events: first the stored events, then each new event."""
    after = last_event_id(EventPlace(), filters.pop("after_seq", 0))
    try:
        return streamed(
            current_store.streams.events.follow(conversation_id, after), lambda entry: _lines(entry, filters)
        )
    except Stopping:
        return ended_stream()


def _lines(entry: FeedEntry, filters: dict[str, Any]) -> bytes:
    if not entry.raw:
        return b""
    if is_decision(entry):
        return event_lines(entry.raw, name="decision")
    if not passes(entry.fields, **filters):
        return b""
    return event_lines(entry.raw, str(entry.seq or ""))


messages = Blueprint("Messages", __name__, url_prefix="/api/v1/messages")


@messages.get("/search")
@needs("read")
@messages.fails(414)
@messages.arguments(MessageQuery(), location="query")
@messages.response(200, FoundMessagePage)
def search_messages(search: dict[str, Any]) -> Response:
    """Search the messages of all conversations, the newest conversation first. Only a null next_page_id is the end."""
    limit, start = search.pop("limit"), search.pop("start")
    items, following = current_store.conversations.message_search.page(
        Query(**search), limit=limit, start=Cursor(*start) if start else None
    )
    return json_response(json_page([*map(_written, items)], message_page_id(following)))


def _written(found: MessageMatch) -> bytes:
    """Serialise a message, with its event byte for byte as it was appended."""
    head = json.dumps(found.conversation_id).encode(), json.dumps(found.title).encode()
    return b'{"conversation_id":%b,"title":%b,"event":%b}' % (*head, found.event)


pending_messages = Blueprint("Pending Messages", __name__, url_prefix="/api/v1/conversations")


@pending_messages.post("/<receiver_id>/pending-messages")
@needs("write")
@pending_messages.fails(409, 429)
@pending_messages.doc(parameters=[_RECEIVER])
@pending_messages.arguments(PendingMessage())
@pending_messages.response(201, QueuedPendingMessage)
def queue_pending_message(message: dict[str, Any], receiver_id: str) -> dict[str, Any]:
    """Queue a message. A supervisor delivers it as soon as the conversation can receive it."""
    with refused("path", "receiver_id"):
        conversation_id, start_id = read_receiver(receiver_id)
    queue, words = current_store.conversations.queued_messages, {"content": message["content"]}
    actor = current_actor()
    if not message["rejects"]:
        actor = actor._replace(may_decide=False)  # the message waits while an action waits
    if start_id:
        identity, position = queue.put_for_start(start_id, actor=actor, **words)
    else:
        identity, position = queue.put(ConversationId(conversation_id or ""), actor=actor, **words)
    return {"id": identity, "queued": True, "position": position}
