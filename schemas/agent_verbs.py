"""What clients ask of the agent of a conversation, loosely: the agent server checks what is its own."""

from marshmallow import fields

from schemas.fields import BaseSchema, StrictInteger, Text


class AskAgent(BaseSchema):
    question = Text(required=True)


class AgentAnswer(BaseSchema):
    response = fields.String(required=True)


class StartGoal(BaseSchema):
    objective = Text(required=True, metadata={"description": "What the agent shall reach."})
    max_iterations = StrictInteger(least=1, load_default=10)


class Navigate(BaseSchema):
    event_id = Text(
        load_default=None, allow_none=True, metadata={"description": "The new head of the log; null: before all."}
    )


class LoadPlugin(BaseSchema):
    plugin_ref = Text(required=True)


class SwitchLlm(BaseSchema):
    llm = fields.Dict(
        keys=fields.String(), required=True, metadata={"description": "With its key: it is stored nowhere here."}
    )


class SwitchAcpModel(BaseSchema):
    model = Text(required=True)


class SwitchProfile(BaseSchema):
    profile_name = Text(required=True)


class RuntimeFailure(BaseSchema):
    code = fields.String(required=True)
    message = fields.String(required=True)


class RuntimeInfo(BaseSchema):
    """Whether the sandbox of a conversation runs. Source: the agent-server wire."""

    runtime_status = fields.String(
        required=True, metadata={"enum": ["available", "starting", "missing", "ownership_lost", "error"]}
    )
    can_resume = fields.Boolean(required=True)
    runtime_error = fields.Nested(RuntimeFailure, required=True, allow_none=True)


class RuntimeCredentials(BaseSchema):
    session_api_key = fields.String(required=True, metadata={"description": "The session key of the sandbox."})


class BashCommand(BaseSchema):
    """A command that a client sends over a socket."""

    command = Text(required=True, least=1, most=100_000)
    cwd = Text(most=4096, allow_none=True, load_default=None)
    timeout = StrictInteger(least=1, most=86_400, load_default=300)
