"""App conversations, their start tasks, their folders and their use of models. Source: the app-server wire."""

from typing import Any, ClassVar
from uuid import UUID

from marshmallow import ValidationError, fields, post_load, validate, validates_schema

from core.cuts import beginning
from core.masking import redacted
from core.repositories import CLONED, clone_fault
from core.wire import MOST_REPOSITORY, MOST_TITLE
from schemas.approval_modes import mode_choice, shown_mode
from schemas.approvals import ConfirmationSeconds
from schemas.audit import ActionDecision
from schemas.conversations import REDACTED, SET_ELSEWHERE, Secrets, Tags
from schemas.events import (
    PAGE_ID,
    ContentPart,
    EventFilterQuery,
    EventPage,
    SendMessageRequest,
    SentMessage,
    require_content,
    text_filter,
)
from schemas.fields import (
    BaseSchema,
    ChangedElsewhere,
    Choice,
    FieldFault,
    Id,
    Instant,
    ListingOrder,
    OrderedSearch,
    PageLimit,
    PlaceId,
    ShownTime,
    SortOrder,
    StrictBoolean,
    Text,
    Title,
    refusal,
)
from schemas.sandboxes import SHOWS_KEYS, STATUSES, SandboxName, running

_PROVIDERS = ("github", "gitlab", "bitbucket", "bitbucket_data_center", "forgejo", "azure_devops", "enterprise_sso")
_TRIGGERS = (
    "resolver",
    "gui",
    "suggested_task",
    "openhands_api",
    "slack",
    "microagent_management",
    "jira",
    "jira_dc",
    "linear",
    "bitbucket",
    "automation",
)
START_STATUSES = (
    "WORKING",
    "WAITING_FOR_SANDBOX",
    "PREPARING_REPOSITORY",
    "RUNNING_SETUP_SCRIPT",
    "SETTING_UP_GIT_HOOKS",
    "SETTING_UP_SKILLS",
    "STARTING_CONVERSATION",
    "READY",
    "ERROR",
)
_NULLABLE = {"type": ["string", "null"]}


#: Members of the published start that this server ignores. The detail of the start names them.
_NOT_DONE = (
    *("plugins", "suggested_task", "agent_profile_id", "system_message_suffix", "system_prompt", "disabled_skills"),
)

#: Maximum number of characters of a path.
_MOST_PATH = 4096

#: Maximum number of characters of the text of a commit or a pull request.
_MOST_DESCRIPTION = 20_000

#: Branch names that Git accepts, of plain characters.
_BRANCH = r"(?!.*(?:\.\.|//|/\.|\.lock(?:/|$)|[/.]$))[A-Za-z0-9][A-Za-z0-9._/+-]*"

_BRANCH_FAULT = FieldFault(
    "String should be a name of a branch: letters, digits and . _ / + -, such as agent/mend-the-parser", "value_error"
)

#: Maximum number of characters of a pushed branch's name: a file name, minus Git's additions.
_MOST_BRANCH = 200

_SUMS = ("prompt_tokens", "completion_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens")


def bare(identity: str | None) -> str | None:
    """Return an id in the form of the app-server wire: 32 digits, no dashes."""
    return UUID(identity).hex if identity else None


class TitleOfStart(Text):
    """A title of any length, truncated with a mark: older web clients send a whole message as the title of a start."""

    def __init__(self, **kwargs: Any) -> None:
        description = f"A longer one than {MOST_TITLE} characters is cut, and ends in `…`."
        super().__init__(allow_none=True, least=1, metadata={"description": description}, **kwargs)

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> str:
        return beginning(super()._deserialize(value, *args, **kwargs), MOST_TITLE)


class Repository(Text):
    """The repository of a start, which responses show."""

    def __init__(self, **kwargs: Any) -> None:
        metadata = {"pattern": CLONED, **kwargs.pop("metadata", {})}
        super().__init__(allow_none=True, most=MOST_REPOSITORY, metadata=metadata, **kwargs)

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> str:
        repository: str = super()._deserialize(value, *args, **kwargs)
        if redacted(repository) != repository:
            raise refusal(
                "A URL with a password would be stored and shown. Send it without the password, and let "
                "a service add the credential (docs/egress.md)",
                "value_error",
            )
        if fault := clone_fault(repository, None):
            raise refusal(fault, "value_error")
        return repository


