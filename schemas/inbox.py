"""The inbox: the pending actions of all conversations, their stream, and decisions of single ones.

Source: docs/approvals.md.
"""

import json
import re
from typing import Any, ClassVar

from marshmallow import RAISE, ValidationError, fields, post_load, validate, validates_schema

from core.masking import HIDDEN
from core.wire import MOST_CALL_BYTES, MOST_TAG, MOST_TAG_KEY
from schemas.approval_rules import Always
from schemas.cursors import FOREIGN_CURSOR, HEX_OF_TEXT, PageId
from schemas.events import SortOrder
from schemas.fields import BaseSchema, Choice, Digest, Id, Instant, Limit, Text, canonical_id, refusal

#: most characters of a filter
_LONGEST = 256

_NULLABLE = {"type": ["string", "null"]}


class TagFilter(Text):
    """A tag's name, or NAME=VALUE; loaded as both, the value None where there is none."""

    def __init__(self, **kwargs: Any) -> None:
        most = MOST_TAG_KEY + len("=") + MOST_TAG
        super().__init__(most=most, metadata={"pattern": "^[^=]", **kwargs.pop("metadata", {})}, **kwargs)

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> Any:
        name, separator, tag = super()._deserialize(value, *args, **kwargs).partition("=")
        if not name:
            raise refusal("Input should be the name of a tag, or NAME=VALUE", "value_error")
        return name, tag if separator else None


class PendingActionFilter(BaseSchema):
    """The filters of pending actions; all that are given must pass."""

    conversation_id = Id()
    tool = Text(data_key="tool_name", most=MOST_CALL_BYTES)
    risk = Choice("UNKNOWN", "LOW", "MEDIUM", "HIGH", data_key="security_risk")
    tag = TagFilter(metadata={"description": "A tag of the conversation: `NAME` or `NAME=VALUE`."})
    since = Instant(data_key="since__gte")
    until = Instant(data_key="since__lt")
    text = Text(
        most=_LONGEST,
        metadata={"description": "A part of tool, summary, thought, arguments or title, whatever its case."},
    )


class PendingActionSearch(PendingActionFilter):
    """The filters, an order and a page; the order is by when the actions began to wait."""

    descending = SortOrder(data_key="sort_order", load_default=False)
    limit = Limit(100)
    start = PageId(rf"since\.(asc|desc)\.[0-9]{{1,16}}-[0-9a-f]{{32}}-[0-9]{{1,15}}-{HEX_OF_TEXT}")

    @post_load
    def _read_cursor(self, search: dict[str, Any], **_: Any) -> dict[str, Any]:
        start = search["start"]
        return {**search, "start": None if start is None else _cursor(start, search["descending"])}


class WaitingAction(BaseSchema):
    """An action that waits for a decision, with what a person needs for it."""

    conversation_id = fields.String(required=True)
    conversation_title = fields.String(required=True, allow_none=True)
    action_id = fields.String(required=True, metadata={"description": "Id of the ActionEvent."})
    tool_name = fields.String(required=True)
    summary = fields.Raw(required=True, metadata=_NULLABLE)
    thought = fields.String(required=True, metadata={"description": "What the agent said about it."})
    security_risk = fields.String(required=True, metadata={"enum": ["UNKNOWN", "LOW", "MEDIUM", "HIGH"]})
    arguments = fields.Raw(required=True, metadata={"description": "The arguments that the tool would get."})
    since = fields.String(required=True, metadata={"format": "date-time"})
    expires_at = fields.String(
        required=True, allow_none=True, metadata={"description": "When it is rejected; null: it waits forever."}
    )
    digest = fields.String(
        required=True, metadata={"description": "Binds a decision to this tool and these arguments."}
    )
    sandbox_id = fields.String(required=True, allow_none=True)
    can = fields.List(
        fields.String(metadata={"enum": ["approve", "reject", "edit"]}),
        required=True,
        metadata={"description": "The decisions that the conversation's agent understands."},
    )
    decided_together = fields.Boolean(
        required=True,
        metadata={"description": "Whether all pending actions of the conversation must be decided at once and alike."},
    )


