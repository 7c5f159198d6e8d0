"""Cgroups (v2) of sandboxes, by which the kernel freezes, limits and counts all their processes.

Freezing needs a cgroup in which we can create others. Limits also need the controllers memory, pids and cpu there,
which the kernel refuses to a cgroup with processes of its own, except the root.

A `Freezer` freezes a sandbox with or without a cgroup: all of its processes, and its log, which the launcher copies in
bounded size. A marker file exists from before the first process stops until after the last one continues, so that the
wanted state is on disk if the caller dies. While the marker exists the launcher, which is not frozen, writes nothing
into the log. The gate is a lock on the folder. It is held while the marker is created, and while the launcher writes.
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
from runtimes import Launch, RuntimeCallFailed, tree
from runtimes.folder import LOCK_TIMEOUT, lock
from runtimes.tree import FIRST_FREEZE_POLL, SIGNAL_POLL, SIGNAL_TIMEOUT, Tree

#: Period of the CPU quota, in microseconds. A sandbox gets `cpus` times as much.
_CPU_PERIOD = 100_000

#: Tasks of a launcher that cannot leave its sandbox's cgroup: it has two threads.
_LAUNCHER_TASKS = 2


#: Marker file of a sandbox that should be frozen.
PAUSED = "paused"

#: Files of a sandbox's folder: the log, the older log, and the number of lines before them.
_LOG, _OLDER_LOG, _DROPPED = "log", "log.1", "log.dropped"

#: Chunk size of the sandbox's output, in bytes.
CHUNK = 65536

#: Seconds between two polls while the sandbox is frozen.
_PAUSED_POLL = 0.1

#: Seconds between two chunks, which throttles a sandbox to 13 MB of output per second. The CPU time of its launcher is
#: not limited.
_COPY_INTERVAL = 0.005


def own() -> Path | None:
    """Return this process's cgroup; None if cgroup v2 is not mounted, or not visible to this process."""
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
        """Create a cgroup, or reuse an empty one. Raises OSError if that is not allowed."""
        folder = parent / name
        folder.mkdir(exist_ok=True)
        (folder / "cgroup.freeze").write_text("0")
        return cls(folder)

    def limit(self, launch: Launch, *, with_launcher: bool) -> set[str]:
        """Set a launch's limits. Return the names of those that the kernel enforces.

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
        """Move a process into the cgroup; 0: the caller. Raises OSError."""
        (self.folder / "cgroup.procs").write_text(str(pid))

    def is_frozen(self) -> bool:
        with contextlib.suppress(OSError):
            return "frozen 1" in (self.folder / "cgroup.events").read_text()
        return False

    def freeze(self) -> None:
        """Freeze every process; wait for the kernel. Raises RuntimeCallFailed, also if the cgroup ends meanwhile."""
        self._write("cgroup.freeze", "1")
        timeout, poll = tree.ActiveTimeout(SIGNAL_TIMEOUT), FIRST_FREEZE_POLL
        while not self.is_frozen():
            if timeout.is_over() or not self.folder.exists():
                raise RuntimeCallFailed("the sandbox ended, or one of its processes would not freeze")
            time.sleep(poll)
            poll = min(2 * poll, SIGNAL_POLL)

    def thaw(self) -> None:
        """Thaw every process."""
        self._write("cgroup.freeze", "0")

    def ran_out_of_memory(self) -> bool:
        """Return whether the kernel has killed a process at the memory limit."""
        with contextlib.suppress(OSError, ValueError):
            events = dict(line.split() for line in (self.folder / "memory.events").read_text().splitlines())
            return int(events.get("oom_kill", 0)) > 0
        return False

    def memory_bytes(self) -> int | None:
        """Return the memory of all processes without reclaimable page cache; None without the memory controller."""
        with contextlib.suppress(OSError, ValueError):
            pages = dict(line.split() for line in (self.folder / "memory.stat").read_text().splitlines())
            return int((self.folder / "memory.current").read_text()) - int(pages["inactive_file"])
        return None

    def cpu_seconds(self) -> float | None:
        """Return the CPU time of all processes so far; None if the kernel does not count it."""
        with contextlib.suppress(OSError, ValueError):
            times = dict(line.split() for line in (self.folder / "cpu.stat").read_text().splitlines())
            return int(times["usage_usec"]) / 1e6
        return None

    def processes(self) -> list[psutil.Process]:
        """Return the processes in the cgroup and in cgroups below it."""
        processes = []
        for file in self.folder.rglob("cgroup.procs"):
            with contextlib.suppress(OSError):
                for pid in file.read_text().split():
                    with contextlib.suppress(psutil.Error):
                        processes.append(psutil.Process(int(pid)))
        return processes

    def kill(self) -> None:
        """Send SIGKILL to all processes at once. Does nothing on a kernel before 5.14.

        Raises RuntimeCallFailed.
        """
        if (self.folder / "cgroup.kill").exists():
            self._write("cgroup.kill", "1")

    def end(self) -> None:
        """Kill every process, frozen or not, and remove the cgroup if it exists. Raises RuntimeCallFailed."""
        if self.folder.exists():
            self.thaw()
            self.kill()
            tree.end(self.processes)
            self._remove()

    def _remove(self) -> None:
        """Wait until the cgroup is empty and remove it. Raises RuntimeCallFailed after SIGNAL_TIMEOUT."""
        timeout = tree.ActiveTimeout(SIGNAL_TIMEOUT)
        while self.folder.exists():
            for folder in sorted(self.folder.rglob("*/"), reverse=True):
                with contextlib.suppress(OSError):
                    folder.rmdir()
            with contextlib.suppress(OSError):  # a killed process stays in the cgroup for a moment
                self.folder.rmdir()
                return
            if timeout.is_over():
                raise RuntimeCallFailed(f"the cgroup {self.folder} cannot be removed")
            time.sleep(SIGNAL_POLL)

    def _write(self, file: str, value: str) -> None:
        try:
            (self.folder / file).write_text(value)
        except OSError as error:
            raise RuntimeCallFailed(f"the cgroup {self.folder} refuses {file}: {error.strerror}") from error


class Cgroups:
    """The cgroups of a folder's sandboxes: `sandbox-FOLDER-ID` below one parent, both parts hashed."""

    def __init__(self, folder: Path, parent: Path | Literal["own"] | None) -> None:
        """parent: "own": this process's cgroup; None: sandboxes get no cgroup."""
        self._folder = folder
        self._parent = own() if parent == "own" else parent

    def group_of(self, folder: Path) -> Path | None:
        """Return the path of the cgroup for a sandbox's folder; None if this process cannot create one."""
        if self._parent is None or not os.access(self._parent, os.W_OK):
            return None
        return self._parent / f"sandbox-{_hashed(self._folder)}-{_hashed(folder)}"

    def confine(self, launch: Launch, folder: Path, launcher: int) -> tuple[Path | None, dict[str, str]]:
        """Create a sandbox's cgroup if possible. Return its path, and how each limit is enforced.

        The launcher is moved in and out, to test whether moving is allowed. Its command joins by itself. Limitation: a
        launcher that cannot leave is frozen with its sandbox.
        """
        wanted = {name for name in ("memory_bytes", "cpus", "processes") if getattr(launch, name)}
        limits = dict.fromkeys(wanted, "not enforced")
        if launch.memory_bytes:
            limits["memory_bytes"] = "each process"
        group, home = self.group_of(folder), own()
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
        """Remove the cgroups of sandboxes whose folder is gone."""
        if self._parent is None:
            return
        living = {self.group_of(folder) for folder in self._folder.glob("*/")}
        for group in self._parent.glob(f"sandbox-{_hashed(self._folder)}-*"):
            if group not in living:
                with contextlib.suppress(RuntimeCallFailed):
                    Cgroup(group).end()


