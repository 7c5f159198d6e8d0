"""An export: a conversation as JSON lines: the head, then each event byte for byte in log order, then a digest.

The head has the conversation's members from `GET /api/conversations/{id}`, which has no secrets. It also has `format`,
`version` and `events`, the number of events. An event with line feeds between its members is a JSON string of its
bytes. After the line of a decided action comes a line with who decided it, how and when; an import ignores it. The last
line has the SHA-256 of all bytes before it.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import IO, Any

from marshmallow import ValidationError, fields

from core.wire import (
    EXECUTION_STATUSES,
    MOST_NAME,
    MOST_TITLE,
    REPORTED_MEMBERS,
    InvalidJson,
    Micros,
    ReceivedEvent,
    micros,
    now,
    parse_json,
    utc_time,
)
from schemas.approvals import ConfirmationPolicy, ConfirmationSeconds
from schemas.conversations import ConversationInfo, ConversationReport, Settings
from schemas.events import action_ids, read_event
from schemas.fields import Choice, FieldFault, Instant, StrictInteger, Text, read_told, refusal

#: Format and version. Version 1, which no release wrote, had no digest.
FORMAT, VERSION = "agent-server-conversation", 2

#: Prefixes of the lines that are not events, beside the head: of decisions, and of the last line.
_OWN = b'{"format":"agent-server-conversation-'
_DECISION, _END = _OWN + b'decision"', _OWN + b'end"'

#: Pattern of a whole export, for the OpenAPI document: an object, then objects and strings, then the digest.
_END_PATTERN = _END.decode().replace("{", r"\{")
LINES = rf'^ *\{{[^\n]+\n((?!{_END_PATTERN}) *[{{"][^\n]+\n)*' + rf'{_END_PATTERN},"sha256":"[0-9a-f]{{64}}"\}}\n?$'

#: Maximum size of a line, in bytes: a head contains many reports of an agent.
MOST_LINE_BYTES = 32 * 1024 * 1024

#: Maximum size of an event in a log, in bytes. Earlier releases accepted events of a mebibyte, and the server rewrites
#: some events with escapes for non-ASCII text.
_MOST_LOGGED_BYTES = 4 * 1024 * 1024

#: Size of a read, in bytes.
_PIECE = 64 * 1024

#: Members of the head that an import stores unchanged, beside those in the hash.
_KEPT = {*REPORTED_MEMBERS, "agent", "forked_from_conversation_id", "forked_from_event_id", "parent_conversation_id"}

_INFO = ConversationInfo()

#: Maximum time in µs by which a head may be ahead of this host's clock.
_AHEAD = 24 * 3600 * 1_000_000


class BadLine(ValueError):
    """Raised if a line of an import is invalid. messages: marshmallow's."""

    def __init__(self, number: int, messages: Any) -> None:
        super().__init__(number, messages)
        self.number = number  #: from 1
        self.messages = messages


def _is_past(at: Micros) -> None:
    """Raise ValidationError for a future time, or one outside of the calendar.

    A conversation that changed in the future would never be inactive: it would neither expire nor become cold, and keep
    the server from being idle.
    """
    if at > now() + _AHEAD or micros(utc_time(at)) != at:
        raise refusal("Input should be a time from the year 1 on that is past", "date_past")


class ExportHead(ConversationReport):
    """The first line of an import. Other members are ignored."""

    format = Choice(FORMAT, required=True)
    version = StrictInteger(least=VERSION, most=VERSION, required=True)
    events = StrictInteger(least=0, required=True)
    title = Text(most=MOST_TITLE, load_default=None, allow_none=True)
    tags = fields.Dict(keys=fields.String(), values=fields.String(), load_default=dict)
    stats = fields.Dict(load_default=dict)
    execution_status = Choice(*EXECUTION_STATUSES, required=True)
    confirmation_policy = fields.Nested(ConfirmationPolicy, required=True)
    confirmation_seconds = ConfirmationSeconds("")
    security_analyzer = Settings(load_default=None)
    created_at = Instant(required=True, validate=_is_past)
    updated_at = Instant(required=True, validate=_is_past)
    # the store continues counting from this value
    unapproved_resumes = StrictInteger(least=0, most=2**31, load_default=0)
    forked_from_conversation_id = Text(most=MOST_NAME, allow_none=True)
    forked_from_event_id = Text(most=MOST_NAME, allow_none=True)


def export(
    state: Mapping[str, Any],
    pages: Iterable[list[bytes]],
    decisions: Callable[[list[str]], Mapping[str, Any]] = lambda _: {},
) -> Iterator[bytes]:
    """Yield the lines of an export, a page of events at a time, the first page with the head.

    state: of the conversation. decisions: returns the decisions of actions by their ids; default: none.
    """
    pages, digest = iter(pages), hashlib.sha256()
    lines = _head_line(state) + b"".join(_page_lines(next(pages, []), decisions))
    digest.update(lines)
    yield lines
    for page in pages:
        lines = b"".join(_page_lines(page, decisions))
        digest.update(lines)
        yield lines
    yield _end_line(digest.hexdigest())


