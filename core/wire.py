"""What every room knows of the wire: an event, an instant, and JSON taken strictly.

Pure Python, no Flask and no Redis: `schemas/` reads events with it, `store/` writes them with it.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple, NewType, get_args
from uuid import UUID

from core.pauses import take_turns

#: version of the API, and of the servers and supervisors that have it
API_VERSION = "0.1.0"

ConversationId = NewType("ConversationId", str)  #: dashed, lower-case UUID
Seq = NewType("Seq", int)  #: 1, 2, 3 … within one conversation, in the order of appending
Micros = NewType("Micros", int)  #: microseconds since 1970-01-01T00:00:00Z, may be negative

#: deepest nesting of objects and arrays that is accepted: far above real events, far below any parser's stack
MAX_DEPTH = 64

#: most characters of a conversation's title: a client's longer one is refused, an agent's is cut with a mark
MOST_TITLE = 200

#: most characters of a tag's key and of its value, and so of a filter that names both
MOST_TAG_KEY, MOST_TAG = 512, 256

#: most characters of the name of a repository, and of one of its branches, tags or commits
MOST_REPOSITORY = 1024

#: most seconds after which a pending action expires: a year. Source: docs/approvals.md
MOST_CONFIRMATION_SECONDS = 31_536_000

#: what an agent may say that it is capable of: most names, and most characters of each. Source: docs/agents.md
MOST_CAPABILITIES, MOST_CAPABILITY = 16, 64

#: maximum size of a WebSocket frame, in bytes, that clients read by default. Source: `max_size` of websockets
FRAME_BYTES = 1024 * 1024

#: bytes of one event, which leave room in a frame for what stands around it; characters of its id, its kind or its
#: source; bytes of each name that an observation repeats
MOST_EVENT_BYTES, MOST_NAME, MOST_CALL_BYTES = FRAME_BYTES - 4096, 128, 4096

#: most bytes of JSON of the tags, the stats and other members that an agent server reports; the agent, which may have
#: its skills in it, may have more. As much passes an export and its import
MOST_REPORTED_BYTES, MOST_AGENT_BYTES = 256 * 1024, 1024 * 1024

#: members of a conversation that its agent server reports beside title, tags, stats and agent, and that are kept as
#: reported. Source: ConversationInfo of the agent-server wire
REPORTED_MEMBERS = (
    "workspace",
    "persistence_dir",
    "max_iterations",
    "stuck_detection",
    "activated_knowledge_skills",
    "invoked_skills",
    "blocked_actions",
    "blocked_messages",
    "last_user_message_id",
    "leaf_event_id",
    "hook_config",
    "current_model_id",
    "available_models",
    "supports_runtime_model_switch",
    "launched_agent_profile",
    "client_tools",
    "tool_module_qualnames",
    "runtime_info",
    "capabilities",
)

#: Where the agent of a conversation runs: in a sandbox, in a terminal outside of sandboxes, or nowhere.
ConversationKind = Literal["sandbox", "external", "detached"]
CONVERSATION_KINDS: tuple[ConversationKind, ...] = get_args(ConversationKind)

#: every execution status of a conversation. Source: the agent-server wire
EXECUTION_STATUSES = (
    "idle",
    "running",
    "paused",
    "waiting_for_confirmation",
    "finished",
    "error",
    "stuck",
    "deleting",
)

#: every status of a sandbox; `store/scripts/_sandbox.lua` has the moves between them. Source: the app-server wire
SANDBOX_STATUSES = ("STARTING", "RUNNING", "PAUSED", "ERROR", "MISSING")

_EPOCH, _MICROSECOND = datetime(1970, 1, 1), timedelta(microseconds=1)
_EARLIEST, _LATEST = ((day - _EPOCH) // _MICROSECOND for day in (datetime.min, datetime.max))
#: an instant as agents write it, which is nearly every one
_AGENTS_INSTANT = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{6}", re.ASCII)
_INSTANT = re.compile(
    r"(?P<day>\d{4}-\d{2}-\d{2})"
    r"(?:[Tt ](?P<clock>\d{2}:\d{2}(?::\d{2}(?:\.\d{1,12})?)?)(?P<zone>[Zz]|[+\- ]\d{2}:?\d{2})?)?"
)


#: why a policy is refused that would hold an agent that acts unasked
UNASKED = "Nothing that an ACPAgent does is held: its policy is NeverConfirm"

#: most values of one JSON text, or of one element of a batch. Each takes up to 1 µs and 60 bytes to read, and a body of
#: 8 MiB may have four million; an event has fewer, unless most of its values have less than four bytes
MOST_VALUES = 250_000

#: commas and brackets of a text that is read before they are told from those within its strings: more than 500 usual
#: events have
_FEW_MARKS = 50_000

#: from any place outside of a string to the next commas and brackets that are outside too
_MARKS = re.compile(r'(?:[^"\[\]{},]++|"(?:[^"\\]++|\\.)*+")*+([\[\]{},]++)', re.DOTALL)

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")

#: what a terminal obeys and does not show: CSI, OSC (to the end of its line at most), other strings, two bytes
_ESCAPE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)?"
    r"|\x1b[PX^_][^\x1b\n]*(?:\x1b\\)?"
    r"|\x1b[ -/]*[0-~]"
)
_LINE_END = re.compile(r"\r\n?|[\x0b\x0c\x85\u2028\u2029]")

#: control characters but the newline, halves of surrogate pairs, and what turns the direction of text
_UNPRINTABLE = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\ud800-\udfff\u200e\u200f\u202a-\u202e\u2066-\u2069]")


_SPACE = re.compile(r"[ \t\n\r]*")


class Event(NamedTuple):
    """One event as it came: the four members that every event has, and the whole of it."""

    id: str
    kind: str  # bare class name: what stands after the last dot
    source: str
    at: Micros
    fields: dict[str, Any]
    raw: bytes  # UTF-8 JSON, byte for byte as the client sent it


def conversation_id_of(value: Any) -> ConversationId | None:
    """The id of a conversation as an agent server writes it, dashed; None for what is none."""
    try:
        return ConversationId(str(UUID(value))) if isinstance(value, str) else None
    except ValueError:
        return None


class InvalidJson(ValueError):
    """The bytes are not one JSON text that we accept; the message says where and why."""


class TooManyValues(InvalidJson):
    """The text has more values than are read."""

    def __init__(self) -> None:
        super().__init__(f"more than {MOST_VALUES} values")


def micros(text: str) -> Micros:
    """Read an instant: `…Z`, with an offset, naive (UTC), a date alone, a space for the `T`.

    An offset's `+` may have arrived as a space (a query string that was not percent-encoded).
    Digits beyond microseconds are cut. Raises ValueError. Source: docs/wire.md, 3.
    """
    if _AGENTS_INSTANT.fullmatch(text):
        return Micros((datetime.fromisoformat(text) - _EPOCH) // _MICROSECOND)
    match = _INSTANT.fullmatch(text)
    if match is None or not text.isascii():
        raise ValueError("not an ISO 8601 date-time")
    clock = match["clock"] or "00:00"
    whole, _, fraction = clock.partition(".")
    local = datetime.fromisoformat(f"{match['day']}T{whole}") - _EPOCH
    at = local // _MICROSECOND + int(fraction[:6].ljust(6, "0"))
    zone = match["zone"]
    if zone and zone not in "Zz":
        hours, minutes = int(zone[1:3]), int(zone[-2:])
        if hours > 23 or minutes > 59:
            raise ValueError("offset out of range")
        offset = (hours * 60 + minutes) * 60_000_000
        at += offset if zone[0] == "-" else -offset
    return Micros(at)


def now() -> Micros:
    """The present instant."""
    return Micros((datetime.now(UTC).replace(tzinfo=None) - _EPOCH) // _MICROSECOND)


def event_time(at: Micros) -> str:
    """How events bear their time: naive UTC with six digits. Source: the agent-server wire.

    An offset can put an instant outside the years 1 to 9999; it is written as the nearest one inside.
    """
    inside = min(max(at, _EARLIEST), _LATEST)
    return (_EPOCH + timedelta(microseconds=inside)).isoformat(timespec="microseconds")


def utc_time(at: Micros) -> str:
    """How conversations bear theirs: UTC with `Z`. Source: the agent-server wire."""
    return event_time(at) + "Z"


def bare_kind(kind: str) -> str:
    """The class name of a bare or qualified kind. Source: docs/wire.md, 3."""
    return kind.rpartition(".")[2]


def user_message(content: list[dict[str, Any]], at: Micros, identity: UUID) -> Event:
    """A user's message as an event. Source: the agent-server wire."""
    fields: dict[str, Any] = {
        "id": str(identity),
        "timestamp": event_time(at),
        "source": "user",
        "llm_message": {"role": "user", "content": content, "thinking_blocks": []},
        "activated_skills": [],
        "extended_content": [],
        "kind": "MessageEvent",
    }
    return Event(fields["id"], "MessageEvent", "user", at, fields, json.dumps(fields).encode())


