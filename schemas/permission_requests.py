"""Permission requests of agents that run outside of sandboxes, in terminals. Source: docs/approvals.md, "Terminals".

Everything that a request says of its agent, its machine and its person is the asker's word.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from marshmallow import INCLUDE, RAISE, ValidationError, fields, validates_schema

from core.wire import MOST_CALL_BYTES
from schemas.approvals import MOST_ARGUMENTS_BYTES
from schemas.fields import BaseSchema, Choice, Fault, Seconds, StrictBoolean, StrictInteger, Text, WholeNumber

#: Maximum number of seconds of one long poll, of a lease, and for which a hook may wait for an answer.
MOST_WAIT, MOST_LEASE, MOST_PATIENCE = 60, 600, 86_400

#: Maximum number of characters of an id of a session, of a folder, and of the text or the result of a report.
MOST_SESSION, MOST_FOLDER, MOST_TEXT = 256, 1024, 64 * 1024

#: What the names of agents, machines and people match: nothing that reads as a sentence, or turns text around.
_NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.@+\\-]*$"
_NO_NAME = Fault("Should have letters of ASCII, digits and _ . @ + - \\ alone", "string_pattern_mismatch")

#: Characters that do not show as themselves; a text without them is on one line.
_UNPRINTED = r"\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"

OUTCOMES = ("allowed", "refused", "withdrawn", "ran")
STATES = ("pending", "approved", "rejected", "withdrawn", "expired")


def _name(most: int, **options: Any) -> Text:
    return Text(most=most, pattern=_NAME, refused=_NO_NAME, **options)


def _line(most: int, **options: Any) -> Text:
    fault = Fault("Should be printable, in one line", "string_pattern_mismatch")
    return Text(most=most, pattern=f"^[^{_UNPRINTED}]*$", refused=fault, **options)


class _Strict(BaseSchema):
    class Meta:
        unknown = RAISE


class AskingAgent(_Strict):
    name = _name(64, required=True, metadata={"description": "Such as `claude-code`, `codex` or `opencode`."})
    version = _line(64, load_default="")
    can_edit = StrictBoolean(
        load_default=False,
        metadata={"description": "Whether the agent can run edited arguments, as it says when its session begins."},
    )


class AskingSession(_Strict):
    """The agent's session. The key, the agent, the host and the id name one conversation of the kind `external`."""

    id = _line(MOST_SESSION, least=1, required=True)
    cwd = _line(MOST_FOLDER, least=1, required=True, metadata={"description": "The working folder: rules may name it."})
    host = _name(253, required=True, metadata={"description": "Name of the machine."})
    user = _name(100, load_default="", allow_none=False, metadata={"description": "User on the machine."})
    mode = _line(64, load_default="", metadata={"description": "The agent's own permission mode; only shown."})
    subagent = _line(
        MOST_SESSION, load_default=None, allow_none=True, metadata={"description": "Id of the subagent that asks."}
    )


class _Call(_Strict):
    tool_name = Text(required=True, least=1, most=MOST_CALL_BYTES)
    arguments = fields.Dict(
        required=True, metadata={"description": f"At most {MOST_ARGUMENTS_BYTES} bytes of JSON, as the agent has them."}
    )


class PermissionRequest(_Call):
    """A call that an agent asks for."""

    agent = fields.Nested(AskingAgent, required=True)
    session = fields.Nested(AskingSession, required=True)
    complete = StrictBoolean(
        load_default=True,
        metadata={"description": "false: more may run than the arguments show. A person may decide it, no rule."},
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
        metadata={"description": "Without a GET for so long the request is withdrawn: its asker has gone."},
    )
    expires_in = StrictInteger(
        least=1,
        most=MOST_PATIENCE,
        load_default=590,
        metadata={
            "description": "Seconds that the hook waits for an answer. Then the state is `expired`, and the terminal "
            "alone can answer; a gate is `rejected`."
        },
    )


