"""A folder at a moment, whole: what a fork of a conversation gets of it, bit for bit.

OWN/moments/
    contents/ab/cdef…  the content of a file, under its SHA-256
    manifests/NAME     what lay in the folder, a line for each entry, compressed; NAME is the SHA-256 of the lines
    seen.json          what each file was seen as by the last manifest, so that only changed files are read

Why not the Git of `shadow.py`: its trees have no empty directories, one bit of the modes, no times, no hard links, and
no file below `.git`, without which a fork would be no repository. So Git has no part in this but for `.gitignore`.

Kept: what `archive.py` keeps, with what tools make (`build` may be anybody's folder) and with `.git`. Left out: what
`.gitignore` files leave out, the agent server's own folder, sockets, FIFOs and devices. A symlink is kept as a link.

Nothing of the folder is executed or followed. A content is checked against its name when it is written back, so neither
a power cut nor a damaged disk gives a fork other bytes.
"""

import hashlib
import json
import os
import stat
import time
import zlib
from collections.abc import Collection, Iterator
from contextlib import closing, suppress
from pathlib import Path

from runtimes import RuntimeFailure
from runtimes.archive import Links, Target, member_of, naming
from runtimes.folder import FolderEntry, entries, opened_file, remove, unreadable
from runtimes.git import COPIES, Ignored, NotRecorded, Timeout
from runtimes.tar_stream import PIECE, Member, MemberKind, shown

#: entries of a folder, bytes of their paths, and bytes of all contents
MOST_ENTRIES, MOST_PATHS, MOST_CONTENT = 50_000, 4 << 20, 256 << 20

#: bytes of the lines of a manifest
_MOST_LINES = 64 << 20

#: directory of the agent server, which has the conversations of the sandbox
_AGENTS_OWN = b".agent-server"

#: ns for which a file that was just changed may change again without another time
_TICK = 20_000_000

#: inode, size, times of content and of change in ns, and SHA-256 of the content
_Seen = tuple[int, int, int, int, str]


