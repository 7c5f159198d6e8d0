"""Approvals: confirmation policies, decisions, rules, and the inbox (the pending actions of all conversations). Source:
docs/approvals.md.
"""

import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar, get_args

from marshmallow import RAISE, ValidationError, fields, post_load, validate, validates_schema

from core.approvals import MOST_MATCHED, MOST_STARS, pattern_fault
from core.effects import RISK_OF as EFFECTS
from core.effects import RISKS
from core.masking import HIDDEN
from core.paths import MOST_PATH, path_fault
from core.paths import PATTERN as PATH_PATTERN
from core.scopes import MOST_SCOPE, REPOSITORY, ScopeName, folder_fault, repository_fault
from core.shell import rules as commands
from core.wire import MOST_CALL_BYTES, MOST_CONFIRMATION_SECONDS, MOST_NAME, MOST_TAG, MOST_TAG_KEY
from schemas.audit import Decider, PlaceCursor
from schemas.fields import (
    FOREIGN_CURSOR,
    HEX_OF_TEXT,
    BaseSchema,
    Choice,
    Digest,
    FieldFault,
    Id,
    Instant,
    PageId,
    PageLimit,
    ShownTime,
    SortOrder,
    StrictBoolean,
    StrictInteger,
    Text,
    WholeNumber,
    canonical_id,
    checked_text,
    refusal,
)

#: Maximum numbers of a rule: arguments, conversations, tags, characters of its reason, and max_uses.
MOST_ARGUMENTS, MOST_CONVERSATIONS, MOST_TAGS, MOST_REASON, MOST_USES = 100, 100, 20, 200, 10**9

#: Patterns that `core.approvals.pattern_fault` allows: a maximum number of `*`, and none after characters that the
#: shell interprets.
_FEW_STARS = f"^[^*]*([*][^*]*){{0,{MOST_STARS}}}$"
_NO_TURN = r"^([^$\\!`]|[$\\!`]+[^*$\\!`])*[$\\!`]*$"

_TEST = {
    "oneOf": [
        {"type": "object", "required": [name], "properties": {name: schema}, "additionalProperties": False}
        for name, schema in (
            ("equals", {"description": "Any JSON. Numbers are compared by value, and 1 is not true."}),
            (
                "pattern",
                {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": MOST_MATCHED,
                    "allOf": [{"pattern": _FEW_STARS}, {"pattern": _NO_TURN}],
                    "description": "Pattern of the whole text. `*` matches a run of ASCII letters, digits, spaces "
                    "and `_ . / : , @ + - =`, never a shell metacharacter. In a rule that rejects, "
                    "`*` matches any text, and if it is unsure whether the pattern matches, a "
                    "person decides.",
                },
            ),
            (
                "command",
                {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": commands.MOST_PATTERN,
                    "allOf": [{"pattern": commands.PATTERN}, {"pattern": commands.FEW_STARS}],
                    "description": "A command of a shell line, such as `git status *`. A separate `*` matches any "
                    "further words, a `*` within a word any text of the word. A rule that approves "
                    "must name the program. It may name variables before it and files that it may "
                    "write, as in `CI=1 make * > build.log`. Several rules may approve a line "
                    "together. A rule that rejects finds the command in any wrapping.",
                },
            ),
            (
                "path",
                {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": MOST_PATH,
                    "pattern": PATH_PATTERN,
                    "description": "A path, such as `src/**`. `*` matches any text of a segment, `**` any "
                    "segments, but neither matches `.git`. Relative patterns approve relative "
                    "paths, absolute patterns absolute paths.",
                },
            ),
            ("any", {"const": True, "description": "Any value, also a missing one."}),
        )
    ]
}

_GREATER = {
    "enum": [*RISKS],
    "description": "The greater of `security_risk`, the agent's rating, and the server's rating.",
}

_NULLABLE_OBJECT = {"type": ["object", "null"]}

#: Maximum number of people that a rule asks for.
MOST_QUORUM = 10

#: Maximum number of characters of a filter.
_LONGEST = 256

_NULLABLE = {"type": ["string", "null"]}

#: Maximum size of edited arguments, in bytes of JSON: the agent's event about them has further members and at most 1
#: MiB.
MOST_ARGUMENTS_BYTES = 512 * 1024

