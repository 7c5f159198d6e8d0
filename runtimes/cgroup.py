"""A cgroup (v2) for a sandbox: the kernel freezes, limits and counts all processes in it, also those forked later.

Freezing needs a cgroup below which we may make another; limits also need the controllers memory, pids and cpu
there, which the kernel refuses to a cgroup that holds processes of its own, except the root.

A `Freezer` freezes a sandbox with or without one: all of its processes, and its log, which its launcher copies in
bounded size. A marker file exists from before the first process is stopped until after the last one goes on: so a
caller that dies in between leaves the wanted state on disk. While the marker exists the launcher, which is not frozen,
writes nothing into the log. The gate is a lock on the folder, held while the marker is made and while the launcher
writes.
"""

import contextlib
import fcntl
import hashlib
import os
import select
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

from core.cuts import last_lines
from runtimes import Launch, RuntimeFailure, tree
from runtimes.folder import LOCK_TIMEOUT, lock
from runtimes.tree import FIRST_FREEZE_POLL, SIGNAL_POLL, SIGNAL_TIMEOUT, Tree

#: microseconds: the period of which a sandbox gets `cpus` times as much
_CPU_PERIOD = 100_000

#: tasks of a launcher that may not leave its sandbox's cgroup: its process has a second thread
_LAUNCHER_TASKS = 2


#: the marker file of a sandbox that is to be frozen
PAUSED = "paused"

#: the files of a sandbox's folder: its log, its older log, and the number of the lines before them
_LOG, _OLDER_LOG, _DROPPED = "log", "log.1", "log.dropped"

#: bytes copied from the sandbox's output at once
CHUNK = 65536

#: seconds between two polls of a copier whose sandbox is frozen
_PAUSED_POLL = 0.1

#: seconds between two pieces, for which a sandbox that prints more than 13 MB a second waits: the work of its launcher
#: does not count towards its limits
_COPY_INTERVAL = 0.005


