"""Wide matching of text, for rules that reject. A rule that approves matches narrowly: see `fits_pattern`.

A shell runs `git push` under many spellings, and no pattern lists them all. `fits_widely` therefore gives one of three
answers:

- True: the pattern matches. `*` stands for any text. Case, quotes, backslashes and the number of blanks do not count.
- False: the text has only characters that a shell takes literally, and lacks a word of the pattern. Signs alone, such
  as `*;*`, are found or not.
- None: unsure. The text may still do what the pattern names: `g=git; $g push`, `base64 -d x | sh`, `git -C . push`.

Options are compared by their letters: `-rf`, `-fr`, `-r -f` and `--recursive --force` are the same.

Limitation: a command may read what it runs from a file (`python x.py`, `make`), use what an earlier command prepared,
or be typed in several parts. The text does not show that. A program that is not listed here may build a text from its
arguments.
"""

import re
from functools import lru_cache
from string import ascii_letters, digits

#: Maximum length, in characters, of a text that is searched. A longer one leaves it unsure.
MOST_SEARCHED = 16 * 1024

#: Characters that no shell expands or redirects, and from which no program before a pipe makes others.
_LITERAL = frozenset(ascii_letters + digits + " \n'\"_./:,@+-=;&")

_JOINED = re.compile(r"['\"\\]")
_WORD = re.compile(r"\w+")
_OPTION = re.compile(r"(?<![\w-])-(-?)(\w*)[\w-]*")

#: What a shell takes from one pair of quotes. Two quotes in it are code that builds a text: `run "f 'gi'+'t'"`.
_QUOTED = re.compile(r"'([^']*)'?|\"([^\"]*)\"?")

#: Programs whose code can build any text from literal characters, for instance `perl -esystem+q/pu/.q/sh/`: with an
#: option, with any argument, or in a variable with options. A data URL holds code, and Git corrects a misspelt verb.
#: `sed` runs its text by `e`, so only a script that prints, deletes or quits by line is plain.
_CODE = re.compile(
    r"\b(?:[gm]?awk|bun|deno|elixir|emacs|erl|expect|gdb|ghc|gnuplot|groovy|iex|ipython|irb|jshell|julia|jython|lua|luajit"
    r"|micropython|node|nodejs|ocaml|octave|osascript|perl|php|powershell|psql|pwsh|pypy|python|r|rake|raku|rscript|ruby"
    r"|scala|sqlite|tclsh|view)(?:-?[\d.][\w.-]{0,40})?\s+[-+]"
    r"|\b(?:bun|crystal|deno)\s+eval\b|\brails\s+r"
    r"|(?:^|[\s;&/])(?:ex|[gr]?n?vim?|parallel|socat|xargs)\s"
    r"|\b(?:exinit|node_options|perl5db|perl5opt|rubyopt|viminit)=|\bbase64,|autocorrect"
    r"|\bg?sed\b(?! (?:-n )?\d+(?:,\d+)?[dpq](?: [\w./][\w./-]{0,250}){0,9} ?(?:[;&]|$))"
)


def fits_widely(parts: list[str], text: str) -> bool | None:
    """Whether a text matches a pattern; None if unsure.

    parts: the literal parts of the pattern, between which any text may stand. One part has to be the whole text.
    """
    if len(text) > MOST_SEARCHED:
        return None
    plain_parts, (plain, joined, words, letters) = [_plain(part) for part in parts], _read(text)
    if _is_in_order(plain_parts, plain):
        return True
    parts = [_JOINED.sub("", part) for part in plain_parts]
    if parts == plain_parts and _is_in_order(parts, joined):
        return True
    if not _LITERAL.issuperset(text) or _CODE.search(joined) or _has_quotes_in_quotes(text):
        return None
    if not any(map(_WORD.search, parts)):
        return False
    return None if _has_words(parts, words, letters) else False


def fits_literally(parts: list[str], text: str) -> bool | None:
    """The same of a text that no shell reads any more, such as the words of one command."""
    if len(text) > MOST_SEARCHED:
        return None
    plain_parts, (plain, joined, words, letters) = [_JOINED.sub("", _plain(part)) for part in parts], _read(text)
    if _is_in_order(plain_parts, plain) or _is_in_order(plain_parts, joined):
        return True
    if _CODE.search(joined):
        return None
    return None if any(map(_WORD.search, plain_parts)) and _has_words(plain_parts, words, letters) else False


def _has_quotes_in_quotes(text: str) -> bool:
    """Whether there are two; one is an apostrophe."""
    inner: int = sum(single.count('"') + double.count("'") for single, double in _QUOTED.findall(text))
    return inner > 1


@lru_cache(maxsize=16)
def _read(text: str) -> tuple[str, str, frozenset[str], frozenset[str]]:
    """A text in lower case, the same as a shell joins it, its words, and the letters of its options."""
    plain = _plain(text)
    joined = _plain(_JOINED.sub("", plain)).strip()
    words = _WORD.findall(joined)
    unversioned = {word.rstrip(digits) for word in words}  # `pip3` is a `pip`
    return plain, joined, frozenset(words) | unversioned - {""}, _letters(joined)


def _plain(text: str) -> str:
    """The text in lower case, with one space for each run of blanks."""
    return re.sub(r"\s+", " ", text.lower())


def _is_in_order(parts: list[str], text: str) -> bool:
    """Whether a text begins with the first part, ends with the last one, and has the others in order between them."""
    first, *others = parts
    if not others:
        return text == first
    *middle, last = others
    if len(text) < len(first) + len(last) or not text.startswith(first) or not text.endswith(last):
        return False
    place, end = len(first), len(text) - len(last)
    for part in middle:
        place = text.find(part, place, end)
        if place < 0:
            return False
        place += len(part)
    return True


def _has_words(parts: list[str], words: frozenset[str], letters: frozenset[str]) -> bool:
    """Whether each word of a pattern is among these words, and each letter of its options among these letters."""
    for number, part in enumerate(parts):
        if not _letters(part) <= letters:
            return False
        rest = _OPTION.sub(lambda option: " " * len(option[0]), part)
        for word in _WORD.finditer(rest):
            is_begun = number > 0 and word.start() == 0  # `*` may stand for the beginning of the word
            is_cut = number < len(parts) - 1 and word.end() == len(part)
            if not (word[0] in words or any(_is_word(word[0], other, is_begun, is_cut) for other in words)):
                return False
    return True


def _is_word(word: str, other: str, is_begun: bool, is_cut: bool) -> bool:
    if is_begun and is_cut:
        return word in other
    return (is_begun and other.endswith(word)) or (is_cut and other.startswith(word))


def _letters(text: str) -> frozenset[str]:
    """The letters of short options, and the first letter of each long one."""
    options = _OPTION.findall(text)
    return frozenset(letter for dash, name in options for letter in (name[:1] if dash else name))