def _hashed(path: Path) -> str:
    return hashlib.sha256(str(path).encode()).hexdigest()[:16]


@contextlib.contextmanager
def gate(folder: Path, timeout: float = LOCK_TIMEOUT) -> Iterator[None]:
    """Hold the gate between a sandbox's output and its log. Raises RuntimeCallFailed after a timeout in seconds."""
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        lock(file, fcntl.LOCK_EX, timeout)
        yield
    finally:
        os.close(file)


@dataclass(frozen=True)
class Freezer:
    """Freezes and thaws a sandbox."""

    folder: Path
    processes: Cgroup | Tree

    @property
    def is_wanted(self) -> bool:
        """Return whether the sandbox should be frozen."""
        return (self.folder / PAUSED).exists()

    def is_frozen(self) -> bool:
        return self.processes.is_frozen()

    def freeze(self) -> None:
        """Freeze every process and the log. Raises RuntimeCallFailed; then every living process continues."""
        if not self.is_wanted:  # a frozen launcher may hold the gate
            with gate(self.folder):
                (self.folder / PAUSED).touch()
        try:
            self.processes.freeze()
        except RuntimeCallFailed:
            with contextlib.suppress(RuntimeCallFailed):  # the sandbox has ended
                self.thaw()
            raise

    def thaw(self) -> None:
        """Thaw every process and the log, if the marker exists."""
        if self.is_wanted:
            try:
                self.processes.thaw()
            finally:
                (self.folder / PAUSED).unlink(missing_ok=True)


def printed(folder: Path, tail: int) -> str:
    """Return the last `tail` lines of a sandbox's log, below a line that counts the earlier ones.

    Limitation: if a launcher is killed while it drops an older log, its lines may be counted twice.
    """
    text, missing = b"", 0
    with contextlib.suppress(OSError), (folder / _LOG).open("rb") as log:
        # Read the newer log first. If it becomes the older one meanwhile, that is detected, and it is not read twice.
        text = log.read()
        with (folder / _OLDER_LOG).open("rb") as older:
            if not os.path.samestat(os.fstat(log.fileno()), os.fstat(older.fileno())):
                text = older.read() + text
        missing = _dropped(folder)
    return last_lines(text.decode(errors="replace"), tail, missing=missing)


def copy(output: int, folder: Path, log_bytes: int) -> None:
    """Append output to the log until every writer has closed it. A full log replaces the older one.

    Copies nothing while the sandbox is frozen. Limitation: output that cannot be written is lost, because a full disk
    must not block the sandbox.
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
    """Return the number of dropped lines; 0 if the file is damaged, for instance by a power cut."""
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
