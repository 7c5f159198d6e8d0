"""Permission requests of agents that run outside of sandboxes, in terminals. Source: docs/approvals.md, "Terminals".

A request's statements about its agent, machine and person are the asker's own and are not checked.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from marshmallow import INCLUDE, RAISE, ValidationError, fields, validates_schema

from core.wire import MOST_CALL_BYTES
from schemas.approvals import MOST_ARGUMENTS_BYTES
from schemas.fields import (
    BaseSchema,
    Choice,
    DurationSeconds,
    FieldFault,
    StrictBoolean,
    StrictInteger,
    Text,
    WholeNumber,
)

#: Maximum number of seconds of a long poll, of a lease, and of a hook's wait for an answer.
MOST_WAIT, MOST_LEASE, MOST_PATIENCE = 60, 600, 86_400

#: Maximum number of characters of a session's id, of a folder, and of the text or the result of a report.
MOST_SESSION, MOST_FOLDER, MOST_TEXT = 256, 1024, 64 * 1024

#: Pattern of names of agents, machines and people. They cannot look like a sentence or reverse the text direction.
_NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.@+\\-]*$"
_NO_NAME = FieldFault("Should have letters of ASCII, digits and _ . @ + - \\ alone", "string_pattern_mismatch")

#: Invisible characters. A text without them is a single line.
_UNPRINTED = r"\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"

OUTCOMES = ("allowed", "refused", "withdrawn", "ran")
STATES = ("pending", "approved", "rejected", "withdrawn", "expired")


def _name(most: int, **options: Any) -> Text:
    return Text(most=most, pattern=_NAME, refused=_NO_NAME, **options)


def _line(most: int, **options: Any) -> Text:
    fault = FieldFault("Should be printable, in one line", "string_pattern_mismatch")
    return Text(most=most, pattern=f"^[^{_UNPRINTED}]*$", refused=fault, **options)


class _StrictRequest(BaseSchema):
    class Meta:
        unknown = RAISE


class AskingAgent(_StrictRequest):
    name = _name(64, required=True, metadata={"description": "Such as `claude-code`, `codex` or `opencode`."})
    version = _line(64, load_default="")
    can_edit = StrictBoolean(
        load_default=False,
        metadata={
            "description": "Whether the agent can run edited arguments, by its own account at the start of its session."
        },
    )


class AskingSession(_StrictRequest):
    """The agent's session. The key, the agent, the host and the id identify a conversation of the kind `external`."""

    id = _line(MOST_SESSION, least=1, required=True)
    cwd = _line(
        MOST_FOLDER, least=1, required=True, metadata={"description": "The working folder, which rules may name."}
    )
    host = _name(253, required=True, metadata={"description": "Name of the machine."})
    user = _name(100, load_default="", allow_none=False, metadata={"description": "User on the machine."})
    mode = _line(64, load_default="", metadata={"description": "The agent's own permission mode, only for display."})
    subagent = _line(
        MOST_SESSION, load_default=None, allow_none=True, metadata={"description": "Id of the asking subagent."}
    )


class _Call(_StrictRequest):
    tool_name = Text(required=True, least=1, most=MOST_CALL_BYTES)
    arguments = fields.Dict(
        required=True, metadata={"description": f"At most {MOST_ARGUMENTS_BYTES} bytes of JSON, as the agent has them."}
    )


class PermissionRequest(_Call):
    """A call for which an agent asks permission."""

    agent = fields.Nested(AskingAgent, required=True)
    session = fields.Nested(AskingSession, required=True)
    complete = StrictBoolean(
        load_default=True,
        metadata={"description": "false: more may run than the arguments show. Only a person may decide it."},
    )
    kind = Choice(
        "permission",
        "gate",
        load_default="permission",
        metadata={"description": "`gate`: no terminal asks; after `expires_in` the request is rejected."},
    )
    order = Choice(
        "races",
        "first",
        load_default="first",
        metadata={"description": "`races`: the terminal asks at the same time; `first`: it asks after the hook."},
    )
    lease_seconds = StrictInteger(
        least=1,
        most=MOST_LEASE,
        load_default=20,
        metadata={"description": "Without a GET for this long the request is withdrawn, because its asker has gone."},
    )
    expires_in = StrictInteger(
        least=1,
        most=MOST_PATIENCE,
        load_default=590,
        metadata={
            "description": "Maximum wait of the hook in seconds. After it the state is `expired`, and only the "
            "terminal can answer; a gate is `rejected`."
        },
    )


class PermissionAnswerer(BaseSchema):
    """The actor of an answer."""

    kind = fields.String(
        required=True,
        metadata={
            "description": "As in the audit: `key`, `person`, `link`, `rule`, `expiry`; `terminal`, by the asker's "
            "account; or `lease`, because its asker has gone."
        },
    )
    name = fields.String(required=True, metadata={"description": "For a terminal: `USER@HOST`."})


