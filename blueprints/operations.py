"""The server: liveness, readiness and description, without a key; and its notifications, for admins only.

Notifications show where an operator's alarms go and which are stuck, and a test makes the server open connections.
"""

import math
import platform
import time
from contextlib import suppress
from typing import Any

from flask import request

from blueprints import current_desk, current_server, current_store
from blueprints.api import API_TITLE, Blueprint, needs
from boot.http import is_draining
from core.wire import API_VERSION, micros
from notifications.sending import TargetTestOutcome
from schemas.operations import NotificationOutcome, Notifications, NotificationTest, Readiness, ServerInfo, Status
from settings.specs import unsupported
from store.errors import UNAVAILABLE, Stopping
from store.listing import ListingFilter

operations = Blueprint("Server Details", __name__)

#: Release of the agent server whose wire this server speaks. Existing clients require three numbers, from 1.28.0 on.
WIRE_VERSION = "1.58.0"

CAPABILITIES = [
    "events",
    "confirmations",
    "sockets",
    "streams",
    "sandboxes",
    "app_conversations",
    "multi_worker",
    # Words of the agent-server wire, by which clients choose their paths.
    "conversation_runtime_routes_v1",
    "idempotent_conversation_create_v1",  # a POST with the id of an existing conversation returns that conversation
    "tool_catalog_v1",
]

VOLATILE = "Events are kept in memory only: nothing survives a restart of the server."

#: Tools that an agent of this wire may have; clients hide others. The agent server of a sandbox lists its own. Source:
#: `GET /server_info` of the agent server 1.58.
USABLE_TOOLS = [
    *("ClassifyAndSwitchLLMTool", "ask_oracle", "edit", "file_editor", "glob", "grep", "list_directory"),
    *("planning_file_editor", "read_file", "start_child_conversation", "task", "task_tool_set", "task_tracker"),
    *("terminal", "workflow", "workflow_tool_set", "write_file"),
]

_STARTED = time.monotonic()


@operations.get("/alive")
@operations.ignores_query
@needs("open")
@operations.response(200, Status)
def alive() -> dict[str, str]:
    """Show that this process responds."""
    return {"status": "ok"}


@operations.get("/health")
@operations.ignores_query
@needs("open")
@operations.response(200, Status)
def health() -> dict[str, str]:
    """Show that this process responds; an alias of `/alive`."""
    return {"status": "ok"}


@operations.get("/ready")
@operations.ignores_query
@needs("open")
@operations.fails(503)
@operations.response(200, Readiness)
def ready() -> dict[str, object]:
    """Show whether requests can be served: 503 while the store is unavailable, or is less durable than DURABILITY.

    `notice` reports a missing supervisor of this host. Requests that need no sandbox of the host are still served. Also
    503 from SIGTERM on, for DRAIN_SECONDS: a balancer then sends new requests elsewhere, and running requests continue.
    """
    if is_draining():
        raise Stopping
    current_store.data_version.ensure()
    return {"status": "ready", "store": current_store.link.health.ready(), "notice": _missing_supervisor()}


@operations.get("/")
@operations.ignores_query
@needs("read")
@operations.response(200, ServerInfo)
def root() -> dict[str, object]:
    """Describe this server, as `/server_info` does. A browser is redirected to the docs."""
    return _info()


@operations.get("/server_info")
@operations.ignores_query
@needs("read")
@operations.response(200, ServerInfo)
def server_info() -> dict[str, object]:
    """Describe this server: its releases, its capabilities and its store."""
    return _info()


