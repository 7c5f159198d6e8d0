"""The shadow repository of a folder: its content at moments of a conversation, with or without its own Git.

PLACE/KEY/           one for each recorded folder of a sandbox; PLACE is outside of the sandbox's folder
    git/             a bare repository
    copies-…/        copies of the `.gitignore` files above the current path
    moments/         complete snapshots for forks: `moments.py`
    state.json       the last recorded tree, the identities of its files, and the records by event
PLACE.lock           held by each caller that uses PLACE

The folder may be hostile, so Git never reads it. This process walks it as `folder.py` does: it follows no symlink,
opens no FIFO, and reads only files whose inode, size or times have changed. Git gets names and bytes on standard input
(`fast-import`), and copies of the folder's `.gitignore` files for matching (`check-ignore`). So the folder's
attributes, filters, hooks, submodules and configuration have no effect, and nothing is converted.

Excluded: `.git`, generated files (`reading.HEAVY`), paths that `.gitignore` excludes, sockets, FIFOs, devices and empty
directories. A symlink is recorded as a link. For a file that is unreadable or larger than MOST_FILE, only the change is
recorded: it is a submodule's commit in the tree, which needs no object.

Limitation: a file that is rewritten within 20 ms with equal size, inode and times is recorded by the next record.
"""

import contextlib
import hashlib
import json
import logging
import os
import re
import stat
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from runtimes import FileOverLimit, FolderNotKept, RuntimeCallFailed, reading
from runtimes.folder import Directories, entries, exchange, failing, locked, opened_file, remove, unreadable, used
from runtimes.git import COPIES, Ignored, NotRecorded, Timeout, environment_of, git_program, running
from runtimes.moments import Moments

log = logging.getLogger(__name__)

#: Maximum bytes of a file with recorded content, files of a folder, entries that are read, and bytes of all contents.
MOST_FILE, MOST_FILES, MOST_SEEN, MOST_CONTENT = 1 << 20, 20_000, 200_000, 256 << 20

#: Maximum bytes of the paths of all files, which each record holds in memory and in a file, and of all entries.
MOST_PATHS, MOST_PASSED = 4 << 20, 16 << 20

#: Maximum nesting of directories.
MOST_DEEP = 200

#: Maximum bytes of a sandbox's records, records of a folder, and changed files in a list.
MOST_BYTES, MOST_RECORDS, MOST_CHANGES = 1 << 30, 1_000, 10_000

#: Number of a conversation's records that stay if there are too many, besides its first.
_STAY = 20

#: Maximum size of the note of a return, in bytes.
_MOST_NOTE = 4096

#: Timeout of a record, and of any other Git operation, in seconds.
RECORD_SECONDS, _GIT_SECONDS = 15.0, 10.0

#: Nanoseconds in which a changed file may change again without a new time.
_TICK = 20_000_000

#: Modes of Git's trees.
_FILE, _PROGRAM, _LINK, _UNREAD = "100644", "100755", "120000", "160000"

#: The tree without files.
_EMPTY = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"

#: The name of a tree, or "". Any other value in a restored file would be an option of Git.
_TREE = re.compile(r"(?:[0-9a-f]{40})?")

#: Number of packs that are then merged.
_UNPACKED = 50

_STATUSES = {"A": "ADDED", "D": "DELETED"}


class FileChange(NamedTuple):
    status: str  #: ADDED, DELETED, UPDATED
    path: str


class ForkMoment(NamedTuple):
    """A record that a fork can get the folder from."""

    seq: int
    event_ids: list[str]


class TurnBack(NamedTuple):
    """A return of a conversation's folder to an earlier moment."""

    conversation: str
    seq: int  #: of the target event
    last: int  #: seq of the last event before the return; the current folder is recorded there
    events: Sequence[str]  #: ids of the events with an equal folder, the last one that of `last`
    marker: bytes  #: a file to add with the return: path below the sandbox's folder, and content
    note: bytes


