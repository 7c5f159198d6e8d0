"""Complete snapshots of a folder, bit for bit, for forks of a conversation.

OWN/moments/
    contents/ab/cdef…  the content of a file, under its SHA-256
    manifests/NAME     the folder's entries, one per line, compressed; NAME is the SHA-256 of the lines
    seen.json          the identity of each file in the last manifest, so that only changed files are read

A manifest also names the paths that `.gitignore` files exclude, without content: a return leaves them alone.

The Git of `shadow.py` is not enough: its trees lack empty directories, most of the modes, times, hard links, and files
below `.git`, without which a fork would be no repository. So Git is used only for `.gitignore`.

Kept: the same as in `archive.py`, with generated files (`build` may be anybody's folder) and `.git`. Excluded: paths
that `.gitignore` files exclude, the agent server's own folder, sockets, FIFOs and devices. A symlink is kept as a link.

Nothing in the folder is executed or followed. A content is checked against its name when it is restored, so neither a
power failure nor a damaged disk gives a fork other bytes.
"""

import hashlib
import json
import os
import stat
import time
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

from runtimes import RuntimeCallFailed
from runtimes.archive import HardLinks, UnpackTarget, member_of, naming
from runtimes.folder import FolderEntry, entries, opened_file, remove, unreadable
from runtimes.git import COPIES, Ignored, NotRecorded, Timeout
from runtimes.tar_stream import PIECE, Member, MemberKind, shown

#: Maximum number of entries of a folder, bytes of their paths, and bytes of all contents.
MOST_ENTRIES, MOST_PATHS, MOST_CONTENT = 50_000, 4 << 20, 256 << 20

#: Maximum size of a manifest's lines, in bytes.
_MOST_LINES = 64 << 20

#: The agent server's directory, with the conversations of the sandbox.
_AGENTS_OWN = b".agent-server"

#: Kind of a line about an excluded path, with everything below.
_LEFT_OUT = "left out"

#: Nanoseconds in which a changed file may change again without a new time.
_TICK = 20_000_000

#: Inode, size, times of modification and of change in ns, and SHA-256 of the content.
_Seen = tuple[int, int, int, int, str]


class _Line(NamedTuple):
    kind: str  #: a MemberKind
    name: str
    mode: int
    mtime: int  #: ns
    size: int
    word: str  #: target of a link, or SHA-256 of a file's content

    @property
    def path(self) -> bytes:
        return os.fsencode(self.name)

    @property
    def content(self) -> str:
        """Return the SHA-256 of the content; "" without content."""
        return self.word if self.kind == MemberKind.FILE else ""

    def placed(self, start: bytes) -> Member:
        """Return the entry below a directory `start`. The target of a symlink is unchanged."""
        kind = MemberKind(self.kind)
        target = b"" if self.content else os.fsencode(self.word)
        target = _below(start, target) if kind is MemberKind.HARDLINK else target
        return Member(_below(start, self.path), kind, self.mode, self.mtime, self.size, target)


