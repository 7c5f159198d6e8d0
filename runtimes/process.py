"""Sandboxes as processes of this machine. Linux only.

FOLDER/ID/           a sandbox's folder; `stop` keeps it, `remove` deletes it
    work/            its working directory and HOME
    work.part/       its working directory while it is filled from an archive or from another sandbox
    handle.json      the handle of its last start, with its launcher's process; written before the command runs
    ending.json      how its command ended
    unended.*        marks of launchers whose processes may not all have ended (`ends.py`)
    log, log.1, …    its output
    tmp/             temporary files of an agent without its own /tmp; created anew by each start
    project/         its view of the server's folder under Landlock; created anew by each start
    paused           exists while the sandbox is frozen or being frozen
FOLDER/.ID.shadow/   the shadow repository: records of its working directory (`shadow.py`) FOLDER/.ID.lock      held by
each caller that changes the sandbox, and by its launcher until the command runs FOLDER/.supervisors  held by every
process that has a ProcessRuntime of the folder: its supervisors

A launcher (`launch.py`) runs between the supervisor and each sandbox, so no sandbox ends and no output is lost with the
supervisor. The last one to two times `log_bytes` of output are kept. After `orphan_seconds` without a supervisor a
launcher ends its sandbox, also a paused one; the folder stays for the next supervisor.

Limits. With a cgroup v2 in which this process may create others (see `cgroup.py`) the kernel freezes a sandbox and
limits its memory, processes and cpus, as far as the cgroup has those controllers. Without a cgroup every process is
frozen by SIGSTOP. Memory limits of the spec apply to the address space of each process. Processes are limited in
bubblewrap, which counts the sandbox's user separately; cpus are not limited. The handle's `limits` tells how each limit
is enforced. `starts.py` has the default limits.

Isolation. `isolation/` isolates a sandbox from the host, as its spec says; the handle's `isolation` describes it.

Limitations. Without a cgroup a sandbox that forks continuously for seconds can outpace the freezing, and a resume also
continues processes that the sandbox itself had stopped. Without isolation a sandbox can read the files of the
supervisor's user and signal that user's processes, its launcher among them. It can outlive the launcher that it killed
if it clears its environment. Then its folder stays, and `stop`, `start` and `remove` refuse with that reason.
"""

import contextlib
import os
import re
import signal
import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import psutil

from runtimes import (
    Handle,
    Launch,
    Observation,
    ProcessState,
    ResourceUsage,
    RuntimeCallFailed,
    archive,
    cgroup,
    folders_of,
    reading,
    tree,
)
from runtimes.archive import fill
from runtimes.cgroup import Cgroup, Freezer, printed
from runtimes.ends import END_TIMEOUT, UNSHOWN, settle, supervise
from runtimes.folder import failing, lock_of, locked, remove, used
from runtimes.isolation.users import USERS
from runtimes.launch import ENDING, HANDLE, read
from runtimes.shadow import Shadow, beside, forget, held
from runtimes.starts import DEFAULT_RANGE, Starts, described
from runtimes.tree import ids_below

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))

#: States of a connection in those tables. Source: include/net/tcp_states.h
_TIME_WAIT, _LISTEN = "06", "0A"

#: The loopback as a peer: of IPv4, of IPv6, and of IPv4 in IPv6.
_LOOPBACK = ("0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F")

_PAGE_BYTES, _TICKS = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")

#: Positions in /proc/PID/stat after the name: ticks of the process and of its ended children; resident pages.
_OWN, _CHILDREN, _RESIDENT = slice(11, 13), slice(13, 15), 21

#: Ids that are valid names of a folder: neither a path nor the name of a lock.
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")


def fault(work: Path) -> str:
    """Return why a sandbox's working directory is unusable; "" if it is usable."""
    if not work.is_dir():
        return "its folder was deleted from outside. A resume starts it with an empty folder"
    if not os.access(work, os.R_OK | os.W_OK | os.X_OK):
        return "its folder is not writable. Make it readable and writable, then resume the sandbox"
    return ""


def ending(handle: Handle) -> tuple[str, bool]:
    """Return how a sandbox ended, as far as known, and whether the runtime ended it."""
    known = read(Path(handle["folder"]) / ENDING)
    if (known.get("pid"), known.get("started")) != (handle["pid"], handle["started"]):
        return "it was killed from outside", False
    if known.get("orphan_seconds"):
        return f"it had no supervisor for {known['orphan_seconds']:g} s (ORPHAN_SECONDS)", True
    if known.get("out_of_memory"):
        return "it needed more memory than it may have", False
    code = known["code"]
    if code is None:
        return "it got a signal to end", False
    return f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}", False


