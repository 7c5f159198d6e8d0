"""Folders that only their owner may read."""

import os
import stat
from pathlib import Path


def make_private(folder: Path) -> None:
    """Make a folder, and the missing ones above it, with mode 0700; set that mode where the folder exists and is ours.

    A folder that the system shares among users, such as /tmp, keeps its mode. Raises OSError.
    """
    if not folder.exists():
        if not folder.parent.exists():
            make_private(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.stat()
    if status.st_uid == os.geteuid() and not status.st_mode & stat.S_ISVTX:
        folder.chmod(0o700)