def own_event(identity: str, kind: str, at: Micros, source: str = "environment", **members: Any) -> Event:
    """An event that this server itself makes, as the wire has it."""
    head = {"id": identity, "timestamp": event_time(at), "source": source}
    return read_event(json.dumps({**head, **members, "kind": kind}).encode())


def read_event(raw: bytes) -> Event:
    """An event of a log, which was checked when it was appended."""
    fields = parse_json(raw)
    return Event(fields["id"], bare_kind(fields["kind"]), fields["source"], micros(fields["timestamp"]), fields, raw)


def has_tag(tags: Mapping[str, str], name: str, value: str | None) -> bool:
    """Whether a conversation has a tag of that name and value; None: of any value."""
    return name in tags and value in (None, tags[name])


def acts_unasked(agent: Any) -> bool:
    """Whether nothing that an agent does is ever held: the published SDK grants every request of an ACP agent.

    agent: an `agent` of a conversation or of a request, or the `agent_settings` that such an agent is made from.
    """
    return isinstance(agent, dict) and (agent.get("kind") == "ACPAgent" or agent.get("agent_kind") == "acp")


def are_capabilities(value: Any) -> bool:
    """Whether a value is what an agent may say of its capabilities: a list of a few short names."""
    return isinstance(value, list) and len(value) <= MOST_CAPABILITIES and all(map(_is_capability, value))


