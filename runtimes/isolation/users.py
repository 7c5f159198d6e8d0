"""A user for each sandbox, where the server is root: no two sandboxes of this host that run have the same one."""

import os
import random
import socket
from collections import Counter
from pathlib import Path

from runtimes import RuntimeFailure
from runtimes.walk import entries

#: the users of sandboxes: above the ranges of people, of subordinate ids and of systemd. Source: systemd, UIDS-GIDS
USERS = range(0x7000_0000, 0x7FFF_0000)

#: users that are tried at random before a start gives up
_TRIES = 64


def held_user(work: Path) -> tuple[int, socket.socket]:
    """A user for the sandbox of a working folder, and a socket that holds it: the folder's owner, unless it is taken.

    The name of an abstract Unix socket exists once on the host, as with ports (`ports.py`). Raises RuntimeFailure.
    """
    owner = work.stat().st_uid
    candidates = [owner] if owner in USERS else []
    for user in candidates + random.sample(USERS, _TRIES):
        hold = socket.socket(socket.AF_UNIX)
        try:
            hold.bind(f"\0agent-server-user-{user}")
        except OSError:
            hold.close()
        else:
            return user, hold
    raise RuntimeFailure(f"no user is free for it among {USERS.start}-{USERS.stop - 1}")


def hand_over(work: Path, user: int) -> None:
    """Give a working folder with all that is in it to a user. Nobody else uses the folder meanwhile.

    The folder itself comes last, so its owner says whether this was finished. A file that also has a name outside of
    the folder stays its owner's. Raises RuntimeFailure and OSError.
    """
    if work.stat().st_uid == user:
        return
    links: Counter[tuple[int, int]] = Counter()
    for entry in entries(work):
        if entry.is_directory:
            if entry.path:
                os.chown(entry.directory, user, user)
        elif entry.is_symlink or entry.stat.st_nlink == 1:
            os.chown(entry.name, user, user, dir_fd=entry.directory, follow_symlinks=False)
        else:
            links[entry.identity] += 1
            if links[entry.identity] == entry.stat.st_nlink:
                os.chown(entry.name, user, user, dir_fd=entry.directory, follow_symlinks=False)
    os.chown(work, user, user, follow_symlinks=False)
