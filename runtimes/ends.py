"""Proof that every process of a sandbox has ended, and that its supervisor has been gone for too long. Linux only.

FOLDER/ID/unended.PID-TICKS    the mark of one launcher: created before the command runs, and deleted by the launcher
                               once the kernel reports that no process is left below it (ECHILD). A launcher adopts
                               every orphan of its sandbox, so that covers all of its processes, however they forked

A mark without its launcher means that processes may be alive, because the launcher was killed. The end is then shown by
the sandbox's boundary in the kernel: an empty cgroup that it cannot leave; its own user without a process; the end of
bubblewrap's init, the last process of its pid namespace; or a restart of the whole machine or container. Otherwise the
mark stays, and a folder with a mark is not deleted.

Every supervisor holds a shared lock on a file of its folder of sandboxes. The kernel releases the lock with the
process, so no heartbeat and no clock of another process is needed. If a launcher's poll gets the lock exclusively, no
supervisor is alive, and the sandbox is an orphan.
"""

import contextlib
import fcntl
import json
import os
import signal
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from runtimes import RuntimeCallFailed, tree
from runtimes.cgroup import Cgroup
from runtimes.folder import lock
from runtimes.isolation.users import end_processes_of, freed

_SUPERVISORS = ".supervisors"

#: Number of consecutive polls without a supervisor until a sandbox is an orphan.
_POLLS = 60


_PREFIX = "unended."

#: Seconds beyond its grace period in which a launcher ends everything.
END_TIMEOUT = 10.0

#: Why a folder must stay unchanged; names the folder.
UNSHOWN = (
    "its launcher was killed, so nothing shows that all of its processes have ended. Its folder {} stays until the "
    "machine or the container restarts. If no process is left, delete the files unended.* in it"
)

#: Seconds in which a launcher kills the processes below it, before it also kills by user.
_BY_LIST = 0.2


def supervise(folder: Path) -> int:
    """Hold a folder as a supervisor, until the process ends or the returned file is closed.

    Raises RuntimeCallFailed.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    held = os.open(folder / _SUPERVISORS, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    lock(held, fcntl.LOCK_SH)  # a launcher's poll holds it for microseconds
    return held


def is_supervised(folder: Path) -> bool:
    """Return whether a supervisor of the folder is alive."""
    try:
        file = os.open(folder / _SUPERVISORS, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


class OrphanWatch:
    """Counts polls without a supervisor. A suspension of the machine counts as at most one poll."""

    def __init__(self, folder: Path, seconds: float) -> None:
        """seconds: maximum time without a supervisor."""
        self._folder = folder
        self._interval = seconds / _POLLS
        self._due = time.monotonic() + self._interval
        self._missed = 0

    @property
    def seconds_left(self) -> float:
        """Return the seconds until the next poll."""
        return max(0.0, self._due - time.monotonic())

    def is_orphan(self) -> bool:
        """Return whether the supervisor has been gone for too long. Polls when a poll is due."""
        if not self.seconds_left:
            self._due = time.monotonic() + self._interval
            self._missed = 0 if is_supervised(self._folder) else self._missed + 1
        return self._missed >= _POLLS


@dataclass(frozen=True)
class LauncherMark:
    """A launcher, and its sandbox's boundary in the kernel."""

    pid: int
    started: str | None
    era: str  #: see `_era`
    cgroup: str | None = None  #: that the sandbox cannot leave
    user: int | None = None  #: of this sandbox only
    init: int = 0  #: bubblewrap's last process
    init_started: str | None = None

    def write(self, folder: Path) -> None:
        """Raises OSError."""
        unfinished = folder / f".{_PREFIX}{self.pid}"
        unfinished.write_text(json.dumps(asdict(self)))
        unfinished.replace(self._in(folder))

    def remove(self, folder: Path) -> None:
        """Raises OSError."""
        self._in(folder).unlink(missing_ok=True)

    def is_shown(self) -> bool:
        """Return whether the launcher and its sandbox have ended. End the rest if all of it can be found.

        Raises RuntimeCallFailed.
        """
        if _is_over(self.era):
            return True
        if tree.process_of(self.pid, self.started or ""):
            return False
        if self.cgroup is not None:
            Cgroup(Path(self.cgroup)).end()
            return True
        if self.user is not None:
            return freed(self.user)
        return bool(self.init) and tree.process_of(self.init, self.init_started or "") is None

    def _in(self, folder: Path) -> Path:
        return folder / f"{_PREFIX}{self.pid}-{(self.started or '').rpartition('+')[2]}"


def own_mark(cgroup: str | None, user: int | None) -> LauncherMark:
    return LauncherMark(os.getpid(), tree.started(os.getpid()), _era(), cgroup, user)


def _era() -> str:
    """Return the machine's boot and the start of process 1, which may be a container's; only the boot under hidepid."""
    return tree.started(1) or tree.boot()


def _is_over(era: str) -> bool:
    """Return whether the machine or the container has restarted since an era."""
    (boot, _, start), (boot_now, _, start_now) = era.partition("+"), _era().partition("+")
    return boot != boot_now or bool(start and start_now and start != start_now)


def settle(folder: Path) -> bool:
    """Delete the marks of sandboxes that have ended. Return whether no mark is left. Raises RuntimeCallFailed."""
    are_all = True
    for path in folder.glob(f"{_PREFIX}*"):
        try:
            mark = LauncherMark(**json.loads(path.read_text()))
        except (OSError, ValueError, TypeError):  # the machine crashed during the write
            are_all = False
            continue
        if mark.is_shown():
            mark.remove(folder)
        else:
            are_all = False
    return are_all


def kill_all_below(group: Cgroup | None, user: int | None, *, is_scoped: bool) -> dict[int, int]:
    """Kill everything below this process, a subreaper. Return when the kernel reports no child.

    is_scoped: this process can signal only its descendants, so one signal reaches all of them at once, and none can
    fork away from it. Returns the exit codes of children, negative for a signal.
    """
    ended, by_list = dict[int, int](), time.monotonic() + _BY_LIST
    while True:
        reaped, is_left = reap()
        ended |= reaped
        if not is_left:
            return ended
        with contextlib.suppress(RuntimeCallFailed):
            if group is not None:
                group.kill()
            if is_scoped:
                with contextlib.suppress(OSError):
                    os.kill(-1, signal.SIGKILL)
            else:
                tree.kill(tree.descendants(os.getpid()))
                _kill_children()
                if user is not None and time.monotonic() > by_list:
                    end_processes_of(user)
        signal.sigtimedwait({signal.SIGCHLD}, tree.SIGNAL_POLL)


def reap() -> tuple[dict[int, int], bool]:
    """Reap every ended child: return their exit codes, negative for a signal, and whether any child is left."""
    ended = {}
    try:
        while (child := os.waitpid(-1, os.WNOHANG))[0]:
            ended[child[0]] = os.waitstatus_to_exitcode(child[1])
    except ChildProcessError:
        return ended, False
    return ended, True


def _kill_children() -> None:
    """Kill the children of this process repeatedly: a process that forks and ends leaves a new child.

    A child keeps its id until it is reaped, so the signal reaches no other process.
    """
    until = time.monotonic() + tree.SIGNAL_POLL
    while time.monotonic() < until and (children := tree.children(os.getpid())):
        for pid in children:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