def are_used(ports: Collection[int]) -> bool:
    """Return whether one of the ports has a connection, or had one within a minute.

    Limitation: the kernel does not remember a connection that a client on another machine closed.
    """
    wanted = {f"{port:04X}" for port in ports}
    if not wanted:
        return False
    for table in _TABLES:
        try:
            lines = table.read_text().splitlines()[1:]
        except OSError:  # the kernel has no IPv6
            continue
        for line in lines:
            _, local, peer, state, *_ = line.split()
            address, _, peer_port = peer.partition(":")
            if state != _LISTEN and local.rpartition(":")[2] in wanted:
                return True
            if state == _TIME_WAIT and address in _LOOPBACK and peer_port in wanted:
                return True
    return False


def usage_of(handle: Handle) -> ResourceUsage:
    """Return the usage of a handle's processes. Its launcher must be alive.

    Memory is without caches that the kernel can drop. Limitation: by /proc, shared memory counts for each process.
    """
    group = Cgroup(Path(handle["cgroup"])) if handle["cgroup"] else None
    visited = are_used([port for name, port in handle["ports"].items() if name != "AGENT_SERVER"])
    memory, seconds = (group.memory_bytes(), group.cpu_seconds()) if group else (None, None)
    if memory is not None and seconds is not None:
        return ResourceUsage(memory, seconds, visited)
    tree = _of_tree(handle["pid"])
    used = tree.memory_bytes if memory is None else memory
    return ResourceUsage(used, tree.cpu_seconds if seconds is None else seconds, visited)


def _of_tree(launcher: int) -> ResourceUsage:
    """Return the usage of the processes below a launcher. Ended processes count with their time."""
    pages, ticks = 0, sum(map(int, _stat(launcher)[_CHILDREN]))
    for pid in ids_below(launcher):
        if fields := _stat(pid):
            pages += int(fields[_RESIDENT])
            ticks += sum(map(int, [*fields[_OWN], *fields[_CHILDREN]]))
    return ResourceUsage(pages * _PAGE_BYTES, ticks / _TICKS)