def _is_capability(name: Any) -> bool:
    return isinstance(name, str) and re.fullmatch(rf"[\w.:-]{{1,{MOST_CAPABILITY}}}", name, re.ASCII) is not None


def _refuse_constant(name: str) -> Any:
    raise InvalidJson(f"{name} is not JSON")


def _number(text: str) -> float | str:
    # A number too large for a float is JSON, infinity is not: what cannot be written again stays text.
    number = float(text)
    return text if math.isinf(number) else number


def _finite_number(text: str) -> float:
    if math.isinf(number := float(text)):
        raise InvalidJson(f"the number {text[:32]} is larger than a double can hold")
    return number


def _unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) == len(pairs):
        return members
    twice = next(name for name, number in Counter(name for name, _ in pairs).items() if number > 1)
    raise InvalidJson(f"the name {json.dumps(twice[:64])} occurs twice in one object")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_number)
_STRICT_DECODER = json.JSONDecoder(
    parse_constant=_refuse_constant, parse_float=_finite_number, object_pairs_hook=_unique_members
)


def parse_json(raw: bytes, *, strict: bool = False) -> Any:
    """Parse one JSON text. Raises InvalidJson, also for NaN, bad UTF-8, nesting over MAX_DEPTH and too many values.

    strict: refuse what two readers may read differently: names that occur twice in an object, and numbers that a double
    cannot hold. For requests of clients alone: an agent that sends them, or a log that has them, stays readable.
    """
    text = _decode(raw)
    is_checked = _check_large(text)
    value, end = _value(text, _skip_space(text, 0), _STRICT_DECODER if strict else _DECODER)
    if _skip_space(text, end) != len(text):
        raise InvalidJson(f"unexpected data after the JSON text, at character {end}")
    if not is_checked:
        _check_depth(text, value)
    return value


def lone_surrogate(value: Any) -> tuple[str | int, ...] | None:
    """Where in a JSON value a text has a lone surrogate: the names and indexes on the way to it; None: nowhere.

    Such a text is no Unicode, and has no UTF-8. A name that has one itself is the last step, with U+FFFD in its place.
    """
    if isinstance(value, str):
        return () if _LONE_SURROGATE.search(value) else None
    if isinstance(value, dict):
        if (torn := next(filter(_LONE_SURROGATE.search, value), None)) is not None:
            return (as_unicode(torn),)
        steps: Iterable[tuple[str | int, Any]] = value.items()
    else:
        steps = enumerate(value) if isinstance(value, list) else ()
    for step, inner in steps:
        if (place := lone_surrogate(inner)) is not None:
            return (step, *place)
    return None


