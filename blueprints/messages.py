"""Messages: a search in those of all conversations, and the queue of those to a conversation that may still start.

Source: docs/wire.md, 8; the app-server wire.
"""

import json
from typing import Any

from flask import Response

from blueprints import current_actor, current_store
from blueprints.api import Blueprint, json_page, json_response, needs, refused
from core.wire import ConversationId
from schemas.fields import UUID_TEXT
from schemas.messages import (
    FoundMessagePage,
    MessageQuery,
    PendingMessage,
    QueuedPendingMessage,
    page_id,
    read_receiver,
)
from store.conversations.message_search import Cursor, FoundMessage, Query

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
    return json_response(json_page([*map(_written, items)], page_id(following)))


def _written(found: FoundMessage) -> bytes:
    """A message as JSON, with the event byte for byte as it was appended."""
    head = json.dumps(found.conversation_id).encode(), json.dumps(found.title).encode()
    return b'{"conversation_id":%b,"title":%b,"event":%b}' % (*head, found.event)


pending_messages = Blueprint("Pending Messages", __name__, url_prefix="/api/v1/conversations")

_ID = {
    "in": "path",
    "name": "receiver_id",
    "required": True,
    "schema": {"type": "string", "pattern": f"^(task-)?{UUID_TEXT}$"},
    "description": "A conversation's id, or `task-` and the id of its start task.",
}


@pending_messages.post("/<receiver_id>/pending-messages")
@needs("write")
@pending_messages.fails(404, 409, 413, 415, 429)
@pending_messages.doc(parameters=[_ID])
@pending_messages.arguments(PendingMessage())
@pending_messages.response(201, QueuedPendingMessage)
def queue_pending_message(message: dict[str, Any], receiver_id: str) -> dict[str, Any]:
    """Queue a message, which a supervisor delivers as soon as the conversation can receive it."""
    with refused("path", "receiver_id"):
        conversation_id, start_id = read_receiver(receiver_id)
    queue, words = current_store.conversations.queued_messages, {"content": message["content"]}
    actor = current_actor()
    if not message["rejects"]:
        actor = actor._replace(may_decide=False)  # the message waits where an action does
    if start_id:
        identity, position = queue.put_for_start(start_id, actor=actor, **words)
    else:
        identity, position = queue.put(ConversationId(conversation_id or ""), actor=actor, **words)
    return {"id": identity, "queued": True, "position": position}