class _Record(NamedTuple):
    conversation: str
    seq: int  #: of the event of the record; 0 before the first one
    tree: str
    moment: str = ""  #: name of the snapshot in `moments.py`; "": the folder may have changed since the event
    events: Sequence[str] = ()  #: ids of the events with an equal folder, the last one that of seq


#: Identity of a file: its mode in a tree, inode, size, and times of change in ns.
Seen = tuple[str, int, int, int, int]


@dataclass
class ShadowState:
    tree: str  #: last recorded tree; "" before the first record
    files: dict[str, Seen]
    records: list[_Record]
    trees: dict[str, int]  #: number of the reference that keeps each tree
    number: int


@contextlib.contextmanager
def _failing() -> Iterator[None]:
    """Report a failure of the host as a failure to record. A sentence for clients is unchanged."""
    try:
        yield
    except (NotRecorded, FileOverLimit, FolderNotKept):
        raise
    except (OSError, RuntimeCallFailed) as failure:
        with failing("the folder cannot be recorded"):
            raise failure


def beside(folder: Path) -> Path:
    """Return the place of a sandbox's shadow repositories: beside its folder on the host, hidden from sandboxes."""
    return folder.with_name(f".{folder.name}.shadow")


@contextlib.contextmanager
def held(place: Path) -> Iterator[int]:
    """Hold the lock of a sandbox's shadow repositories, as an open file. Raises RuntimeCallFailed after a minute."""
    with locked(place.with_name(f"{place.name}.lock")) as lock:
        yield lock


def forget(place: Path) -> None:
    """Delete the shadow repositories of a sandbox, whose lock is held. Raises OSError."""
    remove(place)
    place.with_name(f"{place.name}.lock").unlink()