def _page_lines(page: list[bytes], decisions: Callable[[list[str]], Mapping[str, Any]]) -> Iterator[bytes]:
    """Yield the lines of events, with the decision after each decided action."""
    actions = {place: ids[0] for place, raw in enumerate(page) if b"ActionEvent" in raw and (ids := action_ids([raw]))}
    decided = decisions(list(actions.values()))
    for place, raw in enumerate(page):
        yield event_line(raw)
        if (identity := actions.get(place, "")) in decided:
            told = json.dumps({"action_id": identity, **decided[identity]}, separators=(",", ":"))
            yield _DECISION + b"," + told[1:].encode() + b"\n"


def _end_line(digest: str) -> bytes:
    """Return the last line of an export, with its line feed."""
    return _END + f',"sha256":"{digest}"}}\n'.encode()


def _head_line(state: Mapping[str, Any]) -> bytes:
    """Return the first line of the export of a conversation, with its line feed."""
    head = {"format": FORMAT, "version": VERSION, "events": state["seq"], **_INFO.dump(state)}
    return json.dumps(head, separators=(",", ":")).encode() + b"\n"


def event_line(raw: bytes) -> bytes:
    """Return the line of an event, with its line feed."""
    is_line = b"\n" not in raw and raw == raw.strip() and not raw.startswith(_OWN)
    return (raw if is_line else json.dumps(raw.decode(), ensure_ascii=False).encode()) + b"\n"


def read_export(source: IO[bytes]) -> tuple[dict[str, Any], Iterator[ReceivedEvent]]:
    """Return the head of an import, with members outside of the hash in `info`, and its events as they are read.

    One line is in memory at a time, at most MOST_LINE_BYTES. Raises BadLine, also while the events are read.
    """
    lines = _lines(source)
    first = next(lines, b"")
    head = _read_head(first)
    return head, _events(lines, head["events"], hashlib.sha256(first + b"\n"))


def _lines(source: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines without their line feeds. The last line needs none."""
    held, number = bytearray(), 1
    while piece := source.read(_PIECE):
        *whole, rest = piece.split(b"\n")
        for part in whole:
            held += part
            yield bytes(_bounded(held, number))
            held.clear()
            number += 1
        held += rest
        _bounded(held, number)
    if held:
        yield bytes(held)


def _bounded(line: bytearray, number: int) -> bytearray:
    if len(line) > MOST_LINE_BYTES:
        raise BadLine(number, [FieldFault(f"A line should have at most {MOST_LINE_BYTES} bytes", "too_long")])
    return line


def _read_head(line: bytes) -> dict[str, Any]:
    try:
        head: dict[str, Any] = ExportHead().load(read_told(line))
        if too_long := head.pop("too_long"):
            raise ValidationError({key: [FieldFault("More bytes than are kept of it", "too_long")] for key in too_long})
    except InvalidJson as error:
        raise _invalid_json(1, error) from None
    except ValidationError as fault:
        raise BadLine(1, fault.normalized_messages()) from None
    info = {name: head.pop(name) for name in _KEPT & head.keys() if name != "capabilities"}
    return {"confirmation_seconds": None, **head, "info": info}


def _events(lines: Iterator[bytes], announced: int, digest: "hashlib._Hash") -> Iterator[ReceivedEvent]:
    """Yield the events that the first line announces. digest: of that line."""
    number, beside, end = 1, 0, None
    for number, line in enumerate(lines, 2):
        if end is None and line.startswith(_END):
            end = line
            continue
        if end is None and line.startswith(_DECISION):
            digest.update(line + b"\n")
            beside += 1
            continue
        if number > announced + beside + 1 or end is not None:
            words = f"The first line announces {announced} events, and more lines follow"
            raise BadLine(number, [FieldFault(words, "too_long")])
        digest.update(line + b"\n")
        yield _read_event(line, number)
    found = number - 1 - beside - (end is not None)
    if found < announced:
        words = f"The first line announces {announced} events, and the export ends after {found}"
        raise BadLine(found + beside + 2, [FieldFault(words, "too_short")])
    _check_end(end, digest.hexdigest(), announced + beside + 2)


def _check_end(line: bytes | None, digest: str, number: int) -> None:
    """Raise BadLine if the last line is missing or its digest does not match."""
    if line is None:
        raise BadLine(number, [FieldFault("The last line, which has the digest of all others, is missing", "missing")])
    if line + b"\n" != _end_line(digest):
        words = f"The SHA-256 of the lines before is {digest}, not the one of this line: the export was changed"
        raise BadLine(number, [FieldFault(words, "digest_mismatch")])


def _read_event(line: bytes, number: int) -> ReceivedEvent:
    raw = line.strip()
    try:
        value = parse_json(raw)
        if isinstance(value, str):
            raw = value.encode("utf-8", "surrogatepass")
            value = parse_json(raw)
        return read_event(value, raw, _MOST_LOGGED_BYTES)
    except InvalidJson as error:
        raise _invalid_json(number, error) from None
    except ValidationError as fault:
        raise BadLine(number, fault.normalized_messages()) from None


def _invalid_json(number: int, error: InvalidJson) -> BadLine:
    return BadLine(number, [FieldFault(f"Invalid JSON: {error}", "json_invalid")])
