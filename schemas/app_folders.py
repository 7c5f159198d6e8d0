"""The folder of an app conversation: its files, its repository, its skills and hooks. Source: the app-server wire."""

from marshmallow import fields

from schemas.fields import BaseSchema, Text

#: most characters of a path, and of the name of a commit, branch or tag
_MOST_PATH, _MOST_REF = 4096, 256


class FileQuery(BaseSchema):
    path = Text(
        data_key="file_path",
        load_default="PLAN.md",
        least=1,
        most=_MOST_PATH,
        metadata={"description": "In the conversation's folder; `/workspace/project` stands for that folder too."},
    )


class FolderQuery(BaseSchema):
    path = Text(load_default=".", most=_MOST_PATH, metadata={"description": "A folder in the conversation's folder."})


class GitQuery(BaseSchema):
    path = Text(required=True, least=1, most=_MOST_PATH)
    ref = Text(load_default=None, most=_MOST_REF, metadata={"description": "Absent: the agent server chooses one."})


class GitChange(BaseSchema):
    status = fields.String(required=True)
    path = fields.String(required=True)


class GitDiff(BaseSchema):
    modified = fields.String(required=True, allow_none=True)
    original = fields.String(required=True, allow_none=True)


class Skill(BaseSchema):
    name = fields.String(required=True)
    type = fields.String(required=True, metadata={"enum": ["repo", "knowledge", "agentskills"]})
    content = fields.String(required=True)
    triggers = fields.List(fields.String(), required=True)


class Skills(BaseSchema):
    skills = fields.List(fields.Nested(Skill), required=True)


class Hook(BaseSchema):
    event_type = fields.String(required=True)
    matchers = fields.List(fields.Dict(), required=True)


class Hooks(BaseSchema):
    hooks = fields.List(fields.Nested(Hook), required=True)
