"""The `body` filter: case-folded text of messages, fetched once, cached, and scanned with `bytes.find`.

A record in `conv:{ID}:text:N` is

    0xF7  seq (11 digits)  time (21 digits)  source (3 digits a byte)  0xF6  text, UTF-8

with octal digits written as the bytes 0xF8 … 0xFF. None of these bytes occurs in UTF-8, so a search matches only text,
and never across two records. Only the last chunk grows, at its end: cached bytes stay valid, and the worker fetches
only the tail next time. A cold conversation has its chunks as Zstandard frames. `passes` applies the filters of count
and search to one event at a time.
"""

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, NamedTuple

from zstandard import ZstdCompressor, ZstdDecompressor

from core.pauses import take_turns
from core.wire import ConversationId, Micros, ReceivedEvent, Seq, bare_kind, micros
from store.errors import ConversationNotFound
from store.keys import ConversationKeys
from store.link.commands import Redis

_RECORD = b"\xf7"
_TEXT = b"\xf6"
_SEQ_DIGITS, _TIME_DIGITS = 11, 21
_PIECE = 256 * 1024  #: bytes that are scanned before a yield; 16 MiB would take 10 to 200 ms
_SLICE = 64 * 1024  #: characters of an event's text that are folded before a yield
_LEVEL = 9  #: Zstandard level: a chunk is compressed once, and read often
_TIME_OFFSET = 1 << 62  # keeps times before 1970 positive
#: Members of an action or an observation without text: names and images.
_NO_TEXT = frozenset({"kind", "type", "image_urls"})
_TO_BYTES = bytes.maketrans(b"01234567", bytes(range(0xF8, 0x100)))
_TO_DIGITS = bytes.maketrans(bytes(range(0xF8, 0x100)), b"01234567")


#: Overhead of a cached chunk, and of each of its pieces, in bytes.
_CHUNK_COST, _PIECE_COST = 512, 48


class Position(NamedTuple):
    """The position of an event in the order of pages: time, then seq. The time is µs as Redis compares scores."""

    at: float
    seq: Seq


def fold(text: str) -> bytes:
    """Return text as it is stored and searched: `str.casefold`, UTF-8. Lone surrogates are kept."""
    return text.casefold().encode("utf-8", "surrogatepass")


def record(event: ReceivedEvent) -> bytes:
    """Return an event's record without its seq; empty if the event is not a message."""
    if event.kind != "MessageEvent":
        return b""
    time = f"{event.at + _TIME_OFFSET:0{_TIME_DIGITS}o}".encode().translate(_TO_BYTES)
    return time + _source(event.source) + _TEXT + fold(body_of(event.fields))


def _source(source: str) -> bytes:
    return "".join(f"{byte:03o}" for byte in source.encode()).encode().translate(_TO_BYTES)


def body_of(fields: dict[str, object]) -> str:
    """Return the searchable text of a MessageEvent. Source: the agent-server wire."""
    message = fields.get("llm_message")
    message = message if isinstance(message, dict) else {}
    parts = [*texts(message.get("content")), *texts(fields.get("extended_content"))]
    reasoning = message.get("reasoning_content")
    if isinstance(reasoning, str) and reasoning:
        parts.append(reasoning)
    return " ".join(parts)


def texts(content: object) -> list[str]:
    """Return the text parts of a message's content, which is a list of parts or one text."""
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list):
        return []
    return [part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str)]


def texts_of(fields: dict[str, Any]) -> list[str]:
    """Return the searchable texts of an event; empty for a kind without text. Source: docs/wire.md, 3."""
    match bare_kind(fields["kind"]):
        case "MessageEvent":
            return [body_of(fields)]
        case "ActionEvent":
            call = fields.get("tool_call") if fields.get("action") is None else None
            said = [fields.get("tool_name"), fields.get("summary"), fields.get("reasoning_content")]
            return [*texts(fields.get("thought")), *_strings([*said, fields.get("action"), call])]
        case "ObservationEvent":
            return _strings(fields.get("observation"))
        case "UserRejectObservation":
            return _strings([fields.get("rejection_reason"), fields.get("reason")])
        case "AgentErrorEvent" | "ConversationErrorEvent":
            return _strings([fields.get("code"), fields.get("error"), fields.get("detail")])
    return []


