"""A folder as a tar stream, a folder from a tar stream, and a folder from another one, each in bounded memory.

Kept: files, directories, symlinks as they are, hard links among the files, names of any bytes, permissions, times of
change. Not kept: owners, the bits set-uid and set-gid, extended attributes, sockets, FIFOs and devices.
A file that changes while it is read has the size that it had when its reading began: what is missing is zeros.

An archive may be hostile. While a new folder is filled, every name is reached directory by directory, each opened
without following a symlink. So no member of an archive is written through a link that an earlier one made.
"""

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from runtimes import RuntimeFailure
from runtimes.folder import Directories, FolderEntry, Stack, entries, lock_of, locked, opened_file, remove, unreadable
from runtimes.tar_stream import (
    END,
    PIECE,
    ArchiveTooLarge,
    Member,
    MemberKind,
    MemberRefused,
    TarReader,
    header,
    padding,
    shown,
)

#: errors of a name that no file can have here
_BAD_NAME = (errno.ENAMETOOLONG, errno.ENOENT, errno.EINVAL, errno.EILSEQ)

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


#: most members of an archive that is unpacked
MOST_MEMBERS = 200_000

#: most bytes of the names that are kept to find hard links; a file whose name does not fit is stored once per name
_MOST_LINK_NAMES = 8 * 1024 * 1024

#: the request to share a file's blocks. Source: linux/fs.h, FICLONE
_CLONE = 0x40049409

#: errors of a file system, or of two, that cannot share or copy blocks by themselves
_CANNOT = (errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EPERM)


def fill(folder: Path, act: Callable[[Path], None]) -> None:
    """Have `act` fill a new folder, as a whole or not at all; a folder that is there stays as it is.

    It is filled under another name and renamed at the end, so a half-filled folder never passes for a whole one.
    Raises RuntimeFailure, and what `act` raises.
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
            with contextlib.suppress(OSError):  # the folder above has something else, or the disk fails
                remove(part)
                part.parent.rmdir()
            raise


class Target:
    """A folder that is filled; every name in it is reached without following a symlink."""

    def __init__(self, folder: Path, owner: tuple[int, int] | None = None) -> None:
        """owner: user and group of what is made in it, where this process is root's; None: those of this process."""
        self._owner = owner if os.geteuid() == 0 else None
        self._directories = Directories(folder)
        self._modes = Stack()  #: of directories, whose modes are set last: some could not be written to

    def add(self, member: Member, content: Iterable[memoryview | bytes]) -> None:
        """Make what the member says. Raises MemberRefused, OSError."""
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
        """A new file, open for writing."""
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
        """Give a file, or a symlink, of another folder on this file system the same path here. Raises OSError."""
        directory, name = self._place(entry.path)
        os.link(entry.name, name, src_dir_fd=entry.directory, dst_dir_fd=directory, follow_symlinks=False)

    def finish(self) -> None:
        """Set the modes and times of directories, the last one first: so each can still be entered for those below."""
        while (record := self._modes.pop()) is not None:
            mode, mtime, path = record.split(b" ", 2)
            with naming(path):
                directory = self._directories.opened(path)
                if self._owner:
                    os.fchown(directory, *self._owner)
                # The owner must be able to use the folder itself, whatever folder was packed.
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
        """The open directory in which a name is to be made, and the last part of the name, which is free then."""
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
    """A name as a path below the folder, empty for the folder itself. Raises MemberRefused."""
    if name.startswith(b"/"):
        raise MemberRefused(f"The name {shown(name)} is absolute: names are relative to the folder")
    parts = [part for part in name.split(b"/") if part not in (b"", b".")]
    if b".." in parts:
        raise MemberRefused(f"The name {shown(name)} has `..`: names lie below the folder")
    return b"/".join(parts)


@contextlib.contextmanager
def naming(name: bytes) -> Iterator[None]:
    """Turn OSError into a RuntimeFailure that names what cannot be written."""
    try:
        yield
    except OSError as error:
        kind = MemberRefused if error.errno in _BAD_NAME else RuntimeFailure
        raise kind(f"{shown(name) or '.'} cannot be written: {error.strerror}") from error


