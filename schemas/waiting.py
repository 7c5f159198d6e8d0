"""Everything in a conversation that waits for a person."""

from marshmallow import fields

from schemas.approvals import WaitingAction
from schemas.destinations import AskedDestinationInfo
from schemas.fields import BaseSchema


class WaitingInConversation(BaseSchema):
    """Everything that waits for a person's decision in a conversation."""

    is_waiting = fields.Boolean(
        required=True, metadata={"description": "Whether `actions` or `destinations` has items."}
    )
    actions = fields.List(fields.Nested(WaitingAction), required=True)
    destinations = fields.List(
        fields.Nested(AskedDestinationInfo),
        required=True,
        metadata={
            "description": "Destinations that its sandbox asks for, and budgets of models that have refused its calls."
        },
    )
