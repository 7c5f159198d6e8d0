"""Git on the host for a folder that may be hostile: its environment, and the matches of `.gitignore` files."""

import contextlib
import os
import select
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any

from runtimes import RuntimeCallFailed
from runtimes.folder import opened_file
from runtimes.tar_stream import shown

_OPTIONS = (
    *("core.hooksPath=/dev/null", "core.attributesFile=/dev/null", "core.excludesFile=/dev/null"),
    *("core.fsmonitor=false", "core.protectNTFS=false", "core.protectHFS=false", "core.ignoreCase=false"),
    *("core.quotePath=false", "protocol.allow=never", "gc.auto=0", "maintenance.auto=false"),
    "fastimport.unpackLimit=1",
)


#: Maximum size of a `.gitignore`, and of all copies of such files in a folder, in bytes.
_MOST_IGNORE, MOST_COPIED = 64 * 1024, 32 << 20

#: Minimum size that is counted per copy and per directory for it, in bytes.
_COPY = 4096

#: Timeout for matching one path, in seconds: a pattern with many `*` takes exponential time.
_MATCH_SECONDS = 2.0

#: Name prefix of folders with copies of `.gitignore` files.
COPIES = "copies-"


class NotRecorded(RuntimeCallFailed):
    """A folder is not recorded, or was not at the requested moment. The message is a sentence for clients."""


def git_program() -> str | None:
    return shutil.which("git")


class Timeout:
    def __init__(self, seconds: float) -> None:
        self.seconds, self._end = seconds, time.monotonic() + seconds

    @property
    def left(self) -> float:
        return max(0.0, self._end - time.monotonic())

    def check(self) -> None:
        if not self.left:
            raise NotRecorded(f"The folder was not read within {self.seconds:g} s, so it is not recorded")


