"""Settings of a key's clients: settings, secrets, and profiles of models and agents.

Source: the agent-server wire; docs/wire.md. No response has a secret in plain text. A client that has to send a secret
back to this server asks for it sealed.
"""

from typing import Any

from flask import g, request
from werkzeug.exceptions import Conflict, Forbidden, NotFound

from agents.client_settings import OwnSettings, Show, Template
from blueprints import current_specs, current_store
from blueprints.api import Blueprint, InvalidInput, needs, refused
from schemas import client_settings as schemas
from schemas.fields import FieldFault, checked_text

client_settings = Blueprint("Settings", __name__, url_prefix="/api/settings")

_EXPOSED = "X-Expose-Secrets"

#: Header of a client that asks for sealed secrets.
EXPOSE = {
    "in": "header",
    "name": _EXPOSED,
    "required": False,
    "schema": {"type": "string", "enum": ["encrypted"]},
    "description": "`encrypted`: secrets are sealed for this server instead of masked; needs the scope write.",
}


def own_settings() -> OwnSettings:
    """Return the settings of the caller. Valid only during a request."""
    template = Template.of(current_specs.of_own_agents)
    return OwnSettings(current_store.access.settings, g.principal.owner, template)


def asked_show(own: OwnSettings) -> Show | None:
    """Return how the response shows secrets, by the request's header; None without the header.

    Raises InvalidInput for plain text, Forbidden for a key without the scope `write`.
    """
    asked = request.headers.get(_EXPOSED, "").strip().lower()
    if not asked:
        return None
    if asked not in ("encrypted", "true"):  # older clients send `true`
        fault = FieldFault("Secrets are not shown in plain text: should be `encrypted`, or absent", "enum")
        raise InvalidInput("header", {_EXPOSED: [fault]})
    if not g.principal.may("write"):
        raise Forbidden(
            "Sealed secrets are for starts. This needs a key with the scope write: an admin makes one by "
            "POST /api/v1/keys"
        )
    return own.sealed


@client_settings.get("")
@needs("read")
@client_settings.fails()
@client_settings.doc(parameters=[EXPOSE])
@client_settings.response(200, schemas.SettingsInfo)
def get_settings() -> dict[str, Any]:
    """Get the settings of the caller's key, with defaults from the sandbox spec."""
    own = own_settings()
    return own.info(asked_show(own) or own.masked)


@client_settings.patch("")
@needs("write")
@client_settings.fails(404, 409)
@client_settings.arguments(schemas.SettingsUpdate())
@client_settings.response(200, schemas.SettingsInfo)
def update_settings(given: dict[str, Any]) -> dict[str, Any]:
    """Change settings: each diff is merged into the stored settings.

    Null removes, and a mask leaves a secret unchanged.
    """
    return own_settings().update(given)


@client_settings.get("/agent-schema")
@needs("read")
@client_settings.response(200, schemas.SettingsForm)
def get_agent_schema() -> dict[str, Any]:
    """Describe the settings of agents, for forms."""
    return schemas.AGENT_FORM


@client_settings.get("/conversation-schema")
@needs("read")
@client_settings.response(200, schemas.SettingsForm)
def get_conversation_schema() -> dict[str, Any]:
    """Describe the settings of conversations, for forms."""
    return schemas.conversation_form(Template.of(current_specs.of_own_agents).waits)


@client_settings.post("/mcp/<settings_key>")
@client_settings.misses_nothing
@needs("write")
@client_settings.fails(409)
@client_settings.arguments(schemas.McpServer())
@client_settings.response(201, schemas.SettingsInfo)
def create_mcp_server(server: dict[str, Any], settings_key: str) -> dict[str, Any]:
    """Add an MCP server to the settings of agents."""
    own = own_settings()
    if settings_key in _servers(own):
        raise Conflict(f"The MCP server {settings_key} exists already: PATCH changes it")
    return own.update(_of_server(settings_key, server))


@client_settings.patch("/mcp/<settings_key>")
@needs("write")
@client_settings.fails(409)
@client_settings.arguments(schemas.McpServer())
@client_settings.response(200, schemas.SettingsInfo)
def update_mcp_server(server: dict[str, Any], settings_key: str) -> dict[str, Any]:
    """Change an MCP server. Null removes a member."""
    return _existing(settings_key).update(_of_server(settings_key, server))


