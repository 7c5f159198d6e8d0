"""Decisions about pending actions, and confirmation policies."""

from typing import Any

from marshmallow import fields, post_load

from core.wire import MOST_CONFIRMATION_SECONDS
from schemas.fields import BaseSchema, Choice, StrictBoolean, StrictInteger, Text


class ConfirmationSeconds(StrictInteger):
    """Seconds after which a pending action of a conversation is rejected. Source: docs/approvals.md"""

    def __init__(self, null: str) -> None:
        words = f"Seconds after which an action that waits for a decision is rejected; 0: it waits forever. {null}"
        super().__init__(least=0, most=MOST_CONFIRMATION_SECONDS, allow_none=True, metadata={"description": words})


class ConfirmationResponse(BaseSchema):
    """A decision about the pending actions. Source: the interface description."""

    accept = StrictBoolean(required=True)
    reason = Text(
        load_default="User rejected the action.",
        metadata={"description": "At most MAX_REASON_BYTES bytes of UTF-8: each rejected action's observation has it."},
    )


class ConfirmationResult(BaseSchema):
    success = fields.Boolean(
        dump_default=True,
        metadata={
            "default": True,
            "description": "False when nothing was pending: the decision changed nothing.",
        },
    )


class PendingAction(BaseSchema):
    """An action that waits for a decision."""

    id = fields.String(required=True, metadata={"description": "Id of the ActionEvent."})
    tool_name = fields.Raw(metadata={"type": ["string", "null"]})
    tool_call_id = fields.Raw(metadata={"type": ["string", "null"]})
    summary = fields.Raw(metadata={"type": ["string", "null"]})
    security_risk = fields.Raw(
        metadata={"description": "`UNKNOWN`, `LOW`, `MEDIUM` or `HIGH`, by the agent's judgement."}
    )
    arguments = fields.Raw(metadata={"description": "The arguments that the tool would get."})
    since = fields.String(
        required=True, metadata={"format": "date-time", "description": "When the action was appended, UTC."}
    )


class ConfirmationPolicy(BaseSchema):
    """Which actions wait for a decision. Source: the agent-server wire."""

    kind = Choice("NeverConfirm", "AlwaysConfirm", "ConfirmRisky", required=True)
    threshold = Choice(
        "LOW", "MEDIUM", "HIGH", metadata={"description": "ConfirmRisky: actions of this risk and of higher ones wait."}
    )
    confirm_unknown = StrictBoolean(metadata={"description": "ConfirmRisky: actions of an unknown risk wait too."})

    @post_load
    def _whole(self, policy: dict[str, Any], **_: Any) -> dict[str, Any]:
        """The policy with the defaults of its kind and nothing else, so that equal policies are equal text."""
        if policy["kind"] != "ConfirmRisky":
            return {"kind": policy["kind"]}
        return {
            "kind": "ConfirmRisky",
            "threshold": policy.get("threshold", "HIGH"),
            "confirm_unknown": policy.get("confirm_unknown", True),
        }


class SetConfirmationPolicy(BaseSchema):
    policy = fields.Nested(ConfirmationPolicy, required=True)


class Success(BaseSchema):
    success = fields.Boolean(required=True)