def _stat(pid: int) -> list[str]:
    """Return the fields of a process's state after its name, which may have any characters; empty if it has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    return []


class ProcessRuntime:
    """`runtimes.Runtime` for one folder. Several threads and processes may use a folder concurrently."""

    in_folder = True
    freezes = True

    def __init__(
        self,
        folder: Path,
        *,
        log_bytes: int = 1 << 20,
        grace: float = 5.0,
        parent_cgroup: Path | Literal["own"] | None = "own",
        ports: range = DEFAULT_RANGE,
        orphan_seconds: float = 3600.0,
        address: str = "127.0.0.1",
        private: tuple[Path, ...] = (),
        users: range = USERS,
    ) -> None:
        """grace: seconds between SIGTERM and SIGKILL. parent_cgroup: where each sandbox gets a cgroup; "own" is this
        process's, if allowed; None freezes by signals. ports: the range of sandbox ports. orphan_seconds: seconds
        without a ProcessRuntime of this folder after which a sandbox ends. address: of the host, where the ports of
        sandboxes with their own network listen. private: further files and folders of the server that no confined
        sandbox may read. users: the range of sandbox users, if the caller is root; empty: sandboxes run as the caller's
        user.
        """
        self._folder = folder.resolve()
        self._grace = grace
        self._cgroups = cgroup.Cgroups(self._folder, parent_cgroup)
        self._starts = Starts(
            cgroups=self._cgroups,
            ports=ports,
            log_bytes=log_bytes,
            grace=grace,
            orphan_seconds=orphan_seconds,
            address=address,
            private=(self._folder, *private),
            users=users,
        )
        self._supervised = supervise(self._folder)
        self._cgroups.remove_stale()

    def start(self, launch: Launch) -> Handle:
        """Start a sandbox, once per start number. Files of an earlier start stay in its working directory."""
        folder = self._folder_of(launch.sandbox_id)
        with failing(f"sandbox {launch.sandbox_id} cannot be started"), locked(lock_of(folder)) as lock:
            handle = read(folder / HANDLE)
            if handle and (launcher := tree.process_of(handle["pid"], handle["started"])):
                if handle.get("start") == launch.start:
                    return Handle(handle)
                self._end(launcher, Handle(handle))
            new = not folder.exists()
            if not _clear(folder, handle.get("cgroup")):
                raise RuntimeCallFailed(UNSHOWN.format(folder))
            try:
                return self._starts.start(launch, folder, lock)
            except BaseException:
                if _clear(folder, self._cgroups.group_of(folder)) and new:
                    remove(folder)
                raise

    def observe(self, handle: Handle) -> Observation:
        """Return the current state. Also complete an interrupted pause."""
        if wrong := fault(Path(handle["folder"]) / "work"):
            return Observation(ProcessState.BROKEN, wrong)
        if tree.process_of(handle["pid"], handle["started"]) is None:
            return Observation(ProcessState.GONE, *ending(handle))
        freezer = _freezer(handle)
        if freezer.is_wanted and not freezer.is_frozen():
            with contextlib.suppress(RuntimeCallFailed), _living(handle):
                if freezer.is_wanted:
                    freezer.freeze()
        return Observation(ProcessState.PAUSED if freezer.is_wanted else ProcessState.RUNNING)

    def pause(self, handle: Handle) -> None:
        """Freeze every process and the log: the log of a paused sandbox does not grow."""
        with failing(f"sandbox {handle['sandbox_id']} cannot be paused"), _living(handle) as freezer:
            freezer.freeze()

    def resume(self, handle: Handle) -> None:
        """Thaw every process, also one that was stopped from outside before the pause."""
        with failing(f"sandbox {handle['sandbox_id']} cannot be resumed"), _living(handle) as freezer:
            if freezer.is_wanted:
                freezer.thaw()
            else:
                tree.Tree(handle["pid"]).thaw()

    def stop(self, handle: Handle) -> None:
        """End every process. The folder stays, without the temporary files of a killed agent.

        Raises RuntimeCallFailed also without a proof that all have ended.
        """
        folder = Path(handle["folder"])
        with failing(f"sandbox {handle['sandbox_id']} cannot be stopped"), locked(lock_of(folder)):
            self._stop(folder, handle)
            with contextlib.suppress(OSError):  # the next start deletes it too, and reports why it cannot
                remove(folder / "tmp")

    def remove(self, sandbox_id: str) -> None:
        """End every process, and delete the sandbox's folder. Nothing is deleted while a process may be alive."""
        folder = self._folder_of(sandbox_id)
        with failing(f"sandbox {sandbox_id} cannot be removed"), locked(lock_of(folder)):
            self._stop(folder)
            with held(beside(folder)):
                forget(beside(folder))
                remove(folder)
            lock_of(folder).unlink()

    def _stop(self, folder: Path, *known: Handle) -> None:
        """End every process of a folder whose lock is held. Raises RuntimeCallFailed if the end is unproved.

        If the handle of the last start was never stored, the folder has a newer handle than the caller.
        """
        handles = [each for each in (*known, Handle(read(folder / HANDLE))) if each]
        for each in handles:
            if launcher := tree.process_of(each["pid"], each["started"]):
                self._end(launcher, each)
        if not _clear(folder, *(each["cgroup"] for each in handles), self._cgroups.group_of(folder)):
            raise RuntimeCallFailed(UNSHOWN.format(folder))

    def disk_bytes(self, sandbox_id: str, most: int | None = None) -> int | None:
        """Return the disk usage of the folder. Raises PartlyMeasured. Cost: one stat per file, `most` / 4096 files."""
        return used(self._folder_of(sandbox_id), most)

    def occupied_bytes(self, sandbox_id: str) -> int | None:
        """Return the bytes in use on the file system of the folder; an inode counts as one block."""
        with contextlib.suppress(OSError):
            seen = os.statvfs(self._folder_of(sandbox_id))
            return (seen.f_blocks - seen.f_bfree + seen.f_files - seen.f_ffree) * seen.f_frsize
        return None

    def usage(self, sandbox_id: str) -> ResourceUsage:
        """Return the current usage of its processes. Cost: one file per process, or two of its cgroup."""
        handle = read(self._folder_of(sandbox_id) / HANDLE)
        if not handle or tree.process_of(handle["pid"], handle["started"]) is None:
            return ResourceUsage(None, None)
        return usage_of(Handle(handle))

    def folders(self, handle: Handle) -> dict[str, str]:
        """Return the paths of the agent's folder from the start."""
        return folders_of(handle)

    def known(self) -> list[Handle]:
        """Return every sandbox with a folder here.

        A folder without a handle is left by an interrupted start or removal.
        """
        folders = [folder for folder in self._folder.glob("*/") if _ID.fullmatch(folder.name)]
        return [Handle(read(folder / HANDLE) or self._unfinished(folder)) for folder in folders]

    def logs(self, handle: Handle, tail: int) -> str:
        """Return the last lines of the sandbox's output, within the last one to two times `log_bytes`."""
        return printed(Path(handle["folder"]), tail)

    def pack(self, launch: Launch) -> Iterator[bytes]:
        """Stream the working directory as a tar. Raises RuntimeCallFailed, also within the stream."""
        return archive.pack(self._folder_of(launch.sandbox_id) / "work", launch.disk_bytes)

    def names(self, launch: Launch, folder: str) -> Iterator[bytes]:
        """Yield the relative path of every file in a folder of the agent."""
        work = self._folder_of(launch.sandbox_id) / "work"
        return reading.names(work, _below(work, launch, folder))

    def content(self, launch: Launch, folder: str, path: str, most: int) -> bytes | None:
        """Return a file in a folder of the agent; None if there is none."""
        work = self._folder_of(launch.sandbox_id) / "work"
        return reading.content(work, reading.joined(_below(work, launch, folder), path), most)

    def shadow(self, launch: Launch, folder: str) -> Shadow:
        """Return the shadow repository of a folder of the agent, beside the sandbox's own folder."""
        own = self._folder_of(launch.sandbox_id)
        return Shadow(beside(own), own / "work", _below(own / "work", launch, folder))

    def unpack(self, launch: Launch, chunks: Iterable[bytes]) -> None:
        """Fill a new working directory from a tar stream, atomically. An existing one is unchanged."""
        fill(self._folder_of(launch.sandbox_id) / "work", lambda folder: archive.unpack(folder, chunks))

    def copy(self, launch: Launch, source_id: str) -> None:
        """Fill a new working directory with another sandbox's files, atomically."""
        source = self._folder_of(source_id) / "work"
        fill(self._folder_of(launch.sandbox_id) / "work", lambda folder: archive.copy(source, folder))

    def recall(self, launch: Launch, source_id: str, folder: str, conversation: str, seq: int) -> None:
        """Fill a new working directory with another sandbox's folder at a moment, atomically."""
        shadow = self.shadow(replace(launch, sandbox_id=source_id), folder)
        fill(self._folder_of(launch.sandbox_id) / "work", lambda new: shadow.restore(conversation, seq, new))

    def _folder_of(self, sandbox_id: str) -> Path:
        if not _ID.fullmatch(sandbox_id):
            raise RuntimeCallFailed(f"{sandbox_id!r} cannot name a sandbox's folder")
        return self._folder / sandbox_id

    def _unfinished(self, folder: Path) -> dict[str, Any]:
        """Return the handle for a folder without one: that of a sandbox without a launcher."""
        nothing: dict[str, Any] = {"limits": {}, "start": 0, "pid": 0, "started": ""}
        return described(folder, {}, self._cgroups.group_of(folder)) | nothing

    def _end(self, launcher: psutil.Process, handle: Handle) -> None:
        """Send a launcher SIGTERM, so that it ends its sandbox, and wait for that.

        Raises RuntimeCallFailed if it stays alive. It is not killed, because only a living launcher can prove the
        end of the rest.
        """
        _freezer(handle).thaw()
        with contextlib.suppress(psutil.NoSuchProcess):
            launcher.terminate()
            launcher.resume()  # otherwise a stopped one would not handle it
        deadline = time.monotonic() + self._grace + END_TIMEOUT
        while tree.process_of(handle["pid"], handle["started"]):
            if time.monotonic() > deadline:
                left = [each.pid for each in tree.descendants(handle["pid"])]
                raise RuntimeCallFailed(
                    f"its launcher, process {handle['pid']}, does not end. Processes below it: {left}"
                )
            time.sleep(tree.SIGNAL_POLL)


