"""The messages of all conversations. Source: docs/wire.md, 8."""

import json
from typing import Any

from flask import Response

from blueprints import current_store
from blueprints.api import Blueprint, json_response, needs
from schemas.messages import FoundMessagePage, MessageQuery, page_id
from store.conversations.message_search import Cursor, FoundMessage, Query

messages = Blueprint("Messages", __name__, url_prefix="/api/v1/messages")


@messages.get("/search")
@needs("read")
@messages.fails(414)
@messages.arguments(MessageQuery(), location="query")
@messages.response(200, FoundMessagePage)
def search_messages(search: dict[str, Any]) -> Response:
    """Search the messages of all conversations, the newest conversation first. Only a null next_page_id is the end."""
    limit, start = search.pop("limit"), search.pop("start")
    items, following = current_store.message_search.page(
        Query(**search), limit=limit, start=Cursor(*start) if start else None
    )
    page = b",".join(map(_written, items)), json.dumps(page_id(following)).encode()
    return json_response(b'{"items":[%b],"next_page_id":%b}' % page)


def _written(found: FoundMessage) -> bytes:
    """A message as JSON, with the event byte for byte as it was appended."""
    head = json.dumps(found.conversation_id).encode(), json.dumps(found.title).encode()
    return b'{"conversation_id":%b,"title":%b,"event":%b}' % (*head, found.event)
