"""A user for each sandbox, if the server is root: two running sandboxes of a host never share a user."""

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from runtimes import PROJECT, RuntimeCallFailed, tree
from runtimes.folder import entries

#: Default users of sandboxes: above the ranges of people, of subordinate ids and of systemd. Source: systemd, UIDS-GIDS
USERS = range(0x7000_0000, 0x7FFF_0000)

#: The real user of a process that kills a sandbox's processes: no sandbox has it, so none can signal that process.
_KILLER = USERS.stop

#: Number of random users that a start tries.
_TRIES = 64


def held_user(work: Path, among: range = USERS) -> tuple[int, socket.socket]:
    """Return a user for the sandbox of a working folder, and a socket that holds it: the folder's owner, unless taken.

    No other sandbox of the parent folder has it, running or not. The name of an abstract Unix socket is unique on the
    host, as for ports (`starts.py`). Raises RuntimeCallFailed.
    """
    owner = work.stat().st_uid
    taken = {_KILLER}
    for other in work.parent.parent.glob("*/work"):
        with contextlib.suppress(FileNotFoundError):  # deleted concurrently
            if other != work:
                taken.add(other.stat().st_uid)
    candidates = [owner] if owner in among else []
    for user in candidates + random.sample(among, min(_TRIES, len(among))):
        if user not in taken and (hold := _hold(user)):
            if not processes_of(user):
                return user, hold
            hold.close()
    raise RuntimeCallFailed(f"no user is free for it among SANDBOX_USERS {among.start}-{among.stop - 1}")


def _hold(user: int) -> socket.socket | None:
    """Return a socket that holds a user; None if another sandbox holds it."""
    hold = socket.socket(socket.AF_UNIX)
    try:
        hold.bind(f"\0agent-server-user-{user}")
    except OSError:
        hold.close()
        return None
    return hold


def processes_of(user: int) -> list[int]:
    """Return the ids of a user's living processes. Cost: reads a file of every process."""
    ids = []
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):  # noqa: PTH208 - names are wanted
        with contextlib.suppress(OSError, StopIteration):
            # A process chooses its name, in the first line, so only line feeds end a line.
            status = Path(f"/proc/{pid}/status").read_bytes().split(b"\n")
            users = next(line for line in status if line.startswith(b"Uid:")).split()
            if str(user).encode() in users and tree.lives(pid):
                ids.append(pid)
    return ids


def freed(user: int) -> bool:
    """End the processes of a sandbox's user after its launcher. False if another sandbox has the user by now.

    Raises RuntimeCallFailed.
    """
    hold = _hold(user)
    if hold is None:
        return False
    with hold:
        end_processes_of(user)
    return True


def end_processes_of(user: int) -> None:
    """Kill all processes of a sandbox's user at once, and return when none is left. Raises RuntimeCallFailed.

    The list of processes proves nothing before: a process that forks and ends is never in it.
    """
    timeout, killer = tree.ActiveTimeout(tree.SIGNAL_TIMEOUT), [sys.executable, "-m", __name__, str(user)]
    while subprocess.run(killer, cwd=PROJECT, check=False).returncode:  # another killer may kill this one first
        if timeout.is_over():
            raise RuntimeCallFailed(f"the processes of its user {user} cannot be killed")
    while left := processes_of(user):
        if timeout.is_over():
            raise RuntimeCallFailed(f"processes {left} of its user {user} outlive SIGKILL")
        time.sleep(tree.SIGNAL_POLL)


def _kill_all_of(user: int) -> None:
    """Kill all processes of a user at once: none can fork while the kernel sends the signal."""
    become_killer(user)
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)


def become_killer(user: int) -> None:
    """Let this process signal the processes of a user, but not the reverse. Source: kill(2).

    A signal is checked by the sender's effective user and the target's real and saved users.
    """
    if user <= 0:
        raise ValueError("root never owns a sandbox")
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(_KILLER, user, _KILLER)


def hand_over(work: Path, user: int) -> None:
    """Give a working folder and its content to a user. Nobody else uses the folder meanwhile.

    The folder itself comes last, so its owner shows whether this was finished. A file with another name outside of the
    folder keeps its owner. Raises RuntimeCallFailed and OSError.
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


if __name__ == "__main__":
    _kill_all_of(int(sys.argv[1]))
