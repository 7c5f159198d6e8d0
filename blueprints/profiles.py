"""Profiles of models and of agents that a key keeps for its clients. Source: the agent-server wire."""

from typing import Any

from marshmallow import ValidationError

from blueprints.api import Blueprint, InvalidInput, needs
from blueprints.client_settings import EXPOSE, asked_show, own_settings
from schemas.client_settings import (
    AgentProfile,
    AgentProfileActivated,
    AgentProfileDetail,
    AgentProfileDraft,
    AgentProfileList,
    AgentProfileReport,
    ProfileActivated,
    ProfileDetail,
    ProfileDone,
    ProfileDraft,
    ProfileList,
    ProfileRename,
    ProfileSave,
    ProfileVerdict,
    profile_name,
)

profiles = Blueprint("Profiles", __name__, url_prefix="/api/profiles")
agent_profiles = Blueprint("Agent Profiles", __name__, url_prefix="/api/agent-profiles")


def _checked(name: str) -> str:
    try:
        return profile_name(name)
    except ValidationError as fault:
        raise InvalidInput("path", {"name": fault.messages}) from None


def _done(name: str, what: str) -> dict[str, str]:
    return {"name": name, "message": f"Profile {name} {what}"}


@profiles.get("")
@needs("read")
@profiles.fails()
@profiles.response(200, ProfileList)
def list_profiles() -> dict[str, Any]:
    """List the profiles of models, and which is active."""
    return own_settings().profiles()


@profiles.get("/<name>")
@needs("read")
@profiles.fails(404)
@profiles.doc(parameters=[EXPOSE])
@profiles.response(200, ProfileDetail)
def get_profile(name: str) -> dict[str, Any]:
    """Get a model's profile; its key is null unless it is asked for sealed."""
    own = own_settings()
    show = asked_show(own)
    found = own.profile(_checked(name), show or own.masked)
    return found if show else {**found, "config": {**found["config"], "api_key": None}}


@profiles.post("/<name>")
@needs("write")
@profiles.fails(409, 413, 415)
@profiles.arguments(ProfileSave())
@profiles.response(201, ProfileDone)
def save_profile(given: dict[str, Any], name: str) -> dict[str, str]:
    """Keep a model under a name; one of that name is overwritten."""
    own_settings().save_profile(_checked(name), given["llm"], include_secrets=given["include_secrets"])
    return _done(name, "saved")


@profiles.post("/<name>/validate")
@needs("write")
@profiles.fails(413, 415)
@profiles.arguments(ProfileDraft())
@profiles.response(200, ProfileVerdict)
def validate_profile(given: dict[str, Any], name: str) -> dict[str, Any]:
    """Check what can be checked of a model without a call of it: this server calls no models, its agents do."""
    _checked(name)
    own_settings().opened(given["llm"])
    if "model" in given["llm"]:
        return {"valid": True, "error": None}
    return {"valid": False, "error": {"type": "missing", "message": "A model is needed: llm.model"}}


@profiles.post("/<name>/rename")
@needs("write")
@profiles.fails(404, 409, 413, 415)
@profiles.arguments(ProfileRename())
@profiles.response(200, ProfileDone)
def rename_profile(given: dict[str, str], name: str) -> dict[str, str]:
    """Rename a model's profile, also where agents' profiles and the settings name it."""
    own_settings().rename_profile(_checked(name), given["new_name"])
    return _done(given["new_name"], "renamed")


@profiles.post("/<name>/activate")
@needs("write")
@profiles.fails(404, 409)
@profiles.response(200, ProfileActivated)
def activate_profile(name: str) -> dict[str, Any]:
    """Make a model that of the settings, with which new conversations start."""
    own_settings().activate_profile(_checked(name))
    return {**_done(name, "activated"), "llm_applied": True}


@profiles.delete("/<name>")
@needs("write")
@profiles.fails(409)
@profiles.response(200, ProfileDone)
def delete_profile(name: str) -> dict[str, str]:
    """Forget a model's profile, if there is one; 409 while agents' profiles name it."""
    own_settings().delete_profile(_checked(name))
    return _done(name, "deleted")


@agent_profiles.get("")
@needs("read")
@agent_profiles.fails()
@agent_profiles.response(200, AgentProfileList)
def list_agent_profiles() -> dict[str, Any]:
    """List the profiles of agents, and which is active; `default` follows the settings until it is saved."""
    return own_settings().agents()


@agent_profiles.get("/<name>")
@needs("read")
@agent_profiles.fails(404)
@agent_profiles.response(200, AgentProfileDetail)
def get_agent_profile(name: str) -> dict[str, Any]:
    """Get an agent's profile, which has no secrets."""
    return {"name": name, "profile": own_settings().agent(_checked(name))}


@agent_profiles.post("/<name>")
@needs("write")
@agent_profiles.fails(409, 413, 415)
@agent_profiles.arguments(AgentProfile())
@agent_profiles.response(201, ProfileDone)
def save_agent_profile(given: dict[str, Any], name: str) -> dict[str, str]:
    """Keep an agent under a name; one of that name is overwritten, and keeps its id."""
    own_settings().save_agent(_checked(name), given)
    return _done(name, "saved")


@agent_profiles.post("/<name>/materialize")
@needs("read")
@agent_profiles.fails(404, 413, 415)
@agent_profiles.arguments(AgentProfileDraft(), required=False)
@agent_profiles.response(200, AgentProfileReport)
def materialize_agent_profile(given: dict[str, Any], name: str) -> dict[str, Any]:
    """Describe what a start with a profile, or with a draft of it, would find; nothing changes."""
    return own_settings().report_agent(_checked(name), given["profile"])


@agent_profiles.post("/<name>/rename")
@needs("write")
@agent_profiles.fails(404, 409, 413, 415)
@agent_profiles.arguments(ProfileRename())
@agent_profiles.response(200, ProfileDone)
def rename_agent_profile(given: dict[str, str], name: str) -> dict[str, str]:
    """Rename an agent's profile, which keeps its id."""
    own_settings().rename_agent(_checked(name), given["new_name"])
    return _done(given["new_name"], "renamed")


@agent_profiles.post("/<profile_id>/activate")
@needs("write")
@agent_profiles.fails(404, 409)
@agent_profiles.response(200, AgentProfileActivated)
def activate_agent_profile(profile_id: str) -> dict[str, str]:
    """Choose the profile that clients start conversations with, by its id."""
    own_settings().activate_agent(profile_id)
    return {"id": profile_id, "message": "Agent profile activated"}


@agent_profiles.delete("/<name>")
@needs("write")
@agent_profiles.fails(409)
@agent_profiles.response(200, ProfileDone)
def delete_agent_profile(name: str) -> dict[str, str]:
    """Forget an agent's profile, if there is one."""
    own_settings().delete_agent(_checked(name))
    return _done(name, "deleted")
