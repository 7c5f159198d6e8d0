"""The conversation of an action, for comparison with rules."""

from core.approvals import RuledConversation
from core.scopes import Origin
from core.wire import ConversationId, parse_json

#: The fields of a conversation for `read_place`, in order.
PLACE = ("tags", "folder", "origin")


def read_place(
    conversation_id: ConversationId, tags: bytes | None, folder: bytes | None, origin: bytes | None
) -> RuledConversation:
    """Make a conversation from the stored fields of PLACE."""
    began = Origin.of(parse_json(origin or b"{}"))
    return RuledConversation(conversation_id, parse_json(tags or b"{}"), folder.decode() if folder else None, began)
