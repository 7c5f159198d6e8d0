"""Answers to pending actions, and confirmation policies."""

from typing import Any

from marshmallow import fields, post_load

from schemas.fields import BaseSchema, Choice, StrictBoolean, Text


class ConfirmationResponse(BaseSchema):
    """Accepts or rejects what waits. Source: the interface description."""

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
            "description": "False when nothing was pending: the answer changed nothing.",
        },
    )


class PendingAction(BaseSchema):
    """An action that waits for an answer."""

    id = fields.String(required=True, metadata={"description": "Id of the ActionEvent."})
    tool_name = fields.Raw(metadata={"type": ["string", "null"]})
    tool_call_id = fields.Raw(metadata={"type": ["string", "null"]})
    summary = fields.Raw(metadata={"type": ["string", "null"]})
    security_risk = fields.Raw(metadata={"description": "`UNKNOWN`, `LOW`, `MEDIUM` or `HIGH`, as the agent said."})
    arguments = fields.Raw(metadata={"description": "What the tool would be called with."})
    since = fields.String(required=True, metadata={"format": "date-time", "description": "When it came in, UTC."})


class ConfirmationPolicy(BaseSchema):
    """Which actions wait for an answer. Source: the agent-server wire."""

    kind = Choice("NeverConfirm", "AlwaysConfirm", "ConfirmRisky", required=True)
    threshold = Choice("LOW", "MEDIUM", "HIGH", metadata={"description": "ConfirmRisky: this risk and above wait."})
    confirm_unknown = StrictBoolean(metadata={"description": "ConfirmRisky: an unknown risk waits too."})

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
