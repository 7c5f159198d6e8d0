"""A sandbox's folder: one caller at a time changes it, and it can always be removed.

Its owner is not trusted and may change it meanwhile, so no symlink is followed: every directory is opened from its
parent by one name, and a name that became a link leads nowhere. What is left to do of a walk lies in a stack that goes
to disk, so neither the depth of a folder nor the number of its entries bounds the walk.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import stat
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import SpooledTemporaryFile
from uuid import uuid4

from runtimes import PartlyMeasured, RuntimeFailure
from runtimes.tar_stream import MOST_NAME, shown

#: how a directory is opened by one name: as such, and not through a symlink
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

#: bytes of a stack that stay in memory
_IN_MEMORY = 1024 * 1024

#: most directories that stay open
_MOST_OPEN = 64

#: errors of a name that has another file by now, or none
_CHANGED = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


#: how a file is opened: not through a symlink, and without waiting at a FIFO
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

#: errors of a name that was to be opened as a directory and is a symlink or a file
_NO_DIRECTORY = (errno.ENOTDIR, errno.ELOOP)

#: how a directory is opened whatever its mode is
_PLACE = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

#: seconds between two polls of a lock, and until a lock that is not released is a failure: longer than a start takes
_LOCK_POLL, LOCK_TIMEOUT = 0.005, 60.0

_libc = ctypes.CDLL(None, use_errno=True)

#: arguments of renameat2: paths from the working directory, and to exchange both. Source: fcntl.h, linux/fs.h
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2

#: minimum size counted per entry, in bytes: files without content take inodes, and time in each walk
_LEAST = 4096


class Stack:
    """Records of bytes, last in, first out; beyond 1 MiB they lie in a file without a name."""

    def __init__(self) -> None:
        self._file = SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115 - `close` ends it
        self._end = 0

    def push(self, record: bytes) -> None:
        self._file.seek(self._end)
        self._end += self._file.write(record + len(record).to_bytes(4))

    def pop(self) -> bytes | None:
        """The last record; None if there is none."""
        if not self._end:
            return None
        self._file.seek(self._end - 4)
        size = int.from_bytes(self._file.read(4))
        self._end -= size + 4
        self._file.seek(self._end)
        return self._file.read(size)

    def close(self) -> None:
        self._file.close()


class Directories:
    """Opens directories below a folder, from one name to the next; the last ones stay open for their neighbours."""

    def __init__(self, folder: Path) -> None:
        """Raises OSError."""
        self.root = os.open(folder, DIRECTORY)
        self._chain: list[tuple[bytes, int]] = []  #: each directory lies in the one before

    def opened(self, path: bytes, *, create: bool = False) -> int:
        """A directory of a path without `..`, open until the next call. create: make what is missing of it.

        Raises OSError: one of a name that is a symlink or a file is NotADirectoryError or has errno.ELOOP.
        """
        while self._chain and not (path + b"/").startswith(self._chain[-1][0] + b"/"):
            os.close(self._chain.pop()[1])
        at, directory = self._chain[-1] if self._chain else (b"", self.root)
        for name in filter(None, path[len(at) :].split(b"/")):
            if create:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, 0o755, dir_fd=directory)
            directory = os.open(name, DIRECTORY, dir_fd=directory)
            at = at + b"/" + name if at else name
            self._chain.append((at, directory))
            if len(self._chain) > _MOST_OPEN:
                os.close(self._chain.pop(0)[1])
        return directory

    def close(self) -> None:
        for _, directory in self._chain:
            os.close(directory)
        os.close(self.root)


@dataclass(frozen=True, slots=True)
class FolderEntry:
    """A file, a symlink or a directory; of a directory, `directory` is itself, open, and `name` is empty."""

    path: bytes  #: relative to the folder; empty for the folder itself
    stat: os.stat_result
    directory: int  #: the directory that has it, open until the next entry
    name: bytes

    @property
    def is_directory(self) -> bool:
        return stat.S_ISDIR(self.stat.st_mode)

    @property
    def is_symlink(self) -> bool:
        return stat.S_ISLNK(self.stat.st_mode)

    @property
    def identity(self) -> tuple[int, int]:
        """What all names of one file have in common."""
        return self.stat.st_dev, self.stat.st_ino


def entries(
    folder: Path,
    start: bytes = b"",
    *,
    without: Collection[bytes] = (),
    enters: Callable[[bytes], bool] = lambda _: True,
    passing: Callable[[bytes], None] = lambda _: None,
) -> Iterator[FolderEntry]:
    """Every file, symlink and directory of a folder, itself first and each directory before its content.

    start: the directory that is walked, if not the whole folder. without: names of directories that are left out with
    their content. enters: whether a directory of that path is walked; asked after all files of its parent.
    passing: called with the path of each name as it is read, also of what is left out; its errors end the walk.
    Sockets, FIFOs and devices are left out, and so is what vanishes meanwhile. Raises RuntimeFailure that names an
    entry which cannot be read, and at the end where the folder itself was moved or removed: its content was then too.
    """
    try:
        directories = Directories(folder)
    except OSError as error:
        raise RuntimeFailure(f"{folder} cannot be read: {error.strerror}") from error
    with contextlib.closing(Stack()) as stack, contextlib.closing(directories):
        stack.push(start)
        while (path := stack.pop()) is not None:
            if path != start and not enters(path):
                continue
            with unreadable(path):
                directory = directories.opened(path)
                yield FolderEntry(path, os.fstat(directory), directory, b"")
                yield from _inside(path, directory, stack, without, passing)
        if not _is_at(directories.root, folder):
            raise RuntimeFailure(f"{folder} was removed meanwhile")


def _inside(
    path: bytes, directory: int, stack: Stack, without: Collection[bytes], passing: Callable[[bytes], None]
) -> Iterator[FolderEntry]:
    with os.scandir(directory) as scanned:
        for item in scanned:
            name = os.fsencode(item.name)
            inner = path + b"/" + name if path else name
            passing(inner)
            if len(inner) > MOST_NAME - 3:
                raise RuntimeFailure(f"The path {shown(inner)} is longer than {MOST_NAME - 3} bytes")
            with unreadable(inner):
                seen = item.stat(follow_symlinks=False)
                if stat.S_ISDIR(seen.st_mode):
                    if name not in without:
                        stack.push(inner)
                elif stat.S_ISREG(seen.st_mode) or stat.S_ISLNK(seen.st_mode):
                    yield FolderEntry(inner, seen, directory, name)


def _is_at(directory: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(directory), path.stat(follow_symlinks=False))
    except OSError:
        return False


@contextlib.contextmanager
def unreadable(path: bytes) -> Iterator[None]:
    """Leave out what vanished or became another file; a RuntimeFailure names what cannot be read."""
    try:
        yield
    except OSError as error:
        if error.errno not in _CHANGED:
            raise RuntimeFailure(f"{shown(path) or '.'} cannot be read: {error.strerror}") from error


@contextlib.contextmanager
def opened_file(name: bytes, directory: int) -> Iterator[tuple[int, os.stat_result]]:
    """A file of an open directory, open, and what it is. Raises OSError, FileNotFoundError if it is no file."""
    file = os.open(name, _FILE, dir_fd=directory)
    try:
        seen = os.fstat(file)
        if not stat.S_ISREG(seen.st_mode):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        yield file, seen
    finally:
        os.close(file)


@contextlib.contextmanager
def failing(what: str) -> Iterator[None]:
    """Turn OSError and RuntimeFailure into a RuntimeFailure with a message that begins with `what`."""
    try:
        yield
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        raise RuntimeFailure(f"{what}: {error.strerror or error}{where}") from error
    except RuntimeFailure as failure:
        raise RuntimeFailure(f"{what}: {failure}") from failure


def lock(file: int, how: int, timeout: float = LOCK_TIMEOUT) -> None:
    """Lock an open file: how is fcntl.LOCK_EX or LOCK_SH. Raises RuntimeFailure after so many seconds."""
    deadline = time.monotonic() + timeout
    while True:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(file, how | fcntl.LOCK_NB)
            return
        if time.monotonic() > deadline:
            raise RuntimeFailure(f"another process holds its lock for more than {timeout:g} s")
        time.sleep(_LOCK_POLL)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[int]:
    """Hold a lock file, as an open file. Raises RuntimeFailure after LOCK_TIMEOUT."""
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            lock(file, fcntl.LOCK_EX)
            try:
                named = path.stat()
            except FileNotFoundError:  # the earlier holder of the lock has removed it: a later caller locks a new one
                continue
            if os.path.samestat(os.fstat(file), named):
                yield file
                return
        finally:
            os.close(file)


def exchange(folder: Path, other: Path) -> None:
    """Give two folders of one file system each other's name, at one moment. Raises OSError."""
    words = (_AT_FDCWD, os.fsencode(folder), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE)
    if _libc.renameat2(*words):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(folder))