class Moments:
    """The snapshots of one folder. The caller holds the lock of the sandbox's records."""

    def __init__(self, own: Path) -> None:
        """own: folder of the records of the folder."""
        self._own = own
        self._contents, self._manifests = own / "moments" / "contents", own / "moments" / "manifests"
        self._seen = own / "moments" / "seen.json"

    def take(
        self,
        work: Path,
        start: bytes,
        environment: dict[str, str],
        timeout: Timeout,
        also: Collection[bytes] = frozenset(),
    ) -> str:
        """Take a snapshot of a directory `start` of a folder, and return the name of its manifest.

        environment: for Git, which matches `.gitignore` files. also: paths that they do not exclude. Raises
        NotRecorded, RuntimeCallFailed and OSError.
        """
        for folder in (self._contents, self._manifests):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        known, seen, lines, size, links = self._known(), dict[str, _Seen](), list[bytes](), 0, HardLinks()
        left_out = list[bytes]()
        for left in self._own.glob(f"{COPIES}*"):
            remove(left)
        try:
            with Ignored(self._own, environment, timeout) as ignored:
                for entry in _kept(work, start, ignored, timeout, also, left_out.append):
                    size += entry.stat.st_size if stat.S_ISREG(entry.stat.st_mode) else 0
                    if len(lines) > MOST_ENTRIES:
                        words = f"more than {MOST_ENTRIES} files"
                        raise NotRecorded(f"The folder has {words} that no .gitignore leaves out")
                    if size > MOST_CONTENT:
                        words = f"more than {MOST_CONTENT >> 20} MiB of files"
                        raise NotRecorded(f"The folder has {words} that no .gitignore leaves out")
                    with unreadable(entry.path):
                        line = self._line(entry, _from(start, entry.path), links, known, seen)
                        lines.append(json.dumps(line).encode())
        except NotRecorded:  # keep progress, so that a slow host can record a large folder in several attempts
            _write(self._seen, json.dumps(known | seen).encode())
            raise
        lines += [json.dumps((_LEFT_OUT, os.fsdecode(path), 0, 0, 0, "")).encode() for path in left_out]
        text = b"\n".join(lines)
        name = hashlib.sha256(text).hexdigest()
        if not (self._manifests / name).exists():
            _write(self._manifests / name, zlib.compress(text, 1))
        _write(self._seen, json.dumps(seen).encode())
        return name

    def restore(self, name: str, folder: Path, start: bytes) -> None:
        """Fill the directory `start` of a new folder with a snapshot. Raises RuntimeCallFailed and NotRecorded."""
        with closing(UnpackTarget(folder)) as target:
            for line in self._lines(name):
                self._add(target, line, start)
            target.finish()

    def paths(self, name: str) -> frozenset[bytes]:
        """Return the paths of a snapshot. Raises RuntimeCallFailed and NotRecorded."""
        return frozenset(line.path for line in self._lines(name))

    def turn_back(
        self, work: Path, start: bytes, now: str, wanted: str, folder: Path, more: tuple[bytes, bytes]
    ) -> None:
        """Fill a new folder with a sandbox's files, and its directory `start` with the snapshot `wanted`.

        now: the snapshot of `start`, taken with the paths of `wanted`. Paths in neither snapshot, and paths that
        `wanted` excluded, stay: they are the same files under another name, like files that are equal in both. more: a
        file to add, path and content. Nobody uses either folder. Raises RuntimeCallFailed and NotRecorded.
        """
        before = {line.path: line for line in self._lines(now)}
        after = {line.path: line for line in self._lines(wanted)}
        left_out, placed, missing = frozenset(self._left_out(wanted)), set[bytes](), dict[bytes, Member]()
        owner = work.stat()
        with closing(UnpackTarget(folder, (owner.st_uid, owner.st_gid))) as target:
            for entry in entries(work):
                inner = _inside(start, entry.path)
                line = None if inner is None else after.get(inner)
                if line is None and inner is not None and inner in before and not _is_below(inner, left_out):
                    if entry.is_directory:  # it stays if anything stays in it
                        missing[entry.path] = member_of(entry, MemberKind.DIRECTORY, entry.path)
                    continue
                if line is None:
                    _require_room(inner, after)
                    for parent in _parents(entry.path):
                        if member := missing.pop(parent, None):
                            target.add(member, ())
                elif entry.is_directory or line != before.get(line.path) or line.kind != MemberKind.FILE:
                    continue
                with naming(entry.path):
                    if entry.is_directory:
                        target.add(member_of(entry, MemberKind.DIRECTORY, entry.path), ())
                    else:
                        target.link(entry)
                if line is not None:
                    placed.add(line.path)
            for line in after.values():
                if line.path not in placed:
                    self._add(target, line, start)
            path, content = more
            with naming(path):
                target.add(Member(path, MemberKind.FILE, 0o600, time.time_ns(), len(content)), (content,))
            target.finish()

    def sweep(self, names: Collection[str]) -> None:
        """Delete the manifests without one of the names, and the contents that no other manifest needs."""
        needed = set[str]()
        for manifest in self._manifests.glob("*"):
            if manifest.name in names:
                needed.update(line.content for line in self._lines(manifest.name))
            else:
                manifest.unlink()
        for content in self._contents.glob("*/*"):
            if content.parent.name + content.name not in needed:
                content.unlink()

    def _line(
        self, entry: FolderEntry, path: bytes, links: HardLinks, known: dict[str, _Seen], seen: dict[str, _Seen]
    ) -> tuple[str, str, int, int, int, str]:
        """Return an entry's line in a manifest: kind, path, mode, mtime in ns, size, and the target or the content."""
        name = os.fsdecode(path)
        if entry.is_directory:
            return _words(member_of(entry, MemberKind.DIRECTORY, path), name)
        if entry.is_symlink:
            target = os.fsencode(os.readlink(entry.name, dir_fd=entry.directory))
            return _words(member_of(entry, MemberKind.SYMLINK, path, target), name)
        if (first := links.first(entry)) is not None:
            return _words(member_of(entry, MemberKind.HARDLINK, path, first), name)
        links.note(entry, path)
        was, now = known.get(name), _identity(entry.stat)
        if was is None or was[:4] != now or not now[3] or not self._place(was[4]).exists():
            was = self._read(entry)
        seen[name] = was
        kind, mode = MemberKind.FILE, stat.S_IMODE(entry.stat.st_mode)
        return kind, name, mode, was[2], was[1], was[4]

    def _read(self, entry: FolderEntry) -> _Seen:
        """Store the content of a file. Raises OSError."""
        draft, digest, size = self._contents / "draft", hashlib.sha256(), 0
        with opened_file(entry.name, entry.directory) as (file, status), draft.open("wb") as kept:
            while size <= MOST_CONTENT and (piece := os.read(file, PIECE)):
                digest.update(piece)
                kept.write(piece)
                size += len(piece)
        name = digest.hexdigest()
        self._place(name).parent.mkdir(mode=0o700, exist_ok=True)
        draft.replace(self._place(name))
        inode, _, mtime, changed = _identity(status)
        return inode, size, mtime, changed, name

    def _place(self, content: str) -> Path:
        return self._contents / content[:2] / content[2:]

    def _known(self) -> dict[str, _Seen]:
        try:
            return {path: tuple(one) for path, one in json.loads(self._seen.read_bytes()).items()}
        except (OSError, ValueError, AttributeError, TypeError):
            return {}

    def _lines(self, name: str) -> Iterator[_Line]:
        """Yield the entries of a snapshot. Raises NotRecorded and RuntimeCallFailed."""
        return (_Line(*line) for line in self._read_lines(name) if line[0] != _LEFT_OUT)

    def _left_out(self, name: str) -> Iterator[bytes]:
        """Yield the paths that `.gitignore` excluded in a snapshot. Raises NotRecorded and RuntimeCallFailed."""
        return (os.fsencode(line[1]) for line in self._read_lines(name) if line[0] == _LEFT_OUT)

    def _read_lines(self, name: str) -> Iterator[list[Any]]:
        try:
            reader = zlib.decompressobj()
            text = reader.decompress((self._manifests / name).read_bytes(), _MOST_LINES)
        except FileNotFoundError:
            raise NotRecorded("The folder's record of this moment was deleted") from None
        except (OSError, zlib.error) as error:
            raise RuntimeCallFailed(f"a record of the folder cannot be read: {error}") from None
        if hashlib.sha256(text).hexdigest() != name:
            raise RuntimeCallFailed("a record of the folder is damaged")
        return map(json.loads, text.split(b"\n"))

    def _add(self, target: UnpackTarget, line: _Line, start: bytes) -> None:
        """Add an entry of a snapshot to a folder, below its directory `start`."""
        member = line.placed(start)
        with naming(member.name):
            target.add(member, self._content(line.content, member) if line.content else ())

    def _content(self, name: str, member: Member) -> Iterator[bytes]:
        digest, size = hashlib.sha256(), 0
        with suppress(FileNotFoundError), self._place(name).open("rb") as file:
            while piece := file.read(PIECE):
                digest.update(piece)
                size += len(piece)
                yield piece
        if digest.hexdigest() != name or size != member.size:
            raise RuntimeCallFailed(f"the record of {shown(member.name)} is damaged")


