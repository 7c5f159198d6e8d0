"""Events: filters, pages, a batch to append, a histogram, a message to send, and how a client follows a log.

Also a search in the messages of all conversations, and messages that wait until their conversation can receive them.
"""

import json
import re
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from marshmallow import RAISE, ValidationError, fields, post_load, pre_load, validate, validates, validates_schema

from core.wire import MOST_CALL_BYTES, MOST_EVENT_BYTES, MOST_NAME, bare_kind, json_elements, micros
from core.wire import Event as WireEvent
from schemas.fields import (
    DAY,
    FOREIGN_CURSOR,
    BaseSchema,
    Choice,
    Fault,
    Instant,
    Kind,
    Limit,
    PageId,
    Place,
    Seconds,
    ShownTime,
    SortOrder,
    StrictBoolean,
    Text,
    WholeNumber,
    canonical_id,
    checked_text,
    refusal,
)

#: events in one batch
MOST_EVENTS = 500

#: ids in one batch get
MOST_IDS = 100

#: seconds that a search may wait
MOST_WAIT = 30


#: of a cursor of events, for the OpenAPI document
PAGE_ID = {"minLength": 1, "maxLength": MOST_NAME, "description": "`next_page_id` of the page before: an event's id."}

#: hours and minutes of a day, and of a zone's offset
_CLOCK, _ZONE = "([01][0-9]|2[0-3]):[0-5][0-9]", "([01][0-9]|2[0-3]):?[0-5][0-9]"

_CACHE_PROMPT = {"type": "boolean", "default": False}

#: buckets of one histogram: more than a plot of a screen's width can show apart
MOST_BUCKETS = 200

#: most characters of the text that is searched for
_LONGEST_TEXT = 500

_CURSOR = re.compile("messages[.]([0-9]{1,16})-([0-9a-f]{32})-([0-9]{1,9})-([0-9]{1,10})")

#: what the id of a start task begins with where a conversation's id may stand
_OF_START = "task-"


class EventFilter(BaseSchema):
    """The filters of count and search; an event must pass all that are given. Source: docs/wire.md, 3."""

    kind = Kind(metadata={"description": "Optional filter by event kind/type, bare or qualified class name."})
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
    """The filter by what is in messages, actions, observations and errors."""
    return fields.String(
        metadata={
            "description": "Optional filter by text, whatever its case: of messages, commands and other arguments of "
            "actions, observations and errors. A page may be empty and have a next_page_id: read on by it."
        }
    )


class EventSearch(EventFilter):
    """The filters, with an order and a page, or with a seq to read after. Source: docs/wire.md, 7."""

    text = text_filter()
    page_id = fields.String(metadata=PAGE_ID)
    limit = Limit(100)
    descending = SortOrder("TIMESTAMP")
    after_seq = Place(
        metadata={
            "description": "Read in the order of appending, after this seq; `X-Last-Seq` is the seq to read after next."
            " Without `page_id` and `sort_order=TIMESTAMP_DESC`."
        }
    )
    wait = Seconds(
        most=MOST_WAIT, metadata={"description": "With after_seq: seconds to wait for an event when none follows."}
    )

    @validates_schema
    def _one_order(self, search: dict[str, Any], **_: Any) -> None:
        if "wait" in search and "after_seq" not in search:
            raise ValidationError([Fault("wait needs after_seq", "value_error")], field_name="wait")
        if "after_seq" in search and ("page_id" in search or search.get("descending")):
            fault = Fault("after_seq goes with neither page_id nor sort_order TIMESTAMP_DESC", "value_error")
            raise ValidationError([fault], field_name="after_seq")


