"""The one user that a key is, and what a sandbox may know. Source: the app-server wire."""

from marshmallow import fields

from access import SCOPES
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
