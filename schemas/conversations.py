"""Conversations: requests to start and change one, and to its agent; its state, its agent server's reports, and the
list.
"""

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
    FieldFault,
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

#: Maximum number of characters of a secret's name, and of bytes of a secret.
MOST_SECRET_NAME, MOST_SECRET_BYTES = 128, 64 * 1024

#: Maximum bytes of a path and of a file name, as in Linux (PATH_MAX, NAME_MAX).
MOST_PATH, MOST_FILE_NAME = 4096, 255

#: Maximum number of tags: lists, events, exports and agents carry all of them.
MOST_TAGS = 50


#: Agents put secrets into the environment of commands. An invalid variable would make each command fail.
_NO_VARIABLE = "should have neither = nor NUL, which no environment variable's name has"
_NO_VALUE = "should have no NUL, which no environment variable has"

_HOLDS_NOTHING = {"kind": "NeverConfirm"}


#: The promise of masking, for descriptions of secrets.
_MASKED = f"Values of {LEAST} characters or more are masked in events; shorter ones cannot be."

#: Maximum size of each member that every list of conversations shows, in bytes of JSON.
_BOUNDS = {
    **dict.fromkeys((*REPORTED_MEMBERS, "tags", "stats", "security_analyzer"), MOST_REPORTED_BYTES),
    "agent": MOST_AGENT_BYTES,
}

#: Members of a conversation's state that another request changes.
SET_ELSEWHERE = {
    "confirmation_policy": "POST /api/conversations/{conversation_id}/confirmation_policy sets it",
    "security_analyzer": "POST /api/conversations/{conversation_id}/security_analyzer sets it",
    "secrets": "POST /api/conversations/{conversation_id}/secrets sets them",
    "agent": "POST /api/conversations/{conversation_id}/switch_llm or …/switch_profile changes its model",
    "llm_model": "POST /api/conversations/{conversation_id}/switch_llm or …/switch_profile changes the model",
    "execution_status": "POST /api/conversations/{conversation_id}/run, …/pause or …/interrupt changes it",
    "max_iterations": "the start of a conversation sets it",
}

#: The values of repeatable query parameters.
_IDS = fields.List(Id())
_STATUSES = fields.List(Choice(*EXECUTION_STATUSES))

_NULLABLE = {"type": ["string", "null"]}

#: Members with descriptions instead of values, where apparent secrets are names of parameters.
_DESCRIPTIONS = ("client_tools", "tool_module_qualnames")


