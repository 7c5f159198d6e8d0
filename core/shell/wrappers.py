"""From a command as written to the commands that it runs: wrappers, shells, `find -exec`, Git's own options."""

import re
from collections.abc import Callable
from dataclasses import replace

from core.shell.programs import (
    CODE,
    CODE_VERBS,
    FIND_COMMANDS,
    GIT_FLAGS,
    GIT_QUIET,
    GIT_SETTINGS,
    GIT_VALUES,
    HIDING,
    NAMING_BY_OPTION,
    READING,
    SHELL_FLAGS,
    SHELLS,
    TURNING,
    Wrapper,
    has_plain_script,
    names_variables,
    plain_name,
    program,
    script_place,
    wrapper,
)
from core.shell.reader import Around
from core.shell.words import ANY, FILE, RUN_SUBSCRIPT, Command, Doubt, Word

#: Maximum number of wrappers around a command: shells, `env`, `find -exec`.
MOST_DEPTH = 8

#: Words of the shell's syntax. As a command's name they show that the parser was wrong.
_RESERVED = frozenset(
    {
        *("if", "then", "else", "elif", "fi", "for", "while", "until"),
        *("do", "done", "case", "esac", "in", "select", "function", "coproc"),
        *("{", "}", "!", "[[", "]]"),
    }
)

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)

#: A subscript other than a number: a shell evaluates it.
_SUBSCRIPT = re.compile(r"\[(?![0-9]*\])")

#: Valid characters of a program's name, without letters that look like others.
_NAME = re.compile(r"[\x21-\x7e]+")


