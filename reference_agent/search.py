"""Search in the working folder: `grep` and `glob`. What Git ignores is left out, and both are bounded.

ripgrep searches where it is installed, else `scan.py`. `stop` may be called by any thread.
"""

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from core.cuts import beginning
from reference_agent.printed import kill
from reference_agent.repository import git
from reference_agent.tools import Files, Refused

#: maximum number of lines and of files that a search shows, and of characters of one line
MOST_LINES, MOST_FOUND, MOST_LINE = 200, 100, 300

#: seconds that a search may take, and maximum number of files that it looks at
_SECONDS, MOST_FILES = 30.0, 200_000

#: folders that are never searched: Git's own, and the agent server's
_SKIPPED = (".git", ".agent-server", ".outputs")

#: parts of a pattern with a meaning of their own
_PARTS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}

_SCAN = str(Path(__file__).with_name("scan.py"))


class Search:
    def __init__(self, files: Files) -> None:
        self._files = files
        self._process: subprocess.Popen[bytes] | None = None

    def grep(self, pattern: str, path: str = ".", include: str = "") -> str:
        """The lines that match, each with its file and number. Raises Refused, OSError, ValueError."""
        place, matches = self._files.inside(path), matcher(include)
        try:
            re.compile(pattern)
        except re.error as error:
            if not shutil.which("rg"):  # whose expressions differ
                raise Refused(f"the pattern is no regular expression: {error}") from None
        shown, files, is_more = list[str](), set[str](), False
        for name, line in self._lines(pattern, place):
            if matches(name):
                if len(shown) == MOST_LINES or len({*files, name}) > MOST_FOUND:
                    is_more = True
                    break
                files.add(name)
                shown.append(f"{name}:{beginning(line, MOST_LINE)}")
        self.stop()
        more = ["… there is more: narrow the pattern, the path or `include`"] if is_more else []
        return "\n".join([f"{len(shown)} lines in {len(files)} files below {place}:", *shown, *more])

    def glob(self, pattern: str, path: str = ".") -> str:
        """The files whose names match, the newest first. Raises Refused, OSError, ValueError."""
        place, matches = self._files.inside(path), matcher(pattern)
        if not place.is_dir():
            raise Refused("is not a folder")
        if Path(pattern).is_absolute():
            matches = matcher(os.path.relpath(pattern, place))
        found = sorted(((_written(place / name), name) for name in self._names(place) if matches(name)), reverse=True)
        more = [f"… and {len(found) - MOST_FOUND:,} more"] if len(found) > MOST_FOUND else []
        return "\n".join([f"{len(found):,} files below {place}:", *(name for _, name in found[:MOST_FOUND]), *more])

    def stop(self) -> None:
        """End the search that runs."""
        if process := self._process:
            kill(process)

    def _lines(self, pattern: str, place: Path) -> Iterator[tuple[str, str]]:
        """Each line that matches: its file, and number and text."""
        folder = place if place.is_dir() else place.parent
        skipped = [word for name in self._skipped(folder) for word in ("--glob", f"!**/{name}")]
        if shutil.which("rg"):
            options = [
                "--no-config",
                "--no-messages",
                "--null",
                "--line-number",
                "--no-heading",
                "--color=never",
                "--hidden",
            ]
            options += ["--no-require-git", "--sort=path", f"--max-columns={MOST_LINE}", "--max-columns-preview"]
            command = ["rg", *options, *skipped, "--with-filename", "--regexp", pattern, "--"]
            command.append("." if place == folder else place.name)
            names = ""
        else:
            command = [sys.executable, "-I", _SCAN, pattern]
            names = "\0".join(self._names(place) if place == folder else [place.name])
        self._process = process = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        yield from _read(process, names.encode(errors="surrogateescape"))

    def _names(self, folder: Path) -> list[str]:
        """The files below a folder, as paths from there. In a Git repository those that it ignores are left out."""
        options = ("-z", "--cached", "--others", "--exclude-standard")
        listed = git(folder, "ls-files", *options, seconds=_SECONDS, errors="surrogateescape")
        skipped = self._skipped(folder)
        if listed is None:
            return list(_walked(folder, skipped))
        names = dict.fromkeys(filter(None, listed.split("\0")))
        return [one for one in names if not {*Path(one).parts} & skipped][:MOST_FILES]

    def _skipped(self, folder: Path) -> set[str]:
        private = self._files.private
        own = {private.relative_to(folder).parts[0]} if private != folder and private.is_relative_to(folder) else set()
        return {*_SKIPPED, *own}


def _read(process: subprocess.Popen[bytes], names: bytes) -> Iterator[tuple[str, str]]:
    """The lines that a search prints. Raises Refused for a pattern that it does not take, and when its time is over."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    timer = threading.Timer(_SECONDS, kill, [process])
    timer.start()
    try:
        with process:
            process.stdin.write(names)
            process.stdin.close()
            before = b""
            for raw in process.stdout:
                before += raw
                if b"\0" in before:  # else the name of the file has a line feed
                    name, _, line = before.decode(errors="replace").rstrip("\r\n").partition("\0")
                    yield name.removeprefix("./"), line
                    before = b""
            if process.wait() == 2:
                said = process.stderr.read().decode(errors="replace")
                raise Refused(f"the pattern is not taken: {beginning(said, 300)}")
            if process.returncode < 0:
                raise Refused(f"the search was stopped: it takes longer than {_SECONDS:g} s, or was interrupted")
    finally:
        timer.cancel()


def matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a path matches a pattern of a shell; a pattern without a slash matches names at any depth."""
    if not pattern:
        return lambda _path: True
    anywhere = "" if "/" in pattern.strip("/") else "(?:.*/)?"
    found = re.compile(anywhere + _translated(pattern.removeprefix("./").strip("/")), re.DOTALL)
    return lambda path: found.fullmatch(path) is not None


def _translated(pattern: str) -> str:
    """The regular expression of a pattern."""
    made, depth = "", 0
    for part in re.findall(r"\*\*/|\*\*|\[!?\]?[^]/]*\]|.", pattern, re.DOTALL):
        if part == "{":
            made, depth = f"{made}(?:", depth + 1
        elif part == "}" and depth:
            made, depth = f"{made})", depth - 1
        elif part == "," and depth:
            made += "|"
        elif len(part) > 2 and part[0] == "[":
            said = part[1:-1].removeprefix("!").replace("\\", r"\\").replace("[", r"\[").replace("]", r"\]")
            made += f"[{'^' if part[1] == '!' else ''}{said}]"
        else:
            made += _PARTS.get(part) or re.escape(part)
    return made + ")" * depth


def _walked(folder: Path, skipped: set[str]) -> Iterator[str]:
    number = 0
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(one for one in folders if one not in skipped)
        for name in sorted(names):
            number += 1
            if number > MOST_FILES:
                return
            yield os.path.relpath(os.path.join(root, name), folder)  # noqa: PTH118 - of bytes that are no text too


def _written(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0.0