class Tags(fields.Dict):
    """Labels, at most MOST_TAGS: keys of a-z and 0-9, values of MOST_TAG characters. Source: the agent-server wire."""

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
    """Settings of an agent or of a part of it, stored without values that look like secrets."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(keys=fields.String(), allow_none=True, **kwargs)

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> Any:
        return redacted(super()._deserialize(value, *args, **kwargs))


class AgentWorkspace(Settings):
    """The workspace of an agent. Its `working_dir` must be a possible path."""

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
    """Return the schema of a start whose agent never waits, with a policy under which actions wait."""
    agent = {"type": "object", "properties": {kind: {"const": value}}, "required": [kind]}
    policy = {"not": {"properties": {"kind": {"const": _HOLDS_NOTHING["kind"]}}}}
    return {
        "properties": {member: agent, "confirmation_policy": policy},
        "required": [member, "confirmation_policy"],
    }


def _too_long(told: dict[str, Any]) -> list[str]:
    """Return the members that are larger than the stored maximum."""
    return [name for name, most in _BOUNDS.items() if name in told and len(json.dumps(told[name])) > most]


def _require_room(told: dict[str, Any]) -> None:
    """Raise ValidationError for a member that would make every list long."""
    if found := _too_long(told):
        raise ValidationError(
            {name: [FieldFault(f"At most {_BOUNDS[name]} bytes of JSON are kept of it", "too_long")] for name in found}
        )


class StartConversationRequest(BaseSchema):
    """A new conversation. All members are optional; unknown members are ignored. Source: the agent-server wire."""

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

    conversation_id = Id(allow_none=True, metadata={"description": "Absent: the server chooses it."})
    title = Title()
    confirmation_policy = fields.Nested(ConfirmationPolicy, metadata={"description": "Default: NeverConfirm."})
    confirmation_seconds = ConfirmationSeconds("Absent or null: the default of the spec or the server.")
    tags = Tags()
    initial_message = fields.Nested(
        SendMessageRequest, allow_none=True, metadata={"description": "First message. It always starts a run."}
    )
    agent = Settings(
        metadata={
            "description": "With `agent`, `agent_settings` or `agent_profile_id` the agent is started in a "
            "sandbox, and its agent server gets the whole body. Otherwise the conversation is "
            "detached. It is stored and shown without its secrets."
        }
    )
    agent_settings = Settings()
    agent_profile_id = fields.Raw()
    workspace = AgentWorkspace()
    parent_conversation_id = Id(allow_none=True)
    security_analyzer = Settings()
    max_iterations = StrictInteger(least=1)
    stuck_detection = StrictBoolean()
    hook_config = Settings()
    client_tools = fields.List(fields.Raw())
    tool_module_qualnames = fields.Dict(keys=fields.String(), allow_none=True)
    user_id = Text(allow_none=True)
    secrets = Secrets(
        allow_none=True, metadata={"description": "Never shown again. Refused if the server has no SECRET_KEY."}
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
    """Changes of a conversation. A title or tags that are absent or null are unchanged."""

    elsewhere = SET_ELSEWHERE

    title = Title()
    tags = Tags(allow_none=True, metadata={"description": "Replaces all tags."})
    confirmation_seconds = ConfirmationSeconds("Null: reset to the default. Needs the scope `approve`.")

    @post_load
    def _without_nulls(self, request: dict[str, Any], **_: Any) -> dict[str, Any]:
        return {name: value for name, value in request.items() if value is not None or name == "confirmation_seconds"}


class SetSecurityAnalyzer(BaseSchema):
    security_analyzer = Settings(required=True)

    @validates_schema(skip_on_field_errors=True)
    def _has_room(self, request: dict[str, Any], **_: Any) -> None:
        _require_room(request)


class UpdateSecrets(BaseSchema):
    secrets = Secrets(required=True)


class ForkRequest(ChangedElsewhere):
    """The members of a fork that differ from its source, all optional. Source: the agent-server wire."""

    body_optional = True
    elsewhere = SET_ELSEWHERE

    id = Id(allow_none=True, metadata={"description": "Id of the copy; absent: the server chooses it."})
    title = Title()
    tags = Tags(allow_none=True)
    reset_metrics = StrictBoolean(load_default=True)
    from_event_id = Text(allow_none=True, metadata={"description": "The last event to copy; absent: all events."})


class FinalResponse(BaseSchema):
    response = fields.String(required=True, metadata={"description": "Empty if the agent has written nothing."})


class ConversationFilter(BaseSchema):
    status = Choice(*EXECUTION_STATUSES)


class SkillsChoice(BaseSchema):
    """Whether a response contains the skills of the agent, which may be large. Source: the agent-server wire."""

    include_skills = fields.Boolean(
        load_default=False, metadata={"description": "Include `agent.agent_context.skills`, which is otherwise empty."}
    )


class ConversationSearch(ConversationFilter, SkillsChoice, OrderedSearch):
    order = ListingOrder("CREATED_AT", "UPDATED_AT")


class ExternalSession(BaseSchema):
    """The session of an agent in a terminal, by its hook's account: a conversation of the kind `external`."""

    kind = fields.Constant("external")
    agent = fields.String(required=True, metadata={"description": "Such as `claude-code`."})
    version = fields.String(required=True, metadata={"description": "Version of the agent; empty: unknown."})
    machine = fields.String(required=True)
    person = fields.String(required=True, metadata={"description": "User on the machine; empty: unknown."})
    folder = fields.String(required=True)
    mode = fields.String(required=True, metadata={"description": "The agent's own permission mode at the start."})
    session = fields.String(required=True, metadata={"description": "The agent's id of the session."})