#: Maximum number of decisions of a request, as many as MAX_PENDING_ACTIONS by default.
MOST_DECISIONS = 256


#: Pattern of the id of an inbox change, as in the stream's events.
CHANGE_ID = "^[0-9]{1,20}-[0-9]{1,20}$"

#: Default reason of a rejection. Source: the interface description.
_REJECTED = "User rejected the action."


class ConfirmationSeconds(StrictInteger):
    """Seconds after which a pending action of a conversation is rejected. Source: docs/approvals.md."""

    def __init__(self, null: str) -> None:
        words = f"Seconds after which an action that waits for a decision is rejected; 0: it waits forever. {null}"
        super().__init__(least=0, most=MOST_CONFIRMATION_SECONDS, allow_none=True, metadata={"description": words})


class ConfirmationResponse(BaseSchema):
    """A decision about the pending actions. Source: the interface description."""

    accept = StrictBoolean(required=True)
    reason = Text(
        load_default=_REJECTED,
        metadata={
            "description": "At most MAX_REASON_BYTES bytes of UTF-8. The observation of each rejected action "
            "contains it."
        },
    )

    @post_load
    def _drop_reason_of_rejection(self, decision: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Give an approval no reason where the reason is the default one, which is that of a rejection."""
        if decision["accept"] and decision["reason"] == _REJECTED:
            decision["reason"] = ""
        return decision


class ConfirmationResult(BaseSchema):
    success = fields.Boolean(
        dump_default=True,
        metadata={
            "default": True,
            "description": "False if no action was pending, so that the decision changed nothing.",
        },
    )


class SeenEffect(BaseSchema):
    """An effect of an action, as the server detects it."""

    effect = fields.String(required=True, metadata={"enum": [*EFFECTS]})
    risk = fields.String(required=True, metadata={"enum": [*RISKS]})
    words = fields.String(required=True, metadata={"description": "The effect in words, such as `Deletes`."})
    because = fields.String(
        required=True, metadata={"description": "Its command, file or tool, at most 80 characters."}
    )


class SeenAction(BaseSchema):
    """The server's own assessment of an action, independent of its agent. Source: docs/approvals.md."""

    risk = fields.String(required=True, metadata={"enum": [*RISKS], "description": "The greatest risk of its effects."})
    effects = fields.List(
        fields.Nested(SeenEffect),
        required=True,
        metadata={"description": "Distinct effects, the most dangerous first."},
    )


class PendingAction(BaseSchema):
    """An action that waits for a decision."""

    id = fields.String(required=True, metadata={"description": "Id of the ActionEvent."})
    tool_name = fields.Raw(metadata={"type": ["string", "null"]})
    tool_call_id = fields.Raw(metadata={"type": ["string", "null"]})
    summary = fields.Raw(metadata={"type": ["string", "null"]})
    security_risk = fields.Raw(metadata={"description": "The agent's rating: `UNKNOWN`, `LOW`, `MEDIUM` or `HIGH`."})
    arguments = fields.Raw(metadata={"description": "The arguments of the tool."})
    since = fields.String(
        required=True, metadata={"format": "date-time", "description": "Time when the action was appended, UTC."}
    )
    risk = fields.String(required=True, metadata=_GREATER)
    seen = fields.Nested(SeenAction, required=True)


class ConfirmationPolicy(BaseSchema):
    """Which actions wait for a decision. Source: the agent-server wire."""

    class Meta:
        unknown = RAISE

    kind = Choice("NeverConfirm", "AlwaysConfirm", "ConfirmRisky", required=True)
    threshold = Choice(
        "LOW", "MEDIUM", "HIGH", metadata={"description": "ConfirmRisky: actions of this or a higher risk wait."}
    )
    confirm_unknown = StrictBoolean(metadata={"description": "ConfirmRisky: actions of unknown risk wait too."})

    @post_load
    def _whole(self, policy: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Return the policy with exactly the members of its kind, so that equal policies are equal text."""
        if policy["kind"] != "ConfirmRisky":
            return {"kind": policy["kind"]}
        return {
            "kind": "ConfirmRisky",
            "threshold": policy.get("threshold", "HIGH"),
            "confirm_unknown": policy.get("confirm_unknown", True),
        }


class SetConfirmationPolicy(BaseSchema):
    policy = fields.Nested(ConfirmationPolicy, required=True)


class ArgumentTest(fields.Field[dict[str, Any]]):
    """The test of an argument: {"equals": JSON}, {"pattern" | "command" | "path": text} or {"any": true}."""

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
            case {"command": str(command)} if len(value) == 1:
                checked_text(command, least=1, most=commands.MOST_PATTERN)
                if fault := commands.pattern_fault(command):
                    raise refusal(fault, "value_error")
                return {"command": command}
            case {"path": str(path)} if len(value) == 1:
                checked_text(path, least=1, most=MOST_PATH)
                if fault := path_fault(path):
                    raise refusal(fault, "value_error")
                return {"path": path}
        raise refusal(
            'Input should be one of {"equals": JSON}, {"pattern": text}, {"command": text}, {"path": text}, '
            '{"any": true}',
            "value_error",
        )


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


class ScopeText(Text):
    """A text that restricts a rule to conversations."""

    def __init__(self, fault: Callable[[str], str | None], metadata: Mapping[str, Any], description: str) -> None:
        self._fault = fault
        metadata = {**metadata, "description": description}
        super().__init__(least=1, most=MOST_SCOPE, allow_none=True, metadata=metadata)

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> str:
        text: str = super()._deserialize(value, *args, **kwargs)
        if fault := self._fault(text):
            raise refusal(fault, "value_error")
        return text


def _claimed(description: str) -> Text:
    return Text(least=1, most=MOST_SCOPE, allow_none=True, metadata={"description": description})


class RuleMembers(BaseSchema):
    """The conditions of a rule. Null is equivalent to absent, except for the reason."""

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
            "description": "Absent: any arguments. Otherwise unnamed arguments must be null, false, 0 or empty.",
        },
    )
    max_risk = Choice(
        *RISKS,
        allow_none=True,
        metadata={
            "description": "Highest allowed risk, which excludes unknown risks. Absent: any risk. A rule that "
            "approves compares the agent's and the server's rating, a rule that rejects only the "
            "agent's."
        },
    )
    conversation_ids = fields.List(
        Id(),
        allow_none=True,
        validate=validate.Length(min=1, max=MOST_CONVERSATIONS),
        metadata={"description": "Absent: all conversations."},
    )
    key_id = Text(
        least=1,
        most=MOST_NAME,
        allow_none=True,
        metadata={"description": "Conversations that the key of this id started. Absent: conversations of all keys."},
    )
    repository = ScopeText(
        repository_fault,
        {"pattern": REPOSITORY},
        "Conversations about this repository, `HOST/OWNER/NAME`. Absent: all conversations.",
    )
    folder = ScopeText(
        folder_fault,
        {"pattern": "^/"},
        "Conversations in or below this folder, an absolute path of their start. Absent: any folder.",
    )
    machine = _claimed("Conversations of agents that report this host name. Absent: any machine.")
    person = _claimed("Conversations of agents that report this user. Absent: any user.")
    agent = _claimed("Conversations of agents outside of sandboxes that report this name. Absent: any agent.")
    tags = NamedTags(allow_none=True)
    expires_at = Instant(allow_none=True, metadata={"type": "string"})
    max_uses = StrictInteger(
        least=1,
        allow_none=True,
        validate=validate.Range(max=MOST_USES, error=f"Input should be less than or equal to {MOST_USES}"),
    )
    reason = Text(most=MOST_REASON)
    effects = fields.List(
        Choice(*EFFECTS),
        allow_none=True,
        validate=validate.Length(min=1, max=len(EFFECTS)),
        metadata={
            "description": "Effects that the server detects in an action. A rule that approves matches actions "
            "without other effects; a rule that rejects matches actions with any of them. Absent: "
            "any effects."
        },
    )

    @post_load
    def _ids(self, members: dict[str, Any], **_: Any) -> dict[str, Any]:
        if members.get("conversation_ids") is not None:
            members["conversation_ids"] = tuple(dict.fromkeys(members["conversation_ids"]))
        if members.get("effects") is not None:
            members["effects"] = tuple(name for name in EFFECTS if name in members["effects"])
        return members


class ApprovalRuleRequest(RuleMembers):
    """A rule to make."""

    decision = Choice("approve", "reject", "ask", required=True)
    tool_name = Text(
        required=True, least=1, most=MOST_CALL_BYTES, metadata={"description": "The agent's name of the tool."}
    )
    quorum = StrictInteger(
        least=1,
        load_default=1,
        validate=validate.Range(max=MOST_QUORUM, error=f"Input should be less than or equal to {MOST_QUORUM}"),
        metadata={"description": "For a rule that asks: how many people must approve the action."},
    )
    not_by_owner = StrictBoolean(
        load_default=False,
        metadata={"description": "For a rule that asks: exclude the owner of the conversation."},
    )
    not_by_asker = StrictBoolean(
        load_default=False,
        metadata={"description": "For a rule that asks: exclude the sender of the last user message."},
    )

    @validates_schema
    def _check_asking(self, rule: dict[str, Any], **_: Any) -> None:
        if rule.get("decision") == "ask":
            if rule.get("max_uses") is not None:
                raise ValidationError("A rule that asks has no number of uses.", "max_uses")
            return
        given = {
            "quorum": rule.get("quorum", 1) > 1,
            **{name: rule.get(name) for name in ("not_by_owner", "not_by_asker")},
        }
        for name in filter(given.get, given):
            raise ValidationError("May be given only where the decision is ask.", name)

    @validates_schema
    def _check_commands(self, rule: dict[str, Any], **_: Any) -> None:
        _check_commands(rule, "arguments")


def _check_commands(rule: Mapping[str, Any], member: str) -> None:
    """Raise a ValidationError for a command that a rule which approves may not have."""
    tests = (rule.get("arguments") or {}).values() if rule.get("decision") == "approve" else ()
    for test in tests:
        if "command" in test and (fault := commands.approval_fault(test["command"])):
            raise ValidationError(fault, member)


class RehearsalSearch(BaseSchema):
    """A page of the decisions that a rule is tried on, the newest first."""

    limit = PageLimit(100)
    start = PlaceCursor()

    @post_load
    def _read_cursor(self, search: dict[str, Any], **_: Any) -> dict[str, Any]:
        descending, search["start"] = search["start"] or (True, None)
        if not descending:
            raise ValidationError([FOREIGN_CURSOR], "page_id")
        return search


class DecidedExample(BaseSchema):
    """An action that a person has decided."""

    conversation_id = fields.String(required=True, metadata={"format": "uuid"})
    conversation_title = fields.String(required=True, allow_none=True)
    action_id = fields.String(required=True)
    tool_name = fields.String(required=True)
    text = fields.String(
        required=True,
        metadata={"description": "Its command or its operation on a path, else its arguments, at most 300 characters."},
    )
    decision = fields.String(required=True, metadata={"enum": ["approve", "reject", "edit"]})
    actor = fields.Nested(Decider, required=True)
    time = fields.String(required=True, metadata={"format": "date-time"})


def _number(description: str) -> fields.Integer:
    return fields.Integer(required=True, metadata={"minimum": 0, "description": description})


class _Rehearsed(BaseSchema):
    """The decisions that a rule would have made, compared with those of people."""

    answered = _number("Decisions that the rule would have made.")
    rejected = _number("Answered decisions that a person made differently, including edits.")
    unread = _number("Decisions of deleted or cold conversations, on which the rule was not tried.")
    examples = fields.List(
        fields.Nested(DecidedExample),
        required=True,
        metadata={
            "description": "Examples of answered decisions: first those that a person made differently, then a few "
            "others."
        },
    )


class RehearsalResult(_Rehearsed):
    """The decisions that a rule would have made on a page of people's decisions."""

    decided = _number("Decisions of this page.")
    next_page_id = fields.String(required=True, allow_none=True)


class BackgroundRehearsal(_Rehearsed):
    """A rehearsal on all recorded decisions. While it runs, the sums are partial."""

    id = fields.String(required=True, metadata={"format": "uuid"})
    state = fields.String(required=True, metadata={"enum": ["running", "done", "failed"]})
    detail = fields.String(required=True, metadata={"description": "Why it ended early, or empty."})
    read = _number("Audit entries that were read, the newest first.")
    of = _number("Audit entries at its start.")
    decided = _number("People's decisions among the entries.")


class ProposalSearch(BaseSchema):
    least = WholeNumber(
        least=1, most=100, load_default=3, metadata={"description": "The least number of approvals of a proposal."}
    )


class ProposedRule(BaseSchema):
    """A rule for actions that people approved repeatedly and never rejected."""

    rule = fields.Nested(ApprovalRuleRequest, required=True)
    sentence = fields.String(required=True, metadata={"description": "Coverage of the rule."})
    approved = _number("Approvals that it would have made.")
    last_at = fields.String(
        required=True, metadata={"format": "date-time", "description": "Time of the last approval."}
    )
    examples = fields.List(fields.Nested(DecidedExample), required=True, metadata={"maxItems": 3})


class ProposedRules(BaseSchema):
    items = fields.List(fields.Nested(ProposedRule), required=True)
    decided = _number("The most recent decisions, which were read.")
    unread = _number("Decisions of deleted or cold conversations.")


def _scope_name() -> fields.String:
    return fields.String(
        required=True,
        metadata={
            "enum": [*get_args(ScopeName)],
            "description": "Where the rule applies. `key`: in every conversation of the key that started this one. "
            "For an agent outside of sandboxes `folder`, `machine`, `person` and `agent` apply "
            "only to that key.",
        },
    )


class ScopedAnswer(BaseSchema):
    """A ready answer in a scope."""

    scope = _scope_name()
    sentence = fields.String(required=True, metadata={"description": "Coverage of the rule, and its scope."})
    rule = fields.Nested(ApprovalRuleRequest, required=True)
    answered = _number("Recent decisions about this tool that the rule would have made.")


class ReadyAnswer(ScopedAnswer):
    """An answer to an action and to similar actions, in the narrowest scope."""

    kind = fields.String(
        required=True,
        metadata={
            "enum": ["exactly", "like", "reads", "tool"],
            "description": "`exactly`: this tool with these arguments; `like`: such as `git status *`; `reads`: every "
            "command that only reads; `tool`: this tool in this conversation.",
        },
    )
    of = _number("Recent decisions about this tool that were read, at most 20.")
    proposed = fields.String(required=True, metadata={"description": "The scope to offer first, one of `scopes`."})
    scopes = fields.List(
        fields.Nested(ScopedAnswer),
        required=True,
        metadata={"description": "The answer in each possible scope, the narrowest first."},
    )


class RuleScope(BaseSchema):
    """A scope of rules made from an action."""

    scope = _scope_name()
    words = fields.String(required=True, metadata={"description": "Such as `in this conversation`."})
    members = fields.Dict(required=True, metadata={"description": "Members of a rule that express the scope."})


class RuleTerm(BaseSchema):
    """A duration of a rule."""

    name = fields.String(required=True)
    words = fields.String(required=True, metadata={"description": "Such as `for 1 hour`."})
    seconds = fields.Integer(
        required=True, allow_none=True, metadata={"description": "Duration from now; null: until it is revoked."}
    )


class ReadyAnswers(BaseSchema):
    items = fields.List(fields.Nested(ReadyAnswer), required=True)
    scopes = fields.List(fields.Nested(RuleScope), required=True, metadata={"description": "The narrowest first."})
    lasts = fields.List(
        fields.Nested(RuleTerm),
        required=True,
        metadata={"description": "Durations of rules, the proposed duration first. They are not members of a rule."},
    )


class Always(fields.Field[Any]):
    """Member `always` of a decision: `true`, or the members of the rule that differ from its defaults.

    Loaded as True, or as a dict for `core.approvals.rule_of`. False is equivalent to absent: None.
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


class ApprovalRule(BaseSchema):
    """A rule in a list."""

    id = fields.String(attribute="rule.id", required=True)
    decision = fields.String(attribute="rule.decision", required=True, metadata={"enum": ["approve", "reject", "ask"]})
    tool_name = fields.String(attribute="rule.tool_name", required=True)
    arguments = fields.Raw(attribute="rule.arguments", metadata=_NULLABLE_OBJECT)
    max_risk = fields.String(attribute="rule.max_risk", metadata={"type": ["string", "null"]})
    conversation_ids = fields.Raw(
        attribute="rule.conversation_ids", metadata={"type": ["array", "null"], "items": {"type": "string"}}
    )
    key_id = fields.String(attribute="rule.key_id", metadata=_NULLABLE)
    repository = fields.String(attribute="rule.repository", metadata=_NULLABLE)
    folder = fields.String(attribute="rule.folder", metadata=_NULLABLE)
    machine = fields.String(attribute="rule.machine", metadata=_NULLABLE)
    person = fields.String(attribute="rule.person", metadata=_NULLABLE)
    agent = fields.String(attribute="rule.agent", metadata=_NULLABLE)
    tags = fields.Raw(attribute="rule.tags", metadata=_NULLABLE_OBJECT)
    expires_at = ShownTime(
        "Time after which it decides nothing; null: never.", attribute="rule.expires_at", optional=True
    )
    max_uses = fields.Integer(attribute="rule.max_uses", metadata={"type": ["integer", "null"]})
    reason = fields.String(attribute="rule.reason", required=True)
    effects = fields.Raw(
        attribute="rule.effects", metadata={"type": ["array", "null"], "items": {"type": "string", "enum": [*EFFECTS]}}
    )
    created_at = ShownTime(attribute="rule.created_at")
    created_by = fields.String(
        attribute="rule.created_by", required=True, metadata={"description": "Name of the key that made the rule."}
    )
    quorum = fields.Integer(attribute="rule.quorum", required=True, metadata={"minimum": 1})
    not_by_owner = fields.Boolean(attribute="rule.not_by_owner", required=True)
    not_by_asker = fields.Boolean(attribute="rule.not_by_asker", required=True)
    uses = fields.Integer(required=True, metadata={"description": "Actions that the rule has decided."})
    last_used_at = ShownTime("Null: not used yet.", optional=True)
    ended_at = ShownTime("Time when it was revoked or removed after its expiry; null: it is stored.", optional=True)
    ended_by = fields.String(
        required=True, metadata={"description": "Name of the key that revoked it; empty: it was not revoked."}
    )


class RuleSearch(BaseSchema):
    """The filter of the list of rules."""

    ended = fields.Boolean(load_default=False, metadata={"description": "Include revoked rules."})


class TagFilter(Text):
    """A tag's name, or NAME=VALUE. Loaded as a pair, with None for a missing value."""

    def __init__(self, **kwargs: Any) -> None:
        most = MOST_TAG_KEY + len("=") + MOST_TAG
        super().__init__(most=most, metadata={"pattern": "^[^=]", **kwargs.pop("metadata", {})}, **kwargs)

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> Any:
        name, separator, tag = super()._deserialize(value, *args, **kwargs).partition("=")
        if not name:
            raise refusal("Input should be the name of a tag, or NAME=VALUE", "value_error")
        return name, tag if separator else None


class PendingActionFilter(BaseSchema):
    """The filters of pending actions. An action must match all of them."""

    conversation_id = Id()
    tool = Text(data_key="tool_name", most=MOST_CALL_BYTES)
    risk = Choice("UNKNOWN", "LOW", "MEDIUM", "HIGH", data_key="security_risk")
    tag = TagFilter(metadata={"description": "A tag of the conversation: `NAME` or `NAME=VALUE`."})
    shown_risk = Choice(
        *RISKS,
        data_key="risk",
        metadata={"description": "The greater of the agent's and the server's rating."},
    )
    effect = Choice(*EFFECTS, metadata={"description": "An effect that the server detects in the action."})
    machine = Text(most=MOST_SCOPE, metadata={"description": "Full machine name of an agent outside of sandboxes."})
    agent = Text(most=MOST_SCOPE, metadata={"description": "Full name of an agent outside of sandboxes."})
    since = Instant(data_key="since__gte")
    until = Instant(data_key="since__lt")
    text = Text(
        most=_LONGEST,
        metadata={"description": "Case-insensitive part of tool, summary, thought, arguments or title."},
    )


class PendingActionSearch(PendingActionFilter):
    """The filters, an order and a page. The order is by the start of the wait."""

    descending = SortOrder("TIMESTAMP")
    limit = PageLimit(100)
    start = PageId(rf"since\.(asc|desc)\.[0-9]{{1,16}}-[0-9a-f]{{32}}-[0-9]{{1,15}}-{HEX_OF_TEXT}")

    @post_load
    def _read_cursor(self, search: dict[str, Any], **_: Any) -> dict[str, Any]:
        start = search["start"]
        return {**search, "start": None if start is None else _cursor(start, search["descending"])}


class ShownQuorum(BaseSchema):
    """The people who must approve an action, as its reader sees it. A stream has none."""

    needed = fields.Integer(required=True, metadata={"minimum": 1})
    approved_by = fields.List(
        fields.String(), required=True, metadata={"description": "People who approved, in order."}
    )
    own = fields.Boolean(
        required=True,
        metadata={"description": "Whether the reader may not approve, as the owner or the sender of the request."},
    )
    voted = fields.Boolean(required=True, metadata={"description": "Whether the reader has approved the action."})


class AskedFrom(BaseSchema):
    """The terminal of an agent outside of sandboxes. All names come from its hook and are not checked."""

    agent = fields.String(required=True, metadata={"description": "Such as `claude-code`."})
    machine = fields.String(required=True)
    person = fields.String(required=True, metadata={"description": "User on the machine; empty: unknown."})
    folder = fields.String(required=True, metadata={"description": "The working folder of the session."})
    kind = fields.String(
        required=True,
        metadata={"enum": ["permission", "gate"], "description": "`gate`: no terminal asks."},
    )
    order = fields.String(
        required=True,
        metadata={
            "enum": ["races", "first"],
            "description": "`races`: the terminal asks at the same time; `first`: it asks after the hook.",
        },
    )
    answerable_until = fields.String(
        required=True,
        metadata={
            "format": "date-time",
            "description": "The hook waits for an answer until this time. Later `in_terminal` is true.",
        },
    )
    in_terminal = fields.Boolean(
        required=True,
        metadata={
            "description": "Whether the hook has stopped waiting. Then only the terminal can answer, `can` is "
            "empty, and a decision is refused with 409 `in_terminal`."
        },
    )


class WaitingAction(BaseSchema):
    """An action that waits for a decision, with all that a person needs to decide."""

    conversation_id = fields.String(required=True)
    conversation_title = fields.String(required=True, allow_none=True)
    tags = fields.Dict(
        keys=fields.String(),
        values=fields.String(),
        required=True,
        metadata={"description": "Tags of the conversation."},
    )
    action_id = fields.String(required=True, metadata={"description": "Id of the ActionEvent."})
    tool_name = fields.String(required=True)
    summary = fields.Raw(required=True, metadata=_NULLABLE)
    thought = fields.String(required=True, metadata={"description": "The agent's comment on it."})
    security_risk = fields.String(required=True, metadata={"enum": ["UNKNOWN", "LOW", "MEDIUM", "HIGH"]})
    arguments = fields.Raw(required=True, metadata={"description": "The arguments of the tool."})
    since = fields.String(required=True, metadata={"format": "date-time"})
    expires_at = fields.String(
        required=True, allow_none=True, metadata={"description": "Time when it is rejected; null: it waits forever."}
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
        metadata={"description": "Whether all pending actions of the conversation need a common decision."},
    )
    complete = fields.Boolean(
        required=True,
        metadata={
            "description": "false: its agent shows a description instead of the arguments, and more may run than "
            "is shown. No rule decides such an action."
        },
    )
    risk = fields.String(required=True, metadata=_GREATER)
    seen = fields.Nested(SeenAction, required=True)
    like = fields.Raw(
        required=True,
        metadata={
            "type": ["object", "null"],
            "description": "The arguments of a rule that would approve similar actions, from the ready answer "
            "`like`. Null: none is proposed.",
        },
    )
    folder = fields.String(
        required=True, allow_none=True, metadata={"description": "Folder from the start of its conversation."}
    )
    repository = fields.String(
        required=True,
        allow_none=True,
        metadata={"description": "Repository from the start of its conversation, as HOST/OWNER/NAME."},
    )
    asked_from = fields.Nested(
        AskedFrom,
        required=True,
        allow_none=True,
        metadata={"description": "Null: the agent runs in a sandbox, or posts its own events."},
    )
    quorum = fields.Nested(
        ShownQuorum,
        metadata={"description": "Absent: no rule asks, so that one person decides."},
    )


class WaitingActionPage(BaseSchema):
    items = fields.List(fields.Nested(WaitingAction), required=True)
    next_page_id = fields.String(required=True, allow_none=True)


def page_id(descending: bool, cursor: tuple[int, str, int] | None) -> str | None:
    """Return the cursor of a page for clients; None on the last page."""
    if cursor is None:
        return None
    at, member, seq = cursor
    conversation_id, _, action_id = member.partition(" ")
    return f"{_prefix(descending)}{at}-{conversation_id.replace('-', '')}-{seq}-{action_id.encode().hex()}"


def _prefix(descending: bool) -> str:
    return f"since.{'desc' if descending else 'asc'}."


def _cursor(text: str, descending: bool) -> tuple[int, str, int]:
    """Parse a cursor. Raises ValidationError for invalid cursors and cursors of another order."""
    places = "([0-9]{1,16})-([0-9a-f]{32})-([0-9]{1,15})-((?:[0-9a-f]{2})*)"
    match = re.fullmatch(re.escape(_prefix(descending)) + places, text)
    try:
        if match is not None:
            return int(match[1]), f"{canonical_id(match[2])} {bytes.fromhex(match[4]).decode()}", int(match[3])
    except UnicodeDecodeError:
        pass
    raise ValidationError([FOREIGN_CURSOR], "page_id")


ChangeId = partial(
    Text,
    pattern=CHANGE_ID,
    refused=FieldFault("Input should be the id of an event of this stream, such as 1764000000000-0", "value_error"),
)


class InboxStreamQuery(PendingActionFilter):
    """The beginning of a stream, and its filters.

    With `tag`, the end of an action is sent even if its tags have changed.
    """

    class Meta(PendingActionFilter.Meta):
        exclude = ("since", "until", "text")

    destinations = fields.Boolean(
        load_default=False,
        metadata={"description": "Also send destinations that sandboxes ask for, as events named destination…."},
    )
    last_event_id = ChangeId(
        metadata={
            "description": "Send the changes after this id, as with Last-Event-ID; absent: begin with a snapshot."
        }
    )


class PendingDecision(BaseSchema):
    """The decision of an action. Only an edit has arguments, and an edit makes no rule."""

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
        metadata={"description": "The digest of the shown action. The decision is refused if the action has changed."},
    )
    arguments = fields.Raw(metadata={"type": "object", "description": "For an edit: replaces the action's arguments."})

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
        if isinstance(decision.get("always"), dict):
            _check_commands({**decision["always"], "decision": decision.get("decision")}, "always")
        if not is_edit and "arguments" in decision:
            raise ValidationError("May be given only where the decision is edit.", "arguments")

    @post_load
    def _with_verb(self, decision: dict[str, Any], **_: Any) -> dict[str, Any]:
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
        metadata={"description": "Why no rule was made. The decision took effect anyway."},
    )


class StillWaiting(BaseSchema):
    """An approved action that others must approve too."""

    action_id = fields.String(required=True)
    needed = fields.Integer(required=True, metadata={"minimum": 1})
    approved_by = fields.List(fields.String(), required=True)


class DecisionsResult(BaseSchema):
    """The result of decisions that all took effect."""

    success = fields.Boolean(required=True)
    rules = fields.List(fields.Nested(RuleOfDecision), required=True)
    waiting = fields.List(
        fields.Nested(StillWaiting),
        metadata={"description": "Approved actions that others must approve too; absent: none."},
    )


class DecidedAction(BaseSchema):
    """An action that is approved and not yet observed."""

    action_id = fields.String(required=True)
    decision = fields.String(required=True, metadata={"enum": ["approve", "edit"]})
    arguments = fields.Raw(metadata={"description": "Edited arguments, which replace the action's."})
