"""Sandboxes, their specs, and what they spend on models. Sources: the app-server wire; docs/egress.md, "Budgets"."""

import re
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import datetime
from functools import partial
from typing import Any

from marshmallow import RAISE, ValidationError, fields, post_dump
from marshmallow.utils import get_value

from core.bounds import LEAST_PREVIEW_PORT
from core.masking import REDACTED
from core.prices import SPENT_DAYS
from core.wire import EXECUTION_STATUSES, SANDBOX_STATUSES
from schemas.approval_modes import shown_mode
from schemas.events import MOST_IDS
from schemas.fields import (
    BaseSchema,
    Choice,
    Fault,
    Limit,
    PageId,
    ShownTime,
    StrictInteger,
    Text,
    WholeNumber,
    refusal,
)

#: whether the response to the present request may show session keys, which open an agent server. No argument, for
#: marshmallow hands none to nested schemas: a dump that nobody has allowed to shows none
SHOWS_KEYS: ContextVar[bool] = ContextVar("shows_keys", default=False)

#: the statuses of a sandbox
STATUSES = SANDBOX_STATUSES

#: the ids that a sandbox can have
SANDBOX_ID = "^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$"

#: the detail of a sandbox that nobody has used yet
WARM = "It is warm: the next app conversation of its spec takes it"

#: the detail of a sandbox that is being deleted
LEAVING = "It is being deleted"

#: most lines of a log in one response
MOST_LINES = 10_000


#: a variable whose value is shown to nobody; a URL with a password in it
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASS|PWD|CREDENTIAL|AUTH|PRIVATE|COOKIE|SIGNATURE|CERT|DSN", re.IGNORECASE)
_SECRET_URL = re.compile(r"://[^/@\s:]*+:[^/@\s]++@")


class SpecSearch(BaseSchema):
    start = Text(
        data_key="page_id",
        load_default=None,
        metadata={"minLength": 1, "description": "`next_page_id` of the page before: a spec's id."},
    )
    limit = Limit(100)


class SpecAgent(BaseSchema):
    """The agent that the sandboxes of a spec run."""

    name = fields.String(required=True)
    title = fields.String(required=True, metadata={"description": "Its name for people."})
    version = fields.String(required=True, metadata={"description": "Empty: the spec does not say."})
    asks = fields.Boolean(
        required=True,
        metadata={
            "description": "False: it never asks for permission, so it starts with the policy NeverConfirm alone."
        },
    )
    key = fields.String(
        required=True, metadata={"description": "The variable of the server with the key of its model; empty: none."}
    )
    holds = fields.String(required=True, metadata={"description": "What asking holds, in words."})
    passes = fields.String(
        required=True, metadata={"description": "What it does without asking, which only the way out holds, in words."}
    )


class MissingInfo(BaseSchema):
    """What an agent lacks before it thinks."""

    what = fields.String(
        required=True,
        metadata={
            "enum": ["model", "key"],
            "description": "`model`: it only runs lines that begin with `run: `. `key`: its model gets none.",
        },
    )
    words = fields.String(required=True, metadata={"description": "For people; code stands in backticks."})
    command = fields.String(required=True, metadata={"description": "What starts the server with it."})


class SandboxSpecInfo(BaseSchema):
    """A template of sandboxes."""

    id = fields.String(required=True)
    command = fields.List(fields.String(), required=True, metadata={"description": "argv."})
    created_at = fields.Function(
        lambda spec: spec.created_at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        metadata={"type": "string", "format": "date-time"},
    )
    initial_env = fields.Function(
        lambda spec: {
            **{name: _shown(name, text) for name, text in spec.initial_env.items()},
            **_masked(spec.secret_env),
        },
        metadata={
            "type": "object",
            "additionalProperties": {"type": "string"},
            "description": f"Its environment; `{REDACTED}` stands for each value that is secret, or may be by its "
            "name.",
        },
    )
    working_dir = fields.String(required=True)
    agent = fields.Nested(
        SpecAgent, required=True, allow_none=True, metadata={"description": "Null: the spec does not name its agent."}
    )
    approval_mode = shown_mode(lambda spec: spec.conversation)
    missing = fields.Nested(
        MissingInfo, required=True, allow_none=True, metadata={"description": "Null: nothing that the server knows of."}
    )


