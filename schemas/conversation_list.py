"""The list of all conversations: its filters, its orders and what it shows."""

from marshmallow import ValidationError, fields

from schemas.app_conversations import SandboxName
from schemas.cursors import ListingOrder, OrderedSearch
from schemas.fields import BaseSchema, Choice, Instant, Text
from schemas.pending_actions import TagFilter
from wire import EXECUTION_STATUSES, MOST_TITLE

_NULLABLE = {"type": ["string", "null"]}


class ConversationListSearch(OrderedSearch):
    """The filters of conversations, all of which must pass, beside `status`; an order and a page."""

    order = ListingOrder("CREATED_AT", "UPDATED_AT", "TITLE", default="UPDATED_AT_DESC")
    title = Text(data_key="text", most=MOST_TITLE, metadata={"description": "A part of the title, whatever its case."})
    tag = TagFilter(most=512, metadata={"description": "A tag: `NAME` or `NAME=VALUE`."})
    sandbox_id = SandboxName()
    updated_since = Instant(data_key="updated__gte")
    updated_until = Instant(data_key="updated__lt")


class ListedConversation(BaseSchema):
    """What a list shows of a conversation."""

    id = fields.String(required=True, metadata={"format": "uuid"})
    title = fields.String(required=True, allow_none=True)
    execution_status = fields.String(required=True, metadata={"enum": list(EXECUTION_STATUSES)})
    pending = fields.Integer(required=True, metadata={"description": "The number of its pending actions."})
    events = fields.Function(lambda state: int(state["seq"]), metadata={"type": "integer", "minimum": 0})
    tags = fields.Dict(required=True)
    sandbox_id = fields.Function(
        lambda state: state["sandbox_id"] or None,
        metadata={**_NULLABLE, "description": "Null: it is detached. Its status is that of the list of sandboxes."},
    )
    parent_conversation_id = fields.Function(
        lambda state: state["app"]["parent_conversation_id"], metadata={**_NULLABLE, "format": "uuid"}
    )
    llm_model = fields.Function(lambda state: state["app"]["llm_model"], metadata=_NULLABLE)
    created_at = fields.String(required=True, metadata={"format": "date-time"})
    updated_at = fields.String(required=True, metadata={"format": "date-time"})


class ListedConversationPage(BaseSchema):
    items = fields.List(fields.Nested(ListedConversation), required=True)
    next_page_id = fields.String(required=True, allow_none=True)


def read_statuses(statuses: list[str]) -> list[str]:
    """The statuses of a search, each once. Raises ValidationError, with the index of each that is none."""
    choice, faults = Choice(*EXECUTION_STATUSES), {}
    for index, one in enumerate(statuses):
        try:
            choice.deserialize(one)
        except ValidationError as fault:
            faults[index] = fault.messages
    if faults:
        raise ValidationError(faults)
    return list(dict.fromkeys(statuses))
