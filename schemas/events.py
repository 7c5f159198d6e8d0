"""Events: filters, pages, a batch to append, a histogram, a message to send, and the cursors of followers.

Also a search in the messages of all conversations, and messages that wait until their conversation can receive them.
"""

import json
import re
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from marshmallow import RAISE, ValidationError, fields, post_load, pre_load, validate, validates, validates_schema

from core.wire import MOST_CALL_BYTES, MOST_EVENT_BYTES, MOST_NAME, bare_kind, json_elements, micros
from core.wire import ReceivedEvent as WireEvent
from schemas.fields import (
    DAY,
    FOREIGN_CURSOR,
    BaseSchema,
    Choice,
    DurationSeconds,
    EventKind,
    EventPlace,
    FieldFault,
    Instant,
    PageId,
    PageLimit,
    ShownTime,
    SortOrder,
    StrictBoolean,
    Text,
    WholeNumber,
    canonical_id,
    checked_text,
    refusal,
)

#: Maximum number of events of a batch.
MOST_EVENTS = 500

#: Maximum number of ids of a batch get.
MOST_IDS = 100

#: Maximum wait of a search, in seconds.
MOST_WAIT = 30


#: A cursor of events, for the OpenAPI document.
PAGE_ID = {"minLength": 1, "maxLength": MOST_NAME, "description": "`next_page_id` of the previous page: an event's id."}

#: Hours and minutes of a day, and of a zone's offset.
_CLOCK, _ZONE = "([01][0-9]|2[0-3]):[0-5][0-9]", "([01][0-9]|2[0-3]):?[0-5][0-9]"

_CACHE_PROMPT = {"type": "boolean", "default": False}

#: Maximum number of buckets of a histogram: more than a screen-wide plot can show.
MOST_BUCKETS = 200

#: Maximum number of characters of a searched text.
_LONGEST_TEXT = 500

_CURSOR = re.compile("messages[.]([0-9]{1,16})-([0-9a-f]{32})-([0-9]{1,9})-([0-9]{1,10})")

#: Prefix of the id of a start task in place of a conversation's id.
_OF_START = "task-"


class EventFilterQuery(BaseSchema):
    """The filters of count and search. An event must match all of them. Source: docs/wire.md, 3."""

    kind = EventKind(metadata={"description": "Optional filter by event kind/type, bare or qualified class name."})
    source = fields.String(metadata={"description": "Optional filter by event source: agent, user, environment."})
    body = fields.String(
        metadata={"description": "Optional filter by message content: case-insensitive substring of a MessageEvent."}
    )
    since = Instant(
        data_key="timestamp__gte",
        metadata={"description": "Keep events with timestamp >= this; naive is UTC."},
    )
    until = Instant(
        data_key="timestamp__lt", metadata={"description": "Keep events with timestamp < this; naive is UTC."}
    )


def text_filter() -> fields.String:
    """Return the filter by the text of messages, actions, observations and errors."""
    return fields.String(
        metadata={
            "description": "Optional case-insensitive filter by text of messages, commands and other arguments of "
            "actions, observations and errors. A page may be empty and have a next_page_id: "
            "continue with it."
        }
    )


class EventSearch(EventFilterQuery):
    """The filters, with an order and a page, or with a seq to read after. Source: docs/wire.md, 7."""

    text = text_filter()
    page_id = fields.String(metadata=PAGE_ID)
    limit = PageLimit(100)
    descending = SortOrder("TIMESTAMP")
    after_seq = EventPlace(
        metadata={
            "description": "Read events after this seq in the order of appending. Continue with `X-Last-Seq`. Not "
            "with `page_id` or `sort_order=TIMESTAMP_DESC`."
        }
    )
    wait = DurationSeconds(
        most=MOST_WAIT, metadata={"description": "With after_seq: maximum wait for the next event, in seconds."}
    )

    @validates_schema
    def _one_order(self, search: dict[str, Any], **_: Any) -> None:
        if "wait" in search and "after_seq" not in search:
            raise ValidationError([FieldFault("wait needs after_seq", "value_error")], field_name="wait")
        if "after_seq" in search and ("page_id" in search or search.get("descending")):
            fault = FieldFault("after_seq cannot be combined with page_id or sort_order TIMESTAMP_DESC", "value_error")
            raise ValidationError([fault], field_name="after_seq")


