"""What agents post: events, and the state of conversations.

An agent in a sandbox shows the sandbox's hook key, the agent of a detached conversation a key with the scope `write`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock, Semaphore
from typing import Any

from flask import current_app, g, request
from marshmallow import ValidationError

from blueprints import current_actor, current_store
from blueprints.api import Blueprint, json_body, needs, refused
from core.wire import EXECUTION_STATUSES, ConversationId, Event
from schemas.conversations import ConversationReport
from schemas.events import MOST_EVENTS, AppendResult, read_batch
from schemas.fields import Success
from store.sandboxes.sandboxes import SandboxId

webhooks = Blueprint("Webhooks", __name__, url_prefix="/api/v1/webhooks")

#: One batch is read at a time: if several took turns, every other request would wait for one turn of each.
_reading = Lock()

#: long batches that a process appends at a time: one is read while the store takes the other. Who asks for little waits
#: for these, and not for all that sandboxes send
_places = Semaphore(2)

#: bytes of a batch that needs no place
_SHORT = 8 * 1024

#: most seconds that a batch waits for its place: while the store stands still, none waits for all before it
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
    """Append a batch of events, all or nothing, each once per id; an unknown conversation is created."""
    return _append(conversation_id)


@webhooks.post("/<sandbox_id>/events/<conversation_id:conversation_id>")
@needs("hook")
@webhooks.fails(409, 411, 413, 415)
@webhooks.doc(**_BATCH)
@webhooks.response(200, AppendResult)
def append_events_of_sandbox(sandbox_id: str, conversation_id: ConversationId) -> dict[str, bool | int]:  # noqa: ARG001
    """Append a batch of events under the sandbox's own path."""
    return _append(conversation_id)


@webhooks.post("/conversations")
@needs("hook")
@webhooks.fails(404, 411)
@webhooks.arguments(ConversationReport())
@webhooks.response(200, Success)
def tell_conversation(told: dict[str, Any]) -> dict[str, bool]:
    """Report what an agent server knows of a conversation: its costs, its tags, its model."""
    return _tell(told)


@webhooks.post("/<sandbox_id>/conversations")
@needs("hook")
@webhooks.fails(411)
@webhooks.arguments(ConversationReport())
@webhooks.response(200, Success)
def tell_conversation_of_sandbox(told: dict[str, Any], sandbox_id: str) -> dict[str, bool]:  # noqa: ARG001
    """Report what an agent server knows of a conversation, under the sandbox's own path."""
    return _tell(told)


def keep_report(sandbox_id: SandboxId, conversation_id: ConversationId, info: dict[str, Any]) -> None:
    """Keep what an agent server replied about a conversation as if it had posted it; what would be refused is left."""
    try:
        told = ConversationReport().load({**info, "id": conversation_id})
    except ValidationError:  # its webhook says the same, and is refused with the reason
        return
    del told["id"], told["too_long"]
    _keep(sandbox_id, conversation_id, told)


def _keep(sandbox_id: SandboxId, conversation_id: ConversationId, told: dict[str, Any]) -> None:
    """Keep a report, without the secrets of its sandbox: an agent makes titles and tags of what it has read."""
    shown = current_store.masks.in_sandbox(sandbox_id).value(told)
    if shown != told:  # what stands for a value may be longer than it
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
    """Append a batch of so many bytes inside the block."""
    has_place = size > _SHORT and _places.acquire(timeout=_PATIENCE)
    try:
        yield
    finally:
        if has_place:
            _places.release()


def _stops(event: Event) -> bool:
    """Whether an event says that the agent stops: at the end of a turn, or for an action that waits."""
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
            "conversation %s: its agent reports more than is kept of %s", conversation_id, ", ".join(too_long)
        )
    _keep(g.principal.sandbox_id, conversation_id, told)
    return {"success": True}
