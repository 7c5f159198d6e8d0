"""Conversations as JSON lines, out and in, streamed a page of events at a time. Source: docs/keeping.md."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from flask import Response, current_app, g, request
from werkzeug.exceptions import UnsupportedMediaType

from blueprints import current_store
from blueprints.api import Blueprint, InvalidInput, needs
from blueprints.audit_trail import JSON_LINES
from boot.body import body_of
from schemas.conversations import ConversationInfo, with_skills
from schemas.exports import BadLine, event_line, head_line, read_export
from schemas.fields import Fault
from store import Store
from store.conversations.exports import RepeatedEvent
from wire import ConversationId

exports = Blueprint("Conversation Exports", __name__, url_prefix="/api/conversations")

#: media types of an import
MEDIA_TYPES = (JSON_LINES, "application/jsonl")

_BODY = {
    "requestBody": {
        "required": True,
        "description": "An export: the conversation's first line, then a line for each event.",
        "content": {JSON_LINES: {"schema": {"type": "string"}}},
    }
}


@exports.get("/<conversation_id:conversation_id>/export")
@needs("read")
@exports.fails(404)
@exports.response(200, {"type": "string"}, content_type=JSON_LINES)
def export_conversation(conversation_id: ConversationId) -> Response:
    """Export a conversation and its events as JSON lines; one that fails breaks off."""
    state = current_store.conversations.get(conversation_id)
    store = current_store._get_current_object()  # type: ignore[attr-defined]
    may_go_on = partial(current_app.extensions["guard"].following.are_live, g.principal)
    lines = _streamed(store, state, may_go_on) if request.method == "GET" else ()
    response = Response(lines, mimetype=JSON_LINES)
    response.headers.set("Content-Disposition", "attachment", filename=f"conversation_{conversation_id}.jsonl")
    return response


def _streamed(store: Store, state: Mapping[str, Any], may_go_on: Callable[[], bool]) -> Iterator[bytes]:
    yield head_line(state)
    for page in store.exports.pages(state):
        if not may_go_on():
            raise PermissionError("The key of this export was revoked or has expired")
        yield b"".join(map(event_line, page))


@exports.post("/import")
@needs("write")
@exports.fails(408, 409, 413, 415)
@exports.doc(**_BODY)
@exports.alt_response(200, schema=ConversationInfo, description="The conversation exists, and has all these events")
@exports.response(201, ConversationInfo)
def import_conversation() -> tuple[dict[str, Any], int]:
    """Import an export: a detached conversation with its id, its events and its times, whole or not at all."""
    if request.mimetype not in MEDIA_TYPES:
        allowed = " or ".join(MEDIA_TYPES)
        raise UnsupportedMediaType(f"Content-Type must be {allowed}, not {request.mimetype or 'absent'}")
    request.max_content_length = current_app.config["MAX_IMPORT_BYTES"]
    if body := body_of(request.environ):
        body.stream()
    try:
        head, events = read_export(request.stream)
        conversation_id = ConversationId(head["id"])
        created = current_store.exports.load(conversation_id, head, events)
    except BadLine as bad:
        raise _refused(bad.number, bad.messages) from None
    except RepeatedEvent as repeated:
        raise _refused(repeated.seq + 1, {"id": [Fault(str(repeated), "value_error")]}) from None
    state = with_skills(current_store.conversations.get(conversation_id), include_skills=False)
    return state, 201 if created else 200


def _refused(number: int, messages: Any) -> InvalidInput:
    return InvalidInput("body", {f"line {number}": messages})