class WrapperFollower:
    """Follows a command to the commands that it runs.

    receive: receives each command. read: receives the text of an inner shell. doubt: receives each doubt.
    """

    def __init__(
        self, receive: Callable[[Command], None], read: Callable[[str, Around], None], doubt: Callable[[str], None]
    ) -> None:
        self._receive, self._read, self._doubt = receive, read, doubt

    def follow(self, command: Command, around: Around) -> None:
        """Pass on a command, and the commands that it runs."""
        if around.depth > MOST_DEPTH:
            raise Doubt("Its wrappers are nested too deeply")
        command = replace(command, wrapped=around.wrapped)
        if not command.words:
            self._receive(command)
            return
        name = command.words[0]
        if not name.is_whole or not _NAME.fullmatch(name.text):
            self._receive(command)
            raise Doubt("It runs a program whose name is not written out")
        base = plain_name(command.name)
        if name.text in _RESERVED or "=" in name.text:
            self._receive(command)
            raise Doubt("It has a part of the shell's syntax as the name of a program")
        if base in TURNING or command.name in TURNING:
            self._receive(command)
            raise Doubt(f"`{base}` changes what names mean, or runs a text")
        if _has_subscript(base, command):
            self._receive(command)
            raise Doubt(f"`{base}` may run the content of a subscript")
        if base in HIDING:
            self._receive(replace(command, is_opaque=True))
            self._doubt(f"The command that `{base}` runs is not followed")
        elif base == "eval":
            self._eval(command, around)
        elif base in SHELLS:
            self._shell(command, around, base)
        elif base == "find":
            self._find(command, around)
        elif _only_asks(base, command):
            self._receive(replace(command, is_followed=True))
        elif followed := wrapper(base):
            self._wrapper(command, around, followed, base)
        elif base == "git" or base.startswith("git-"):
            self._git(command, base)
        else:
            self._receive(replace(command, is_opaque=_runs_code(command, base)))
            if _reads_code(command, base):
                raise Doubt(f"It feeds `{base}` with code")

    def _eval(self, command: Command, around: Around) -> None:
        self._receive(replace(command, is_followed=True))
        if not all(word.is_whole for word in command.words):
            raise Doubt("`eval` runs a text that is not written out")
        text = " ".join(word.text for word in command.words[1:])
        self._read(text, replace(around, depth=around.depth + 1, wrapped=command.wrapped))

    def _shell(self, command: Command, around: Around, base: str) -> None:
        place, is_text = self._shell_options(command)
        is_read = any(re.fullmatch("-[a-z]*s[a-z]*", word.text) for word in command.words[1:place])
        script = command.words[place] if place < len(command.words) and not (is_read and not is_text) else None
        if script is not None and not is_text:
            self._receive(command)
            if not script.is_whole:
                raise Doubt("It runs a file whose name is not written out")
            return
        text = None if script is None and is_text else around.text if script is None else script.text
        if text is None or (script is not None and not script.is_whole):
            self._receive(command)
            raise Doubt("It starts a shell whose commands are not written out")
        self._receive(replace(command, is_followed=True))
        if command.sets:  # they apply to all that the shell runs
            self._receive(Command((), command.sets, wrapped=command.wrapped))
        inner = replace(
            around, depth=around.depth + 1, is_posix=base != "bash", is_fed=script is not None and around.is_fed
        )
        self._read(text, replace(inner, text=None, writes=command.writes))

    def _shell_options(self, command: Command) -> tuple[int, bool]:
        """Return where the options of a shell end, and whether a text follows them."""
        words, place, is_text = command.words, 1, False
        while place < len(words) and words[place].is_whole and words[place].text[:1] in ("-", "+"):
            word = words[place].text
            place += 1
            if word in ("-", "--"):
                break
            letters = word if word[:2] == "--" else word.replace("c", "", 1)
            is_text |= letters != word
            if letters[:2] != "--" and letters[-1] == "o":
                letters, place = letters[:-1], place + 1
            if len(letters) > 1 and not SHELL_FLAGS.fullmatch(letters):
                self._receive(command)
                raise Doubt("It has an option of a shell that is not followed")
        return place, is_text

    def _find(self, command: Command, around: Around) -> None:
        rest: list[Word] = []
        words, place, commands = command.words, 0, []
        while place < len(words):
            word = words[place]
            if not word.is_whole or word.text not in FIND_COMMANDS:
                rest.append(word)
                place += 1
                continue
            end = next((at for at in range(place + 1, len(words)) if words[at].text in (";", "+")), None)
            if end is None or end == place + 1:
                self._receive(command)
                raise Doubt("It has a command of `find` without an end")
            found = _found_by(words) if word.text in ("-exec", "-ok") else Word("", "one")
            commands.append(tuple(_filled(one, "{}", found) for one in words[place + 1 : end]))
            place = end + 1
        self._receive(replace(command, words=tuple(rest)))
        if commands:
            self._receive(replace(command, is_followed=True))
        if any(word.text == "-delete" for word in rest):
            self._receive(replace(command, words=(Word("rm"), ANY), is_followed=True))
        for one in commands:
            self.follow(replace(command, words=one, writes=()), replace(around, depth=around.depth + 1))

    def _wrapper(self, command: Command, around: Around, wrapper: Wrapper, base: str) -> None:
        self._receive(replace(command, is_followed=True))
        words, place, replaced = command.words, 1, ""
        while place < len(words) and words[place].is_whole and words[place].text[:1] == "-":
            word = words[place].text
            name, has_value, _ = word.partition("=")
            is_short_value = word[:2] != "--" and len(word) > 2 and word[:2] in wrapper.values
            if word == "--":
                place += 1
                break
            if base == "xargs" and word[:2] in ("-I", "-i"):
                replaced = word[2:] or (words[place + 1].text if place + 1 < len(words) else "")
            if word in wrapper.values:
                place += 2
            elif (
                (name in wrapper.values and has_value)
                or is_short_value
                or word in wrapper.flags
                or _is_number(base, word)
            ) or (word[:2] not in ("-", "--") and all("-" + letter in wrapper.flags for letter in word[1:])):
                place += 1
            else:
                raise Doubt(f"It has an option of `{base}` that is not followed")
        sets = list(command.sets)
        while wrapper.sets and place < len(words) and (match := _ASSIGNMENT.fullmatch(words[place].text)):
            sets.append((match[1], Word(match[2], words[place].known)))
            if words[place].known == "any":
                raise Doubt("It sets a variable that is not written out")
            place += 1
        operands, place = words[place : place + wrapper.operands], place + wrapper.operands
        if any(not word.is_whole for word in (*operands, *words[1:place])) and not sets:
            raise Doubt(f"It has a word of `{base}` that is not written out")
        inner = list(words[place:])
        if wrapper.adds:
            if base == "xargs" and not inner:
                return
            inner = [_filled(word, replaced, ANY) for word in inner] + ([] if replaced else [ANY])
        if not inner:
            if base in ("env", "time", "nice", "exec", "sudo"):  # `env` prints, for example
                self._receive(replace(command, sets=tuple(sets)))
                return
            raise Doubt(f"It has a command of `{base}` that is not understood")
        wrapped = command.wrapped if wrapper.is_plain else (*command.wrapped, *(word.text for word in words[:place]))
        below = Command(tuple(inner), tuple(sets), command.writes, command.is_fed and not wrapper.adds)
        self.follow(
            below, replace(around, depth=around.depth + 1, wrapped=wrapped, text=None if wrapper.adds else around.text)
        )

    def _git(self, command: Command, base: str) -> None:
        if base != "git":
            verb = Word(base.removeprefix("git-"))
            self._receive(command)
            self._receive(replace(command, words=(Word("git"), verb, *command.words[1:]), is_followed=True))
            return
        words, place = command.words, 1
        quiet: list[Word] = []
        is_opaque = False
        while place < len(words) and words[place].is_whole and words[place].text[:1] == "-":
            word = words[place].text
            following = words[place + 1] if place + 1 < len(words) else Word("")
            if word == "-c" and following.is_whole and GIT_SETTINGS.fullmatch(following.text):
                quiet += words[place : place + 2]
                place += 2
            elif word in GIT_QUIET:
                quiet.append(words[place])
                place += 1
            elif word in GIT_VALUES:
                place += 2
            elif word in GIT_FLAGS or word.partition("=")[0] in GIT_VALUES:
                place += 1
            else:  # -c, --config-env, --exec-path: any verb may run a program
                is_opaque = True
                place += 2 if word in ("-c", "--config-env") else 1
        if place < len(words) and words[place].known in ("one", "any"):  # it may be an option
            is_opaque = True
        plain = (words[0], *words[place:])
        if len(plain) + len(quiet) == len(words):
            self._receive(replace(command, words=plain, is_opaque=is_opaque))
            return
        self._receive(replace(command, is_opaque=is_opaque))
        self._receive(replace(command, words=plain, is_followed=True))


