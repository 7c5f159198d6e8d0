"""Events, instants and strict JSON: the part of the wire that every room uses.

No Flask and no Redis. `schemas/` reads events with it, `store/` writes them.
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

#: Version of the API, and of servers and supervisors.
API_VERSION = "0.1.0"

ConversationId = NewType("ConversationId", str)  #: dashed, lower-case UUID
Seq = NewType("Seq", int)  #: 1, 2, 3 … within one conversation, in the order of appending
Micros = NewType("Micros", int)  #: microseconds since 1970-01-01T00:00:00Z, may be negative

#: Maximum nesting of objects and arrays: far above real events, far below any parser's stack.
MAX_DEPTH = 64

#: Maximum length of a conversation's title, in characters. A client's longer title is refused, an agent's truncated.
MOST_TITLE = 200

#: Maximum length of a tag's key, of its value, and of a filter that names both, in characters.
MOST_TAG_KEY, MOST_TAG = 512, 256

#: Maximum length of the name of a repository, and of a branch, tag or commit, in characters.
MOST_REPOSITORY = 1024

#: Maximum seconds until a pending action expires: a year. Source: docs/approvals.md
MOST_CONFIRMATION_SECONDS = 31_536_000

#: Maximum number of an agent's capabilities, and length of each name in characters. Source: docs/agents.md
MOST_CAPABILITIES, MOST_CAPABILITY = 16, 64

#: Maximum WebSocket frame that clients read by default, in bytes. Source: `max_size` of websockets
FRAME_BYTES = 1024 * 1024

#: Maximum size of an event in bytes, which leaves room in a frame for its envelope; length of its id, kind or source in
#: characters; size in bytes of each name that an observation repeats.
MOST_EVENT_BYTES, MOST_NAME, MOST_CALL_BYTES = FRAME_BYTES - 4096, 128, 4096

#: Maximum JSON of the tags, the stats and other members that an agent server reports, in bytes, and of the agent, which
#: may include its skills. Exports and imports have the same bounds.
MOST_REPORTED_BYTES, MOST_AGENT_BYTES = 256 * 1024, 1024 * 1024

#: Members of a conversation that are kept as its agent server reports them, beside title, tags, stats and agent.
#: Source: ConversationInfo of the agent-server wire
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

#: The execution statuses of a conversation. Source: the agent-server wire
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

#: The statuses of a sandbox. `store/scripts/_sandbox.lua` has the transitions. Source: the app-server wire
SANDBOX_STATUSES = ("STARTING", "RUNNING", "PAUSED", "ERROR", "MISSING")

_EPOCH, _MICROSECOND = datetime(1970, 1, 1), timedelta(microseconds=1)
_EARLIEST, _LATEST = ((day - _EPOCH) // _MICROSECOND for day in (datetime.min, datetime.max))
#: The usual form of an instant, as agents write it.
_AGENTS_INSTANT = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{6}", re.ASCII)
_INSTANT = re.compile(
    r"(?P<day>\d{4}-\d{2}-\d{2})"
    r"(?:[Tt ](?P<clock>\d{2}:\d{2}(?::\d{2}(?:\.\d{1,12})?)?)(?P<zone>[Zz]|[+\- ]\d{2}:?\d{2})?)?"
)


#: Refusal of a policy for an agent that acts without asking.
UNASKED = "Nothing that an ACPAgent does is held: its policy is NeverConfirm"

#: Maximum number of values of a JSON text, or of an element of a batch. Reading a value takes up to 1 µs and 60 bytes,
#: and a body of 8 MiB may have four million. An event has fewer, unless most of its values are under four bytes.
MOST_VALUES = 250_000

#: Separators counted before strings are recognised, a cheap upper bound: more than 500 usual events have.
_FEW_MARKS = 50_000

#: From a place outside of strings to the next separators outside of strings.
_MARKS = re.compile(r'(?:[^"\[\]{},]++|"(?:[^"\\]++|\\.)*+")*+([\[\]{},]++)', re.DOTALL)

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")

#: Terminal escape sequences: CSI, OSC (to the end of the line at most), other strings, two bytes.
_ESCAPE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)?"
    r"|\x1b[PX^_][^\x1b\n]*(?:\x1b\\)?"
    r"|\x1b[ -/]*[0-~]"
)
_LINE_END = re.compile(r"\r\n?|[\x0b\x0c\x85\u2028\u2029]")

#: Control characters except the newline, lone surrogates, and direction overrides.
_UNPRINTABLE = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\ud800-\udfff\u200e\u200f\u202a-\u202e\u2066-\u2069]")


_SPACE = re.compile(r"[ \t\n\r]*")


class ReceivedEvent(NamedTuple):
    """An event as it was received: the four members of every event, and its raw JSON."""

    id: str
    kind: str  # bare class name, the part after the last dot
    source: str
    at: Micros
    fields: dict[str, Any]
    raw: bytes  # the client's UTF-8 JSON, byte for byte


def conversation_id_of(value: Any) -> ConversationId | None:
    """Normalize a conversation id to the dashed form of agent servers; None if it is not one."""
    try:
        return ConversationId(str(UUID(value))) if isinstance(value, str) else None
    except ValueError:
        return None


class InvalidJson(ValueError):
    """The bytes are not an acceptable JSON text. The message says where and why."""


class TooManyValues(InvalidJson):
    """The JSON text has too many values."""

    def __init__(self) -> None:
        super().__init__(f"more than {MOST_VALUES} values")


def micros(text: str) -> Micros:
    """Parse an instant: `…Z`, with an offset, naive (UTC), a date alone, or a space for the `T`.

    The `+` of an offset may arrive as a space from a query string that was not percent-encoded. Digits beyond
    microseconds are dropped. Raises ValueError. Source: docs/wire.md, 3.
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
    """Return the current instant."""
    return Micros((datetime.now(UTC).replace(tzinfo=None) - _EPOCH) // _MICROSECOND)


def event_time(at: Micros) -> str:
    """Format the time of an event: naive UTC with six digits. Source: the agent-server wire.

    An instant outside the years 1 to 9999, which an offset makes possible, becomes the nearest one inside.
    """
    inside = min(max(at, _EARLIEST), _LATEST)
    return (_EPOCH + timedelta(microseconds=inside)).isoformat(timespec="microseconds")


def utc_time(at: Micros) -> str:
    """Format the time of a conversation: UTC with `Z`. Source: the agent-server wire."""
    return event_time(at) + "Z"


def bare_kind(kind: str) -> str:
    """Return the class name of a bare or qualified kind. Source: docs/wire.md, 3."""
    return kind.rpartition(".")[2]


def user_message(content: list[dict[str, Any]], at: Micros, identity: UUID) -> ReceivedEvent:
    """Build the event of a user's message. Source: the agent-server wire."""
    fields: dict[str, Any] = {
        "id": str(identity),
        "timestamp": event_time(at),
        "source": "user",
        "llm_message": {"role": "user", "content": content, "thinking_blocks": []},
        "activated_skills": [],
        "extended_content": [],
        "kind": "MessageEvent",
    }
    return ReceivedEvent(fields["id"], "MessageEvent", "user", at, fields, json.dumps(fields).encode())


def own_event(identity: str, kind: str, at: Micros, source: str = "environment", **members: Any) -> ReceivedEvent:
    """Build an event of this server."""
    head = {"id": identity, "timestamp": event_time(at), "source": source}
    return read_event(json.dumps({**head, **members, "kind": kind}).encode())


def read_event(raw: bytes) -> ReceivedEvent:
    """Parse an event of a log, which was validated when it was appended."""
    fields = parse_json(raw)
    return ReceivedEvent(
        fields["id"], bare_kind(fields["kind"]), fields["source"], micros(fields["timestamp"]), fields, raw
    )


def has_tag(tags: Mapping[str, str], name: str, value: str | None) -> bool:
    """Return whether a conversation has a tag of that name and value; None: any value."""
    return name in tags and value in (None, tags[name])


def acts_unasked(agent: Any) -> bool:
    """Return whether an agent never waits for approval: the published SDK grants every request of an ACP agent.

    agent: the `agent` of a conversation or of a request, or its `agent_settings`.
    """
    return isinstance(agent, dict) and (agent.get("kind") == "ACPAgent" or agent.get("agent_kind") == "acp")


def are_capabilities(value: Any) -> bool:
    """Return whether a value is a valid list of an agent's capabilities: a few short names."""
    return isinstance(value, list) and len(value) <= MOST_CAPABILITIES and all(map(_is_capability, value))


def _is_capability(name: Any) -> bool:
    return isinstance(name, str) and re.fullmatch(rf"[\w.:-]{{1,{MOST_CAPABILITY}}}", name, re.ASCII) is not None


def _refuse_constant(name: str) -> Any:
    raise InvalidJson(f"{name} is not JSON")


def _number(text: str) -> float | str:
    # JSON allows numbers that a float cannot hold. Keep them as text, because `inf` is not JSON.
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

    strict: refuse ambiguous JSON: duplicate names in an object, and numbers that a double cannot hold. Only requests of
    clients are strict, so that agents that send such JSON, and logs that have it, stay readable.
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
    """Return the path to the first text with a lone surrogate in a JSON value; None if there is none.

    Such a text has no UTF-8. A name with a lone surrogate ends the path, with U+FFFD in its place.
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
    """Replace each lone surrogate in the texts of a JSON value by U+FFFD."""
    if isinstance(value, str):
        return _LONE_SURROGATE.sub("\ufffd", value)
    if isinstance(value, dict):
        return {as_unicode(name): as_unicode(inner) for name, inner in value.items()}
    return [as_unicode(inner) for inner in value] if isinstance(value, list) else value


def json_elements(raw: bytes, most: int) -> list[tuple[Any, bytes]] | None:
    """Split a JSON array into pairs of a value and its bytes; None if it is not an array.

    Stops after element number `most` + 1. Raises InvalidJson like `parse_json`.
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
    if text[at : at + 1] > " ":  # agents write JSON with at most one space here
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
    """Check a long text before it is parsed. Return whether it has many values. Raises InvalidJson.

    elements: maximum number of elements of a batch; values are counted per element, and later elements are skipped.
    """
    if text.count(",") + text.count("[") + text.count("{") <= _FEW_MARKS:
        return False
    depth = values = at = 0
    while match := _MARKS.match(text, at):  # the parser reports invalid JSON
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
    # Fewer brackets than levels cannot nest too deep. Nearly every event takes this shortcut.
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
    """Strip escape sequences and control characters from a program's output. Lines end with a newline."""
    return _UNPRINTABLE.sub("", _LINE_END.sub("\n", _ESCAPE.sub("", text).replace("\t", " ")))


def one_line(text: str) -> str:
    """Strip a program's output likewise, and join it to one line with single spaces."""
    return " ".join(plain(text).split())