class PermissionAnswerer(BaseSchema):
    """Who answered."""

    kind = fields.String(
        required=True,
        metadata={
            "description": "As in the audit: `key`, `person`, `link`, `rule`, `expiry`, or `terminal`, which is the "
            "asker's own word; `lease`: nobody, its asker has gone."
        },
    )
    name = fields.String(required=True, metadata={"description": "Of a terminal `USER@HOST`."})


class PermissionRequestState(BaseSchema):
    """A permission request and its answer."""

    id = fields.String(required=True, metadata={"description": "For the routes of this request."})
    conversation_id = fields.String(required=True, metadata={"format": "uuid"})
    action_id = fields.String(required=True)
    digest = fields.String(required=True, metadata={"description": "Of the tool and its arguments."})
    state = fields.String(
        required=True,
        metadata={
            "enum": list(STATES),
            "description": "`approved` and `rejected` are the answer: carry it out, whoever gave it. `expired`: "
            "`expires_in` is over, so end without an opinion: the terminal answers. `withdrawn`: its asker had gone.",
        },
    )
    decision = fields.String(
        metadata={
            "enum": ["approve", "reject", "edit"],
            "description": "Absent: not decided. `edit`: run `arguments` instead.",
        }
    )
    reason = fields.String(metadata={"description": "Of the decision, for the agent; may be empty. Absent: none."})
    arguments = fields.Dict(metadata={"description": "Of an edit alone."})
    by = fields.Nested(PermissionAnswerer, metadata={"description": "Absent: not decided."})


class PermissionWait(BaseSchema):
    wait = Seconds(
        most=MOST_WAIT,
        load_default=0.0,
        metadata={"description": "Seconds to wait for an answer. Each request renews the lease."},
    )


class PermissionOutcome(_Strict):
    """What became of a request at its terminal, in the asker's own word."""

    outcome = Choice(
        *OUTCOMES,
        required=True,
        metadata={
            "description": "`allowed`, `refused`: a person said so at the terminal. `withdrawn`: nobody answers it any "
            "more. `ran`: the call has run."
        },
    )
    by = Choice("terminal", load_default="terminal")


class PermissionOutcomeOfCall(_Call, PermissionOutcome):
    """The same of a call without a request's id: the oldest open request of that call, else the newest allowed one."""

    agent = fields.Nested(AskingAgent, required=True)
    session = fields.Nested(AskingSession, required=True)


class PermissionReport(_Strict):
    """What an agent tells besides: a `prompt` with a text, a `call` that has run, or the `end` of the session."""

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
            "description": "`turn`: the agent's turn has ended, so what only its terminal could answer and did not run "
            "is withdrawn. `end`: the session has."
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
                fault = Fault(f"Field required where the kind is {report['kind']}", "missing")
                raise ValidationError([fault], field_name=name)


class HookQuery(BaseSchema):
    patience = WholeNumber(
        least=1,
        most=MOST_PATIENCE,
        load_default=None,
        metadata={"description": "Seconds that the hook waits: below the timeout that the agent gives it."},
    )


class HookEvent(BaseSchema):
    """An event of an agent's hook, as the agent sends it."""

    of_agents = True
    as_a_whole: ClassVar[dict[str, Any]] = {"additionalProperties": True}

    class Meta:
        unknown = INCLUDE


class HookAnswer(BaseSchema):
    """The answer in exactly the agent's form; `{}` is no opinion."""

    as_a_whole: ClassVar[dict[str, Any]] = {"additionalProperties": True}


def read_asking(agent: dict[str, Any], session: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """An agent and its session by what a hook says of them. Raises ValidationError."""
    return AskingAgent().load(agent), AskingSession().load(session)


def check_call(tool_name: str, arguments: Mapping[str, Any]) -> None:
    """Check a call by what a hook says of it. Raises ValidationError."""
    _Call().load({"tool_name": tool_name, "arguments": dict(arguments)})
