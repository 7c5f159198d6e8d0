"""What an action does, as the server sees it: its effects, each with a risk.

The tables of `core/effects.toml` say what tools, programs and their options do. `seen` is a pure function of an action
and its folder. It reads a shell line by `core/shell`: every command of it counts, also within wrappers, and so does
every redirection. Its risk is the greatest of its effects.

Doubts raise: a line that is not read whole is `unreadable`, a program or tool that is in no table is `unknown`, a file
whose path is not written out lies outside the folder. A wrapper, a redirection or a further command only adds effects.

Limitation: what a program does with files, settings and hooks of its own does not show in a line, nor do aliases,
links, variables and the folder of earlier lines.
"""

import posixpath
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from core.cuts import beginning
from core.incomplete import is_complete
from core.secret_files import names_secret
from core.shell import MOST_LINE, read_line
from core.shell.line import Line, run_values, unversioned
from core.shell.programs import (
    FOLDERS,
    HARMLESS_VARIABLES,
    HIDING,
    LOCAL_VARIABLES,
    SHELLS,
    TURNING,
    plain_name,
    wrapper,
)
from core.shell.rules import uncovered
from core.shell.words import ANY, Command, Word

_TABLE: dict[str, Any] = tomllib.loads((Path(__file__).parent / "effects.toml").read_text())

#: Risks from harmless to dangerous; an action of any other risk is of an unknown one.
RISKS = ("LOW", "MEDIUM", "HIGH")

#: The risk of each effect, and its words, in the order in which effects are shown.
RISK_OF: dict[str, str] = {name: row["risk"] for name, row in _TABLE["effects"].items()}
WORDS_OF: dict[str, str] = {name: row["words"] for name, row in _TABLE["effects"].items()}

#: Maximum number of characters of a reason, and of commands that are looked for among the words of another.
MOST_BECAUSE, _MOST_NAMED = 80, 8

_TOOLS = {kind: frozenset(names.split()) for kind, names in _TABLE["tools"].items()}
#: arguments of a shell tool that say nothing without a command
_BESIDE = frozenset({"cwd", "workdir", "working_dir", "is_input", "reset", "timeout", "description", "kind"})

_TEMPORARY, _HARMLESS = (tuple(_TABLE["places"][name].split()) for name in ("temporary", "harmless"))
_SECRET_TEXT = re.compile(_TABLE["credentials"]["text"], re.IGNORECASE)
_RUNNING = {name: frozenset(words.split()) for name, words in _TABLE["running"].items()}
_ALONE = {effect: frozenset(names.split()) for effect, names in _TABLE["alone"].items()}
_SAME = {other: name for name, others in _TABLE["same"].items() for other in others.split()}

#: Effects of a program, by its name. Some stand for files until it is known where those lie: `_MARKS`.
_PROGRAMS: dict[str, frozenset[str]] = {}
for _effect, _names in _TABLE["programs"].items():
    for _name in _names.split():
        _PROGRAMS[_name] = _PROGRAMS.get(_name, frozenset()) | {_effect}
for _name, _effects in _TABLE["more"].items():
    _PROGRAMS[_name] = _PROGRAMS.get(_name, frozenset()) | frozenset(_effects.split())

#: Effects of a program's verbs.
_VERBS: dict[str, dict[str, frozenset[str]]] = {}
for _name, _rows in _TABLE["verbs"].items():
    _known: dict[str, frozenset[str]] = {}
    for _effect, _names in _rows.items():
        if isinstance(_names, str):
            for _verb in _names.split():
                _known[_verb] = _known.get(_verb, frozenset()) | {_effect}
    for _verb, _effects in _rows.get("more", {}).items():
        _known[_verb] = _known.get(_verb, frozenset()) | frozenset(_effects.split())
    _VERBS[_name] = _known

#: Effects of options, by a program or `PROGRAM VERB`.
_OPTIONS: dict[str, list[tuple[frozenset[str], str]]] = {
    name: [(frozenset(options.split()), effect) for options, effect in rows.items()]
    for name, rows in _TABLE["options"].items()
}