class PermissionRequestState(BaseSchema):
    """A permission request and its answer."""

    id = fields.String(required=True, metadata={"description": "Id for the routes of this request."})
    conversation_id = fields.String(required=True, metadata={"format": "uuid"})
    action_id = fields.String(required=True)
    digest = fields.String(required=True, metadata={"description": "Digest of the tool and its arguments."})
    state = fields.String(
        required=True,
        metadata={
            "enum": list(STATES),
            "description": "`approved` and `rejected` are final answers to carry out. `expired`: `expires_in` is "
            "over, so end without an opinion, and let the terminal answer. `withdrawn`: its asker "
            "had gone.",
        },
    )
    decision = fields.String(
        metadata={
            "enum": ["approve", "reject", "edit"],
            "description": "Absent: undecided. `edit`: run `arguments` instead.",
        }
    )
    reason = fields.String(
        metadata={"description": "Reason of the decision, for the agent; may be empty. Absent: none."}
    )
    arguments = fields.Dict(metadata={"description": "Only for an edit."})
    by = fields.Nested(PermissionAnswerer, metadata={"description": "Absent: undecided."})


class PermissionWait(BaseSchema):
    wait = DurationSeconds(
        most=MOST_WAIT,
        load_default=0.0,
        metadata={"description": "Maximum wait for an answer in seconds. Each request renews the lease."},
    )


class PermissionOutcome(_StrictRequest):
    """The outcome of a request at its terminal, by the asker's account."""

    outcome = Choice(
        *OUTCOMES,
        required=True,
        metadata={
            "description": "`allowed`, `refused`: a person decided at the terminal. `withdrawn`: nobody will "
            "answer it. `ran`: the call has run."
        },
    )
    by = Choice("terminal", load_default="terminal")


class PermissionOutcomeOfCall(_Call, PermissionOutcome):
    """The outcome of a call without a request's id: of its oldest open request, else of its newest allowed request."""

    agent = fields.Nested(AskingAgent, required=True)
    session = fields.Nested(AskingSession, required=True)


class PermissionReport(_StrictRequest):
    """A report of an agent: a `prompt`, a finished `call`, or the end of a `turn` or of the session (`end`)."""

    as_a_whole: ClassVar[dict[str, Any]] = {
        "oneOf": [
            {"properties": {"kind": {"const": "prompt"}}, "required": ["text"]},
            {"properties": {"kind": {"const": "call"}}, "required": ["tool_name", "arguments"]},
            {"properties": {"kind": {"enum": ["turn", "end"]}}},
        ]
    }

    agent = fields.Nested(AskingAgent, required=True)
    session = fields.Nested(AskingSession, required=True)
    kind = Choice(
        "prompt",
        "call",
        "turn",
        "end",
        required=True,
        metadata={
            "description": "`turn`: the agent's turn has ended, so requests that only its terminal could answer "
            "and that did not run are withdrawn. `end`: the session has ended."
        },
    )
    text = Text(load_default="", most=MOST_TEXT)
    tool_name = Text(load_default="", most=MOST_CALL_BYTES)
    arguments = fields.Dict(load_default=None, allow_none=True)
    result = fields.Raw(
        load_default=None,
        metadata={"description": f"Any JSON. Of its text the first {MOST_TEXT} characters are kept."},
    )
    is_error = StrictBoolean(load_default=False)

    @validates_schema
    def _whole(self, report: dict[str, Any], **_: Any) -> None:
        of_kind = {"prompt": ("text",), "call": ("tool_name", "arguments")}
        for name in of_kind.get(report.get("kind", ""), ()):
            if report.get(name) in (None, ""):
                fault = FieldFault(f"Field required where the kind is {report['kind']}", "missing")
                raise ValidationError([fault], field_name=name)


class HookQuery(BaseSchema):
    patience = WholeNumber(
        least=1,
        most=MOST_PATIENCE,
        load_default=None,
        metadata={"description": "Maximum wait of the hook in seconds, below the agent's own timeout."},
    )


class HookEvent(BaseSchema):
    """An event of an agent's hook, as the agent sends it."""

    of_agents = True
    as_a_whole: ClassVar[dict[str, Any]] = {"additionalProperties": True}

    class Meta:
        unknown = INCLUDE


class HookAnswer(BaseSchema):
    """The answer in the agent's own format; `{}` is no opinion."""

    as_a_whole: ClassVar[dict[str, Any]] = {"additionalProperties": True}


def read_asking(agent: dict[str, Any], session: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the agent and its session from a hook. Raises ValidationError."""
    return AskingAgent().load(agent), AskingSession().load(session)


def check_call(tool_name: str, arguments: Mapping[str, Any]) -> None:
    """Check a call by what a hook says of it. Raises ValidationError."""
    _Call().load({"tool_name": tool_name, "arguments": dict(arguments)})
