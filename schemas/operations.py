"""The server: readiness, description, and its notifications for operators.

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
    durable = fields.Boolean(required=True, metadata={"description": "Whether the store writes an append-only file."})
    durability = fields.String(
        required=True,
        metadata={
            "description": "Guarantee of an acknowledged write: `fsync`, `replicas:N` or `none`.",
            "example": "fsync",
        },
    )


class StoreDetails(StoreState):
    """The store for an operator. Null if the store does not report a value."""

    version = fields.String(required=True, allow_none=True)
    used_memory_bytes = fields.Integer(required=True, allow_none=True)
    max_memory_bytes = fields.Integer(
        required=True, allow_none=True, metadata={"description": "Memory limit of the store; 0: none."}
    )
    policy = fields.String(
        required=True, allow_none=True, metadata={"description": "maxmemory-policy: its behaviour at the limit."}
    )
    fsync = fields.String(
        required=True,
        allow_none=True,
        metadata={"description": "appendfsync: how often it syncs its file; null unless it is durable."},
    )


class Host(BaseSchema):
    """A host whose supervisor has a recent heartbeat."""

    id = fields.String(required=True)
    seen_at = ShownTime("Last heartbeat of its supervisor.")
    sandboxes = fields.Integer(required=True, metadata={"description": "Number of its sandboxes of any status."})
    version = fields.String(required=True, allow_none=True, metadata={"description": "Version of its supervisor."})


class Readiness(BaseSchema):
    status = fields.String(required=True, metadata={"enum": ["ready"]})
    store = fields.Nested(StoreState, required=True)
    notice = fields.String(
        required=True,
        allow_none=True,
        metadata={"description": "A sentence while the supervisor of this host is missing. Requests are still served."},
    )


class SpecIsolation(Isolation):
    """The isolation of a spec's sandboxes on a host."""

    spec = fields.String(required=True)


class HostIsolation(Isolation):
    """The isolation of a host's process sandboxes with default `isolation` and `network`."""

    host = fields.String(required=True)
    specs = fields.List(
        fields.Nested(SpecIsolation),
        required=True,
        metadata={"description": "Isolation of each spec's sandboxes on the host, as its log reports at the start."},
    )


class SandboxPlaces(BaseSchema):
    """The number of running sandboxes, and its maximum."""

    running = fields.Integer(
        required=True, metadata={"description": "Sandboxes that are running, starting or stopping."}
    )
    most = fields.Integer(required=True, metadata={"description": "MAX_SANDBOXES."})


class ServerInfo(BaseSchema):
    """The facts that clients check before their first request. Source: the agent-server wire."""

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
    idle_time = fields.Float(
        required=True, metadata={"description": "Seconds since the last change of a conversation."}
    )
    build_git_sha = fields.Constant("unknown")
    build_git_ref = fields.Constant("unknown")
    conversation_runtime = fields.Constant(
        "local", metadata={"description": "A start request cannot choose a runtime; the sandbox specs do."}
    )
    available_conversation_runtimes = fields.List(fields.String(), dump_default=list)
    runtime_idle_timeout_seconds = fields.Constant(None)
    max_foreground_terminal_timeout_seconds = fields.Constant(None)
    app_backend_ingress_url = fields.Constant(None)
    capabilities = fields.List(fields.String(), required=True)
    usable_tools = fields.List(fields.String(), required=True)
    store = fields.Nested(StoreDetails, required=True, allow_none=True)
    workers = fields.Integer(required=True, metadata={"description": "Worker processes of this host by its settings."})
    hosts = fields.List(
        fields.Nested(Host),
        required=True,
        allow_none=True,
        metadata={"description": "Hosts with a supervisor; null while the store is unavailable."},
    )
    sandboxes = fields.Nested(
        SandboxPlaces,
        required=True,
        allow_none=True,
        metadata={"description": "Sandboxes of all hosts; null while the store is unavailable."},
    )
    notice = fields.String(
        required=True, allow_none=True, metadata={"description": "Notices for the operator, in sentences."}
    )
    isolation = fields.List(
        fields.Nested(HostIsolation),
        required=True,
        allow_none=True,
        metadata={"description": "Isolation on each host with a supervisor; null while the store is unavailable."},
    )
    auth = fields.String(
        required=True,
        metadata={
            "enum": ["keys", "open", "open_until_key"],
            "description": "`keys`: a key is needed. `open`: no key is needed. `open_until_key`: no key is needed "
            "now, but from the next start if any key is stored.",
        },
    )
    docs = fields.String(required=True)
    redoc = fields.String(required=True)


def _state_member(name: str) -> Any:
    return lambda item: getattr(item["state"], name)


def _count(name: str, what: str) -> fields.Function:
    return fields.Function(_state_member(name), required=True, metadata={"type": "integer", "description": what})


def _instant(name: str, what: str) -> ShownTime:
    return ShownTime(what, attribute=f"state.{name}", optional=True, required=True)


class NotificationTarget(BaseSchema):
    """A target, its queue, and the results of its deliveries. No member shows its path, its secret or its user."""

    id = fields.Function(_state_member("id"), required=True, metadata={"type": "string"})
    name = fields.Function(
        _state_member("name"), required=True, metadata={"type": "string", "description": "Scheme and host of its URL."}
    )
    kind = fields.String(
        required=True,
        allow_none=True,
        metadata={"enum": ["webhook", "apprise", None], "description": "Null: it is not in this server's settings."},
    )
    queued = _count("queued", "Pending messages.")
    oldest_at = _instant("oldest", "Time when the oldest pending message was queued.")
    tries = _count("tries", "Failed attempts of the oldest message.")
    next_try_at = _instant("next_at", "Time of its next attempt; null: as soon as a message is queued.")
    sent = _count("sent", "Delivered messages.")
    last_success_at = _instant("sent_at", "Time of the last delivered message.")
    last_failure_at = _instant("failed_at", "Time of the last failed attempt.")
    last_failure = fields.Function(
        lambda item: item["state"].failure or None,
        required=True,
        metadata={"type": ["string", "null"], "description": "Reason of the last failure."},
    )
    given_up = _count("given_up", "Messages given up after three days of failures.")
    dropped = _count("dropped", "Messages that a full queue dropped.")
    disabled_at = _instant(
        "disabled_at", "Time when the target responded with 410. It gets no messages until a supervisor starts."
    )


class NotificationOutbox(BaseSchema):
    """Entries that wait to be queued, because no supervisor with targets runs."""

    name = fields.String(required=True, metadata={"enum": ["approvals", "conversations", "sandboxes"]})
    waiting = fields.Integer(required=True)
    dropped = fields.Integer(required=True, metadata={"description": "Entries that a full outbox dropped."})


class Notifications(BaseSchema):
    items = fields.List(fields.Nested(NotificationTarget), required=True)
    outboxes = fields.List(fields.Nested(NotificationOutbox), required=True)


class NotificationTest(BaseSchema):
    """The target to test."""

    class Meta:
        unknown = RAISE

    body_optional = True

    target = Text(
        least=1,
        most=64,
        load_default=None,
        allow_none=True,
        metadata={"description": "Id of the target. Absent: all targets."},
    )


class NotificationOutcome(BaseSchema):
    id = fields.String(required=True)
    name = fields.String(required=True)
    delivered = fields.Boolean(required=True)
    detail = fields.String(required=True, metadata={"description": "Reason of the failure, or empty."})
