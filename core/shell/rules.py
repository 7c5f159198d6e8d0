"""Rules about commands: which commands of a line a pattern allows, and whether it rejects a line.

A pattern is one command: `git status *`. Its words are separated by blanks, and have no quotes. `*` alone matches any
further words, also none; `*` within a word matches any text in it. `> build.log` names a file that the command may
write.

Allow. A command is allowed if every word matches at its place. `*` does not match words of a program that run another
program or write elsewhere (`core/shell/programs.py`): the pattern has to name them. A word that is not written out
matches `*` if no word of the program can do that. The pattern also has to name variables that are set and files that
are written, except harmless ones. A line is allowed if every command is, and nothing is doubtful.

Reject. A line is rejected if any command of it begins with the words of the pattern. Wrappers, case, folder, options
and further words do not matter. It is unsure if the line is doubtful, a program runs code, or words that are not
written out may match the pattern.

Both use only texts and no store: actions, destinations and hooks are matched alike.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from typing import NamedTuple

from core.secret_files import may_name_hidden, names_secret
from core.shell import read_line
from core.shell.line import Line, run_values, tokens, unversioned
from core.shell.programs import (
    FOLDERS,
    HARMLESS_VARIABLES,
    ProgramWords,
    has_plain_script,
    may_run_words,
    plain_name,
    program,
    program_of,
    script_place,
)
from core.shell.reader import Around
from core.shell.words import Command, Doubt, Word, Write
from core.shell.wrappers import WrapperFollower
from core.wide_match import fits_literally

#: Maximum number of words, of `*` and of characters of a pattern.
MOST_WORDS, MOST_STARS, MOST_PATTERN = 64, 8, 1024

#: Characters of a word of a pattern: those without a special meaning in any shell.
_LETTER = "[A-Za-z0-9_./:,@+=*%^-]"

#: The form of a pattern, as far as an expression can describe it.
PATTERN = (
    f"^ *([A-Za-z_][A-Za-z0-9_]*={_LETTER}* +)*{_LETTER.replace('=', '')}+"
    f"( +{_LETTER}+| +>>? *{_LETTER}+){{0,{MOST_WORDS - 1}}} *$"
)
FEW_STARS = f"^[^*]*([*][^*]*){{0,{MOST_STARS}}}$"

_SET = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)")


class CommandPattern(NamedTuple):
    words: tuple[str, ...]
    sets: tuple[tuple[str, str], ...] = ()  #: variables that it may set, with patterns of their values
    writes: tuple[tuple[str, str], ...] = ()  #: `>` or `>>`, and patterns of files that it may write
    wrapped: tuple[str, ...] = ()  #: words of a required wrapper such as `sudo`
    raw: tuple[str, ...] = ()  #: words as written, including wrappers
    head: str = ""  #: a member of `Line.heads` that a matching line needs; "": no restriction
    raw_head: str = ""

    @property
    def is_of_wrapper(self) -> bool:
        """Return whether the wrapper is a part of it: `sudo rm *` is not `rm *`, nor does `env *` match all."""
        return bool(self.wrapped) or self.words[0] == "*"


def pattern_fault(text: str) -> str | None:
    """Return why a text is not a pattern of a command; None if it is."""
    if len(text) > MOST_PATTERN or not re.match(PATTERN, text):
        return (
            f"A command should be at most {MOST_WORDS} words of ASCII letters, digits and `_ . / : , @ + = % ^ * -`, "
            "its program first or after `NAME=value`, and may name files by `> file`"
        )
    if not re.match(FEW_STARS, text):
        return f"A command should have at most {MOST_STARS} `*`"
    return None


def approval_fault(text: str) -> str | None:
    """Return why an approving rule cannot have a pattern; None if it can."""
    pattern = command_pattern(text)
    if "*" in "".join((*pattern.words[:1], *pattern.wrapped)):
        return "A rule that approves should name the program that runs, also after a wrapper such as `sudo`"
    return None


@lru_cache(maxsize=2048)
def command_pattern(text: str) -> CommandPattern:
    """Parse a pattern without faults."""
    words: list[str] = []
    sets: list[tuple[str, str]] = []
    writes: list[tuple[str, str]] = []
    for one in re.findall(r">>? *[^ >]+|[^ >]+", text):
        if one[0] == ">":
            writes.append((">>" if one[:2] == ">>" else ">", one.lstrip("> ")))
        elif (match := _SET.fullmatch(one)) and not words:
            sets.append((match[1], match[2]))
        else:
            words.append(one)
    written = Command(tuple(map(Word, words)))
    found: list[Command] = []
    with suppress(Doubt):
        WrapperFollower(found.append, lambda *_: None, lambda _: None).follow(written, Around())
    inner = next((one for one in reversed(found) if not one.is_followed and one.words), written)
    return CommandPattern(
        tuple(word.text for word in inner.words),
        tuple(sets),
        tuple(writes),
        inner.wrapped,
        tuple(words),
        _head(inner.words[0].text),
        _head(words[0]),
    )


def _head(name: str) -> str:
    return "" if "*" in name else unversioned(plain_name(name.rpartition("/")[2]))


# allow


def allowed(pattern: CommandPattern, line: Line) -> frozenset[int]:
    """Return the positions of a line's commands that a pattern allows."""
    if pattern.words[0] not in line.names:
        return frozenset()
    return frozenset(place for place, one in enumerate(line.commands) if one.words and _allows(pattern, one))