def _strings(value: object) -> list[str]:
    """Return the strings in a JSON value at any depth, in order, without the names of members."""
    found, left = list[str](), [value]
    while left:
        one = left.pop()
        if isinstance(one, str):
            found.append(one)
        elif isinstance(one, list):
            left += reversed(one)
        elif isinstance(one, dict):
            left += reversed([member for name, member in one.items() if name not in _NO_TEXT])
    return found


def has_text(fields: dict[str, object], needle: bytes) -> bool:
    """Return whether a text of an event contains the needle, which is `fold`ed text. Yields to other greenlets."""
    return any(_contains(text, needle) for text in texts_of(fields))


def _contains(text: str, needle: bytes) -> bool:
    held = b""
    for start in range(0, len(text), _SLICE):
        take_turns()
        held += fold(text[start : start + _SLICE])
        if needle in held:
            return True
        held = held[max(0, len(held) - len(needle) + 1) :]
    return False


def matches(chunk: bytes, needle: bytes, source: str | None = None) -> Iterator[Position]:
    """Yield the positions of a chunk's messages whose text contains the needle, in log order.

    The needle is `fold`ed text, and not empty.
    """
    wanted = None if source is None else _source(source)
    for start, name in _records(chunk, needle):
        if wanted is None or chunk[name : chunk.index(_TEXT, name)] == wanted:
            digits = chunk[start:name].translate(_TO_DIGITS)
            at = int(digits[_SEQ_DIGITS:], 8) - _TIME_OFFSET
            yield Position(float(at), Seq(int(digits[:_SEQ_DIGITS], 8)))


def times(chunk: bytes, needle: bytes) -> Iterator[tuple[float, str]]:
    """Yield the time, as in a Position, and the source of each message of a chunk whose text contains the needle."""
    for start, name in _records(chunk, needle):
        digits = chunk[start + _SEQ_DIGITS : chunk.index(_TEXT, name)].translate(_TO_DIGITS)
        source = bytes(int(digits[i : i + 3], 8) for i in range(_TIME_DIGITS, len(digits), 3))
        yield float(int(digits[:_TIME_DIGITS], 8) - _TIME_OFFSET), source.decode()


def _records(chunk: bytes, needle: bytes) -> Iterator[tuple[int, int]]:
    """Yield the start of the record of each message that contains the needle, and the start of its source."""
    for first, end in _pieces(chunk):
        hit = chunk.find(needle, first, end)
        while hit >= 0:
            start = chunk.rfind(_RECORD, first, hit) + 1
            yield start, start + _SEQ_DIGITS + _TIME_DIGITS
            following = chunk.find(_RECORD, hit, end)
            hit = chunk.find(needle, following, end) if following >= 0 else -1


def count(chunk: bytes, needle: bytes) -> int:
    """Return the number of messages of a chunk that contain the needle, without reading their records."""
    found = 0
    for first, end in _pieces(chunk):
        hit = chunk.find(needle, first, end)
        while hit >= 0:
            found += 1
            following = chunk.find(_RECORD, hit, end)
            hit = chunk.find(needle, following, end) if following >= 0 else -1
    return found


def _pieces(chunk: bytes) -> Iterator[tuple[int, int]]:
    """Yield start and end of pieces of whole records. Yields to other greenlets before each."""
    first = 0
    while first < len(chunk):
        take_turns()
        end = chunk.find(_RECORD, first + _PIECE)
        end = end if end >= 0 else len(chunk)
        yield first, end
        first = end


def as_frame(chunk: bytes) -> bytes:
    """Return a chunk as a cold conversation stores it; empty if there is none."""
    return ZstdCompressor(level=_LEVEL).compress(chunk) if chunk else b""


def _whole(frame: bytes) -> bytes:
    return ZstdDecompressor().decompress(frame)


#: The text of a chunk, in pieces of whole records with about _PIECE bytes each.
Pieces = tuple[bytes, ...]


