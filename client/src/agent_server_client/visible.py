"""Text as people can read it: what a terminal or an eye would not show as itself stands as an escape.

The server's core/visible.py has the same list, and a test compares the two: an approval on a terminal shows what the
console shows.
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

#: in prose the parts of emoji and the indents of lines are no surprise: joiners, variation selectors and tabs stay
_IN_PROSE = "\t\u200d\ufe0e\ufe0f\u00a0\u3000"

#: what sets the colour of a terminal's text
_COLOUR = re.compile("\x1b\\[[0-9;:]*m")


def is_seen(character: str) -> bool:
    """Whether a character shows as itself. A space does, and so does the end of a line."""
    if character in " \n":
        return True
    if unicodedata.category(character) in _UNSEEN or character in _BLANK:
        return False
    return _IGNORABLE.match(character) is None


def beginning(text: str, most: int) -> str:
    """The text in so many characters: a longer one ends in `…`."""
    return text if len(text) <= most else text[: most - 1] + "…"


def visible(text: str, *, prose: bool = False) -> str:
    """The text with an escape for every character that does not show as itself. prose: nothing of it will run."""
    kept = _IN_PROSE if prose else ""
    return "".join(one if is_seen(one) or one in kept else f"\\u{{{ord(one):x}}}" for one in text)


def in_line(text: str) -> str:
    """A text of one line, such as a name: the end of a line is an escape too."""
    return visible(text).replace("\n", "\\u{a}")


def first_line(text: str, most: int) -> str:
    """A command or another text in one line of so many characters: its first line, and how many more there are."""
    first, *rest = text.strip("\n").split("\n")
    more = f" … (+{len(rest)} {'line' if len(rest) == 1 else 'lines'})" if rest else ""
    return beginning(in_line(first), max(1, most - len(more))) + more


def of_output(text: str) -> str:
    """What a command printed: without its colours, and with the line ends of a terminal as plain ones."""
    return visible(_COLOUR.sub("", text).replace("\r\n", "\n"), prose=True)
