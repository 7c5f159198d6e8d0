"""What agents post: events, and the state of conversations.

An agent in a sandbox shows the sandbox's hook key, which is checked before the body is read. The agent of a detached
conversation needs no key yet.
"""

from typing import Any

from flask import g, request
from marshmallow import ValidationError
from werkzeug.exceptions import Unauthorized

from blueprints import current_store
from blueprints.api import Blueprint, InvalidInput, json_body
from schemas.confirmations import Success
from schemas.events import MOST_EVENTS, AppendResult, read_batch
from schemas.webhooks import ConversationTold
from wire import ConversationId

webhooks = Blueprint("Webhooks", __name__, url_prefix="/api/v1/webhooks")

_BATCH = {
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


@webhooks.before_request
def check_key() -> None:
    """Find the sandbox that sends the request: `g.sandbox_id`, None for no key. Raises Unauthorized.

    The key is a bearer token. X-Session-API-Key is passed over: the published agent server writes its own key there,
    which clients have too. Only events may come without a key, and not under the path of a sandbox.
    """
    key, named = request.headers.get("Authorization"), (request.view_args or {}).get("sandbox_id")
    g.sandbox_id = None if key is None else current_store.sandboxes.of_hook_key(key.removeprefix("Bearer "))
    shows_its_own = g.sandbox_id is not None and named in (None, g.sandbox_id)
    may_show_none = key is None and named is None and "conversation_id" in (request.view_args or {})
    if not shows_its_own and not may_show_none:
        raise Unauthorized("Authorization must be `Bearer` and the hook key of the sandbox")


@webhooks.post("/events/<conversation_id:conversation_id>")
@webhooks.fails(401, 404, 409, 413, 415)
@webhooks.doc(**_BATCH)
@webhooks.response(200, AppendResult)
def append_events(conversation_id: ConversationId) -> dict[str, bool | int]:
    """Append a batch of events, all or nothing, each once per id; an unknown conversation is created."""
    return _append(conversation_id)


@webhooks.post("/<sandbox_id>/events/<conversation_id:conversation_id>")
@webhooks.fails(401, 404, 409, 413, 415)
@webhooks.doc(**_BATCH)
@webhooks.response(200, AppendResult)
def append_events_of_sandbox(sandbox_id: str, conversation_id: ConversationId) -> dict[str, bool | int]:  # noqa: ARG001
    """Append a batch of events under the sandbox's own path."""
    return _append(conversation_id)


@webhooks.post("/conversations")
@webhooks.fails(401, 404, 413, 415)
@webhooks.arguments(ConversationTold())
@webhooks.response(200, Success)
def tell_conversation(told: dict[str, Any]) -> dict[str, bool]:
    """Report what an agent server knows of a conversation: its costs, its tags, its model."""
    return _tell(told)


@webhooks.post("/<sandbox_id>/conversations")
@webhooks.fails(401, 404, 413, 415)
@webhooks.arguments(ConversationTold())
@webhooks.response(200, Success)
def tell_conversation_of_sandbox(told: dict[str, Any], sandbox_id: str) -> dict[str, bool]:  # noqa: ARG001
    """Report what an agent server knows of a conversation, under the sandbox's own path."""
    return _tell(told)


def _append(conversation_id: ConversationId) -> dict[str, bool | int]:
    raw = json_body(request)
    try:
        batch = read_batch(raw)
    except ValidationError as fault:
        raise InvalidInput("body", fault.normalized_messages()) from None
    appended, seq = current_store.events.append(conversation_id, batch, sandbox_id=g.sandbox_id)
    return {"success": True, "appended": appended, "seq": seq}


def _tell(told: dict[str, Any]) -> dict[str, bool]:
    current_store.app_conversations.report(g.sandbox_id, ConversationId(told.pop("id")), told)
    return {"success": True}
