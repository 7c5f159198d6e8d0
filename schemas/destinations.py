"""Destinations that sandboxes ask for and reach, and the rules about them. Source: docs/approvals.md, "Asking"."""

import re
from typing import Any, ClassVar

from marshmallow import RAISE, ValidationError, fields, validates_schema

from core.egress import MOST_NAME, is_destination_name
from core.prices import BUDGET_SETTINGS
from schemas.fields import (
    FOREIGN_CURSOR,
    BaseSchema,
    Choice,
    Digest,
    FieldFault,
    PageId,
    PageLimit,
    ShownTime,
    StrictInteger,
    Text,
    refusal,
)

#: Pattern of a name, and the prefix that a rule's name may have.
NAME = r"([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)+[a-z]([a-z0-9-]{0,61}[a-z0-9])?"
WILDCARD = r"(\*\.)?"

#: Maximum number of characters of a sandbox's id, and of a reason.
_MOST_ID, _MOST_REASON = 128, 1000


#: Hexadecimal digits of the characters of an id and of a name: letters, digits and `_ . -`.
_HEX = "(2[de]|3[0-9]|4[1-9a-f]|5[0-9af]|6[1-9a-f]|7[0-9a])+"


class DestinationName(Text):
    """A lower-case DNS name. In a rule also `*.` and a suffix of at least two labels."""

    def __init__(self, *, of_rule: bool = False, required: bool = True) -> None:
        pattern = f"^{WILDCARD if of_rule else ''}{NAME}$"
        super().__init__(required=required, most=MOST_NAME, metadata={"pattern": pattern})
        self._of_rule = of_rule
        self._also = ", or `*.` and a name of two labels or more" if of_rule else ""

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> str:
        name: str = super()._deserialize(value, *args, **kwargs)
        if not is_destination_name(name.removeprefix("*.") if self._of_rule else name):
            raise refusal(
                f"Input should be a lower-case DNS name, such as pypi.org{self._also}; never an address", "value_error"
            )
        return name


class _PageStart(PageId):
    """The cursor of a page: since when its first destination waits, in µs, and "SANDBOX NAME:PORT"."""

    def __init__(self) -> None:
        super().__init__(f"[0-9]{{1,16}}-{_HEX}20{_HEX}3a(3[0-9]){{1,5}}")

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> Any:
        match = re.fullmatch("([0-9]{1,16})-((?:[0-9a-f]{2})+)", value) if isinstance(value, str) else None
        try:
            if match and re.fullmatch(r"[\w.-]+ [\w.-]+:[0-9]{1,5}", member := bytes.fromhex(match[2]).decode("ascii")):
                return int(match[1]), member
        except UnicodeDecodeError:
            pass
        raise ValidationError([FOREIGN_CURSOR])


def page_id(cursor: tuple[int, str] | None) -> str | None:
    """Return the cursor of a page for clients; None on the last page."""
    return None if cursor is None else f"{cursor[0]}-{cursor[1].encode().hex()}"


class DestinationSearch(BaseSchema):
    sandbox_id = Text(most=_MOST_ID, load_default="")
    limit = PageLimit(100)
    start = _PageStart()


class AskedBudgetInfo(BaseSchema):
    """A spent budget of models, and the amount that an approval adds to it, which equals the budget."""

    setting = fields.String(required=True, metadata={"enum": list(BUDGET_SETTINGS)})
    key_id = fields.String(
        required=True,
        allow_none=True,
        metadata={"description": "Owner of the budget; empty: no key; null: not a budget of keys."},
    )
    day = fields.String(
        required=True,
        allow_none=True,
        metadata={
            "format": "date",
            "description": "Day in UTC, after which the budget is restored; null: budget of a conversation.",
        },
    )
    dollars = fields.Float(required=True, allow_none=True)
    tokens = fields.Integer(required=True, allow_none=True)


