"""The events of a conversation: count, search, get; messages to it, and decisions about its pending actions."""

from functools import partial
from typing import Any

from flask import Response, current_app, g, request
from marshmallow import ValidationError

from blueprints import current_commands, current_store
from blueprints.api import Blueprint, InvalidInput, json_body, json_page, json_response, needs
from schemas.confirmations import ConfirmationResponse, ConfirmationResult, PendingAction, Success
from schemas.events import Event, EventFilter, EventPage, EventSearch, SendMessageRequest, read_ids
from schemas.fields import Fault
from schemas.histogram import Histogram, HistogramQuery
from store.conversations.histogram import Histogram as EventHistogram
from store.errors import EventsTooLong
from wire import ConversationId, parse_json

events = Blueprint("Events", __name__, url_prefix="/api/conversations/<conversation_id:conversation_id>")


_SEQ = {"schema": {"type": "integer", "minimum": 0}}


@events.get("/events/count")
@needs("read")
@events.fails(404, 414)
@events.arguments(EventFilter(), location="query")
@events.response(200, {"type": "integer", "minimum": 0}, description="The number of matching events")
def count_conversation_events(filters: dict[str, Any], conversation_id: ConversationId) -> Response:
    """Count local events matching the given filters."""
    return json_response(b"%d" % current_store.events.count(conversation_id, **filters))


@events.get("/events/histogram")
@needs("read")
@events.fails(404, 414)
@events.arguments(HistogramQuery(), location="query")
@events.response(200, Histogram)
def get_event_histogram(query: dict[str, Any], conversation_id: ConversationId) -> EventHistogram:
    """Count events over time, by kind or by source, in equal buckets."""
    return current_store.histograms.of(conversation_id, **query)


@events.get("/events/search")
@needs("read")
@events.fails(404, 414)
@events.arguments(EventSearch(), location="query")
@events.response(
    200, EventPage, headers={"X-Last-Seq": {"description": "With after_seq: the seq to read after next", **_SEQ}}
)
def search_conversation_events(search: dict[str, Any], conversation_id: ConversationId) -> Response:
    """Search events, a page at a time, in the order of their timestamps; or read them after a seq."""
    if "after_seq" in search:
        return _read_after(conversation_id, search)
    return events_page(conversation_id, search)


def events_page(conversation_id: ConversationId, search: dict[str, Any]) -> Response:
    """A page of events, with the bytes of each as it was appended."""
    items, following = current_store.events.search(conversation_id, **search)
    return json_response(json_page(items, following))


def _read_after(conversation_id: ConversationId, search: dict[str, Any]) -> Response:
    after, wait, limit = search.pop("after_seq"), search.pop("wait", 0.0), search.pop("limit")
    search.pop("descending")
    ending = partial(current_app.extensions["guard"].following.going_on, g.principal)
    items, last = current_store.followers.read(conversation_id, after, wait=wait, limit=limit, ending=ending, **search)
    response = json_response(json_page(items, None))
    response.headers["X-Last-Seq"] = str(last)
    return response


@events.get("/events/<event_id:event_id>")
@needs("read")
@events.fails(404)
@events.response(200, Event)
def get_conversation_event(conversation_id: ConversationId, event_id: str) -> Response:
    """Get one event as it was appended."""
    return json_response(current_store.events.get(conversation_id, event_id))


@events.get("/events")
@needs("read")
@events.fails(404, 413, 414, 415)
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
        "description": "The ids as an array, as existing clients send them; the query is ignored then.",
        "content": {"application/json": {"schema": {"type": "array", "items": {"type": "string"}, "maxItems": 100}}},
    },
)
@events.response(200, {"type": "array", "items": {"anyOf": [{"$ref": "#/components/schemas/Event"}, {"type": "null"}]}})
def batch_get_conversation_events(conversation_id: ConversationId) -> Response:
    """Get events by id, in that order, null for an unknown one."""
    place, ids = _ids()
    try:
        found = current_store.events.get_many(conversation_id, ids)
    except EventsTooLong as error:
        raise _refused_ids(place, [Fault(str(error), "too_long")]) from None
    return json_response(b"[%b]" % b",".join(event or b"null" for event in found))


def _ids() -> tuple[str, list[str]]:
    """The ids that are asked for, and whether they stand in the `body` or in the `query`."""
    raw = json_body()
    place, ids = ("body", parse_json(raw)) if raw else ("query", request.args.getlist("event_ids"))
    if not raw and not ids:
        raise InvalidInput("body", ["Missing data for required field."])
    try:
        return place, read_ids(ids)
    except ValidationError as fault:
        raise _refused_ids(place, fault.messages) from None


def _refused_ids(place: str, messages: Any) -> InvalidInput:
    return InvalidInput(place, messages if place == "body" else {"event_ids": messages})


@events.post("/events")
@needs("write")
@events.fails(404, 409, 410, 413, 415, 429, 502)
@events.arguments(SendMessageRequest())
@events.response(200, Success)
def send_message(message: dict[str, Any], conversation_id: ConversationId) -> dict[str, bool]:
    """Send a user's message, which rejects the pending actions and never approves them."""
    current_commands.send(conversation_id, content=message["content"], run=message["run"])
    return {"success": True}


@events.post("/events/respond_to_confirmation")
@needs("approve")
@events.fails(404, 413, 415)
@events.arguments(ConfirmationResponse())
@events.response(200, ConfirmationResult)
def respond_to_confirmation(decision: dict[str, Any], conversation_id: ConversationId) -> dict[str, bool]:
    """Accept or reject the pending actions; the first decision wins."""
    return {"success": current_commands.decide(conversation_id, **decision)}


@events.get("/pending_actions")
@needs("read")
@events.fails(404)
@events.response(200, PendingAction(many=True))
def list_pending_actions(conversation_id: ConversationId) -> list[dict[str, Any]]:
    """List the pending actions, in the order of the log."""
    return current_store.confirmations.pending(conversation_id)