def _shown(name: str, text: str) -> str:
    """The value of a variable, masked where its name or its form says that it is secret."""
    return REDACTED if _SECRET_NAME.search(name) or _SECRET_URL.search(text) else text


def _masked(variables: Mapping[str, str]) -> dict[str, str]:
    return dict.fromkeys(variables, REDACTED)


class SandboxSpecPage(BaseSchema):
    items = fields.List(fields.Nested(SandboxSpecInfo), required=True)
    next_page_id = fields.String(required=True, allow_none=True)


class StartSandbox(BaseSchema):
    sandbox_spec_id = Text(metadata={"description": "Absent: that of the sandbox that is copied, else the first spec."})
    source = Text(
        data_key="from",
        metadata={
            "description": "Where its files come from: the id of a sandbox, which is copied, or `archive`, which is "
            "the body of the request. Absent: it has none."
        },
    )


class SandboxPageStart(PageId):
    """The cursor of a page of sandboxes, which have one order: a time in µs and an id; loaded as that pair."""

    def __init__(self) -> None:
        super().__init__(f"[0-9]{{1,16}}-{SANDBOX_ID.strip('^$')}")

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> Any:
        at, _, identity = value.partition("-")
        if not (at.isascii() and at.isdigit() and len(at) <= 16 and is_sandbox_id(identity)):
            raise refusal("Unknown cursor: page_id must be a next_page_id of this search", "value_error")
        return int(at), identity


class SandboxSearch(BaseSchema):
    start = SandboxPageStart()
    limit = Limit(100)
    status = Choice(*STATUSES, data_key="status__eq", load_default=None)
    spec_id = Text(data_key="sandbox_spec_id__eq", load_default=None)


class DeleteSandbox(BaseSchema):
    sandbox_id = Text(
        load_default=None, metadata={"description": "The id of the path again, as existing clients send it."}
    )


class LogTail(BaseSchema):
    tail = WholeNumber(
        least=1,
        most=MOST_LINES,
        load_default=100,
        metadata={"description": "The number of lines, from the end of the log, below one that counts the others."},
    )


class Isolation(BaseSchema):
    """What keeps a sandbox away from its host, and what does not. docs/isolation.md explains the kinds."""

    kind = fields.String(required=True, metadata={"enum": ["bubblewrap", "landlock", "container", "none"]})
    network = fields.String(
        required=True,
        metadata={
            "enum": ["internet", "named", "none", "host"],
            "description": "`internet`: without the host's loopback, unless `reaches` says so; `named`: the way out by "
            "name alone (docs/egress.md); `host`: the host's own.",
        },
    )
    reaches = fields.List(
        fields.String(), required=True, metadata={"description": "Sentences: what it is not kept away from."}
    )
    lacks = fields.List(
        fields.String(), required=True, metadata={"description": "Sentences: what is missing here, and why."}
    )


class ExposedUrl(BaseSchema):
    name = fields.String(required=True, metadata={"example": "AGENT_SERVER"})
    url = fields.String(required=True)
    port = fields.Integer(required=True)


class StrayConversation(BaseSchema):
    """A conversation of a sandbox's agent server, as that describes it."""

    id = fields.String(required=True, metadata={"format": "uuid"})
    title = fields.String(required=True, allow_none=True)
    execution_status = fields.String(required=True, allow_none=True, metadata={"enum": [*EXECUTION_STATUSES, None]})


