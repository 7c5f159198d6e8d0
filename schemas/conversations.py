"""Conversations: the request that starts one, and what is told of it."""

from typing import Any

from marshmallow import ValidationError, fields, post_load

from schemas.confirmations import ConfirmationPolicy
from schemas.events import SendMessageRequest
from schemas.fields import BaseSchema, Fault, Id, StrictBoolean, StrictInteger, Text, refusal

#: members of an agent's settings that are never kept: what is not stored cannot leak
_SECRET_ENDINGS = (
    "api_key",
    "secret",
    "secret_key",
    "secret_access_key",
    "access_key_id",
    "password",
    "token",
)
_REDACTED = "**********"


class Tags(fields.Dict):
    """Labels: keys of a-z and 0-9, values of up to 256 characters. Source: the agent-server wire."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(keys=fields.String(), values=Text(most=256), **kwargs)

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> dict[str, str]:
        tags: dict[str, str] = super()._deserialize(value, *args, **kwargs)
        for key in tags:
            if not (key.isascii() and key.isalnum() and key == key.lower()):
                raise refusal(f"A tag's key should have only a-z and 0-9, not {key[:64]!r}", "string_pattern_mismatch")
        return tags


class StartConversationRequest(BaseSchema):
    """Everything is optional; what is not named here is passed over. Source: the agent-server wire."""

    body_optional = True

    conversation_id = Id(allow_none=True, metadata={"description": "Chosen by the server when absent."})
    title = Text(allow_none=True, least=1, most=200)
    confirmation_policy = fields.Nested(ConfirmationPolicy, metadata={"description": "Default: NeverConfirm."})
    tags = Tags()
    initial_message = fields.Nested(
        SendMessageRequest, allow_none=True, metadata={"description": "Sent first; it always starts a run."}
    )
    agent = fields.Dict(keys=fields.String(), allow_none=True, metadata={"description": "Kept without its secrets."})
    workspace = fields.Dict(keys=fields.String(), allow_none=True)
    parent_conversation_id = Id(allow_none=True)
    security_analyzer = fields.Dict(keys=fields.String(), allow_none=True)
    max_iterations = StrictInteger(least=1)
    stuck_detection = StrictBoolean()
    hook_config = fields.Dict(keys=fields.String(), allow_none=True)
    client_tools = fields.List(fields.Raw())
    user_id = Text(allow_none=True)
    secrets = fields.Dict(
        keys=fields.String(),
        allow_none=True,
        metadata={"description": "Must be empty: secrets are not kept yet."},
    )

    @post_load
    def _without_secrets(self, request: dict[str, Any], **_: Any) -> dict[str, Any]:
        if request.pop("secrets", None):
            fault = Fault("Secrets cannot be kept yet: leave them out or empty", "value_error")
            raise ValidationError([fault], field_name="secrets")
        if message := request.pop("initial_message", None):
            request["initial_message"] = message["content"]
        if "agent" in request:
            request["agent"] = _redacted(request["agent"])
        return request


def _redacted(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: _REDACTED
            if isinstance(inner, str) and inner and name.lower().endswith(_SECRET_ENDINGS)
            else _redacted(inner)
            for name, inner in value.items()
        }
    return [_redacted(inner) for inner in value] if isinstance(value, list) else value


class ConversationInfo(BaseSchema):
    """A conversation with every member that clients look for. Source: the agent-server wire."""

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
    secret_registry = fields.Dict(dump_default=lambda: {"secret_sources": {}})
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
