"""Settings of a key's clients: settings, profiles of models and agents, secrets. Source: the agent-server wire.

Clients use members that this server does not know. They are stored unchanged, and the agent server that receives them
checks its own members.
"""

import json
import re
from typing import Any, ClassVar

from marshmallow import INCLUDE, Schema, ValidationError, fields, validates_schema

from core.cuts import beginning
from core.masking import MOST_STEPS, REDACTED
from schemas.conversations import MOST_SECRET_BYTES
from schemas.fields import BaseSchema, Choice, StrictBoolean, StrictInteger, Text, refusal

#: Maximum number of characters of the name of a profile and of a secret.
_MOST_NAME = 64

#: Patterns of both names, for the OpenAPI document.
PROFILE_NAME = "^[A-Za-z0-9_][A-Za-z0-9_.@ -]{0,63}$"
SECRET_NAME = "^[A-Za-z][A-Za-z0-9_]{0,63}$"


def _checked_name(text: str, pattern: str, what: str) -> str:
    if not re.fullmatch(pattern, text):
        raise refusal(f"{what}, not {beginning(text, _MOST_NAME)!r}", "string_pattern_mismatch")
    return text


def profile_name(text: str) -> str:
    """Return the name of a profile. Raises ValidationError."""
    return _checked_name(text, PROFILE_NAME, "A profile's name should have 1 to 64 letters, digits, blanks and _ . @ -")


def secret_name(text: str) -> str:
    """Return the name of a secret. Raises ValidationError."""
    return _checked_name(
        text, SECRET_NAME, "A secret's name should be a letter and then letters, digits and _, 64 at most"
    )


class ProfileName(Text):
    """The name of a profile."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(metadata={"pattern": PROFILE_NAME, **kwargs.pop("metadata", {})}, **kwargs)

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> str:
        return profile_name(super()._deserialize(value, *args, **kwargs))


class _Open(Schema):
    """Known members are validated; others are stored."""

    class Meta:
        unknown = INCLUDE


class Llm(_Open):
    """A model, as an agent server reads it.

    Further members, such as `max_input_tokens` or `temperature`, are stored too.
    """

    model = Text(least=1, most=256)
    api_key = Text(most=8192, allow_none=True)
    base_url = Text(most=2048, allow_none=True)
    provider_connection_id = Text(
        most=128,
        allow_none=True,
        metadata={
            "description": "A provider connection with the model's key and base URL; null: the model has its own."
        },
    )


class SavedLlm(Llm):
    """A model with a name."""

    model = Text(required=True, least=1, most=256)


class AgentSettings(_Open):
    """Changes of an agent's settings, merged into the stored settings. Null removes."""

    agent_kind = Choice("openhands", "acp")
    llm = fields.Nested(Llm, allow_none=True)
    mcp_config = fields.Dict(
        keys=Text(least=1, most=128), allow_none=True, metadata={"propertyNames": {"minLength": 1, "maxLength": 128}}
    )


class ConversationSettings(_Open):
    """Changes of the settings of new conversations. Null removes."""

    max_iterations = StrictInteger(least=1, allow_none=True)
    confirmation_mode = StrictBoolean(allow_none=True, metadata={"description": "Whether actions wait for a decision."})
    security_analyzer = Choice("llm", "none", "pattern", "policy_rail", allow_none=True)


class SettingsUpdate(BaseSchema):
    """Changes of settings; at least one member."""

    as_a_whole: ClassVar[dict[str, Any]] = {
        "anyOf": [
            {"required": [name]}
            for name in (
                *("agent_settings_diff", "conversation_settings_diff", "misc_settings_diff"),
                *("active_profile", "active_agent_profile_id"),
            )
        ]
    }

    agent_settings_diff = fields.Nested(AgentSettings)
    conversation_settings_diff = fields.Nested(ConversationSettings)
    misc_settings_diff = fields.Dict(
        keys=fields.String(), metadata={"description": "A web client's own settings, stored unchanged."}
    )
    active_profile = ProfileName(allow_none=True, metadata={"description": "A model's profile; null: no profile."})
    active_agent_profile_id = fields.UUID(allow_none=True, metadata={"description": "Null: none."})

    @validates_schema(pass_original=True)
    def _require_one(self, _: Any, original: Any, **__: Any) -> None:
        if isinstance(original, dict) and not any(name in original for name in self.fields):
            raise refusal(f"At least one of {', '.join(self.fields)} is needed", "missing")


class SettingsInfo(BaseSchema):
    """The settings of the caller's key. Secret values are `**********`, or sealed."""

    agent_settings = fields.Dict(keys=fields.String(), required=True)
    conversation_settings = fields.Dict(keys=fields.String(), required=True)
    llm_api_key_is_set = fields.Boolean(required=True)
    active_profile = fields.String(required=True, allow_none=True)
    active_agent_profile_id = fields.String(required=True, allow_none=True)
    active_meta_profile = fields.Constant(None)
    misc_settings = fields.Dict(keys=fields.String(), required=True)