class WaitingActionPage(BaseSchema):
    items = fields.List(fields.Nested(WaitingAction), required=True)
    next_page_id = fields.String(required=True, allow_none=True)


def page_id(descending: bool, cursor: tuple[int, str, int] | None) -> str | None:
    """The cursor of a page as clients get it; None where no page follows."""
    if cursor is None:
        return None
    at, member, seq = cursor
    conversation_id, _, action_id = member.partition(" ")
    return f"{_prefix(descending)}{at}-{conversation_id.replace('-', '')}-{seq}-{action_id.encode().hex()}"


def _prefix(descending: bool) -> str:
    return f"since.{'desc' if descending else 'asc'}."


def _cursor(text: str, descending: bool) -> tuple[int, str, int]:
    """Raises ValidationError for the cursor of another order, and for what is not a cursor."""
    places = "([0-9]{1,16})-([0-9a-f]{32})-([0-9]{1,15})-((?:[0-9a-f]{2})*)"
    match = re.fullmatch(re.escape(_prefix(descending)) + places, text)
    try:
        if match is not None:
            return int(match[1]), f"{canonical_id(match[2])} {bytes.fromhex(match[4]).decode()}", int(match[3])
    except UnicodeDecodeError:
        pass
    raise ValidationError([FOREIGN_CURSOR], "page_id")


class ChangeId(fields.String):
    """The id of a change of the inbox, as the stream's events bear it."""

    pattern = "^[0-9]{1,20}-[0-9]{1,20}$"

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(metadata={"pattern": self.pattern, **kwargs.pop("metadata", {})}, **kwargs)

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> str:
        if not isinstance(value, str) or not re.fullmatch(self.pattern, value):
            raise refusal("Input should be the id of an event of this stream, such as 1764000000000-0", "value_error")
        return value


class InboxStreamQuery(PendingActionFilter):
    """Where a stream begins, and its filters; by `tag`, the end of an action is sent whatever its tags are then."""

    class Meta(PendingActionFilter.Meta):
        exclude = ("since", "until", "text")

    destinations = fields.Boolean(
        load_default=False,
        metadata={"description": "Send what sandboxes ask to reach too, as events whose names begin with destination."},
    )
    last_event_id = ChangeId(
        metadata={"description": "Send the changes after this one, as Last-Event-ID does; absent: a snapshot."}
    )


#: most bytes of JSON of edited arguments: an agent's event about them, which has at most 1 MiB, tells more than them
MOST_ARGUMENTS_BYTES = 512 * 1024

#: most decisions of one request: as many as may wait by default (MAX_PENDING_ACTIONS)
MOST_DECISIONS = 256


class PendingDecision(BaseSchema):
    """The decision of one action; that of an edit has the arguments, and makes no rule."""

    as_a_whole: ClassVar[dict[str, Any]] = {
        "oneOf": [
            {"properties": {"decision": {"enum": ["approve", "reject"]}, "arguments": {"not": {}}}},
            {
                "properties": {"decision": {"const": "edit"}, "always": {"enum": [False, None]}},
                "required": ["arguments"],
            },
        ]
    }

    class Meta:
        unknown = RAISE

    action_id = Text(required=True, metadata={"description": "Id of the pending ActionEvent."})
    decision = Choice("approve", "reject", "edit", required=True)
    reason = Text(metadata={"description": "At most MAX_REASON_BYTES bytes of UTF-8."})
    digest = Digest(
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
        if is_edit and HIDDEN in json.dumps(decision["arguments"]):
            raise ValidationError(
                f"{HIDDEN} stands for a secret that an edit does not have: name its variable.",
                "arguments",
            )
        if is_edit and len(json.dumps(decision["arguments"])) > MOST_ARGUMENTS_BYTES:
            raise ValidationError(f"Should have at most {MOST_ARGUMENTS_BYTES} bytes.", "arguments")
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