#: Marks of files: `writes` and `removes`: those among the words of a command; `writes_last`: its last word. An option
#: may also have `writes_to`: the word after it. `mode`: the words are modes of files; of an option, the word after it.
_MARKS = frozenset({"writes", "removes", "writes_last", "mode"})

#: Modes that let others write, or a program run as its owner.
_OPENING = re.compile(_TABLE["modes"]["opening"])

#: Programs whose first word that is no option is no file, unless one of these options has it.
_EXPRESSIONS = frozenset(_TABLE["expressions"]["programs"].split())
_EXPRESSION = re.compile(r"-[A-Za-z]*[ef].*|--(?:e|f|r).*")

#: Texts that a line only passes on, and code in a shell's word.
_PASSED_ON = re.compile(r"(?<=<<)(-?\s*)(['\"])(\w+)\2(.*)\n(?:.*\n)*?\s*\3(?=\n|$)")
_TOKEN = re.compile(r"[^\s'\"();|&<>]+")

#: A text within a word that may be the name of a command, and the `=` after it.
_NAME_IN_WORD = re.compile(r"([^\s=;|&()'\"]+)(=?)")

#: Effects beside which it says nothing more that a word of a program may run another.
_GRAVE = frozenset(name for name, risk in RISK_OF.items() if risk == "HIGH") | {"scripts", "unknown"}

#: Names of programs that are found among the words of others, and what is a command of its own after it was followed.
_NAMED = frozenset(
    name for name, effects in _PROGRAMS.items() if any(RISK_OF.get(one) == "HIGH" for one in effects)
) - _RUNNING["common"] | {"git", "systemctl"}
_FOLLOWED = SHELLS | {"env", "find"}

#: Folders in which a program is that of its name.
_SYSTEM = re.compile(FOLDERS.pattern + r"|.*/git-core/git")

_URL = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)
_REMOTE = re.compile(r"[\w.@-]+:(?!//)")
_ASKS = frozenset({Word("--version"), Word("--help"), Word("-V")})
_READING = frozenset({"reads", "reads_outside"})
_OPEN = frozenset("~$*?[{")
_SAYING = frozenset({"echo", "printf"})
_TYPED = frozenset({"", "C-c", "C-d", "C-z"})


class _Scripts(NamedTuple):
    """The plain scripts of a program."""

    options: re.Pattern[str]
    holding: frozenset[str]
    values: frozenset[str]
    like: re.Pattern[str]


_SCRIPTS = {
    name: _Scripts(
        re.compile(row["options"]),
        frozenset(row["holding"].split()),
        frozenset(row["values"].split()),
        re.compile(row["like"], re.DOTALL),
    )
    for name, row in _TABLE["scripts"].items()
}


class Effect(NamedTuple):
    """One thing that an action does."""

    effect: str
    risk: str
    because: str  #: the command, the file or the tool of it


class Seen(NamedTuple):
    """What the server sees of an action."""

    risk: str
    effects: tuple[Effect, ...]  #: each name once
    written: tuple[Word, ...] = ()  #: names of the files that it writes; ANY for files that are not named

    @property
    def names(self) -> frozenset[str]:
        return frozenset(one.effect for one in self.effects)


def shows_secret(line: str) -> bool:
    """Whether a shell line names what usually has secrets, apart from files: a variable such as `$GITHUB_TOKEN`."""
    return _SECRET_TEXT.search(line) is not None


def greater(risk: Any, seen: str) -> str:
    """The greater of the agent's word and of what the server sees. An unknown word gives the latter."""
    return max(risk, seen, key=RISKS.index) if risk in RISKS else seen


