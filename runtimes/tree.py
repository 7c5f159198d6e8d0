"""The processes of a sandbox: finds, ends and, without a cgroup, freezes them. Linux only.

A process is identified by its id and its start, never by its id alone. A launcher adopts every orphan of its sandbox,
so while the launcher is alive the sandbox is all its descendants, also after setsid or a double fork. After a kill of
the launcher, a mark finds the processes that did not hide: an environment variable that every process inherits and can
clear.
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from runtimes import RuntimeCallFailed

#: The variable with the sandbox's folder in the environment of all its processes.
MARK = "AGENT_SANDBOX"

#: Poll interval for signalled processes, and timeout after which a process that goes on is a failure, in seconds.
SIGNAL_POLL, SIGNAL_TIMEOUT = 0.01, 10.0

#: Maximum time between two polls that counts, in seconds.
_MOST_APART = 1.0

#: Seconds until the first poll of processes that must stop. Each wait doubles, up to SIGNAL_POLL.
FIRST_FREEZE_POLL = 0.001

#: A file that exists if the kernel lists the children of a thread (CONFIG_PROC_CHILDREN).
_CHILDREN = Path("/proc/thread-self/children")

#: The kernel's letters for states of a thread: stopped or traced, a zombie or dead.
_STILL, _DEAD = set("TtZX"), set("ZX")

#: Passes of a thaw over a tree. A process that is stopped after them was stopped by the sandbox itself.
_PASSES = 3


def started(pid: int) -> str | None:
    """Return when a process started: the boot, and clock ticks since. None if there is no such process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return f"{boot()}+{fields[19]}"
    except OSError:
        return None


def boot() -> str:
    """Return the id of this boot of the machine. Raises OSError."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def process_of(pid: int, start: str) -> psutil.Process | None:
    """Return the living process of an id and a start. A signal through it never reaches a later process of that id."""
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        if started(pid) == start and lives(pid):
            return process
    return None


def lives(pid: int) -> bool:
    """Return whether a process of that id has a thread that has not ended."""
    return not _states(pid) <= _DEAD


def descendants(pid: int) -> list[psutil.Process]:
    """Return the living descendants of a process, parents before children."""
    with contextlib.suppress(psutil.Error):
        return [each for each in psutil.Process(pid).children(recursive=True) if lives(each.pid)]
    return []


def family(pid: int) -> list[psutil.Process]:
    """Return a living process and its descendants, parents before children; empty if it has ended."""
    with contextlib.suppress(psutil.Error):
        return [psutil.Process(pid), *descendants(pid)] if lives(pid) else []
    return []


def marked(folder: Path) -> list[psutil.Process]:
    """Return the living processes with the mark of a sandbox's folder, and their descendants."""
    processes: dict[int, psutil.Process] = {}
    for pid in psutil.pids():
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            if process.environ().get(MARK) == str(folder) and lives(pid):
                processes |= {each.pid: each for each in (process, *descendants(pid))}
    return list(processes.values())


class ActiveTimeout:
    """A timeout that counts only while this process runs, because a stopped process cannot check its condition."""

    def __init__(self, seconds: float) -> None:
        self._left, self._last = seconds, time.monotonic()

    def is_over(self) -> bool:
        """Return whether the time is over. Between two calls at most _MOST_APART seconds count."""
        now = time.monotonic()
        self._left -= min(now - self._last, _MOST_APART)
        self._last = now
        return self._left < 0


def ask_to_end(find: Callable[[], list[psutil.Process]], grace: float, *, follow: Container[int] = ()) -> None:
    """Send SIGTERM to all processes that `find` returns, until it returns none, for `grace` seconds at most.

    follow: processes that get no SIGTERM, because they end after the others, and would kill them by ending first.
    """
    for process in find():
        if process.pid not in follow:
            _send(process, signal.SIGTERM)
        _send(process, signal.SIGCONT)  # otherwise a stopped process would not handle it
    deadline = time.monotonic() + grace
    while find() and time.monotonic() < deadline:
        time.sleep(SIGNAL_POLL)