def pack(folder: Path, most_holes: int | None = None) -> Iterator[bytes]:
    """The folder as a tar stream: its members are "./" and what lies below it. No symlink is followed.

    most_holes: bytes that holes of all files may take, which are zeros in the stream; None: as many as the file system
    has. Raises RuntimeFailure that names a file which cannot be read, or the one with a hole too many.
    """
    links, holes = Links(), _Holes(_size_of_file_system(folder) if most_holes is None else most_holes)
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
    """Fill a new folder from a tar stream, which is read to its end. It may be hostile; nobody else uses the folder.

    Raises ArchiveUnreadable, MemberRefused, ArchiveTooLarge, and RuntimeFailure where the system fails. The folder is
    not whole then.
    """
    reader = TarReader(chunks)
    with contextlib.closing(Target(folder)) as target:
        for number, member in enumerate(reader.members(), 1):
            if number > MOST_MEMBERS:
                raise ArchiveTooLarge(f"The archive has more than {MOST_MEMBERS} members")
            with naming(member.name):
                target.add(member, reader.content(member))
        target.finish()


def copy(source: Path, folder: Path) -> None:
    """Fill a new folder with what another one has. File systems that can do so share the blocks of both.

    Raises RuntimeFailure that names what cannot be copied.
    """
    links = Links()
    with contextlib.closing(Target(folder)) as target:
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


class Links:
    """The first name of each file that has several."""

    def __init__(self) -> None:
        self._names: dict[tuple[int, int], bytes] = {}
        self._room = _MOST_LINK_NAMES

    def first(self, entry: FolderEntry) -> bytes | None:
        """An earlier name of that file; None if there is none."""
        return self._names.get(entry.identity) if entry.stat.st_nlink > 1 else None

    def note(self, entry: FolderEntry, path: bytes | None = None) -> None:
        """Note the first name of a file, which is stored under it now. path: another name than the entry's own."""
        if entry.stat.st_nlink > 1 and self._room > len(entry.path):
            self._names[entry.identity] = entry.path if path is None else path
            self._room -= len(entry.path) + 200  # the bytes that Python needs beside the name


def member_of(entry: FolderEntry, kind: MemberKind, name: bytes, target: bytes = b"", size: int = 0) -> Member:
    return Member(name, kind, stat.S_IMODE(entry.stat.st_mode), entry.stat.st_mtime_ns, size, target)


class _Holes:
    """The bytes that holes may still take: a hole costs nothing on the disk, and in a stream as much as data."""

    def __init__(self, room: int) -> None:
        self._room = room

    def take(self, entry: FolderEntry, seen: os.stat_result) -> None:
        """Raises RuntimeFailure that names the file whose holes are too large."""
        self._room -= max(0, seen.st_size - seen.st_blocks * 512)
        if self._room < 0:
            raise RuntimeFailure(
                f"{shown(entry.path)} is sparse: the files have larger holes than they may take on disk"
            )


def _packed(entry: FolderEntry, name: bytes, links: Links, holes: _Holes) -> Iterator[bytes]:
    """The header and the content of a file, of the size that it has when it is opened."""
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


def _copy_file(entry: FolderEntry, target: Target, links: Links) -> None:
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
            at = os.lseek(file, at, os.SEEK_DATA)  # a hole stays one
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            break
        end = min(os.lseek(file, at, os.SEEK_HOLE), size)
        while at < end and (copied := _copy_range(file, to, at, end)):
            at += copied
        if at < end:  # it was cut short meanwhile
            break
    os.truncate(to, size)


def _copy_range(file: int, to: int, at: int, end: int) -> int:
    """Copy some bytes from `at` on; their number, 0 at the end of the file."""
    try:
        return os.copy_file_range(file, to, end - at, at, at)
    except OSError as error:
        if error.errno not in _CANNOT:
            raise
    os.lseek(to, at, os.SEEK_SET)
    return os.sendfile(to, file, at, end - at)