def seen(tool_name: Any, arguments: Any, folder: str | None = None, *, without: frozenset[int] = frozenset()) -> Seen:
    """The effects of an action.

    arguments: as people are shown them. folder: absolute path of the conversation's folder; None if it is unknown.
    without: commands of a shell line, by their place, whose own effects do not count.
    """
    name = tool_name.lower() if isinstance(tool_name, str) else ""
    if not is_complete(arguments):
        return _made({"unreadable": "the agent does not show the arguments"})
    if isinstance(arguments, dict) and arguments.keys() == {"data"} and isinstance(arguments["data"], dict):
        arguments = arguments["data"]  # of a tool that is not the server's own
    given = arguments if isinstance(arguments, dict) else {}
    folder = _folder(folder)
    if name in _TOOLS["shell"]:
        if given is not arguments:
            return _made({"unreadable": "arguments without names"})
        return _of_shell(given, folder, without)
    if name in _TOOLS["nothing"]:
        return _made({})
    found: dict[str, str] = {}
    if name in _TOOLS["editor"]:
        _see_files(found, given, folder, is_viewing=str(given.get("command")) in _TOOLS["viewing"])
    elif name in _TOOLS["deletes"]:
        found["deletes"] = _path_of(given) or name
        _see_files(found, given, folder, is_viewing=False)
    elif name in _TOOLS["reads"] | _TOOLS["writes"]:
        _see_files(found, given, folder, is_viewing=name in _TOOLS["reads"])
    elif name in _TOOLS["network"]:
        found["network"] = name
    else:
        found["unknown"] = name or "a tool without a name"
    return _made(found, [] if found.keys() <= _READING else [Word(_path_of(given))])


def _made(found: Mapping[str, str], written: Sequence[Word] = ()) -> Seen:
    effects = tuple(
        Effect(name, risk, beginning(" ".join(found[name].split()), MOST_BECAUSE))
        for name, risk in RISK_OF.items()
        if name in found
    )
    return Seen(max((one.risk for one in effects), key=RISKS.index, default=RISKS[0]), effects, tuple(written))


def _folder(folder: str | None) -> str | None:
    if not folder or not folder.startswith("/"):
        return None
    folder = posixpath.normpath(folder)
    return None if folder.strip("/") == "" else folder


# tools for files


def _path_of(given: Mapping[str, Any]) -> str:
    return next((path for name in sorted(_TOOLS["paths"]) if isinstance(path := given.get(name), str) and path), "")


def _see_files(found: dict[str, str], given: Mapping[str, Any], folder: str | None, *, is_viewing: bool) -> None:
    path = _path_of(given)
    place = _place(path, folder) if path else "inside" if is_viewing else "outside"
    found[_reading(place) if is_viewing else _writing(place)] = path or "a path that is not named"
    if names_secret(path):
        found["credentials"] = path


def _reading(place: str) -> str:
    return "reads" if place in ("inside", "harmless", "temporary") else "reads_outside"


def _writing(place: str) -> str:
    return "reads" if place == "harmless" else f"writes_{place}"


def _place(path: str, folder: str | None, *, is_elsewhere: bool = False) -> str:
    """Where a path lies: inside, outside, temporary or harmless. Links do not show."""
    if path in _HARMLESS:
        return "harmless"
    if path.startswith("~") or (is_elsewhere and not path.startswith("/")):
        return "outside"
    whole = posixpath.normpath(posixpath.join(folder or "", path))
    if whole.startswith("//"):
        whole = whole[1:]
    if folder is not None and _is_below(whole, folder):
        return "inside"
    if not whole.startswith("/"):
        return "outside" if whole == ".." or whole.startswith("../") else "inside"
    return "temporary" if any(_is_below(whole, one) for one in _TEMPORARY) else "outside"


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + "/")


# shell lines


def _of_shell(given: Mapping[str, Any], folder: str | None, without: frozenset[int]) -> Seen:
    lines = [given[name] for name in ("command", "cmd") if isinstance(given.get(name), str)]
    if given.get("is_input"):
        typed = "".join(lines)
        return _made({} if typed in _TYPED else {"unreadable": f"typed into a program: {typed}"})
    where = [value for name in ("cwd", "workdir", "working_dir") if (value := given.get(name))]
    is_elsewhere = any(not isinstance(value, str) or _place(value, folder) != "inside" for value in where)
    if len(lines) != 1:
        return _made({"unreadable": "a command that is not named"} if lines or given.keys() - _BESIDE else {})
    return _of_line(lines[0], folder, is_elsewhere, without)


@lru_cache(maxsize=1024)
def _of_line(text: str, folder: str | None, is_elsewhere: bool, without: frozenset[int]) -> Seen:
    reader = _LineReader(text, read_line(text), folder, is_elsewhere=is_elsewhere, without=without)
    return _made(reader.found, reader.written)


