"""Cuts texts to a bound. A text that was cut says so, and is no longer than its bound.

A title, a name, a reason and an error keep their beginning; an output its head and its tail; a log its last lines.
"""

import re

#: characters that the line in the middle of a text may take
_LINE = 60

#: the line above the last ones of a log
_EARLIER = re.compile(r"… (?:([\d,]+) )?earlier lines? (?:is|are) not shown")


def beginning(text: str, most: int) -> str:
    """A text of at most so many characters: a longer one ends in `…`."""
    return text if len(text) <= most else text[: most - 1] + "…"


def beginning_in_bytes(text: str, most: int) -> str:
    """A text of at most so many bytes of UTF-8, 3 at least: a longer one ends in `…`."""
    raw = text.encode(errors="replace")
    return text if len(raw) <= most else raw[: most - len("…".encode())].decode(errors="ignore") + "…"


def head_and_tail(text: str, most: int) -> str:
    """A text of at most so many characters, 100 at least: a longer one says in its middle what is missing."""
    if len(text) <= most:
        return text
    half = (most - _LINE) // 2
    return f"{text[:half]}\n… {len(text) - 2 * half:,} characters are not shown here …\n{text[-half:]}"


def lines_of(text: str) -> list[str]:
    """The lines of a text as programs count them: not where str.splitlines ends one too, as at U+2028."""
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")] if text else []


def last_lines(text: str, tail: int, *, missing: int | None = 0) -> str:
    """The last lines of a log, below a line that counts the earlier ones, where there are any.

    missing: lines that the text lacks, beside those that such a line of its own counts; None: their number is unknown.
    """
    lines = lines_of(text) if tail > 0 else []
    if lines and (found := _EARLIER.fullmatch(lines[0])):
        missing = missing + int(found[1].replace(",", "")) if found[1] and missing is not None else None
        del lines[0]
    if missing is not None:
        missing += max(len(lines) - tail, 0)
    return "\n".join([*([] if missing == 0 or not lines else [_earlier(missing)]), *lines[-tail:]])


def last_lines_of_more(text: str, tail: int) -> str:
    """As `last_lines`, of a text that has one line more where the log has more: the rest is not counted."""
    lines = lines_of(text)
    return last_lines("\n".join(lines[-tail:]), tail, missing=None if len(lines) > tail else 0)


def _earlier(number: int | None) -> str:
    if number is None:
        return "… earlier lines are not shown"
    return f"… {number:,} earlier line{' is' if number == 1 else 's are'} not shown"
