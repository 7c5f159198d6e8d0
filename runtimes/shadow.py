"""The shadow repository of a folder: the folder as it was at moments of a conversation, whether or not it has Git.

PLACE/KEY/           one for each folder of a sandbox that was recorded; PLACE lies outside of the sandbox's folder
    git/             a bare repository
    copies-…/        copies of the `.gitignore` files above what is walked
    moments/         the folder whole, for forks: `moments.py`
    state.json       the tree that was recorded last, what every file of it was seen as, and the records by event
PLACE.lock           held by each caller that uses PLACE

The folder may be hostile, so Git never sees it. This process walks it as `folder.py` does, which follows no symlink and
opens no FIFO, and reads only what has changed by inode, size and times. Git gets names and bytes by standard input
(`fast-import`), and a copy of the folder's `.gitignore` files to say what they leave out (`check-ignore`). So neither
attributes, filters, hooks, submodules nor a configuration of the folder have any effect, and no conversion is made.

Left out: `.git`, what tools make (`reading.HEAVY`), what `.gitignore` leaves out, sockets, FIFOs, devices and empty
directories. A symlink is recorded as a link. Of a file that is larger than MOST_FILE, or that cannot be read, only that
it changed is recorded: it stands in the tree as a commit of a submodule does, which needs no object.

Limitation: a file that is written again within 20 ms and keeps its size, inode and times is seen by the next record.
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

from runtimes import FileTooLong, FolderNotKept, RuntimeFailure, reading
from runtimes.folder import Directories, entries, exchange, failing, locked, opened_file, remove, unreadable, used
from runtimes.git import COPIES, Ignored, NotRecorded, Timeout, environment_of, git_program, running
from runtimes.moments import Moments

log = logging.getLogger(__name__)

#: bytes of a file whose content is recorded, files of a folder, entries that are looked at, and bytes of all contents
MOST_FILE, MOST_FILES, MOST_SEEN, MOST_CONTENT = 1 << 20, 20_000, 200_000, 256 << 20

#: bytes of the paths of all files, which each record has in this process' memory and in a file, and of all entries
MOST_PATHS, MOST_PASSED = 4 << 20, 16 << 20

#: directories that lie in each other
MOST_DEEP = 200

#: bytes that the records of a sandbox take, records that one folder has, and changed files that are listed
MOST_BYTES, MOST_RECORDS, MOST_CHANGES = 1 << 30, 1_000, 10_000

#: records of a conversation that stay when there are too many, beside its first one
_STAY = 20

#: bytes of the note of a return that are read
_MOST_NOTE = 4096

#: seconds that a record may take, and that Git may take for anything else
RECORD_SECONDS, _GIT_SECONDS = 15.0, 10.0

#: ns for which a file that was just changed may change again without another time
_TICK = 20_000_000

#: modes of Git's trees
_FILE, _PROGRAM, _LINK, _UNREAD = "100644", "100755", "120000", "160000"

#: the tree without files
_EMPTY = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"

#: the name of a tree, or of none: whatever else a restored file has would be an option of Git
_TREE = re.compile(r"(?:[0-9a-f]{40})?")

#: packs that lie beside each other before they become one
_UNPACKED = 50

_STATUSES = {"A": "ADDED", "D": "DELETED"}


class FileChange(NamedTuple):
    status: str  #: ADDED, DELETED, UPDATED
    path: str


class Moment(NamedTuple):
    """A record from which a fork gets the folder."""

    seq: int
    event_ids: list[str]


class TurnBack(NamedTuple):
    """A return of a conversation's folder to an earlier moment."""

    conversation: str
    seq: int  #: of the event to whose record it returns
    last: int  #: seq of the last event before the return, beside which the present folder is recorded
    events: Sequence[str]  #: ids of the events at which it was the same, the last one that of `last`
    marker: bytes  #: path of a file below the sandbox's folder that comes with the return, and its content
    note: bytes


class _Record(NamedTuple):
    conversation: str
    seq: int  #: of the event beside which the folder was recorded; 0 before the first one
    tree: str
    moment: str = ""  #: the folder whole, as `moments.py` names it; empty: it may have changed since the event
    events: Sequence[str] = ()  #: ids of the events at which it was the same, the last one that of seq


