"""Text as people can read it: what a terminal, a browser or an eye would not show as itself stands as an escape.

A person who decides about an action must see all of it. A direction override turns a name around, an escape sequence
moves a terminal's cursor, and a character without a width hides between two others.
"""

import re
import unicodedata

#: categories of characters that show nothing of their own: controls, formats, separators, surrogates, unassigned ones
_UNSEEN = ("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs")

#: characters of other categories that show nothing: a filler, a note without a head, a pattern without dots
_BLANK = "\u2800\U00016fe4\U0001d159"

#: Unicode's property Default_Ignorable_Code_Point: fillers, joiners, selectors, tags
_IGNORABLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)


def is_seen(character: str) -> bool:
    """Whether a character shows as itself. A space does, and so does the end of a line."""
    if character in " \n":
        return True
    if unicodedata.category(character) in _UNSEEN or character in _BLANK:
        return False
    return _IGNORABLE.match(character) is None


def escape(character: str) -> str:
    r"""A character by its number, such as `\u{202e}`."""
    return f"\\u{{{ord(character):x}}}"


def visible(text: str) -> str:
    """The text with an escape for every character that does not show as itself."""
    return "".join(character if is_seen(character) else escape(character) for character in text)
