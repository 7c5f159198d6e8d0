"""The pending actions of a conversation, as people and rules see them."""

from typing import Any

from core.approvals import shown_arguments
from core.wire import ConversationId, parse_json
from store.errors import ConversationNotFound
from store.keys import ConversationKeys
from store.log.frames import PAGE_BYTES, original
from store.scripts import Scripts


def read_pending(scripts: Scripts, conversation_id: ConversationId) -> list[dict[str, Any]]:
    """Return the pending actions, in log order. Raises ConversationNotFound."""
    found: list[dict[str, Any]] = []
    last = 0
    while True:
        page = scripts.list_pending(ConversationKeys(conversation_id).root, after=last, most_bytes=PAGE_BYTES)
        if page is None:
            raise ConversationNotFound
        for seq, since, kept in page:
            last = seq
            found.append(_described(since, parse_json(original(kept))))
        if not page:
            return found


def _described(since: str, action: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": action["id"],
        "tool_name": action.get("tool_name"),
        "tool_call_id": action.get("tool_call_id"),
        "summary": action.get("summary"),
        "security_risk": action.get("security_risk", "UNKNOWN"),
        "arguments": shown_arguments(action["action"]),
        "since": since,
    }
