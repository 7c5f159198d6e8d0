"""Conversations: the requests that start and change one, and those for its agent; its state, what its agent server
reports of it, and the list of all."""

import json
from typing import Any, ClassVar

from marshmallow import ValidationError, fields, post_load, pre_dump, validates_schema

from core.bounds import MOST_SECRETS, MOST_SECRETS_BYTES
from core.cuts import beginning
from core.masking import LEAST, redacted
from core.masking import REDACTED as REDACTED
from core.wire import (
    CONVERSATION_KINDS,
    EXECUTION_STATUSES,
    MOST_AGENT_BYTES,
    MOST_REPORTED_BYTES,
    MOST_TAG,
    MOST_TAG_KEY,
    MOST_TITLE,
    REPORTED_MEMBERS,
    UNASKED,
    acts_unasked,
    are_capabilities,
)
from schemas.approval_modes import shown_mode
from schemas.approvals import ConfirmationPolicy, ConfirmationSeconds, TagFilter
from schemas.events import MOST_IDS, SendMessageRequest
from schemas.fields import (
    BaseSchema,
    ChangedElsewhere,
    Choice,
    Fault,
    Id,
    Instant,
    ListingOrder,
    OrderedSearch,
    PlaceId,
    StrictBoolean,
    StrictInteger,
    Text,
    Title,
    WholeNumber,
    checked_text,
    refusal,
)
from schemas.sandboxes import SandboxName

#: characters of a secret's name, and bytes of one secret
MOST_SECRET_NAME, MOST_SECRET_BYTES = 128, 64 * 1024

#: bytes of a path and of a name in it, as Linux bounds them (PATH_MAX, NAME_MAX)
MOST_PATH, MOST_FILE_NAME = 4096, 255

#: most tags: lists, events, exports and agents carry them whole
MOST_TAGS = 50


#: why: agents put secrets into the environment of commands, and one that does not fit there would fail each of them
_NO_VARIABLE = "should have neither = nor NUL, which no environment variable's name has"
_NO_VALUE = "should have no NUL, which no environment variable has"

_HOLDS_NOTHING = {"kind": "NeverConfirm"}


#: what masking promises where a secret is set
_MASKED = f"Values of {LEAST} characters or more are masked in events; shorter ones cannot be."

#: Maximum size of each member that every list of conversations shows, in bytes of JSON
_BOUNDS = {
    **dict.fromkeys((*REPORTED_MEMBERS, "tags", "stats", "security_analyzer"), MOST_REPORTED_BYTES),
    "agent": MOST_AGENT_BYTES,
}

#: what of a conversation's state has a request of its own, by which it is changed
SET_ELSEWHERE = {
    "confirmation_policy": "POST /api/conversations/{conversation_id}/confirmation_policy sets it",
    "security_analyzer": "POST /api/conversations/{conversation_id}/security_analyzer sets it",
    "secrets": "POST /api/conversations/{conversation_id}/secrets sets them",
    "agent": "POST /api/conversations/{conversation_id}/switch_llm or …/switch_profile changes its model",
    "llm_model": "POST /api/conversations/{conversation_id}/switch_llm or …/switch_profile changes the model",
    "execution_status": "POST /api/conversations/{conversation_id}/run, …/pause or …/interrupt changes it",
    "max_iterations": "the start of a conversation sets it",
}

#: the values of parameters that the query may repeat
_IDS = fields.List(Id())
_STATUSES = fields.List(Choice(*EXECUTION_STATUSES))

_NULLABLE = {"type": ["string", "null"]}

#: members that hold descriptions of values and no values: what looks like a secret there is the name of a parameter
_DESCRIPTIONS = ("client_tools", "tool_module_qualnames")


class Tags(fields.Dict):
    """Labels, MOST_TAGS at most: keys of a-z and 0-9, values of MOST_TAG characters. Source: the agent-server wire."""

    def __init__(self, **kwargs: Any) -> None:
        names = {"pattern": "^[a-z0-9]+$", "maxLength": MOST_TAG_KEY}
        metadata = {"maxProperties": MOST_TAGS, "propertyNames": names, **kwargs.pop("metadata", {})}
        super().__init__(keys=Text(most=MOST_TAG_KEY), values=Text(most=MOST_TAG), metadata=metadata, **kwargs)

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> dict[str, str]:
        tags: dict[str, str] = super()._deserialize(value, *args, **kwargs)
        if len(tags) > MOST_TAGS:
            raise refusal(f"At most {MOST_TAGS} tags", "too_long")
        for key in tags:
            if not (key.isascii() and key.isalnum() and key == key.lower()):
                raise refusal(
                    f"A tag's key should have only a-z and 0-9, not {beginning(key, 64)!r}", "string_pattern_mismatch"
                )
        return tags


