"""The simple commands of a shell line: what it runs, as far as its text shows.

`read_line` parses a line with tree-sitter-bash, and accepts only what it fully understands. A separate lexer reads each
word again, and every byte between two words must be blank. If the two readings differ, the line is doubtful. A rule
never allows a doubtful line. Doubtful are, among others:

- syntax errors, more than `MOST_LINE` bytes, `MOST_COMMANDS` commands or `MOST_DEPTH` nested wrappers
- a command's name that is not written out: `$x`, `$(x)`, `g?t`, `{git,push}`
- text that becomes code: `eval "$x"`, `. file`, `sh <file`, `x | sh`, `trap`, arithmetic, `${x@P}`
- definitions: functions, aliases, `hash -p`, `enable -f`
- history expansion, control and invisible characters

Wrappers are followed by the tables of `core/shell/programs.py`: `env A=1 timeout 5 sh -c 'git push'` has the command
`git push`, and another command for each level.

Limitation: a line does not show aliases, functions and variables of earlier lines, and files that a program reads.
"""

import re
import unicodedata
from contextlib import suppress
from functools import lru_cache

import tree_sitter_bash
from tree_sitter import Language, Parser, Tree

from core.shell.line import Line
from core.shell.reader import Around, TreeReader
from core.shell.words import Command, Doubt
from core.shell.wrappers import WrapperFollower

#: Maximum length of a line in bytes, and number of its commands.
MOST_LINE, MOST_COMMANDS = 16 * 1024, 100

#: Maximum number of progress reports during a parse. Each is 100 steps of tree-sitter, about 25 µs.
MOST_STEPS = 500

#: Maximum number of signs and words of the shell's syntax, also quoted. Error recovery of tree-sitter takes quadratic
#: time, and cannot be stopped.
MOST_SIGNS = 600

_LANGUAGE = Language(tree_sitter_bash.language())
_SIGN = re.compile(
    r"[](){}[$`<>|&;=#!]|\b(?:if|then|elif|else|fi|for|while|until|do|done|case|esac|in|select|function|coproc|time)\b"
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
#: A line continuation within a word or a sign: shells join the two lines before they read either.
_JOINED = re.compile(r"[^ \t\n\\](?:\\\\)*\\\n|(?<!\\)(?:\\\\)+\\\n")
_REPEATED = re.compile(r"^[ \t]*\^", re.MULTILINE)

#: Unicode's categories of invisible characters: formats, blanks, controls, private and unassigned ones.
_INVISIBLE = frozenset({"Cc", "Cf", "Cn", "Co", "Zl", "Zp", "Zs"})


@lru_cache(maxsize=512)
def read_line(text: str) -> Line:
    """Return the commands of a line as Bash reads it."""
    reading = _Reading()
    with suppress(_TooLong):
        reading.read(text, Around())
    return Line(tuple(reading.commands), tuple(dict.fromkeys(reading.doubts)))


class _TooLong(Exception):
    """Ends the reading of a line."""


class _Reading:
    def __init__(self) -> None:
        self.commands: list[Command] = []
        self.doubts: list[str] = []
        self._bytes = 0
        self._follower = WrapperFollower(self._found, self.read, self.doubts.append)

    def read(self, text: str, around: Around) -> None:
        """Read a line, or the text of an inner shell."""
        if reason := _unreadable(text):
            self.doubts.append(reason)
            return
        source = text.encode()
        self._bytes += len(source)
        if self._bytes > 2 * MOST_LINE:
            self.doubts.append("Its wrappers are too long")
            raise _TooLong
        tree = _parsed(source)
        if tree is None or tree.root_node.has_error:
            self.doubts.append("It has a syntax error, or is too complex")
            return
        TreeReader(source.decode("latin-1"), self._take, self.doubts.append).read(tree.root_node, around)

    def _take(self, command: Command, around: Around) -> None:
        try:
            self._follower.follow(command, around)
        except Doubt as doubt:
            self.doubts.append(str(doubt))

    def _found(self, command: Command) -> None:
        self.commands.append(command)
        if len(self.commands) > MOST_COMMANDS:
            self.doubts.append("It has too many commands")
            raise _TooLong


def _parsed(source: bytes) -> Tree | None:
    """Return the tree of a text; None if it has an error, or takes more than `MOST_STEPS` to parse."""
    steps = iter(range(MOST_STEPS))

    def is_enough(_: int, has_error: bool) -> bool:
        return has_error or next(steps, None) is None

    try:
        return Parser(_LANGUAGE).parse(lambda place, _: source[place:], encoding="utf8", progress_callback=is_enough)
    except ValueError:  # it was stopped
        return None


def _unreadable(text: str) -> str | None:
    """Return why a text is not parsed; None if it is."""
    try:
        length = len(text.encode())
    except UnicodeEncodeError:
        return "It has a lone surrogate"
    if length > MOST_LINE or len(_SIGN.findall(text)) > MOST_SIGNS:
        return "It is too long"
    if _CONTROL.search(text):
        return "It has a control character"
    if not text.isascii() and any(unicodedata.category(one) in _INVISIBLE for one in text if not one.isascii()):
        return "It has an invisible character"
    if _JOINED.search(text):
        return "A word of it continues in the next line"
    return "It repeats an earlier command" if _REPEATED.search(text) else None
