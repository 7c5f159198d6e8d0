"""Approval rules: one to make, one as it is listed, and "always" beside a decision. Source: docs/approvals.md."""

from typing import Any

from marshmallow import RAISE, fields, post_load, validate

from core.approvals import MOST_MATCHED, MOST_STARS, RISKS, pattern_fault
from core.wire import MOST_CALL_BYTES, MOST_NAME, MOST_TAG, utc_time
from schemas.fields import BaseSchema, Choice, Id, Instant, StrictInteger, Text, checked_text, refusal

#: most arguments, conversations and tags that a rule names; most characters of its reason; most that max_uses may be
MOST_ARGUMENTS, MOST_CONVERSATIONS, MOST_TAGS, MOST_REASON, MOST_USES = 100, 100, 20, 200, 10**9

#: what `core.approvals.pattern_fault` leaves: at most so many `*`, and none after what the shell reads otherwise
_FEW_STARS = f"^[^*]*([*][^*]*){{0,{MOST_STARS}}}$"
_NO_TURN = r"^([^$\\!`]|[$\\!`]+[^*$\\!`])*[$\\!`]*$"

_TEST = {
    "oneOf": [
        {"type": "object", "required": [name], "properties": {name: schema}, "additionalProperties": False}
        for name, schema in (
            ("equals", {"description": "Any JSON; numbers are equal by value, and 1 is not true."}),
            (
                "pattern",
                {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": MOST_MATCHED,
                    "allOf": [{"pattern": _FEW_STARS}, {"pattern": _NO_TURN}],
                    "description": "Text as a whole. `*` stands for a run of ASCII letters, digits, spaces and "
                    "`_ . / : , @ + - =`; never for a shell metacharacter.",
                },
            ),
            ("any", {"const": True, "description": "Whatever it is, also absent."}),
        )
    ]
}


class ArgumentTest(fields.Field[dict[str, Any]]):
    """How one argument is compared: {"equals": JSON}, {"pattern": text} or {"any": true}."""

    def __init__(self) -> None:
        super().__init__(metadata=_TEST)

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        match value:
            case {"equals": _} | {"any": True} if len(value) == 1:
                return dict(value)
            case {"pattern": str(pattern)} if len(value) == 1:
                checked_text(pattern, least=1, most=MOST_MATCHED)
                if fault := pattern_fault(pattern):
                    raise refusal(fault, "value_error")
                return {"pattern": pattern}
        raise refusal('Input should be one of {"equals": JSON}, {"pattern": text}, {"any": true}', "value_error")


