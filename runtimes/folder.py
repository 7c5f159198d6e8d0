"""A sandbox's folder: one caller at a time changes it, and it can always be removed."""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from uuid import uuid4

from runtimes import RuntimeFailure

#: seconds between two polls of a lock, and until a lock that is not released is a failure: longer than a start takes
_LOCK_POLL, LOCK_TIMEOUT = 0.005, 60.0


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
            # Else the earlier holder of the lock has removed the file: a later caller locks a new one.
            if path.exists() and os.path.samestat(os.fstat(file), path.stat()):
                yield file
                return
        finally:
            os.close(file)


def lock_of(folder: Path) -> Path:
    """The lock file of a sandbox's folder."""
    return folder.with_name(f".{folder.name}.lock")


def remove(folder: Path) -> None:
    """Remove a folder with all that is in it. A symlink is removed and never followed.

    A directory that a sandbox made unreadable is made readable. Each directory is moved to the top of the folder before
    it is emptied, so neither recursion nor the length of a path bounds how deep a sandbox may nest them.
    Raises OSError that names the first entry which cannot be removed; what was removed before it stays removed.
    """
    if folder.is_symlink():
        folder.unlink()
    if not folder.exists():
        return
    prefix, numbers, full = f".{uuid4().hex}", count(), [folder]
    while full:
        directory = full.pop()
        directory.chmod(0o700)
        with os.scandir(directory) as scanned:
            entries = list(scanned)
        for entry in entries:
            path = Path(entry.path)
            if entry.is_dir(follow_symlinks=False):
                path.chmod(0o700)  # a directory that its owner cannot write cannot be moved
                full.append(path.rename(folder / f"{prefix}{next(numbers)}"))
            else:
                path.unlink()
        if directory != folder:
            directory.rmdir()
    folder.rmdir()


def used(folder: Path) -> int:
    """Bytes that a folder takes on the disk; what vanishes meanwhile counts as nothing. A symlink is not followed."""
    total, folders = 0, [folder]
    while folders:
        with contextlib.suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(Path(entry.path))
    return total
