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
    FieldFault,
    PageId,
    PageLimit,
    ShownTime,
    StrictInteger,
    Text,
    WholeNumber,
    refusal,
)

#: Whether the response to the current request may show session keys, which give access to an agent server. Not an
#: argument, because marshmallow passes none to nested schemas. By default no key is shown.
SHOWS_KEYS: ContextVar[bool] = ContextVar("shows_keys", default=False)

#: Statuses of a sandbox.
STATUSES = SANDBOX_STATUSES

#: Pattern of the id of a sandbox.
SANDBOX_ID = "^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$"

#: Detail of a sandbox that is not used yet.
WARM = "It is warm: the next app conversation of its spec takes it"

#: Detail of a sandbox that is being deleted.
LEAVING = "It is being deleted"

#: Maximum number of lines of a log in a response.
MOST_LINES = 10_000


#: Variables whose values are secret, and URLs with a password.
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASS|PWD|CREDENTIAL|AUTH|PRIVATE|COOKIE|SIGNATURE|CERT|DSN", re.IGNORECASE)
_SECRET_URL = re.compile(r"://[^/@\s:]*+:[^/@\s]++@")


class SpecSearch(BaseSchema):
    start = Text(
        data_key="page_id",
        load_default=None,
        metadata={"minLength": 1, "description": "`next_page_id` of the previous page: a spec's id."},
    )
    limit = PageLimit(100)


class SpecAgent(BaseSchema):
    """The agent of a spec's sandboxes."""

    name = fields.String(required=True)
    title = fields.String(required=True, metadata={"description": "Display name."})
    version = fields.String(required=True, metadata={"description": "Empty: not in the spec."})
    asks = fields.Boolean(
        required=True,
        metadata={
            "description": "False: it never asks for permission, so it only starts with the policy NeverConfirm."
        },
    )
    key = fields.String(
        required=True, metadata={"description": "Server variable with the key of its model; empty: none."}
    )
    holds = fields.String(required=True, metadata={"description": "Actions that wait for a decision, in words."})
    passes = fields.String(
        required=True,
        metadata={"description": "Actions without asking, which only the egress proxy restricts, in words."},
    )


class MissingInfo(BaseSchema):
    """The missing requirement of an agent that cannot think."""

    what = fields.String(
        required=True,
        metadata={
            "enum": ["model", "key"],
            "description": "`model`: it only runs lines that begin with `run: `. `key`: its model gets no key.",
        },
    )
    words = fields.String(required=True, metadata={"description": "Description for people, with code in backticks."})
    command = fields.String(required=True, metadata={"description": "Command that starts the server with it."})


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
            **{name: _masked_value(name, text) for name, text in spec.initial_env.items()},
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
    agent = fields.Nested(SpecAgent, required=True, allow_none=True, metadata={"description": "Null: not in the spec."})
    approval_mode = shown_mode(lambda spec: spec.conversation)
    missing = fields.Nested(
        MissingInfo, required=True, allow_none=True, metadata={"description": "Null: nothing is known to be missing."}
    )


def _masked_value(name: str, text: str) -> str:
    """Return the value of a variable, masked if its name or its form indicates a secret."""
    return REDACTED if _SECRET_NAME.search(name) or _SECRET_URL.search(text) else text


def _masked(variables: Mapping[str, str]) -> dict[str, str]:
    return dict.fromkeys(variables, REDACTED)


class SandboxSpecPage(BaseSchema):
    items = fields.List(fields.Nested(SandboxSpecInfo), required=True)
    next_page_id = fields.String(required=True, allow_none=True)


class StartSandboxQuery(BaseSchema):
    sandbox_spec_id = Text(metadata={"description": "Absent: the spec of the copied sandbox, else the first spec."})
    source = Text(
        data_key="from",
        metadata={
            "description": "Source of its files: the id of a sandbox to copy, or `archive` for the request's body. "
            "Absent: no files."
        },
    )


