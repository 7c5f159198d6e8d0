"""The inbox: the pending actions of all conversations. Source: docs/approvals.md."""

from typing import Any

from flask import Response

from blueprints import current_store
from blueprints.api import Blueprint, json_response, needs
from schemas.pending_actions import (
    PendingActionFilter,
    PendingActionSearch,
    WaitingActionPage,
    page_id,
)
from store.approvals.inbox import Filter

pending_actions = Blueprint("Pending Actions", __name__, url_prefix="/api/v1/pending-actions")


@pending_actions.get("")
@needs("read")
@pending_actions.fails()
@pending_actions.arguments(PendingActionSearch(), location="query")
@pending_actions.response(200, WaitingActionPage)
def list_pending_actions(search: dict[str, Any]) -> dict[str, Any]:
    """List what waits for a decision in all conversations. A page may be shorter than its limit and not the last."""
    page = {name: search.pop(name) for name in ("descending", "limit", "start")}
    items, following = current_store.inbox.page(Filter(**search), **page)
    return {"items": items, "next_page_id": page_id(page["descending"], following)}


@pending_actions.get("/count")
@needs("read")
@pending_actions.fails()
@pending_actions.arguments(PendingActionFilter(), location="query")
@pending_actions.response(200, {"type": "integer", "minimum": 0}, description="The number of pending actions")
def count_pending_actions(filters: dict[str, Any]) -> Response:
    """Count what waits for a decision, with the filters of the list."""
    return json_response(b"%d" % current_store.inbox.count(Filter(**filters)))
