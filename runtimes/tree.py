"""The processes of a sandbox: finds, ends and, without a cgroup, freezes them. Linux only.

A process is named by its id and its start, never by its id alone. A sandbox's launcher adopts every orphan of its
sandbox, so while the launcher lives the sandbox is all its descendants, also those that called setsid or forked twice.
After a kill of the launcher a mark finds those that did not hide: a variable of the environment that every process
inherits, and can clear.
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from runtimes import RuntimeFailure

#: the variable with the sandbox's folder in the environment of all its processes
MARK = "AGENT_SANDBOX"

#: seconds between two polls of processes that were sent a signal, and until a process that goes on is a failure
SIGNAL_POLL, SIGNAL_TIMEOUT = 0.01, 10.0

#: most seconds between two polls of which the time between them counts
_MOST_APART = 1.0

#: seconds until the first poll of processes that are to stop; each wait doubles, to SIGNAL_POLL at most
FIRST_FREEZE_POLL = 0.001

#: a file that exists where the kernel lists the children of a thread (CONFIG_PROC_CHILDREN)
_CHILDREN = Path("/proc/thread-self/children")

#: the states of a thread, as the kernel letters them: stopped or traced, a zombie or dead
_STILL, _DEAD = set("TtZX"), set("ZX")

#: passes of a thaw over a tree: a process that is stopped after them was stopped by the sandbox itself
_PASSES = 3


def started(pid: int) -> str | None:
    """When a process started: the boot, and clock ticks since. None if there is no such process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return f"{boot()}+{fields[19]}"
    except OSError:
        return None


def boot() -> str:
    """The id of this boot of the machine. Raises OSError."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def found(pid: int, start: str) -> psutil.Process | None:
    """The living process of that id and start. A signal sent through it never reaches a later one of the same id."""
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        if started(pid) == start and lives(pid):
            return process
    return None


def lives(pid: int) -> bool:
    """Whether a process of that id has a thread that has not ended."""
    return not _states(pid) <= _DEAD


def descendants(pid: int) -> list[psutil.Process]:
    """The living descendants of a process, parents before children."""
    with contextlib.suppress(psutil.Error):
        return [each for each in psutil.Process(pid).children(recursive=True) if lives(each.pid)]
    return []


def family(pid: int) -> list[psutil.Process]:
    """A living process and its descendants, parents before children; empty if it has ended."""
    with contextlib.suppress(psutil.Error):
        return [psutil.Process(pid), *descendants(pid)] if lives(pid) else []
    return []


def marked(folder: Path) -> list[psutil.Process]:
    """The living processes that bear the mark of a sandbox's folder, and their descendants."""
    processes: dict[int, psutil.Process] = {}
    for pid in psutil.pids():
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            if process.environ().get(MARK) == str(folder) and lives(pid):
                processes |= {each.pid: each for each in (process, *descendants(pid))}
    return list(processes.values())


class Timeout:
    """Seconds as far as this process was there: it may be stopped, and then has not seen what it waits for."""

    def __init__(self, seconds: float) -> None:
        self._left, self._last = seconds, time.monotonic()

    def is_over(self) -> bool:
        """Whether they have passed. A look: of the time since the last one, at most _MOST_APART counts."""
        now = time.monotonic()
        self._left -= min(now - self._last, _MOST_APART)
        self._last = now
        return self._left < 0


def ask_to_end(find: Callable[[], list[psutil.Process]], grace: float, *, follow: Container[int] = ()) -> None:
    """Send SIGTERM to all processes that `find` finds; returns when it finds none, and after `grace` seconds at most.

    follow: processes that get no SIGTERM, because they end after the others and take them along when they end before.
    """
    for process in find():
        if process.pid not in follow:
            _send(process, signal.SIGTERM)
        _send(process, signal.SIGCONT)  # else a stopped process would not act on it
    deadline = time.monotonic() + grace
    while find() and time.monotonic() < deadline:
        time.sleep(SIGNAL_POLL)


def end(find: Callable[[], list[psutil.Process]]) -> None:
    """Kill all processes that `find` finds, also those forked meanwhile. It shows no end: `ends.py` has what does.

    Raises RuntimeFailure if a process survives SIGKILL.
    """
    timeout, empty = Timeout(SIGNAL_TIMEOUT), 0
    while empty < 2:  # twice: in the middle of an exec a process shows no environment
        remaining = find()
        empty = 0 if remaining else empty + 1
        kill(remaining)
        if timeout.is_over() and remaining:
            raise RuntimeFailure(f"processes {[each.pid for each in remaining]} outlive SIGKILL")
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
    """Whether the signal was sent."""
    try:
        process.send_signal(which)
    except psutil.Error:
        return False
    return True


def _states(pid: int) -> set[str]:
    """The states of a process's threads, a letter each; the first may have ended. Empty if the process is gone."""
    states = set()
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                states.add((thread / "stat").read_text(errors="replace").rpartition(")")[2].split()[0])
    return states


@dataclass(frozen=True)
class Tree:
    """The descendants of a launcher, frozen by signals. The launcher itself goes on: it forks nothing.

    wrappers: processes between the launcher and its command, which go on too: they pass on how the command ends.
    """

    launcher: int
    wrappers: Sequence[int] = ()

    def is_frozen(self) -> bool:
        """Whether every process is stopped. Cost: reads a few files per process of the sandbox."""
        return all(_stands_still(pid) for pid in ids_below(self.launcher) if pid not in self.wrappers)

    def freeze(self) -> None:
        """Stop every process; returns when two passes found no process that runs.

        One pass is not enough: a process may have forked after the tree was listed and before it was read as stopped.
        Raises RuntimeFailure if the sandbox ends meanwhile or a process does not stop.
        """
        timeout, quiet, poll = Timeout(SIGNAL_TIMEOUT), 0, FIRST_FREEZE_POLL
        while quiet < 2:
            if self._stop_what_moves():
                quiet += 1
                continue
            quiet = 0
            if timeout.is_over() or started(self.launcher) is None:
                raise RuntimeFailure("the sandbox ended, or one of its processes would not stop")
            time.sleep(poll)
            poll = min(2 * poll, SIGNAL_POLL)

    def thaw(self) -> None:
        """Let every process go on: children first, so that no parent finds a stopped child and takes it for a job."""
        for _ in range(_PASSES):
            stopped = [each for each in family(self.launcher) if "T" in _states(each.pid)]
            for process in reversed(stopped):
                _send(process, signal.SIGCONT)
            if not stopped:
                break

    def _stop_what_moves(self) -> bool:
        """One pass; True if every process was stopped already.

        Parents first: a stopped one forks no more. Its children follow only then, because a parent that
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
    """The ids of a process's descendants, for a poll that may miss one and is repeated.

    The kernel's lists of children are exact only while none of the children ends; they cost nothing per process of
    others. Where the kernel has none, all processes of the system are read.
    """
    if not _CHILDREN.exists():
        return [each.pid for each in descendants(pid)]
    found, parents = [], [pid]
    while parents:
        below = children(parents.pop())
        found += below
        parents += below
    return found


def children(pid: int) -> list[int]:
    """The ids of a process's children, as far as the kernel lists them; empty where it has no such lists."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                found += map(int, (thread / "children").read_text().split())
    return found


def _stands_still(pid: int) -> bool:
    """Whether every thread is stopped or has ended. A process that is gone does not count: it may have left a child."""
    states = _states(pid)
    return bool(states) and states <= _STILL
