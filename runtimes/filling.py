"""A new folder while it is filled: from an archive that may be hostile, or from another folder.

Every name is reached directory by directory, each opened without following a symlink. So no member of an archive is
written through a link that an earlier one made.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from runtimes import RuntimeFailure
from runtimes.folder import lock_of, locked, remove
from runtimes.tar_stream import Kind, Member, MemberRefused, shown
from runtimes.walk import Directories, Stack

#: errors of a name that no file can have here
_BAD_NAME = (errno.ENAMETOOLONG, errno.ENOENT, errno.EINVAL, errno.EILSEQ)

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


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

    def __init__(self, folder: Path) -> None:
        self._directories = Directories(folder)
        self._modes = Stack()  #: of directories, whose modes are set last: some could not be written to

    def add(self, member: Member, content: Iterable[memoryview | bytes]) -> None:
        """Make what the member says. Raises MemberRefused, OSError."""
        match member.kind:
            case Kind.DIRECTORY:
                path = _path(member.name)
                self._open(path, member.name)
                self._modes.push(b"%d %d %s" % (member.mode & 0o1777, member.mtime, path))
            case Kind.FILE:
                with self.file(member) as file:
                    for piece in content:
                        while piece:
                            piece = piece[os.write(file, piece) :]
            case Kind.SYMLINK:
                directory, name = self._place(member.name)
                os.symlink(member.target, name, dir_fd=directory)
                os.utime(name, ns=(member.mtime, member.mtime), dir_fd=directory, follow_symlinks=False)
            case Kind.HARDLINK:
                self._link(member)

    @contextlib.contextmanager
    def file(self, member: Member) -> Iterator[int]:
        """A new file, open for writing."""
        directory, name = self._place(member.name)
        file = os.open(name, _CREATE, 0o600, dir_fd=directory)
        try:
            yield file
            os.fchmod(file, member.mode & 0o777)
            os.utime(file, ns=(member.mtime, member.mtime))
        finally:
            os.close(file)

    def finish(self) -> None:
        """Set the modes and times of directories, the last one first: so each can still be entered for those below."""
        while (record := self._modes.pop()) is not None:
            mode, mtime, path = record.split(b" ", 2)
            with naming(path):
                directory = self._directories.opened(path)
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
            f"The member {shown(member.name)} is a hard link to {shown(member.target)}, which is no earlier file"
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
