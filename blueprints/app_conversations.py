"""App conversations: start, list, change, delete, and their events. Source: the app-server wire."""

import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from uuid import UUID

from flask import Response, current_app, g, jsonify, request

from agents.deadlines import with_deadline
from agents.deletions import delete_with_children
from agents.labels import relabel
from blueprints import current_commands, current_specs, current_store
from blueprints.api import (
    Blueprint,
    InvalidInput,
    array_with_holes,
    json_response,
    needs,
    repeated,
    repeated_parameter,
)
from blueprints.events import events_page
from schemas.app_conversations import (
    AppConversation,
    AppConversationFilter,
    AppConversationPage,
    AppConversationSearch,
    AppConversationStartRequest,
    AppConversationStartTask,
    AppConversationStartTaskPage,
    AppEventFilter,
    AppEventSearch,
    SendAppMessageRequest,
    SendAppMessageResult,
    StartTaskFilter,
    StartTaskSearch,
    UpdateAppConversationRequest,
    echo,
)
from schemas.confirmations import Success
from schemas.conversations import read_conversation_ids
from schemas.cursors import page_id
from schemas.events import EventPage, read_some_ids
from schemas.fields import Fault
from schemas.histogram import Histogram, HistogramQuery
from store import Store
from store.conversations.app_conversations import app_filter
from store.conversations.histogram import Histogram as EventHistogram
from store.errors import EventsTooLong
from store.sandboxes.start_tasks import FINISHED, StartTask
from wire import ConversationId

app_conversations = Blueprint("App Conversations", __name__, url_prefix="/api/v1/app-conversations")
app_events = Blueprint("App Conversation Events", __name__, url_prefix="/api/v1/conversation")

_NUMBER = {"type": "integer", "minimum": 0}

#: seconds between two polls of a start task that is streamed: the first time, and at most; each is twice the one before
_FIRST_TASK_POLL, _TASK_POLL = 0.01, 0.1

_STARTS = {"type": "array", "items": {"$ref": "#/components/schemas/AppConversationStartTask"}}


@app_conversations.post("")
@needs("write")
@app_conversations.starts
@app_conversations.replay(remade=True)
@app_conversations.fails(413, 415)
@app_conversations.arguments(AppConversationStartRequest(), required=False)
@app_conversations.response(200, AppConversationStartTask)
def start_app_conversation(request: dict[str, Any]) -> StartTask:
    """Start an app conversation. The response is a start task, which goes on by itself until it is READY or ERROR."""
    return current_store.start_tasks.create(request, echo=echo(request))


@app_conversations.post("/stream-start")
@needs("write")
@app_conversations.starts
@app_conversations.replay(remade=True, has_key=True)
@app_conversations.fails(413, 415)
@app_conversations.arguments(AppConversationStartRequest(), required=False)
@app_conversations.response(200, _STARTS, description="One array; each change of the start task adds it once more")
def stream_app_conversation_start(request: dict[str, Any]) -> Response:
    """Start an app conversation and stream every state of its start task; the stream ends at READY or ERROR."""
    start = current_store.start_tasks.create(request, echo=echo(request))
    store = current_store._get_current_object()  # type: ignore[attr-defined]
    guard, principal = current_app.extensions["guard"], g.principal
    states = _states(store, start, partial(guard.following.are_live, principal))
    return Response(states, mimetype="application/json", headers={"X-Accel-Buffering": "no"})


def _states(store: Store, start: StartTask, may_go_on: Callable[[], bool]) -> Iterator[str]:
    yield "[\n" + json.dumps(AppConversationStartTask().dump(start))
    poll = _FIRST_TASK_POLL
    while start.status not in FINISHED and may_go_on():
        time.sleep(poll)
        poll = min(2 * poll, _TASK_POLL)
        [now] = store.start_tasks.get_many([start.id])
        if now is None:
            break
        if now.updated_at != start.updated_at:
            start = now
            yield ",\n" + json.dumps(AppConversationStartTask().dump(start))
    yield "]"


@app_conversations.get("/start-tasks/search")
@needs("read")
@app_conversations.fails()
@app_conversations.arguments(StartTaskSearch(), location="query")
@app_conversations.response(200, AppConversationStartTaskPage)
def search_start_tasks(search: dict[str, Any]) -> dict[str, Any]:
    """List start tasks, a page at a time."""
    items, following = current_store.start_tasks.search(**search)
    return {"items": items, "next_page_id": page_id(search["by"], search["descending"], following)}


@app_conversations.get("/start-tasks/count")
@needs("read")
@app_conversations.fails()
@app_conversations.arguments(StartTaskFilter(), location="query")
@app_conversations.response(200, _NUMBER, description="The number of start tasks")
def count_start_tasks(filters: dict[str, Any]) -> Response:
    """Count start tasks."""
    return json_response(b"%d" % current_store.start_tasks.count(**filters))


@app_conversations.get("/start-tasks")
@needs("read")
@app_conversations.fails(414)
@app_conversations.doc(parameters=[repeated_parameter("ids", "the start tasks", format="uuid")])
@app_conversations.response(200, array_with_holes("AppConversationStartTask"))
def batch_get_start_tasks() -> Response:
    """Get start tasks by id, in that order, null for an unknown one."""
    ids = [UUID(one).hex for one in repeated("ids", read_conversation_ids)]
    found = current_store.start_tasks.get_many(ids)
    return jsonify([start and AppConversationStartTask().dump(start) for start in found])


