"""The tool `file_editor`: text files in the working folder, and nowhere else."""

import os
import shutil
import stat
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import uuid4

from agents.reference.events import Event

#: most bytes of a file, and most characters and entries of a view
MOST_FILE, MOST_VIEW, MOST_ENTRIES = 1 << 20, 30_000, 500

#: most characters of a file that an observation tells before and after a change
_MOST_CHANGE = 20_000

#: lines that an edit shows around its change
_AROUND = 4


class Refused(Exception):
    """The tool refuses an action; the message tells the model why."""


class Files:
    """The files of one conversation. Guarantee: no link and no `..` leads out of the folder, or into the private one.

    Limitation: a command that exchanges a folder for a link in the very moment can lead a file out of it.
    """

    def __init__(self, folder: Path, private: Path) -> None:
        """private: a folder of the agent server's own."""
        self._folder, self._private = (Path(os.path.realpath(path)) for path in (folder, private))

    def observe(self, action: Event) -> Event:
        """Execute an action; what it refuses, or the system does, is an observation too."""
        said = {"command": action["command"], "path": action["path"]}
        try:
            text, more = self._execute(action)
        except (Refused, OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            text, more = f"{action['command']} {action['path']}: {reason}", {"is_error": True}
        return {"content": [{"type": "text", "text": text}], "is_error": False, **said, **more}

    def _execute(self, action: Event) -> tuple[str, dict[str, Any]]:
        path = self._inside(action["path"])
        match action["command"]:
            case "view" if path.is_dir():
                return self._listing(path), {}
            case "view":
                return _numbered(_read(path), *_range(action)), {}
            case "create":
                if os.path.lexists(path):
                    raise Refused("exists already; edit it by str_replace or insert")
                path.parent.mkdir(parents=True, exist_ok=True)
                old, new, line = None, _needed(action, "file_text"), 0
            case "str_replace":
                old, replaced = _read(path), _needed(action, "old_str")
                if old.count(replaced) != 1 or not replaced:
                    raise Refused(f"old_str occurs {old.count(replaced) if replaced else 0} times, not once")
                new, line = old.replace(replaced, action.get("new_str", "")), old[: old.index(replaced)].count("\n")
            case _:
                old, line = _read(path), action.get("insert_line", 0)
                lines = old.split("\n")
                if line > len(lines) - (lines[-1] == ""):
                    raise Refused(f"insert_line is {line}, and the file has fewer lines")
                lines.insert(line, _needed(action, "new_str").removesuffix("\n"))
                new = "\n".join(lines)
        _write(path, new)
        return f"{path} now reads:\n{_numbered(new, line + 1 - _AROUND, line + 1 + _AROUND)}", _change(old, new)

    def _inside(self, given: str) -> Path:
        path = Path(os.path.realpath(self._folder / given))
        if not path.is_relative_to(self._folder):
            raise Refused(f"lies outside the working folder, {self._folder}")
        if path.is_relative_to(self._private):
            raise Refused("belongs to the agent server")
        return path

    def _listing(self, folder: Path) -> str:
        names = list(islice(_below(folder, 2), MOST_ENTRIES + 1))
        more = [f"… more than {MOST_ENTRIES} entries"] if len(names) > MOST_ENTRIES else []
        return "\n".join([f"{folder}, without hidden files:", *names[:MOST_ENTRIES], *more])


def _below(folder: Path, depth: int, prefix: str = "") -> Iterator[str]:
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if not entry.name.startswith("."):
            is_folder = entry.is_dir(follow_symlinks=False)
            yield f"{prefix}{entry.name}{'/' if is_folder else ''}"
            if is_folder and depth > 1 and os.access(entry.path, os.R_OK | os.X_OK):
                yield from _below(Path(entry.path), depth - 1, f"{prefix}{entry.name}/")


def _read(path: Path) -> str:
    number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe would wait for ever
    with os.fdopen(number, "rb") as file:
        if not stat.S_ISREG(os.fstat(number).st_mode):
            raise Refused("is no file")
        content = file.read(MOST_FILE + 1)
    if len(content) > MOST_FILE:
        raise Refused(f"is larger than {MOST_FILE} bytes; the terminal can show a part")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise Refused("is no UTF-8 text") from None


def _write(path: Path, text: str) -> None:
    """Write a file whole or not at all: a kill or a full disk leaves what was there."""
    content = text.encode()
    if len(content) > MOST_FILE:
        raise Refused(f"would be larger than {MOST_FILE} bytes")
    draft = path.with_name(f".{uuid4().hex}.new")
    try:
        with draft.open("xb") as file:
            file.write(content)
        if path.exists():
            shutil.copymode(path, draft)
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def _needed(action: Event, name: str) -> str:
    if name not in action:
        raise Refused(f"{action['command']} needs {name}")
    return str(action[name])


def _range(action: Event) -> tuple[int, int]:
    match action.get("view_range"):
        case None:
            return 1, MOST_FILE
        case [first, last]:
            return first, MOST_FILE if last == -1 else last
    raise Refused("view_range should have two numbers")


def _numbered(text: str, first: int, last: int) -> str:
    """Lines of a text with their numbers, cut off after MOST_VIEW characters."""
    lines = text.removesuffix("\n").split("\n")
    first = max(first, 1)
    shown = "\n".join(f"{number:6}\t{line}" for number, line in enumerate(lines[first - 1 : last], first))
    return shown if len(shown) <= MOST_VIEW else f"{shown[:MOST_VIEW]}\n… cut off; view_range shows other lines"


def _change(old: str | None, new: str) -> dict[str, Any]:
    told = {"old_content": old, "new_content": new} if max(len(old or ""), len(new)) <= _MOST_CHANGE else {}
    return {"prev_exist": old is not None, **told}
