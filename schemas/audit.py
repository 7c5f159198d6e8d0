"""The audit: pages of entries, of a conversation and of all conversations, and their cursors.

Source: docs/approvals.md.
"""

import re
from typing import Any

from marshmallow import ValidationError, fields, post_load, validates_schema

from core.wire import MOST_CALL_BYTES
from schemas.fields import (
    FOREIGN_CURSOR,
    BaseSchema,
    Choice,
    FieldFault,
    Id,
    Instant,
    PageId,
    PageLimit,
    SortOrder,
    Text,
    refusal,
)

#: Kinds of actors, and decisions, of an entry. `store/approvals/audit.py` describes them.
ACTOR_KINDS = (
    *("key", "link", "message", "run", "rule", "expiry", "agent", "sandbox", "deletion", "server", "person"),
    *("terminal", "lease"),
)
DECISIONS = (
    *("approve", "reject", "edit", "deleted", "unapproved"),
    *("asked", "refused"),  # only destinations
    *("rule_made", "rule_revoked"),  # destinations and conversations
    *("terminal_opened", "terminal_closed", "preview_opened", "push_begun"),
    "joined",  # only sandboxes
    *("agree", "owner_changed", "mode_changed"),
    "withdrawn",  # requests of agents in terminals
)

#: Pattern of a daily chain of destinations.
_CHAIN = "destinations-[0-9]{4}-[0-9]{2}-[0-9]{2}"

#: Maximum number of characters of an actor's name, and of a searched text.
_MOST_NAME, _MOST_TEXT = 256, 256


#: Pattern of the seq of an entry.
_SEQ = "[1-9][0-9]{0,9}"


class SeqCursor(PageId):
    """The cursor of a conversation's audit: the seq before its page; 0 for the first page."""

    def __init__(self) -> None:
        super().__init__(_SEQ, first=0)

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> Any:
        if not re.fullmatch(_SEQ, value):
            raise refusal("Unknown cursor: page_id must be a next_page_id of this audit", "value_error")
        return int(value)


class PlaceCursor(PageId):
    """The cursor of the audit of all conversations: whether its order descends, and a time in µs, a chain and a seq."""

    _read = re.compile(
        f"(asc|desc)[.]([0-9]{{1,16}})-([0-9a-f]{{8}}(?:-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}|{_CHAIN})-({_SEQ})"
    )

    def __init__(self) -> None:
        super().__init__(self._read.pattern)

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> Any:
        match = self._read.fullmatch(value)
        if match is None:
            raise ValidationError([FOREIGN_CURSOR])
        return match[1] == "desc", (int(match[2]), match[3], int(match[4]))


class _AuditPages(BaseSchema):
    """A page, or a stream of all entries."""

    limit = PageLimit(100)
    format = Choice(
        "json",
        "jsonl",
        load_default="json",
        metadata={"default": "json", "description": "`jsonl`: every entry after `page_id`, one per line."},
    )

    @validates_schema(pass_original=True)
    def _one_form(self, search: dict[str, Any], original: dict[str, Any], **_: Any) -> None:
        if search.get("format") == "jsonl" and "limit" in original:
            fault = FieldFault("limit needs the format json: jsonl contains every entry", "value_error")
            raise ValidationError([fault], field_name="limit")


class ConversationAuditSearch(_AuditPages):
    after = SeqCursor()


class AuditSearch(_AuditPages):
    """The filters of the audit of all conversations. An entry must match all of them."""

    since = Instant(data_key="time__gte", metadata={"description": "Keep entries with time >= this; naive is UTC."})
    until = Instant(data_key="time__lt", metadata={"description": "Keep entries with time < this; naive is UTC."})
    actor = Text(least=1, most=_MOST_NAME, metadata={"description": "The actor's full name."})
    actor_kind = Choice(*ACTOR_KINDS)
    decision = Choice(*DECISIONS)
    tool_name = Text(least=1, most=MOST_CALL_BYTES, metadata={"description": "Tool of an action in the entry."})
    text = Text(
        least=1,
        most=_MOST_TEXT,
        metadata={"description": "A part of the command, the summary, the destination, the reason or the title."},
    )
    conversation_id = Id(metadata={"description": "Entries about the conversation's actions, which are a chain."})
    chain = Text(
        pattern=f"^{_CHAIN}$",
        refused=FieldFault("Should be destinations- and a day, such as 2026-11-25.", "value_error"),
        metadata={"description": "Entries about the destinations of a day: `destinations-2026-11-25`."},
    )
    descending = SortOrder("TIME")
    start = PlaceCursor()

    @post_load
    def _of_this_search(self, search: dict[str, Any], **_: Any) -> dict[str, Any]:
        conversation_id = search.pop("conversation_id", None)
        if conversation_id is not None and search.setdefault("chain", conversation_id) != conversation_id:
            raise ValidationError(["Give either conversation_id or chain: each is a chain."], field_name="chain")
        if search["start"] is not None:
            descending, place = search["start"]
            wanted = search.get("chain", place[1])
            if descending != search["descending"] or place[1] != wanted:
                raise ValidationError([FOREIGN_CURSOR], field_name="page_id")
            search["start"] = place
        return search


