"""Room on the disk of the embedded store. Only the standard library stands here: the gunicorn master loads it."""

import os
from pathlib import Path

#: bytes that stay free for what a full store still takes, such as decisions and deletions: Redis ends at a write of its
#: file that fails
RESERVE = 16 * 1024 * 1024


def shortage(folder: Path) -> str | None:
    """What to say of a DATA_DIR whose disk is full; None where it has room, or does not tell.

    The path is left out: `/ready` needs no key.
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
