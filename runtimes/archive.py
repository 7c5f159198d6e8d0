"""Pack a folder as a tar stream, unpack one, and copy folders, in bounded memory.

Preserved: files, directories, symlinks, hard links among the files, names of any bytes, permissions, modification
times. Dropped: owners, set-uid and set-gid bits, extended attributes, sockets, FIFOs and devices. A file that changes
during the read keeps its initial size, padded with zeros.

An archive may be hostile. While a folder is filled, each directory of a path is opened without following symlinks, so
that no member is written through a link of an earlier member.
"""

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from runtimes import RuntimeCallFailed
from runtimes.folder import Directories, FolderEntry, Stack, entries, lock_of, locked, opened_file, remove, unreadable
from runtimes.tar_stream import (
    END,
    PIECE,
    Member,
    MemberKind,
    MemberRefused,
    TarReader,
    TarTooLarge,
    header,
    padding,
    shown,
)

#: Errors of a file name that is not possible here.
_BAD_NAME = (errno.ENAMETOOLONG, errno.ENOENT, errno.EINVAL, errno.EILSEQ)

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


#: Maximum number of members of an archive.
MOST_MEMBERS = 200_000

#: Maximum size of the names kept to find hard links, in bytes. Beyond it a file is stored once per name.
_MOST_LINK_NAMES = 8 * 1024 * 1024

#: The ioctl that shares a file's blocks. Source: linux/fs.h, FICLONE
_CLONE = 0x40049409

#: Errors of file systems that cannot share or copy blocks.
_CANNOT = (errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EPERM)


def fill(folder: Path, act: Callable[[Path], None]) -> None:
    """Create a folder atomically with `act`. An existing folder is unchanged.

    The folder is filled under another name and renamed at the end. Raises RuntimeCallFailed, and the errors of `act`.
    """
    with locked(lock_of(folder.parent)):
        if folder.exists():
            return
        part = folder.with_name(f"{folder.name}.part")
        try:
            with naming(os.fsencode(part)):
                remove(part)
                part.mkdir(parents=True)
            act(part)
            with naming(os.fsencode(folder)):
                part.rename(folder)
        except BaseException:
            with contextlib.suppress(OSError):  # the parent is not empty, or the disk fails
                remove(part)
                part.parent.rmdir()
            raise


class UnpackTarget:
    """A folder that is being filled. No symlink in it is followed."""

    def __init__(self, folder: Path, owner: tuple[int, int] | None = None) -> None:
        """owner: user and group of its content, if this process is root; None: those of this process."""
        self._owner = owner if os.geteuid() == 0 else None
        self._directories = Directories(folder)
        self._modes = Stack()  #: modes of directories, which are set last, because some forbid writing

    def add(self, member: Member, content: Iterable[memoryview | bytes]) -> None:
        """Create a member. Raises MemberRefused and OSError."""
        match member.kind:
            case MemberKind.DIRECTORY:
                path = _path(member.name)
                self._open(path, member.name)
                self._modes.push(b"%d %d %s" % (member.mode & 0o1777, member.mtime, path))
            case MemberKind.FILE:
                with self.file(member) as file:
                    for piece in content:
                        while piece:
                            piece = piece[os.write(file, piece) :]
            case MemberKind.SYMLINK:
                directory, name = self._place(member.name)
                os.symlink(member.target, name, dir_fd=directory)
                os.utime(name, ns=(member.mtime, member.mtime), dir_fd=directory, follow_symlinks=False)
                if self._owner:
                    os.chown(name, *self._owner, dir_fd=directory, follow_symlinks=False)
            case MemberKind.HARDLINK:
                self._link(member)

    @contextlib.contextmanager
    def file(self, member: Member) -> Iterator[int]:
        """Create a file, and open it for writing."""
        directory, name = self._place(member.name)
        file = os.open(name, _CREATE, 0o600, dir_fd=directory)
        try:
            yield file
            if self._owner:
                os.fchown(file, *self._owner)
            os.fchmod(file, member.mode & 0o777)
            os.utime(file, ns=(member.mtime, member.mtime))
        finally:
            os.close(file)

    def link(self, entry: FolderEntry) -> None:
        """Hard-link a file or a symlink of another folder to the same path here. Raises OSError."""
        directory, name = self._place(entry.path)
        os.link(entry.name, name, src_dir_fd=entry.directory, dst_dir_fd=directory, follow_symlinks=False)

    def finish(self) -> None:
        """Set the modes and times of directories in reverse order, so that each can be entered for those below."""
        while (record := self._modes.pop()) is not None:
            mode, mtime, path = record.split(b" ", 2)
            with naming(path):
                directory = self._directories.opened(path)
                if self._owner:
                    os.fchown(directory, *self._owner)
                # The owner must be able to use the folder, whatever the mode of the packed one.
                os.fchmod(directory, int(mode) | (0 if path else 0o700))
                os.utime(directory, ns=(int(mtime), int(mtime)))

    def close(self) -> None:
        self._directories.close()
        self._modes.close()

    def _link(self, member: Member) -> None:
        parent, _, name = _path(member.target).rpartition(b"/")
        source = os.dup(self._open(parent, member.target))
        try:
            with contextlib.suppress(FileNotFoundError):
                if stat.S_ISREG(os.stat(name, dir_fd=source, follow_symlinks=False).st_mode):
                    directory, new = self._place(member.name)
                    os.link(name, new, src_dir_fd=source, dst_dir_fd=directory, follow_symlinks=False)
                    return
        finally:
            os.close(source)
        raise MemberRefused(
            f"The member {shown(member.name)} is a hard link to {shown(member.target)}, which is not an earlier file"
        )

    def _place(self, named: bytes) -> tuple[int, bytes]:
        """Open the parent of a path, and make its last name free. Return both."""
        directory, _, name = _path(named).rpartition(b"/")
        if not name:
            raise MemberRefused(f"The member {shown(named) or 'without a name'} is the folder itself and no directory")
        file = self._open(directory, named)
        try:
            os.unlink(name, dir_fd=file)
        except FileNotFoundError:
            pass
        except (IsADirectoryError, PermissionError):
            raise MemberRefused(f"The member {shown(named)} would replace a directory") from None
        return file, name

    def _open(self, path: bytes, named: bytes) -> int:
        try:
            return self._directories.opened(path, create=True)
        except OSError as error:
            if error.errno in (errno.ENOTDIR, errno.ELOOP):
                raise MemberRefused(f"The member {shown(named)} leads through a link or a file") from None
            raise


