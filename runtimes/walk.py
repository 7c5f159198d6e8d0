"""A walk through a folder whose owner is not trusted and may change it meanwhile. No symlink is followed.

Every directory is opened from its parent by one name, so a name that became a link leads nowhere. What is left to do
lies in a stack that goes to disk, so neither the depth of a folder nor the number of its entries bounds the walk.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import SpooledTemporaryFile

from runtimes import RuntimeFailure
from runtimes.tar_stream import MOST_NAME, shown

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

#: bytes of a stack that stay in memory
_IN_MEMORY = 1024 * 1024

#: most directories that stay open
_MOST_OPEN = 64

#: errors of a name that has another file by now, or none
_CHANGED = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


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
        self.root = os.open(folder, _DIRECTORY)
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
            directory = os.open(name, _DIRECTORY, dir_fd=directory)
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
class Entry:
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


def entries(folder: Path, start: bytes = b"", *, without: Collection[bytes] = ()) -> Iterator[Entry]:
    """Every file, symlink and directory of a folder, itself first and each directory before its content.

    start: the directory that is walked, if not the whole folder. without: names of directories that are left out with
    their content. Sockets, FIFOs and devices are left out, and so is what vanishes meanwhile. Raises RuntimeFailure
    that names an entry which cannot be read, and at the end where the folder itself was moved or removed: its content
    was then too.
    """
    try:
        directories = Directories(folder)
    except OSError as error:
        raise RuntimeFailure(f"{folder} cannot be read: {error.strerror}") from error
    with contextlib.closing(Stack()) as stack, contextlib.closing(directories):
        stack.push(start)
        while (path := stack.pop()) is not None:
            with unreadable(path):
                directory = directories.opened(path)
                yield Entry(path, os.fstat(directory), directory, b"")
                yield from _inside(path, directory, stack, without)
        if not _is_at(directories.root, folder):
            raise RuntimeFailure(f"{folder} was removed meanwhile")


def _inside(path: bytes, directory: int, stack: Stack, without: Collection[bytes]) -> Iterator[Entry]:
    with os.scandir(directory) as scanned:
        for item in scanned:
            name = os.fsencode(item.name)
            inner = path + b"/" + name if path else name
            if len(inner) > MOST_NAME - 3:
                raise RuntimeFailure(f"The path {shown(inner)} is longer than {MOST_NAME - 3} bytes")
            with unreadable(inner):
                seen = item.stat(follow_symlinks=False)
                if stat.S_ISDIR(seen.st_mode):
                    if name not in without:
                        stack.push(inner)
                elif stat.S_ISREG(seen.st_mode) or stat.S_ISLNK(seen.st_mode):
                    yield Entry(inner, seen, directory, name)


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