def lock_of(folder: Path) -> Path:
    """The lock file of a sandbox's folder."""
    return folder.with_name(f".{folder.name}.lock")


def make_below(folder: Path, names: Sequence[str], owner: int) -> None:
    """Make the directories of a path below a folder, each inside the one before, and give the new ones to a user.

    Raises OSError, NotADirectoryError where one of the names is a symlink or a file.
    """
    directory = os.open(folder, DIRECTORY)
    try:
        for name in names:
            is_new = False
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=directory)
                is_new = True
            inner = os.open(name, DIRECTORY, dir_fd=directory)
            os.close(directory)
            directory = inner
            if is_new and owner != os.geteuid():
                os.chown(directory, owner, owner)
    finally:
        os.close(directory)


def opened_below(folder: str | Path, path: str | Path) -> int:
    """A directory at or below a folder, open as a place alone. No name between both may be a symlink.

    Raises OSError.
    """
    directory = os.open(folder, _PLACE)
    for name in Path(path).relative_to(folder).parts:
        try:
            inner = os.open(name, _PLACE, dir_fd=directory)
        finally:
            os.close(directory)
        directory = inner
    return directory


def remove(folder: Path) -> None:
    """Remove a folder with all that is in it. No symlink is followed, not even one that replaces a directory meanwhile.

    A directory that a sandbox made unreadable is made readable. Each directory is moved to the top of the folder before
    it is emptied, so neither recursion nor the length of a path bounds how deep a sandbox may nest them.
    Raises OSError that names the first entry which cannot be removed; what was removed before it stays removed.
    """
    try:
        with _usable(folder) as top:
            _empty(top)
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno not in _NO_DIRECTORY or not folder.is_symlink():
            raise
        folder.unlink()
    else:
        folder.rmdir()


