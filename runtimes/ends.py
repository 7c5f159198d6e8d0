"""What shows that every process of a sandbox has ended, and that its supervisor has been gone for too long. Linux only.

FOLDER/ID/unended.PID-TICKS    the mark of one launcher: made before the command runs, and removed by the launcher when
                               the kernel tells it that no process is left below it (ECHILD). A launcher adopts every
                               orphan of its sandbox, so that covers all that it started, however it was forked

A mark whose launcher has gone means that processes may live: the launcher was killed. Then the end is shown by what the
kernel holds the sandbox with: a cgroup that it cannot leave, and that is empty; a user of its own, that no process has;
bubblewrap's init, which ends last in its pid namespace; or the end of the whole machine or container. What nothing
shows keeps its mark, and a folder with a mark is not removed.

Every supervisor holds a shared lock on a file of its folder of sandboxes for as long as it lives. The kernel ends the
lock with the process, however that ended: no process writes a heartbeat, and no clock of another process counts. When a
launcher's poll gets the lock for itself, no supervisor lives, and the sandbox is an orphan.
"""

import contextlib
import fcntl
import json
import os
import signal
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from runtimes import RuntimeFailure, tree
from runtimes.cgroup import Cgroup
from runtimes.folder import lock
from runtimes.isolation.users import end_processes_of, freed

#: the file in a folder of sandboxes that each supervisor of the folder holds
_SUPERVISORS = ".supervisors"

#: polls in a row that must find no supervisor
_POLLS = 60


_PREFIX = "unended."

#: seconds that a launcher may need beyond its grace to end everything
END_TIMEOUT = 10.0

#: why nothing may be done with a folder, which it names
UNSHOWN = (
    "its launcher was killed, so nothing shows that all of its processes have ended. Its folder {} stays until the "
    "machine or the container restarts; where none of them is left, delete the files unended.* in it"
)

#: seconds for which a launcher kills what it finds below it, before it kills by user too
_BY_LIST = 0.2


def supervise(folder: Path) -> int:
    """Hold a folder as one of its supervisors, until the process ends or the file that is returned is closed.

    Raises RuntimeFailure.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    held = os.open(folder / _SUPERVISORS, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    lock(held, fcntl.LOCK_SH)  # a launcher's poll holds it for microseconds
    return held


def is_supervised(folder: Path) -> bool:
    """Whether a supervisor of the folder lives."""
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
    """Counts the polls that found no supervisor. Time in which the machine was suspended counts as at most one poll."""

    def __init__(self, folder: Path, seconds: float) -> None:
        """seconds: for which no supervisor may live."""
        self._folder = folder
        self._interval = seconds / _POLLS
        self._due = time.monotonic() + self._interval
        self._missed = 0

    @property
    def seconds_left(self) -> float:
        """Seconds until the next poll."""
        return max(0.0, self._due - time.monotonic())

    def is_orphan(self) -> bool:
        """Whether the supervisor has been gone for too long. Polls when a poll is due."""
        if not self.seconds_left:
            self._due = time.monotonic() + self._interval
            self._missed = 0 if is_supervised(self._folder) else self._missed + 1
        return self._missed >= _POLLS


@dataclass(frozen=True)
class Mark:
    """A launcher, and what the kernel holds its sandbox with."""

    pid: int
    started: str | None
    era: str  #: as `_era` has it
    cgroup: str | None = None  #: that the sandbox cannot leave
    user: int | None = None  #: of the sandbox alone
    init: int = 0  #: bubblewrap's process that ends last
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
        """Whether the launcher and its whole sandbox have ended. Ends what is left of them where it can find all of it.

        Raises RuntimeFailure.
        """
        if _is_over(self.era):
            return True
        if tree.found(self.pid, self.started or ""):
            return False
        if self.cgroup is not None:
            Cgroup(Path(self.cgroup)).end()
            return True
        if self.user is not None:
            return freed(self.user)
        return bool(self.init) and tree.found(self.init, self.init_started or "") is None

    def _in(self, folder: Path) -> Path:
        return folder / f"{_PREFIX}{self.pid}-{(self.started or '').rpartition('+')[2]}"


def own_mark(cgroup: str | None, user: int | None) -> Mark:
    """The mark of this process."""
    return Mark(os.getpid(), tree.started(os.getpid()), _era(), cgroup, user)


def _era() -> str:
    """The boot of the machine, and when process 1 started, which may be a container's; the boot alone under hidepid."""
    return tree.started(1) or tree.boot()


def _is_over(era: str) -> bool:
    """Whether the machine or the container has restarted since an era."""
    (boot, _, start), (boot_now, _, start_now) = era.partition("+"), _era().partition("+")
    return boot != boot_now or bool(start and start_now and start != start_now)


def settle(folder: Path) -> bool:
    """Remove the marks of sandboxes that are shown to have ended; whether that were all. Raises RuntimeFailure."""
    are_all = True
    for path in folder.glob(f"{_PREFIX}*"):
        try:
            mark = Mark(**json.loads(path.read_text()))
        except (OSError, ValueError, TypeError):  # the machine crashed while it was written
            are_all = False
            continue
        if mark.is_shown():
            mark.remove(folder)
        else:
            are_all = False
    return are_all


def kill_all_below(group: Cgroup | None, user: int | None, *, is_scoped: bool) -> dict[int, int]:
    """Kill everything below this process, a subreaper; returns when the kernel says that no child is left.

    is_scoped: this process can signal nothing but what is below it, so one signal reaches all of that at one moment,
    and nothing can fork away from it. Returns the exit codes of children, negative for a signal.
    """
    ended, by_list = dict[int, int](), time.monotonic() + _BY_LIST
    while True:
        reaped, is_left = reap()
        ended |= reaped
        if not is_left:
            return ended
        with contextlib.suppress(RuntimeFailure):
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
    """Reap every child that has ended: their exit codes, negative for a signal, and whether any child is left."""
    ended = {}
    try:
        while (child := os.waitpid(-1, os.WNOHANG))[0]:
            ended[child[0]] = os.waitstatus_to_exitcode(child[1])
    except ChildProcessError:
        return ended, False
    return ended, True


def _kill_children() -> None:
    """Kill the children of this process again and again for a moment: a process that forks and ends becomes one.

    A child keeps its id until it is reaped, so the signal reaches no other process.
    """
    until = time.monotonic() + tree.SIGNAL_POLL
    while time.monotonic() < until and (children := tree.children(os.getpid())):
        for pid in children:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