def _path(name: bytes) -> bytes:
    """Convert a member's name to a path below the folder, empty for the folder. Raises MemberRefused."""
    if name.startswith(b"/"):
        raise MemberRefused(f"The name {shown(name)} is absolute: names are relative to the folder")
    parts = [part for part in name.split(b"/") if part not in (b"", b".")]
    if b".." in parts:
        raise MemberRefused(f"The name {shown(name)} has `..`: names lie below the folder")
    return b"/".join(parts)


@contextlib.contextmanager
def naming(name: bytes) -> Iterator[None]:
    """Turn OSError into a RuntimeCallFailed that names the file."""
    try:
        yield
    except OSError as error:
        kind = MemberRefused if error.errno in _BAD_NAME else RuntimeCallFailed
        raise kind(f"{shown(name) or '.'} cannot be written: {error.strerror}") from error


def pack(folder: Path, most_holes: int | None = None) -> Iterator[bytes]:
    """Stream a folder as a tar with members "./…". No symlink is followed.

    most_holes: maximum total size of holes, which are zeros in the stream; None: that of the file system. Raises
    RuntimeCallFailed that names an unreadable file, or the one that exceeds `most_holes`.
    """
    links, holes = HardLinks(), _Holes(_size_of_file_system(folder) if most_holes is None else most_holes)
    for entry in entries(folder):
        name = b"./" + entry.path
        if entry.is_directory:
            yield header(member_of(entry, MemberKind.DIRECTORY, name))
        elif entry.is_symlink:
            with unreadable(entry.path):
                target = os.readlink(entry.name, dir_fd=entry.directory)
                yield header(member_of(entry, MemberKind.SYMLINK, name, os.fsencode(target)))
        elif (first := links.first(entry)) is not None:
            yield header(member_of(entry, MemberKind.HARDLINK, name, b"./" + first))
        else:
            yield from _packed(entry, name, links, holes)
    yield END


def _size_of_file_system(folder: Path) -> int:
    with unreadable(b""):
        seen = os.statvfs(folder)
        return seen.f_blocks * seen.f_frsize
    return 0


def unpack(folder: Path, chunks: Iterable[bytes]) -> None:
    """Fill a new folder from a tar stream, which may be hostile and is read to its end. Nobody else uses the folder.

    Raises TarUnreadable, MemberRefused, TarTooLarge, and RuntimeCallFailed. The folder is then incomplete.
    """
    reader = TarReader(chunks)
    with contextlib.closing(UnpackTarget(folder)) as target:
        for number, member in enumerate(reader.members(), 1):
            if number > MOST_MEMBERS:
                raise TarTooLarge(f"The archive has more than {MOST_MEMBERS} members")
            with naming(member.name):
                target.add(member, reader.content(member))
        target.finish()


