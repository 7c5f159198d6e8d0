"""What agents post back. One in a sandbox shows its session key; a detached conversation's needs none yet."""

from typing import Any

from flask import request
from marshmallow import ValidationError
from werkzeug.exceptions import Unauthorized

from blueprints import current_store
from blueprints.api import Blueprint, InvalidInput, json_body
from schemas.confirmations import Success
from schemas.events import MOST_EVENTS, AppendResult, read_batch
from schemas.webhooks import ConversationTold
from store.sandboxes import SandboxId
from wire import ConversationId

webhooks = Blueprint("Webhooks", __name__, url_prefix="/api/v1/webhooks")

_KEY = {
    "in": "header",
    "name": "X-Session-API-Key",
    "schema": {"type": "string"},
    "description": "Of the sandbox that sends this.",
}
_BATCH = {
    "parameters": [_KEY],
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": MOST_EVENTS,
                    "items": {"$ref": "#/components/schemas/Event"},
                }
            }
        },
    },
}


@webhooks.post("/events/<conversation_id:conversation_id>")
@webhooks.fails(401, 404, 413, 415)
@webhooks.doc(**_BATCH)
@webhooks.response(200, AppendResult)
def append_events(conversation_id: ConversationId) -> dict[str, bool | int]:
    """Append a batch of events, all or nothing, each once per id; an unknown conversation is created."""
    return _append(conversation_id)


@webhooks.post("/<sandbox_id>/events/<conversation_id:conversation_id>")
@webhooks.fails(401, 404, 413, 415)
@webhooks.doc(**_BATCH)
@webhooks.response(200, AppendResult)
def append_events_of_sandbox(sandbox_id: str, conversation_id: ConversationId) -> dict[str, bool | int]:
    """Append a batch of events under the sandbox's own path."""
    return _append(conversation_id, sandbox_id)


@webhooks.post("/conversations")
@webhooks.fails(401, 413, 415)
@webhooks.doc(parameters=[_KEY])
@webhooks.arguments(ConversationTold())
@webhooks.response(200, Success)
def tell_conversation(told: dict[str, Any]) -> dict[str, bool]:
    """Tell what an agent server knows of a conversation: its costs, its tags, its model."""
    return _tell(_sender(), told)


@webhooks.post("/<sandbox_id>/conversations")
@webhooks.fails(401, 413, 415)
@webhooks.doc(parameters=[_KEY])
@webhooks.arguments(ConversationTold())
@webhooks.response(200, Success)
def tell_conversation_of_sandbox(told: dict[str, Any], sandbox_id: str) -> dict[str, bool]:
    """Tell what an agent server knows of a conversation, under the sandbox's own path."""
    return _tell(_sender(sandbox_id), told)


def _sender(named: str | None = None) -> SandboxId | None:
    """The sandbox that a request comes from; None if it shows no key. Raises Unauthorized."""
    key = request.headers.get("X-Session-API-Key")
    if key is None and named is None:
        return None
    sandbox_id = current_store.sandboxes.of_key(key or "")
    if sandbox_id is None or named not in (None, sandbox_id):
        raise Unauthorized("X-Session-API-Key must be that of the sandbox")
    current_store.sandboxes.touch(sandbox_id)
    return sandbox_id


def _append(conversation_id: ConversationId, named: str | None = None) -> dict[str, bool | int]:
    raw = json_body(request)
    try:
        batch = read_batch(raw)
    except ValidationError as fault:
        raise InvalidInput("body", fault.normalized_messages()) from None
    appended, seq = current_store.events.append(conversation_id, batch, sandbox_id=_sender(named))
    return {"success": True, "appended": appended, "seq": seq}


def _tell(sandbox_id: SandboxId | None, told: dict[str, Any]) -> dict[str, bool]:
    if sandbox_id is None:
        raise Unauthorized("X-Session-API-Key must be that of the sandbox")
    current_store.app_conversations.report(sandbox_id, ConversationId(told.pop("id")), told)
    return {"success": True}
