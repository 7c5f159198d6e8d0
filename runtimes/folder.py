"""A sandbox's folder: one at a time changes it, and it can always be removed."""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from runtimes import RuntimeFailure


@contextlib.contextmanager
def failing(what: str) -> Iterator[None]:
    """Errors of the system as a RuntimeFailure."""
    try:
        yield
    except OSError as error:
        raise RuntimeFailure(f"{what}: {error.strerror or error}") from error
    except RuntimeFailure as failure:
        raise RuntimeFailure(f"{what}: {failure}") from failure


@contextlib.contextmanager
def locked(path: Path) -> Iterator[int]:
    """Hold a lock, as an open file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if path.exists() and os.path.samestat(os.fstat(lock), path.stat()):  # else it was stopped meanwhile
                yield lock
                return
        finally:
            os.close(lock)


def lock_of(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.lock")


def remove(folder: Path) -> None:
    """Remove a folder. What a sandbox made unreadable is made readable first."""
    for path, folders, _ in os.walk(folder):
        for name in folders:
            with contextlib.suppress(OSError):
                Path(path, name).chmod(0o700, follow_symlinks=False)
    shutil.rmtree(folder, ignore_errors=True)