class Event(BaseSchema):
    """A record of a conversation. Other members depend on the kind, and are stored unchanged."""

    id = fields.String(required=True, metadata={"minLength": 1, "maxLength": MOST_NAME})
    kind = fields.String(
        required=True,
        metadata={"minLength": 1, "maxLength": MOST_NAME, "pattern": "[^.]$", "example": "MessageEvent"},
    )
    source = fields.String(required=True, metadata={"minLength": 1, "maxLength": MOST_NAME, "example": "agent"})
    timestamp = fields.String(
        required=True,
        metadata={
            # not "date-time", which requires a zone: agents write none
            "pattern": rf"^{DAY}([Tt ]{_CLOCK}(:[0-5][0-9](\.[0-9]{{1,12}})?)?([Zz]|[+\- ]{_ZONE})?)?$",
            "description": "ISO 8601; without a zone it is UTC.",
            "example": "2026-11-20T20:37:22.528416",
        },
    )


class EventPage(BaseSchema):
    items = fields.List(fields.Nested(Event), required=True)
    next_page_id = fields.String(required=True, allow_none=True)


class AppendResult(BaseSchema):
    """The outcome of an append."""

    success = fields.Boolean(required=True)
    appended = fields.Integer(required=True, metadata={"description": "Number of new events."})
    seq = fields.Integer(required=True, metadata={"description": "Seq of the conversation's last event."})


class ContentPart(fields.Raw):
    """A text or image part of a message, loaded in an agent server's form. Source: the agent-server wire."""

    def __init__(self) -> None:
        super().__init__(
            metadata={
                "oneOf": [
                    {
                        "type": "object",
                        "title": "TextContent",
                        "required": ["type", "text"],
                        "additionalProperties": False,
                        "properties": {
                            "type": {"const": "text"},
                            "text": {"type": "string"},
                            "cache_prompt": _CACHE_PROMPT,
                        },
                    },
                    {
                        "type": "object",
                        "title": "ImageContent",
                        "required": ["type", "image_urls"],
                        "additionalProperties": False,
                        "properties": {
                            "type": {"const": "image"},
                            "image_urls": {"type": "array", "items": {"type": "string"}},
                            "cache_prompt": _CACHE_PROMPT,
                        },
                    },
                ]
            }
        )

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(value, dict):
            raise refusal("Input should be a valid object", "dict_type")
        for schema in (TextContent(), ImageContent()):
            if value.get("type") == schema.kind:
                return {"cache_prompt": False, **schema.load(value)}
        raise ValidationError({"type": refusal("Input should be one of text, image", "enum").messages})


class TextContent(BaseSchema):
    """A text part of a message."""

    kind = "text"

    class Meta:
        unknown = RAISE

    type = fields.String(required=True)
    text = fields.String(required=True)
    cache_prompt = StrictBoolean()


class ImageContent(BaseSchema):
    """An image part of a message."""

    kind = "image"

    class Meta:
        unknown = RAISE

    type = fields.String(required=True)
    image_urls = fields.List(fields.String(), required=True)
    cache_prompt = StrictBoolean()


class SendMessageRequest(BaseSchema):
    """A user's message for the agent. No other role can send."""

    role = Choice("user", load_default="user")
    content = fields.List(ContentPart(), load_default=list, metadata={"default": []})
    run = StrictBoolean(load_default=False, metadata={"description": "Start the agent after the message."})

    @validates("content")
    def _fits_into_an_event(self, content: list[Any], **_: Any) -> None:
        if len(json.dumps(content)) > MOST_EVENT_BYTES - 1024:
            raise refusal(f"A message should have less than {MOST_EVENT_BYTES} bytes", "too_long")


def require_content(content: list[dict[str, Any]]) -> None:
    """Raise ValidationError for a message without text and image, which would wake an agent in vain.

    A message to the events of an agent server may be empty. Source: the agent-server wire, 1.2.
    """
    if content and not any(part.get("image_urls") or part.get("text", "").strip() for part in content):
        raise refusal("A message should have a text that is not blank, or an image", "value_error")


class SentMessage(SendMessageRequest):
    """A message that says whether it may reject pending actions."""

    rejects = StrictBoolean(
        load_default=True,
        metadata={
            "description": "Whether the message rejects the pending actions. With false it is refused with 409 "
            "while an action waits; a queued message waits. Send false if you saw no pending "
            "action, so that the message rejects none that arrived meanwhile."
        },
    )


def read_ids(ids: Any) -> list[str]:
    """Return the ids of a batch get: a JSON array of text, or the values of a query. Raises ValidationError."""
    if not isinstance(ids, list):
        raise refusal("Input should be a valid array of event ids", "list_type")
    if len(ids) > MOST_IDS:
        raise refusal(f"Array should have at most {MOST_IDS} event ids", "too_long")
    for index, event_id in enumerate(ids):
        if not isinstance(event_id, str):
            raise ValidationError({index: ["Not a valid string."]})
        try:
            checked_text(event_id, least=0, most=None)
        except ValidationError as fault:
            raise ValidationError({index: fault.messages}) from None
    return ids