class InitialMessage(SendMessageRequest):
    """The first message of a conversation. It starts the agent unless `run` is false."""

    run = StrictBoolean(load_default=True)


class AppConversationStartRequest(ChangedElsewhere):
    """A new app conversation. All members are optional. Unknown members are ignored; the detail names some of them."""

    body_optional = True
    elsewhere: ClassVar[dict[str, str]] = {
        name: f"the spec of the sandbox sets it, and {SET_ELSEWHERE[name].removesuffix(' it')} another one"
        for name in ("confirmation_policy", "security_analyzer")
    }

    sandbox_id = SandboxName(allow_none=True, metadata={"description": "An existing sandbox; absent: a new sandbox."})
    sandbox_spec_id = Text(
        allow_none=True, metadata={"description": "The spec of a new sandbox; absent: the first spec."}
    )
    conversation_id = Id(allow_none=True)
    initial_message = fields.Nested(InitialMessage, allow_none=True)
    title = TitleOfStart()
    tags = Tags(allow_none=True)
    llm_model = Text(allow_none=True, most=256, metadata={"description": "Replaces the model of the spec."})
    selected_repository = Repository(
        metadata={
            "description": "`OWNER/NAME` at the `git_provider`, by default GitHub, or a URL. It is cloned into a "
            "folder of its name in the working folder. If the clone fails, the start fails with the "
            "reason in its detail."
        },
    )
    selected_branch = Text(allow_none=True, most=MOST_REPOSITORY)
    git_provider = Choice(*_PROVIDERS, allow_none=True)
    trigger = Choice(*_TRIGGERS, allow_none=True)
    pr_number = fields.List(fields.Integer(strict=True), load_default=list)
    parent_conversation_id = Id(
        allow_none=True, metadata={"description": "The sandbox, repository and model default to the parent's."}
    )
    agent_type = Choice("default", "plan", load_default="default")
    public = StrictBoolean(allow_none=True)
    confirmation_seconds = ConfirmationSeconds("Absent or null: the default of the spec or the server.")
    approval_mode = mode_choice(
        "Which actions wait for a decision; absent: the spec's policy. A less strict mode needs "
        "the scope `approve`. GET /api/v1/approval-modes lists the modes.",
        allow_none=True,
    )
    secrets = Secrets(allow_none=True)
    goes_on_when_allowed = StrictBoolean(
        allow_none=True,
        metadata={
            "description": "Whether the agent is told and continues after a destination or a budget that stopped "
            "it is allowed. Absent or null: true."
        },
    )
    failed_start_id = Id(
        allow_none=True,
        metadata={
            "description": "A failed start task that this start repeats without its repository. An event of the "
            "new conversation reports why the repository is missing."
        },
    )

    @validates_schema
    def _require_host(self, request: dict[str, Any], **_: Any) -> None:
        repository, provider = request.get("selected_repository"), request.get("git_provider")
        if repository and (fault := clone_fault(repository, provider)):
            raise ValidationError({"selected_repository": [FieldFault(fault, "value_error")]})

    @post_load(pass_original=True)
    def _with_ignored(self, request: dict[str, Any], given: Any, **_: Any) -> dict[str, Any]:
        ignored = [name for name in _NOT_DONE if given.get(name)] if isinstance(given, dict) else []
        return {**request, "ignored": ignored} if ignored else request


def echo(request: dict[str, Any]) -> dict[str, Any]:
    """Return a start request without its secrets, for clients."""
    secrets = request.get("secrets")
    shown = {name: request.get(name) for name in AppConversationStartRequest().fields if name != "secrets"}
    return shown | {"secrets": dict.fromkeys(secrets, REDACTED) if secrets else None}


