"""File names as text that every JSON reader accepts.

A file name is bytes, and may not be UTF-8. Each invalid byte becomes one private-use character, so that a list of names
is valid Unicode and each name still opens its file. The escapes are those of OPTU-8: U+EF80 to U+EFFF for the bytes
0x80 to 0xFF. A character of that range in a real name is escaped byte by byte, so that no two names have one text.
"""

import os
import re

_FIRST, _LAST = 0xEF80, 0xEFFF
_ESCAPES = re.compile(f"[{chr(_FIRST)}-{chr(_LAST)}]")
_SURROGATES = re.compile("[\udc80-\udcff]")


def as_text(name: bytes | str) -> str:
    """Escape a file name. A str is a name from Python's `os`, with surrogate escapes."""
    name = _ESCAPES.sub(lambda found: "".join(chr(0xEF00 + byte) for byte in found[0].encode()), os.fsdecode(name))
    return _SURROGATES.sub(lambda found: chr(ord(found[0]) - 0xDC80 + _FIRST), name)


def from_text(text: str) -> str:
    """Unescape a name from `as_text` for Python's `os`. Text without escapes is returned unchanged."""
    if not _ESCAPES.search(text):
        return text
    return os.fsdecode(os.fsencode(_ESCAPES.sub(lambda found: chr(ord(found[0]) - _FIRST + 0xDC80), text)))