@client_settings.delete("/mcp/<settings_key>")
@needs("write")
@client_settings.fails(409)
@client_settings.response(200, schemas.SettingsInfo)
def delete_mcp_server(settings_key: str) -> dict[str, Any]:
    """Remove an MCP server."""
    return _existing(settings_key).update(_of_server(settings_key, None))


def _servers(own: OwnSettings) -> dict[str, Any]:
    servers: dict[str, Any] = own.info(own.masked)["agent_settings"]["mcp_config"]
    return servers


def _existing(settings_key: str) -> OwnSettings:
    own = own_settings()
    if settings_key not in _servers(own):
        raise NotFound(f"MCP server {settings_key} not found. GET /api/settings lists those that are there")
    return own


def _of_server(settings_key: str, server: dict[str, Any] | None) -> dict[str, Any]:
    with refused("path", "settings_key"):
        name = checked_text(settings_key, least=1, most=128)
    return {"agent_settings_diff": {"mcp_config": {name: server}}}


@client_settings.get("/secrets")
@needs("read")
@client_settings.fails()
@client_settings.response(200, schemas.SecretList)
def list_secrets() -> dict[str, Any]:
    """List the names of the key's secrets. A start names the secrets that its agent gets."""
    return {"secrets": own_settings().secrets()}


@client_settings.put("/secrets")
@needs("write")
@client_settings.fails(409)
@client_settings.arguments(schemas.SecretPut())
@client_settings.response(200, schemas.SecretItem)
def put_secret(given: dict[str, Any]) -> dict[str, Any]:
    """Store a secret, sealed, and overwrite a secret of that name. No response shows its value."""
    own_settings().put_secret(given["name"], given["value"], given["description"])
    return given


@client_settings.delete("/secrets/<name>")
@needs("write")
@client_settings.fails(409)
@client_settings.response(200, schemas.SecretDeleted)
def delete_secret(name: str) -> dict[str, bool]:
    """Delete a secret. Conversations that have it keep it."""
    with refused("path", "name"):
        own_settings().delete_secret(schemas.secret_name(name))
    return {"deleted": True}


profiles = Blueprint("Profiles", __name__, url_prefix="/api/profiles")
agent_profiles = Blueprint("Agent Profiles", __name__, url_prefix="/api/agent-profiles")


def _checked(name: str) -> str:
    with refused("path", "name"):
        return schemas.profile_name(name)


def _done(name: str, what: str) -> dict[str, str]:
    return {"name": name, "message": f"Profile {name} {what}"}


@profiles.get("")
@needs("read")
@profiles.fails()
@profiles.response(200, schemas.ProfileList)
def list_profiles() -> dict[str, Any]:
    """List the profiles of models, and the active one."""
    return own_settings().profiles()


@profiles.get("/<name>")
@needs("read")
@profiles.fails()
@profiles.doc(parameters=[EXPOSE])
@profiles.response(200, schemas.ProfileDetail)
def get_profile(name: str) -> dict[str, Any]:
    """Get a model's profile. Its key is null unless the request asks for it sealed."""
    own = own_settings()
    show = asked_show(own)
    found = own.profile(_checked(name), show or own.masked)
    return found if show else {**found, "config": {**found["config"], "api_key": None}}


@profiles.post("/<name>")
@profiles.misses_nothing
@needs("write")
@profiles.fails(409)
@profiles.arguments(schemas.ProfileSave())
@profiles.response(201, schemas.ProfileDone)
def save_profile(given: dict[str, Any], name: str) -> dict[str, str]:
    """Store a model under a name, and overwrite a profile of that name."""
    own_settings().save_profile(_checked(name), given["llm"], include_secrets=given["include_secrets"])
    return _done(name, "saved")


@profiles.post("/<name>/validate")
@profiles.misses_nothing
@needs("write")
@profiles.fails()
@profiles.arguments(schemas.ProfileDraft())
@profiles.response(200, schemas.ProfileVerdict)
def validate_profile(given: dict[str, Any], name: str) -> dict[str, Any]:
    """Check a model without calling it: only agents call models."""
    _checked(name)
    own_settings().opened(given["llm"])
    if "model" in given["llm"]:
        return {"valid": True, "error": None}
    return {"valid": False, "error": {"type": "missing", "message": "A model is needed: llm.model"}}