class _LineReader:
    """Collects the effects of a line."""

    def __init__(
        self, text: str, line: Line, folder: str | None, *, is_elsewhere: bool, without: frozenset[int]
    ) -> None:
        self.found: dict[str, str] = {}
        self.written: list[Word] = []
        self._folder, self._is_elsewhere = folder, is_elsewhere
        text = text[:MOST_LINE]
        commands = [command for command in line.commands if command.words]
        #: whether a word that is not written out is one by patterns of files alone, which find no file elsewhere
        self._has_patterns_alone = not re.search(r"[$`]|\.\.", text) and all(one.name != "xargs" for one in commands)
        self._is_elsewhere |= any(map(self._leaves, commands))
        if line.doubts:
            self._add("unreadable", line.doubts[0])
        else:
            text = _PASSED_ON.sub(r"\1\4", text)
        for token in _TOKEN.findall(text):
            if line.doubts or not _OPEN.isdisjoint(token):  # the reader of the line has no path of it
                self._add_secret(token)
        if match := _SECRET_TEXT.search(text):
            self._add("credentials", match[0])
        for place, command in enumerate(line.commands):
            if place not in without:
                self._command(command)

    def _add(self, effect: str, because: str) -> None:
        self.found.setdefault(effect, because)

    def _add_secret(self, path: str) -> None:
        if names_secret(path):
            self._add("credentials", path)

    def _leaves(self, command: Command) -> bool:
        """Whether the commands after one may run in another folder."""
        if command.name not in ("cd", "pushd", "popd"):
            return False
        places = [word for word in command.words[1:] if word.text[:1] != "-" or len(word.text) == 1]
        return not places or any(
            not one.is_whole or one.text == "-" or self._place(one) not in ("inside",) for one in places
        )

    # files

    def _place(self, word: Word) -> str:
        if word.is_whole or (self._has_patterns_alone and (word.text or word.known == "any")):
            return _place(word.text, self._folder, is_elsewhere=self._is_elsewhere)
        return "outside"

    def _writes(self, words: Iterable[Word], because: str) -> None:
        for word in words:
            self._add(_writing(self._place(word)), f"{because}{_shown(word)}" if because[-1:] == " " else because)
            self._add_secret(word.text)
            self.written.append(word)

    def _command(self, command: Command) -> None:
        for write in command.writes:
            self._writes([write.path], f"{write.sign} ")
        for word in command.reads:
            self._add(_reading(self._place(word)), f"< {_shown(word)}")
            self._add_secret(word.text)
        for name, value in command.sets:
            is_known = HARMLESS_VARIABLES.fullmatch(name) or (not command.words and LOCAL_VARIABLES.fullmatch(name))
            if not is_known:
                self._add("unknown", f"{name}={_shown(value)}")
        for value in run_values(command):
            self._named([Word(text) for text in value.text.split()])
        if command.words:
            self._program(command)

    # programs

    def _program(self, command: Command) -> None:
        name, said = plain_name(command.name), _said(command)
        words = command.words[1:]
        if not command.words[0].is_whole:
            return  # the line is in doubt
        if name not in _SAYING:
            for word in words:
                self._add_secret(word.text.rpartition("=")[2] if word.text[:1] == "-" else word.text)
        known = name if _is_known(name) else unversioned(name)
        if "/" in command.words[0].text and not _SYSTEM.match(command.words[0].text):
            self._add("scripts", said)
        if len(words) == 1 and words[0] in _ASKS and _is_known(known):
            self._add("reads", said)
            return
        if command.is_opaque and not _plain_scripts(known, words):
            self._add("unreadable", said)
        if command.is_followed and (known in _FOLLOWED or not _is_known(known)):
            return  # what it runs is a command of its own
        if _is_known(known):
            self._known(command, known, said)
        elif not (known in HIDING or known in TURNING or wrapper(known) or known == "eval" or known[:4] == "git-"):
            if "/" not in command.words[0].text:
                self._add("unknown", said)
            self._named(words)

    def _known(self, command: Command, name: str, said: str) -> None:
        words, table = command.words[1:], _SAME.get(name, name)
        effects = set(_PROGRAMS.get(name, ()))
        effects |= {effect for effect, names in _ALONE.items() if name in names and not words}
        verbs: tuple[str, ...] = ()
        if table in _VERBS:
            verbs = self._verbs(table, words, said)
            other = _VERBS[table].get("*", {"unknown"})
            effects |= frozenset[str]().union(*(_VERBS[table].get(verb, other) for verb in verbs))
        listed: set[Word] = set()
        for head in dict.fromkeys([name, table, *(f"{table} {verb}" for verb in verbs)]):
            for options, effect in _OPTIONS.get(head, ()):
                for place, word in enumerate(words):
                    values = _values(options, word, words, place)
                    listed |= {word} if values else set()
                    if effect == "writes_to":
                        self._writes(values, said)
                    elif effect == "mode":
                        effects |= _of_modes(values)
                    elif values:
                        effects.add(effect)
        if "mode" in effects:
            effects |= _of_modes(words)
        if table == "git":
            self._git(words, verbs, effects)
        plain = words[words.index(Word(verbs[0])) :] if table == "git" and verbs else words
        scripts = _plain_scripts(name, words)
        hidden = [] if scripts else uncovered(replace(command, words=(command.words[0], *plain)))
        if any(word not in listed for word in hidden):
            effects |= {"unknown"} if effects.isdisjoint(_GRAVE) and not command.is_opaque else set()
            if name not in _NAMED:
                self._named(words)
        for effect in self._placed(effects, name, words, said):
            self._add(effect, said)
        if name in _RUNNING["programs"]:
            self._run(name, words)

    def _placed(self, effects: set[str], name: str, words: Sequence[Word], said: str) -> set[str]:
        """Replace the effects that stand for files by where the files lie."""
        paths = [word for word in words if _is_path(word)]
        if scripts := _plain_scripts(name, words):
            paths = [word for word in paths if word not in scripts]
        elif name in _EXPRESSIONS and not any(_EXPRESSION.fullmatch(word.text) for word in words):
            paths = _without_operand(paths)
        is_last = "writes_last" in effects
        if is_last and any(_REMOTE.match(word.text) for word in paths):
            effects.add("network")
        written = paths[-1:] if is_last else paths if "writes" in effects else []
        if is_last or "writes" in effects:
            self._writes([_target(word) for word in written] or [Word(".")], said)
        if is_last:  # a copy in a folder has the name of its source
            self.written += [_target(word) for word in paths]
        if "writes_inside" in effects:
            self.written.append(ANY)
        if "removes" in effects and any(self._place(_target(word)) == "outside" for word in paths):
            effects.add("writes_outside")
        if is_last or "reads" in effects:
            read = [_target(word) for word in paths if word not in written and not _URL.match(word.text)]
            places = {self._place(word) == "outside" for word in read} or {self._is_elsewhere and not written}
            effects -= {"reads"}
            effects |= {"reads_outside" if is_outside else "reads" for is_outside in places}
        return effects - _MARKS | ({"deletes"} if "removes" in effects else set())

    def _verbs(self, table: str, words: Sequence[Word], said: str) -> tuple[str, ...]:
        """The words that may be the verb."""
        operands = [place for place, word in enumerate(words) if word.text[:1] != "-" or not word.text]
        if not operands:
            return ()
        number = 1 if operands[0] == 0 else 2  # an option before may take the first
        chosen = [words[place] for place in operands[:number]]
        if any(not word.is_whole for word in chosen):
            self._add("unreadable", said)
        texts = [word.text for word in chosen if word.is_whole]
        known = [text for text in texts if text in _VERBS[table] or "*" in _VERBS[table]]
        return tuple(known or texts[:1])

    def _git(self, words: Sequence[Word], verbs: Sequence[str], effects: set[str]) -> None:
        texts = [word.text for word in words]
        if "push" in verbs and any(text[:1] in ("+", ":") and len(text) > 1 for text in texts[1:]):
            effects.add("history")
        if "fetch" in verbs and any(text[:1] == "+" for text in texts):
            effects.add("history")
        for place, text in enumerate(texts[:-1]):
            if text in ("-C", "--git-dir", "--work-tree") and self._place(words[place + 1]) != "inside":
                effects |= {"writes_outside"} if effects - {"reads"} else {"reads_outside"}

    # commands among the words of others

    def _run(self, name: str, words: Sequence[Word]) -> None:
        starts = [place + 1 for place, word in enumerate(words) if word.text in _RUNNING["after"]]
        if name in ("npx", "bunx", "pnpx", "uvx", "pipx"):
            starts.append(0)
        if starts:
            self._named(words[min(starts) :])

    def _named(self, words: Sequence[Word]) -> None:
        """Add the effects of commands that words may name."""
        number = 0
        for place, word in enumerate(words):
            for text, sign in _NAME_IN_WORD.findall(word.text):
                name = plain_name(text.rpartition("/")[2])
                if name in _NAMED and not sign and number < _MOST_NAMED:  # `env=staging` names no command
                    number += 1
                    inner = Command((Word(name), *words[place + 1 : place + 40]))
                    self._known(inner, name, _said(inner))