class SandboxPageStart(PageId):
    """The cursor of a page of sandboxes, which have one order: a time in µs and an id. Loaded as that pair."""

    def __init__(self) -> None:
        super().__init__(f"[0-9]{{1,16}}-{SANDBOX_ID.strip('^$')}")

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> Any:
        at, _, identity = value.partition("-")
        if not (at.isascii() and at.isdigit() and len(at) <= 16 and is_sandbox_id(identity)):
            raise refusal("Unknown cursor: page_id must be a next_page_id of this search", "value_error")
        return int(at), identity


class SandboxSearch(BaseSchema):
    start = SandboxPageStart()
    limit = PageLimit(100)
    status = Choice(*STATUSES, data_key="status__eq", load_default=None)
    spec_id = Text(data_key="sandbox_spec_id__eq", load_default=None)


class DeleteSandbox(BaseSchema):
    sandbox_id = Text(load_default=None, metadata={"description": "The id of the path, as existing clients send it."})


class LogTail(BaseSchema):
    tail = WholeNumber(
        least=1,
        most=MOST_LINES,
        load_default=100,
        metadata={
            "description": "Number of lines from the end of the log. A line before them counts the omitted lines."
        },
    )


class Isolation(BaseSchema):
    """The isolation of a sandbox from its host. docs/isolation.md explains the kinds."""

    kind = fields.String(required=True, metadata={"enum": ["bubblewrap", "landlock", "container", "none"]})
    network = fields.String(
        required=True,
        metadata={
            "enum": ["internet", "named", "none", "host"],
            "description": "`internet`: without the host's loopback, unless `reaches` says so. `named`: only "
            "allowed names, through the egress proxy (docs/egress.md). `host`: the host's own "
            "network.",
        },
    )
    reaches = fields.List(fields.String(), required=True, metadata={"description": "What it can reach, in sentences."})
    lacks = fields.List(
        fields.String(),
        required=True,
        metadata={"description": "What isolation lacks on this host, and why, in sentences."},
    )


class ExposedUrl(BaseSchema):
    name = fields.String(required=True, metadata={"example": "AGENT_SERVER"})
    url = fields.String(required=True)
    port = fields.Integer(required=True)


class StrayConversation(BaseSchema):
    """A conversation of a sandbox's agent server, by its description."""

    id = fields.String(required=True, metadata={"format": "uuid"})
    title = fields.String(required=True, allow_none=True)
    execution_status = fields.String(required=True, allow_none=True, metadata={"enum": [*EXECUTION_STATUSES, None]})


class StrayConversations(BaseSchema):
    """Conversations that only the agent server of a sandbox has. This server hides them until they are adopted."""

    count = fields.Integer(
        required=True, metadata={"description": "Number among the 1,000 newest conversations of the agent server."}
    )
    newest = fields.List(fields.Nested(StrayConversation), required=True, metadata={"maxItems": 20})


