"""The one user that a key is, what a sandbox may know, and what a web client shows. Source: the app-server wire."""

from marshmallow import fields

from core.access import SCOPES
from schemas.fields import BaseSchema

_NO_PROFILES: dict[str, object] = {"profiles": {}, "active": None}


class UserQuery(BaseSchema):
    expose_secrets = fields.Boolean(
        load_default=False,
        metadata={"description": "Also the model's key: X-Session-API-Key must be that of a sandbox which runs."},
    )


class User(BaseSchema):
    """The one who asks. The model is that of the first spec, or of the sandbox whose session key is shown."""

    id = fields.String(required=True, metadata={"description": "The id of the key."})
    name = fields.String(required=True)
    scopes = fields.List(
        fields.String(metadata={"enum": list(SCOPES)}),
        required=True,
        metadata={"description": "What the key may do, with the scopes that another one includes."},
    )
    llm_model = fields.String(allow_none=True)
    llm_base_url = fields.String(allow_none=True)
    llm_api_key = fields.String(
        allow_none=True, metadata={"description": "Null but with `expose_secrets`: the sandbox has it anyway."}
    )
    llm_profiles = fields.Constant(_NO_PROFILES)
    mcp_config = fields.Constant(None)


class SandboxSecret(BaseSchema):
    name = fields.String(required=True)
    description = fields.Constant(None)


class SandboxSecrets(BaseSchema):
    """The names of what a sandbox's spec has as `secret_env`."""

    secrets = fields.List(fields.Nested(SandboxSecret), required=True)


_NONE: list[str] = []

#: settings, integrations, accounts and bills are not kept here: a client that hides those pages asks for none of them
FEATURES = {
    "enable_billing": False,
    "hide_llm_settings": True,
    "enable_jira": False,
    "enable_jira_dc": False,
    "enable_linear": False,
    "hide_users_page": True,
    "hide_billing_page": True,
    "hide_integrations_page": True,
    "hide_personal_workspaces": True,
    "allow_user_llm_configuration": False,
    "enable_acp": False,
    "deployment_mode": None,
    "enable_onboarding": False,
    "enable_automations": False,
    "enable_agent_canvas_banner": False,
}


class WebClientConfig(BaseSchema):
    """The features that a web client shows."""

    kind = fields.Constant("WebClientConfig")
    app_mode = fields.Constant("oss")
    posthog_client_key = fields.Constant(None)
    feature_flags = fields.Constant(FEATURES)
    providers_configured = fields.Constant(_NONE)
    maintenance_start_time = fields.Constant(None)
    auth_url = fields.Constant(None)
    recaptcha_site_key = fields.Constant(None)
    faulty_models = fields.Constant(_NONE)
    error_message = fields.Constant(None)
    updated_at = fields.String(required=True, metadata={"format": "date-time"})
    github_app_slug = fields.Constant(None)
    acp_providers = fields.Constant(_NONE)