@app_conversations.get("/search")
@needs("read")
@app_conversations.fails()
@app_conversations.arguments(AppConversationSearch(), location="query")
@app_conversations.response(200, AppConversationPage)
def search_app_conversations(search: dict[str, Any]) -> dict[str, Any]:
    """List app conversations, a page at a time; a page with filters may be shorter than its limit and not the last."""
    return _page(search)


def _page(search: dict[str, Any]) -> dict[str, Any]:
    page = {name: search.pop(name) for name in ("by", "descending", "limit", "start")}
    items, following = current_store.app_conversations.search(app_filter(**search), **page)
    return {"items": items, "next_page_id": page_id(page["by"], page["descending"], following)}


@app_conversations.get("/count")
@needs("read")
@app_conversations.fails()
@app_conversations.arguments(AppConversationFilter(), location="query")
@app_conversations.response(200, _NUMBER, description="The number of app conversations")
def count_app_conversations(filters: dict[str, Any]) -> Response:
    """Count app conversations, with the filters of search."""
    return json_response(b"%d" % current_store.app_conversations.count(app_filter(**filters)))


@app_conversations.get("")
@needs("read")
@app_conversations.fails(414)
@app_conversations.doc(
    parameters=[{**repeated_parameter("ids", "the conversations", format="uuid"), "required": False}]
)
@app_conversations.arguments(AppConversationSearch(), location="query")
@app_conversations.response(
    200,
    {
        "anyOf": [
            {"$ref": "#/components/schemas/AppConversationPage"},
            array_with_holes("AppConversation"),
        ]
    },
    description="With ids: those, null for an unknown one. Without: a page, newest first",
)
def list_app_conversations(search: dict[str, Any]) -> Response:
    """List app conversations, or get those of the given ids."""
    if "ids" not in request.args:
        return jsonify(AppConversationPage().dump(_page(search)))
    ids = [ConversationId(one) for one in repeated("ids", read_conversation_ids)]
    found = current_store.app_conversations.get_many(ids)
    return jsonify([state and AppConversation().dump(state) for state in found])


@app_conversations.patch("/<conversation_id:conversation_id>")
@needs("write")
@app_conversations.fails(404, 413, 415)
@app_conversations.arguments(UpdateAppConversationRequest())
@app_conversations.response(200, AppConversation)
def update_app_conversation(changes: dict[str, Any], conversation_id: ConversationId) -> dict[str, Any]:
    """Change an app conversation."""
    changes = with_deadline(current_store, current_specs, g.principal, conversation_id, changes)
    own = {name: changes.pop(name) for name in ("title", "tags", "confirmation_seconds") if name in changes}
    relabel(current_commands, conversation_id, app=changes, **own)
    return current_store.app_conversations.get(conversation_id)


@app_conversations.delete("/<conversation_id:conversation_id>")
@needs("admin")
@app_conversations.fails(404)
@app_conversations.response(200, Success)
def delete_app_conversation(conversation_id: ConversationId) -> dict[str, bool]:
    """Delete an app conversation, its children and start tasks, and its sandbox when no other conversation is in it."""
    delete_with_children(current_commands, conversation_id)
    return {"success": True}


@app_conversations.post("/<conversation_id:conversation_id>/send-message")
@needs("write")
@app_conversations.fails(404, 409, 410, 413, 415, 429, 502)
@app_conversations.arguments(SendAppMessageRequest())
@app_conversations.response(200, SendAppMessageResult)
def send_app_message(message: dict[str, Any], conversation_id: ConversationId) -> dict[str, Any]:
    """Send a user's message to the agent of an app conversation."""
    current_commands.send_to_agent(conversation_id, content=message["content"], run=message["run"])
    return {"success": True, "sandbox_status": "RUNNING", "message": None}


@app_events.get("/<conversation_id:conversation_id>/events/search")
@needs("read")
@app_events.fails(404, 414)
@app_events.arguments(AppEventSearch(), location="query")
@app_events.response(200, EventPage)
def search_app_conversation_events(search: dict[str, Any], conversation_id: ConversationId) -> Response:
    """Search the events of a conversation, a page at a time."""
    return events_page(conversation_id, search)


@app_events.get("/<conversation_id:conversation_id>/events/count")
@needs("read")
@app_events.fails(404, 414)
@app_events.arguments(AppEventFilter(), location="query")
@app_events.response(200, _NUMBER, description="The number of matching events")
def count_app_conversation_events(filters: dict[str, Any], conversation_id: ConversationId) -> Response:
    """Count the events of a conversation."""
    return json_response(b"%d" % current_store.events.count(conversation_id, **filters))


@app_events.get("/<conversation_id:conversation_id>/events/histogram")
@needs("read")
@app_events.fails(404, 414)
@app_events.arguments(HistogramQuery(), location="query")
@app_events.response(200, Histogram)
def get_app_conversation_event_histogram(query: dict[str, Any], conversation_id: ConversationId) -> EventHistogram:
    """Count the events of a conversation over time, by kind or by source, in equal buckets."""
    return current_store.histograms.of(conversation_id, **query)


@app_events.get("/<conversation_id:conversation_id>/events")
@needs("read")
@app_events.fails(404, 414)
@app_events.doc(parameters=[repeated_parameter("id", "the events")])
@app_events.response(200, array_with_holes("Event"))
def batch_get_app_conversation_events(conversation_id: ConversationId) -> Response:
    """Get events by id, in that order, null for an unknown one."""
    ids = repeated("id", read_some_ids)
    try:
        found = current_store.events.get_many(conversation_id, ids)
    except EventsTooLong as error:
        raise InvalidInput("query", {"id": [Fault(str(error), "too_long")]}) from None
    return json_response(b"[%b]" % b",".join(event or b"null" for event in found))