def _allows(pattern: CommandPattern, command: Command) -> bool:
    name, *words = command.words
    first, *wanted = pattern.words
    return (
        name.is_whole
        and first in (name.text, FOLDERS.sub("", name.text, count=1))
        and command.wrapped == pattern.wrapped
        and _sets_fit(pattern, command)
        and all(_may_write(pattern, write) for write in command.writes)
        and not any(names_secret(word.text) for word in command.reads)
        and _fits(wanted, words, _covered(command.name, words))
    )


def _sets_fit(pattern: CommandPattern, command: Command) -> bool:
    missing = dict(pattern.sets)
    for name, value in command.sets:
        if name in missing:
            if not value.is_whole or not _is_like(missing.pop(name), value.text):
                return False
        elif not HARMLESS_VARIABLES.fullmatch(name):
            return False
    return not missing


def _may_write(pattern: CommandPattern, write: Write) -> bool:
    return write.path.is_whole and any(
        sign in (">", write.sign) and _is_like(path, write.path.text) for sign, path in pattern.writes
    )


def _is_like(wanted: str, text: str) -> bool:
    """Return whether a text matches a word of a pattern. No `*` leaves a folder by `..`, or matches several lines."""
    if "*" not in wanted:
        return wanted == text
    if ".." in text.split("/") and ".." not in wanted.split("/"):
        return False
    return re.fullmatch(".*".join(map(re.escape, wanted.split("*"))), text) is not None


def _fits(wanted: Sequence[str], words: Sequence[Word], covered: Sequence[bool]) -> bool:
    """Return whether words match those of a pattern, all of them and in their order."""
    ends = {0}
    for one in wanted:
        if one == "*":
            reached = set(ends)
            for place in sorted(ends):
                while place < len(words) and covered[place]:
                    place += 1
                    reached.add(place)
            ends = reached
        else:
            ends = {place + 1 for place in ends if place < len(words) and _is_word(one, words[place], covered[place])}
    return len(words) in ends


def _is_word(wanted: str, word: Word, is_covered: bool) -> bool:
    """Return whether a word matches a pattern's word. A word that is not written out may leave a folder by `..`."""
    return word.is_whole and ("*" not in wanted or wanted[0] != "*" or is_covered) and _is_like(wanted, word.text)


def uncovered(command: Command) -> list[Word]:
    """Return the words of a command that `*` does not match: they may run another program, or write elsewhere."""
    words = command.words[1:]
    covered = _covered_by_program(command.name, words)
    return [word for word, is_covered in zip(words, covered, strict=True) if not is_covered]


def _covered(name: str, words: Sequence[Word]) -> list[bool]:
    """Return for each word whether `*` may match it: never for words that name secrets."""
    covered = _covered_by_program(name, words)
    return [is_covered and not _may_name_secret(word) for is_covered, word in zip(covered, words, strict=True)]