def action_ids(events: Iterable[bytes]) -> list[str]:
    """Return the ids of the actions among events."""
    return [event["id"] for event in map(json.loads, events) if bare_kind(event["kind"]) == "ActionEvent"]


def read_some_ids(ids: list[str]) -> list[str]:
    """Return at least one id, as `read_ids` does."""
    if not ids:
        raise ValidationError(["Missing data for required field."])
    return read_ids(ids)


def read_batch(raw: bytes) -> list[WireEvent]:
    """Return the events of an append, each with its own bytes. Raises ValidationError by index, or wire.InvalidJson.

    A loop and not a schema, because unknown members must leave the server byte for byte as they came.
    """
    elements = json_elements(raw, MOST_EVENTS)
    if elements is None:
        raise refusal("Input should be a valid array of events", "list_type")
    if not elements:
        raise refusal("Array should have at least 1 event", "too_short")
    if len(elements) > MOST_EVENTS:
        raise refusal(f"Array should have at most {MOST_EVENTS} events", "too_long")
    events, faults = [], {}
    for index, (fields_, own) in enumerate(elements):
        try:
            events.append(read_event(fields_, own))
        except ValidationError as fault:
            faults[index] = fault.messages
    if faults:
        raise ValidationError(faults)
    return events


def read_event(event: Any, raw: bytes, most: int = MOST_EVENT_BYTES) -> WireEvent:
    """Return an event from a parsed JSON value and its own bytes.

    most: maximum size in bytes. Raises ValidationError.
    """
    if not isinstance(event, dict):
        raise refusal("Input should be a valid object", "dict_type")
    if len(raw) > most:
        raise refusal(f"An event should have at most {most} bytes", "too_long")
    faults: dict[str, Any] = {}
    for name in ("id", "kind", "source", "timestamp"):
        if name not in event:
            faults[name] = ["Missing data for required field."]
        elif not isinstance(event[name], str):
            faults[name] = ["Not a valid string."]
        elif name != "timestamp":
            try:
                checked_text(event[name], least=1, most=MOST_NAME)
            except ValidationError as fault:
                faults[name] = fault.messages
    if not faults and bare_kind(event["kind"]) == "ActionEvent":
        faults |= _call_faults(event)
    if not faults and not bare_kind(event["kind"]):
        faults["kind"] = refusal("A kind is a class name, not a dot at the end", "value_error").messages
    if "timestamp" not in faults:
        try:
            at = micros(event["timestamp"])
        except ValueError:
            faults["timestamp"] = refusal(
                "Input should be an ISO 8601 date-time; without a zone it is UTC", "datetime_parsing"
            ).messages
    if faults:
        raise ValidationError(faults)
    return WireEvent(event["id"], bare_kind(event["kind"]), event["source"], at, event, raw)


def _call_faults(action: dict[str, Any]) -> dict[str, Any]:
    """Return faults in the names of a tool call, which the conversation stores until the action is observed."""
    faults = {}
    for name in ("tool_name", "tool_call_id", "llm_response_id"):
        value = action.get(name)
        if isinstance(value, str) and len(value.encode("utf-8", "surrogatepass")) > MOST_CALL_BYTES:
            fault = refusal(f"String should have at most {MOST_CALL_BYTES} bytes of UTF-8", "string_too_long")
            faults[name] = fault.messages
    return faults


class HistogramQuery(BaseSchema):
    """The window and series of a histogram. Source: docs/wire.md, 3."""

    by = Choice("kind", "source", load_default="kind", metadata={"description": "Key of the series."})
    buckets = WholeNumber(
        least=1,
        most=MOST_BUCKETS,
        load_default=60,
        metadata={"description": "Number of equal buckets of the window."},
    )
    body = fields.String(metadata={"description": "Count only messages that contain this text, case-insensitively."})
    since = Instant(
        data_key="timestamp__gte",
        metadata={"description": "Start of the window; absent: the first event's time. Naive is UTC."},
    )
    until = Instant(
        data_key="timestamp__lt",
        metadata={"description": "End of the window; absent: just after the last event's time. Naive is UTC."},
    )


class Histogram(BaseSchema):
    """The events of a window, each in a bucket of a series."""

    start = ShownTime("Start of the window.", data_key="from", optional=True)
    end = ShownTime("End of the window, exclusive.", data_key="to", optional=True)
    bucket_seconds = fields.Float(
        required=True,
        metadata={"description": "Length of a bucket. Bucket i, from 0, begins i times as many seconds after `from`."},
    )
    total = fields.Integer(required=True)
    series = fields.Dict(
        keys=fields.String(),
        values=fields.List(fields.Integer()),
        required=True,
        metadata={
            "description": "Number of events in each bucket by name, the most frequent name first. With more than "
            "20 names, `other` has the sum of all but 19."
        },
    )


