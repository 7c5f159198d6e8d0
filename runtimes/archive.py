"""A folder as a tar stream, a folder from a tar stream, and a folder from another one, each in bounded memory.

Kept: files, directories, symlinks as they are, hard links among the files, names of any bytes, permissions, times of
change. Not kept: owners, the bits set-uid and set-gid, extended attributes, sockets, FIFOs and devices.
A file that changes while it is read has the size that it had when its reading began: what is missing is zeros.
"""

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from runtimes.filling import Target, naming
from runtimes.tar_stream import END, PIECE, ArchiveTooLarge, Kind, Member, TarReader, header, padding
from runtimes.walk import Entry, entries, unreadable

#: most members of an archive that is unpacked
MOST_MEMBERS = 200_000

#: most bytes of the names that are kept to find hard links; a file whose name does not fit is stored once per name
_MOST_LINK_NAMES = 8 * 1024 * 1024

#: the request to share a file's blocks. Source: linux/fs.h, FICLONE
_CLONE = 0x40049409

#: errors of a file system, or of two, that cannot share or copy blocks by themselves
_CANNOT = (errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EPERM)

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def pack(folder: Path) -> Iterator[bytes]:
    """The folder as a tar stream: its members are "./" and what lies below it. No symlink is followed.

    Raises RuntimeFailure that names a file which cannot be read.
    """
    links = _Links()
    for entry in entries(folder):
        name = b"./" + entry.path
        if entry.is_directory:
            yield header(_member(entry, Kind.DIRECTORY, name))
        elif entry.is_symlink:
            with unreadable(entry.path):
                target = os.readlink(entry.name, dir_fd=entry.directory)
                yield header(_member(entry, Kind.SYMLINK, name, os.fsencode(target)))
        elif (first := links.first(entry)) is not None:
            yield header(_member(entry, Kind.HARDLINK, name, b"./" + first))
        else:
            yield from _packed(entry, name, links)
    yield END


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
    links = _Links()
    with contextlib.closing(Target(folder)) as target:
        for entry in entries(source):
            with naming(entry.path):
                if entry.is_directory:
                    target.add(_member(entry, Kind.DIRECTORY, entry.path), ())
                elif entry.is_symlink:
                    with unreadable(entry.path):
                        to = os.fsencode(os.readlink(entry.name, dir_fd=entry.directory))
                        target.add(_member(entry, Kind.SYMLINK, entry.path, to), ())
                elif (first := links.first(entry)) is not None:
                    target.add(_member(entry, Kind.HARDLINK, entry.path, first), ())
                else:
                    _copy_file(entry, target, links)
        target.finish()


class _Links:
    """The first name of each file that has several."""

    def __init__(self) -> None:
        self._names: dict[tuple[int, int], bytes] = {}
        self._room = _MOST_LINK_NAMES

    def first(self, entry: Entry) -> bytes | None:
        """An earlier name of that file; None if there is none."""
        return self._names.get(entry.identity) if entry.stat.st_nlink > 1 else None

    def note(self, entry: Entry) -> None:
        """Note the first name of a file, which is stored under it now."""
        if entry.stat.st_nlink > 1 and self._room > len(entry.path):
            self._names[entry.identity] = entry.path
            self._room -= len(entry.path) + 200  # the bytes that Python needs beside the name


def _member(entry: Entry, kind: Kind, name: bytes, target: bytes = b"", size: int = 0) -> Member:
    return Member(name, kind, stat.S_IMODE(entry.stat.st_mode), entry.stat.st_mtime_ns, size, target)


def _packed(entry: Entry, name: bytes, links: _Links) -> Iterator[bytes]:
    """The header and the content of a file, of the size that it has when it is opened."""
    with unreadable(entry.path), _opened(entry) as (file, size):
        links.note(entry)
        yield header(_member(entry, Kind.FILE, name, size=size))
        left = size
        while left:
            piece = os.read(file, min(PIECE, left)) or bytes(min(PIECE, left))
            left -= len(piece)
            yield piece
        yield padding(size)


@contextlib.contextmanager
def _opened(entry: Entry) -> Iterator[tuple[int, int]]:
    """A file and its size. Raises OSError, FileNotFoundError of what is no file any more."""
    file = os.open(entry.name, _READ, dir_fd=entry.directory)
    try:
        seen = os.fstat(file)
        if not stat.S_ISREG(seen.st_mode):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        yield file, seen.st_size
    finally:
        os.close(file)


def _copy_file(entry: Entry, target: Target, links: _Links) -> None:
    with contextlib.ExitStack() as opened:
        file, size = -1, 0
        with unreadable(entry.path):
            file, size = opened.enter_context(_opened(entry))
        if file >= 0:
            with target.file(_member(entry, Kind.FILE, entry.path)) as copied:
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
