"""How a client follows a conversation: the query of a socket and of a stream, and the messages it sends."""

from typing import Any

from marshmallow import fields, post_load, pre_load

from schemas.events import EventFilter, SendMessageRequest
from schemas.fields import BaseSchema, Choice, Instant, Place


class Follow(BaseSchema):
    """Where a socket begins: after a seq, with all events, since a time, or now. Source: docs/wire.md, 6.

    Loaded as `after`: a seq, None for now; `since`: the earliest time to replay, or None; and `with_seq`: whether
    frames are {"seq", "event"}.
    """

    resend_mode = Choice("all", "since")
    after_timestamp = Instant()
    resend_all = fields.String()
    after_seq = Place()

    @post_load
    def _place(self, query: dict[str, Any], **_: Any) -> dict[str, Any]:
        mode = query.get("resend_mode") or ("all" if query.get("resend_all", "").lower() in ("true", "1") else None)
        since = query.get("after_timestamp") if mode == "since" else None
        if "after_seq" in query:
            return {"after": query["after_seq"], "since": None, "with_seq": True}
        return {"after": 0 if mode == "all" else None, "since": since, "with_seq": False}


class Stream(EventFilter):
    """Where a stream begins, and the filters of its events."""

    after_seq = Place(metadata={"description": "Send the events after this seq; 0, the default, is all."})


class InboundMessage(SendMessageRequest):
    """A user's message over a socket; its content may be plain text. It always runs. Source: docs/wire.md, 6."""

    @pre_load
    def _text_is_a_part(self, message: Any, **_: Any) -> Any:
        if isinstance(message, dict) and isinstance(message.get("content"), str):
            return {**message, "content": [{"type": "text", "text": message["content"]}], "run": True}
        return {**message, "run": True} if isinstance(message, dict) else message
