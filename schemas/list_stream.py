"""Where a stream of a list's changes begins."""

from typing import Any

from schemas.fields import BaseSchema, WholeNumber


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
