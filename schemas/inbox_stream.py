"""Where a stream of pending actions begins, and the filters of what it sends."""

import re
from typing import Any

from marshmallow import fields

from schemas.fields import refusal
from schemas.pending_actions import PendingActionFilter


class ChangeId(fields.String):
    """The id of a change of the inbox, as the stream's events bear it."""

    pattern = "^[0-9]{1,20}-[0-9]{1,20}$"

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(metadata={"pattern": self.pattern, **kwargs.pop("metadata", {})}, **kwargs)

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> str:
        if not isinstance(value, str) or not re.fullmatch(self.pattern, value):
            raise refusal("Input should be the id of an event of this stream, such as 1764000000000-0", "value_error")
        return value


class InboxStreamQuery(PendingActionFilter):
    """Where a stream begins, and its filters; by `tag`, the end of an action is sent whatever its tags are then."""

    class Meta(PendingActionFilter.Meta):
        exclude = ("since", "until", "text")

    last_event_id = ChangeId(
        metadata={"description": "Send the changes after this one, as Last-Event-ID does; absent: a snapshot."}
    )