class Shadow:
    """The shadow repository of one folder. Every method raises NotRecorded, and RuntimeCallFailed if the host fails."""

    def __init__(self, place: Path, work: Path, start: bytes) -> None:
        """place: of the sandbox's shadow repositories. start: path of the folder below `work`, the sandbox's folder."""
        self._place, self._work, self._start = place, work, start
        self._own = place / hashlib.sha256(start).hexdigest()[:16]
        self._git_dir = self._own / "git"
        self._moments = Moments(self._own)
        self._lock = -1  #: the open lock file, while it is held

    def record(self, conversation: str, seq: int, at_rest: Callable[[int], list[str]] = lambda _: []) -> None:
        """Record the folder at an event. Does nothing if the event, or a later one, has a record.

        at_rest: returns the ids of the events after a seq with the current folder; empty if it may have changed. Called
        before and after the folder is read, so that a snapshot for forks is either of that moment or not kept.
        """
        with self._used() as state:
            last = max((one.seq for one in state.records if one.conversation == conversation), default=-1)
            if last >= seq:
                return
            tree, moment, events = self._recorded(state), "", list[str]()
            if at_rest(last):
                moment = self._taken()
                events = at_rest(last)
            state.records.append(_Record(conversation, seq, tree, moment if events else "", events if moment else ()))
            self._keep(state)

    def moments(self, conversation: str) -> list[ForkMoment]:
        """Return the records that a fork of a conversation can get the folder from, in the order of the log."""
        with self._used() as state:
            own = [one for one in state.records if one.conversation == conversation and one.moment]
            return [ForkMoment(one.seq, [*one.events]) for one in sorted(own, key=lambda one: one.seq)]

    def restore(self, conversation: str, seq: int, folder: Path) -> None:
        """Fill a new folder with the record of an event, at this folder's path."""
        with self._used() as state:
            moment = self._moment(state, conversation, seq)
            self._moments.restore(moment, folder, reading.resolved(self._work, self._start) or b"")

    def turn_back(self, back: "TurnBack") -> None:
        """Restore the folder to the record of an event, atomically.

        The current folder is recorded first. Nobody uses the folder meanwhile. A repetition changes nothing.
        """
        draft = self._work.with_name(f"{self._work.name}.back")
        with self._used() as state:
            remove(draft)  # of a killed supervisor
            if self._note(back.marker) == back.note:
                return
            start, wanted = (
                reading.resolved(self._work, self._start) or b"",
                self._moment(state, back.conversation, back.seq),
            )
            tree = self._recorded(state)
            also = self._moments.paths(wanted)
            now = self._moments.take(self._work, start, self._environment(), Timeout(RECORD_SECONDS), also)
            kept = [one for one in state.records if (one.conversation, one.seq) != (back.conversation, back.last)]
            state.records = [*kept, _Record(back.conversation, back.last, tree, now, back.events)]
            self._keep(state)
            self._moment(state, back.conversation, back.last)  # otherwise there would be no way back
            draft.mkdir(mode=0o700)
            try:
                more = (back.marker, back.note)
                self._moments.turn_back(self._work, start, now, wanted, draft, more)
                exchange(draft, self._work)
            finally:
                remove(draft)

    def changes(
        self, conversation: str, since: int, until: int | None = None, *, walks: bool = True
    ) -> list[FileChange]:
        """Return the files that differ between two moments, sorted: before the event `since` (0: at the start) and
        before the event `until`, or now. walks: read the folder; otherwise "now" is its last reading.
        """
        with self._used() as state:
            before, after = self._between(state, conversation, since, until, walks)
            if before == after:
                return []
            options = ("-r", "-z", "--no-renames", "--name-status", "--ignore-submodules=none")
            words = self._git("diff-tree", *options, before, after).split(b"\0")
        found = [
            FileChange(_STATUSES.get(status[:1].decode(), "UPDATED"), os.fsdecode(path))
            for status, path in zip(words[::2], words[1::2], strict=False)
        ]
        if len(found) > MOST_CHANGES:
            raise NotRecorded(f"More than {MOST_CHANGES} files have changed,more than a list can have")
        return sorted(found, key=lambda one: one.path)

    def contents(
        self, conversation: str, path: str, since: int, until: int | None = None, *, walks: bool = True
    ) -> tuple[bytes | None, bytes | None]:
        """Return a file at those two moments; None if it is missing. Raises FileOverLimit."""
        with self._used() as state:
            before, after = self._between(state, conversation, since, until, walks)
            return self._content(before, path), self._content(after, path)

    @contextlib.contextmanager
    def _used(self) -> Iterator[ShadowState]:
        """Yield the state, with the lock held. Turn failures of Git and of the file system into a sentence."""
        if git_program() is None:
            raise NotRecorded("There is no git program on the sandbox's host, so its folder is not recorded")
        with _failing(), held(self._place) as self._lock:
            if not self._has_folder():
                forget(self._place)  # the sandbox was deleted: no record stays
                raise RuntimeCallFailed("the sandbox has no folder")
            if not all((self._git_dir / name).exists() for name in ("HEAD", "config")):
                self._make()
            self._remove_stale_locks()
            yield self._read()

    def _note(self, marker: bytes) -> bytes | None:
        with contextlib.suppress(FileOverLimit):
            return reading.content(self._work, marker, _MOST_NOTE)
        return None

    def _moment(self, state: ShadowState, conversation: str, seq: int) -> str:
        """Return the snapshot at an event. Raises NotRecorded."""
        moments = [one.moment for one in state.records if (one.conversation, one.seq) == (conversation, seq)]
        if not any(moments):
            raise NotRecorded(f"The folder was not recorded at event {seq}")
        return moments[0]

    def _has_folder(self) -> bool:
        return self._work.is_dir()

    def _make(self) -> None:
        """Create the bare repository, as `git init` does. Source: gitrepository-layout(5)."""
        for name in ("objects", "refs"):
            (self._git_dir / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        (self._git_dir / "config").write_text("[core]\n\trepositoryformatversion = 0\n\tbare = true\n")
        draft = self._git_dir / "HEAD.new"
        draft.write_text("ref: refs/heads/none\n")
        draft.replace(self._git_dir / "HEAD")  # a kill leaves no empty HEAD

    def _remove_stale_locks(self) -> None:
        """Delete the lock files of a killed Git. Callers hold the lock of this place, and so does Git."""
        for left in (*self._git_dir.glob("*.lock"), *self._git_dir.glob("refs/**/*.lock"), self._git_dir / "gc.pid"):
            left.unlink(missing_ok=True)

    def _between(
        self, state: ShadowState, conversation: str, since: int, until: int | None, walks: bool
    ) -> tuple[str, str]:
        before = _at(state, conversation, since)
        if until is not None:
            return before, _at(state, conversation, until)
        if not walks:
            return before, state.tree
        after = self._recorded(state)
        self._keep(state)
        return before, after

    def _read(self) -> ShadowState:
        try:
            kept = json.loads((self._own / "state.json").read_bytes())
            kept["files"] = {path: tuple(seen) for path, seen in kept["files"].items()}
            kept["records"] = [_Record(*one) for one in kept["records"]]
            state = ShadowState(**kept)
            if all(map(_TREE.fullmatch, [state.tree, *state.trees, *(one.tree for one in state.records)])):
                return state
            raise ValueError
        except FileNotFoundError:
            pass
        except (ValueError, KeyError, TypeError, AttributeError):
            log.warning("%s is damaged. The records of this folder start again", self._own / "state.json")
        return ShadowState("", {}, [], {}, 0)

    def _taken(self) -> str:
        """Take a snapshot of the current folder; "" if that is impossible, with a line in the log."""
        try:
            start = reading.resolved(self._work, self._start) or b""
            return self._moments.take(self._work, start, self._environment(), Timeout(RECORD_SECONDS))
        except RuntimeCallFailed as error:
            log.info("%s: no fork gets the folder as it is now: %s", self._own, error)
            return ""

    def _keep(self, state: ShadowState) -> None:
        """Write the state, and drop records while their number or size is too large."""
        is_full = used(self._place, MOST_BYTES) > MOST_BYTES
        if shrinks := is_full or len(state.records) > MOST_RECORDS:
            self._shrink(state)
        self._write(state)
        if shrinks:
            self._remove_unnamed(state)  # after the state: a kill leaves unnamed references, never missing ones
            is_full = used(self._place, MOST_BYTES) > MOST_BYTES
        if is_full and any(one.moment for one in state.records):
            state.records = [one._replace(moment="", events=()) for one in state.records]
            self._write(state)
            self._moments.sweep(())
            is_full = used(self._place, MOST_BYTES) > MOST_BYTES
        if is_full:
            raise NotRecorded(f"The records of the sandbox's folder take more than {MOST_BYTES >> 20} MiB")

    def _write(self, state: ShadowState) -> None:
        draft = self._own / "state.json.new"
        with draft.open("w") as file:
            file.write(json.dumps(vars(state)))
            file.flush()
            os.fsync(file.fileno())  # after a crash of the machine, the state is the previous or this one
        draft.replace(self._own / "state.json")

    def _shrink(self, state: ShadowState) -> None:
        """Drop all records except the first of each conversation and the last ones."""
        firsts: dict[str, _Record] = {}
        for one in sorted(state.records, key=lambda one: one.seq):
            firsts.setdefault(one.conversation, one)
        last = state.records[-_STAY:]
        state.records = [*[one for one in firsts.values() if one not in last], *last]
        kept = {state.tree, *(one.tree for one in state.records)}
        state.trees = {tree: number for tree, number in state.trees.items() if tree in kept}

    def _remove_unnamed(self, state: ShadowState) -> None:
        """Delete the references that the state does not name, and the objects that only they keep."""
        numbers = {str(number) for number in state.trees.values()}
        refs = self._git("for-each-ref", "--format=%(refname)", "refs/trees/").decode().split()
        dropped = "".join(f"delete {ref}\n" for ref in refs if ref.rpartition("/")[2] not in numbers)
        self._git("update-ref", "--stdin", given=dropped.encode())
        self._collect()
        self._moments.sweep({one.moment for one in state.records})

    def _collect(self) -> None:
        """Pack the repository and delete unused objects. A failure costs only disk space, and the next call retries."""
        try:
            self._git("gc", "--quiet", "--prune=now")
        except RuntimeCallFailed as failure:
            log.warning("%s is not packed: %s", self._git_dir, failure)

    def _recorded(self, state: ShadowState) -> str:
        """Return the tree of the current folder, and add its place to the state."""
        timeout = Timeout(RECORD_SECONDS)
        seen = self._walked(timeout)
        if state.tree and seen == state.files:
            return state.tree
        changed = [path for path, one in seen.items() if state.files.get(path) != one]
        gone = [path for path in state.files if path not in seen]
        state.number += 1
        state.tree, state.files = self._imported(state, seen, changed, gone, timeout), seen
        state.trees.setdefault(state.tree, state.number)
        if state.number % _UNPACKED == 0:
            self._collect()
        return state.tree

    def _walked(self, timeout: Timeout) -> dict[str, Seen]:
        """Return the identity of every recorded file, by its relative path."""
        start = reading.resolved(self._work, self._start)
        if start is None:
            raise NotRecorded("The conversation's folder is a link out of the persistent files")
        files: dict[str, Seen] = {}
        number = size = kept = passed = 0
        for left in self._own.glob(f"{COPIES}*"):  # of a killed supervisor
            remove(left)
        with Ignored(self._own, self._environment(), timeout) as ignored:

            def enters(path: bytes) -> bool:
                return not ignored.has(_from(start, path), is_directory=True)

            def passing(path: bytes) -> None:
                nonlocal number, passed
                number, passed = number + 1, passed + len(_from(start, path))
                ignored.check()
                if number > MOST_SEEN:
                    raise NotRecorded(f"The folder has more than {MOST_SEEN} files, so it is not recorded")
                if passed > MOST_PASSED:
                    raise NotRecorded(f"The paths in the folder have more than {MOST_PASSED} bytes in all")

            for entry in entries(self._work, start, without=reading.HEAVY, enters=enters, passing=passing):
                path = _from(start, entry.path)
                if path.count(b"/") >= MOST_DEEP:
                    raise NotRecorded(f"The folder has more than {MOST_DEEP} directories in each other")
                if entry.is_directory:
                    ignored.enter(path, entry.directory)
                elif entry.name != b".git" and not ignored.has(path):
                    one = _seen(entry.stat)
                    kept += len(path)
                    if kept > MOST_PATHS:
                        raise NotRecorded(f"The paths of the folder's files have more than {MOST_PATHS} bytes in all")
                    files[os.fsdecode(path)] = one
                    size += one[2] if one[0] != _UNREAD else 0
                    if len(files) > MOST_FILES:
                        raise NotRecorded(f"The folder has more than {MOST_FILES} files that no .gitignore leaves out")
                    if size > MOST_CONTENT:
                        raise NotRecorded(
                            f"The folder has more than {MOST_CONTENT >> 20} MiB of files that no .gitignore leaves out"
                        )
        return files

    def _imported(
        self, state: ShadowState, seen: dict[str, Seen], changed: list[str], gone: list[str], timeout: Timeout
    ) -> str:
        """Return the last tree with some files changed. Read them, and update their identities in `seen`."""
        # --force: a kill before the state was written left a reference of this number.
        start = reading.resolved(self._work, self._start) or b""
        above = {path[:at] for path in seen for at, letter in enumerate(path) if letter == "/"}
        with self._started("fast-import", "--quiet", "--done", "--force", timeout=timeout) as importer:
            assert importer.stdin is not None
            write = importer.stdin.write
            write(f"commit refs/trees/{state.number}\nmark :1\ncommitter - <-> 0 +0000\ndata 0\n\n".encode())
            write(f'M 040000 {state.tree} ""\n'.encode() if state.tree else b"deleteall\n")
            for path in gone:
                if path not in above:  # the content of a new directory replaces a file of the same name
                    write(b"D " + _quoted(path) + b"\n")
            with contextlib.closing(Directories(self._work)) as directories:
                for path in changed:
                    timeout.check()
                    inner = start + b"/" + os.fsencode(path) if start else os.fsencode(path)
                    read = _content_of(directories, inner)
                    if read is None:
                        del seen[path]
                        write(b"D " + _quoted(path) + b"\n")
                        continue
                    seen[path], content = read
                    mode = seen[path][0]
                    if content is None:
                        identity = self._identity(seen[path]).encode()
                        stands = hashlib.sha1(identity, usedforsecurity=False).hexdigest()
                        write(f"M {mode} {stands} ".encode() + _quoted(path) + b"\n")
                    else:
                        write(f"M {mode} inline ".encode() + _quoted(path) + b"\n")
                        write(b"data %d\n%b\n" % (len(content), content))
            write(b'\nls :1 ""\ndone\n')  # the empty line ends the commit
            importer.stdin.close()
            assert importer.stdout is not None
            reply = importer.stdout.read()
        return reply.split()[2].decode() if reply.startswith(b"040000 ") else _EMPTY

    def _identity(self, seen: Seen) -> str:
        """Return the identity of a file without recorded content. A mirror ignores times."""
        return repr(seen)

    def _content(self, tree: str, path: str) -> bytes | None:
        listed = self._git("ls-tree", "-z", "--full-tree", tree, "--", path)
        if not listed:
            return None
        _, kind, name = listed.partition(b"\t")[0].decode().split()
        if kind == "commit":
            raise FileOverLimit(f"The file is not recorded as text: it has more than {MOST_FILE} bytes")
        return self._git("cat-file", "blob", name) if kind == "blob" else None

    def _git(self, *words: str, given: bytes = b"") -> bytes:
        with self._started(*words, timeout=Timeout(_GIT_SECONDS)) as git:
            return git.communicate(given)[0]

    def _environment(self) -> dict[str, str]:
        return environment_of(self._git_dir)

    @contextlib.contextmanager
    def _started(self, *words: str, timeout: Timeout) -> Iterator["subprocess.Popen[bytes]"]:
        """Start Git on the repository, as `running` does. It inherits the lock, as it may outlive this process."""
        with running(self._git_dir, self._environment(), *words, timeout=timeout, lock=self._lock) as git:
            yield git


def _at(state: ShadowState, conversation: str, seq: int) -> str:
    """Return the tree of the last record before an event; 0: at the start."""
    own = [one for one in state.records if one.conversation == conversation]
    records = sorted((one for one in own if one.seq < max(seq, 1)), key=lambda one: one.seq)
    if not records:
        moment = f"before event {seq}" if seq else "at the start of the conversation"
        raise NotRecorded(f"The folder was not recorded {moment}")
    return records[-1].tree


def _from(start: bytes, path: bytes) -> bytes:
    return path[len(start) + 1 :] if start else path


def _seen(status: os.stat_result) -> Seen:
    if stat.S_ISLNK(status.st_mode):
        mode = _LINK
    elif status.st_size > MOST_FILE:
        mode = _UNREAD
    else:
        mode = _PROGRAM if status.st_mode & 0o100 else _FILE
    changed = 0 if abs(time.time_ns() - status.st_ctime_ns) < _TICK else status.st_ctime_ns
    return mode, status.st_ino, status.st_size, status.st_mtime_ns, changed


def _content_of(directories: Directories, path: bytes) -> tuple[Seen, bytes | None] | None:
    """Return a file's current identity and content. None if the file is gone; content None if it is not read."""
    parent, _, name = path.rpartition(b"/")
    with unreadable(path):
        directory = directories.opened(parent)
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            return _seen(status), os.fsencode(os.readlink(name, dir_fd=directory))
        if not stat.S_ISREG(status.st_mode):
            return None
        try:
            with opened_file(name, directory) as (file, now):
                seen = _seen(now)
                return seen, None if seen[0] == _UNREAD else os.read(file, MOST_FILE)
        except PermissionError:
            return (_UNREAD, *_seen(status)[1:]), None
    return None


def _quoted(path: str) -> bytes:
    """Quote a path of any bytes for `fast-import`."""
    plain = os.fsencode(path).replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")
    return b'"' + plain + b'"'