def own() -> Path | None:
    """This process's cgroup; None where cgroup v2 is not mounted, or not mounted as this process sees it."""
    try:
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
        [inside] = [line[3:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::")]
        [root, *_] = [mount[1] for mount in mounts if mount[2] == "cgroup2"]
    except (OSError, ValueError):
        return None
    folder = Path(root, inside.lstrip("/"))
    return folder if folder.is_dir() and ".." not in folder.parts else None


@dataclass(frozen=True)
class Cgroup:
    folder: Path

    @classmethod
    def below(cls, parent: Path, name: str) -> "Cgroup":
        """Make a cgroup, or take the empty one of that name. Raises OSError where that is not allowed."""
        folder = parent / name
        folder.mkdir(exist_ok=True)
        (folder / "cgroup.freeze").write_text("0")
        return cls(folder)

    def limit(self, launch: Launch, *, with_launcher: bool) -> set[str]:
        """Set a launch's limits; returns the names of the limits that the kernel enforces now.

        with_launcher: the launcher could not leave the cgroup, so its tasks count.
        """
        tasks = launch.processes and launch.processes + (_LAUNCHER_TASKS if with_launcher else 0)
        wanted = {
            "memory_bytes": ("memory", "memory.max", launch.memory_bytes),
            "processes": ("pids", "pids.max", tasks),
            "cpus": ("cpu", "cpu.max", launch.cpus and f"{round(launch.cpus * _CPU_PERIOD)} {_CPU_PERIOD}"),
        }
        held = set()
        for name, (controller, file, value) in wanted.items():
            if not value:
                continue
            with contextlib.suppress(OSError):
                (self.folder.parent / "cgroup.subtree_control").write_text(f"+{controller}")
            with contextlib.suppress(OSError):
                (self.folder / file).write_text(str(value))
                held.add(name)
        if "memory_bytes" in held and (self.folder / "memory.swap.max").exists():
            (self.folder / "memory.swap.max").write_text("0")
        return held

    def add(self, pid: int) -> None:
        """Move a process here, 0 for the caller's own. Raises OSError."""
        (self.folder / "cgroup.procs").write_text(str(pid))

    def is_frozen(self) -> bool:
        with contextlib.suppress(OSError):
            return "frozen 1" in (self.folder / "cgroup.events").read_text()
        return False

    def freeze(self) -> None:
        """Freeze every process; returns when the kernel says so. Raises RuntimeFailure, also if it ends meanwhile."""
        self._write("cgroup.freeze", "1")
        timeout, poll = tree.Timeout(SIGNAL_TIMEOUT), FIRST_FREEZE_POLL
        while not self.is_frozen():
            if timeout.is_over() or not self.folder.exists():
                raise RuntimeFailure("the sandbox ended, or one of its processes would not freeze")
            time.sleep(poll)
            poll = min(2 * poll, SIGNAL_POLL)

    def thaw(self) -> None:
        """Let every process go on."""
        self._write("cgroup.freeze", "0")

    def ran_out_of_memory(self) -> bool:
        """Whether the kernel has killed a process of the cgroup at its memory limit."""
        with contextlib.suppress(OSError, ValueError):
            events = dict(line.split() for line in (self.folder / "memory.events").read_text().splitlines())
            return int(events.get("oom_kill", 0)) > 0
        return False

    def memory_bytes(self) -> int | None:
        """Memory of all processes without the files that the kernel can drop; None without the memory controller."""
        with contextlib.suppress(OSError, ValueError):
            pages = dict(line.split() for line in (self.folder / "memory.stat").read_text().splitlines())
            return int((self.folder / "memory.current").read_text()) - int(pages["inactive_file"])
        return None

    def cpu_seconds(self) -> float | None:
        """Processor time of all processes so far; None where the kernel does not count it."""
        with contextlib.suppress(OSError, ValueError):
            times = dict(line.split() for line in (self.folder / "cpu.stat").read_text().splitlines())
            return int(times["usage_usec"]) / 1e6
        return None

    def processes(self) -> list[psutil.Process]:
        """The processes in the cgroup and in cgroups that the sandbox made below it."""
        processes = []
        for file in self.folder.rglob("cgroup.procs"):
            with contextlib.suppress(OSError):
                for pid in file.read_text().split():
                    with contextlib.suppress(psutil.Error):
                        processes.append(psutil.Process(int(pid)))
        return processes

    def kill(self) -> None:
        """Send SIGKILL to all of its processes at once; a kernel before 5.14 cannot, then nothing happens.

        Raises RuntimeFailure.
        """
        if (self.folder / "cgroup.kill").exists():
            self._write("cgroup.kill", "1")

    def end(self) -> None:
        """Kill every process in it, frozen or not, and remove the cgroup if it exists. Raises RuntimeFailure."""
        if self.folder.exists():
            self.thaw()
            self.kill()
            tree.end(self.processes)
            self._remove()

    def _remove(self) -> None:
        """Wait until the cgroup is empty and remove it. Raises RuntimeFailure after SIGNAL_TIMEOUT."""
        timeout = tree.Timeout(SIGNAL_TIMEOUT)
        while self.folder.exists():
            for folder in sorted(self.folder.rglob("*/"), reverse=True):
                with contextlib.suppress(OSError):
                    folder.rmdir()
            with contextlib.suppress(OSError):  # a killed process leaves the cgroup a moment later
                self.folder.rmdir()
                return
            if timeout.is_over():
                raise RuntimeFailure(f"the cgroup {self.folder} cannot be removed")
            time.sleep(SIGNAL_POLL)

    def _write(self, file: str, value: str) -> None:
        try:
            (self.folder / file).write_text(value)
        except OSError as error:
            raise RuntimeFailure(f"the cgroup {self.folder} refuses {file}: {error.strerror}") from error


class Cgroups:
    """The cgroups of a folder's sandboxes: `sandbox-FOLDER-ID` below one parent, both parts hashed."""

    def __init__(self, folder: Path, parent: Path | Literal["own"] | None) -> None:
        """parent: "own" is this process's cgroup; None: sandboxes get none."""
        self._folder = folder
        self._parent = own() if parent == "own" else parent

    def of(self, folder: Path) -> Path | None:
        """The path of the cgroup for a sandbox's folder; None where this process may not make one."""
        if self._parent is None or not os.access(self._parent, os.W_OK):
            return None
        return self._parent / f"sandbox-{_hashed(self._folder)}-{_hashed(folder)}"

    def confine(self, launch: Launch, folder: Path, launcher: int) -> tuple[Path | None, dict[str, str]]:
        """Make a sandbox's cgroup where that is possible. Returns its path, and how each limit is enforced.

        The launcher is moved in, as a test whether moving is allowed, and out again: its command joins by itself.
        Limitation: a launcher that may not leave is frozen with its sandbox.
        """
        wanted = {name for name in ("memory_bytes", "cpus", "processes") if getattr(launch, name)}
        limits = dict.fromkeys(wanted, "not enforced")
        if launch.memory_bytes:
            limits["memory_bytes"] = "each process"
        group, home = self.of(folder), own()
        if group is None:
            return None, limits
        try:
            made = Cgroup.below(group.parent, group.name)
            made.add(launcher)
            with contextlib.suppress(OSError):
                if home is not None:
                    Cgroup(home).add(launcher)
            inside = launcher in [each.pid for each in made.processes()]
            limits |= dict.fromkeys(made.limit(launch, with_launcher=inside), "cgroup")
        except OSError:
            with contextlib.suppress(OSError):
                group.rmdir()
            return None, limits
        return group, limits

    def remove_stale(self) -> None:
        """Remove the cgroups of sandboxes without a folder: no handle names them any more."""
        if self._parent is None:
            return
        living = {self.of(folder) for folder in self._folder.glob("*/")}
        for group in self._parent.glob(f"sandbox-{_hashed(self._folder)}-*"):
            if group not in living:
                with contextlib.suppress(RuntimeFailure):
                    Cgroup(group).end()


def _hashed(path: Path) -> str:
    return hashlib.sha256(str(path).encode()).hexdigest()[:16]


@contextlib.contextmanager
def gate(folder: Path, timeout: float = LOCK_TIMEOUT) -> Iterator[None]:
    """Hold the gate between a sandbox's output and its log. Raises RuntimeFailure after so many seconds."""
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        lock(file, fcntl.LOCK_EX, timeout)
        yield
    finally:
        os.close(file)


@dataclass(frozen=True)
class Freezer:
    """Stops and continues one sandbox."""

    folder: Path
    processes: Cgroup | Tree

    @property
    def is_wanted(self) -> bool:
        """Whether the sandbox is to be frozen."""
        return (self.folder / PAUSED).exists()

    def is_frozen(self) -> bool:
        return self.processes.is_frozen()

    def freeze(self) -> None:
        """Stop every process and the log. Raises RuntimeFailure; then every process that has not ended goes on."""
        if not self.is_wanted:  # a launcher that is frozen too may hold the gate
            with gate(self.folder):
                (self.folder / PAUSED).touch()
        try:
            self.processes.freeze()
        except RuntimeFailure:
            with contextlib.suppress(RuntimeFailure):  # the sandbox has ended
                self.thaw()
            raise

    def thaw(self) -> None:
        """Let every process and the log go on; does nothing unless the marker exists."""
        if self.is_wanted:
            try:
                self.processes.thaw()
            finally:
                (self.folder / PAUSED).unlink(missing_ok=True)


def printed(folder: Path, tail: int) -> str:
    """The last lines of a sandbox's log, at most `tail`, below one that counts the earlier ones; empty if none are.

    Limitation: a copier that is killed while it drops an older log may count its lines twice.
    """
    text, missing = b"", 0
    with contextlib.suppress(OSError), (folder / _LOG).open("rb") as log:
        # The newer log first: if it becomes the older one meanwhile, that is detected and it is not read twice.
        text = log.read()
        with (folder / _OLDER_LOG).open("rb") as older:
            if not os.path.samestat(os.fstat(log.fileno()), os.fstat(older.fileno())):
                text = older.read() + text
        missing = _dropped(folder)
    return last_lines(text.decode(errors="replace"), tail, missing=missing)


def copy(output: int, folder: Path, log_bytes: int) -> None:
    """Append output to the log until every writer has closed it; a full log takes the place of the older one.

    While the sandbox is frozen nothing is copied. Limitation: output that cannot be written is lost, for a full disk
    must not stop the sandbox.
    """
    while True:
        select.select([output], [], [])
        with gate(folder, float("inf")):
            is_paused = (folder / PAUSED).exists()
            if not is_paused:
                text = os.read(output, min(log_bytes, CHUNK))
                if not text:
                    return
                with contextlib.suppress(OSError):
                    _append(text, folder, log_bytes)
        time.sleep(_PAUSED_POLL if is_paused else _COPY_INTERVAL)


def _dropped(folder: Path) -> int:
    """Lines of the log that are kept no more; 0 where the file is not whole, as after a power cut."""
    with contextlib.suppress(OSError, ValueError):
        return int((folder / _DROPPED).read_text())
    return 0


def _append(text: bytes, folder: Path, log_bytes: int) -> None:
    log = folder / _LOG
    if log.exists() and log.stat().st_size + len(text) > log_bytes:
        with contextlib.suppress(FileNotFoundError):
            number = _dropped(folder) + (folder / _OLDER_LOG).read_bytes().count(b"\n")
            (folder / _DROPPED).write_text(str(number))
        log.replace(folder / _OLDER_LOG)
    with log.open("ab", buffering=0) as file:
        file.write(text)
