"""File operations in a sandbox's folder: locking, walking, measuring, and removing.

The folder's owner is untrusted and may change it meanwhile. Therefore no symlink is followed: each directory is opened
from its parent by one name. The stack of a walk spills to disk, so that neither the depth of a folder nor the number of
its entries limits the walk.
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

from runtimes import PartlyMeasured, RuntimeCallFailed
from runtimes.tar_stream import MOST_NAME, shown

#: Flags to open a directory by one name, not through a symlink.
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

#: Size of a stack in memory, in bytes; the rest is on disk.
_IN_MEMORY = 1024 * 1024

#: Maximum number of directories that stay open.
_MOST_OPEN = 64

#: Errors of a name that is gone or is another file now.
_CHANGED = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


#: Flags to open a file, not through a symlink, and without blocking at a FIFO.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

#: Errors of opening a symlink or a file as a directory.
_NO_DIRECTORY = (errno.ENOTDIR, errno.ELOOP)

#: Flags to open a directory whatever its mode.
_PLACE = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

#: Seconds between two polls of a lock, and timeout of a lock: longer than a start takes.
_LOCK_POLL, LOCK_TIMEOUT = 0.005, 60.0

_libc = ctypes.CDLL(None, use_errno=True)

#: Arguments of renameat2: AT_FDCWD and RENAME_EXCHANGE. Source: fcntl.h, linux/fs.h
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2

#: Minimum size counted per entry, in bytes: empty files cost inodes, and time in each walk.
_LEAST = 4096


class Stack:
    """A stack of byte records. Beyond 1 MiB it is in an unnamed file."""

    def __init__(self) -> None:
        self._file = SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115 - `close` ends it
        self._end = 0

    def push(self, record: bytes) -> None:
        self._file.seek(self._end)
        self._end += self._file.write(record + len(record).to_bytes(4))

    def pop(self) -> bytes | None:
        """Remove and return the last record; None if the stack is empty."""
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
    """Opens directories below a folder, name by name. Recent ones stay open for their neighbours."""

    def __init__(self, folder: Path) -> None:
        """Raises OSError."""
        self.root = os.open(folder, DIRECTORY)
        self._chain: list[tuple[bytes, int]] = []  #: each directory is in the one before

    def opened(self, path: bytes, *, create: bool = False) -> int:
        """Open the directory of a path without `..` until the next call. create: create missing directories.

        Raises OSError; for a symlink or a file in the path NotADirectoryError, or one with errno.ELOOP.
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
    """A file, a symlink or a directory. For a directory, `directory` is itself, and `name` is empty."""

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
        """Return the device and inode, which all hard links of a file share."""
        return self.stat.st_dev, self.stat.st_ino


def entries(
    folder: Path,
    start: bytes = b"",
    *,
    without: Collection[bytes] = (),
    enters: Callable[[bytes], bool] = lambda _: True,
    passing: Callable[[bytes], None] = lambda _: None,
) -> Iterator[FolderEntry]:
    """Walk a folder: every file, symlink and directory, the folder first, each directory before its content.

    start: the directory to walk, if not the whole folder. without: names of directories to skip with their content.
    enters: whether to walk a directory, called after all files of its parent. passing: called with the path of each
    name, also of skipped ones; its errors end the walk.

    Skips sockets, FIFOs and devices, and entries that vanish meanwhile. Raises RuntimeCallFailed for an unreadable
    entry, and at the end if the folder itself was moved or removed, and its content with it.
    """
    try:
        directories = Directories(folder)
    except OSError as error:
        raise RuntimeCallFailed(f"{folder} cannot be read: {error.strerror}") from error
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
            raise RuntimeCallFailed(f"{folder} was removed meanwhile")


def _inside(
    path: bytes, directory: int, stack: Stack, without: Collection[bytes], passing: Callable[[bytes], None]
) -> Iterator[FolderEntry]:
    with os.scandir(directory) as scanned:
        for item in scanned:
            name = os.fsencode(item.name)
            inner = path + b"/" + name if path else name
            passing(inner)
            if len(inner) > MOST_NAME - 3:
                raise RuntimeCallFailed(f"The path {shown(inner)} is longer than {MOST_NAME - 3} bytes")
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
    """Ignore an entry that vanished or became another file. Raises RuntimeCallFailed for an unreadable one."""
    try:
        yield
    except OSError as error:
        if error.errno not in _CHANGED:
            raise RuntimeCallFailed(f"{shown(path) or '.'} cannot be read: {error.strerror}") from error


