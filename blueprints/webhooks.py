"""Posts of agents: events, and the state of conversations.

An agent in a sandbox sends the sandbox's hook key. The agent of a detached conversation sends a key with the scope
`write`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock, Semaphore
from typing import Any

from flask import current_app, g, request
from marshmallow import ValidationError

from blueprints import current_actor, current_store
from blueprints.api import Blueprint, json_body, needs, refused
from core.wire import EXECUTION_STATUSES, ConversationId, ReceivedEvent
from schemas.conversations import ConversationReport
from schemas.events import MOST_EVENTS, AppendResult, read_batch
from schemas.fields import Success
from store.sandboxes.sandboxes import SandboxId

webhooks = Blueprint("Webhooks", __name__, url_prefix="/api/v1/webhooks")

#: Read one batch at a time. Otherwise each waiting request would wait for a slice of every batch.
_reading = Lock()

#: Concurrent long batches of a process: one is parsed while the store appends the other. Short requests only wait for
#: these two, and not for all batches that sandboxes send.
_places = Semaphore(2)

#: Size of a batch that needs no place, in bytes.
_SHORT = 8 * 1024

#: Maximum wait for a place, in seconds, so that a blocked store does not queue all batches.
_PATIENCE = 2.0

_BATCH = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": MOST_EVENTS,
                    "items": {"$ref": "#/components/schemas/Event"},
                }
            }
        },
    },
}


@webhooks.post("/events/<conversation_id:conversation_id>")
@needs("write", hook=True)
@webhooks.fails(409, 411, 413, 415)
@webhooks.doc(**_BATCH)
@webhooks.response(200, AppendResult)
def append_events(conversation_id: ConversationId) -> dict[str, bool | int]:
    """Append a batch of events, all or nothing. Each id is appended once. An unknown conversation is created."""
    return _append(conversation_id)


@webhooks.post("/<sandbox_id>/events/<conversation_id:conversation_id>")
@needs("hook")
@webhooks.fails(409, 411, 413, 415)
@webhooks.doc(**_BATCH)
@webhooks.response(200, AppendResult)
def append_events_of_sandbox(sandbox_id: str, conversation_id: ConversationId) -> dict[str, bool | int]:  # noqa: ARG001
    """Append a batch of events at the sandbox's own path."""
    return _append(conversation_id)


@webhooks.post("/conversations")
@needs("hook")
@webhooks.fails(404, 411)
@webhooks.arguments(ConversationReport())
@webhooks.response(200, Success)
def tell_conversation(told: dict[str, Any]) -> dict[str, bool]:
    """Report an agent server's state of a conversation: its costs, its tags, its model."""
    return _tell(told)


@webhooks.post("/<sandbox_id>/conversations")
@needs("hook")
@webhooks.fails(411)
@webhooks.arguments(ConversationReport())
@webhooks.response(200, Success)
def tell_conversation_of_sandbox(told: dict[str, Any], sandbox_id: str) -> dict[str, bool]:  # noqa: ARG001
    """Report an agent server's state of a conversation, at the sandbox's own path."""
    return _tell(told)


def keep_report(sandbox_id: SandboxId, conversation_id: ConversationId, info: dict[str, Any]) -> None:
    """Store an agent server's reply about a conversation like a webhook's report. An invalid reply is ignored."""
    try:
        told = ConversationReport().load({**info, "id": conversation_id})
    except ValidationError:  # the agent server's webhook sends the report too, and is refused with the reason
        return
    del told["id"], told["too_long"]
    _keep(sandbox_id, conversation_id, told)


def _keep(sandbox_id: SandboxId, conversation_id: ConversationId, told: dict[str, Any]) -> None:
    """Store a report, without the secrets of its sandbox, because an agent derives titles and tags from its input."""
    shown = current_store.masks.in_sandbox(sandbox_id).value(told)
    if shown != told:  # a mask may be longer than its value
        shown = ConversationReport().load({**shown, "id": conversation_id})
    current_store.conversations.in_sandboxes.report(sandbox_id, conversation_id, shown)


def _append(conversation_id: ConversationId) -> dict[str, bool | int]:
    raw, sender = json_body(request), g.principal
    with _place(len(raw)):
        with refused("body"), _reading:
            batch = read_batch(raw)
        appended, seq = current_store.events.append(
            conversation_id, batch, sandbox_id=sender.sandbox_id, hook_hash=sender.hook_hash, actor=current_actor()
        )
    if sender.sandbox_id and any(map(_stops, batch)):
        current_store.sandboxes.files.record(sender.sandbox_id, conversation_id, seq)
    return {"success": True, "appended": appended, "seq": seq}


@contextmanager
def _place(size: int) -> Iterator[None]:
    """Limit the concurrent appends of long batches during the block. size: in bytes."""
    has_place = size > _SHORT and _places.acquire(timeout=_PATIENCE)
    try:
        yield
    finally:
        if has_place:
            _places.release()


def _stops(event: ReceivedEvent) -> bool:
    """Return whether an event reports that the agent stops, at the end of a turn or for a pending action."""
    told = event.fields
    return (
        event.kind == "ConversationStateUpdateEvent"
        and told.get("key") == "execution_status"
        and told.get("value") in EXECUTION_STATUSES
        and told.get("value") != "running"
    )


def _tell(told: dict[str, Any]) -> dict[str, bool]:
    conversation_id = ConversationId(told.pop("id"))
    if too_long := told.pop("too_long"):
        current_app.logger.warning(
            "conversation %s: its agent reports more items than the limit of %s", conversation_id, ", ".join(too_long)
        )
    _keep(g.principal.sandbox_id, conversation_id, told)
    return {"success": True}