def _plain_scripts(name: str, words: Sequence[Word]) -> list[Word]:
    """The scripts among the words of `sed` or `awk`; none unless all of them run nothing and write no file."""
    known = _SCRIPTS.get(_SAME.get(name, name))
    if known is None:
        return []
    scripts: list[Word] = []
    operands: list[Word] = []
    rest = iter(words)
    for word in rest:
        if word.text in known.holding:
            scripts.append(next(rest, Word("", "any")))
        elif word.text in known.values:
            next(rest, None)
        elif not word.is_whole and not word.text:  # it may be an option
            return []
        elif word.text[:1] != "-":
            operands.append(word)
        elif not known.options.fullmatch(word.text):
            return []
    scripts = scripts or operands[:1]
    return scripts if all(one.is_whole and known.like.fullmatch(one.text) for one in scripts) else []


def _of_modes(words: Iterable[Word]) -> set[str]:
    """The effects of words that may be modes of files."""
    return {"privileges"} if any(_OPENING.fullmatch(word.text) for word in words) else set()


def _values(options: frozenset[str], word: Word, words: Sequence[Word], place: int) -> list[Word]:
    """The value of an option if a word is one of these; the word itself where it has none."""
    text = word.text
    name, has_value, value = text.partition("=")
    following = words[place + 1] if place + 1 < len(words) else Word("")
    if text in options:
        return [following]
    if text[:2] == "--" and len(name) > len("--x"):
        if any(one.startswith(name) for one in options if one[:2] == "--"):
            return [Word(value, word.known) if has_value else following]
        return []
    if text[:1] != "-" or text[:2] == "--":
        return []
    if has_value and name in options:
        return [Word(value, word.known)]
    for letter in (one[1] for one in options if len(one) == len("-x") and one[0] == "-"):
        before, found, after = text[1:].partition(letter)
        if found and (not before or before.isalpha()):
            return [Word(after, word.known)] if after else [following]
    return []


def _is_known(name: str) -> bool:
    return name in _PROGRAMS or _SAME.get(name, name) in _VERBS


def _is_path(word: Word) -> bool:
    text = word.text
    if not word.is_whole and not text:
        return True
    return text != "" and (text[0] != "-" or "=" in text or "/" in text or "~" in text)


def _without_operand(words: list[Word]) -> list[Word]:
    """Words without the first one that is no option."""
    first = next((place for place, word in enumerate(words) if word.text[:1] != "-"), len(words))
    return words[:first] + words[first + 1 :]


def _target(word: Word) -> Word:
    """The path in a word: after `=`, or within an option."""
    text = word.text
    if text[:1] == "-":
        text = text.partition("=")[2] if "=" in text else re.sub(r"^[^/~.]*", "", text)
    elif re.match(r"[a-z]+=", text):
        text = text.partition("=")[2]
    return Word(text, word.known)


def _shown(word: Word) -> str:
    return word.text if word.is_whole else word.text + "…"


def _said(command: Command) -> str:
    return " ".join(map(_shown, command.words))