class Moments:
    """The moments of one folder. The caller holds the lock of the sandbox's records."""

    def __init__(self, own: Path) -> None:
        """own: folder of the records of the folder."""
        self._own = own
        self._contents, self._manifests = own / "moments" / "contents", own / "moments" / "manifests"
        self._seen = own / "moments" / "seen.json"

    def take(self, work: Path, start: bytes, environment: dict[str, str], timeout: Timeout) -> str:
        """Keep what lies in a directory `start` of a folder; the name of its manifest.

        environment: for Git, which says what `.gitignore` files leave out. Raises NotRecorded, RuntimeFailure, OSError.
        """
        for folder in (self._contents, self._manifests):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        known, seen, lines, size, links = self._known(), dict[str, _Seen](), list[bytes](), 0, Links()
        for left in self._own.glob(f"{COPIES}*"):
            remove(left)
        with Ignored(self._own, environment, timeout) as ignored:
            for entry in _kept(work, start, ignored, timeout):
                size += entry.stat.st_size if stat.S_ISREG(entry.stat.st_mode) else 0
                if len(lines) > MOST_ENTRIES:
                    raise NotRecorded(f"The folder has more than {MOST_ENTRIES} files that no .gitignore leaves out")
                if size > MOST_CONTENT:
                    raise NotRecorded(
                        f"The folder has more than {MOST_CONTENT >> 20} MiB of files that no .gitignore leaves out"
                    )
                with unreadable(entry.path):
                    line = self._line(entry, _from(start, entry.path), links, known, seen)
                    lines.append(json.dumps(line).encode())
        text = b"\n".join(lines)
        name = hashlib.sha256(text).hexdigest()
        if not (self._manifests / name).exists():
            _write(self._manifests / name, zlib.compress(text, 1))
        _write(self._seen, json.dumps(seen).encode())
        return name

    def restore(self, name: str, folder: Path, start: bytes) -> None:
        """Fill a new folder's directory `start` with a moment. Raises RuntimeFailure, NotRecorded."""
        with closing(Target(folder)) as target:
            for member, content in self._members(name):
                path = start + b"/" + member.name if start and member.name else start or member.name
                to = start + b"/" + member.target if start and member.kind is MemberKind.HARDLINK else member.target
                placed = Member(path, member.kind, member.mode, member.mtime, member.size, to)
                with naming(path):
                    target.add(placed, self._content(content, member) if content else ())
            target.finish()

    def sweep(self, names: Collection[str]) -> None:
        """Remove the manifests that have none of the names, and the contents that no other one needs."""
        needed = set[str]()
        for manifest in self._manifests.glob("*"):
            if manifest.name in names:
                needed.update(content for _, content in self._members(manifest.name) if content)
            else:
                manifest.unlink()
        for content in self._contents.glob("*/*"):
            if content.parent.name + content.name not in needed:
                content.unlink()

    def _line(
        self, entry: FolderEntry, path: bytes, links: Links, known: dict[str, _Seen], seen: dict[str, _Seen]
    ) -> tuple[str, str, int, int, int, str]:
        """What a manifest has of an entry: kind, path, mode, mtime in ns, size, and the target or the content."""
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
        """Keep the content of a file. Raises OSError."""
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

    def _members(self, name: str) -> Iterator[tuple[Member, str]]:
        """The members of a manifest, and the name of the content of each file. Raises NotRecorded, RuntimeFailure."""
        try:
            reader = zlib.decompressobj()
            text = reader.decompress((self._manifests / name).read_bytes(), _MOST_LINES)
        except FileNotFoundError:
            raise NotRecorded("The folder's record of this moment is gone") from None
        except (OSError, zlib.error) as error:
            raise RuntimeFailure(f"a record of the folder cannot be read: {error}") from None
        if hashlib.sha256(text).hexdigest() != name:
            raise RuntimeFailure("a record of the folder is damaged")
        for line in text.split(b"\n"):
            kind, path, mode, mtime, size, word = json.loads(line)
            content = word if kind == MemberKind.FILE else ""
            target = b"" if content else os.fsencode(word)
            yield Member(os.fsencode(path), MemberKind(kind), mode, mtime, size, target), content

    def _content(self, name: str, member: Member) -> Iterator[bytes]:
        digest, size = hashlib.sha256(), 0
        with suppress(FileNotFoundError), self._place(name).open("rb") as file:
            while piece := file.read(PIECE):
                digest.update(piece)
                size += len(piece)
                yield piece
        if digest.hexdigest() != name or size != member.size:
            raise RuntimeFailure(f"the record of {shown(member.name)} is damaged")


def _kept(work: Path, start: bytes, ignored: Ignored, timeout: Timeout) -> Iterator[FolderEntry]:
    """The entries of a directory that are kept. Raises NotRecorded."""
    passed = 0

    def enters(path: bytes) -> bool:
        inner = _from(start, path)
        return _is_gits(inner) or not ignored.has(inner, is_directory=True)

    def passing(path: bytes) -> None:
        nonlocal passed
        passed += len(_from(start, path))
        ignored.check()
        if passed > MOST_PATHS:
            raise NotRecorded(f"The paths in the folder have more than {MOST_PATHS >> 20} MiB in all")

    timeout.check()
    for entry in entries(work, start, without={_AGENTS_OWN}, enters=enters, passing=passing):
        path = _from(start, entry.path)
        if entry.is_directory:
            if not _is_gits(path):
                ignored.enter(path, entry.directory)
            yield entry
        elif _is_gits(path) or not ignored.has(path):
            yield entry


def _is_gits(path: bytes) -> bool:
    """Whether a path is that of a repository's own files, which no pattern leaves out."""
    return b".git" in path.split(b"/")


def _identity(status: os.stat_result) -> tuple[int, int, int, int]:
    """What tells a file that was not read from what it was before. One that has just changed is read again."""
    is_fresh = abs(time.time_ns() - status.st_ctime_ns) < _TICK
    return status.st_ino, status.st_size, status.st_mtime_ns, 0 if is_fresh else status.st_ctime_ns


def _words(member: Member, name: str) -> tuple[str, str, int, int, int, str]:
    return member.kind, name, member.mode, member.mtime, 0, os.fsdecode(member.target)


def _from(start: bytes, path: bytes) -> bytes:
    return path[len(start) + 1 :] if start else path


def _write(file: Path, content: bytes) -> None:
    """Write a file as a whole or not at all."""
    draft = file.with_name(f"{file.name}.new")
    draft.write_bytes(content)
    draft.replace(file)