def copy(source: Path, folder: Path) -> None:
    """Copy a folder into a new one. The files share blocks if the file system can.

    Raises RuntimeCallFailed that names the entry.
    """
    links = HardLinks()
    with contextlib.closing(UnpackTarget(folder)) as target:
        for entry in entries(source):
            with naming(entry.path):
                if entry.is_directory:
                    target.add(member_of(entry, MemberKind.DIRECTORY, entry.path), ())
                elif entry.is_symlink:
                    with unreadable(entry.path):
                        to = os.fsencode(os.readlink(entry.name, dir_fd=entry.directory))
                        target.add(member_of(entry, MemberKind.SYMLINK, entry.path, to), ())
                elif (first := links.first(entry)) is not None:
                    target.add(member_of(entry, MemberKind.HARDLINK, entry.path, first), ())
                else:
                    _copy_file(entry, target, links)
        target.finish()


class HardLinks:
    """The first names of files with several hard links."""

    def __init__(self) -> None:
        self._names: dict[tuple[int, int], bytes] = {}
        self._room = _MOST_LINK_NAMES

    def first(self, entry: FolderEntry) -> bytes | None:
        """Return an earlier name of a file; None if there is none."""
        return self._names.get(entry.identity) if entry.stat.st_nlink > 1 else None

    def note(self, entry: FolderEntry, path: bytes | None = None) -> None:
        """Remember the first name of a file. path: replaces the entry's own."""
        if entry.stat.st_nlink > 1 and self._room > len(entry.path):
            self._names[entry.identity] = entry.path if path is None else path
            self._room -= len(entry.path) + 200  # the overhead of an entry in Python


def member_of(entry: FolderEntry, kind: MemberKind, name: bytes, target: bytes = b"", size: int = 0) -> Member:
    return Member(name, kind, stat.S_IMODE(entry.stat.st_mode), entry.stat.st_mtime_ns, size, target)


class _Holes:
    """Remaining bytes for holes, which are free on disk but cost as much as data in a stream."""

    def __init__(self, room: int) -> None:
        self._room = room

    def take(self, entry: FolderEntry, seen: os.stat_result) -> None:
        """Count a hole. Raises RuntimeCallFailed that names the file."""
        self._room -= max(0, seen.st_size - seen.st_blocks * 512)
        if self._room < 0:
            raise RuntimeCallFailed(
                f"{shown(entry.path)} is sparse: the files have larger holes than they may take on disk"
            )


def _packed(entry: FolderEntry, name: bytes, links: HardLinks, holes: _Holes) -> Iterator[bytes]:
    """Yield the header and the content of a file, with the size at the time of opening."""
    with unreadable(entry.path), opened_file(entry.name, entry.directory) as (file, seen):
        holes.take(entry, seen)
        links.note(entry)
        size = seen.st_size
        yield header(member_of(entry, MemberKind.FILE, name, size=size))
        left = size
        while left:
            piece = os.read(file, min(PIECE, left)) or bytes(min(PIECE, left))
            left -= len(piece)
            yield piece
        yield padding(size)


def _copy_file(entry: FolderEntry, target: UnpackTarget, links: HardLinks) -> None:
    with contextlib.ExitStack() as opened:
        file, size = -1, 0
        with unreadable(entry.path):
            file, seen = opened.enter_context(opened_file(entry.name, entry.directory))
            size = seen.st_size
        if file >= 0:
            with target.file(member_of(entry, MemberKind.FILE, entry.path)) as copied:
                _copy_content(file, copied, size)
            links.note(entry)


def _copy_content(file: int, to: int, size: int) -> None:
    try:
        fcntl.ioctl(to, _CLONE, file)
    except OSError as error:
        if error.errno not in _CANNOT:
            raise
    else:
        return
    at = 0
    while at < size:
        try:
            at = os.lseek(file, at, os.SEEK_DATA)  # keep the hole
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            break
        end = min(os.lseek(file, at, os.SEEK_HOLE), size)
        while at < end and (copied := _copy_range(file, to, at, end)):
            at += copied
        if at < end:  # truncated meanwhile
            break
    os.truncate(to, size)


def _copy_range(file: int, to: int, at: int, end: int) -> int:
    """Copy bytes from `at`. Return their number, 0 at the end of the file."""
    try:
        return os.copy_file_range(file, to, end - at, at, at)
    except OSError as error:
        if error.errno not in _CANNOT:
            raise
    os.lseek(to, at, os.SEEK_SET)
    return os.sendfile(to, file, at, end - at)