def as_unicode(value: Any) -> Any:
    """A JSON value with U+FFFD in place of each lone surrogate in its texts."""
    if isinstance(value, str):
        return _LONE_SURROGATE.sub("\ufffd", value)
    if isinstance(value, dict):
        return {as_unicode(name): as_unicode(inner) for name, inner in value.items()}
    return [as_unicode(inner) for inner in value] if isinstance(value, list) else value


def json_elements(raw: bytes, most: int) -> list[tuple[Any, bytes]] | None:
    """Split a JSON array into (value, its own bytes) per element; None if it is not an array.

    Stops reading after element number `most` + 1. Raises InvalidJson as `parse_json`.
    """
    text = _decode(raw)
    at = _skip_space(text, 0)
    if text[at : at + 1] != "[":
        parse_json(raw)
        return None
    is_checked = _check_large(text, most + 1)
    elements: list[tuple[Any, bytes]] = []
    at = _skip_space(text, at + 1)
    closed = text[at : at + 1] == "]"
    while not closed and len(elements) <= most:
        take_turns()
        value, end = _value(text, at)
        own = text[at:end]
        if not is_checked:
            _check_depth(own, value, room=1)
        elements.append((value, own.encode()))
        at = _skip_space(text, end)
        closed = text[at : at + 1] == "]"
        if not closed:
            if text[at : at + 1] != ",":
                raise InvalidJson(f"expected ',' or ']' at character {at}")
            at = _skip_space(text, at + 1)
    if closed and _skip_space(text, at + 1) != len(text):
        raise InvalidJson(f"unexpected data after the JSON text, at character {at + 1}")
    return elements


def _decode(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidJson(f"not UTF-8 at byte {error.start}") from None


def _skip_space(text: str, at: int) -> int:
    if text[at : at + 1] > " ":  # nearly always: agents write JSON without spaces, or with one
        return at
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _value(text: str, at: int, decoder: json.JSONDecoder = _DECODER) -> tuple[Any, int]:
    try:
        return decoder.raw_decode(text, at)
    except json.JSONDecodeError as error:
        raise InvalidJson(f"{error.msg} at character {error.pos}") from None
    except RecursionError:
        raise InvalidJson(f"nested deeper than {MAX_DEPTH} levels") from None
    except InvalidJson:
        raise
    except ValueError as error:  # an integer of thousands of digits
        raise InvalidJson(str(error)) from None


def _check_large(text: str, elements: int | None = None) -> bool:
    """Check a text of many values before it is read; whether it is one. Raises InvalidJson.

    elements: of a batch, whose values are counted for each element; those after this number are not looked at.
    """
    if text.count(",") + text.count("[") + text.count("{") <= _FEW_MARKS:
        return False
    depth = values = at = 0
    while match := _MARKS.match(text, at):  # where the text is no JSON the parser says so
        take_turns()
        at = match.end()
        for mark in match[1]:
            if mark in "]}":
                depth -= 1
                continue
            depth += mark != ","
            values += 1
            if depth > MAX_DEPTH:
                raise InvalidJson(f"nested deeper than {MAX_DEPTH} levels")
            if elements is not None and depth == 1:
                values, elements = 0, elements - 1
                if elements < 0:
                    return True
            if values > MOST_VALUES:
                raise TooManyValues
    return True


def _check_depth(text: str, value: Any, room: int = 0) -> None:
    # Fewer brackets than levels cannot nest too deep; that spares the walk for nearly every event.
    limit = MAX_DEPTH - room
    if text.count("[") + text.count("{") <= limit:
        return
    level = [value]
    for _ in range(limit):
        level = [child for node in level for child in _children(node)]
        if not level:
            return
    raise InvalidJson(f"nested deeper than {MAX_DEPTH} levels")


def _children(node: Any) -> list[Any]:
    inner = node.values() if isinstance(node, dict) else node
    return [child for child in inner if isinstance(child, dict | list)] if isinstance(node, dict | list) else []


def plain(text: str) -> str:
    """Text that a program printed, without escape sequences and control characters; lines end with a newline."""
    return _UNPRINTABLE.sub("", _LINE_END.sub("\n", _ESCAPE.sub("", text).replace("\t", " ")))


def one_line(text: str) -> str:
    """The same as one line, with single spaces."""
    return " ".join(plain(text).split())