class Follow(BaseSchema):
    """Where a socket begins: after a seq, with all events, since a time, or now. Source: docs/wire.md, 6.

    Loaded as `after`: a seq, None for now; `since`: the earliest time to replay, or None; and `with_seq`: whether
    frames are {"seq", "event"}.
    """

    resend_mode = Choice("all", "since")
    after_timestamp = Instant()
    resend_all = fields.String()
    after_seq = EventPlace()

    @post_load
    def _place(self, query: dict[str, Any], **_: Any) -> dict[str, Any]:
        mode = query.get("resend_mode") or ("all" if query.get("resend_all", "").lower() in ("true", "1") else None)
        since = query.get("after_timestamp") if mode == "since" else None
        if "after_seq" in query:
            return {"after": query["after_seq"], "since": None, "with_seq": True}
        return {"after": 0 if mode == "all" else None, "since": since, "with_seq": False}


class Stream(EventFilterQuery):
    """The beginning of a stream, and the filters of its events."""

    after_seq = EventPlace(metadata={"description": "Send the events after this seq; default: 0, all events."})


class InboundMessage(SentMessage):
    """A user's message over a socket.

    Its content may be plain text, and it always starts a run. Source: docs/wire.md, 6.
    """

    @pre_load
    def _text_is_a_part(self, message: Any, **_: Any) -> Any:
        if isinstance(message, dict) and isinstance(message.get("content"), str):
            return {**message, "content": [{"type": "text", "text": message["content"]}], "run": True}
        return {**message, "run": True} if isinstance(message, dict) else message


#: The cursor of a page: creation of a conversation in µs, its id, chunk of its text, seq.
Cursor = tuple[int, str, int, int]


class MessageCursor(PageId):
    """A `next_page_id` of this search, loaded as a Cursor."""

    def __init__(self) -> None:
        super().__init__(_CURSOR.pattern)

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> Any:
        match = _CURSOR.fullmatch(super()._deserialize(value, *args, **kwargs))
        if match is None or not match[0].isascii():
            raise ValidationError([FOREIGN_CURSOR])
        return int(match[1]), canonical_id(match[2]), int(match[3]), int(match[4])


class MessageQuery(BaseSchema):
    """The filters of messages, and a page. Source: docs/wire.md, 8."""

    text = Text(
        required=True,
        least=1,
        most=_LONGEST_TEXT,
        metadata={"description": "Case-insensitive part of the message, as `body` of the search for events."},
    )
    source = fields.String(metadata={"description": "Optional filter by event source: agent, user, environment."})
    since = Instant(
        data_key="timestamp__gte", metadata={"description": "Keep messages with timestamp >= this; naive is UTC."}
    )
    until = Instant(
        data_key="timestamp__lt", metadata={"description": "Keep messages with timestamp < this; naive is UTC."}
    )
    limit = PageLimit(100)
    start = MessageCursor()


class FoundMessage(BaseSchema):
    conversation_id = fields.String(required=True)
    title = fields.String(required=True, allow_none=True, metadata={"description": "Title of the conversation."})
    event = fields.Nested(Event, required=True, metadata={"description": "A MessageEvent."})


class FoundMessagePage(BaseSchema):
    items = fields.List(fields.Nested(FoundMessage), required=True)
    next_page_id = fields.String(
        required=True,
        allow_none=True,
        metadata={"description": "Null on the last page. Earlier pages may be short or empty."},
    )


def message_page_id(cursor: Cursor | None) -> str | None:
    """Return the cursor of a page for clients; None on the last page."""
    if cursor is None:
        return None
    at, conversation_id, chunk, seq = cursor
    return f"messages.{at}-{conversation_id.replace('-', '')}-{chunk}-{seq}"


class PendingMessage(SentMessage):
    """A message for an agent that may not have started. The agent runs after receiving it."""

    content = fields.List(ContentPart(), required=True, validate=[validate.Length(min=1), require_content])

    class Meta(SentMessage.Meta):
        exclude = ("run",)


class QueuedPendingMessage(BaseSchema):
    """A message that waits for its conversation."""

    id = fields.UUID(required=True)
    queued = fields.Boolean(required=True)
    position = fields.Integer(required=True, metadata={"description": "Position in the queue, from 1."})


def read_receiver(text: str) -> tuple[str | None, str | None]:
    """Return the conversation's id, or the start task's id of `task-ID`. Raises ValidationError."""
    try:
        identity = canonical_id(text.removeprefix(_OF_START))
    except ValidationError:
        raise refusal(
            "Input should be a conversation's UUID, or task- and the UUID of a start task", "uuid_parsing"
        ) from None
    return (None, UUID(identity).hex) if text.startswith(_OF_START) else (identity, None)
