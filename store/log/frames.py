"""An event as the log keeps it: a Zstandard frame where that is shorter, else the bytes as they came.

A frame begins with the byte 0x28 and names its dictionary, so that frames of an older dictionary stay readable; an
event, which is a JSON object, begins with `{`. Scripts read no event: of a frame they need the number of its event's
bytes, which stands in the frame's head (`scripts/_frame.lua`). `python -m store.log.frames` prints an event of
redis-cli.
"""

import sys
import threading
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from itertools import islice
from typing import IO

from zstandard import ZstdCompressionDict, ZstdCompressor, ZstdDecompressor

from core.pauses import take_turns
from core.program import run

#: the dictionary of new frames, in `store/log/dictionaries/`; those of older ones stay there for ever
DICTIONARY = 1

#: most bytes of the events of one page, and of one batch of ids: a client that takes nothing costs no more
PAGE_BYTES = 4 * 1024 * 1024

_LEVEL = 3

#: first byte of a frame; in its fifth byte: one segment, a dictionary's number of one byte, and no checksum
_FRAME, _FORM_BITS, _FORM = b"\x28", 0x3F, 0x21

#: events of a page that are read before the others get a turn: a page of 4 MiB would take 8 ms
_SOME = 16

#: libzstd's contexts are of one call at a time, and threads share these
_lock = threading.Lock()


def compressed(raw: bytes) -> bytes:
    """An event's bytes as the log keeps them."""
    with _lock:
        frame = _compressor().compress(raw)
    return frame if len(frame) < len(raw) and frame[4] & _FORM_BITS == _FORM else raw


def original(kept: bytes) -> bytes:
    """The bytes of an event as it came. Raises KeyError for a frame of a newer dictionary."""
    return originals((kept,))[0]


def originals(kept: Iterable[bytes]) -> list[bytes]:
    """The bytes of events as they came. Raises as `original`."""
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
        raise KeyError(f"An event was kept with dictionary {number}, which this release does not have")
    return ZstdCompressionDict(file.read_bytes())


def show(kept: IO[bytes], shown: IO[bytes]) -> None:
    """Write an event that redis-cli has printed, as it came, and a newline. Raises KeyError, zstandard.ZstdError."""
    shown.write(original(kept.read()[:-1]) + b"\n")


if __name__ == "__main__":
    run(lambda: show(sys.stdin.buffer, sys.stdout.buffer))