def environment_of(git_dir: Path) -> dict[str, str]:
    """Return Git's environment: no variable of the server, and only the configuration of the shadow repository."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "GIT_DIR": str(git_dir),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_LITERAL_PATHSPECS": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "HOME": "/nonexistent",
        "LC_ALL": "C",
    }


@contextlib.contextmanager
def running(
    folder: Path, environment: Mapping[str, str], *words: str, timeout: Timeout, no: int = 0, lock: int = -1
) -> Iterator["subprocess.Popen[bytes]"]:
    """Run Git in a folder of the server, and kill it on timeout.

    no: an exit status that is a negative result, not a failure. lock: an open file that Git inherits. Raises
    NotRecorded on timeout, and RuntimeCallFailed if Git fails.
    """
    program = git_program()
    if program is None:
        raise NotRecorded("There is no git program on the sandbox's host, so its folder is not recorded")
    options = [word for option in _OPTIONS for word in ("-c", option)]
    with (
        TemporaryFile() as errors,
        subprocess.Popen(
            [program, *options, *words],
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            pass_fds=(lock,) if lock >= 0 else (),
        ) as git,
    ):
        killer = threading.Timer(timeout.left, git.kill)
        killer.start()
        failed: Exception | None = None
        try:
            yield git
        except (BrokenPipeError, IndexError) as error:
            failed = error
        except BaseException:
            git.kill()
            raise
        finally:
            with contextlib.suppress(OSError):
                if git.stdin and not git.stdin.closed:
                    git.stdin.close()
            status = git.wait()
            killer.cancel()
        timeout.check()
        if status not in (0, no) or failed:
            for report in folder.glob("fast_import_crash_*"):
                report.unlink()
            errors.seek(0)
            reason = errors.read(500).decode(errors="replace").strip().splitlines() or ["no output"]
            raise RuntimeCallFailed(f"git {words[0]} failed: {reason[0]}")


class Ignored:
    """Paths that a folder's `.gitignore` files exclude, according to Git with copies of them. Close it.

    Only the directories above the current path have copies. Deleting all copies at the end would take as long as the
    walk, without a timeout.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str], timeout: Timeout) -> None:
        """folder: of the server, for the copies."""
        self._folder, self._environment, self._timeout = folder, environment, timeout
        self._ends = contextlib.ExitStack()
        self._copies: Path | None = None
        self._made = folder  #: the last created directory
        self._git: subprocess.Popen[bytes] | None = None
        self._copied = 0  #: bytes
        self._matching = 0.0  #: Git's time for matching, in seconds

    def __enter__(self) -> "Ignored":
        return self

    def __exit__(self, *raised: Any) -> None:
        if self._copies:
            self._remove_before(self._copies)
        self._ends.__exit__(*raised)

    def enter(self, path: bytes, directory: int) -> None:
        """Copy the `.gitignore` of an open directory, if it has one, before its entries are matched."""
        try:
            with opened_file(b".gitignore", directory) as (file, _):
                content = os.read(file, _MOST_IGNORE)
        except OSError:
            return
        self._copied += max(len(content), _COPY * (path.count(b"/") + 1))
        if self._copied > MOST_COPIED:
            raise NotRecorded(f"The folder's .gitignore files have more than {MOST_COPIED >> 20} MiB in all")
        if self._copies is None:
            self._copies = Path(self._ends.enter_context(TemporaryDirectory(prefix=COPIES, dir=self._folder)))
        copy = self._copies / os.fsdecode(path) / ".gitignore"
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(content)
        self._made = copy.parent

    def has(self, path: bytes, *, is_directory: bool = False) -> bool:
        """Return whether a path is excluded. An excluded directory excludes all of its content."""
        if self._copies is None:
            return False
        if not is_directory:
            return self._matches(path)
        copy = self._copies / os.fsdecode(path)
        self._remove_before(copy)
        copy.mkdir(parents=True, exist_ok=True)  # a pattern with a trailing slash matches only directories
        self._made = copy
        return self._matches(path)

    def _remove_before(self, copy: Path) -> None:
        """Delete the directories of the previous path that this path does not need."""
        made, needed = self._made, {copy, *copy.parents}
        while made not in needed:
            (made / ".gitignore").unlink(missing_ok=True)
            made.rmdir()
            made = made.parent

    def _matches(self, path: bytes) -> bool:
        git = self._git or self._start()
        assert git.stdin is not None
        assert git.stdout is not None
        git.stdin.write(b"./" + path + b"\0")
        git.stdin.flush()
        answers, began = select.poll(), time.monotonic()
        answers.register(git.stdout, select.POLLIN)
        is_answered = answers.poll(1000 * min(_MATCH_SECONDS, self._timeout.left))
        self._matching += time.monotonic() - began
        if not is_answered:
            self.check()
            raise NotRecorded(
                f"Git does not match {shown(path)} with the patterns of .gitignore files within {_MATCH_SECONDS:g} s. "
                "Simplify the patterns with many `*`"
            )
        _, _, pattern, _ = (_word(git.stdout) for _ in range(4))
        return bool(pattern) and not pattern.startswith(b"!")

    def check(self) -> None:
        """Raises NotRecorded on timeout. The message names the patterns if they took most of the time."""
        if not self._timeout.left and self._matching > self._timeout.seconds / 2:
            raise NotRecorded(
                f"Git took {self._matching:.0f} s of the {self._timeout.seconds:g} s in which a folder is read to "
                "match its paths with .gitignore files, so it is not recorded. Use fewer patterns, and fewer `*`"
            )
        self._timeout.check()

    def _start(self) -> "subprocess.Popen[bytes]":
        assert self._copies is not None
        environment = {**self._environment, "GIT_WORK_TREE": str(self._copies), "GIT_LITERAL_PATHSPECS": "0"}
        words = ("check-ignore", "--no-index", "--stdin", "-z", "--verbose", "--non-matching")
        self._git = self._ends.enter_context(running(self._copies, environment, *words, timeout=self._timeout, no=1))
        return self._git


def _word(stream: Any) -> bytes:
    """Read the next word up to a zero byte. Raises BrokenPipeError at the end of the stream."""
    word = bytearray()
    while letter := stream.read(1):
        if letter == b"\0":
            return bytes(word)
        word += letter
    raise BrokenPipeError