def _found_by(words: tuple[Word, ...]) -> Word:
    """Return what `find` puts in place of `{}`: a path that begins like its search paths."""
    texts = [word.text if word.is_whole else "" for word in words[1:]]
    end = next((place for place, text in enumerate(texts) if text[:1] in ("-", "(", "!")), len(texts))
    if all(text == "." or text.startswith("./") for text in texts[:end]):
        return FILE
    return Word("/", "begins") if all(text.startswith("/") for text in texts[:end]) else Word("", "one")


def _has_subscript(base: str, command: Command) -> bool:
    """Return whether a word of a builtin has a subscript that runs a command, or may have one in a variable's name."""
    words = command.words[1:]
    if names_variables(base, [word.text for word in words]):
        return any(not word.is_whole or _SUBSCRIPT.search(word.text) for word in words)
    return base in NAMING_BY_OPTION and any(RUN_SUBSCRIPT.search(word.text) for word in words)


def _only_asks(base: str, command: Command) -> bool:
    """Return whether `command -v git` only names a program."""
    return base == "command" and len(command.words) > 1 and command.words[1].text in ("-v", "-V")


def _is_number(base: str, word: str) -> bool:
    return base == "nice" and word[1:].isdigit()


def _filled(word: Word, mark: str, by: Word) -> Word:
    """Return a word in which a wrapper replaces a mark by its result."""
    if not mark or mark not in word.text:
        return word
    if word.text == mark:
        return by
    text = word.text.partition(mark)[0]
    return Word(text, "begins" if text and text[0] != "-" else "one")


def _runs_code(command: Command, base: str) -> bool:
    """Return whether a program runs code, and has code or reads it."""
    words = command.words[1:]
    if program(base).script is not None:
        return not all(word.is_whole for word in words[:1]) or not has_plain_script(base, [word.text for word in words])
    if not CODE.fullmatch(base):
        return False
    place = script_place(base, [word.text for word in words])
    if place is not None and all(word.known in ("whole", "begins") for word in words[: place + 1]):
        return words[0].text in CODE_VERBS
    return (
        not words
        or any(word.text[:1] in ("-", "+") or word.known in ("one", "any") for word in words)
        or words[0].text in CODE_VERBS
    )


def _reads_code(command: Command, base: str) -> bool:
    """Return whether a program runs text that it reads from the line."""
    if not command.is_fed or not CODE.fullmatch(base) or program(base).script is not None:
        return False
    return READING.fullmatch(base) is not None or not any(word.text[:1] not in ("-", "") for word in command.words[1:])