class Secrets(fields.Dict):
    """Secrets by name: text, or an object with a `value` or a `kind`. Source: the agent-server wire."""

    def __init__(self, **kwargs: Any) -> None:
        text = {"pattern": "^[^\\x00]*$"}
        value = {"anyOf": [{"type": "string", **text}, {"type": "object", "properties": {"value": text}}]}
        given = kwargs.pop("metadata", {})
        names = {"pattern": "^[^=\\x00]+$", "maxLength": MOST_SECRET_NAME}
        metadata = {"additionalProperties": value, "maxProperties": MOST_SECRETS, "propertyNames": names, **given}
        metadata["description"] = f"{given.get('description', '')} {_MASKED}".strip()
        super().__init__(metadata=metadata, **kwargs)

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        secrets: dict[str, Any] = super()._deserialize(value, *args, **kwargs)
        if len(secrets) > MOST_SECRETS:
            raise refusal(f"At most {MOST_SECRETS} secrets", "too_long")
        faults: dict[str, Any] = {}
        for name, secret in secrets.items():
            try:
                checked_text(name, least=1, most=MOST_SECRET_NAME)
            except ValidationError as fault:
                faults[name] = fault.messages
            if "=" in name or "\0" in name:
                faults[name] = refusal(f"A secret's name {_NO_VARIABLE}", "string_pattern_mismatch").messages
            said = secret.get("value") if isinstance(secret, dict) else secret
            if isinstance(said, str) and "\0" in said:
                faults[name] = refusal(f"A secret {_NO_VALUE}", "string_pattern_mismatch").messages
            if not isinstance(secret, str | dict):
                faults[name] = refusal("Input should be text or an object", "value_error").messages
            elif len(json.dumps(secret)) > MOST_SECRET_BYTES:
                faults[name] = refusal(f"A secret has at most {MOST_SECRET_BYTES} bytes", "too_long").messages
        if faults:
            raise ValidationError(faults)
        if len(json.dumps(secrets)) > MOST_SECRETS_BYTES:
            raise refusal(f"All secrets have at most {MOST_SECRETS_BYTES} bytes together", "too_long")
        return secrets