def _empty(top: int) -> None:
    """Remove everything in an open directory. Raises OSError."""
    prefix = f".{uuid4().hex}"
    moved = _clear(top, top, prefix, 0)
    emptied = 0
    while emptied < moved:
        name = f"{prefix}{emptied}"
        emptied += 1
        try:
            with _usable(name, top) as directory:
                moved = _clear(directory, top, prefix, moved)
            os.rmdir(name, dir_fd=top)
        except OSError as error:
            if error.errno not in _NO_DIRECTORY:
                raise
            os.unlink(name, dir_fd=top)  # it was replaced before it was moved


def _clear(directory: int, top: int, prefix: str, moved: int) -> int:
    """Remove the files of a directory, and move its directories to the top, where they are numbered from `moved` on.

    Returns the number after the last one.
    """
    with os.scandir(directory) as scanned:
        entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in scanned]
    for name, is_directory in entries:
        with contextlib.suppress(FileNotFoundError):
            if is_directory and _is_usable(name, directory):
                os.rename(name, f"{prefix}{moved}", src_dir_fd=directory, dst_dir_fd=top)
                moved += 1
            else:
                os.unlink(name, dir_fd=directory)
    return moved


def _is_usable(name: str, parent: int) -> bool:
    """Make a directory usable: one that its owner cannot write cannot be moved. False if it is none any more."""
    try:
        with _usable(name, parent):
            return True
    except OSError as error:
        if error.errno in _NO_DIRECTORY:
            return False
        raise