def _may_name_secret(word: Word) -> bool:
    return names_secret(word.text) if word.is_whole else may_name_hidden(word.text)


def _covered_by_program(name: str, words: Sequence[Word]) -> list[bool]:
    texts = [word.text for word in words]
    known = program_of(name, next((text for text in texts if text[:1] != "-"), ""))
    if known.script is not None and not (
        all(word.known in ("whole", "begins") for word in words) and has_plain_script(name, texts)
    ):
        return [False] * len(words)
    script = script_place(name, texts)
    if script is not None:
        own = program(texts[script]) if "-m" in texts[:script] else ProgramWords()
        return _covered_by(known, words[: script + 1]) + _covered_by(own, words[script + 1 :])
    return _covered_by(known, words)


def _covered_by(known: ProgramWords, words: Sequence[Word]) -> list[bool]:
    operand = next((place for place, word in enumerate(words) if word.text[:1] != "-"), None)
    before = operand if known.verb_first and operand is not None else 0
    return [place >= before and _is_covered(known, word, is_first=place == operand) for place, word in enumerate(words)]


def _is_covered(known: ProgramWords, word: Word, *, is_first: bool) -> bool:
    if known.is_plain:
        return True
    if word.known in ("one", "any"):
        return False
    text = word.text
    if text.partition("=")[0] in known.exact or (known.never is not None and known.never.fullmatch(text)):
        return False
    if is_first and (text in known.verbs or (known.bundled and text.isalpha() and not known.letters.isdisjoint(text))):
        return False
    if text[:2] == "--" and len(text) > len("--"):
        name = text[2:].partition("=")[0]
        return not any(dangerous.startswith(name) for dangerous in known.names)
    if text[:1] == "-":
        return known.letters.isdisjoint(text[1:]) and text[1:].partition("=")[0] not in known.names
    return True


# reject


def refused(pattern: CommandPattern, line: Line) -> bool | None:
    """Return whether a pattern rejects a line; None if unsure."""
    heads = {pattern.raw_head} if pattern.is_of_wrapper else {pattern.head, pattern.raw_head}
    if "" not in heads and heads.isdisjoint(line.heads):
        return None if line.is_unsure else False
    answers = {_refuses(pattern, command) for command in line.commands}
    return True if True in answers else None if None in answers or line.doubts else False


def _refuses(pattern: CommandPattern, command: Command) -> bool | None:
    values = run_values(command)
    by_value = _names(pattern.words, values) if values else False
    if not command.words:
        return by_value
    answers = [_refuses_words(pattern.raw, command), by_value, None if command.is_opaque else False]
    return _any(answers if pattern.is_of_wrapper else [_refuses_words(pattern.words, command), *answers])


def _any(answers: Sequence[bool | None]) -> bool | None:
    return True if True in answers else None if None in answers else False


def _all(answers: Sequence[bool | None]) -> bool | None:
    return False if False in answers else None if None in answers else True


def _refuses_words(wanted: Sequence[str], command: Command) -> bool | None:
    name, first = plain_name(command.name), plain_name(wanted[0].rpartition("/")[2])
    words = command.words[1:]
    if _is_like(first, name):
        return _begins(wanted[1:], words)
    if unversioned(name) == unversioned(first) and first:
        return None if _begins(wanted[1:], words) is not False else False
    return _names(wanted, words) if not command.is_followed and may_run_words(name) else False


def _names(wanted: Sequence[str], words: Sequence[Word]) -> bool | None:
    """Return whether words that may be run name the command: None (unsure) or False."""
    plain = [one.lower().rpartition("/")[2] for one in wanted if "*" not in one and one[:1] != "-"]
    return None if plain and tokens(words).issuperset(plain) else False


def _begins(wanted: Sequence[str], words: Sequence[Word]) -> bool | None:
    """Return whether words begin with those of a pattern, with any options between and after them."""
    options = [one for one in wanted if one[:1] == "-" and one != "-"]
    operands = [one for one in wanted if one[:1] != "-" or one == "-"]
    return _all([_has_operands(operands, words), *(_has_option(one, words) for one in options)])


