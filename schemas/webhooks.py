"""The report of an agent server about a conversation. Source: the app-server wire."""

from marshmallow import fields

from schemas.conversations import Settings
from schemas.fields import BaseSchema, Id


class ConversationTold(BaseSchema):
    """The members of a ConversationInfo that are stored; the others follow from its events."""

    id = Id(required=True)
    parent_conversation_id = Id(allow_none=True)
    execution_status = fields.String()
    title = fields.String(allow_none=True)
    tags = fields.Dict(keys=fields.String(), values=fields.String(), allow_none=True)
    stats = fields.Dict(allow_none=True)
    agent = Settings()