class Settings(fields.Dict):
    """Settings of an agent or of a part of it, stored without the values that look like secrets."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(keys=fields.String(), allow_none=True, **kwargs)

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> Any:
        return redacted(super()._deserialize(value, *args, **kwargs))


class Workspace(Settings):
    """The workspace of an agent. Its `working_dir` must be a path that some folder can have."""

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> Any:
        workspace = super()._deserialize(value, *args, **kwargs)
        asked = workspace.get("working_dir") if isinstance(workspace, dict) else None
        if isinstance(asked, str):
            path = asked.encode("utf-8", "surrogatepass")
            if len(path) >= MOST_PATH or max(map(len, path.split(b"/"))) > MOST_FILE_NAME:
                words = f"A path has less than {MOST_PATH} bytes, and at most {MOST_FILE_NAME} between two slashes"
                raise ValidationError({"working_dir": refusal(words, "too_long").messages})
        return workspace


def _acts_unasked(member: str, kind: str, value: str) -> dict[str, Any]:
    """An agent of that kind in that member of a start, beside a policy that would hold something back."""
    agent = {"type": "object", "properties": {kind: {"const": value}}, "required": [kind]}
    policy = {"not": {"properties": {"kind": {"const": _HOLDS_NOTHING["kind"]}}}}
    return {
        "properties": {member: agent, "confirmation_policy": policy},
        "required": [member, "confirmation_policy"],
    }


def _too_long(told: dict[str, Any]) -> list[str]:
    """The members that have more bytes than are kept of them."""
    return [name for name, most in _BOUNDS.items() if name in told and len(json.dumps(told[name])) > most]


def _require_room(told: dict[str, Any]) -> None:
    """Refuse a member that would make every list long. Raises ValidationError."""
    if found := _too_long(told):
        raise ValidationError(
            {name: [Fault(f"At most {_BOUNDS[name]} bytes of JSON are kept of it", "too_long")] for name in found}
        )


class StartConversationRequest(BaseSchema):
    """A new conversation. Every member is optional; unknown ones are ignored. Source: the agent-server wire."""

    body_optional = True

    as_a_whole: ClassVar[dict[str, Any]] = {
        "not": {
            "anyOf": [
                _acts_unasked(member, kind, value)
                for member in ("agent", "agent_settings")
                for kind, value in (("kind", "ACPAgent"), ("agent_kind", "acp"))
            ]
        }
    }

    conversation_id = Id(allow_none=True, metadata={"description": "Chosen by the server when absent."})
    title = Title()
    confirmation_policy = fields.Nested(ConfirmationPolicy, metadata={"description": "Default: NeverConfirm."})
    confirmation_seconds = ConfirmationSeconds("Absent or null: the default, that of the spec or of the server.")
    tags = Tags()
    initial_message = fields.Nested(
        SendMessageRequest, allow_none=True, metadata={"description": "Sent first; it always starts a run."}
    )
    agent = Settings(
        metadata={
            "description": "With one of these three the agent is started in a sandbox, and its agent server gets this "
            "body with all its members; without, the conversation is detached. Stored visibly without its secrets."
        }
    )
    agent_settings = Settings()
    agent_profile_id = fields.Raw()
    workspace = Workspace()
    parent_conversation_id = Id(allow_none=True)
    security_analyzer = Settings()
    max_iterations = StrictInteger(least=1)
    stuck_detection = StrictBoolean()
    hook_config = Settings()
    client_tools = fields.List(fields.Raw())
    tool_module_qualnames = fields.Dict(keys=fields.String(), allow_none=True)
    user_id = Text(allow_none=True)
    secrets = Secrets(
        allow_none=True, metadata={"description": "Never shown again. Refused when the server has no SECRET_KEY."}
    )

    @validates_schema(skip_on_field_errors=True)
    def _has_room(self, request: dict[str, Any], **_: Any) -> None:
        _require_room(request)

    @validates_schema(skip_on_field_errors=True)
    def _can_hold(self, request: dict[str, Any], **_: Any) -> None:
        policy = request.get("confirmation_policy", _HOLDS_NOTHING)
        agents = (request.get("agent"), request.get("agent_settings"))
        if policy != _HOLDS_NOTHING and any(map(acts_unasked, agents)):
            raise ValidationError(refusal(UNASKED, "value_error").messages, "confirmation_policy")

    @post_load
    def _as_kept(self, request: dict[str, Any], **_: Any) -> dict[str, Any]:
        if message := request.pop("initial_message", None):
            request["initial_message"] = message["content"]
        return request


class UpdateConversationRequest(ChangedElsewhere):
    """Changes of a conversation; a title or tags that are absent or null stay as they are."""

    elsewhere = SET_ELSEWHERE

    title = Title()
    tags = Tags(allow_none=True, metadata={"description": "Replaces all tags."})
    confirmation_seconds = ConfirmationSeconds("Null: the default again. Needs the scope `approve`.")

    @post_load
    def _given(self, request: dict[str, Any], **_: Any) -> dict[str, Any]:
        return {name: value for name, value in request.items() if value is not None or name == "confirmation_seconds"}


class SetSecurityAnalyzer(BaseSchema):
    security_analyzer = Settings(required=True)

    @validates_schema(skip_on_field_errors=True)
    def _has_room(self, request: dict[str, Any], **_: Any) -> None:
        _require_room(request)


class UpdateSecrets(BaseSchema):
    secrets = Secrets(required=True)


class ForkRequest(ChangedElsewhere):
    """The members of a fork that differ from its source; every one is optional. Source: the agent-server wire."""

    body_optional = True
    elsewhere = SET_ELSEWHERE

    id = Id(allow_none=True, metadata={"description": "Of the copy; chosen by the server when absent."})
    title = Title()
    tags = Tags(allow_none=True)
    reset_metrics = StrictBoolean(load_default=True)
    from_event_id = Text(allow_none=True, metadata={"description": "The last event to copy; absent: all events."})


class FinalResponse(BaseSchema):
    response = fields.String(required=True, metadata={"description": "Empty while the agent has written nothing."})


class ConversationFilter(BaseSchema):
    status = Choice(*EXECUTION_STATUSES)


class SkillsChoice(BaseSchema):
    """Whether a response has the skills of the agent, which may be large. Source: the agent-server wire."""

    include_skills = fields.Boolean(
        load_default=False, metadata={"description": "Keep `agent.agent_context.skills`, which is emptied otherwise."}
    )


class ConversationSearch(ConversationFilter, SkillsChoice, OrderedSearch):
    order = ListingOrder("CREATED_AT", "UPDATED_AT")


class ExternalSession(BaseSchema):
    """The session of an agent that runs in a terminal, in its hook's words: a conversation of the kind `external`."""

    kind = fields.Constant("external")
    agent = fields.String(required=True, metadata={"description": "Such as `claude-code`."})
    version = fields.String(required=True, metadata={"description": "Of the agent; empty: not told."})
    machine = fields.String(required=True)
    person = fields.String(required=True, metadata={"description": "User on the machine; empty: not told."})
    folder = fields.String(required=True)
    mode = fields.String(required=True, metadata={"description": "The agent's own permission mode when it began."})
    session = fields.String(required=True, metadata={"description": "The agent's id of the session."})