def _has_operands(wanted: Sequence[str], words: Sequence[Word]) -> bool | None:
    """Return whether the words that are not options begin with the wanted words."""
    states: dict[int, bool | None] = {0: True}  # number of wanted words found → whether that is sure
    is_value = False  # the word before is an option, which may have this word as its value
    for word in words:
        if len(wanted) in states and states[len(wanted)]:
            return True
        is_option = word.is_whole and word.text[:1] == "-" and len(word.text) > 1
        after: dict[int, bool | None] = {}
        for found, is_sure in states.items():
            if found == len(wanted) or is_option:
                _join(after, found, is_sure)
            else:
                _meet(after, wanted, found, word, is_sure, is_value=is_value)
        states, is_value = after, is_option and "=" not in word.text
    while states:
        ended = {found: is_sure for found, is_sure in states.items() if found == len(wanted)}
        if ended:
            return ended[len(wanted)]
        states = {found + 1: is_sure for found, is_sure in states.items() if wanted[found] == "*"}
    return False


def _meet(
    after: dict[int, bool | None],
    wanted: Sequence[str],
    found: int,
    word: Word,
    is_sure: bool | None,
    *,
    is_value: bool,
) -> None:
    """Add the states after a word that is not an option, or is unknown."""
    one = wanted[found]
    if one == "*":
        _join(after, found, is_sure)
        _meet_next(after, wanted, found + 1, word, is_sure)
        return
    if is_value or word.known == "any":
        _join(after, found, None)
    if word.known == "any":
        for further in range(found + 1, len(wanted) + 1):
            _join(after, further, None)
    elif word.known != "whole":
        if word.known == "one" or one.lower().startswith(word.text.lower()) or "*" in one:
            _join(after, found + 1, None)
    elif _is_like(one.lower(), word.text.lower()):
        _join(after, found + 1, is_sure)
    elif "/" in one and (".." in word.text or "//" in word.text or word.text.startswith("./")):
        _join(after, found + 1, None)


def _meet_next(
    after: dict[int, bool | None], wanted: Sequence[str], found: int, word: Word, is_sure: bool | None
) -> None:
    if found < len(wanted) and wanted[found] != "*":
        _meet(after, wanted, found, word, is_sure, is_value=False)
    elif found == len(wanted):
        _join(after, found, is_sure)


def _join(states: dict[int, bool | None], found: int, is_sure: bool | None) -> None:
    states[found] = True if states.get(found) or is_sure else None


def _has_option(wanted: str, words: Sequence[Word]) -> bool | None:
    """Return whether an option is among words, in its short or its long form."""
    texts = [word.text for word in words if word.text[:1] == "-"]
    unsure = None if any(word.known in ("any", "one") for word in words) else False
    if "*" in wanted:
        return True if any(_is_like(wanted, text) for text in texts) else unsure
    long_names = [text[2:].partition("=")[0].lower() for text in texts if text[:2] == "--" and len(text) > 2]
    letters = {letter for text in texts if text[:2] != "--" for letter in text[1:].lower()}
    if wanted in texts:
        return True
    if wanted[:2] == "--":
        name = wanted[2:].partition("=")[0].lower()
        if name in long_names:
            return True if "=" not in wanted else None
        return None if name[:1] in letters or any(name.startswith(one) for one in long_names) else unsure
    missing = set(wanted[1:].lower()) - letters
    if not missing:
        return True
    return None if all(any(one.startswith(letter) for one in long_names) for letter in missing) else unsure


def rejects_text(parts: list[str], text: str) -> bool | None:
    """Return whether a text that `fits_widely` leaves unsure is rejected, by one of its commands as a shell line.

    parts: the literal parts of a pattern of text. False only if every command is written out, and runs no code.
    """
    line = read_line(text)
    answers: list[bool | None] = [None if line.doubts else False]
    for command in line.commands:
        words = " ".join(word.text for word in command.words)
        answer = fits_literally(parts, words)
        values = [*command.words, *(value for _, value in command.sets)]
        is_clear = not (command.is_opaque or command.is_fed or command.writes) and all(one.is_whole for one in values)
        answers.append(answer if answer or is_clear else None)
    return _any(answers)
