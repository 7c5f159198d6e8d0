"""What waits for a person in one conversation."""

from marshmallow import fields

from schemas.approvals import WaitingAction
from schemas.destinations import AskedDestinationInfo
from schemas.fields import BaseSchema


class WaitingInConversation(BaseSchema):
    """Everything that waits for a person's decision in a conversation."""

    is_waiting = fields.Boolean(required=True, metadata={"description": "Whether there is anything below."})
    actions = fields.List(fields.Nested(WaitingAction), required=True)
    destinations = fields.List(
        fields.Nested(AskedDestinationInfo),
        required=True,
        metadata={"description": "What its sandbox asks to reach, and budgets of models that have refused it."},
    )
