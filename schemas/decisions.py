"""Decisions of single pending actions. Source: docs/approvals.md."""

from typing import Any

from marshmallow import RAISE, ValidationError, fields, post_load, validate, validates_schema

from schemas.approval_rules import Always
from schemas.fields import BaseSchema, Choice, Text

#: most decisions of one request: as many as may wait by default (MAX_PENDING_ACTIONS)
MOST_DECISIONS = 256


class PendingDecision(BaseSchema):
    """The decision of one action."""

    class Meta:
        unknown = RAISE

    action_id = Text(required=True, metadata={"description": "Id of the pending ActionEvent."})
    decision = Choice("approve", "reject", "edit", required=True)
    reason = Text(metadata={"description": "At most MAX_REASON_BYTES bytes of UTF-8."})
    digest = Text(
        validate=validate.Regexp(r"[0-9a-f]{64}\Z", error="Must be 64 hexadecimal digits."),
        metadata={
            "description": "The action's digest as it was shown: the decision is refused if the action is another one."
        },
    )
    arguments = fields.Raw(metadata={"type": "object", "description": "Of an edit, in the place of the action's."})

    always = Always()

    @validates_schema
    def _check_arguments(self, decision: dict[str, Any], **_: Any) -> None:
        is_edit = decision.get("decision") == "edit"
        if is_edit and not isinstance(decision.get("arguments"), dict):
            raise ValidationError("Must be an object where the decision is edit.", "arguments")
        if is_edit and decision.get("always") is not None:
            raise ValidationError("May be given only where the decision is approve or reject.", "always")
        if not is_edit and "arguments" in decision:
            raise ValidationError("May be given only where the decision is edit.", "arguments")

    @post_load
    def _named(self, decision: dict[str, Any], **_: Any) -> dict[str, Any]:
        return {"verb": decision.pop("decision"), **decision}


class DecisionsRequest(BaseSchema):
    class Meta:
        unknown = RAISE

    decisions = fields.List(fields.Nested(PendingDecision), required=True, validate=validate.Length(1, MOST_DECISIONS))

    @validates_schema
    def _check_ids(self, given: dict[str, Any], **_: Any) -> None:
        ids = [one["action_id"] for one in given.get("decisions", ())]
        if len(set(ids)) < len(ids):
            raise ValidationError("Each action may be decided once.", "decisions")


class RuleOfDecision(BaseSchema):
    """The rule that a decision with `always` has made."""

    action_id = fields.String(required=True)
    rule_id = fields.String(required=True, allow_none=True)
    detail = fields.String(
        required=True,
        allow_none=True,
        metadata={"description": "Why no rule was made; the decision holds."},
    )


class DecisionsResult(BaseSchema):
    """All decisions were taken."""

    success = fields.Boolean(required=True)
    rules = fields.List(fields.Nested(RuleOfDecision), required=True)


class DecidedAction(BaseSchema):
    """An action that was approved and is not observed yet."""

    action_id = fields.String(required=True)
    decision = fields.String(required=True, metadata={"enum": ["approve", "edit"]})
    arguments = fields.Raw(metadata={"description": "Edited ones, which take the place of the action's."})
