"""The object of a cold conversation: a line of JSON that says what it is, then DUMPs of keys as one Zstandard frame."""

import json
from collections.abc import Sequence
from hashlib import sha256

from zstandard import ZstdCompressor, ZstdDecompressor, ZstdError

from wire import ConversationId

#: of an object and of the keys in it: a release that keeps logs in other keys counts up, and reads both
_FORMAT = 1

_LEVEL = 3

#: bytes in which the head must end: the parts of a log are some hundred
_MOST_HEAD = 256 * 1024


class Unreadable(Exception):
    """An object is not what its name says; the message says why."""


def frozen(
    name: str, conversation_id: ConversationId, incarnation: str, revision: str, parts: Sequence[tuple[str, bytes]]
) -> bytes:
    """An object's content. parts: of the log, each with its DUMP."""
    body = b"".join(dump for _, dump in parts)
    head = {
        "format": _FORMAT,
        "name": name,
        "conversation_id": conversation_id,
        "incarnation": incarnation,
        "revision": revision,
        "parts": [[part, len(dump)] for part, dump in parts],
        "sha256": sha256(body).hexdigest(),
    }
    return json.dumps(head).encode() + b"\n" + ZstdCompressor(level=_LEVEL).compress(body)


def thawed(name: str, content: bytes) -> list[tuple[str, bytes]]:
    """The parts of the log, each with its DUMP. Raises Unreadable."""
    try:
        text, _, frame = content.partition(b"\n")
        head = json.loads(text[:_MOST_HEAD])
        if head["format"] != _FORMAT:
            raise Unreadable(f"it is of format {head['format']}")
        body = ZstdDecompressor().decompress(frame)
        if head["name"] != name or head["sha256"] != sha256(body).hexdigest():
            raise Unreadable("its content is not the one that was kept under its name")
    except (ValueError, KeyError, TypeError, ZstdError) as error:
        raise Unreadable(f"it is damaged: {error}") from None
    parts, at = [], 0
    for part, size in head["parts"]:
        parts.append((part, body[at : at + size]))
        at += size
    return parts