def end(find: Callable[[], list[psutil.Process]]) -> None:
    """Kill all processes that `find` returns, also those forked meanwhile. It proves no end; see `ends.py`.

    Raises RuntimeCallFailed if a process survives SIGKILL.
    """
    timeout, empty = ActiveTimeout(SIGNAL_TIMEOUT), 0
    while empty < 2:  # twice, because during an exec a process shows no environment
        remaining = find()
        empty = 0 if remaining else empty + 1
        kill(remaining)
        if timeout.is_over() and remaining:
            raise RuntimeCallFailed(f"processes {[each.pid for each in remaining]} outlive SIGKILL")
        time.sleep(SIGNAL_POLL)


def kill(processes: list[psutil.Process]) -> None:
    """Send SIGKILL to the group of each process, then to each: a group cannot fork away from its signal."""
    groups = set()
    for process in processes:
        with contextlib.suppress(OSError):
            groups.add(os.getpgid(process.pid))
    for group in groups - {os.getpgrp()}:
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGKILL)
    for process in processes:
        _send(process, signal.SIGKILL)


def _send(process: psutil.Process, which: signal.Signals) -> bool:
    try:
        process.send_signal(which)
    except psutil.Error:
        return False
    return True


def _states(pid: int) -> set[str]:
    """Return the states of a process's threads, a letter each; empty if it is gone. The first may have ended."""
    states = set()
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                states.add((thread / "stat").read_text(errors="replace").rpartition(")")[2].split()[0])
    return states


@dataclass(frozen=True)
class Tree:
    """The descendants of a launcher, frozen by signals. The launcher itself, which forks nothing, is not frozen.

    wrappers: processes between the launcher and its command, not frozen, because they report the command's end.
    """

    launcher: int
    wrappers: Sequence[int] = ()

    def is_frozen(self) -> bool:
        """Return whether every process is stopped. Cost: reads a few files per process of the sandbox."""
        return all(_stands_still(pid) for pid in ids_below(self.launcher) if pid not in self.wrappers)

    def freeze(self) -> None:
        """Stop every process, and return when two passes found no running process.

        One pass is not enough: a process may have forked between the listing and its stop. Raises RuntimeCallFailed if
        the sandbox ends meanwhile or a process does not stop.
        """
        timeout, quiet, poll = ActiveTimeout(SIGNAL_TIMEOUT), 0, FIRST_FREEZE_POLL
        while quiet < 2:
            if self._stop_what_moves():
                quiet += 1
                continue
            quiet = 0
            if timeout.is_over() or started(self.launcher) is None:
                raise RuntimeCallFailed("the sandbox ended, or one of its processes would not stop")
            time.sleep(poll)
            poll = min(2 * poll, SIGNAL_POLL)

    def thaw(self) -> None:
        """Thaw every process, children first, so that no parent takes a stopped child for a job."""
        for _ in range(_PASSES):
            stopped = [each for each in family(self.launcher) if "T" in _states(each.pid)]
            for process in reversed(stopped):
                _send(process, signal.SIGCONT)
            if not stopped:
                break

    def _stop_what_moves(self) -> bool:
        """Make one pass. Return True if every process was already stopped.

        Parents first, because a stopped parent forks no more. Its children follow only then, because a parent that
        waits for its child to exec (vfork) cannot stop before the child did.
        """
        still = {self.launcher}
        processes = descendants(self.launcher)
        for process in processes:
            with contextlib.suppress(psutil.Error):
                if process.ppid() in still:
                    if process.pid in self.wrappers or _stands_still(process.pid):
                        still.add(process.pid)
                    else:
                        _send(process, signal.SIGSTOP)
        return bool(processes) and len(still) == len(processes) + 1


def ids_below(pid: int) -> list[int]:
    """Return the ids of a process's descendants, for a repeated poll that may miss one.

    The kernel's lists of children are exact only while no child ends. They cost nothing per process of others. Without
    them, all processes of the system are read.
    """
    if not _CHILDREN.exists():
        return [each.pid for each in descendants(pid)]
    ids, parents = [], [pid]
    while parents:
        below = children(parents.pop())
        ids += below
        parents += below
    return ids


def children(pid: int) -> list[int]:
    """Return the ids of a process's children, as far as the kernel lists them; empty without such lists."""
    ids: list[int] = []
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                ids += map(int, (thread / "children").read_text().split())
    return ids


def _stands_still(pid: int) -> bool:
    """Return whether every thread is stopped or has ended. False for a missing process, which may have left a child."""
    states = _states(pid)
    return bool(states) and states <= _STILL
