"""The audit: decisions about pending actions and their authors, as pages or JSON lines. Source: docs/approvals.md."""

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from flask import Response, request

from blueprints import current_store
from blueprints.api import Blueprint, json_page, json_response, needs
from blueprints.following import key_required
from core.wire import ConversationId
from schemas.audit import AuditPage, AuditSearch, ConversationAuditSearch, place_id
from store.approvals.audit import AuditFilter, AuditPosition

audit = Blueprint("Audit", __name__, url_prefix="/api/v1")

JSON_LINES = "application/x-ndjson"

#: Number of entries that a stream reads at once.
_PAGE = 100

Cursor = TypeVar("Cursor")

_FORMS = {
    "description": "A page. With `format=jsonl`: a stream of all entries, one per line, which ends early if it fails.",
    "content": {"application/json": {"schema": AuditPage}, JSON_LINES: {"schema": {"type": "string"}}},
}


@audit.get("/conversation/<conversation_id:conversation_id>/audit")
@needs("admin")
@audit.fails()
@audit.arguments(ConversationAuditSearch(), location="query")
@audit.doc(responses={"200": _FORMS})
@audit.response(200, AuditPage)
def get_conversation_audit(search: dict[str, Any], conversation_id: ConversationId) -> Response:
    """Read the audit of a conversation, the oldest entry first. It outlives the conversation."""
    trail = current_store.approvals.audit

    def read(after: int, limit: int) -> tuple[list[bytes], int | None]:
        return trail.page(conversation_id, after=after, limit=limit)

    if search["format"] == "jsonl":
        return _lines(read, search["after"], f"audit_{conversation_id}")
    entries, following = read(search["after"], search["limit"])
    return _page(entries, None if following is None else str(following))


@audit.get("/audit")
@needs("admin")
@audit.fails()
@audit.arguments(AuditSearch(), location="query")
@audit.doc(responses={"200": _FORMS})
@audit.response(200, AuditPage)
def search_audit(search: dict[str, Any]) -> Response:
    """Search the audit of all conversations, the oldest or newest first. A page may be shorter than its limit."""
    trail, form, limit = current_store.approvals.audit, search.pop("format"), search.pop("limit")
    descending, start = search.pop("descending"), search.pop("start")
    filters = AuditFilter(**search)

    def read(start: AuditPosition | None, limit: int) -> tuple[list[bytes], AuditPosition | None]:
        return trail.search(filters, descending=descending, limit=limit, start=start)

    start = None if start is None else AuditPosition(*start)
    if form == "jsonl":
        return _lines(read, start, "audit")
    entries, following = read(start, limit)
    return _page(entries, place_id(descending, following))


def _page(entries: list[bytes], following: str | None) -> Response:
    """Return a page with the stored bytes of each entry, because its hash covers them."""
    return json_response(json_page(entries, following))


def _lines(read: Callable[[Cursor, int], tuple[list[bytes], Cursor | None]], start: Cursor, name: str) -> Response:
    """Stream all entries after a cursor as lines. The first read happens before the response begins."""
    first = read(start, _PAGE)
    require_key = key_required()
    lines = _streamed(read, first, require_key) if request.method == "GET" else iter(())
    response = Response(lines, mimetype=JSON_LINES)
    response.headers.set("Content-Disposition", "attachment", filename=f"{name}.jsonl")
    return response


def _streamed(
    read: Callable[[Cursor, int], tuple[list[bytes], Cursor | None]],
    page: tuple[list[bytes], Cursor | None],
    require_key: Callable[[], None],
) -> Iterator[bytes]:
    """Yield one page at a time. No resource is held between pages, so a disconnected client leaves nothing behind."""
    while True:
        entries, following = page
        yield b"".join(entry + b"\n" for entry in entries)
        if following is None:
            return
        require_key()
        page = read(following, _PAGE)