def _grown(pieces: Pieces, tail: bytes) -> Pieces:
    """Append a tail to pieces. Copies only the last piece.

    A freed piece thus has the size of the next allocation. Growing copies of the whole text would fragment the heap.
    """
    if pieces and len(pieces[-1]) < _PIECE:
        pieces, tail = pieces[:-1], pieces[-1] + tail
    return *pieces, *(tail[first:end] for first, end in _pieces(tail))


class _Chunk(NamedTuple):
    """A cached chunk. incarnation: of its conversation."""

    incarnation: bytes
    pieces: Pieces

    @property
    def length(self) -> int:
        return sum(map(len, self.pieces))

    @property
    def cost(self) -> int:
        return _CHUNK_COST + self.length + _PIECE_COST * len(self.pieces)


class MessageText:
    """This process' cache of conversations' text. The least recently used chunk is dropped first."""

    def __init__(self, redis: Redis, cache_bytes: int) -> None:
        """cache_bytes: maximum size of all chunks."""
        self._redis = redis
        self._cache_bytes = cache_bytes
        self._cached: OrderedDict[tuple[ConversationId, int], _Chunk] = OrderedDict()
        self._size = 0

    def pieces(self, conversation_id: ConversationId) -> Iterator[bytes]:
        """Yield the current text of a conversation in pieces of whole records. Raises ConversationNotFound."""
        number = last = 0
        while number <= last:
            pieces, last = self.chunk(conversation_id, number)
            yield from pieces
            number += 1

    def chunk(self, conversation_id: ConversationId, number: int) -> tuple[Pieces, int]:
        """Return a chunk, empty beyond the last, and the number of the last chunk. Raises ConversationNotFound."""
        kept = self._cached.get((conversation_id, number)) or _Chunk(b"", ())
        incarnation, last, tail = self._read(conversation_id, number, kept.length)
        if incarnation != kept.incarnation:  # nothing cached, or another conversation has the id now
            if kept.pieces:
                incarnation, last, tail = self._read(conversation_id, number, 0)
            kept = _Chunk(incarnation, ())
        chunk = _Chunk(incarnation, _grown(kept.pieces, tail) if tail else kept.pieces)
        self._keep((conversation_id, number), chunk)
        return chunk.pieces, last

    def _read(self, conversation_id: ConversationId, number: int, offset: int) -> tuple[bytes, int, bytes]:
        """Return the incarnation, the number of the last chunk, and the bytes of a chunk from an offset on."""
        keys = ConversationKeys(conversation_id)
        with self._redis.pipeline(transaction=True) as pipe:
            pipe.hmget(keys.root, "incarnation", "text_chunk", "cold")
            pipe.getrange(keys.text(number), offset, -1)
            (incarnation, last, cold), tail = pipe.execute()
        if incarnation is None:
            raise ConversationNotFound
        if cold is not None and offset:  # these are bytes of the frame, which is needed completely
            incarnation, last, chunk = self._read(conversation_id, number, 0)
            return incarnation, last, chunk[offset:]
        return incarnation, int(last), tail if cold is None or not tail else _whole(tail)

    def _keep(self, key: tuple[ConversationId, int], chunk: _Chunk) -> None:
        if dropped := self._cached.pop(key, None):
            self._size -= dropped.cost
        self._cached[key] = chunk
        self._size += chunk.cost
        while self._size > self._cache_bytes:
            self._size -= self._cached.popitem(last=False)[1].cost


def passes(
    fields: dict[str, Any],
    *,
    kind: str | None = None,
    source: str | None = None,
    body: str | None = None,
    text: str | None = None,
    since: Micros | None = None,
    until: Micros | None = None,
) -> bool:
    """Return whether an event, given as its members, passes every filter. Source: docs/wire.md, 3."""
    if kind is not None and bare_kind(fields["kind"]) != kind:
        return False
    if source is not None and fields["source"] != source:
        return False
    if body is not None and not (bare_kind(fields["kind"]) == "MessageEvent" and fold(body) in fold(body_of(fields))):
        return False
    if text and not has_text(fields, fold(text)):
        return False
    if since is None and until is None:
        return True
    at = micros(fields["timestamp"])
    return (since is None or at >= since) and (until is None or at < until)