#: what a file was seen as: its mode in a tree, inode, size, and times of change in ns
Seen = tuple[str, int, int, int, int]


@dataclass
class ShadowState:
    tree: str  #: that was recorded last; empty before the first time
    files: dict[str, Seen]
    records: list[_Record]
    trees: dict[str, int]  #: number of the reference that keeps each tree
    number: int  #: of the last one


@contextlib.contextmanager
def _failing() -> Iterator[None]:
    """Say that a failure of the host kept the folder from being recorded; a sentence for clients stays as it is."""
    try:
        yield
    except (NotRecorded, FileTooLong, FolderNotKept):
        raise
    except (OSError, RuntimeFailure) as failure:
        with failing("the folder cannot be recorded"):
            raise failure


def beside(folder: Path) -> Path:
    """Where the shadow repositories of a sandbox lie: beside its folder on the host, and shown to no sandbox."""
    return folder.with_name(f".{folder.name}.shadow")


@contextlib.contextmanager
def held(place: Path) -> Iterator[int]:
    """Hold the lock of a sandbox's shadow repositories, as an open file. Raises RuntimeFailure after a minute."""
    with locked(place.with_name(f"{place.name}.lock")) as lock:
        yield lock


def forget(place: Path) -> None:
    """Remove the shadow repositories of a sandbox, whose lock is held. Raises OSError."""
    remove(place)
    place.with_name(f"{place.name}.lock").unlink()


