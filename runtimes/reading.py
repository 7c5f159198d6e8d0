"""Reads names and single files of a sandbox's persistent folder, while the sandbox runs, is paused or has ended.

A path is resolved through symlinks as for the agent, as long as they stay in the folder. Each step is opened by name
from its parent, so no concurrent change leads out of the folder. Lists omit symlinks.
"""

import os
import posixpath
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

from runtimes import FileOverLimit, FolderNotKept, RuntimeCallFailed
from runtimes.folder import Directories, entries, opened_file, unreadable
from runtimes.tar_stream import PIECE, Member, MemberKind, TarReader

#: Directories with generated files, which would hide people's files. Source: the app-server wire
HEAVY = frozenset(
    {b".git", b"node_modules", b".venv", b"venv", b"__pycache__", b".mypy_cache", b".pytest_cache", b".ruff_cache"}
    | {b"dist", b"build", b".next", b"target", b".agent-server"}
)

#: Maximum number of entries that are read for a list of files, and bytes of their paths: each costs the host's time.
MOST_PASSED, MOST_PATHS = 100_000, 64 << 20

#: Maximum number of symlinks in one path. In a tar stream, each costs another reading.
_MOST_LINKS = 8


#: Members that are files. In a tar stream, another name of a file is a link.
_FILES = (MemberKind.FILE, MemberKind.HARDLINK)


def below(kept: str, cwd: str, folder: str) -> bytes:
    """Return the path of an agent's folder below the persistent one; b"" for the persistent folder itself.

    kept, cwd: absolute paths of the persistent folder and of the agent's working directory. Raises FolderNotKept.
    """
    path = posixpath.normpath(posixpath.join(cwd, folder))
    kept = posixpath.normpath(kept)
    if path != kept and not path.startswith(f"{kept}/"):
        raise FolderNotKept(f"The folder {folder} is not among the persistent files of the sandbox")
    return os.fsencode(path[len(kept) + 1 :])


def names(folder: Path, start: bytes) -> Iterator[bytes]:
    """Yield the path of every file below a directory, relative to it. HEAVY directories are skipped.

    Raises RuntimeCallFailed, also after MOST_PASSED entries or MOST_PATHS bytes.
    """
    real, passed, size = resolved(folder, start), 0, 0
    if real is None:
        return

    def passing(path: bytes) -> None:
        nonlocal passed, size
        passed, size = passed + 1, size + len(path)
        if passed >= MOST_PASSED or size > MOST_PATHS:
            raise RuntimeCallFailed(
                f"More than {MOST_PASSED} files and directories, or {MOST_PATHS} bytes of their paths, "
                "would have to be read for this list"
            )

    for entry in entries(folder, real, without=HEAVY, passing=passing):
        if not entry.is_directory and not entry.is_symlink:
            yield _inside(entry.path, real)


def resolved(folder: Path, path: bytes) -> bytes | None:
    """Resolve the symlinks of a path below the folder; None if it leads out of the folder."""
    real: bytes | None = path
    with unreadable(path), closing(Directories(folder)) as directories:
        real = _resolved(path, [os.fsencode(folder)], partial(_target, directories))
    return real


def content(folder: Path, path: bytes, most: int) -> bytes | None:
    """Return a file of the folder; None if there is none. Raises FileOverLimit and RuntimeCallFailed."""
    with unreadable(path), closing(Directories(folder)) as directories:
        real = _resolved(path, [os.fsencode(folder)], partial(_target, directories))
        if not real:
            return None
        parent, _, name = real.rpartition(b"/")
        with opened_file(name, directories.opened(parent)) as (file, _):
            return _bounded(iter(lambda: os.read(file, PIECE), b""), most)
    return None


def names_in(packed: Callable[[], Generator[bytes]], start: bytes, *roots: str) -> Iterator[bytes]:
    """Do as `names` for a tar stream. packed: starts the stream. roots: the folder's paths for the agent."""
    with closing(_members(packed, start, roots)) as members:
        for _, member, real in members:
            path = _inside(member.name, real)
            if path and member.kind in _FILES and not HEAVY.intersection(path.split(b"/")[:-1]):
                yield path


def content_in(packed: Callable[[], Generator[bytes]], path: bytes, most: int, *roots: str) -> bytes | None:
    """Do as `content` for a tar stream. Cost: reads the stream up to the file, and up to each symlink on the way."""
    with closing(_members(packed, path, roots)) as members:
        for reader, member, real in members:
            if member.kind is MemberKind.FILE and _inside(member.name, b"") == real:
                return _bounded(reader.content(member), most)
    return None


def _members(
    packed: Callable[[], Generator[bytes]], path: bytes, roots: Sequence[str]
) -> Generator[tuple[TarReader, Member, bytes]]:
    """Yield each member of a tar stream, and the path's target; a link on the way restarts the stream."""
    links: dict[bytes, bytes] = {}
    kept = [os.fsencode(root) for root in roots if root]
    while (real := _resolved(path, kept, links.get)) is not None:
        with closing(packed()) as chunks:
            reader = TarReader(chunks, skips=True)
            for member in reader.members():
                name = _inside(member.name, b"")
                if member.target and name not in links and (real + b"/").startswith(name + b"/"):
                    is_hard = member.kind is MemberKind.HARDLINK
                    links[name] = posixpath.join(kept[0], member.target) if is_hard else member.target
                    break
                yield reader, member, real
            else:
                return


def _resolved(path: bytes, roots: Iterable[bytes], target: Callable[[bytes], bytes | None]) -> bytes | None:
    """Resolve the symlinks of a path below a folder; None if it leads out, or through too many.

    roots: the folder in targets of symlinks. target: returns the target of the symlink at a path, or None.
    """
    roots, links = [root.rstrip(b"/") for root in roots], 0
    done, left = list[bytes](), path.split(b"/")[::-1]
    while left:
        name = left.pop()
        if name in (b"", b"."):
            continue
        if name == b"..":
            if not done:
                return None
            done.pop()
        elif (to := target(b"/".join([*done, name]))) is None:
            done.append(name)
        else:
            links += 1
            root = _root_of(to, roots) if to.startswith(b"/") else b""
            if links > _MOST_LINKS or root is None:
                return None
            if to.startswith(b"/"):
                done, to = [], to[len(root) :]
            left += to.split(b"/")[::-1]
    return b"/".join(done)


def _root_of(path: bytes, roots: Iterable[bytes]) -> bytes | None:
    return next((root for root in roots if (path + b"/").startswith(root + b"/")), None)


def _target(directories: Directories, path: bytes) -> bytes | None:
    parent, _, name = path.rpartition(b"/")
    with suppress(OSError):  # not a symlink; opening it raises any other error
        return os.readlink(name, dir_fd=directories.opened(parent))
    return None


def joined(start: bytes, path: str) -> bytes:
    """Return the path of a file below the folder, from its path below a directory of it."""
    return posixpath.join(start, os.fsencode(path))


def _inside(name: bytes, start: bytes) -> bytes:
    """Return the name of a member relative to a directory; b"" outside of it."""
    name = name.removeprefix(b"./")
    if not start:
        return name
    return name[len(start) + 1 :] if name.startswith(start + b"/") else b""


def _bounded(pieces: Iterable[bytes | memoryview], most: int) -> bytes:
    data = bytearray()
    for piece in pieces:
        data += piece
        if len(data) > most:
            raise FileOverLimit(f"The file has more than {most} bytes: the sandbox's archive has it")
    return bytes(data)
