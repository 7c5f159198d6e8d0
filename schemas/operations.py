"""The server itself: whether it is ready, what it is, and its notifications as operators see them.

Source of the notifications: docs/approvals.md.
"""

from typing import Any

from marshmallow import RAISE, fields

from schemas.fields import BaseSchema, ShownTime, Text
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
    seen_at = ShownTime("Its supervisor's last heartbeat.")
    sandboxes = fields.Integer(required=True, metadata={"description": "Those that it has, whatever their status."})
    version = fields.String(required=True, allow_none=True, metadata={"description": "Of its supervisor."})


class Readiness(BaseSchema):
    status = fields.String(required=True, metadata={"enum": ["ready"]})
    store = fields.Nested(StoreState, required=True)
    notice = fields.String(
        required=True,
        allow_none=True,
        metadata={"description": "A sentence while the supervisor of this host is missing, which requests outlive."},
    )


class SpecIsolation(Isolation):
    """What the sandboxes of a spec have on a host."""

    spec = fields.String(required=True)


class HostIsolation(Isolation):
    """What a process sandbox of a host has whose spec leaves `isolation` and `network` as they are."""

    host = fields.String(required=True)
    specs = fields.List(
        fields.Nested(SpecIsolation),
        required=True,
        metadata={"description": "What the sandboxes of each spec of the host have, as its log says at the start."},
    )


class SandboxPlaces(BaseSchema):
    """How many sandboxes run, and how many may."""

    running = fields.Integer(required=True, metadata={"description": "Those that run, start, or are about to stop."})
    most = fields.Integer(required=True, metadata={"description": "MAX_SANDBOXES."})


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
    sandboxes = fields.Nested(
        SandboxPlaces,
        required=True,
        allow_none=True,
        metadata={"description": "Of all hosts; null while the store does not answer."},
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
    auth = fields.String(
        required=True,
        metadata={
            "enum": ["keys", "open", "open_until_key"],
            "description": "`keys`: a key is needed; `open`: none is; `open_until_key`: none is now, and from the next "
            "start one is if any key is stored.",
        },
    )
    docs = fields.String(required=True)
    redoc = fields.String(required=True)


def _of(name: str) -> Any:
    return lambda item: getattr(item["state"], name)


def _count(name: str, what: str) -> fields.Function:
    return fields.Function(_of(name), required=True, metadata={"type": "integer", "description": what})


def _instant(name: str, what: str) -> ShownTime:
    return ShownTime(what, attribute=f"state.{name}", optional=True, required=True)


class NotificationTarget(BaseSchema):
    """A target, its queue, and the results of its deliveries. No member shows its path, its secret or its user."""

    id = fields.Function(_of("id"), required=True, metadata={"type": "string"})
    name = fields.Function(_of("name"), required=True, metadata={"type": "string", "description": "Scheme and host."})
    kind = fields.String(
        required=True,
        allow_none=True,
        metadata={"enum": ["webhook", "apprise", None], "description": "Null: this server's settings do not name it."},
    )
    queued = _count("queued", "Messages that wait.")
    oldest_at = _instant("oldest", "When the oldest of them was queued.")
    tries = _count("tries", "Failed tries of the oldest message so far.")
    next_try_at = _instant("next_at", "When it is tried again; null: as soon as there is one.")
    sent = _count("sent", "Messages that the target took.")
    last_success_at = _instant("sent_at", "When it took the last one.")
    last_failure_at = _instant("failed_at", "When a try failed last.")
    last_failure = fields.Function(
        lambda item: item["state"].failure or None,
        required=True,
        metadata={"type": ["string", "null"], "description": "Why it failed."},
    )
    given_up = _count("given_up", "Messages that the target did not take for three days.")
    dropped = _count("dropped", "Messages that a full queue dropped.")
    disabled_at = _instant("disabled_at", "When the target answered 410: it gets no more until a supervisor starts.")


class NotificationOutbox(BaseSchema):
    """What waits to be queued, because no supervisor with targets runs."""

    name = fields.String(required=True, metadata={"enum": ["approvals", "conversations", "sandboxes"]})
    waiting = fields.Integer(required=True)
    dropped = fields.Integer(required=True, metadata={"description": "Entries that a full outbox dropped."})


class Notifications(BaseSchema):
    items = fields.List(fields.Nested(NotificationTarget), required=True)
    outboxes = fields.List(fields.Nested(NotificationOutbox), required=True)


class NotificationTest(BaseSchema):
    """Which target to test."""

    class Meta:
        unknown = RAISE

    body_optional = True

    target = Text(
        least=1, most=64, load_default=None, allow_none=True, metadata={"description": "Its id. Absent: all targets."}
    )


class NotificationOutcome(BaseSchema):
    id = fields.String(required=True)
    name = fields.String(required=True)
    delivered = fields.Boolean(required=True)
    detail = fields.String(required=True, metadata={"description": "Why it was not; empty."})
