"""The stored form of a log: each event as a frame, and a cold conversation as an object.

An event is stored as a Zstandard frame if that is shorter, otherwise as its original bytes. A frame begins with the
byte 0x28 and names its dictionary, so that frames of an older dictionary stay readable. An event is a JSON object and
begins with `{`. Scripts do not read events. They need the size of an event, which is in the frame's header
(`scripts/_frame.lua`). `python -m store.log.frames` prints an event of redis-cli.

A cold conversation is stored in pieces. A piece is a Zstandard frame with ranges of keys as words. Any release of Redis
or Valkey can load it, and the server serves others between two pieces, however large a key is. The log's object begins
with a line of JSON, which identifies it and has the digest of each piece. Then follow the piece itself, if there is
only one, and a digest of everything before. Several pieces have objects of their own.
"""

import json
import struct
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files
from itertools import islice
from typing import IO, NamedTuple

from zstandard import ZstdCompressionDict, ZstdCompressor, ZstdDecompressor, ZstdError, frame_content_size

from core.pauses import take_turns
from core.program import run
from core.wire import ConversationId

#: Dictionary of new frames, in `store/log/dictionaries/`. Older dictionaries stay there for ever.
DICTIONARY = 1

#: Maximum size of the events of a page, and of a batch of ids, in bytes, so that a stalled client costs no more.
PAGE_BYTES = 4 * 1024 * 1024

_LEVEL = 3

#: First byte of a frame; in its fifth byte: one segment, a dictionary's number of one byte, and no checksum.
_FRAME, _FORM_BITS, _FORM = b"\x28", 0x3F, 0x21

#: Number of events of a page that are read before a yield. A page of 4 MiB would take 8 ms.
_SOME = 16

#: libzstd's contexts allow one call at a time, and threads share them.
_lock = threading.Lock()


#: Format of an object and of its keys. Older formats, which no release wrote, are refused.
_FORMAT = 3

_DIGEST_BYTES = sha256().digest_size

#: Limits after which a piece ends. With more words, Redis would block longer while the piece is restored.
_MOST_BYTES, _MOST_WORDS = 2 * 1024 * 1024, 20_000

#: Maximum size of a piece before compression, in bytes. Its last range may far exceed _MOST_BYTES.
_MOST_PIECE = 256 * 1024 * 1024


def compressed(raw: bytes) -> bytes:
    """Return an event's bytes as the log stores them."""
    with _lock:
        frame = _compressor().compress(raw)
    return frame if len(frame) < len(raw) and frame[4] & _FORM_BITS == _FORM else raw


def original(kept: bytes) -> bytes:
    """Return the original bytes of an event. Raises KeyError for a frame of a newer dictionary."""
    return originals((kept,))[0]


def originals(kept: Iterable[bytes]) -> list[bytes]:
    """Return the original bytes of events. Raises as `original`."""
    found: list[bytes] = []
    kept = iter(kept)
    while some := list(islice(kept, _SOME)):
        take_turns()
        with _lock:
            found += [_decompressor(one[5]).decompress(one) if one[:1] == _FRAME else one for one in some]
    return found


@cache
def _compressor() -> ZstdCompressor:
    dictionary = _dictionary(DICTIONARY)
    dictionary.precompute_compress(level=_LEVEL)
    return ZstdCompressor(level=_LEVEL, dict_data=dictionary)


@cache
def _decompressor(number: int) -> ZstdDecompressor:
    return ZstdDecompressor(dict_data=_dictionary(number))


@cache
def _dictionary(number: int) -> ZstdCompressionDict:
    file = files("store.log") / "dictionaries" / f"{number}.zdict"
    if not file.is_file():
        raise KeyError(f"An event is stored with dictionary {number}, which this release does not have")
    return ZstdCompressionDict(file.read_bytes())


class FrameUnreadable(Exception):
    """An object does not match its name. The message says why."""


class Frozen(NamedTuple):
    """Identity of the log in an object."""

    name: str  #: name of the object
    conversation_id: ConversationId
    incarnation: str
    revision: str


#: Part of a key's name, ":log" …, and words of the key: elements, fields and values, scores and members, or bytes.
Range = tuple[str, Sequence[bytes]]


def piece_name(name: str, number: int) -> str:
    """Return the name of a piece. name: of the log's object."""
    return f"{name}-p{number}"


def head_name(name: str) -> tuple[str, int | None]:
    """Return the name of a log's object, and the number of its piece: None for the object itself."""
    head, _, number = name.rpartition("-p")
    return (head, int(number)) if head and number.isdecimal() else (name, None)


