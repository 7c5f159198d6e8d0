"""The conversation of an action, as rules are compared with it."""

from core.approvals import Conversation
from core.scopes import Origin
from core.wire import ConversationId, parse_json

#: The fields of a conversation that `read_place` reads, in their order.
PLACE = ("tags", "folder", "origin")


def read_place(
    conversation_id: ConversationId, tags: bytes | None, folder: bytes | None, origin: bytes | None
) -> Conversation:
    """A conversation by the stored fields of PLACE."""
    began = Origin.of(parse_json(origin or b"{}"))
    return Conversation(conversation_id, parse_json(tags or b"{}"), folder.decode() if folder else None, began)