def _info() -> dict[str, object]:
    uptime = time.monotonic() - _STARTED
    state = current_store.link.health.state()
    hosts = current_store.sandboxes.hosts.all() if state else None
    isolation = None if hosts is None else [{"host": host.id, "specs": [], **host.said} for host in hosts if host.said]
    of_store = "The store does not answer." if state is None else "" if state.durable else VOLATILE
    notices = (
        of_store,
        *(state.faults if state else ()),
        _missing_supervisor() if state else None,
        *_settings_faults(),
        unsupported("process"),
        *map(_weakness, isolation or ()),
    )
    return {
        "title": API_TITLE,
        "version": WIRE_VERSION,
        "api_version": API_VERSION,
        "sdk_version": WIRE_VERSION,
        "tools_version": WIRE_VERSION,
        "workspace_version": WIRE_VERSION,
        "python_version": platform.python_version(),
        "uptime": uptime,
        "idle_time": _idle_time(uptime),
        "capabilities": CAPABILITIES,
        "usable_tools": USABLE_TOOLS,
        "store": state,
        "notice": " ".join(filter(None, notices)) or None,
        "workers": current_server().config.http.workers,
        "hosts": hosts,
        "sandboxes": current_store.sandboxes.places_taken() if state else None,
        "isolation": isolation,
        "auth": current_server().guard.auth,
        "docs": f"{request.root_path}/docs",
        "redoc": f"{request.root_path}/docs",
    }


def _missing_supervisor() -> str | None:
    """Return a notice if this host's supervisor has no recent heartbeat; None if none is configured here."""
    if not (settings := current_server().config.host).supervisor:
        return None
    host = settings.name
    with suppress(*UNAVAILABLE):
        seen_at, now = current_store.sandboxes.hosts.seen_at(host), current_store.link.health.recent_clock()
        silent = math.inf if seen_at is None else (now - seen_at) / 1e6
        if silent > current_store.sandboxes.limits.host_seconds:
            since = "no heartbeat" if seen_at is None else f"no heartbeat for {silent:.0f} s"
            return (
                f"The supervisor of the host {host} is missing: it has had {since}. Sandboxes of this host are neither "
                "started nor paused nor deleted until it is back. The server restarts it; its log says why it ends."
            )
    return None


def _idle_time(uptime: float) -> float:
    """Return the seconds since the last change of a conversation; uptime if it is unknown."""
    with suppress(*UNAVAILABLE):
        found, _ = current_store.conversations.page(ListingFilter(), by="updated", descending=True, limit=1, start=None)
        if found:
            return max(0.0, (current_store.link.health.recent_clock() - micros(found[0]["updated_at"])) / 1e6)
    return uptime


def _settings_faults() -> list[str | None]:
    """Return which settings the stored data need and the server lacks."""
    with suppress(*UNAVAILABLE):
        return [current_store.link.seal_check.fault(), current_store.conversations.cold.fault()]
    return []


def _weakness(isolation: dict[str, Any]) -> str:
    """Return a warning about a host's isolation; empty if isolation is complete."""
    weak = {"landlock": "confined by Landlock alone", "none": "not isolated at all"}
    found = [
        f"Sandboxes of the spec {one['spec']} on the host {isolation['host']} are {weak[one['kind']]}."
        for one in isolation["specs"]
        if one["kind"] in weak
    ]
    if not isolation["specs"] and (alone := weak.get(isolation["kind"])):  # a supervisor of an earlier release
        found = [f"Process sandboxes of the host {isolation['host']} are {alone}."]
    return " ".join([*found, "`isolation` lists their access."] if found else [])


notifications = Blueprint("Notifications", __name__, url_prefix="/api/v1")


@notifications.get("/notifications")
@needs("admin")
@notifications.fails()
@notifications.response(200, Notifications)
def list_notifications() -> dict[str, Any]:
    """List the targets of notifications, with their pending messages and errors."""
    return current_desk.overview()


@notifications.post("/notifications/test")
@needs("admin")
@notifications.fails(409)
@notifications.arguments(NotificationTest())
@notifications.response(200, NotificationOutcome(many=True))
def send_test_notifications(wanted: dict[str, Any]) -> list[TargetTestOutcome]:
    """Send a test message to one target or to all, and report each result."""
    return current_desk.test(wanted["target"])
