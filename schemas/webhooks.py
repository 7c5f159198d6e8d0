"""The report of an agent server about a conversation. Source: the app-server wire."""

import json
from typing import Any

from marshmallow import fields, post_load

from core.redaction import redacted
from core.wire import MOST_AGENT_BYTES, MOST_REPORTED_BYTES, REPORTED_MEMBERS, are_capabilities
from schemas.conversations import Settings
from schemas.fields import BaseSchema, Id

#: members that hold descriptions of values and no values: what looks like a secret there is the name of a parameter
_DESCRIPTIONS = ("client_tools", "tool_module_qualnames")


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
        bounds = {**dict.fromkeys((*REPORTED_MEMBERS, "tags", "stats"), MOST_REPORTED_BYTES), "agent": MOST_AGENT_BYTES}
        too_long = [name for name, most in bounds.items() if name in told and len(json.dumps(told[name])) > most]
        kept = {
            name: value if name in _DESCRIPTIONS or name not in REPORTED_MEMBERS else redacted(value)
            for name, value in told.items()
            if name not in too_long and (name != "capabilities" or are_capabilities(value))
        }
        return {**kept, "too_long": too_long}