def _kept(
    work: Path,
    start: bytes,
    ignored: Ignored,
    timeout: Timeout,
    also: Collection[bytes],
    leave: Callable[[bytes], None],
) -> Iterator[FolderEntry]:
    """Yield the included entries of a directory. leave: receives the path of each excluded one. Raises NotRecorded."""
    passed = 0

    def keeps(path: bytes, *, is_directory: bool = False) -> bool:
        if path in also or _is_gits(path) or not ignored.has(path, is_directory=is_directory):
            return True
        leave(path)
        return False

    def passing(path: bytes) -> None:
        nonlocal passed
        passed += len(_from(start, path))
        ignored.check()
        if passed > MOST_PATHS:
            raise NotRecorded(f"The paths in the folder have more than {MOST_PATHS >> 20} MiB in all")

    timeout.check()

    def enters(path: bytes) -> bool:
        return keeps(_from(start, path), is_directory=True)

    for entry in entries(work, start, without={_AGENTS_OWN}, enters=enters, passing=passing):
        path = _from(start, entry.path)
        if entry.is_directory:
            if not _is_gits(path):
                ignored.enter(path, entry.directory)
            yield entry
        elif keeps(path):
            yield entry


def _inside(start: bytes, path: bytes) -> bytes | None:
    """Return the path of an entry relative to `start`; None outside of it, and for the agent server's files."""
    if start and path != start and not path.startswith(start + b"/"):
        return None
    inner = b"" if path == start else _from(start, path)
    return None if _AGENTS_OWN in inner.split(b"/") else inner