class AskedDestinationInfo(BaseSchema):
    """A destination, or a budget, that waits for a person's decision."""

    subject = fields.String(required=True, metadata={"enum": ["destination", "budget"]})
    sandbox_id = fields.String(
        required=True, metadata={"description": "For a budget: the sandbox whose call was refused first."}
    )
    conversation_id = fields.String(
        required=True, allow_none=True, metadata={"description": "Null if the sandbox has no or several conversations."}
    )
    name = fields.String(required=True, allow_none=True, metadata={"description": "Null, like the port, for a budget."})
    port = fields.Integer(required=True, allow_none=True)
    program = fields.String(required=True, allow_none=True)
    tries = fields.Integer(required=True, metadata={"description": "Number of attempts of the sandbox."})
    since = ShownTime()
    tried_at = ShownTime()
    expires_at = ShownTime(optional=True)
    digest = fields.String(required=True, metadata={"description": "Binds a decision to what was shown."})
    budget = fields.Nested(
        AskedBudgetInfo, required=True, allow_none=True, metadata={"description": "Null for a destination."}
    )


class AskedDestinationPage(BaseSchema):
    items = fields.List(fields.Nested(AskedDestinationInfo), required=True)
    next_page_id = fields.String(required=True, allow_none=True)


class DestinationDecision(BaseSchema):
    as_a_whole: ClassVar[dict[str, Any]] = {
        "oneOf": [
            {"required": ["name", "port"], "properties": {"budget": {"not": {}}}},
            {
                "required": ["budget"],
                "properties": {"name": {"not": {}}, "port": {"not": {}}},
                "oneOf": [
                    {"properties": {"decision": {"const": "approve"}, "scope": {"const": "once"}}},
                    {"properties": {"decision": {"const": "reject"}, "scope": {"const": "conversation"}}},
                ],
            },
        ]
    }

    class Meta:
        unknown = RAISE

    sandbox_id = Text(required=True, least=1, most=_MOST_ID)
    name = DestinationName(required=False)
    port = StrictInteger(least=1, most=65535)
    budget = Choice(*BUDGET_SETTINGS, metadata={"description": "Instead of name and port: the setting of the budget."})
    decision = Choice("approve", "reject", required=True)
    scope = Choice(
        "once",
        "conversation",
        "always",
        required=True,
        metadata={
            "description": "For the next connection, for the lifetime of the sandbox, or for all sandboxes by a "
            "rule. For a budget: `once` approves the same amount again, and `conversation` rejects "
            "until the budget is restored."
        },
    )
    reason = Text(
        load_default="",
        most=_MOST_REASON,
        metadata={"description": "Recorded in the audit; the sandbox does not get it."},
    )
    digest = Digest(required=True)

    @validates_schema
    def _one_subject(self, given: dict[str, Any], **_: Any) -> None:
        lacking = [name for name in ("name", "port") if name not in given]
        if "budget" in given and len(lacking) < 2:
            fault = FieldFault("Give name and port, of a destination, or budget: not both", "value_error")
            raise ValidationError([fault], field_name="budget")
        if "budget" not in given and lacking:
            fault = FieldFault("Field required: name and port of a destination, or in their place budget", "missing")
            raise ValidationError([fault], field_name=lacking[0])


class DestinationDecided(BaseSchema):
    success = fields.Boolean(required=True)
    rule_id = fields.String(
        required=True, allow_none=True, metadata={"description": "Id of the rule that `always` made."}
    )


class DestinationRuleRequest(BaseSchema):
    class Meta:
        unknown = RAISE

    name = DestinationName(of_rule=True)
    port = StrictInteger(least=1, most=65535, load_default=443)
    decision = Choice("approve", "reject", required=True)


class DestinationRuleInfo(BaseSchema):
    id = fields.String(required=True)
    name = fields.String(required=True)
    port = fields.Integer(required=True)
    decision = fields.String(required=True, metadata={"enum": ["approve", "reject"]})
    created_by = fields.String(required=True, metadata={"description": "Name of the key that made the rule."})
    created_at = ShownTime()
    uses = fields.Integer(required=True, metadata={"description": "Connections that the rule has decided."})


class ReachedDestinationInfo(BaseSchema):
    """A sandbox's connections to a destination.

    name and port are null for all destinations beyond the counted maximum.
    """

    name = fields.String(required=True, allow_none=True)
    port = fields.Integer(required=True, allow_none=True)
    allowed = fields.Integer(required=True)
    refused = fields.Integer(required=True)
    sent = fields.Integer(required=True, metadata={"description": "In bytes."})
    received = fields.Integer(required=True, metadata={"description": "In bytes."})
    first_at = ShownTime()
    last_at = ShownTime()