@contextlib.contextmanager
def opened_file(name: bytes, directory: int) -> Iterator[tuple[int, os.stat_result]]:
    """Open and stat a file of an open directory. Raises OSError, and FileNotFoundError if it is not a file."""
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
    """Turn OSError and RuntimeCallFailed into a RuntimeCallFailed whose message begins with `what`."""
    try:
        yield
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        raise RuntimeCallFailed(f"{what}: {error.strerror or error}{where}") from error
    except RuntimeCallFailed as failure:
        raise RuntimeCallFailed(f"{what}: {failure}") from failure


def lock(file: int, how: int, timeout: float = LOCK_TIMEOUT) -> None:
    """Lock an open file. how: fcntl.LOCK_EX or LOCK_SH. Raises RuntimeCallFailed after a timeout in seconds."""
    deadline = time.monotonic() + timeout
    while True:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(file, how | fcntl.LOCK_NB)
            return
        if time.monotonic() > deadline:
            raise RuntimeCallFailed(f"another process holds its lock for more than {timeout:g} s")
        time.sleep(_LOCK_POLL)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[int]:
    """Hold a lock file during the block. Raises RuntimeCallFailed after LOCK_TIMEOUT."""
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
    """Exchange the names of two folders of one file system atomically. Raises OSError."""
    words = (_AT_FDCWD, os.fsencode(folder), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE)
    if _libc.renameat2(*words):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(folder))


def lock_of(folder: Path) -> Path:
    """Return the lock file of a sandbox's folder."""
    return folder.with_name(f".{folder.name}.lock")


def make_below(folder: Path, names: Sequence[str], owner: int) -> None:
    """Create the directories of a path below a folder, and give the new ones to a user.

    Raises OSError, and NotADirectoryError if a name is a symlink or a file.
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
    """Open a directory at or below a folder with O_PATH. No name between them may be a symlink.

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
    """Remove a folder and its content. No symlink is followed, even if one replaces a directory meanwhile.

    Unreadable directories are made readable. Each directory is moved to the top of the folder before it is emptied, so
    that neither recursion nor the length of a path limits the depth. Raises OSError for the first entry that cannot be
    removed; the removal is then partial.
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
    """Empty an open directory. Raises OSError."""
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
            os.unlink(name, dir_fd=top)  # replaced before it was moved


def _clear(directory: int, top: int, prefix: str, moved: int) -> int:
    """Remove the files of a directory, and move its directories to the top, numbered from `moved`.

    Return the next number.
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
    """Make a directory writable, because otherwise it cannot be moved. Return false if it is no longer a directory."""
    try:
        with _usable(name, parent):
            return True
    except OSError as error:
        if error.errno in _NO_DIRECTORY:
            return False
        raise


@contextlib.contextmanager
def _usable(name: str | Path, parent: int | None = None) -> Iterator[int]:
    """Open a directory, and give its owner every right. Raises OSError, and one of _NO_DIRECTORY for a symlink."""
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
    """Return the disk usage of a folder in bytes, at least _LEAST per entry. Vanishing files do not count.

    most: stop as soon as it is exceeded. No symlink is followed. One directory is open at a time, and `..` leads back,
    so the depth is unlimited. An unreadable directory of this process's user is made readable during its measurement.
    Raises PartlyMeasured if a directory was moved or removed meanwhile, or is unreadable.
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
    """The current directory of a measurement."""

    def __init__(self, folder: Path) -> None:
        """Raises OSError."""
        self._file = os.open(folder, DIRECTORY)
        self.mode: int | None = None  #: original mode, which is restored
        self.is_whole = True  #: whether no directory was missed so far

    @property
    def identity(self) -> tuple[int, int]:
        seen = os.fstat(self._file)
        return seen.st_dev, seen.st_ino

    def move(self, name: bytes) -> None:
        """Enter a directory of this one. Raises OSError."""
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
        """Go back up to a depth. above: the directories above. Raises OSError if this directory was moved."""
        while len(above) > depth:
            file = os.open("..", DIRECTORY, dir_fd=self._file)
            self.close()
            self._file = file
            identity, self.mode = above.pop()
            if self.identity != identity:
                self.mode = None
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    def measure(self, left: Stack, depth: int, room: int) -> int:
        """Count the bytes of its entries until they exceed `room`, and push its directories for later.

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
