"""What a web client reads before its first page. Source: the app-server wire."""

from marshmallow import fields

from schemas.fields import BaseSchema

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