class Event(BaseSchema):
    """One record of a conversation. Other members depend on the kind, and are stored unchanged."""

    id = fields.String(required=True, metadata={"minLength": 1, "maxLength": MOST_NAME})
    kind = fields.String(
        required=True,
        metadata={"minLength": 1, "maxLength": MOST_NAME, "pattern": "[^.]$", "example": "MessageEvent"},
    )
    source = fields.String(required=True, metadata={"minLength": 1, "maxLength": MOST_NAME, "example": "agent"})
    timestamp = fields.String(
        required=True,
        metadata={
            # not "date-time": that format demands a zone, and agents write none
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
    appended = fields.Integer(required=True, metadata={"description": "Events that were new."})
    seq = fields.Integer(required=True, metadata={"description": "Sequence number of the conversation's last event."})


class ContentPart(fields.Raw):
    """A text or image part of a message, loaded as an agent server writes it. Source: the agent-server wire."""

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
    """A part of a message that is text."""

    kind = "text"

    class Meta:
        unknown = RAISE

    type = fields.String(required=True)
    text = fields.String(required=True)
    cache_prompt = StrictBoolean()


class ImageContent(BaseSchema):
    """A part of a message that is images."""

    kind = "image"

    class Meta:
        unknown = RAISE

    type = fields.String(required=True)
    image_urls = fields.List(fields.String(), required=True)
    cache_prompt = StrictBoolean()


class SendMessageRequest(BaseSchema):
    """A message for the agent, which is a user's: no other role can send."""

    role = Choice("user", load_default="user")
    content = fields.List(ContentPart(), load_default=list, metadata={"default": []})
    run = StrictBoolean(load_default=False, metadata={"description": "Start the agent after the message."})

    @validates("content")
    def _fits_into_an_event(self, content: list[Any], **_: Any) -> None:
        if len(json.dumps(content)) > MOST_EVENT_BYTES - 1024:
            raise refusal(f"A message should have less than {MOST_EVENT_BYTES} bytes", "too_long")


def require_content(content: list[dict[str, Any]]) -> None:
    """Raises ValidationError of a message without a text and without an image, which would wake an agent for nothing.

    A message to the events of an agent server may have none. Source: the agent-server wire, 1.2.
    """
    if content and not any(part.get("image_urls") or part.get("text", "").strip() for part in content):
        raise refusal("A message should have a text that is not blank, or an image", "value_error")


class SentMessage(SendMessageRequest):
    """A message that says whether it may reject what waits."""

    rejects = StrictBoolean(
        load_default=True,
        metadata={
            "description": "Whether the message rejects the pending actions. With false it is refused with 409 while "
            "an action waits, or waits too if it is queued: a client that saw none says so, and rejects none that came "
            "meanwhile."
        },
    )


def read_ids(ids: Any) -> list[str]:
    """The ids of a batch get: a JSON array of text, or the values of a query. Raises ValidationError."""
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
    """The ids of the actions among events."""
    return [event["id"] for event in map(json.loads, events) if bare_kind(event["kind"]) == "ActionEvent"]


def read_some_ids(ids: list[str]) -> list[str]:
    """As `read_ids`, at least one."""
    if not ids:
        raise ValidationError(["Missing data for required field."])
    return read_ids(ids)


def read_batch(raw: bytes) -> list[WireEvent]:
    """The events of an append, each with its own bytes. Raises ValidationError by index, or wire.InvalidJson.

    A loop and not a schema: the members beyond the four must leave the server byte for byte as they came.
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
    """An event of a parsed JSON value and its own bytes, at most so many. Raises ValidationError."""
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
    """What is wrong with the names of a tool call, which the conversation keeps until the action is observed."""
    faults = {}
    for name in ("tool_name", "tool_call_id", "llm_response_id"):
        value = action.get(name)
        if isinstance(value, str) and len(value.encode("utf-8", "surrogatepass")) > MOST_CALL_BYTES:
            fault = refusal(f"String should have at most {MOST_CALL_BYTES} bytes of UTF-8", "string_too_long")
            faults[name] = fault.messages
    return faults


class HistogramQuery(BaseSchema):
    """The window, and how its events are counted. Source: docs/wire.md, 3."""

    by = Choice("kind", "source", load_default="kind", metadata={"description": "What the series are."})
    buckets = WholeNumber(
        least=1,
        most=MOST_BUCKETS,
        load_default=60,
        metadata={"description": "The number of equal parts of the window."},
    )
    body = fields.String(metadata={"description": "Count messages alone that contain this text, whatever its case."})
    since = Instant(
        data_key="timestamp__gte",
        metadata={"description": "Start of the window; absent: the first event's time. Naive is UTC."},
    )
    until = Instant(
        data_key="timestamp__lt",
        metadata={"description": "End of the window; absent: just after the last event's time. Naive is UTC."},
    )


class Histogram(BaseSchema):
    """The events of a window, each in one bucket of one series."""

    start = ShownTime("Start of the window.", data_key="from", optional=True)
    end = ShownTime("End of the window, exclusive.", data_key="to", optional=True)
    bucket_seconds = fields.Float(
        required=True, metadata={"description": "Bucket number i, from 0, begins so many seconds times i after `from`."}
    )
    total = fields.Integer(required=True)
    series = fields.Dict(
        keys=fields.String(),
        values=fields.List(fields.Integer()),
        required=True,
        metadata={
            "description": "The events in each bucket by name, the most frequent name first. Where there are more than "
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


class InboundMessage(SentMessage):
    """A user's message over a socket; its content may be plain text. It always runs. Source: docs/wire.md, 6."""

    @pre_load
    def _text_is_a_part(self, message: Any, **_: Any) -> Any:
        if isinstance(message, dict) and isinstance(message.get("content"), str):
            return {**message, "content": [{"type": "text", "text": message["content"]}], "run": True}
        return {**message, "run": True} if isinstance(message, dict) else message


#: the cursor of a page: creation of a conversation in µs, its id, chunk of its text, seq
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
    """What a message must have, and a page. Source: docs/wire.md, 8."""

    text = Text(
        required=True,
        least=1,
        most=_LONGEST_TEXT,
        metadata={"description": "A part of the message, whatever its case: `body` of the search for events."},
    )
    source = fields.String(metadata={"description": "Optional filter by event source: agent, user, environment."})
    since = Instant(
        data_key="timestamp__gte", metadata={"description": "Keep messages with timestamp >= this; naive is UTC."}
    )
    until = Instant(
        data_key="timestamp__lt", metadata={"description": "Keep messages with timestamp < this; naive is UTC."}
    )
    limit = Limit(100)
    start = MessageCursor()


class FoundMessage(BaseSchema):
    conversation_id = fields.String(required=True)
    title = fields.String(required=True, allow_none=True, metadata={"description": "That of the conversation."})
    event = fields.Nested(Event, required=True, metadata={"description": "A MessageEvent."})


class FoundMessagePage(BaseSchema):
    items = fields.List(fields.Nested(FoundMessage), required=True)
    next_page_id = fields.String(
        required=True,
        allow_none=True,
        metadata={"description": "Null after the last page; a page before it may be short, or empty."},
    )


def message_page_id(cursor: Cursor | None) -> str | None:
    """The cursor of a page as clients get it; None where no page follows."""
    if cursor is None:
        return None
    at, conversation_id, chunk, seq = cursor
    return f"messages.{at}-{conversation_id.replace('-', '')}-{chunk}-{seq}"


class PendingMessage(SentMessage):
    """A message for an agent that may still start; the agent runs once it has it."""

    content = fields.List(ContentPart(), required=True, validate=[validate.Length(min=1), require_content])

    class Meta(SentMessage.Meta):
        exclude = ("run",)


class QueuedPendingMessage(BaseSchema):
    """A message that waits for its conversation."""

    id = fields.UUID(required=True)
    queued = fields.Boolean(required=True)
    position = fields.Integer(required=True, metadata={"description": "In the queue, from 1."})


def read_receiver(text: str) -> tuple[str | None, str | None]:
    """The conversation's id, or the id of its start task where the text is `task-ID`. Raises ValidationError."""
    try:
        identity = canonical_id(text.removeprefix(_OF_START))
    except ValidationError:
        raise refusal(
            "Input should be a conversation's UUID, or task- and the UUID of a start task", "uuid_parsing"
        ) from None
    return (None, UUID(identity).hex) if text.startswith(_OF_START) else (identity, None)