def _parents(path: bytes) -> list[bytes]:
    """Return the parent directories of a path, the outermost first."""
    return [path[:at] for at, letter in enumerate(path) if letter == ord("/")]


def _is_below(path: bytes, places: Collection[bytes]) -> bool:
    """Return whether a path is at or below one of these places."""
    return path in places or any(parent in places for parent in _parents(path))


def _require_room(path: bytes | None, after: Mapping[bytes, _Line]) -> None:
    """Raise NotRecorded if a snapshot has a file at the path of a directory that must stay."""
    for parent in _parents(path or b""):
        line = after.get(parent)
        if line is not None and line.kind != MemberKind.DIRECTORY:
            raise NotRecorded(
                f"{shown(path or b'')} is left out by a .gitignore file, so no record has it, and it would be lost: a "
                f"file had the place of {shown(parent)}. Move it first"
            )


def _is_gits(path: bytes) -> bool:
    """Return whether a path is one of a repository's own files, which no pattern excludes."""
    return b".git" in path.split(b"/")


def _identity(status: os.stat_result) -> tuple[int, int, int, int]:
    """Return the identity of an unread file. A file that has just changed is read again."""
    is_fresh = abs(time.time_ns() - status.st_ctime_ns) < _TICK
    return status.st_ino, status.st_size, status.st_mtime_ns, 0 if is_fresh else status.st_ctime_ns


def _words(member: Member, name: str) -> tuple[str, str, int, int, int, str]:
    return member.kind, name, member.mode, member.mtime, 0, os.fsdecode(member.target)


def _from(start: bytes, path: bytes) -> bytes:
    return path[len(start) + 1 :] if start else path


def _below(start: bytes, path: bytes) -> bytes:
    return start + b"/" + path if start and path else start or path


def _write(file: Path, content: bytes) -> None:
    """Write a file atomically."""
    draft = file.with_name(f"{file.name}.new")
    draft.write_bytes(content)
    draft.replace(file)
