"""Keys and tickets; the one user that a key is, what a sandbox may know, and what a web client shows.

Sources: docs/access.md; the app-server wire.
"""

from functools import partial
from typing import Any

from marshmallow import RAISE, fields, validate

from core.access import SCOPES
from schemas.fields import BaseSchema, Choice, Fault, Id, Instant, ShownTime, Text
from schemas.people import OwnGrant, PersonName

#: most characters of a key's name
MOST_NAME = 100

_SCOPES: dict[str, Any] = {"metadata": {"uniqueItems": True}, "validate": validate.Length(min=1, max=len(SCOPES))}


#: characters that show nothing: controls, blanks but U+0020, marks of direction, private and special ones; and those
#: beyond U+FFFF: controls of music, shorthand and hieroglyphs, tags, and private ones
_UNSEEN = (
    r"\x00-\x1f\x7f-\xa0\xad\u0600-\u0605\u061c\u06dd\u070f\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f"
    r"\u3000\ue000-\uf8ff\ufdd0-\ufdef\ufeff\ufff0-\ufffb\ufffe\uffff"
    "\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U0010ffff"
)

#: what a name matches: the document says the same, so a name that fits it is taken whatever Unicode's release
_NAME = f"^[^ {_UNSEEN}]([^{_UNSEEN}]*[^ {_UNSEEN}])?$"


_NO_PROFILES: dict[str, object] = {"profiles": {}, "active": None}

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


#: a name that people read
PrintableName = partial(
    Text,
    least=1,
    most=MOST_NAME,
    pattern=_NAME,
    refused=Fault("String should be printable, without blanks around it", "string_pattern_mismatch"),
)


class KeyRequest(BaseSchema):
    """A key to make."""

    class Meta:
        unknown = RAISE

    name = PrintableName(required=True)
    scopes = fields.List(Choice(*SCOPES), required=True, **_SCOPES)
    expires_at = Instant(load_default=None, allow_none=True, metadata={"type": "string"})
    person = PersonName(
        load_default="",
        metadata={"description": "Whose key it is, where several people must approve. Absent: it counts by its name."},
    )


class KeyInfo(BaseSchema):
    """A key, without the key itself."""

    id = fields.String(required=True)
    name = fields.String(required=True)
    scopes = fields.List(fields.String(metadata={"enum": list(SCOPES)}), required=True)
    created_at = ShownTime()
    expires_at = ShownTime("Null: never.", optional=True)
    used_at = ShownTime("Its last use, to the minute; null: none yet.", optional=True)
    person = fields.String(required=True, metadata={"description": "Whose it is; empty: it counts by its name."})


class NewKey(KeyInfo):
    """A key with the key itself, which no later response has."""

    key = fields.String(required=True)
    notice = fields.String(
        required=True,
        allow_none=True,
        metadata={"description": "What the key changes for a server that is open now; null: nothing."},
    )


class TicketRequest(BaseSchema):
    """What a ticket is for."""

    class Meta:
        unknown = RAISE

    conversation_id = Id(
        metadata={"description": "The conversation to follow; absent: all pending actions, conversations or sandboxes."}
    )
    scopes = fields.List(
        Choice(*SCOPES), validate=_SCOPES["validate"], metadata={"description": "Absent: all that the asker has."}
    )


class Ticket(BaseSchema):
    ticket = fields.String(required=True, metadata={"description": "For the query of one socket or stream: `ticket=`."})
    expires_in = fields.Integer(required=True, metadata={"description": "Seconds."})


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
    person = fields.String(
        required=True,
        allow_none=True,
        metadata={
            "description": "The name by which a trusted proxy has authenticated the caller; null: a key was shown."
        },
    )
    groups = fields.List(fields.String(), required=True, metadata={"description": "Of a person, as the proxy says."})
    grants = fields.List(
        fields.Nested(OwnGrant),
        required=True,
        metadata={"description": "The rights of a person; those with tags are not in `scopes`."},
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
