"""Free space on the disk of the embedded store. Standard library only: the gunicorn master imports it."""

import os
from pathlib import Path

#: Reserve in bytes for what a full store still accepts, such as decisions and deletions. Redis exits when it cannot
#: write its file.
RESERVE = 16 * 1024 * 1024


def shortage(folder: Path) -> str | None:
    """Return a sentence about a full disk of DATA_DIR; None if it has room or cannot be measured.

    The sentence omits the path, because `/ready` needs no key.
    """
    try:
        found = os.statvfs(folder)
    except OSError:
        return None
    free = found.f_frsize * (found.f_bavail if os.geteuid() else found.f_bfree)
    if free < RESERVE:
        return (
            f"The disk of DATA_DIR is full: {free} bytes are free, and the store needs {RESERVE}. Delete files there, "
            "or enlarge the disk; the server goes on by itself"
        )
    return None