@profiles.post("/<name>/rename")
@needs("write")
@profiles.fails(409)
@profiles.arguments(schemas.ProfileRename())
@profiles.response(200, schemas.ProfileDone)
def rename_profile(given: dict[str, str], name: str) -> dict[str, str]:
    """Rename a model's profile, and its references in agents' profiles and the settings."""
    own_settings().rename_profile(_checked(name), given["new_name"])
    return _done(given["new_name"], "renamed")


@profiles.post("/<name>/activate")
@needs("write")
@profiles.fails(409)
@profiles.response(200, schemas.ProfileActivated)
def activate_profile(name: str) -> dict[str, Any]:
    """Copy a model's profile into the settings, with which new conversations start."""
    own_settings().activate_profile(_checked(name))
    return {**_done(name, "activated"), "llm_applied": True}


@profiles.delete("/<name>")
@profiles.misses_nothing
@needs("write")
@profiles.fails(409)
@profiles.response(200, schemas.ProfileDone)
def delete_profile(name: str) -> dict[str, str]:
    """Delete a model's profile, if it exists; 409 while agents' profiles name it."""
    own_settings().delete_profile(_checked(name))
    return _done(name, "deleted")


@agent_profiles.get("")
@needs("read")
@agent_profiles.fails()
@agent_profiles.response(200, schemas.AgentProfileList)
def list_agent_profiles() -> dict[str, Any]:
    """List the profiles of agents, and the active one. `default` follows the settings until it is saved."""
    return own_settings().agents()


@agent_profiles.get("/<name>")
@needs("read")
@agent_profiles.fails()
@agent_profiles.response(200, schemas.AgentProfileDetail)
def get_agent_profile(name: str) -> dict[str, Any]:
    """Get an agent's profile. It contains no secrets."""
    return {"name": name, "profile": own_settings().agent(_checked(name))}


@agent_profiles.post("/<name>")
@agent_profiles.misses_nothing
@needs("write")
@agent_profiles.fails(409)
@agent_profiles.arguments(schemas.AgentProfile())
@agent_profiles.response(201, schemas.ProfileDone)
def save_agent_profile(given: dict[str, Any], name: str) -> dict[str, str]:
    """Store an agent under a name. An overwritten profile keeps its id."""
    own_settings().save_agent(_checked(name), given)
    return _done(name, "saved")


@agent_profiles.post("/<name>/materialize")
@needs("read")
@agent_profiles.fails()
@agent_profiles.arguments(schemas.AgentProfileDraft(), required=False)
@agent_profiles.response(200, schemas.AgentProfileReport)
def materialize_agent_profile(given: dict[str, Any], name: str) -> dict[str, Any]:
    """Describe what a start with a profile, or with a draft of it, would use. It changes nothing."""
    return own_settings().report_agent(_checked(name), given["profile"])


@agent_profiles.post("/<name>/rename")
@needs("write")
@agent_profiles.fails(409)
@agent_profiles.arguments(schemas.ProfileRename())
@agent_profiles.response(200, schemas.ProfileDone)
def rename_agent_profile(given: dict[str, str], name: str) -> dict[str, str]:
    """Rename an agent's profile. It keeps its id."""
    own_settings().rename_agent(_checked(name), given["new_name"])
    return _done(given["new_name"], "renamed")


@agent_profiles.post("/<profile_id>/activate")
@needs("write")
@agent_profiles.fails(409)
@agent_profiles.response(200, schemas.AgentProfileActivated)
def activate_agent_profile(profile_id: str) -> dict[str, str]:
    """Choose, by its id, the profile with which clients start conversations."""
    own_settings().activate_agent(profile_id)
    return {"id": profile_id, "message": "Agent profile activated"}


@agent_profiles.delete("/<name>")
@agent_profiles.misses_nothing
@needs("write")
@agent_profiles.fails(409)
@agent_profiles.response(200, schemas.ProfileDone)
def delete_agent_profile(name: str) -> dict[str, str]:
    """Delete an agent's profile, if it exists."""
    own_settings().delete_agent(_checked(name))
    return _done(name, "deleted")
