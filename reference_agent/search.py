"""Search in the working folder: `grep` and `glob`. Both are bounded, and skip what Git ignores.

Uses ripgrep if it is installed, otherwise Git. `stop` may be called by any thread.
"""

import os
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from fnmatch import translate
from itertools import islice
from pathlib import Path
from typing import Any

from core.cuts import beginning
from reference_agent.printed import kill
from reference_agent.repository import git
from reference_agent.tools import Files, ToolRefused

#: Maximum number of lines and of files in a result, and characters of one line.
MOST_LINES, MOST_FOUND, MOST_LINE = 200, 100, 300
_SECONDS, MOST_FILES = 30.0, 200_000  #: timeout of a search in seconds, and maximum number of files that it reads
_SKIPPED = (".git", ".agent-server", ".outputs")  #: folders that are never searched: Git's and the agent server's

_RIPGREP = (
    "rg --no-config --no-messages --null --line-number --with-filename --no-heading --color=never --hidden "
    "--no-require-git --sort=path --max-columns-preview"
)
_GIT = "git -c core.fsmonitor=false grep --no-index --null --line-number --no-color -I --perl-regexp"
MOST_PATTERNS = 100  #: maximum number of patterns after expanding braces


class Search:
    def __init__(self, files: Files) -> None:
        self._files = files
        self._process: subprocess.Popen[bytes] | None = None

    def grep(self, pattern: str, path: str = ".", include: str = "") -> str:
        """Return the matching lines, each with its file and number. Raises ToolRefused, OSError and ValueError."""
        place, matches = self._files.inside(path), matcher(include)
        if not place.exists():
            raise ToolRefused("the path does not exist")

        shown, files, is_more = list[str](), set[str](), False
        for name, line in self._lines(pattern, place):
            if matches(name):
                if len(shown) == MOST_LINES or len({*files, name}) > MOST_FOUND:
                    is_more = True
                    break
                files.add(name)
                shown.append(f"{name}:{beginning(line, MOST_LINE)}")
        self.stop()
        more = ["… more matches: narrow the pattern, the path or `include`"] if is_more else []
        return "\n".join([f"{len(shown)} lines in {len(files)} files below {path}:", *shown, *more])

    def glob(self, pattern: str, path: str = ".") -> str:
        """Return the files with a matching name, the newest first. Raises ToolRefused, OSError and ValueError."""
        place, matches = self._files.inside(path), matcher(pattern)
        if not place.is_dir():
            raise ToolRefused("is not a folder")
        if Path(pattern).is_absolute():
            matches = matcher(os.path.relpath(pattern, place))
        found = sorted(((written_at(place / name), name) for name in self._names(place) if matches(name)), reverse=True)
        more = [f"… and {len(found) - MOST_FOUND:,} more"] if len(found) > MOST_FOUND else []
        return "\n".join([f"{len(found):,} files below {path}:", *(name for _, name in found[:MOST_FOUND]), *more])

    def stop(self) -> None:
        if process := self._process:
            kill(process)

    def _lines(self, pattern: str, place: Path) -> Iterator[tuple[str, str]]:
        folder, skipped = (place, self._skipped(place)) if place.is_dir() else (place.parent, set[str]())
        if shutil.which("rg"):
            command = [*_RIPGREP.split(), f"--max-columns={MOST_LINE}", f"--regexp={pattern}"]
            command += [f"--glob=!**/{one}" for one in skipped] + ["--"]
        else:
            command = [*_GIT.split(), "-e", pattern, *["--exclude-standard"] * place.is_dir(), "--"]
            command += [f":(exclude,glob)**/{one}/**" for one in skipped]
        command.append("." if place == folder else f"./{place.name}")
        yield from self._read(command, folder, {**os.environ, "GIT_LITERAL_PATHSPECS": "0" if skipped else "1"})

    def _read(self, command: list[str], folder: Path, env: dict[str, str]) -> Iterator[tuple[str, str]]:
        """Yield the output lines of a search. Raises ToolRefused with its error, and on timeout."""
        null, pipe = subprocess.DEVNULL, subprocess.PIPE
        self._process = process = subprocess.Popen(
            command, cwd=folder, env=env, stdin=null, stdout=pipe, stderr=pipe, start_new_session=True
        )
        assert process.stdout is not None
        assert process.stderr is not None
        timer = threading.Timer(_SECONDS, kill, [process])
        timer.start()
        try:
            with process:
                before = b""
                for raw in process.stdout:
                    before += raw
                    if b"\0" in before:  # otherwise the file's name has a line feed
                        name, _, line = before.decode(errors="replace").rstrip("\r\n").partition("\0")
                        yield name.removeprefix("./"), line.replace("\0", ":", 1)
                        before = b""
                if process.wait() > 1:
                    said = process.stderr.read().decode(errors="replace")
                    raise ToolRefused(f"the pattern is invalid: {beginning(said, 300)}")
                if process.returncode < 0:
                    raise ToolRefused(f"the search exceeded {_SECONDS:g} s, or was interrupted")
        finally:
            timer.cancel()

    def _names(self, folder: Path) -> list[str]:
        """Return the relative paths of the files below a folder. In a Git repository, without ignored files."""
        options = ("-z", "--cached", "--others", "--exclude-standard")
        listed = git(folder, "ls-files", *options, seconds=_SECONDS, errors="surrogateescape")
        skipped = self._skipped(folder)
        if listed is None:
            return list(islice(_walked(folder, skipped), MOST_FILES))
        names = dict.fromkeys(filter(None, listed.split("\0")))
        return [one for one in names if not {*Path(one).parts} & skipped][:MOST_FILES]

    def _skipped(self, folder: Path) -> set[str]:
        private = self._files.private
        own = {private.relative_to(folder).parts[0]} if private != folder and private.is_relative_to(folder) else set()
        return {*_SKIPPED, *own}


def matcher(pattern: str) -> Callable[[str], bool]:
    """Return a matcher of paths by a shell pattern. Raises ToolRefused. Cost: grows with both lengths."""
    whole = list(islice(_expanded(pattern.removeprefix("./").strip("/")), MOST_PATTERNS + 1))
    if len(whole) > MOST_PATTERNS:
        raise ToolRefused(f"the braces of the pattern expand to more than {MOST_PATTERNS} patterns")
    several = [one.split("/") if "/" in one else ["**", one] for one in whole]
    matchers = [[None if part == "**" else re.compile(translate(part)).match for part in parts] for parts in several]
    return lambda path: not pattern or any(_fits(path.split("/"), parts) for parts in matchers)


def _expanded(pattern: str) -> Iterator[str]:
    found = re.search(r"\{([^{}]*,[^{}]*)\}", pattern)
    if found is None:
        yield pattern
        return
    for one in found[1].split(","):
        yield from _expanded(pattern[: found.start()] + one + pattern[found.end() :])


def _fits(names: list[str], parts: list[Any]) -> bool:
    """Return whether the names of a path match the parts of a pattern. None matches any number of names."""
    reached = {0}
    for part in parts:
        if part is None:
            reached = {*range(min(reached), len(names) + 1)} if reached else set()
        else:
            reached = {at + 1 for at in reached if at < len(names) and part(names[at])}
    return len(names) in reached


def _walked(folder: Path, skipped: set[str]) -> Iterator[str]:
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(one for one in folders if one not in skipped)
        yield from (os.path.relpath(f"{root}/{name}", folder) for name in sorted(names))


def written_at(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0.0
