"""The list of all conversations: its filters, its orders, what it shows, and where a stream of its changes begins."""

from typing import Any

from marshmallow import ValidationError, fields

from core.wire import EXECUTION_STATUSES, MOST_TITLE
from schemas.app_conversations import SandboxName
from schemas.cursors import ListingOrder, OrderedSearch
from schemas.fields import BaseSchema, Choice, Instant, Text, WholeNumber
from schemas.inbox import TagFilter

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


class ChangeNumber(WholeNumber):
    """The number of a change, as the events of a list's stream bear it."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(least=0, most=10**16 - 1, **kwargs)


class ListStreamQuery(BaseSchema):
    """Where a stream begins."""

    after = ChangeNumber(
        data_key="last_event_id",
        metadata={"description": "Send the changes after this one, as Last-Event-ID does; absent: from now on."},
    )
