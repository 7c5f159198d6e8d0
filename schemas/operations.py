"""The server itself: whether it is ready, and what it is."""

from marshmallow import fields

from core.wire import utc_time
from schemas.fields import BaseSchema
from schemas.sandboxes import Isolation


class Status(BaseSchema):
    status = fields.String(required=True)


class StoreState(BaseSchema):
    kind = fields.String(required=True, metadata={"enum": ["redis", "valkey", "fakeredis"]})
    durable = fields.Boolean(required=True, metadata={"description": "Whether an append-only file is kept."})
    durability = fields.String(
        required=True,
        metadata={
            "description": "What holds before a write is acknowledged: `fsync`, `replicas:N` or `none`.",
            "example": "fsync",
        },
    )


class StoreDetails(StoreState):
    """The store as an operator sees it; null where it does not tell."""

    version = fields.String(required=True, allow_none=True)
    used_memory_bytes = fields.Integer(required=True, allow_none=True)
    max_memory_bytes = fields.Integer(
        required=True, allow_none=True, metadata={"description": "Its own limit; 0: it has none."}
    )
    policy = fields.String(
        required=True, allow_none=True, metadata={"description": "maxmemory-policy: what it does at that limit."}
    )
    fsync = fields.String(
        required=True,
        allow_none=True,
        metadata={"description": "appendfsync: how often it writes its file through; null unless it is durable."},
    )


class Host(BaseSchema):
    """A host whose supervisor has a heartbeat, or had one a moment ago."""

    id = fields.String(required=True)
    seen_at = fields.Function(
        lambda host: utc_time(host.seen_at),
        metadata={"type": "string", "format": "date-time", "description": "Its supervisor's last heartbeat."},
    )
    sandboxes = fields.Integer(required=True, metadata={"description": "Those that it has, whatever their status."})
    version = fields.String(required=True, allow_none=True, metadata={"description": "Of its supervisor."})


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
    store = fields.Nested(StoreDetails, required=True, allow_none=True)
    workers = fields.Integer(
        required=True, metadata={"description": "Worker processes of this host, as its settings say."}
    )
    hosts = fields.List(
        fields.Nested(Host),
        required=True,
        allow_none=True,
        metadata={"description": "Each that has a supervisor; null while the store does not answer."},
    )
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
