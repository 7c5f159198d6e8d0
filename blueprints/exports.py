"""Export and import of conversations: JSON lines of any conversation, and a zip file of an app conversation.

JSON lines are streamed, a page of events at a time. Source: docs/keeping.md. The zip file is made from the log, so it
outlives the sandbox and contains none of its files. Source: the app-server wire.
"""

import json
import zipfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any
from urllib.parse import quote

from flask import Response, g, request
from werkzeug.exceptions import RequestEntityTooLarge, UnsupportedMediaType

from blueprints import current_server, current_store
from blueprints.api import Blueprint, InvalidInput, begun, needs
from blueprints.audit import JSON_LINES
from blueprints.following import caller_required, key_required
from boot.http import body_of
from core.wire import ConversationId
from schemas.app_conversations import AppConversation
from schemas.conversations import ConversationInfo, with_skills
from schemas.events import action_ids
from schemas.exports import LINES, BadLine, export, read_export
from schemas.fields import FieldFault
from store import Store
from store.conversations.copies import RepeatedEvent

exports = Blueprint("Conversation Exports", __name__, url_prefix="/api/conversations")

#: Media types of an import.
EXPORT_TYPES = (JSON_LINES, "application/jsonl")

_LINES = {
    "type": "string",
    "pattern": LINES,
    "description": "The first line has `format`, `version`, `events` and the conversation. Each line of an "
    "event is an `Event`, or a JSON string of its bytes. A decided action is followed by a "
    "line with its `action_id`, and the author, kind and time of the decision. The last "
    "line has the SHA-256 of all bytes before it.",
}

_BODY = {
    "requestBody": {
        "required": True,
        "description": "An export: the conversation's first line, a line for each event, and the digest of "
        "all. Lines of decisions are ignored.",
        "content": {media_type: {"schema": _LINES} for media_type in EXPORT_TYPES},
    }
}


#: Maximum number of events in a zip file, whose directory stays in memory. Source: the app-server wire.
MOST_EVENTS = 10_000

#: Number of events that are read at once.
_PAGE = 100


@exports.get("/<conversation_id:conversation_id>/export")
@needs("read")
@exports.fails(409)
@exports.response(200, {"type": "string"}, content_type=JSON_LINES)
def export_conversation(conversation_id: ConversationId) -> Response:
    """Export a conversation and its events as JSON lines. A failed export is cut off."""
    state = current_store.conversations.get(conversation_id)
    store = current_store._get_current_object()  # type: ignore[attr-defined]
    require_key = key_required()
    lines = begun(_streamed(store, state, require_key))
    response = Response(lines if request.method == "GET" else iter(()), mimetype=JSON_LINES)
    response.headers.set("Content-Disposition", "attachment", filename=f"conversation_{conversation_id}.jsonl")
    return response


def _streamed(store: Store, state: Mapping[str, Any], require_key: Callable[[], None]) -> Iterator[bytes]:
    decisions = partial(store.approvals.audit.decisions, state["id"])
    for number, lines in enumerate(export(state, store.conversations.exports.pages(state), decisions)):
        if number:
            require_key()
        yield lines


@exports.post("/import")
@exports.refuses_key
@needs("write")
@exports.fails(408, 409, 413, 415)
@exports.doc(**_BODY)
@exports.alt_response(200, schema=ConversationInfo, description="The conversation exists, and has all these events")
@exports.response(201, ConversationInfo)
def import_conversation() -> tuple[dict[str, Any], int]:
    """Import an export, all or nothing, as a detached conversation with its id, its events and its times."""
    if request.mimetype not in EXPORT_TYPES:
        allowed = " or ".join(EXPORT_TYPES)
        raise UnsupportedMediaType(f"Content-Type must be {allowed}, not {request.mimetype or 'absent'}")
    request.max_content_length = current_server().config.http.max_import_bytes
    if body := body_of(request.environ):
        body.stream(caller_required())
    try:
        head, events = read_export(request.stream)
        conversation_id = ConversationId(head["id"])
        created = current_store.conversations.exports.load(conversation_id, head, events, g.principal.owner)
        if created:
            current_store.conversations.own(conversation_id, g.principal.name)
    except BadLine as bad:
        raise _refused(bad.number, bad.messages) from None
    except RepeatedEvent as repeated:
        raise _refused(repeated.seq + 1, {"id": [FieldFault(str(repeated), "value_error")]}) from None
    state = with_skills(current_store.conversations.get(conversation_id), include_skills=False)
    return state, 201 if created else 200


def _refused(number: int, messages: Any) -> InvalidInput:
    return InvalidInput("body", {f"line {number}": messages})


downloads = Blueprint("App Conversation Downloads", __name__, url_prefix="/api/v1/app-conversations")
trajectories = Blueprint("Trajectories", __name__, url_prefix="/api/file")


@downloads.get("/<conversation_id:conversation_id>/download")
@needs("read")
@downloads.fails(409, 413)
@downloads.response(200, {"type": "string", "format": "binary"}, content_type="application/zip")
def download_app_conversation(conversation_id: ConversationId) -> Response:
    """Download the events as a zip file, in the order of their times. A failed download is cut off."""
    state = current_store.conversations.in_sandboxes.get(conversation_id)
    if current_store.events.count(conversation_id) > MOST_EVENTS:
        words = f"The conversation has more than {MOST_EVENTS} events, the limit of a zip file: "
        raise RequestEntityTooLarge(words + f"read them at /api/v1/conversation/{conversation_id}/events/search")
    meta = {**AppConversation().dump(state), "session_api_key": None}
    store = current_store._get_current_object()  # type: ignore[attr-defined]
    require_key = key_required()
    pieces = begun(_zipped(store, conversation_id, meta, require_key))
    response = Response(pieces if request.method == "GET" else iter(()), mimetype="application/zip")
    response.headers.set("Content-Disposition", "attachment", filename=f"conversation_{conversation_id}.zip")
    return response


@trajectories.get("/download-trajectory/<conversation_id:conversation_id>")
@needs("read")
@trajectories.fails(409, 413)
@trajectories.response(200, {"type": "string", "format": "binary"}, content_type="application/zip")
def download_trajectory(conversation_id: ConversationId) -> Response:
    """Download the events as a zip file. The sandbox need not run."""
    response: Response = download_app_conversation(conversation_id)
    return response


class _Sink:
    """Output of a ZipFile. It cannot seek, so the zip file can be streamed."""

    def __init__(self) -> None:
        self._held: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._held.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        """Do nothing: `take` returns the bytes."""

    def take(self) -> bytes:
        data, self._held = b"".join(self._held), []
        return data


def _zipped(
    store: Store, conversation_id: ConversationId, meta: dict[str, Any], require_key: Callable[[], None]
) -> Iterator[bytes]:
    sink, number, page_id = _Sink(), 0, None
    decisions: dict[str, Any] = {}
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as zipped:  # type: ignore[call-overload]
        zipped.writestr("meta.json", json.dumps(meta, indent=2))
        while number < MOST_EVENTS:
            events, page_id = store.events.search(conversation_id, limit=_PAGE, page_id=page_id)
            decisions |= store.approvals.audit.decisions(conversation_id, action_ids(events))
            for event in events[: MOST_EVENTS - number]:
                # An id may be any text. Quoted, it is a name without slashes, so that unpacking stays in the folder.
                zipped.writestr(f"event_{number:06d}_{quote(json.loads(event)['id'], safe='')}.json", event)
                number += 1
            yield sink.take()
            if page_id is None:
                break
            require_key()
        zipped.writestr("decisions.json", json.dumps(decisions, indent=2))
    yield sink.take()
