"""Truncation of texts. A truncated text says so, and its marker counts towards the bound.

Titles, names, reasons and errors keep their beginning, outputs their head and tail, logs their last lines.
"""

import re

#: Maximum length of the marker in the middle of a text, in characters.
_LINE = 60

#: Marker above the last lines of a log.
_EARLIER = re.compile(r"… (?:([\d,]+) )?earlier lines? (?:is|are) not shown")


def beginning(text: str, most: int) -> str:
    """Truncate a text to a number of characters; the last one is then `…`."""
    return text if len(text) <= most else text[: most - 1] + "…"


def beginning_in_bytes(text: str, most: int) -> str:
    """Truncate a text to a number of bytes of UTF-8, at least 3; it then ends in `…`."""
    raw = text.encode(errors="replace")
    return text if len(raw) <= most else raw[: most - len("…".encode())].decode(errors="ignore") + "…"


def head_and_tail(text: str, most: int) -> str:
    """Truncate a text to a number of characters, at least 100; a marker in its middle says what is missing."""
    if len(text) <= most:
        return text
    half = (most - _LINE) // 2
    return f"{text[:half]}\n… {len(text) - 2 * half:,} characters are not shown here …\n{text[-half:]}"


def lines_of(text: str) -> list[str]:
    """Split a text at newlines alone. `str.splitlines` also splits at characters such as U+2028."""
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")] if text else []


def last_lines(text: str, tail: int, *, missing: int | None = 0) -> str:
    """Return the last lines of a log, below a marker that counts the earlier lines.

    missing: number of lines before the text, without those that the text's own marker counts; None: unknown.
    """
    lines = lines_of(text) if tail > 0 else []
    if lines and (found := _EARLIER.fullmatch(lines[0])):
        missing = missing + int(found[1].replace(",", "")) if found[1] and missing is not None else None
        del lines[0]
    if missing is not None:
        missing += max(len(lines) - tail, 0)
    return "\n".join([*([] if missing == 0 or not lines else [_earlier(missing)]), *lines[-tail:]])


def last_lines_of_more(text: str, tail: int) -> str:
    """Like `last_lines`, for a text with one extra line if the log is longer. The rest is not counted."""
    lines = lines_of(text)
    return last_lines("\n".join(lines[-tail:]), tail, missing=None if len(lines) > tail else 0)


def _earlier(number: int | None) -> str:
    if number is None:
        return "… earlier lines are not shown"
    return f"… {number:,} earlier line{' is' if number == 1 else 's are'} not shown"