class AppConversationStartTask(BaseSchema):
    """The start of an app conversation, which a supervisor drives until it is READY or ERROR."""

    id = fields.String(required=True)
    created_by_user_id = fields.Constant(None)
    status = fields.String(required=True, metadata={"enum": list(START_STATUSES)})
    detail = fields.Function(lambda task: task.detail or None, metadata=_NULLABLE)
    failure_status = fields.Function(
        lambda task: task.failure.status if task.failure else None,
        metadata={
            "type": ["integer", "null"],
            "description": "For ERROR: the HTTP status of its cause, such as 429 if no place became free.",
        },
    )
    failed_in = fields.Function(
        lambda task: task.failed_in or None,
        metadata={
            "type": ["string", "null"],
            "enum": [*START_STATUSES[:-2], None],
            "description": "For ERROR: the previous status, such as PREPARING_REPOSITORY if its repository was not "
            "cloned.",
        },
    )
    app_conversation_id = fields.Function(lambda task: bare(task.app_conversation_id), metadata=_NULLABLE)
    sandbox_id = fields.Function(lambda task: task.sandbox_id or None, metadata=_NULLABLE)
    agent_server_url = fields.Function(lambda task: task.agent_server_url or None, metadata=_NULLABLE)
    request = fields.Dict(required=True)
    created_at = ShownTime(format=None)
    updated_at = ShownTime(format=None)


class AppConversationStartTaskPage(BaseSchema):
    items = fields.List(fields.Nested(AppConversationStartTask), required=True)
    next_page_id = fields.String(required=True, allow_none=True)


class StartTaskFilter(BaseSchema):
    conversation_id = Id(data_key="conversation_id__eq", load_default=None)
    since = Instant(data_key="created_at__gte", load_default=None)


class StartTaskSearch(StartTaskFilter, OrderedSearch):
    order = ListingOrder("CREATED_AT", "UPDATED_AT")

    @post_load
    def _read_order(self, search: dict[str, Any], **_: Any) -> dict[str, Any]:
        search = super()._read_order(search)
        start = search["start"]
        return {**search, "start": start and (start[0], bare(start[1]))}  # ids of start tasks have no dashes


class AppConversationFilter(BaseSchema):
    title = fields.String(data_key="title__contains", load_default=None)
    created_since = Instant(data_key="created_at__gte", load_default=None)
    created_until = Instant(data_key="created_at__lt", load_default=None)
    updated_since = Instant(data_key="updated_at__gte", load_default=None)
    updated_until = Instant(data_key="updated_at__lt", load_default=None)
    sandbox_id = Text(data_key="sandbox_id__eq", load_default=None)
    with_children = fields.Boolean(data_key="include_sub_conversations", load_default=False)


class AppConversationSearch(AppConversationFilter, OrderedSearch):
    order = ListingOrder("CREATED_AT", "UPDATED_AT", "TITLE")
    start = PlaceId(by_title=True)


class UpdateAppConversationRequest(ChangedElsewhere):
    """Changes of an app conversation. Absent members are unchanged. Null removes a member, except title and tags."""

    elsewhere = SET_ELSEWHERE

    title = Title()
    public = StrictBoolean(allow_none=True)
    selected_repository = Repository()
    selected_branch = Text(allow_none=True, most=MOST_REPOSITORY)
    git_provider = Choice(*_PROVIDERS, allow_none=True)
    tags = Tags(allow_none=True)
    confirmation_seconds = ConfirmationSeconds("Null: reset to the default. Needs the scope `approve`.")
    goes_on_when_allowed = StrictBoolean(
        allow_none=True, metadata={"description": "As in the start. Null: reset to the default."}
    )

    @post_load
    def _without_nulls(self, request: dict[str, Any], **_: Any) -> dict[str, Any]:
        return {name: value for name, value in request.items() if value is not None or name not in ("title", "tags")}


class SendAppMessageRequest(SentMessage):
    """A message for the agent. It starts the agent unless `run` is false."""

    content = fields.List(ContentPart(), required=True, validate=[validate.Length(min=1), require_content])
    run = StrictBoolean(load_default=True)


class SendAppMessageResult(BaseSchema):
    success = fields.Boolean(required=True)
    sandbox_status = fields.String(required=True)
    message = fields.String(required=True, allow_none=True)


def _of_app(name: str, **metadata: Any) -> fields.Function:
    return fields.Function(lambda state: state["app"].get(name), metadata=metadata or _NULLABLE)