class ConversationInfo(BaseSchema):
    """The state of a conversation, with every member that clients expect. Source: the agent-server wire.

    The policy that is shown is the one that holds: an agent that acts unasked has none, whatever its server reports.
    """

    id = fields.String(required=True, metadata={"format": "uuid"})
    title = fields.String(dump_default=None, allow_none=True)
    execution_status = fields.String(required=True)
    confirmation_policy = fields.Dict(required=True)
    created_at = fields.String(required=True, metadata={"format": "date-time"})
    updated_at = fields.String(required=True, metadata={"format": "date-time"})
    tags = fields.Dict(required=True)
    stats = fields.Dict(required=True)
    agent = fields.Raw(dump_default=None)
    workspace = fields.Raw(dump_default=None)
    persistence_dir = fields.String(dump_default="")
    max_iterations = fields.Integer(dump_default=500)
    stuck_detection = fields.Boolean(dump_default=True)
    security_analyzer = fields.Raw(dump_default=None)
    activated_knowledge_skills = fields.List(fields.Raw(), dump_default=list)
    invoked_skills = fields.List(fields.Raw(), dump_default=list)
    blocked_actions = fields.Dict(dump_default=dict)
    blocked_messages = fields.Dict(dump_default=dict)
    last_user_message_id = fields.String(dump_default=None, allow_none=True)
    leaf_event_id = fields.String(dump_default=None, allow_none=True)
    secret_registry = fields.Function(lambda state: {"secret_sources": _masked(state["secret_names"])})
    agent_state = fields.Dict(dump_default=dict)
    hook_config = fields.Raw(dump_default=None)
    metrics = fields.Raw(dump_default=None)
    forked_from_conversation_id = fields.String(dump_default=None, allow_none=True)
    forked_from_event_id = fields.String(dump_default=None, allow_none=True)
    parent_conversation_id = fields.String(dump_default=None, allow_none=True)
    sub_conversation_ids = fields.List(fields.String(), dump_default=list)
    current_model_id = fields.String(dump_default=None, allow_none=True)
    available_models = fields.List(fields.Raw(), dump_default=list)
    supports_runtime_model_switch = fields.Boolean(dump_default=False)
    launched_agent_profile = fields.Raw(dump_default=None)
    client_tools = fields.List(fields.Raw(), dump_default=list)
    tool_module_qualnames = fields.Raw(dump_default=dict)
    runtime_info = fields.Raw(dump_default=None)
    confirmation_seconds = fields.Integer(dump_default=None, allow_none=True)
    approval_mode = shown_mode()
    capabilities = fields.List(fields.String(), dump_default=list)
    unapproved_resumes = fields.Integer(
        dump_default=0, metadata={"description": "How often its agent went on without a decision of this server."}
    )

    external = fields.Nested(
        ExternalSession,
        dump_default=None,
        allow_none=True,
        metadata={"description": "Of an agent that runs in a terminal outside of sandboxes; null: it is none."},
    )

    @pre_dump
    def _with_true_policy(self, state: dict[str, Any], **_: Any) -> dict[str, Any]:
        return {**state, "confirmation_policy": _HOLDS_NOTHING} if acts_unasked(state.get("agent")) else state


