"""Messages that wait until their conversation can receive them. Source: the app-server wire."""

from uuid import UUID

from marshmallow import ValidationError, fields, validate

from schemas.events import ContentPart, SendMessageRequest
from schemas.fields import BaseSchema, canonical_id, refusal

#: what the id of a start task begins with where a conversation's id may stand
_OF_START = "task-"


class PendingMessage(SendMessageRequest):
    """A message for an agent that may still start; the agent runs once it has it."""

    content = fields.List(ContentPart(), required=True, validate=validate.Length(min=1))

    class Meta(SendMessageRequest.Meta):
        exclude = ("run",)


class QueuedPendingMessage(BaseSchema):
    """A message that waits for its conversation."""

    id = fields.UUID(required=True)
    queued = fields.Boolean(required=True)
    position = fields.Integer(required=True, metadata={"description": "In the queue, from 1."})


def read_receiver(text: str) -> tuple[str | None, str | None]:
    """The conversation's id, or the id of its start task where the text is `task-ID`. Raises ValidationError."""
    try:
        identity = canonical_id(text.removeprefix(_OF_START))
    except ValidationError:
        raise refusal(
            "Input should be a conversation's UUID, or task- and the UUID of a start task", "uuid_parsing"
        ) from None
    return (None, UUID(identity).hex) if text.startswith(_OF_START) else (identity, None)
