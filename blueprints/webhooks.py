"""What agents post back."""

from flask import request
from marshmallow import ValidationError

from blueprints import current_store
from blueprints.api import Blueprint, InvalidInput, json_body
from schemas.events import MOST_EVENTS, AppendResult, read_batch
from wire import ConversationId

webhooks = Blueprint("Webhooks", __name__, url_prefix="/api/v1/webhooks")


@webhooks.post("/events/<conversation_id:conversation_id>")
@webhooks.fails(413, 415)
@webhooks.doc(
    requestBody={
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
    }
)
@webhooks.response(200, AppendResult)
def append_events(conversation_id: ConversationId) -> dict[str, bool | int]:
    """Append a batch of events, all or nothing, each once per id; an unknown conversation is created."""
    raw = json_body(request)
    try:
        batch = read_batch(raw)
    except ValidationError as fault:
        raise InvalidInput("body", fault.normalized_messages()) from None
    appended, seq = current_store.events.append(conversation_id, batch)
    return {"success": True, "appended": appended, "seq": seq}