def with_skills(state: dict[str, Any], include_skills: bool) -> dict[str, Any]:
    """A conversation's state; without the skills in its agent's context unless they are included."""
    agent = state.get("agent")
    context = agent.get("agent_context") if isinstance(agent, dict) else None
    if include_skills or not isinstance(context, dict) or not context.get("skills"):
        return state
    return {**state, "agent": {**state["agent"], "agent_context": {**context, "skills": []}}}


def _masked(names: list[str]) -> dict[str, Any]:
    return {name: {"kind": "StaticSecret", "description": None, "value": REDACTED} for name in names}


class ConversationPage(BaseSchema):
    items = fields.List(fields.Nested(ConversationInfo), required=True)
    next_page_id = fields.String(required=True, allow_none=True)


def read_conversation_ids(ids: list[str]) -> list[str]:
    """The ids of a batch get, dashed. Raises ValidationError, with the index of each that is not an id."""
    if not ids:
        raise ValidationError(["Missing data for required field."])
    if len(ids) > MOST_IDS:
        raise refusal(f"At most {MOST_IDS} conversation ids", "too_long")
    found: list[Any] = _IDS.deserialize(ids)
    return found


class ConversationListSearch(OrderedSearch):
    """The filters of conversations, all of which must pass, beside `status`; an order and a page."""

    order = ListingOrder("CREATED_AT", "UPDATED_AT", "TITLE", default="UPDATED_AT_DESC")
    start = PlaceId(by_title=True)
    title = Text(data_key="text", most=MOST_TITLE, metadata={"description": "A part of the title, whatever its case."})
    tag = TagFilter(metadata={"description": "A tag: `NAME` or `NAME=VALUE`."})
    sandbox_id = SandboxName()
    kind = Choice(
        *CONVERSATION_KINDS,
        metadata={"description": "Where its agent runs: in a sandbox, `external` in a terminal, `detached` nowhere."},
    )
    updated_since = Instant(data_key="updated__gte")
    updated_until = Instant(data_key="updated__lt")


class ListedConversation(BaseSchema):
    """What a list shows of a conversation."""

    id = fields.String(required=True, metadata={"format": "uuid"})
    title = fields.String(required=True, allow_none=True)
    execution_status = fields.String(required=True, metadata={"enum": list(EXECUTION_STATUSES)})
    pending = fields.Integer(required=True, metadata={"description": "The number of its pending actions."})
    events = fields.Function(lambda state: state["seq"], metadata={"type": "integer", "minimum": 0})
    tags = fields.Dict(required=True)
    sandbox_id = fields.Function(
        lambda state: state["sandbox_id"] or None,
        metadata={**_NULLABLE, "description": "Null: it is detached. Its status is that of the list of sandboxes."},
    )
    parent_conversation_id = fields.Function(
        lambda state: state["app"]["parent_conversation_id"], metadata={**_NULLABLE, "format": "uuid"}
    )
    llm_model = fields.Function(lambda state: state["app"]["llm_model"], metadata=_NULLABLE)
    external = fields.Nested(
        ExternalSession,
        required=True,
        allow_none=True,
        metadata={"description": "Of an agent that runs in a terminal outside of sandboxes; null: it is none."},
    )
    owner = fields.String(
        required=True,
        allow_none=True,
        metadata={"description": "The name of the person or key that started it, or was given it; null: not known."},
    )
    created_at = fields.String(required=True, metadata={"format": "date-time"})
    updated_at = fields.String(required=True, metadata={"format": "date-time"})


class ListedConversationPage(BaseSchema):
    items = fields.List(fields.Nested(ListedConversation), required=True)
    next_page_id = fields.String(required=True, allow_none=True)


def read_statuses(statuses: list[str]) -> list[str]:
    """The statuses of a search, each once. Raises ValidationError, with the index of each that is none."""
    found: list[Any] = _STATUSES.deserialize(statuses)
    return list(dict.fromkeys(found))


