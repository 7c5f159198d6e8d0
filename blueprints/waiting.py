"""Everything in a conversation that waits for a person: actions, destinations and budgets.

The stream of the inbox, filtered by this conversation, reports the changes. Source: docs/approvals.md.
"""

from dataclasses import asdict
from typing import Any

from blueprints import current_store
from blueprints.api import Blueprint, needs
from core.wire import ConversationId
from schemas.waiting import WaitingInConversation
from store.approvals.inbox import InboxFilter

waiting = Blueprint("Waiting", __name__, url_prefix="/api/v1/conversation/<conversation_id:conversation_id>")

#: Number of actions that are read at once.
_PAGE = 100


@waiting.get("/waiting")
@needs("read")
@waiting.fails()
@waiting.response(200, WaitingInConversation)
def list_waiting_in_conversation(conversation_id: ConversationId) -> dict[str, Any]:
    """List everything that waits for a person in a conversation: actions, destinations and budgets.

    Each conversation of a shared sandbox lists the sandbox's destinations, and its budget after the budget has refused
    a call.
    """
    sandbox_id = current_store.conversations.sandbox_of(conversation_id)
    found, start = [], None
    while True:
        filters = InboxFilter(conversation_id=conversation_id)
        actions, start = current_store.approvals.inbox.page(filters, descending=False, limit=_PAGE, start=start)
        found += actions
        if start is None:
            break
    asked = current_store.destinations.of_conversation(conversation_id, sandbox_id) if sandbox_id else []
    return {
        "is_waiting": bool(found or asked),
        "actions": [asdict(action) for action in found],
        "destinations": asked,
    }
