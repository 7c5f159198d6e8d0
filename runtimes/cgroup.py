"""A cgroup (v2) for a sandbox: the kernel itself freezes, limits and counts all that is in it, whatever it forks.

Freezing needs a cgroup below which we may make another; limits also need the controllers memory, pids and cpu
there, which the kernel refuses to a cgroup that holds processes of its own, except the root.
"""

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from runtimes import Launch, RuntimeFailure
from runtimes.tree import LOOK, PATIENCE

#: microseconds: the period of which a sandbox gets `cpus` times as much
_CPU_PERIOD = 100_000

#: tasks that a launcher itself takes: its process has a second thread
_LAUNCHER_TASKS = 2


def own() -> Path | None:
    """The cgroup that this process is in; None where cgroup v2 is not mounted, or not as this process sees it."""
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
        """Make one, or take the empty one that is there. Raises OSError where that is not allowed."""
        folder = parent / name
        folder.mkdir(exist_ok=True)
        (folder / "cgroup.freeze").write_text("0")
        return cls(folder)

    def limit(self, launch: Launch) -> set[str]:
        """Set a launch's limits; the names of those that hold now. The launcher's own memory counts."""
        wanted = {
            "memory_bytes": ("memory", "memory.max", launch.memory_bytes),
            "processes": ("pids", "pids.max", launch.processes and launch.processes + _LAUNCHER_TASKS),
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
        (self.folder / "cgroup.procs").write_text(str(pid))

    @property
    def meant_to_freeze(self) -> bool:
        with contextlib.suppress(OSError):
            return (self.folder / "cgroup.freeze").read_text().strip() == "1"
        return False

    def is_frozen(self) -> bool:
        with contextlib.suppress(OSError):
            return "frozen 1" in (self.folder / "cgroup.events").read_text()
        return False

    def freeze(self) -> None:
        """Freeze every process; returns when the kernel says so. Raises RuntimeFailure; then everything goes on."""
        self._write("cgroup.freeze", "1")
        deadline = time.monotonic() + PATIENCE
        while not self.is_frozen():
            if time.monotonic() > deadline:
                self.thaw()
                raise RuntimeFailure("a process of the sandbox would not freeze")
            time.sleep(LOOK)

    def thaw(self) -> None:
        """Let every process go on."""
        self._write("cgroup.freeze", "0")

    def processes(self) -> list[psutil.Process]:
        """All that is in it and in cgroups that the sandbox made below it."""
        processes = []
        for file in self.folder.rglob("cgroup.procs"):
            with contextlib.suppress(OSError):
                for pid in file.read_text().split():
                    with contextlib.suppress(psutil.Error):
                        processes.append(psutil.Process(int(pid)))
        return processes

    def kill(self) -> None:
        """SIGKILL to everything in it, at once; nothing where the kernel (before 5.14) cannot."""
        if (self.folder / "cgroup.kill").exists():
            self._write("cgroup.kill", "1")

    def remove(self) -> None:
        """Remove it, once it is empty. Raises RuntimeFailure if it does not become so."""
        deadline = time.monotonic() + PATIENCE
        while self.folder.exists():
            for folder in sorted(self.folder.rglob("*/"), reverse=True):
                with contextlib.suppress(OSError):
                    folder.rmdir()
            with contextlib.suppress(OSError):  # a process that was killed leaves it a moment later
                self.folder.rmdir()
                return
            if time.monotonic() > deadline:
                raise RuntimeFailure(f"the cgroup {self.folder} cannot be removed")
            time.sleep(LOOK)

    def _write(self, file: str, value: str) -> None:
        try:
            (self.folder / file).write_text(value)
        except OSError as error:
            raise RuntimeFailure(f"the cgroup {self.folder} refuses {file}: {error.strerror}") from error
