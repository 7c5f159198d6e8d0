"""Simple commands of a shell line: what it runs, as far as its text shows that.

`read_line` parses a line with tree-sitter-bash, and takes only what it understands whole. A lexer of its own reads each
word again, and every byte between two words has to be blank: where the two readings differ, the line is doubtful. A
line with a doubt is never allowed by a rule. Doubtful are, among others:

- syntax errors, more than `MOST_LINE` bytes, `MOST_COMMANDS` commands or `MOST_DEPTH` shells in shells
- a command's name that is not written out: `$x`, `$(x)`, `g?t`, `{git,push}`
- text that becomes code: `eval "$x"`, `. file`, `sh <file`, `x | sh`, `trap`, arithmetic, `${x@P}`
- definitions: functions, aliases, `hash -p`, `enable -f`
- history expansion, control and invisible characters

Wrappers are followed by the tables of `core/shell/programs.py`: `env A=1 timeout 5 sh -c 'git push'` has the command
`git push`, and one command more for each level.

Limitation: aliases, functions and variables of earlier lines, and files that a program reads, do not show in a line.
"""

import re
import unicodedata
from functools import lru_cache

import tree_sitter_bash
from tree_sitter import Language, Parser

from core.shell.reader import Around, Reader
from core.shell.words import Command, Doubt, Line
from core.shell.wrappers import Follower

#: Maximum length of a line in bytes, number of its commands, and depth of shells in shells.
MOST_LINE, MOST_COMMANDS, MOST_DEPTH = 16 * 1024, 100, 6

#: Maximum number of brackets, `$`, `<` and backticks: the time of a parse grows with their nesting.
MOST_BRACKETS = 400

_LANGUAGE = Language(tree_sitter_bash.language())
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_REPEATED = re.compile(r"^[ \t]*\^", re.MULTILINE)

#: Unicode's categories of characters that nobody sees: formats, blanks, controls, private and unassigned ones.
_INVISIBLE = frozenset({"Cc", "Cf", "Cn", "Co", "Zl", "Zp", "Zs"})


@lru_cache(maxsize=512)
def read_line(text: str) -> Line:
    """The commands of a line as Bash reads it."""
    reading = _Reading()
    reading.read(text, Around())
    return Line(tuple(reading.commands), tuple(dict.fromkeys(reading.doubts)))


class _Reading:
    """The commands and doubts found so far."""

    def __init__(self) -> None:
        self.commands: list[Command] = []
        self.doubts: list[str] = []
        self._follower = Follower(self._found, self.read, self.doubts.append)

    def read(self, text: str, around: Around) -> None:
        """Read a line, or the text of a shell in it."""
        if reason := _unreadable(text, around.depth):
            self.doubts.append(reason)
            return
        source = text.encode()
        root = Parser(_LANGUAGE).parse(source).root_node
        if root.has_error:
            self.doubts.append("It has a syntax error")
        Reader(source.decode("latin-1"), self._take, self.doubts.append).read(root, around)

    def _take(self, command: Command, around: Around) -> None:
        try:
            self._follower.follow(command, around)
        except Doubt as doubt:
            self.doubts.append(str(doubt))

    def _found(self, command: Command) -> None:
        if len(self.commands) < MOST_COMMANDS:
            self.commands.append(command)
        else:
            self.doubts.append("It has too many commands")


def _unreadable(text: str, depth: int) -> str | None:
    """Why a text is not parsed."""
    if depth > MOST_DEPTH:
        return "Its shells are nested too deeply"
    try:
        length = len(text.encode())
    except UnicodeEncodeError:
        return "It has a lone surrogate"
    if length > MOST_LINE or sum(map(text.count, "({[$`<")) > MOST_BRACKETS:
        return "It is too long"
    if _CONTROL.search(text):
        return "It has a control character"
    if not text.isascii() and any(unicodedata.category(one) in _INVISIBLE for one in text if not one.isascii()):
        return "It has an invisible character"
    return "It repeats an earlier command" if _REPEATED.search(text) else None