class StrayConversations(BaseSchema):
    """Those that the agent server of a sandbox has, and this server does not show until they are adopted."""

    count = fields.Integer(required=True, metadata={"description": "Among the 1,000 newest of the agent server."})
    newest = fields.List(fields.Nested(StrayConversation), required=True, metadata={"maxItems": 20})


class SandboxInfo(BaseSchema):
    """A sandbox. Key, URLs and what it uses are null unless it is RUNNING; who may not approve is shown no key.

    The key of a warm one, which nobody has used yet, is null too.
    """

    id = fields.String(required=True)
    created_by_user_id = fields.Constant(None)
    sandbox_spec_id = fields.String(required=True, attribute="spec_id")
    status = fields.String(required=True, metadata={"enum": list(STATUSES)})
    session_api_key = fields.String(allow_none=True, attribute="shown_key")
    exposed_urls = fields.List(fields.Nested(ExposedUrl), attribute="urls", allow_none=True)
    created_at = ShownTime(format=None)
    status_detail = fields.Function(
        lambda sandbox: sandbox.detail or (LEAVING if sandbox.leaving else WARM if sandbox.warm else None),
        metadata={"type": ["string", "null"], "description": "What happened to it, and what one can do."},
    )
    status_since = ShownTime("When it got its present status.", attribute="changed_at", format=None)
    host = fields.Function(
        lambda sandbox: sandbox.host or None,
        metadata={"type": ["string", "null"], "description": "Id of the host that has it; null: none has taken it."},
    )
    disk_bytes = fields.Integer(
        allow_none=True, metadata={"description": "What its files take on the disk, as measured last."}
    )
    memory_bytes = fields.Integer(
        allow_none=True, metadata={"description": "What its processes take now; null unless it is RUNNING."}
    )
    cpu_cores = fields.Float(
        allow_none=True,
        metadata={"description": "Processor cores that its processes keep busy now; null unless it is RUNNING."},
    )
    isolation = fields.Nested(Isolation, attribute="isolated_by", allow_none=True, required=True)
    stray_conversations = fields.Nested(
        StrayConversations,
        attribute="strays",
        allow_none=True,
        required=True,
        metadata={
            "description": "Conversations that a client began at its agent server, as found last; null: not asked yet."
        },
    )

    @post_dump(pass_original=True)
    def _hide_unless_running(self, sandbox: dict[str, Any], original: Any, **_: Any) -> dict[str, Any]:
        if running(original, True) is None:
            sandbox |= dict.fromkeys(("session_api_key", "exposed_urls", "memory_bytes", "cpu_cores"))
        if not SHOWS_KEYS.get():
            sandbox["session_api_key"] = None
        return sandbox


def running(sandbox: Any, value: Any) -> Any:
    """A value that clients see only while the sandbox is RUNNING and stays; None otherwise."""
    return value if sandbox is not None and sandbox.status == "RUNNING" and not sandbox.leaving else None


class SandboxPage(BaseSchema):
    items = fields.List(fields.Nested(SandboxInfo), required=True)
    next_page_id = fields.String(required=True, allow_none=True)


class SandboxLog(BaseSchema):
    log = fields.String(required=True, metadata={"description": "The last lines of the log."})


class PreviewRequest(BaseSchema):
    """A port to show."""

    class Meta:
        unknown = RAISE

    port = StrictInteger(required=True, least=LEAST_PREVIEW_PORT, most=65535)


class PreviewAddress(BaseSchema):
    """Where a port is shown."""

    url = fields.String(required=True, metadata={"description": "Opens the preview in one browser, once."})
    expires_at = fields.String(required=True, metadata={"format": "date-time", "description": "Until when it does."})


class ListeningPorts(BaseSchema):
    """The ports that can be shown."""

    ports = fields.List(
        fields.Integer(), required=True, metadata={"description": "Those at which programs of the sandbox listen."}
    )
    programs = fields.Dict(
        keys=fields.String(),
        values=fields.String(),
        required=True,
        metadata={"description": "The command line of the program at a port, where the agent server tells it."},
    )