class ConversationInfo(BaseSchema):
    """The state of a conversation, with every member that clients expect. Source: the agent-server wire.

    The policy is the effective one: an agent that acts unasked has none, whatever its server reports.
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
        dump_default=0, metadata={"description": "How often its agent continued without a decision of this server."}
    )

    external = fields.Nested(
        ExternalSession,
        dump_default=None,
        allow_none=True,
        metadata={"description": "Session of an agent in a terminal; null for other agents."},
    )

    @pre_dump
    def _with_true_policy(self, state: dict[str, Any], **_: Any) -> dict[str, Any]:
        return {**state, "confirmation_policy": _HOLDS_NOTHING} if acts_unasked(state.get("agent")) else state


def with_skills(state: dict[str, Any], include_skills: bool) -> dict[str, Any]:
    """Return a conversation's state, with or without the skills in its agent's context."""
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
    """Return the ids of a batch get, dashed. Raises ValidationError, with the index of each invalid id."""
    if not ids:
        raise ValidationError(["Missing data for required field."])
    if len(ids) > MOST_IDS:
        raise refusal(f"At most {MOST_IDS} conversation ids", "too_long")
    found: list[Any] = _IDS.deserialize(ids)
    return found


class ConversationListSearch(OrderedSearch):
    """The filters of conversations beside `status`, an order and a page. A conversation must match all filters."""

    order = ListingOrder("CREATED_AT", "UPDATED_AT", "TITLE", default="UPDATED_AT_DESC")
    start = PlaceId(by_title=True)
    title = Text(data_key="text", most=MOST_TITLE, metadata={"description": "Case-insensitive part of the title."})
    tag = TagFilter(metadata={"description": "A tag: `NAME` or `NAME=VALUE`."})
    sandbox_id = SandboxName()
    kind = Choice(
        *CONVERSATION_KINDS,
        metadata={"description": "Where its agent runs: `sandbox`, `external` in a terminal, or `detached` nowhere."},
    )
    updated_since = Instant(data_key="updated__gte")
    updated_until = Instant(data_key="updated__lt")


class ListedConversation(BaseSchema):
    """A conversation in a list."""

    id = fields.String(required=True, metadata={"format": "uuid"})
    title = fields.String(required=True, allow_none=True)
    execution_status = fields.String(required=True, metadata={"enum": list(EXECUTION_STATUSES)})
    pending = fields.Integer(required=True, metadata={"description": "Number of pending actions."})
    events = fields.Function(lambda state: state["seq"], metadata={"type": "integer", "minimum": 0})
    tags = fields.Dict(required=True)
    sandbox_id = fields.Function(
        lambda state: state["sandbox_id"] or None,
        metadata={**_NULLABLE, "description": "Null: it is detached. The list of sandboxes has its status."},
    )
    parent_conversation_id = fields.Function(
        lambda state: state["app"]["parent_conversation_id"], metadata={**_NULLABLE, "format": "uuid"}
    )
    llm_model = fields.Function(lambda state: state["app"]["llm_model"], metadata=_NULLABLE)
    external = fields.Nested(
        ExternalSession,
        required=True,
        allow_none=True,
        metadata={"description": "Session of an agent in a terminal; null for other agents."},
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
    """Return the distinct statuses of a search. Raises ValidationError, with the index of each invalid status."""
    found: list[Any] = _STATUSES.deserialize(statuses)
    return list(dict.fromkeys(found))


class ChangeNumber(WholeNumber):
    """The number of a change, as in the events of a list's stream."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(least=0, most=10**16 - 1, **kwargs)


class RunQuery(BaseSchema):
    """Whether a run may decide."""

    accepts = fields.Boolean(
        load_default=True,
        metadata={
            "description": "Whether the run accepts the pending actions. With false it is refused with 409 while "
            "an action waits. Send false if you saw no pending action, so that the run accepts none "
            "that arrived meanwhile."
        },
    )


class ListStreamQuery(BaseSchema):
    """The beginning of a stream."""

    after = ChangeNumber(
        data_key="last_event_id",
        metadata={"description": "Send the changes after this id, as with Last-Event-ID; absent: from now on."},
    )


class AskAgent(BaseSchema):
    question = Text(required=True)


class AgentAnswer(BaseSchema):
    response = fields.String(required=True)


class StartGoal(BaseSchema):
    objective = Text(required=True, metadata={"description": "Goal of the agent."})
    max_iterations = StrictInteger(least=1, load_default=10)


class Navigate(BaseSchema):
    event_id = Text(
        load_default=None,
        allow_none=True,
        metadata={"description": "The new head of the log; null: before all events."},
    )


class LoadPlugin(BaseSchema):
    plugin_ref = Text(required=True)


class SwitchLlm(BaseSchema):
    llm = fields.Dict(
        keys=fields.String(),
        required=True,
        metadata={"description": "A model with its key. This server does not store it."},
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


class SocketBashCommand(BaseSchema):
    """A command that a client sends over a socket."""

    command = Text(required=True, least=1, most=100_000)
    cwd = Text(most=4096, allow_none=True, load_default=None)
    timeout = StrictInteger(least=1, most=86_400, load_default=300)


class ConversationReport(BaseSchema):
    """The members of a ConversationInfo that are stored; the others follow from its events.

    A member that is too long is left out and named in `too_long`, because a refusal would lose all other members.
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
