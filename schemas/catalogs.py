"""Choices of a web client: models, tools, skills, hooks and folders. Source: the agent-server wire."""

from typing import Any

from marshmallow import fields

from schemas.fields import BaseSchema, Text

#: Maximum number of characters of a path.
_MOST_PATH = 4096

_NOTHING: list[Any] = []
_NO_SOURCES: dict[str, int] = {}


class ModelQuery(BaseSchema):
    provider = Text(most=128)


class Models(BaseSchema):
    models = fields.List(fields.String(), required=True)


class ModelsByProvider(BaseSchema):
    models = fields.Dict(keys=fields.String(), values=fields.List(fields.String()), required=True)


class Providers(BaseSchema):
    providers = fields.List(fields.String(), required=True)


class Tool(BaseSchema):
    """A tool of agents."""

    name = fields.String(required=True)
    user_selectable = fields.Constant(True)
    usable = fields.Constant(True)
    description = fields.String(required=True)
    in_default_set = fields.Boolean(required=True)


class ToolCatalog(BaseSchema):
    tools = fields.List(fields.Nested(Tool), required=True)


class ProjectQuery(BaseSchema):
    """The folder of a project, in a sandbox that may not exist yet."""

    body_optional = True

    project_dir = Text(most=_MOST_PATH, allow_none=True, load_default=None)


class OwnSkills(BaseSchema):
    """No skills: agent servers load the skills of their workspaces."""

    skills = fields.Constant(_NOTHING)
    sources = fields.Constant(_NO_SOURCES)


class OwnHooks(BaseSchema):
    """No hooks: agent servers load the hooks of their workspaces."""

    hook_config = fields.Constant(None)


class Home(BaseSchema):
    """The parent folder for conversations that have no sandbox yet."""

    home = fields.String(required=True)
    favorites = fields.Constant(_NOTHING)
    locations = fields.Constant(_NOTHING)


class WorkspaceParent(BaseSchema):
    """A folder whose subfolders a client offers. It is stored unchanged, and the server never reads it."""

    id = Text(required=True, least=1, most=_MOST_PATH)
    name = Text(required=True, least=1, most=256)
    path = Text(required=True, least=1, most=_MOST_PATH)


class Workspace(WorkspaceParent):
    """A folder that a client offers for conversations."""

    parent_path = Text(data_key="parentPath", most=_MOST_PATH, allow_none=True)


class Workspaces(BaseSchema):
    workspaces = fields.List(fields.Nested(Workspace), required=True)
    workspace_parents = fields.List(fields.Nested(WorkspaceParent), required=True, data_key="workspaceParents")


class AddWorkspaces(BaseSchema):
    workspaces = fields.List(fields.Nested(Workspace), required=True)


class AddWorkspaceParents(BaseSchema):
    parents = fields.List(fields.Nested(WorkspaceParent), required=True)


class WorkspaceQuery(BaseSchema):
    path = Text(required=True, most=_MOST_PATH)


class WorkspaceDeleted(BaseSchema):
    deleted = fields.Boolean(required=True)