def is_sandbox_id(text: str) -> bool:
    """Whether a sandbox could have that id."""
    return bool(re.fullmatch(SANDBOX_ID, text))


def read_names(names: list[str]) -> list[str]:
    """The ids of a batch get of sandboxes or specs. Raises ValidationError."""
    if not names:
        raise ValidationError(["Missing data for required field."])
    if len(names) > MOST_IDS:
        raise refusal(f"At most {MOST_IDS} ids", "too_long")
    return names


#: the id of a sandbox that a client names
SandboxName = partial(Text, pattern=SANDBOX_ID, refused=Fault("Input should be the id of a sandbox", "value_error"))


class _Day(fields.String):
    """A day in UTC, as in 2026-11-26."""

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return datetime.strptime(value, "%Y-%m-%d").date()
        except ValueError:
            raise refusal("Input should be a day, such as 2026-11-26", "value_error") from None


class DaySearch(BaseSchema):
    day = _Day(
        load_default=None,
        metadata={"format": "date", "description": f"In UTC; absent: today. A day is kept for {SPENT_DAYS} days."},
    )


class Spending(BaseSchema):
    """What was spent on models through the way out, as the models' responses say it."""

    calls = fields.Integer(required=True)
    refused = fields.Integer(required=True, metadata={"description": "Calls that a budget refused."})
    estimated = fields.Integer(
        required=True, metadata={"description": "Calls whose response did not say what it used, or broke off before."}
    )
    input_tokens = fields.Integer(
        required=True, attribute="input", metadata={"description": "Neither read from a cache nor written to one."}
    )
    output_tokens = fields.Integer(required=True, attribute="output")
    cached_tokens = fields.Integer(required=True, attribute="cached", metadata={"description": "Read from a cache."})
    written_tokens = fields.Integer(required=True, attribute="written", metadata={"description": "Written to a cache."})
    tokens = fields.Integer(required=True, metadata={"description": "Of all four kinds."})
    dollars = fields.Function(
        lambda spending: get_value(spending, "nanos") / 1e9,
        metadata={"type": "number", "description": "By the prices of models, in US dollars."},
    )
    unpriced_tokens = fields.Integer(
        required=True,
        attribute="unpriced",
        metadata={"description": "Of models whose price is not known: `dollars` lacks what they cost."},
    )
    allowed_dollars = fields.Function(
        lambda spending: get_value(spending, "allowed_nanos") / 1e9,
        metadata={"type": "number", "description": "What people have allowed beyond the budget, in US dollars."},
    )
    allowed_tokens = fields.Integer(required=True, metadata={"description": "The same in tokens."})


class Budget(BaseSchema):
    """The most that may be spent."""

    dollars = fields.Function(
        lambda budget: None if budget.nanos is None else budget.nanos / 1e9,
        metadata={"type": ["number", "null"], "description": "Null: no bound."},
    )
    tokens = fields.Integer(required=True, allow_none=True, metadata={"description": "Null: no bound."})


class SandboxSpending(Spending):
    """What one sandbox has spent so far."""

    budget = fields.Nested(Budget, required=True, metadata={"description": "MODEL_BUDGET_CONVERSATION"})


class KeySpending(Spending):
    """What the sandboxes of one key have spent on a day."""

    key_id = fields.String(required=True, metadata={"description": "Of the key that started them; empty: nobody's."})


class DaySpending(BaseSchema):
    """What was spent on a day in UTC."""

    day = fields.String(required=True, metadata={"format": "date"})
    all = fields.Nested(Spending, required=True)
    keys = fields.List(fields.Nested(KeySpending), required=True, metadata={"description": "The most expensive first."})
    budget = fields.Nested(Budget, required=True, metadata={"description": "Of all in a day: MODEL_BUDGET_DAY"})
    budget_of_key = fields.Nested(
        Budget, required=True, metadata={"description": "Of each key in a day: MODEL_BUDGET_KEY"}
    )
