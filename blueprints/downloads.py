"""An app conversation as a zip archive: what is known of it, and its events. Source: the app-server wire.

It is made of the log alone, so it is there whatever became of the sandbox, and holds nothing of the sandbox's files.
"""

import json
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from urllib.parse import quote

from flask import Response, current_app, g, request
from werkzeug.exceptions import RequestEntityTooLarge

from blueprints import current_store
from blueprints.api import Blueprint, needs
from schemas.app_conversations import AppConversation
from store import Store
from wire import ConversationId

downloads = Blueprint("App Conversation Downloads", __name__, url_prefix="/api/v1/app-conversations")

#: events of one archive: its directory is kept in memory until its end. Source: the app-server wire
MOST_EVENTS = 10_000

#: events that are read at once
_PAGE = 100


@downloads.get("/<conversation_id:conversation_id>/download")
@needs("read")
@downloads.fails(404, 413)
@downloads.response(200, {"type": "string", "format": "binary"}, content_type="application/zip")
def download_app_conversation(conversation_id: ConversationId) -> Response:
    """Download the events as a zip archive, in the order of their times; one that fails breaks off."""
    state = current_store.app_conversations.get(conversation_id)
    if current_store.events.count(conversation_id) > MOST_EVENTS:
        words = f"The conversation has more than {MOST_EVENTS} events, which is the most of an archive: "
        raise RequestEntityTooLarge(words + f"read them at /api/v1/conversation/{conversation_id}/events/search")
    meta = {**AppConversation().dump(state), "session_api_key": None}
    store = current_store._get_current_object()  # type: ignore[attr-defined]
    may_go_on = partial(current_app.extensions["guard"].following.are_live, g.principal)
    pieces = _archive(store, conversation_id, meta, may_go_on) if request.method == "GET" else ()
    response = Response(pieces, mimetype="application/zip")
    response.headers.set("Content-Disposition", "attachment", filename=f"conversation_{conversation_id}.zip")
    return response


class _Sink:
    """What a ZipFile writes to; it has no place to seek to, so the archive is one that can be streamed."""

    def __init__(self) -> None:
        self._held: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._held.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        """Nothing: `taken` is what moves the bytes on."""

    def taken(self) -> bytes:
        data, self._held = b"".join(self._held), []
        return data


def _archive(
    store: Store, conversation_id: ConversationId, meta: dict[str, Any], may_go_on: Callable[[], bool]
) -> Iterator[bytes]:
    sink, number, page_id = _Sink(), 0, None
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:  # type: ignore[call-overload]
        archive.writestr("meta.json", json.dumps(meta, indent=2))
        while number < MOST_EVENTS and may_go_on():
            events, page_id = store.events.search(conversation_id, limit=_PAGE, page_id=page_id)
            for event in events[: MOST_EVENTS - number]:
                # An id may be any text: as one name without slashes it stays in the folder where it is unpacked.
                archive.writestr(f"event_{number:06d}_{quote(json.loads(event)['id'], safe='')}.json", event)
                number += 1
            yield sink.taken()
            if page_id is None:
                break
        else:
            if number < MOST_EVENTS:
                raise PermissionError("The key of this download was revoked or has expired")
    yield sink.taken()
