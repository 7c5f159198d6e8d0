"""Words and simple commands of a shell line, and the lexer that reads a word as Bash does."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

#: Knowledge of a word. whole: its text. begins: it becomes one or more words, each beginning with its text, which is no
#: option. one: it becomes one word of any text. any: it becomes any number of words.
Known = Literal["whole", "begins", "one", "any"]

_VARIABLE = re.compile(r"\$(?:\{[A-Za-z_][A-Za-z0-9_]*\}|[A-Za-z_][A-Za-z0-9_]*|[0-9?#$!@*-])")
_ANSI = re.compile(r"\\(?:x([0-9A-Fa-f]{1,2})|([0-7]{1,3})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|(.))", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "\\": "\\", "'": "'", '"': '"', "?": "?"}

#: A subscript with a substitution. ksh and zsh run it where `test` computes numbers, bash after `-v`.
RUN_SUBSCRIPT = re.compile(r"\[[^]]*[$`]")

#: Characters that end an unquoted word.
_ENDS = frozenset(" \t\n;&|<>()")

#: Characters after `!` with which no shell reads it as the number of an earlier command.
_AFTER_MARK = frozenset(' \t\n=("')


class Doubt(Exception):
    """A part of a line is not understood; the message says why."""


class Word(NamedTuple):
    text: str  #: as the shell passes it on; if it is not known whole, its known beginning
    known: Known = "whole"

    @property
    def is_whole(self) -> bool:
        return self.known == "whole"


#: A word about which nothing is known, and a path below the folder where a command runs.
ANY, FILE = Word("", "any"), Word(".", "begins")


class Hole(NamedTuple):
    end: int
    text: str | None  #: its result, if the line contains it


class Write(NamedTuple):
    sign: str  #: `>` or `>>`
    path: Word


@dataclass(frozen=True, slots=True)
class Command:
    words: tuple[Word, ...]  #: its name first; empty if it only sets variables
    sets: tuple[tuple[str, Word], ...] = ()  #: variables that are set for it, or by it
    writes: tuple[Write, ...] = ()
    is_fed: bool = False  #: it reads a file, a pipe or a text of the line
    wrapped: tuple[str, ...] = ()  #: words of the wrappers that change its rights: `sudo -u root`
    is_followed: bool = False  #: a wrapper: the command that it runs is another command of the line
    is_opaque: bool = False  #: it also runs something hidden: code, settings of Git
    reads: tuple[Word, ...] = ()  #: files that are redirected into it

    @property
    def name(self) -> str:
        """Return the name of its program without a folder; "" without a program."""
        return self.words[0].text.rpartition("/")[2] if self.words else ""


class Lexer:
    """Reads one word.

    source: the word, each byte of its UTF-8 as one character. holes: its substitutions, by their start. Raises Doubt if
    a shell would not read it as one word.
    """

    def __init__(self, source: str, holes: Mapping[int, Hole], *, is_posix: bool = False) -> None:
        self._source, self._holes, self._is_posix = source, holes, is_posix
        self._place = 0
        self._text: list[str] = []
        self._is_cut = False  # the rest is unknown
        self._splits = False  # it may become several words, of any text
        self._globs = False  # it may become several words, which begin with the text

    def word(self) -> Word:
        source = self._source
        if source == "{}":
            return Word(source)
        if source[:1] in ("#", "~"):
            if source[0] == "#":
                raise Doubt("It has a comment where a word is expected")
            self._add("~")
            self._globs = self._is_cut = True
            self._place = 1
        while self._place < len(source):
            self._bare(source[self._place])
        return self._made()

    def quoted(self) -> Word:
        """Return the source as the text of a heredoc, in which variables are replaced."""
        while self._place < len(self._source):
            self._in_quotes(self._source[self._place], is_heredoc=True)
        return self._made()

    def _made(self) -> Word:
        try:
            text = "".join(self._text).encode("latin-1").decode()
        except UnicodeError:
            raise Doubt("A word of it is not UTF-8") from None
        is_plain = bool(text) and text[0] != "-"
        if self._splits:
            return Word(text, "any")
        if self._globs:
            # `.*` also matches `..`, and a glob at the beginning matches options
            return Word(text, "begins" if is_plain and not text.endswith(".") else "any")
        if self._is_cut:
            return Word(text, "begins" if is_plain else "one")
        return Word(text)

    def _add(self, text: str) -> None:
        if not self._is_cut:
            self._text.append(text)

    def _hole(self, *, is_quoted: bool) -> bool:
        hole = self._holes.get(self._place)
        if hole is None:
            return False
        if is_quoted and hole.text is not None:
            self._add(hole.text)
            self._place = hole.end
            return True
        is_process = self._source[self._place] in "<>"
        if is_process and not is_quoted:
            self._add("/dev/fd/")
        self._splits |= not is_quoted and not is_process
        self._is_cut, self._place = True, hole.end
        return True

    def _bare(self, one: str) -> None:
        source, place = self._source, self._place
        if self._hole(is_quoted=False):
            return
        if one == "\\":
            if place + 1 == len(source):
                raise Doubt("It ends in a backslash")
            if source[place + 1] != "\n":
                self._add(source[place + 1])
            self._place += 2
        elif one == "'":
            end = source.find("'", place + 1)
            if end < 0:
                raise Doubt("It has an open quote")
            self._add(source[place + 1 : end])
            self._place = end + 1
        elif one == '"':
            self._place += 1
            while self._place < len(source) and source[self._place] != '"':
                self._in_quotes(source[self._place])
            if self._place >= len(source):
                raise Doubt("It has an open quote")
            self._place += 1
        elif one == "$":
            self._dollar(is_quoted=False)
        elif one in _ENDS or one == "`":
            raise Doubt("It has a sign of the shell within a word")
        else:
            self._character(one)

    def _character(self, one: str) -> None:
        rest = self._source[self._place + 1 :]
        if one == "!":
            self._mark(rest)
        is_home = one == "~" and self._source[self._place - 1 : self._place] in ("=", ":")
        if is_home or one in "*?[" or (one == "{" and ("," in rest or ".." in rest)):
            self._globs = self._is_cut = True
        self._add(one)
        self._place += 1

    def _mark(self, rest: str) -> None:
        if rest and rest[0] not in _AFTER_MARK:
            raise Doubt("It may repeat an earlier command: `!`")

    def _in_quotes(self, one: str, *, is_heredoc: bool = False) -> None:
        source, place = self._source, self._place
        if self._hole(is_quoted=True):
            return
        if one == "\\" and source[place + 1 : place + 2] and source[place + 1] in '$`"\\\n':
            if source[place + 1] == '"' and is_heredoc:
                self._add("\\")
            if source[place + 1] != "\n":
                self._add(source[place + 1])
            self._place += 2
        elif one == "$":
            self._dollar(is_quoted=True)
        elif one == "`":
            raise Doubt("It has a substitution that is not understood")
        else:
            if one == "!" and not is_heredoc:
                self._mark(source[place + 1 :])
            self._add(one)
            self._place += 1

    def _dollar(self, *, is_quoted: bool) -> None:
        source, place = self._source, self._place
        following = source[place + 1 : place + 2]
        if following in ("'", '"') and not is_quoted:
            if following == '"' or self._is_posix:
                raise Doubt("It has a text that shells read differently: `$'…'`")
            self._ansi()
        elif variable := _VARIABLE.match(source, place):
            self._is_cut = True
            self._splits |= not is_quoted or variable[0] == "$@"
            self._place = variable.end()
        elif following in ("(", "{", "["):
            raise Doubt("It has an expansion that may run commands")
        else:
            self._add("$")
            self._place += 1

    def _ansi(self) -> None:
        """Read the text of `$'…'`."""
        source, place = self._source, self._place + 2
        while place < len(source) and source[place] != "'":
            if source[place] != "\\":
                self._add(source[place])
                place += 1
                continue
            escape = _ANSI.match(source, place)
            if escape is None:
                break
            self._add(_escaped(escape))
            place = escape.end()
        if source[place : place + 1] != "'":
            raise Doubt("It has an open quote")
        self._place = place + 1


def _escaped(escape: re.Match[str]) -> str:
    """Return the bytes of an escape of `$'…'`, each as one character."""
    byte, octal, *points, letter = escape.groups()
    code = int(byte, 16) if byte else int(octal, 8) if octal else None
    for point in points:
        code = int(point, 16) if point else code
    if code is None:
        if letter not in _ESCAPES:
            raise Doubt("It has an escape that is not understood")
        return _ESCAPES[letter]
    if code < ord(" ") and chr(code) not in "\n\t":
        raise Doubt("It has a control character")
    if byte or octal:
        return chr(code & 0xFF)
    try:
        return chr(code).encode().decode("latin-1")
    except (ValueError, UnicodeEncodeError):
        raise Doubt("It has an escape that is not understood") from None