class AppConversation(BaseSchema):
    """A conversation that runs in a sandbox."""

    id = fields.Function(lambda state: bare(state["id"]), metadata={"type": "string"})
    created_by_user_id = fields.Constant(None)
    sandbox_id = fields.String(required=True)
    selected_repository = _of_app("selected_repository")
    selected_branch = _of_app("selected_branch")
    git_provider = _of_app("git_provider")
    title = fields.String(allow_none=True)
    trigger = _of_app("trigger")
    pr_number = fields.Function(
        lambda state: state["app"].get("pr_number", []), metadata={"type": "array", "items": {"type": "integer"}}
    )
    llm_model = _of_app("llm_model")
    agent_kind = fields.Constant("openhands")
    metrics = fields.Function(lambda state: combined(state["stats"]), metadata={"type": ["object", "null"]})
    parent_conversation_id = fields.Function(
        lambda state: bare(state["app"].get("parent_conversation_id")), metadata=_NULLABLE
    )
    sub_conversation_ids = fields.Function(
        lambda state: [bare(one) for one in state["sub_conversation_ids"]],
        metadata={"type": "array", "items": {"type": "string"}},
    )
    public = _of_app("public", type=["boolean", "null"])
    tags = fields.Dict(required=True)
    created_at = fields.String(required=True, metadata={"format": "date-time"})
    updated_at = fields.String(required=True, metadata={"format": "date-time"})
    sandbox_status = fields.Function(
        lambda state: "MISSING" if state["sandbox"] is None or state["sandbox"].leaving else state["sandbox"].status,
        metadata={"enum": list(STATUSES)},
    )
    execution_status = fields.Function(
        lambda state: running(state["sandbox"], state["execution_status"]),
        metadata={**_NULLABLE, "description": "Null unless the sandbox runs."},
    )
    conversation_url = fields.Function(
        lambda state: running(state["sandbox"], _url(state)),
        metadata={**_NULLABLE, "description": "URL at the agent server; null unless the sandbox runs."},
    )
    session_api_key = fields.Function(
        lambda state: state["sandbox"].shown_key if state["sandbox"] and SHOWS_KEYS.get() else None,
        metadata={
            **_NULLABLE,
            "description": "Null unless the sandbox runs and the caller's key has the scope `approve`.",
        },
    )
    confirmation_seconds = fields.Integer(dump_default=None, allow_none=True)
    approval_mode = shown_mode()
    capabilities = fields.List(fields.String(), dump_default=list)
    unapproved_resumes = fields.Integer(
        dump_default=0, metadata={"description": "How often its agent continued without a decision of this server."}
    )
    goes_on_when_allowed = fields.Function(
        lambda state: state["app"].get("goes_on_when_allowed") is not False,
        metadata={
            "type": "boolean",
            "description": "Whether the agent is told and continues after the request that stopped it is allowed.",
        },
    )
    acp_server = fields.Constant(None)
    launched_agent_profile = fields.Constant(None)


def _url(state: dict[str, Any]) -> str | None:
    sandbox = state["sandbox"]
    return f"{sandbox.agent_url}/api/conversations/{bare(state['id'])}" if sandbox else None


class AppConversationPage(BaseSchema):
    items = fields.List(fields.Nested(AppConversation), required=True)
    next_page_id = fields.String(required=True, allow_none=True)


class AppEventFilter(EventFilterQuery):
    """The filters of events, with the names of the app-server wire and of the agent-server wire."""

    kind__eq = fields.String()

    @post_load
    def _one_kind(self, filters: dict[str, Any], **_: Any) -> dict[str, Any]:
        if (kind := filters.pop("kind__eq", None)) is not None:
            filters["kind"] = kind.rpartition(".")[2]
        return filters


class AppEventSearch(AppEventFilter):
    text = text_filter()
    page_id = fields.String(metadata=PAGE_ID)
    limit = PageLimit(100)
    descending = SortOrder("TIMESTAMP")
    with_decisions = fields.Boolean(
        data_key="decisions",
        load_default=False,
        metadata={"description": "Whether the page has `decisions`: action id → who decided it."},
    )


