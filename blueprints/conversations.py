"""Conversations: create, get, delete, and the policy that decides which actions wait."""

from typing import Any
from uuid import uuid4

from blueprints import current_store
from blueprints.api import Blueprint
from schemas.confirmations import SetConfirmationPolicy, Success
from schemas.conversations import ConversationInfo, StartConversationRequest
from wire import ConversationId

conversations = Blueprint("Conversations", __name__, url_prefix="/api/conversations")


@conversations.post("")
@conversations.fails(413, 415)
@conversations.arguments(StartConversationRequest(), required=False)
@conversations.alt_response(200, schema=ConversationInfo, description="The id exists: that conversation")
@conversations.response(201, ConversationInfo)
def start_conversation(request: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """Start a conversation, once per id."""
    conversation_id = ConversationId(request.pop("conversation_id", None) or str(uuid4()))
    created = current_store.conversations.create(conversation_id, **request)
    return current_store.conversations.get(conversation_id), 201 if created else 200


@conversations.get("/<conversation_id:conversation_id>")
@conversations.fails(404)
@conversations.response(200, ConversationInfo)
def get_conversation(conversation_id: ConversationId) -> dict[str, Any]:
    """Get a conversation's state."""
    return current_store.conversations.get(conversation_id)


@conversations.delete("/<conversation_id:conversation_id>")
@conversations.fails(404)
@conversations.response(200, Success)
def delete_conversation(conversation_id: ConversationId) -> dict[str, bool]:
    """Delete a conversation and all its events."""
    current_store.conversations.delete(conversation_id)
    return {"success": True}


@conversations.post("/<conversation_id:conversation_id>/confirmation_policy")
@conversations.fails(404, 413, 415)
@conversations.arguments(SetConfirmationPolicy())
@conversations.response(200, Success)
def set_conversation_confirmation_policy(request: dict[str, Any], conversation_id: ConversationId) -> dict[str, bool]:
    """Set which actions wait for an answer from now on."""
    current_store.confirmations.set_policy(conversation_id, **request)
    return {"success": True}
