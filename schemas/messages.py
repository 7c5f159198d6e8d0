"""Messages: a search in those of all conversations, and those that wait until their conversation can receive them.

Source: docs/wire.md, 8; the app-server wire.
"""

import re
from typing import Any
from uuid import UUID

from marshmallow import ValidationError, fields, validate

from schemas.events import ContentPart, Event, SentMessage
from schemas.fields import FOREIGN_CURSOR, BaseSchema, Instant, Limit, PageId, Text, canonical_id, refusal

#: most characters of the text that is searched for
_LONGEST = 500

#: the cursor of a page: creation of a conversation in µs, its id, chunk of its text, seq
Cursor = tuple[int, str, int, int]

_CURSOR = re.compile("messages[.]([0-9]{1,16})-([0-9a-f]{32})-([0-9]{1,9})-([0-9]{1,10})")


class MessageCursor(PageId):
    """A `next_page_id` of this search, loaded as a Cursor."""

    def __init__(self) -> None:
        super().__init__(_CURSOR.pattern)

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> Any:
        match = _CURSOR.fullmatch(super()._deserialize(value, *args, **kwargs))
        if match is None or not match[0].isascii():
            raise ValidationError([FOREIGN_CURSOR])
        return int(match[1]), canonical_id(match[2]), int(match[3]), int(match[4])


class MessageQuery(BaseSchema):
    """What a message must have, and a page. Source: docs/wire.md, 8."""

    text = Text(
        required=True,
        least=1,
        most=_LONGEST,
        metadata={"description": "A part of the message, whatever its case: `body` of the search for events."},
    )
    source = fields.String(metadata={"description": "Optional filter by event source: agent, user, environment."})
    since = Instant(
        data_key="timestamp__gte", metadata={"description": "Keep messages with timestamp >= this; naive is UTC."}
    )
    until = Instant(
        data_key="timestamp__lt", metadata={"description": "Keep messages with timestamp < this; naive is UTC."}
    )
    limit = Limit(100)
    start = MessageCursor()


class FoundMessage(BaseSchema):
    conversation_id = fields.String(required=True)
    title = fields.String(required=True, allow_none=True, metadata={"description": "That of the conversation."})
    event = fields.Nested(Event, required=True, metadata={"description": "A MessageEvent."})


class FoundMessagePage(BaseSchema):
    items = fields.List(fields.Nested(FoundMessage), required=True)
    next_page_id = fields.String(
        required=True,
        allow_none=True,
        metadata={"description": "Null after the last page; a page before it may be short, or empty."},
    )


def page_id(cursor: Cursor | None) -> str | None:
    """The cursor of a page as clients get it; None where no page follows."""
    if cursor is None:
        return None
    at, conversation_id, chunk, seq = cursor
    return f"messages.{at}-{conversation_id.replace('-', '')}-{chunk}-{seq}"


#: what the id of a start task begins with where a conversation's id may stand
_OF_START = "task-"


class PendingMessage(SentMessage):
    """A message for an agent that may still start; the agent runs once it has it."""

    content = fields.List(ContentPart(), required=True, validate=validate.Length(min=1))

    class Meta(SentMessage.Meta):
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