class AppEventPage(EventPage):
    decisions = fields.Dict(
        keys=fields.String(),
        values=fields.Nested(ActionDecision),
        metadata={"description": "With `decisions=true`: action id of this page → who decided it."},
    )


class FileQuery(BaseSchema):
    path = Text(
        data_key="file_path",
        load_default="PLAN.md",
        least=1,
        most=_MOST_PATH,
        metadata={"description": "Path in the conversation's folder. `/workspace/project` is an alias of the folder."},
    )


class FolderQuery(BaseSchema):
    path = Text(load_default=".", most=_MOST_PATH, metadata={"description": "A folder in the conversation's folder."})


class FolderRecord(BaseSchema):
    """A record of a conversation's folder."""

    seq = fields.Integer(required=True, metadata={"description": "Seq of the last of the events."})
    event_ids = fields.List(
        fields.String(), required=True, metadata={"description": "The events at which the folder was as recorded."}
    )


class FolderRecords(BaseSchema):
    """The records of a conversation's folder."""

    forks_have_files = fields.Boolean(
        required=True,
        metadata={"description": "Whether a fork has its own sandbox and can only begin at an event with a record."},
    )
    can_return = fields.Boolean(
        required=True,
        metadata={"description": "Whether the conversation can return to such an event in its own sandbox."},
    )
    records = fields.List(fields.Nested(FolderRecord), required=True)


class ReturnRequest(BaseSchema):
    """Target of a return: an event, or with `undo` the last event before the last return."""

    event_id = Text(load_default=None, allow_none=True, metadata={"description": "An event with a record."})
    undo = StrictBoolean(load_default=False, metadata={"description": "Whether to undo the last return."})

    @validates_schema(skip_on_field_errors=True)
    def _one_of_both(self, data: dict[str, Any], **_: object) -> None:
        if (data["event_id"] is None) != data["undo"]:
            raise ValidationError([FieldFault("Send either event_id, or undo: true", "value_error")], "event_id")


class Return(BaseSchema):
    """A completed return."""

    id = fields.String(required=True, metadata={"description": "Id of the new event `returned_to` in the log."})
    event_id = fields.String(required=True, metadata={"description": "The event to which the conversation returned."})
    left_event_id = fields.String(
        required=True, metadata={"description": "The last event before the return. A return to it undoes this return."}
    )


def _moment(description: str) -> Text:
    return Text(load_default=None, least=1, most=MOST_REPOSITORY, metadata={"description": description})


class GitQuery(BaseSchema):
    path = Text(required=True, least=1, most=_MOST_PATH)
    ref = Text(
        load_default=None, most=MOST_REPOSITORY, metadata={"description": "Absent: the agent server chooses the ref."}
    )
    since = _moment(
        "Show changes of the folder since a moment: `start` of the conversation, or before an "
        "event, by its seq or its id. The folder needs no repository. Absent: show differences "
        "from a ref of the repository."
    )
    until = _moment("With `since`: compare with the folder before this event. Absent: with the current folder.")

    @validates_schema
    def _one_kind(self, query: dict[str, Any], **_: Any) -> None:
        if query.get("ref") is not None and query.get("since") is not None:
            raise ValidationError(
                [FieldFault("ref cannot be combined with since, because a ref belongs to a repository", "value_error")],
                "ref",
            )
        if query.get("until") is not None and query.get("since") is None:
            raise ValidationError([FieldFault("until needs since", "value_error")], "until")


class GitChange(BaseSchema):
    status = fields.String(required=True)
    path = fields.String(required=True)


class GitDiff(BaseSchema):
    modified = fields.String(required=True, allow_none=True)
    original = fields.String(required=True, allow_none=True)


def _repository() -> Text:
    return Text(
        load_default=None,
        allow_none=True,
        least=1,
        most=_MOST_PATH,
        metadata={
            "description": "Path of the repository in the conversation's folder. Absent: the folder itself, or the "
            "only repository directly below it."
        },
    )


class RemoteQuery(BaseSchema):
    path = _repository()


