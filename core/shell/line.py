"""The commands of a shell line, and the lookups of rules in it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from string import digits

from core.shell.programs import (
    FOLDERS,
    HARMLESS,
    HARMLESS_SETTINGS,
    HARMLESS_VARIABLES,
    LOCAL_VARIABLES,
    may_run_words,
    plain_name,
)
from core.shell.words import Command, Word

#: Text between the separators of a text that may be a command.
_TOKEN = re.compile(r"[^\s'\"();|&<>=,]+")


@dataclass(frozen=True)
class Line:
    commands: tuple[Command, ...]
    doubts: tuple[str, ...] = ()

    @cached_property
    def needed(self) -> frozenset[int] | None:
        """Return the positions of the commands that rules have to allow; None if no rule can."""
        if self.doubts:
            return None
        places = set()
        for place, command in enumerate(self.commands):
            if command.words:
                places |= set() if command.is_followed or _is_harmless(command) else {place}
            elif command.writes or not all(
                LOCAL_VARIABLES.fullmatch(name) or HARMLESS_VARIABLES.fullmatch(name) for name, _ in command.sets
            ):
                return None
        return frozenset(places)

    @cached_property
    def names(self) -> frozenset[str]:
        """Return the names of its programs, with which a rule that approves may begin."""
        texts = [command.words[0].text for command in self.commands if command.words]
        return frozenset(texts) | {FOLDERS.sub("", text, count=1) for text in texts}

    @cached_property
    def heads(self) -> frozenset[str]:
        """Return the possible names of programs, without versions, for rules that reject."""
        heads: set[str] = set()
        for command in self.commands:
            name = plain_name(command.name)
            heads.add(unversioned(name))
            if may_run_words(name) and not command.is_followed:
                heads |= {unversioned(token) for token in tokens(command.words[1:])}
            heads |= {unversioned(token) for token in tokens(run_values(command))}
        return frozenset(heads)

    @cached_property
    def is_unsure(self) -> bool:
        return bool(self.doubts) or any(command.is_opaque for command in self.commands)


def run_values(command: Command) -> list[Word]:
    """Return the values of variables that a program may run, such as `GIT_EDITOR`."""
    return [value for name, value in command.sets if not HARMLESS_VARIABLES.fullmatch(name)]


def tokens(words: Sequence[Word]) -> frozenset[str]:
    """Return the words that may name another command or its words, in lower case without folders."""
    text = " ".join(word.text for word in words).lower()
    return frozenset(re.split(r"[/\\]", one)[-1].removesuffix(".exe") for one in _TOKEN.findall(text))


def unversioned(name: str) -> str:
    """Return a program's name without its version: `pip3` is `pip`."""
    return name.rstrip(digits + ".-") or name


def _is_harmless(command: Command) -> bool:
    name, *words = (word.text for word in command.words)
    is_plain = all(word.is_whole for word in command.words) and not command.writes and not command.sets
    return is_plain and (
        name in HARMLESS or (name == "set" and HARMLESS_SETTINGS.fullmatch(" ".join(words)) is not None)
    )