class SettingsChoice(BaseSchema):
    value = fields.Raw(required=True)
    label = fields.String(required=True)


class SettingsField(BaseSchema):
    """A setting of a form."""

    key = fields.String(required=True)
    label = fields.String(required=True)
    description = fields.String(required=True, allow_none=True)
    section = fields.String(required=True)
    section_label = fields.String(required=True)
    value_type = fields.String(required=True)
    default = fields.Raw(required=True, allow_none=True)
    prominence = fields.String(required=True)
    depends_on = fields.List(fields.String(), required=True)
    secret = fields.Boolean(required=True)
    choices = fields.List(fields.Nested(SettingsChoice), required=True)
    variant = fields.String(required=True, allow_none=True)


class SettingsSection(BaseSchema):
    key = fields.String(required=True)
    label = fields.String(required=True)
    members = fields.List(fields.Nested(SettingsField), required=True, data_key="fields")
    variant = fields.String(required=True, allow_none=True)


class SettingsForm(BaseSchema):
    """The settings of a web client's form."""

    model_name = fields.String(required=True)
    sections = fields.List(fields.Nested(SettingsSection), required=True)


class McpServer(_Open):
    """An MCP server for agents, as an agent server reads it."""


class SecretItem(BaseSchema):
    name = fields.String(required=True)
    description = fields.String(required=True, allow_none=True)


class SecretList(BaseSchema):
    secrets = fields.List(fields.Nested(SecretItem), required=True)


class SecretPut(BaseSchema):
    """A secret to store. No response has its value."""

    name = Text(required=True, metadata={"pattern": SECRET_NAME})
    value = Text(
        required=True,
        least=1,
        most=MOST_SECRET_BYTES,
        metadata={"pattern": r"^[^\x00]*[^\s\x00][^\x00]*$", "not": {"const": REDACTED}},
    )
    description = Text(most=1024, allow_none=True, load_default=None)

    @validates_schema
    def _check(self, given: dict[str, Any], **_: Any) -> None:
        try:
            secret_name(given["name"])
        except ValidationError as fault:
            raise ValidationError({"name": fault.messages}) from None
        if len(json.dumps(given["value"])) - len('""') > MOST_SECRET_BYTES:
            words = f"A secret has at most {MOST_SECRET_BYTES} bytes as JSON: a start carries it into an environment"
            raise ValidationError({"value": refusal(words, "too_long").messages})
        if not given["value"].strip() or given["value"] == REDACTED or "\0" in given["value"]:
            raise ValidationError({"value": refusal("Should be text with no NUL, and no mask", "value_error").messages})


class SecretDeleted(BaseSchema):
    deleted = fields.Boolean(required=True)


class ProfileInfo(BaseSchema):
    name = fields.String(required=True)
    model = fields.String(required=True, allow_none=True)
    base_url = fields.String(required=True, allow_none=True)
    provider_connection_id = fields.String(required=True, allow_none=True)
    provider_connection_broken = fields.Boolean(required=True)
    api_key_set = fields.Boolean(required=True)


class ProfileList(BaseSchema):
    profiles = fields.List(fields.Nested(ProfileInfo), required=True)
    active_profile = fields.String(required=True, allow_none=True)


class ProfileDetail(BaseSchema):
    name = fields.String(required=True)
    config = fields.Dict(keys=fields.String(), required=True)
    api_key_set = fields.Boolean(required=True)


class ProfileSave(BaseSchema):
    """A model to store under a name."""

    llm = fields.Nested(SavedLlm, required=True)
    include_secrets = StrictBoolean(load_default=True, metadata={"description": "False: store it without its key."})


class ProfileDraft(BaseSchema):
    llm = fields.Nested(Llm, required=True)


class ProfileFault(BaseSchema):
    type = fields.String(required=True)
    message = fields.String(required=True)


class ProfileVerdict(BaseSchema):
    valid = fields.Boolean(required=True)
    error = fields.Nested(ProfileFault, required=True, allow_none=True)


class ProfileRename(BaseSchema):
    new_name = ProfileName(required=True)


class ProfileDone(BaseSchema):
    name = fields.String(required=True)
    message = fields.String(required=True)


class ProfileActivated(ProfileDone):
    llm_applied = fields.Boolean(required=True)