class ChangeNumber(WholeNumber):
    """The number of a change, as the events of a list's stream bear it."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(least=0, most=10**16 - 1, **kwargs)


class RunQuery(BaseSchema):
    """Whether a run may decide."""

    accepts = fields.Boolean(
        load_default=True,
        metadata={
            "description": "Whether the run accepts the pending actions. With false it is refused with 409 while an "
            "action waits: a client that saw none says so, and accepts none that came meanwhile."
        },
    )


class ListStreamQuery(BaseSchema):
    """Where a stream begins."""

    after = ChangeNumber(
        data_key="last_event_id",
        metadata={"description": "Send the changes after this one, as Last-Event-ID does; absent: from now on."},
    )


class AskAgent(BaseSchema):
    question = Text(required=True)


class AgentAnswer(BaseSchema):
    response = fields.String(required=True)


class StartGoal(BaseSchema):
    objective = Text(required=True, metadata={"description": "What the agent shall reach."})
    max_iterations = StrictInteger(least=1, load_default=10)


class Navigate(BaseSchema):
    event_id = Text(
        load_default=None, allow_none=True, metadata={"description": "The new head of the log; null: before all."}
    )


class LoadPlugin(BaseSchema):
    plugin_ref = Text(required=True)


class SwitchLlm(BaseSchema):
    llm = fields.Dict(
        keys=fields.String(), required=True, metadata={"description": "With its key: it is stored nowhere here."}
    )


class SwitchAcpModel(BaseSchema):
    model = Text(required=True)


class SwitchProfile(BaseSchema):
    profile_name = Text(required=True)


class RuntimeFailure(BaseSchema):
    code = fields.String(required=True)
    message = fields.String(required=True)


class RuntimeInfo(BaseSchema):
    """Whether the sandbox of a conversation runs. Source: the agent-server wire."""

    runtime_status = fields.String(
        required=True, metadata={"enum": ["available", "starting", "missing", "ownership_lost", "error"]}
    )
    can_resume = fields.Boolean(required=True)
    runtime_error = fields.Nested(RuntimeFailure, required=True, allow_none=True)


class RuntimeCredentials(BaseSchema):
    session_api_key = fields.String(required=True, metadata={"description": "The session key of the sandbox."})


class BashCommand(BaseSchema):
    """A command that a client sends over a socket."""

    command = Text(required=True, least=1, most=100_000)
    cwd = Text(most=4096, allow_none=True, load_default=None)
    timeout = StrictInteger(least=1, most=86_400, load_default=300)


class ConversationReport(BaseSchema):
    """The members of a ConversationInfo that are stored; the others follow from its events.

    A member that is too long is left out, and named in `too_long`: a refusal would lose all others with it.
    """

    of_agents = True

    id = Id(required=True)
    parent_conversation_id = Id(allow_none=True)
    execution_status = fields.String()
    title = fields.String(allow_none=True)
    tags = fields.Dict(keys=fields.String(), values=fields.String(), allow_none=True)
    stats = fields.Dict(allow_none=True)
    agent = Settings()
    workspace = fields.Dict(allow_none=True)
    persistence_dir = fields.String(allow_none=True)
    max_iterations = fields.Integer(strict=True, allow_none=True)
    stuck_detection = fields.Boolean(allow_none=True)
    activated_knowledge_skills = fields.List(fields.Raw(), allow_none=True)
    invoked_skills = fields.List(fields.Raw(), allow_none=True)
    blocked_actions = fields.Dict(allow_none=True)
    blocked_messages = fields.Dict(allow_none=True)
    last_user_message_id = fields.String(allow_none=True)
    leaf_event_id = fields.String(allow_none=True)
    hook_config = fields.Dict(allow_none=True)
    current_model_id = fields.String(allow_none=True)
    available_models = fields.List(fields.Raw(), allow_none=True)
    supports_runtime_model_switch = fields.Boolean(allow_none=True)
    launched_agent_profile = fields.Raw(allow_none=True)
    client_tools = fields.List(fields.Raw(), allow_none=True)
    tool_module_qualnames = fields.Dict(allow_none=True)
    runtime_info = fields.Dict(allow_none=True)
    capabilities = fields.Raw(allow_none=True)

    @post_load
    def _bounded(self, told: dict[str, Any], **_: Any) -> dict[str, Any]:
        too_long = _too_long(told)
        kept = {
            name: value if name in _DESCRIPTIONS or name not in REPORTED_MEMBERS else redacted(value)
            for name, value in told.items()
            if name not in too_long and (name != "capabilities" or are_capabilities(value))
        }
        return {**kept, "too_long": too_long}
