"""The server itself: whether it is ready, and what it is."""

from marshmallow import fields

from schemas.fields import BaseSchema
from schemas.sandboxes import Isolation


class Status(BaseSchema):
    status = fields.String(required=True)


class StoreState(BaseSchema):
    kind = fields.String(required=True, metadata={"enum": ["redis", "valkey", "fakeredis"]})
    durable = fields.Boolean(required=True, metadata={"description": "Whether an append-only file is kept."})


class Readiness(BaseSchema):
    status = fields.String(required=True, metadata={"enum": ["ready"]})
    store = fields.Nested(StoreState, required=True)


class HostIsolation(Isolation):
    """What a process sandbox of a host has whose spec leaves `isolation` and `network` as they are."""

    host = fields.String(required=True)


class ServerInfo(BaseSchema):
    """What clients check before their first request. Source: the agent-server wire."""

    title = fields.String(required=True)
    version = fields.String(
        required=True, metadata={"description": "Release of the agent-server wire that this server speaks."}
    )
    api_version = fields.String(required=True)
    sdk_version = fields.String(required=True)
    tools_version = fields.String(required=True)
    workspace_version = fields.String(required=True)
    python_version = fields.String(required=True)
    uptime = fields.Float(required=True, metadata={"description": "Seconds since this worker started."})
    idle_time = fields.Float(required=True, metadata={"description": "Seconds since a conversation changed last."})
    build_git_sha = fields.Constant("unknown")
    build_git_ref = fields.Constant("unknown")
    conversation_runtime = fields.Constant(
        "local", metadata={"description": "A start request chooses no runtime: the specs of sandboxes do."}
    )
    available_conversation_runtimes = fields.List(fields.String(), dump_default=list)
    runtime_idle_timeout_seconds = fields.Constant(None)
    max_foreground_terminal_timeout_seconds = fields.Constant(None)
    app_backend_ingress_url = fields.Constant(None)
    capabilities = fields.List(fields.String(), required=True)
    usable_tools = fields.List(fields.String(), required=True)
    store = fields.Nested(StoreState, required=True, allow_none=True)
    notice = fields.String(
        required=True, allow_none=True, metadata={"description": "What an operator must know, in sentences."}
    )
    isolation = fields.List(
        fields.Nested(HostIsolation),
        required=True,
        allow_none=True,
        metadata={"description": "Of each host that has a supervisor; null while the store does not answer."},
    )
    docs = fields.String(required=True)
    redoc = fields.String(required=True)