class NamedTags(fields.Dict):
    """Tags that a conversation must have: name → value, null for any value."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(
            keys=fields.String(validate=_check_tag),
            values=Text(most=MOST_TAG, allow_none=True),
            validate=validate.Length(min=1, max=MOST_TAGS),
            metadata={"minProperties": 1, "maxProperties": MOST_TAGS, "propertyNames": {"pattern": "^[a-z0-9]+$"}},
            **kwargs,
        )


def _check_tag(name: str) -> None:
    if not (name.isascii() and name.isalnum() and name == name.lower()):
        raise refusal("A tag's name should have only a-z and 0-9", "string_pattern_mismatch")


class RuleMembers(BaseSchema):
    """What a rule may name; null is as good as absent, for all but the reason."""

    class Meta:
        unknown = RAISE

    arguments = fields.Dict(
        keys=Text(most=MOST_NAME),
        values=ArgumentTest(),
        allow_none=True,
        validate=validate.Length(max=MOST_ARGUMENTS),
        metadata={
            "maxProperties": MOST_ARGUMENTS,
            "propertyNames": {"maxLength": MOST_NAME},
            "description": "Absent: any arguments. Otherwise arguments that are not named must be null, false, 0 or "
            "empty.",
        },
    )
    max_risk = Choice(
        *RISKS,
        allow_none=True,
        metadata={"description": "The highest risk. Absent: any; otherwise none that is unknown."},
    )
    conversation_ids = fields.List(
        Id(),
        allow_none=True,
        validate=validate.Length(min=1, max=MOST_CONVERSATIONS),
        metadata={"description": "Absent: all conversations."},
    )
    tags = NamedTags(allow_none=True)
    expires_at = Instant(allow_none=True, metadata={"type": "string"})
    max_uses = StrictInteger(
        least=1,
        allow_none=True,
        validate=validate.Range(max=MOST_USES, error=f"Input should be less than or equal to {MOST_USES}"),
    )
    reason = Text(most=MOST_REASON)

    @post_load
    def _ids(self, members: dict[str, Any], **_: Any) -> dict[str, Any]:
        if members.get("conversation_ids") is not None:
            members["conversation_ids"] = tuple(dict.fromkeys(members["conversation_ids"]))
        return members


class ApprovalRuleRequest(RuleMembers):
    """A rule to make."""

    decision = Choice("approve", "reject", required=True)
    tool_name = Text(required=True, least=1, most=MOST_CALL_BYTES, metadata={"description": "As the agent names it."})


class Always(fields.Field[Any]):
    """Member `always` of a decision: `true`, or the members of the rule that differ from its defaults.

    Loaded as True, or as a dict for `core.approvals.rule_of`; false counts as absent: None.
    """

    def __init__(self, **kwargs: Any) -> None:
        description = (
            "Make a rule of this decision: `true`, or members of a rule. Unless these say otherwise, it matches the "
            "same arguments in this conversation, and approves no higher risk where the risk is known."
        )
        members = {"$ref": "#/components/schemas/RuleMembers"}
        metadata = {"anyOf": [{"type": "boolean"}, members, {"type": "null"}], "description": description}
        super().__init__(metadata=metadata, allow_none=True, load_default=None, **kwargs)

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> Any:
        if value is True or value is False:
            return value or None
        if isinstance(value, dict):
            return RuleMembers().load(value)
        raise refusal("Input should be true or an object with members of an approval rule", "value_error")


def _instant(name: str, what: str) -> fields.Function:
    def shown(used: Any) -> str | None:
        at = used.last_used_at if name == "last_used_at" else getattr(used.rule, name)
        return None if at is None else utc_time(at)

    return fields.Function(shown, metadata={"type": ["string", "null"], "format": "date-time", "description": what})


_NULLABLE_OBJECT = {"type": ["object", "null"]}


class ApprovalRule(BaseSchema):
    """A rule as it is listed."""

    id = fields.String(attribute="rule.id", required=True)
    decision = fields.String(attribute="rule.decision", required=True, metadata={"enum": ["approve", "reject"]})
    tool_name = fields.String(attribute="rule.tool_name", required=True)
    arguments = fields.Raw(attribute="rule.arguments", metadata=_NULLABLE_OBJECT)
    max_risk = fields.String(attribute="rule.max_risk", metadata={"type": ["string", "null"]})
    conversation_ids = fields.Raw(
        attribute="rule.conversation_ids", metadata={"type": ["array", "null"], "items": {"type": "string"}}
    )
    tags = fields.Raw(attribute="rule.tags", metadata=_NULLABLE_OBJECT)
    expires_at = _instant("expires_at", "From then on it decides nothing; null: never.")
    max_uses = fields.Integer(attribute="rule.max_uses", metadata={"type": ["integer", "null"]})
    reason = fields.String(attribute="rule.reason", required=True)
    created_at = fields.Function(
        lambda used: utc_time(used.rule.created_at), metadata={"type": "string", "format": "date-time"}
    )
    created_by = fields.String(
        attribute="rule.created_by", required=True, metadata={"description": "Name of the key that made it."}
    )
    uses = fields.Integer(required=True, metadata={"description": "Actions that it has decided."})
    last_used_at = _instant("last_used_at", "Null: not used yet.")
