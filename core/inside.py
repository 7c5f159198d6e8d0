"""Which actions stay inside the folder of a conversation: the approval mode `outside` lets them pass. No store.

An action stays inside if all that the server sees of it (`core/effects.py`) are reads, and writes inside the folder.
The table `core/inside.toml` has what differs from that:

- A write waits where other programs run or obey its file unasked, such as a workflow, a hook or a lock file, and where
  the line does not show what becomes of which file, as with `sed -i`. So does whatever names a path with `.git` in it,
  and a command of Git that writes, which runs hooks.
- Commands of operations that only read pass, such as `kubectl logs`, though something outside answers them.

Commands of a line that rules approve need not stay inside: the others do, and only read.

Limitation: the limitations of `core/effects.py` hold here. A link in the folder may lead out of it, and a source file
that is written may be run by somebody later.
"""

import re
import tomllib
from fnmatch import translate
from pathlib import Path
from typing import Any

from core.approvals import SHELL_ARGUMENTS, Action, Matched, canonical
from core.effects import seen
from core.shell.line import Line, unversioned
from core.shell.programs import plain_name
from core.shell.rules import CommandPattern, allowed, command_pattern
from core.shell.words import Command, Word

_TABLE: dict[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())

#: Effects of actions that stay inside; of those beside commands that rules approve.
INSIDE, READS = frozenset({"reads", "writes_inside"}), frozenset({"reads"})

_FILES = re.compile(
    "|".join(translate(one) for names in _TABLE["files"].values() for one in names.split()), re.IGNORECASE
)
_GIT = re.compile(rb"\.git(?![a-z])", re.IGNORECASE)

#: What stands between the parts of a path, and between paths of a word.
_BETWEEN = re.compile(r"[/=@:,]")

_HIDING = frozenset(_TABLE["programs"]["any"].split())
_BY_OPTION = {name: re.compile(text) for name, text in _TABLE["programs"].items() if name != "any"}
_MOVING = frozenset({"cd", "popd", "pushd"})


def _patterns() -> dict[str, list[CommandPattern]]:
    """The commands that only read, by their program."""
    of_kinds = [
        text.format(kind=kind) for text in _TABLE["reading"]["of_kinds"] for kind in _TABLE["reading"]["kinds"].split()
    ]
    found: dict[str, list[CommandPattern]] = {}
    for pattern in map(command_pattern, (*_TABLE["reading"]["commands"], *of_kinds)):
        found.setdefault(pattern.words[0], []).append(pattern)
    return found


_READING = _patterns()


def stays_inside(action: Action, folder: str | None, approved: frozenset[int] = frozenset()) -> bool:
    """Whether an action stays inside the folder.

    folder: its absolute path, None if it is not known. approved: commands of its line, by their place, that rules
    approve.
    """
    line = _line_of(action)
    vouched = approved | _reading(line) if line else approved
    found = seen(action.tool_name, action.arguments, folder, without=vouched)
    if not found.names <= (READS if approved else INSIDE) or _GIT.search(canonical(action.arguments)):
        return False
    commands = line.commands if line else ()
    if approved and any(command.name in _MOVING for command in commands):
        return False  # what is approved would run elsewhere
    is_shown = not any(map(_hides_writes, commands)) and not any(_is_obeyed(word, folder) for word in found.written)
    return "writes_inside" not in found.names or is_shown


def beside_inside(matched: Matched, action: Action, folder: str | None) -> Matched:
    """The rules that match, where those that approve parts of a line need not approve what stays inside and reads."""
    approved = frozenset(place for part in matched.parts for place in part.places)
    if matched.rules or not approved or len({part.argument for part in matched.parts}) > 1:
        return matched
    if not stays_inside(action, folder, approved):
        return matched
    return matched._replace(parts=[part._replace(needed=approved) for part in matched.parts])


def _line_of(action: Action) -> Line | None:
    """The only shell line of an action."""
    lines = [line for name in sorted(SHELL_ARGUMENTS) if (line := action.line(name))]
    return lines[0] if len(lines) == 1 else None


def _reading(line: Line) -> frozenset[int]:
    """The commands of a line that the table lets pass."""
    if line.doubts:
        return frozenset()
    patterns = [one for name in line.names & _READING.keys() for one in _READING[name]]
    return frozenset[int]().union(*(allowed(pattern, line) for pattern in patterns))


def _hides_writes(command: Command) -> bool:
    """Whether a command that writes does not show what becomes of which file, or runs hooks."""
    name = unversioned(plain_name(command.name))
    option = _BY_OPTION.get(name.removeprefix("g") if name in ("gsed", "gawk") else name)
    words = command.words[1:]
    return (
        name == "git"
        or name in _HIDING
        or (option is not None and any(not word.is_whole or option.fullmatch(word.text) for word in words))
    )


def _is_obeyed(word: Word, folder: str | None) -> bool:
    """Whether a file is one that other programs run or obey, or may be one."""
    if not word.is_whole:
        return True
    path = word.text.removeprefix(f"{folder}/") if folder else word.text
    return any(_FILES.fullmatch(part) for part in _BETWEEN.split(path))