class Remote(BaseSchema):
    """The remote for the work of a conversation, with proposed names for a push."""

    path = fields.String(
        required=True, metadata={"description": "Path of the repository in the conversation's folder."}
    )
    url = fields.String(required=True, metadata={"description": "URL of its remote, without a credential."})
    branch = fields.String(required=True, metadata={"description": "Current branch of the folder; empty: none."})
    base = fields.String(required=True, metadata={"description": "The remote's default branch; empty: unknown."})
    proposed_branch = fields.String(required=True)
    proposed_title = fields.String(required=True)
    lacks = fields.String(
        required=True,
        allow_none=True,
        metadata={"description": "Why no pull request can be opened; null: it can."},
    )


class PushRequest(BaseSchema):
    """A push: all changes of the folder that Git does not ignore, as a commit of a branch."""

    branch = Text(required=True, least=1, most=_MOST_BRANCH, pattern=_BRANCH, refused=_BRANCH_FAULT)
    title = Text(
        required=True,
        least=1,
        most=MOST_TITLE,
        pattern=r"[^\r\n]*\S[^\r\n]*",
        refused=FieldFault("String should be one line, and not blank", "value_error"),
        metadata={"description": "The first line of the commit, and the title of the pull request."},
    )
    description = Text(load_default="", most=_MOST_DESCRIPTION)
    path = _repository()
    url = Text(
        load_default=None,
        allow_none=True,
        most=_MOST_PATH,
        metadata={"description": "The remote from `GET …/git/remote`; 409 if it has changed since."},
    )
    pull_request = StrictBoolean(load_default=False, metadata={"description": "Whether to open a pull request."})
    base = Text(
        load_default=None,
        allow_none=True,
        most=_MOST_BRANCH,
        pattern=_BRANCH,
        refused=_BRANCH_FAULT,
        metadata={"description": "Target branch of the pull request. Absent: the remote's default branch."},
    )


class Push(BaseSchema):
    """A completed push. The conversation's log contains it as an event `pushed`."""

    branch = fields.String(required=True)
    commit = fields.String(required=True)
    url = fields.String(required=True, metadata={"description": "URL of the remote, without a credential."})
    pull_request = fields.String(required=True, allow_none=True, metadata={"description": "URL of the pull request."})
    offered_url = fields.String(
        required=True,
        allow_none=True,
        metadata={"description": "URL from the host for opening a pull request manually."},
    )


class Skill(BaseSchema):
    name = fields.String(required=True)
    type = fields.String(required=True, metadata={"enum": ["repo", "knowledge", "agentskills"]})
    content = fields.String(required=True)
    triggers = fields.List(fields.String(), required=True)


class Skills(BaseSchema):
    skills = fields.List(fields.Nested(Skill), required=True)


class Hook(BaseSchema):
    event_type = fields.String(required=True)
    matchers = fields.List(fields.Dict(), required=True)


class Hooks(BaseSchema):
    hooks = fields.List(fields.Nested(Hook), required=True)


def combined(stats: dict[str, Any]) -> dict[str, Any] | None:
    """Return the combined use of all models of an agent; None until the agent reports its use.

    The model name and the response id are those of the first model. Source: `TokenUsage.__add__` of the published SDK.
    """
    each = [one for one in (stats.get("usage_to_metrics") or {}).values() if isinstance(one, dict)]
    if not each:
        return None
    tokens = [usage for one in each if isinstance(usage := one.get("accumulated_token_usage"), dict)]
    first = tokens[0] if tokens else {}
    return {
        "model_name": each[0].get("model_name", "default"),
        "accumulated_cost": sum(_number(one, "accumulated_cost") for one in each),
        "max_budget_per_task": each[0].get("max_budget_per_task"),
        "accumulated_token_usage": {
            "model": str(first.get("model") or ""),
            **{name: sum(_number(usage, name) for usage in tokens) for name in _SUMS},
            "context_window": max((_number(usage, "context_window") for usage in tokens), default=0),
            "per_turn_token": _number(tokens[-1], "per_turn_token") if tokens else 0,
            "response_id": str(first.get("response_id") or ""),
        },
    }


def _number(usage: dict[str, Any], name: str) -> float:
    """Return a member that an agent reported; 0 if it is not a number."""
    value = usage.get(name)
    return value if isinstance(value, int | float) else 0