def place_id(descending: bool, place: tuple[int, str, int] | None) -> str | None:
    """Return the cursor of a place; None on the last page."""
    if place is None:
        return None
    at, chain, seq = place
    return f"{'desc' if descending else 'asc'}.{at}-{chain}-{seq}"


class Decider(BaseSchema):
    """The actor of a decision."""

    kind = fields.String(required=True, metadata={"enum": list(ACTOR_KINDS)})
    name = fields.String(required=True, metadata={"description": "Name of the key or the person, or ids of the rules."})


class Actor(Decider):
    """The actor of a decision, with an address."""

    address = fields.String(required=True, metadata={"description": "Address of the request; empty without a request."})


class AuditedDestination(BaseSchema):
    """The destination of a sandbox's request or of a rule."""

    name = fields.String(required=True, metadata={"description": "In a rule also `*.` and a suffix."})
    port = fields.Integer(required=True)
    program = fields.String(metadata={"description": "The program's own name."})
    sandbox_id = fields.String(metadata={"description": "Absent for a rule."})


class AuditedBudget(BaseSchema):
    """A budget of models that was asked for."""

    setting = fields.String(required=True)
    key_id = fields.String(metadata={"description": "Only for MODEL_BUDGET_KEY."})
    sandbox_id = fields.String(required=True, metadata={"description": "Sandbox whose call was refused first."})


class ShownAction(BaseSchema):
    """An action in words."""

    tool_name = fields.String(required=True)
    text = fields.String(
        required=True,
        metadata={"description": "Its command, or what it does to a path; else its arguments. 300 characters at most."},
    )
    summary = fields.String(
        required=True, allow_none=True, metadata={"description": "The agent's summary, at most 150 characters."}
    )


class AuditEntry(BaseSchema):
    """A decision. `hash` is the hex SHA-256 of the canonical JSON (RFC 8785) of the entry without `hash`."""

    conversation_id = fields.String(
        required=True,
        allow_none=True,
        metadata={
            "format": "uuid",
            "description": "Null for a destination whose sandbox has no or several conversations, and for a rule "
            "without a conversation.",
        },
    )
    chain = fields.String(
        metadata={
            "description": "For destinations, and rules without a conversation: the chain of their day. Absent: "
            "the conversation is the chain."
        }
    )
    seq = fields.Integer(required=True, metadata={"minimum": 1, "description": "1, 2, 3 … within a chain."})
    time = fields.String(required=True, metadata={"format": "date-time"})
    actor = fields.Nested(Actor, required=True)
    decision = fields.String(required=True, metadata={"enum": list(DECISIONS)})
    action_ids = fields.List(fields.String(), required=True)
    digests = fields.List(
        fields.String(), required=True, metadata={"description": "Digest of each action as it was shown."}
    )
    conversation_title = fields.String(
        metadata={"description": "Title at the time of the decision. Absent: it had none."}
    )
    shown = fields.List(
        fields.Nested(ShownAction, allow_none=True),
        metadata={
            "description": "Descriptions of the first 20 actions; null for an action of an earlier release. "
            "Absent: the entry is about no action, or of an earlier release."
        },
    )
    edited = fields.List(
        fields.String(), metadata={"description": "Digest of each edited action; absent: no action was edited."}
    )
    edited_shown = fields.List(
        fields.Nested(ShownAction),
        metadata={"description": "Descriptions of the edited actions; absent in earlier releases."},
    )
    agreed = fields.List(
        fields.String(),
        metadata={"description": "Names of all people who approved it, if several must. Absent: one person decides."},
    )
    needed = fields.Integer(metadata={"description": "For `agree`: how many people must approve it."})
    destination = fields.Nested(
        AuditedDestination, metadata={"description": "Absent: the entry is about no destination."}
    )
    budget = fields.Nested(AuditedBudget, metadata={"description": "Absent: the entry is about no budget."})
    sandbox_id = fields.String(
        metadata={"description": "For a join: the sandbox. Absent: the entry is about no sandbox."}
    )
    rule_id = fields.String(
        metadata={"description": "Id of a destination rule that was made, revoked or used, or of an approval rule."}
    )
    scope = fields.String(
        metadata={"enum": ["once", "conversation", "always"], "description": "Scope of a decision about a destination."}
    )
    reason = fields.String(required=True)
    previous = fields.String(
        required=True, metadata={"description": "`hash` of the previous entry; empty in the first."}
    )
    hash = fields.String(required=True)


class ActionDecision(BaseSchema):
    """The decision about an action, with its author, time and reason: a part of its audit entry."""

    action_ids = fields.List(
        fields.String(), required=True, metadata={"description": "All actions of the audit entry."}
    )
    actor = fields.Nested(Decider, required=True)
    decision = fields.String(
        required=True,
        metadata={"enum": ["approve", "reject", "edit", "unapproved", "deleted", "mode_changed", "withdrawn"]},
    )
    edited_shown = fields.List(
        fields.Nested(ShownAction),
        metadata={"description": "For an edit: the approved actions."},
    )
    reason = fields.String(required=True)
    seq = fields.Integer(required=True, metadata={"minimum": 1, "description": "Seq of the audit entry."})
    time = fields.String(required=True, metadata={"format": "date-time"})


class AuditPage(BaseSchema):
    items = fields.List(fields.Nested(AuditEntry), required=True)
    next_page_id = fields.String(required=True, allow_none=True)
