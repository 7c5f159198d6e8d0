"""Text as people can read it: what a terminal, a browser or an eye would not show as itself stands as an escape.

A person who decides about an action must see all of it. A direction override turns a name around, an escape sequence
moves a terminal's cursor, and a character without a width hides between two others.
"""

import unicodedata

#: categories of characters that show nothing of their own: controls, formats, separators, surrogates, unassigned ones
_UNSEEN = ("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs")

#: blank letters and symbols, which have categories of visible ones
_BLANK = "\u115f\u1160\u2800\u3164\uffa0"

#: first and last of the variation selectors, which are marks without a shape
_SELECTORS = (("\u180b", "\u180d"), ("\ufe00", "\ufe0f"), ("\U000e0100", "\U000e01ef"))


def is_seen(character: str) -> bool:
    """Whether a character shows as itself. A space does, and so does the end of a line."""
    if character in " \n":
        return True
    if unicodedata.category(character) in _UNSEEN or character in _BLANK:
        return False
    return not any(first <= character <= last for first, last in _SELECTORS)


def escape(character: str) -> str:
    r"""A character by its number, such as `\u{202e}`."""
    return f"\\u{{{ord(character):x}}}"


def visible(text: str) -> str:
    """The text with an escape for every character that does not show as itself."""
    return "".join(character if is_seen(character) else escape(character) for character in text)
