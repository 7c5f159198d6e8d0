"""Facts about well-known programs: the tables of `programs.toml`, which explains each member."""

import re
import tomllib
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

_TABLES: dict[str, Any] = tomllib.loads((Path(__file__).parent / "programs.toml").read_text())
_NAMES = {name: frozenset(words.split()) for name, words in _TABLES["names"].items()}
_GIT, _CODE = _TABLES["git"], _TABLES["code"]
_SAME = {other: name for name, others in _TABLES["same"].items() for other in others.split()}
_VERSION = r"(?:-?[\d.][\w.-]{0,40})?"

HIDING, SHELLS, TURNING, HARMLESS = (_NAMES[name] for name in ("hiding", "shells", "turning", "harmless"))
_PLAIN, _RUNNERS = _NAMES["plain"], _NAMES["runners"]
_NAMING, NAMING_BY_OPTION = _NAMES["naming"], _NAMES["naming_by_option"]

#: Options of a shell before its `-c` or its script.
SHELL_FLAGS = re.compile(r"-[aefhlnsuvxCE]+|--(?:login|noprofile|norc|posix|noediting)|\+[ex]+")

CODE = re.compile(f"(?:{_CODE['names']}){_VERSION}")
READING = re.compile(f"(?:{_CODE['reading']}){_VERSION}")
_SCRIPTED = re.compile(f"(?:{_CODE['scripted']}){_VERSION}")
_MODULES, _SCRIPT_FLAGS = frozenset(_CODE["modules"].split()), frozenset(_CODE["script_flags"].split())
CODE_VERBS = frozenset(_CODE["verbs"].split())

GIT_VALUES, GIT_FLAGS, GIT_QUIET = (frozenset(_GIT[name].split()) for name in ("values", "flags", "quiet"))
GIT_SETTINGS = re.compile(_GIT["settings"], re.IGNORECASE)

HARMLESS_VARIABLES = re.compile(_TABLES["variables"]["harmless"])
LOCAL_VARIABLES = re.compile(_TABLES["variables"]["local"])

#: Words of `set` that only change how a shell goes on after a failure.
HARMLESS_SETTINGS = re.compile(_TABLES["variables"]["settings"])

#: Words by which `find` runs a command.
FIND_COMMANDS = frozenset({"-exec", "-execdir", "-ok", "-okdir"})

#: Folders whose programs a bare name finds.
FOLDERS = re.compile(r"^(?:/(?:usr/(?:local/)?)?s?bin/|/opt/homebrew/bin/)")

#: Options of `sed` and `awk` before a script, with a script, or with its file.
_SCRIPT_OPTION = re.compile(r"-[A-Za-z]*e|--e[a-z]*")
_UNREAD_SCRIPT = re.compile(r"-[^-]*f.*|-[^-]*e.+|--f.*|--[^=]*=.*", re.DOTALL)


class Wrapper(NamedTuple):
    """A program that runs the command in its words."""

    values: frozenset[str] = frozenset()
    flags: frozenset[str] = frozenset()
    operands: int = 0
    sets: bool = False
    is_plain: bool = True
    adds: bool = False


class ProgramWords(NamedTuple):
    """The words of a program that `*` does not match."""

    is_plain: bool = False
    letters: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    exact: frozenset[str] = frozenset()
    verbs: frozenset[str] = frozenset()
    script: re.Pattern[str] | None = None
    never: re.Pattern[str] | None = None
    bundled: bool = False
    verb_first: bool = False


@lru_cache(maxsize=1024)
def wrapper(name: str) -> Wrapper | None:
    """Return the wrapper of a name; None if it is not followed."""
    row = _TABLES["wrappers"].get(name)
    return None if row is None else Wrapper(**{member: _value(value) for member, value in row.items()})


def program_of(name: str, verb: str) -> ProgramWords:
    """Return the facts about a program with its first word that is no option."""
    known = program(name)
    more = _TABLES["verbs"].get(f"{_SAME.get(name, name)} {verb}")
    return known._replace(letters=known.letters | frozenset(more.split())) if more else known


@lru_cache(maxsize=1024)
def program(name: str) -> ProgramWords:
    if name in _PLAIN:
        return ProgramWords(is_plain=True)
    row = _TABLES["programs"].get(_SAME.get(name, name))
    if row is None and READING.fullmatch(name):
        row = {"never": ".+"}
    if row is None and CODE.fullmatch(name):
        row = {"letters": _CODE["letters"], "names": _CODE["options"], "exact": _CODE["exact"]}
    members: dict[str, Any] = {"names": frozenset(), **{member: _value(value) for member, value in (row or {}).items()}}
    for member in {"script", "never"} & members.keys():
        members[member] = re.compile((row or {})[member], re.DOTALL)
    return ProgramWords(**{**members, "names": members["names"] | frozenset(_TABLES["options"]["any"].split())})


def _value(value: Any) -> Any:
    return frozenset(value.split()) if isinstance(value, str) else value


def plain_name(name: str) -> str:
    """Return the name of a program in lower case, without `.exe`."""
    return name.lower().removesuffix(".exe")


def may_run_words(name: str) -> bool:
    """Return whether a program may run a command in its words. True for a program that is not in the tables."""
    return name in _RUNNERS or (name not in _PLAIN and _SAME.get(name, name) not in _TABLES["programs"])


def names_variables(name: str, texts: list[str]) -> bool:
    """Return whether words of a builtin name variables, whose subscripts the shell runs, as in `read` or `test -v`."""
    return name in _NAMING or (name in NAMING_BY_OPTION and any(text[:2] == "-v" for text in texts))


def script_place(name: str, texts: list[str]) -> int | None:
    """Return the position of an interpreter's script or module, after which its own words follow."""
    if not _SCRIPTED.fullmatch(name):
        return None
    for place, text in enumerate(texts):
        if text == "-m" and name.startswith(("python", "pypy")):
            return place + 1 if not _MODULES.isdisjoint(texts[place + 1 : place + 2]) else None
        if text[:1] != "-" and text:
            return place
        if text not in _SCRIPT_FLAGS:
            return None
    return None


def has_plain_script(name: str, texts: list[str]) -> bool:
    """Return whether the scripts in a program's words, such as those of `sed`, run and write nothing."""
    script = program(name).script
    if script is None:
        return True
    options = [text for text in texts if text[:1] == "-"]
    if any(_UNREAD_SCRIPT.fullmatch(text) for text in options):
        return False
    scripts = [after for before, after in pairwise(texts) if _SCRIPT_OPTION.fullmatch(before)]
    operands = [text for text in texts if text[:1] != "-"]
    if _SAME.get(name, name) == "awk":  # an option's value, such as of `-F`, may come first
        scripts = operands
    scripts = scripts or operands[:1]
    return bool(scripts) and all(script.fullmatch(text) for text in scripts)
