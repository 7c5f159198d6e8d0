"""Messages to conversations that may still start. Source: the app-server wire."""

from typing import Any

from marshmallow import ValidationError

from blueprints import current_actor, current_store
from blueprints.api import Blueprint, InvalidInput, needs
from schemas.pending_messages import PendingMessage, QueuedPendingMessage, read_receiver
from wire import ConversationId

pending_messages = Blueprint("Pending Messages", __name__, url_prefix="/api/v1/conversations")

_ID = {
    "in": "path",
    "name": "receiver_id",
    "required": True,
    "schema": {"type": "string"},
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
    try:
        conversation_id, start_id = read_receiver(receiver_id)
    except ValidationError as fault:
        raise InvalidInput("path", {"receiver_id": fault.messages}) from None
    queue, words = current_store.queued_messages, {"content": message["content"]}
    actor = current_actor()
    if start_id:
        identity, position = queue.put_for_start(start_id, actor=actor, **words)
    else:
        identity, position = queue.put(ConversationId(conversation_id or ""), actor=actor, **words)
    return {"id": identity, "queued": True, "position": position}