class Shadow:
    """The shadow repository of one folder. Every method raises NotRecorded, and RuntimeFailure where the host fails."""

    def __init__(self, place: Path, work: Path, start: bytes) -> None:
        """place: of the sandbox's shadow repositories. start: path of the folder below `work`, the sandbox's own."""
        self._place, self._work, self._start = place, work, start
        self._own = place / hashlib.sha256(start).hexdigest()[:16]
        self._git_dir = self._own / "git"
        self._moments = Moments(self._own)
        self._lock = -1  #: the open file of the lock, while it is held

    def record(self, conversation: str, seq: int, at_rest: Callable[[int], list[str]] = lambda _: []) -> None:
        """Record the folder beside an event. An event that has a later record, or its own, changes nothing.

        at_rest: the ids of the events after a seq at which the folder was as it is now; none where it may have changed.
        Asked before and after the folder is read: what a fork gets is of that moment, or is not kept.
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

    def moments(self, conversation: str) -> list[Moment]:
        """The records from which a fork of a conversation gets the folder, in the order of the log."""
        with self._used() as state:
            own = [one for one in state.records if one.conversation == conversation and one.moment]
            return [Moment(one.seq, [*one.events]) for one in sorted(own, key=lambda one: one.seq)]

    def restore(self, conversation: str, seq: int, folder: Path) -> None:
        """Fill a new folder with this one as it was recorded beside an event, by its path there."""
        with self._used() as state:
            found = self._moment(state, conversation, seq)
            self._moments.restore(found, folder, reading.led(self._work, self._start) or b"")

    def turn_back(self, back: "TurnBack") -> None:
        """Bring the folder back to how it was recorded beside an event, as a whole or not at all.

        The present folder is recorded first. Nobody uses the folder meanwhile. A repeat changes nothing.
        """
        draft = self._work.with_name(f"{self._work.name}.back")
        with self._used() as state:
            remove(draft)  # of a supervisor that was killed
            if self._note(back.marker) == back.note:
                return
            start, wanted = (
                reading.led(self._work, self._start) or b"",
                self._moment(state, back.conversation, back.seq),
            )
            tree = self._recorded(state)
            also = self._moments.paths(wanted)
            now = self._moments.take(self._work, start, self._environment(), Timeout(RECORD_SECONDS), also)
            kept = [one for one in state.records if (one.conversation, one.seq) != (back.conversation, back.last)]
            state.records = [*kept, _Record(back.conversation, back.last, tree, now, back.events)]
            self._keep(state)
            self._moment(state, back.conversation, back.last)  # else there would be no way back
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
        """The files that differ between two moments, sorted: before the event `since` (0: at the start) and before the
        event `until`, or now. walks: read the folder; otherwise "now" is when it was read last."""
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
            raise NotRecorded(f"More than {MOST_CHANGES} files have changed, which are more than are listed")
        return sorted(found, key=lambda one: one.path)

    def contents(
        self, conversation: str, path: str, since: int, until: int | None = None, *, walks: bool = True
    ) -> tuple[bytes | None, bytes | None]:
        """A file at those two moments; None where there is none. Raises FileTooLong."""
        with self._used() as state:
            before, after = self._between(state, conversation, since, until, walks)
            return self._content(before, path), self._content(after, path)

    @contextlib.contextmanager
    def _used(self) -> Iterator[ShadowState]:
        """The state, with the lock held. What Git or the file system fails with is one sentence."""
        if git_program() is None:
            raise NotRecorded("There is no git program on the sandbox's host, so its folder is not recorded")
        with _failing(), held(self._place) as self._lock:
            if not self._has_folder():
                forget(self._place)  # the sandbox was removed: nothing of it stays
                raise RuntimeFailure("the sandbox has no folder")
            if not all((self._git_dir / name).exists() for name in ("HEAD", "config")):
                self._make()
            self._remove_stale_locks()
            yield self._read()

    def _note(self, marker: bytes) -> bytes | None:
        with contextlib.suppress(FileTooLong):
            return reading.content(self._work, marker, _MOST_NOTE)
        return None

    def _moment(self, state: ShadowState, conversation: str, seq: int) -> str:
        """The moment beside an event. Raises NotRecorded."""
        found = [one.moment for one in state.records if (one.conversation, one.seq) == (conversation, seq)]
        if not any(found):
            raise NotRecorded(f"The folder was not recorded at event {seq}")
        return found[0]

    def _has_folder(self) -> bool:
        return self._work.is_dir()

    def _make(self) -> None:
        """Make the bare repository, as `git init` does. Source: gitrepository-layout(5)."""
        for name in ("objects", "refs"):
            (self._git_dir / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        (self._git_dir / "config").write_text("[core]\n\trepositoryformatversion = 0\n\tbare = true\n")
        draft = self._git_dir / "HEAD.new"
        draft.write_text("ref: refs/heads/none\n")
        draft.replace(self._git_dir / "HEAD")  # a kill leaves no HEAD without content

    def _remove_stale_locks(self) -> None:
        """Remove the lock files of a Git that was killed. Its callers hold the lock of this place, and so does Git."""
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
            log.warning("%s is damaged: the records of this folder begin again", self._own / "state.json")
        return ShadowState("", {}, [], {}, 0)

    def _taken(self) -> str:
        """The moment of the folder as it is now; empty where it cannot be kept whole, which the log says."""
        try:
            start = reading.led(self._work, self._start) or b""
            return self._moments.take(self._work, start, self._environment(), Timeout(RECORD_SECONDS))
        except RuntimeFailure as error:
            log.info("%s: no fork gets the folder as it is now: %s", self._own, error)
            return ""

    def _keep(self, state: ShadowState) -> None:
        """Write the state, and drop records while there are too many, or too many bytes."""
        is_full = used(self._place, MOST_BYTES) > MOST_BYTES
        if shrinks := is_full or len(state.records) > MOST_RECORDS:
            self._shrink(state)
        self._write(state)
        if shrinks:
            self._remove_unnamed(state)  # after the state: a kill leaves references without a name, never the opposite
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
            os.fsync(file.fileno())  # a machine that goes down leaves the state before or this one
        draft.replace(self._own / "state.json")

    def _shrink(self, state: ShadowState) -> None:
        """Drop all but the first record of each conversation and the last ones."""
        firsts: dict[str, _Record] = {}
        for one in sorted(state.records, key=lambda one: one.seq):
            firsts.setdefault(one.conversation, one)
        last = state.records[-_STAY:]
        state.records = [*[one for one in firsts.values() if one not in last], *last]
        kept = {state.tree, *(one.tree for one in state.records)}
        state.trees = {tree: number for tree, number in state.trees.items() if tree in kept}

    def _remove_unnamed(self, state: ShadowState) -> None:
        """Remove the references that the state does not name, and the objects that only they keep."""
        numbers = {str(number) for number in state.trees.values()}
        refs = self._git("for-each-ref", "--format=%(refname)", "refs/trees/").decode().split()
        dropped = "".join(f"delete {ref}\n" for ref in refs if ref.rpartition("/")[2] not in numbers)
        self._git("update-ref", "--stdin", given=dropped.encode())
        self._collect()
        self._moments.sweep({one.moment for one in state.records})

    def _collect(self) -> None:
        """Pack what is kept and remove the rest. A failure costs room alone, and the next call tries again."""
        try:
            self._git("gc", "--quiet", "--prune=now")
        except RuntimeFailure as failure:
            log.warning("%s is not packed: %s", self._git_dir, failure)

    def _recorded(self, state: ShadowState) -> str:
        """The tree of the folder as it is now, whose place in the state is set."""
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
        """Every file of the folder that is recorded, by its path from there."""
        start = reading.led(self._work, self._start)
        if start is None:
            raise NotRecorded("The conversation's folder is a link out of the files that are kept")
        found: dict[str, Seen] = {}
        number = size = kept = passed = 0
        for left in self._own.glob(f"{COPIES}*"):  # by a supervisor that was killed
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
                    found[os.fsdecode(path)] = one
                    size += one[2] if one[0] != _UNREAD else 0
                    if len(found) > MOST_FILES:
                        raise NotRecorded(f"The folder has more than {MOST_FILES} files that no .gitignore leaves out")
                    if size > MOST_CONTENT:
                        raise NotRecorded(
                            f"The folder has more than {MOST_CONTENT >> 20} MiB of files that no .gitignore leaves out"
                        )
        return found

    def _imported(
        self, state: ShadowState, seen: dict[str, Seen], changed: list[str], gone: list[str], timeout: Timeout
    ) -> str:
        """The tree that differs from the last one by some files, which are read; `seen` has what they are by then."""
        # --force: a kill before the state was written has left a reference of this number.
        start = reading.led(self._work, self._start) or b""
        above = {path[:at] for path in seen for at, letter in enumerate(path) if letter == "/"}
        with self._started("fast-import", "--quiet", "--done", "--force", timeout=timeout) as importer:
            assert importer.stdin is not None
            write = importer.stdin.write
            write(f"commit refs/trees/{state.number}\nmark :1\ncommitter - <-> 0 +0000\ndata 0\n\n".encode())
            write(f'M 040000 {state.tree} ""\n'.encode() if state.tree else b"deleteall\n")
            for path in gone:
                if path not in above:  # a file that is a directory now is replaced by what lies in it
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
            told = importer.stdout.read()
        return told.split()[2].decode() if told.startswith(b"040000 ") else _EMPTY

    def _identity(self, seen: Seen) -> str:
        """What tells a file whose content is not recorded from what it was before; a mirror has no times of its own."""
        return repr(seen)

    def _content(self, tree: str, path: str) -> bytes | None:
        listed = self._git("ls-tree", "-z", "--full-tree", tree, "--", path)
        if not listed:
            return None
        _, kind, name = listed.partition(b"\t")[0].decode().split()
        if kind == "commit":
            raise FileTooLong(f"The file is not text that is recorded: it has more than {MOST_FILE} bytes")
        return self._git("cat-file", "blob", name) if kind == "blob" else None

    def _git(self, *words: str, given: bytes = b"") -> bytes:
        with self._started(*words, timeout=Timeout(_GIT_SECONDS)) as git:
            return git.communicate(given)[0]

    def _environment(self) -> dict[str, str]:
        return environment_of(self._git_dir)

    @contextlib.contextmanager
    def _started(self, *words: str, timeout: Timeout) -> Iterator["subprocess.Popen[bytes]"]:
        """Git at work on the repository, as `running` has it. It holds the lock too: it may outlive this process."""
        with running(self._git_dir, self._environment(), *words, timeout=timeout, lock=self._lock) as git:
            yield git


def _at(state: ShadowState, conversation: str, seq: int) -> str:
    """The tree that was recorded last before an event; 0: at the start."""
    own = [one for one in state.records if one.conversation == conversation]
    found = sorted((one for one in own if one.seq < max(seq, 1)), key=lambda one: one.seq)
    if not found:
        moment = f"before event {seq}" if seq else "at the start of the conversation"
        raise NotRecorded(f"The folder was not recorded {moment}")
    return found[-1].tree


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
    """What a file is by now, and its content; None for the whole where it is gone, and for that of one unread."""
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
    """A path as `fast-import` reads it, whatever its bytes are."""
    plain = os.fsencode(path).replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")
    return b'"' + plain + b'"'
