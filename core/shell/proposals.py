"""Proposes a pattern for a rule that approves commands like a given one: `git status -s` → `git status *`.

A pattern is proposed only for commands of the table `proposals.toml`, and only if it approves the whole line: without
redirection, variables that change what runs, wrappers such as `sudo`, or doubts of the reader. A line of several
commands gets a proposal only if one pattern approves them all.
"""

import tomllib
from pathlib import Path
from typing import Any

from core.shell import read_line
from core.shell.rules import allowed, approval_fault, command_pattern, pattern_fault
from core.shell.words import Command

_TABLE: dict[str, Any] = tomllib.loads((Path(__file__).parent / "proposals.toml").read_text())
_ALONE = frozenset(_TABLE["alone"].split())
_SAME = {other: name for name, others in _TABLE["same"].items() for other in others.split()}
_SUBCOMMANDS = {
    name: [tuple(one.split()) for one in (verbs.split() if isinstance(verbs, str) else verbs)]
    for name, verbs in _TABLE["subcommands"].items()
}


def propose_command(text: str) -> str | None:
    """Return a pattern that approves a shell line and commands like it; None if none can be proposed safely."""
    line = read_line(text)
    places = line.needed
    if not places:
        return None
    pattern = _pattern_for(line.commands[min(places)])
    if pattern is None or pattern_fault(pattern) or approval_fault(pattern):
        return None
    return pattern if places <= allowed(command_pattern(pattern), line) else None


def _pattern_for(command: Command) -> str | None:
    if command.writes or command.wrapped or command.is_opaque:
        return None
    words = [word.text if word.is_whole else None for word in command.words]
    if command.name in _ALONE:
        return f"{command.name} *"
    for verbs in _SUBCOMMANDS.get(_SAME.get(command.name, command.name), ()):
        following = words[1 : len(verbs) + 1]
        if len(following) == len(verbs) and all(map(_is_verb, verbs, following)):
            return " ".join([command.name, *(word for word in following if word), "*"])
    return None


def _is_verb(verb: str, word: str | None) -> bool:
    """Return whether a word is a subcommand. `*` stands for the name of a script, as in `npm run build`."""
    if not word or verb != "*":
        return word == verb
    return "*" not in word and word[0] != "-"