def head(of: Frozen, digests: Sequence[str], piece: bytes = b"") -> bytes:
    """Return the content of a log's object.

    digests: of its pieces, in order. piece: the only piece of a small log, which then has no object of its own.
    """
    content = _line(of, digests) + (b"\n" + piece if piece else b"")
    return content + sha256(content).digest()


def digest_of(content: bytes) -> str:
    """Return the digest that the store remembers of an object.

    The digest in the object detects damage, but can be forged.
    """
    return sha256(content).hexdigest()


def read_head(of: Frozen, content: bytes, kept: str | None = None) -> tuple[list[str], bytes]:
    """Return the digests of a log's pieces, and the piece in the object itself, if any.

    kept: digest of the object, as the store remembers it; None: unknown. Raises FrameUnreadable if the object differs.
    """
    rest, digest = content[:-_DIGEST_BYTES], content[-_DIGEST_BYTES:]
    if sha256(rest).digest() != digest:
        raise FrameUnreadable("it is damaged: its digest is not that of its content")
    if kept not in (None, digest_of(content)):
        raise FrameUnreadable("it is not the one that was kept: its digest is not the one that the store remembers")
    line, _, piece = rest.partition(b"\n")
    try:
        fields = json.loads(line)
        if fields["format"] != _FORMAT:
            raise FrameUnreadable(f"it is of format {fields['format']}, and this version reads format {_FORMAT}")
        digests: list[str] = fields["pieces"]
        if not isinstance(digests, list):
            raise TypeError("it names no pieces")
        expected = _line(of, digests)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise FrameUnreadable(f"it is damaged: {error}") from None
    if line != expected:
        raise FrameUnreadable("its content is not the one that was kept under its name")
    return digests, piece


def pieces(ranges: Iterable[Range]) -> Iterator[tuple[bytes, str]]:
    """Yield the content of each piece with its digest. ranges: in the order of their restoration."""
    held, size, number = list[Range](), 0, 0
    for part, words in ranges:
        held.append((part, words))
        size += sum(map(len, words))
        number += len(words)
        if size >= _MOST_BYTES or number >= _MOST_WORDS:
            yield _piece(held)
            held, size, number = [], 0, 0
    if held:
        yield _piece(held)


def ranges_in(content: bytes, digest: str, may: set[str] | None) -> list[Range]:
    """Return the ranges of a piece. may: allowed parts of the log; None: any.

    Raises FrameUnreadable if the digest differs.
    """
    if sha256(content).hexdigest() != digest:
        raise FrameUnreadable("it is damaged: its digest differs from the one in its log's object")
    try:
        if frame_content_size(content) > _MOST_PIECE:
            raise FrameUnreadable(f"it is larger than a piece, which has {_MOST_PIECE} bytes at most")
        line, _, rest = ZstdDecompressor().decompress(content).partition(b"\n")
        counts = [(str(part), abs(number)) for part, number in json.loads(line)]
        total = sum(number for _, number in counts)
        words = list(_split(rest[4 * total :], struct.unpack_from(f">{total}I", rest)))
    except (ValueError, TypeError, struct.error, ZstdError, RecursionError) as error:
        raise FrameUnreadable(f"it is damaged: {error}") from None
    if may is not None and not {part for part, _ in counts} <= may:
        raise FrameUnreadable("it has other parts than the log")
    found, at = list[Range](), 0
    for part, number in counts:
        found.append((part, words[at : at + number]))
        at += number
    return found


def _line(of: Frozen, digests: Sequence[str]) -> bytes:
    """Return the required first line of a log's object."""
    fields: dict[str, object] = {"format": _FORMAT, **of._asdict(), "pieces": digests}
    return json.dumps(fields).encode()


def _piece(ranges: Sequence[Range]) -> tuple[bytes, str]:
    words = [word for _, some in ranges for word in some]
    counts = json.dumps([[part, len(some)] for part, some in ranges]).encode()
    lengths = struct.pack(f">{len(words)}I", *map(len, words))
    content = ZstdCompressor(level=_LEVEL).compress(b"".join((counts, b"\n", lengths, *words)))
    return content, sha256(content).hexdigest()


def _split(joined: bytes, lengths: Iterable[int]) -> Iterator[bytes]:
    at = 0
    for length in lengths:
        yield joined[at : at + length]
        at += length


def show(kept: IO[bytes], shown: IO[bytes]) -> None:
    """Write the original form of an event that redis-cli has printed, and a newline.

    Raises KeyError, zstandard.ZstdError.
    """
    shown.write(original(kept.read()[:-1]) + b"\n")


if __name__ == "__main__":
    run(lambda: show(sys.stdin.buffer, sys.stdout.buffer))
