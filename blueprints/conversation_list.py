"""The list of all conversations, of those in sandboxes and of the detached ones. Source: docs/wire.md, 15."""

from typing import Any

from flask import Response

from blueprints import current_store
from blueprints.api import Blueprint, form_of, json_page, json_response, needs, repeated
from schemas.conversation_list import (
    ConversationListSearch,
    ListedConversation,
    ListedConversationPage,
    read_statuses,
)
from schemas.cursors import page_id
from store.listing import Filter
from wire import EXECUTION_STATUSES

conversation_list = Blueprint("Conversation List", __name__, url_prefix="/api/v1/conversations")

_LISTED = form_of("listed", ListedConversation().dump)

_STATUSES = {
    "in": "query",
    "name": "status",
    "schema": {"type": "array", "items": {"type": "string", "enum": list(EXECUTION_STATUSES)}},
    "description": "Repeat the parameter for each of several; absent: all.",
}


@conversation_list.get("/search")
@needs("read")
@conversation_list.fails()
@conversation_list.doc(parameters=[_STATUSES])
@conversation_list.arguments(ConversationListSearch(), location="query")
@conversation_list.response(200, ListedConversationPage)
def search_all_conversations(search: dict[str, Any]) -> Response:
    """List all conversations, those that changed last first. A page may be shorter than its limit and not the last."""
    page = {name: search.pop(name) for name in ("by", "descending", "limit", "start")}
    sandbox_id = search.pop("sandbox_id", None)
    group = None if sandbox_id is None else f"in-{sandbox_id}"
    filters = Filter(group=group, statuses=tuple(repeated("status", read_statuses)), **search)
    items, following = current_store.conversation_list.page(filters, _LISTED, **page)
    return json_response(json_page(items, page_id(page["by"], page["descending"], following)) + b"\n")