class AgentProfile(_Open):
    """An agent for new conversations: a model's profile, and the agent's tools and secrets."""

    as_a_whole: ClassVar[dict[str, Any]] = {
        "anyOf": [
            {"required": ["llm_profile_ref"]},
            {"properties": {"agent_kind": {"const": "acp"}}, "required": ["agent_kind"]},
        ]
    }

    agent_kind = Choice("openhands", "acp", load_default="openhands")
    llm_profile_ref = ProfileName()
    mcp_server_refs = fields.List(Text(most=128), allow_none=True)
    secret_refs = fields.List(Text(most=_MOST_NAME), allow_none=True)

    @validates_schema
    def _require_model(self, given: dict[str, Any], **_: Any) -> None:
        if given["agent_kind"] == "openhands" and "llm_profile_ref" not in given:
            raise ValidationError({"llm_profile_ref": refusal("Field required", "missing").messages})


class AgentProfileInfo(BaseSchema):
    id = fields.String(required=True)
    name = fields.String(required=True)
    agent_kind = fields.String(required=True)
    revision = fields.Integer(required=True)
    llm_profile_ref = fields.String(required=True, allow_none=True)
    mcp_server_refs = fields.List(fields.String(), required=True, allow_none=True)


class AgentProfileList(BaseSchema):
    profiles = fields.List(fields.Nested(AgentProfileInfo), required=True)
    active_agent_profile_id = fields.String(required=True, allow_none=True)


class AgentProfileDetail(BaseSchema):
    name = fields.String(required=True)
    profile = fields.Dict(keys=fields.String(), required=True)


class AgentProfileActivated(BaseSchema):
    id = fields.String(required=True)
    message = fields.String(required=True)
    agent_settings_applied = fields.Constant(False)


class AgentProfileDraft(BaseSchema):
    """A profile to inspect instead of the stored one."""

    body_optional = True

    profile = fields.Nested(AgentProfile, allow_none=True, load_default=None)


class AgentProfileReport(BaseSchema):
    """The effective settings of a start with the profile."""

    agent_kind = fields.String(required=True)
    valid = fields.Boolean(required=True)
    errors = fields.List(fields.String(), required=True)
    llm_profile_ref = fields.String(required=True, allow_none=True)
    llm_profile_resolved = fields.Boolean(required=True)
    llm_api_key_set = fields.Boolean(required=True)
    mcp_server_refs = fields.List(fields.String(), required=True, allow_none=True)
    resolved_mcp_config_keys = fields.List(fields.String(), required=True)
    dangling_mcp_server_refs = fields.List(fields.String(), required=True)
    secret_refs = fields.List(fields.String(), required=True, allow_none=True)
    resolved_settings = fields.Dict(keys=fields.String(), required=True, allow_none=True)


def _field(key: str, label: str, kind: str, prominence: str = "minor", **more: Any) -> dict[str, Any]:
    return {
        "key": key,
        "label": label,
        "description": None,
        "value_type": kind,
        "default": None,
        "prominence": prominence,
        "depends_on": [],
        "secret": False,
        "choices": [],
        "variant": None,
        **more,
    }


def _section(key: str, label: str, variant: str | None, *members: dict[str, Any]) -> dict[str, Any]:
    listed = [{**member, "section": key, "section_label": label, "variant": variant} for member in members]
    return {"key": key, "label": label, "variant": variant, "members": listed}


AGENT_FORM = {
    "model_name": "AgentSettings",
    "sections": [
        _section(
            "llm",
            "LLM",
            "openhands",
            _field("llm.model", "Model", "string", "critical"),
            _field("llm.api_key", "API key", "string", "critical", secret=True),
            _field("llm.base_url", "Base URL", "string", "major", description="Unset: the provider's own."),
            _field("llm.max_input_tokens", "Context window", "integer", description="In tokens."),
            _field("llm.max_output_tokens", "Longest response", "integer", description="In tokens."),
            _field("llm.temperature", "Temperature", "number"),
            _field("llm.timeout", "Timeout", "integer", description="Of one request, in seconds."),
        )
    ],
}


def conversation_form(confirmation_mode: bool) -> dict[str, Any]:
    """Return the form of the settings of new conversations. confirmation_mode: its default."""
    analyzers = [{"value": value, "label": label} for value, label in (("llm", "The model"), ("none", "None"))]
    return {
        "model_name": "ConversationSettings",
        "sections": [
            _section(
                "general",
                "General",
                None,
                _field("max_iterations", "Most steps", "integer", "major", default=MOST_STEPS),
            ),
            _section(
                "verification",
                "Verification",
                None,
                _field(
                    "confirmation_mode",
                    "Actions wait for a decision",
                    "boolean",
                    "critical",
                    default=confirmation_mode,
                ),
                _field(
                    "security_analyzer",
                    "Risks are rated by",
                    "string",
                    "major",
                    default="none",
                    depends_on=["confirmation_mode"],
                    choices=analyzers,
                    description="With a rating, only risky actions wait.",
                ),
            ),
        ],
    }
