"""Keys and tickets, the current user, secrets of sandboxes, and features of web clients.

Sources: docs/access.md; the app-server wire.
"""

from functools import partial
from typing import Any

from marshmallow import RAISE, fields, validate

from core.access import SCOPES
from schemas.fields import BaseSchema, Choice, FieldFault, Id, Instant, ShownTime, Text
from schemas.people import OwnGrant, PersonName

#: Maximum number of characters of a key's name.
MOST_NAME = 100

_SCOPES: dict[str, Any] = {"metadata": {"uniqueItems": True}, "validate": validate.Length(min=1, max=len(SCOPES))}


#: Invisible characters: controls, spaces other than U+0020, direction marks, private and special characters. Beyond
#: U+FFFF: controls of music, shorthand and hieroglyphs, tags, and private characters.
_UNSEEN = (
    r"\x00-\x1f\x7f-\xa0\xad\u0600-\u0605\u061c\u06dd\u070f\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f"
    r"\u3000\ue000-\uf8ff\ufdd0-\ufdef\ufeff\ufff0-\ufffb\ufffe\uffff"
    "\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U0010ffff"
)

#: Pattern of a name. The document has the same pattern, so it does not depend on Python's Unicode release.
_NAME = f"^[^ {_UNSEEN}]([^{_UNSEEN}]*[^ {_UNSEEN}])?$"


_NO_PROFILES: dict[str, object] = {"profiles": {}, "active": None}

_NONE: list[str] = []

#: Settings, integrations, accounts and bills do not exist here. A client that hides those pages requests none of them.
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


#: A name for people.
PrintableName = partial(
    Text,
    least=1,
    most=MOST_NAME,
    pattern=_NAME,
    refused=FieldFault("String should be printable, without blanks around it", "string_pattern_mismatch"),
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
        metadata={
            "description": "The key's owner, where several people must approve. Absent: the key counts by its name."
        },
    )


class KeyInfo(BaseSchema):
    """A key, without its secret."""

    id = fields.String(required=True)
    name = fields.String(required=True)
    scopes = fields.List(fields.String(metadata={"enum": list(SCOPES)}), required=True)
    created_at = ShownTime()
    expires_at = ShownTime("Null: never.", optional=True)
    used_at = ShownTime("Last use, to the minute; null: not used yet.", optional=True)
    person = fields.String(
        required=True, metadata={"description": "The key's owner; empty: the key counts by its name."}
    )


class NewKey(KeyInfo):
    """A new key with its secret, which no later response contains."""

    key = fields.String(required=True)
    notice = fields.String(
        required=True,
        allow_none=True,
        metadata={"description": "How the key changes a server that is open now; null: it changes nothing."},
    )


class TicketRequest(BaseSchema):
    """The purpose of a ticket."""

    class Meta:
        unknown = RAISE

    conversation_id = Id(
        metadata={"description": "The conversation to follow; absent: all pending actions, conversations or sandboxes."}
    )
    scopes = fields.List(
        Choice(*SCOPES), validate=_SCOPES["validate"], metadata={"description": "Absent: all scopes of the caller."}
    )


class Ticket(BaseSchema):
    ticket = fields.String(required=True, metadata={"description": "Query member `ticket` of a socket or stream."})
    expires_in = fields.Integer(required=True, metadata={"description": "Seconds."})


class UserQuery(BaseSchema):
    expose_secrets = fields.Boolean(
        load_default=False,
        metadata={"description": "Include the model's key. X-Session-API-Key must be the key of a running sandbox."},
    )


class User(BaseSchema):
    """The caller. The model is that of the first spec, or of the sandbox whose session key is sent."""

    id = fields.String(required=True, metadata={"description": "The id of the key."})
    name = fields.String(required=True)
    scopes = fields.List(
        fields.String(metadata={"enum": list(SCOPES)}),
        required=True,
        metadata={"description": "The key's scopes, including implied scopes."},
    )
    person = fields.String(
        required=True,
        allow_none=True,
        metadata={"description": "The caller's name from a trusted proxy; null: the caller sent a key."},
    )
    groups = fields.List(
        fields.String(), required=True, metadata={"description": "Groups of a person, from the proxy."}
    )
    grants = fields.List(
        fields.Nested(OwnGrant),
        required=True,
        metadata={"description": "The rights of a person. Rights with tags are not in `scopes`."},
    )
    llm_model = fields.String(allow_none=True)
    llm_base_url = fields.String(allow_none=True)
    llm_api_key = fields.String(
        allow_none=True, metadata={"description": "Null without `expose_secrets`. The sandbox has this key anyway."}
    )
    llm_profiles = fields.Constant(_NO_PROFILES)
    mcp_config = fields.Constant(None)


class SandboxSecret(BaseSchema):
    name = fields.String(required=True)
    description = fields.Constant(None)


class SandboxSecrets(BaseSchema):
    """The names in a sandbox spec's `secret_env`."""

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
