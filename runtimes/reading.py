"""Names and single files of a sandbox's kept folder, read while the sandbox runs, is paused or has ended.

No symlink is followed: a name that is one has no content, and one on the way to a file leads nowhere.
"""

import os
import posixpath
import stat
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

from runtimes import FileTooLong, FolderNotKept
from runtimes.folder import Directories, entries, unreadable
from runtimes.tar_stream import PIECE, Kind, TarReader

#: directories that are made by tools and would hide what people wrote. Source: the app-server wire
HEAVY = frozenset(
    {b".git", b"node_modules", b".venv", b"venv", b"__pycache__", b".mypy_cache", b".pytest_cache", b".ruff_cache"}
    | {b"dist", b"build", b".next", b"target", b".agent-server"}
)

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def below(kept: str, cwd: str, folder: str) -> bytes:
    """The path of an agent's folder below the kept one; empty for the kept folder itself.

    kept, cwd: absolute, of the kept folder and of the agent's working directory. Raises FolderNotKept.
    """
    path = posixpath.normpath(posixpath.join(cwd, folder))
    kept = posixpath.normpath(kept)
    if path != kept and not path.startswith(f"{kept}/"):
        raise FolderNotKept(f"The folder {folder} is not among the files of the sandbox that are kept")
    return os.fsencode(path[len(kept) + 1 :])


def names(folder: Path, start: bytes) -> Iterator[bytes]:
    """The path of every file below a directory of the folder, from that directory; HEAVY directories are left out."""
    for entry in entries(folder, start, without=HEAVY):
        if not entry.is_directory and not entry.is_symlink:
            yield _inside(entry.path, start)


def content(folder: Path, path: bytes, most: int) -> bytes | None:
    """A file of the folder; None if there is none. Raises FileTooLong, and RuntimeFailure where it cannot be read."""
    parent, _, name = path.rpartition(b"/")
    with unreadable(path), closing(Directories(folder)) as directories:
        file = os.open(name, _READ, dir_fd=directories.opened(parent))
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                return None
            pieces = iter(lambda: os.read(file, PIECE), b"")
            return _bounded(pieces, most)
        finally:
            os.close(file)
    return None


def names_in(chunks: Iterable[bytes], start: bytes) -> Iterator[bytes]:
    """As `names`, of a tar stream of the folder."""
    for member in TarReader(chunks, skips=True).members():
        path = _inside(member.name, start)
        if path and member.kind is Kind.FILE and not HEAVY.intersection(path.split(b"/")[:-1]):
            yield path


def content_in(chunks: Iterable[bytes], path: bytes, most: int) -> bytes | None:
    """As `content`, of a tar stream of the folder. Cost: reads what stands before the file."""
    reader = TarReader(chunks, skips=True)
    for member in reader.members():
        if member.kind is Kind.FILE and _inside(member.name, b"") == path:
            return _bounded(reader.content(member), most)
    return None


def joined(start: bytes, path: str) -> bytes:
    """The path of a file below the folder, from its path below a directory of it."""
    return posixpath.join(start, os.fsencode(path))


def _inside(name: bytes, start: bytes) -> bytes:
    """The name of a member from a directory; empty for one outside of it."""
    name = name.removeprefix(b"./")
    if not start:
        return name
    return name[len(start) + 1 :] if name.startswith(start + b"/") else b""


def _bounded(pieces: Iterable[bytes | memoryview], most: int) -> bytes:
    data = bytearray()
    for piece in pieces:
        data += piece
        if len(data) > most:
            raise FileTooLong(f"The file has more than {most} bytes: the sandbox's archive has it")
    return bytes(data)