class SandboxInfo(BaseSchema):
    """A sandbox. Key, URLs and resource use are null unless it is RUNNING. The key needs the scope `approve`.

    The key of a warm sandbox, which is still unused, is null too.
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
        metadata={"type": ["string", "null"], "description": "What happened to it, and what to do."},
    )
    status_since = ShownTime("Time of its last change of status.", attribute="changed_at", format=None)
    host = fields.Function(
        lambda sandbox: sandbox.host or None,
        metadata={"type": ["string", "null"], "description": "Id of its host; null: no host has claimed it."},
    )
    disk_bytes = fields.Integer(
        allow_none=True, metadata={"description": "Disk use of its files at the last measurement."}
    )
    memory_bytes = fields.Integer(
        allow_none=True, metadata={"description": "Current memory use of its processes; null unless it is RUNNING."}
    )
    cpu_cores = fields.Float(
        allow_none=True,
        metadata={"description": "Processor cores that its processes currently use; null unless it is RUNNING."},
    )
    isolation = fields.Nested(Isolation, attribute="isolated_by", allow_none=True, required=True)
    stray_conversations = fields.Nested(
        StrayConversations,
        attribute="strays",
        allow_none=True,
        required=True,
        metadata={
            "description": "Conversations that a client began at its agent server, from the last poll; null: not "
            "polled yet."
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
    """Return a value while the sandbox is RUNNING and not being deleted; None otherwise."""
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
    """The address of a preview."""

    url = fields.String(required=True, metadata={"description": "Opens the preview in a browser, once."})
    expires_at = fields.String(
        required=True, metadata={"format": "date-time", "description": "Time when the address expires."}
    )


class ListeningPorts(BaseSchema):
    """The ports that can be shown."""

    ports = fields.List(
        fields.Integer(), required=True, metadata={"description": "Ports at which programs of the sandbox listen."}
    )
    programs = fields.Dict(
        keys=fields.String(),
        values=fields.String(),
        required=True,
        metadata={"description": "Port → command line of its program, if the agent server reports it."},
    )


def is_sandbox_id(text: str) -> bool:
    """Return whether a sandbox could have the id."""
    return bool(re.fullmatch(SANDBOX_ID, text))


def read_names(names: list[str]) -> list[str]:
    """Return the ids of a batch get of sandboxes or specs. Raises ValidationError."""
    if not names:
        raise ValidationError(["Missing data for required field."])
    if len(names) > MOST_IDS:
        raise refusal(f"At most {MOST_IDS} ids", "too_long")
    return names


#: The id of a sandbox in a request.
SandboxName = partial(
    Text, pattern=SANDBOX_ID, refused=FieldFault("Input should be the id of a sandbox", "value_error")
)


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
    """Spending on models through the egress proxy, as the models' responses report it."""

    calls = fields.Integer(required=True)
    refused = fields.Integer(required=True, metadata={"description": "Calls that a budget refused."})
    estimated = fields.Integer(
        required=True, metadata={"description": "Calls whose response did not report its use, or broke off before."}
    )
    input_tokens = fields.Integer(
        required=True,
        attribute="input",
        metadata={"description": "Tokens that are neither read from nor written to a cache."},
    )
    output_tokens = fields.Integer(required=True, attribute="output")
    cached_tokens = fields.Integer(
        required=True, attribute="cached", metadata={"description": "Tokens read from a cache."}
    )
    written_tokens = fields.Integer(
        required=True, attribute="written", metadata={"description": "Tokens written to a cache."}
    )
    tokens = fields.Integer(required=True, metadata={"description": "Tokens of all four kinds."})
    dollars = fields.Function(
        lambda spending: get_value(spending, "nanos") / 1e9,
        metadata={"type": "number", "description": "Cost by the prices of models, in US dollars."},
    )
    unpriced_tokens = fields.Integer(
        required=True,
        attribute="unpriced",
        metadata={"description": "Tokens of models without a price, whose cost is missing in `dollars`."},
    )
    allowed_dollars = fields.Function(
        lambda spending: get_value(spending, "allowed_nanos") / 1e9,
        metadata={"type": "number", "description": "Amount that people allowed beyond the budget, in US dollars."},
    )
    allowed_tokens = fields.Integer(
        required=True, metadata={"description": "Amount that people allowed beyond the budget, in tokens."}
    )


class Budget(BaseSchema):
    """A spending limit."""

    dollars = fields.Function(
        lambda budget: None if budget.nanos is None else budget.nanos / 1e9,
        metadata={"type": ["number", "null"], "description": "Null: no limit."},
    )
    tokens = fields.Integer(required=True, allow_none=True, metadata={"description": "Null: no limit."})


class SandboxSpending(Spending):
    """The spending of a sandbox so far."""

    budget = fields.Nested(Budget, required=True, metadata={"description": "MODEL_BUDGET_CONVERSATION"})


class KeySpending(Spending):
    """The spending of a key's sandboxes on a day."""

    key_id = fields.String(required=True, metadata={"description": "Id of the key that started them; empty: no key."})


class DaySpending(BaseSchema):
    """The spending on a day in UTC."""

    day = fields.String(required=True, metadata={"format": "date"})
    all = fields.Nested(Spending, required=True)
    keys = fields.List(fields.Nested(KeySpending), required=True, metadata={"description": "The most expensive first."})
    budget = fields.Nested(
        Budget, required=True, metadata={"description": "Daily budget of all sandboxes: MODEL_BUDGET_DAY"}
    )
    budget_of_key = fields.Nested(
        Budget, required=True, metadata={"description": "Daily budget of each key: MODEL_BUDGET_KEY"}
    )
