"""Choices of a web client before it has a sandbox: models, tools and folders. Source: the wire of the agent server.

Skills and hooks of a workspace are not listed here, because only the agent server of the sandbox knows them: GET
/api/v1/app-conversations/{conversation_id}/skills and /hooks read them.
"""

from typing import Any

from flask import Response, g, jsonify

from agents.workspaces import OwnWorkspaces
from blueprints import current_specs, current_store
from blueprints.api import Blueprint, needs
from blueprints.client_settings import own_settings
from blueprints.operations import USABLE_TOOLS
from schemas.catalogs import (
    AddWorkspaceParents,
    AddWorkspaces,
    ModelQuery,
    Models,
    ModelsByProvider,
    OwnHooks,
    OwnSkills,
    ProjectQuery,
    Providers,
    ToolCatalog,
    WorkspaceDeleted,
    WorkspaceQuery,
    Workspaces,
)
from settings.specs import model_of

catalogs = Blueprint("Catalogs", __name__, url_prefix="/api")

#: Provider of a model whose name has no provider before a slash.
_PROVIDER = "openai"

#: Tools that an agent has by default. Source: the agent-server wire.
_DEFAULT_TOOLS = ("terminal", "file_editor", "task_tracker")


@catalogs.get("/llm/models")
@needs("read")
@catalogs.fails()
@catalogs.arguments(ModelQuery(), location="query")
@catalogs.response(200, Models)
def list_model_names(query: dict[str, str]) -> dict[str, list[str]]:
    """List the models in the sandbox specs and the caller's profiles. Other models can be used as well."""
    found = _models()
    wanted = [query["provider"]] if "provider" in query else found
    return {"models": sorted(model for provider in wanted for model in found.get(provider, []))}


@catalogs.get("/llm/models/verified")
@needs("read")
@catalogs.fails()
@catalogs.response(200, ModelsByProvider)
def list_verified_models() -> dict[str, Any]:
    """List the models by provider, without the provider's name."""
    return {"models": {one: [name.removeprefix(f"{one}/") for name in names] for one, names in _models().items()}}


@catalogs.get("/llm/providers")
@needs("read")
@catalogs.fails()
@catalogs.response(200, Providers)
def list_providers() -> dict[str, list[str]]:
    """List the providers of the models."""
    return {"providers": sorted(_models())}


def _models() -> dict[str, list[str]]:
    """Return the known models by provider."""
    named = [model_of(spec).model for spec in current_specs.all]
    named += [profile["model"] for profile in own_settings().profiles()["profiles"]]
    found: dict[str, list[str]] = {}
    for model in sorted({one for one in named if one}):
        provider, slash, _ = model.partition("/")
        found.setdefault(provider if slash else _PROVIDER, []).append(model)
    return found


@catalogs.get("/tools/")
@needs("read")
@catalogs.response(200, {"type": "array", "items": {"type": "string"}})
def list_tools() -> Response:
    """List the tools that agents of the published agent server may have.

    The agent server of a sandbox lists its own.
    """
    return jsonify(USABLE_TOOLS)


@catalogs.get("/tools/catalog")
@needs("read")
@catalogs.response(200, ToolCatalog)
def get_tool_catalog() -> dict[str, Any]:
    """List the tools of agents, and which of them an agent has by default."""
    return {
        "tools": [{"name": one, "description": "", "in_default_set": one in _DEFAULT_TOOLS} for one in USABLE_TOOLS]
    }


@catalogs.post("/skills")
@needs("read")
@catalogs.fails()
@catalogs.arguments(ProjectQuery(), required=False)
@catalogs.response(200, OwnSkills)
def list_skills(_: dict[str, Any]) -> dict[str, Any]:
    """List the skills of this server: none, because agent servers load the skills of their workspaces."""
    return {}


@catalogs.post("/hooks")
@needs("read")
@catalogs.fails()
@catalogs.arguments(ProjectQuery(), required=False)
@catalogs.response(200, OwnHooks)
def get_hooks(_: dict[str, Any]) -> dict[str, Any]:
    """Get the hooks of this server: none, because agent servers load the hooks of their workspaces."""
    return {}


def _own_workspaces() -> OwnWorkspaces:
    return OwnWorkspaces(current_store.access.settings, g.principal.owner)


@catalogs.get("/workspaces")
@needs("read")
@catalogs.fails()
@catalogs.response(200, Workspaces)
def list_workspaces() -> dict[str, Any]:
    """List the folders that the key's clients store."""
    return _own_workspaces().all()


@catalogs.post("/workspaces")
@needs("write")
@catalogs.fails(409)
@catalogs.arguments(AddWorkspaces())
@catalogs.response(200, Workspaces)
def add_workspaces(given: dict[str, Any]) -> dict[str, Any]:
    """Store folders, once per path.

    They are names for the working folders of sandboxes; the server does not read them.
    """
    return _own_workspaces().add("workspaces", given["workspaces"])


@catalogs.delete("/workspaces")
@needs("write")
@catalogs.fails(404, 409)
@catalogs.arguments(WorkspaceQuery(), location="query")
@catalogs.response(200, WorkspaceDeleted)
def delete_workspace(query: dict[str, str]) -> dict[str, bool]:
    """Delete a folder from the list."""
    _own_workspaces().delete("workspaces", query["path"])
    return {"deleted": True}


@catalogs.post("/workspaces/parents")
@needs("write")
@catalogs.fails(409)
@catalogs.arguments(AddWorkspaceParents())
@catalogs.response(200, Workspaces)
def add_workspace_parents(given: dict[str, Any]) -> dict[str, Any]:
    """Store parent folders, once per path."""
    return _own_workspaces().add("workspace_parents", given["parents"])


@catalogs.delete("/workspaces/parents")
@needs("write")
@catalogs.fails(404, 409)
@catalogs.arguments(WorkspaceQuery(), location="query")
@catalogs.response(200, WorkspaceDeleted)
def delete_workspace_parent(query: dict[str, str]) -> dict[str, bool]:
    """Delete a parent folder from the list."""
    _own_workspaces().delete("workspace_parents", query["path"])
    return {"deleted": True}