def _below(work: Path, launch: Launch, folder: str) -> bytes:
    """Return the path of an agent's folder below the persistent one. Raises FolderNotKept."""
    cwd = work if launch.working_dir.startswith("/") else work / launch.working_dir  # as in `composed`
    return reading.below(str(work), str(cwd), folder)


def _freezer(handle: Handle) -> Freezer:
    if handle["cgroup"]:
        return Freezer(Path(handle["folder"]), cgroup.Cgroup(Path(handle["cgroup"])))
    return Freezer(Path(handle["folder"]), tree.Tree(handle["pid"], handle.get("wrappers", ())))


@contextlib.contextmanager
def _living(handle: Handle) -> Iterator[Freezer]:
    """Yield the freezer of a sandbox, with its lock held. Raises RuntimeCallFailed if the sandbox has ended."""
    with locked(lock_of(Path(handle["folder"]))):
        if tree.process_of(handle["pid"], handle["started"]) is None:
            raise RuntimeCallFailed(f"the sandbox ended: {ending(handle)[0]}")
        yield _freezer(handle)


def _clear(folder: Path, *groups: str | Path | None) -> bool:
    """End every process of a sandbox, also those that escaped from its launcher, and delete its cgroups.

    Return whether all have provably ended.
    """
    for group in groups:
        if group is not None:
            cgroup.Cgroup(Path(group)).end()
    tree.end(lambda: tree.marked(folder))
    return settle(folder)