@contextlib.contextmanager
def _usable(name: str | Path, parent: int | None = None) -> Iterator[int]:
    """A directory, open, after its owner got every right to it. Raises OSError, one of _NO_DIRECTORY for a symlink."""
    place = os.open(name, _PLACE, dir_fd=parent)
    try:
        if os.fstat(place).st_mode & 0o700 != 0o700:
            os.chmod(f"/proc/self/fd/{place}", 0o700)  # noqa: PTH101 - of the open directory, whatever its name is by now
        directory = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=place)
    finally:
        os.close(place)
    try:
        yield directory
    finally:
        os.close(directory)


def used(folder: Path, most: int | None = None) -> int:
    """Bytes that a folder takes on the disk, at least _LEAST per entry; files that vanish meanwhile count as nothing.

    most: the measurement ends as soon as it is exceeded. No symlink is followed.
    One directory is open at a time, and the way back up is by `..`, so the depth of a folder does not bound it. A
    directory that its owner, this process, may not read is made readable while it is measured. Raises PartlyMeasured
    where a directory was moved or removed meanwhile, or cannot be read.
    """
    total, above = 0, list[tuple[tuple[int, int], int | None]]()
    try:
        here = _Place(folder)
    except FileNotFoundError:
        return 0
    except OSError:
        raise PartlyMeasured(0) from None
    with contextlib.closing(Stack()) as left, contextlib.closing(here):
        try:
            bound = sys.maxsize if most is None else most
            total += here.measure(left, 0, bound)
            while total <= bound and (record := left.pop()) is not None:
                depth, _, name = record.partition(b" ")
                here.rise(above, int(depth))
                identity, mode = here.identity, here.mode
                try:
                    here.move(name)
                except OSError:
                    here.is_whole = False
                    continue
                above.append((identity, mode))
                total += here.measure(left, len(above), bound - total)
            here.rise(above, 0)
        except OSError:
            here.is_whole = False
    if not here.is_whole:
        raise PartlyMeasured(total)
    return total


class _Place:
    """The directory that is measured at the moment."""

    def __init__(self, folder: Path) -> None:
        """Raises OSError."""
        self._file = os.open(folder, DIRECTORY)
        self.mode: int | None = None  #: that it gets back when it is left
        self.is_whole = True  #: no directory was missed so far

    @property
    def identity(self) -> tuple[int, int]:
        seen = os.fstat(self._file)
        return seen.st_dev, seen.st_ino

    def move(self, name: bytes) -> None:
        """Go on in a directory of that name in this one. Raises OSError."""
        mode, place = None, os.open(name, _PLACE, dir_fd=self._file)
        try:
            seen = os.fstat(place)
            if seen.st_mode & 0o500 != 0o500 and seen.st_uid == os.geteuid() != 0:
                mode = stat.S_IMODE(seen.st_mode)
                os.chmod(f"/proc/self/fd/{place}", mode | 0o500)  # noqa: PTH101 - of the open directory
            file = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=place)
        finally:
            os.close(place)
        os.close(self._file)
        self._file, self.mode = file, mode

    def rise(self, above: list[tuple[tuple[int, int], int | None]], depth: int) -> None:
        """Go back up to a depth; above: the directories above this one. Raises OSError if this one was moved."""
        while len(above) > depth:
            file = os.open("..", DIRECTORY, dir_fd=self._file)
            self.close()
            self._file = file
            identity, self.mode = above.pop()
            if self.identity != identity:
                self.mode = None
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    def measure(self, left: Stack, depth: int, room: int) -> int:
        """Count the bytes of its entries until they exceed `room`, and push the directories, which are measured later.

        Raises OSError.
        """
        total = 0
        with os.scandir(self._file) as scanned:
            for entry in scanned:
                is_directory = False
                with contextlib.suppress(FileNotFoundError):
                    seen = entry.stat(follow_symlinks=False)
                    total += max(seen.st_blocks * 512, _LEAST)
                    if is_directory := stat.S_ISDIR(seen.st_mode):
                        left.push(b"%d %s" % (depth, os.fsencode(entry.name)))
                if entry.is_dir(follow_symlinks=False) and not is_directory:
                    self.is_whole = False
                if total > room:
                    break
        return total

    def close(self) -> None:
        if self.mode is not None:
            with contextlib.suppress(OSError):
                os.fchmod(self._file, self.mode)
        os.close(self._file)
