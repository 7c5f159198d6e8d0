"""Sandboxes as processes of this machine. Linux only.

FOLDER/ID/           a sandbox's folder; `stop` keeps it, `remove` removes it
    work/            its working directory and HOME
    work.part/       its working directory while it is filled from an archive or from another sandbox
    handle.json      the handle of its last start, with its launcher's process, which writes it before it
                     runs the command
    ending.json      how its command ended
    log, log.1       its output
    tmp/, project/   its temporary files and what it sees of the server's folder, where Landlock confines it; both are
                     made anew by each start
    paused           exists while the sandbox is to stand still
FOLDER/.ID.lock      held by each caller that changes the sandbox, and by its launcher until the command runs
FOLDER/.supervisors  held by every process that has a ProcessRuntime of the folder: its supervisors

A launcher (`launch.py`) of its own stands between the supervisor and each sandbox, so no sandbox ends and no
output is lost when the supervisor ends; the last one to two times `log_bytes` are kept. A launcher that finds no
supervisor for `orphan_seconds` ends its sandbox, also a paused one; the folder stays for the next supervisor.

Limits. With a cgroup v2 below which this process may make others (see `cgroup.py`) the kernel freezes a sandbox and
limits its memory, processes and cpus, as far as the cgroup has those controllers. Without one a sandbox is frozen by
SIGSTOP to every process, memory that its spec limits is limited as the address space of each process, processes are
limited in bubblewrap, where the sandbox's user is counted by itself, and cpus not at all. The handle's `limits` has
how each limit is enforced. `starts.py` has the limits of a spec that names none.

Isolation. `isolation/` keeps a sandbox away from the host, as its spec says; the handle's `isolation` says what it has.

Limitations. Without a cgroup a sandbox that forks for seconds without end can outpace the freezing, and a resume
also continues processes that the sandbox itself had stopped. Without isolation a sandbox can read the files of the
supervisor's user, signal that user's processes, its launcher among them, and escape, if it clears its environment and
leaves its session just when its launcher is killed.
"""

import contextlib
import re
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import psutil

from runtimes import Handle, Launch, Observation, RuntimeFailure, State, Usage, archive, cgroup, reading, tree
from runtimes.endings import ending, fault
from runtimes.filling import fill
from runtimes.folder import failing, lock_of, locked, remove, used
from runtimes.freezer import Freezer
from runtimes.launch import HANDLE, printed, read
from runtimes.orphans import supervise
from runtimes.ports import DEFAULT_RANGE
from runtimes.starts import Starts, described
from runtimes.usage import usage_of

#: seconds that a launcher may need beyond its grace to end everything
_END_TIMEOUT = 3.0

#: ids that may name a folder: neither a path nor the name of a lock
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")


class ProcessRuntime:
    """`runtimes.Runtime` for one folder. Any number of threads and processes may use the same folder at once."""

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
    ) -> None:
        """grace is the seconds between SIGTERM and SIGKILL. parent_cgroup: where sandboxes get a cgroup each;
        "own" is this process's, if that is allowed; None is to freeze by signals. ports: from which sandboxes get
        theirs. orphan_seconds: after which a sandbox ends when no process has a ProcessRuntime of this folder.
        address: of the host, where the ports of sandboxes with a network of their own listen. private: files and
        folders of the server beside this folder that no confined sandbox may read."""
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
        )
        self._supervised = supervise(self._folder)
        self._cgroups.remove_stale()

    def start(self, launch: Launch) -> Handle:
        """Start a sandbox, once per start number. What an earlier start left in its working directory stays."""
        folder = self._folder_of(launch.sandbox_id)
        with failing(f"sandbox {launch.sandbox_id} cannot be started"), locked(lock_of(folder)) as lock:
            handle = read(folder / HANDLE)
            if handle and (launcher := tree.found(handle["pid"], handle["started"])):
                if handle.get("start") == launch.start:
                    return Handle(handle)
                self._end(launcher, Handle(handle))
            new = not folder.exists()
            _clear(folder, handle.get("cgroup"))
            try:
                return self._starts.start(launch, folder, lock)
            except BaseException:
                _clear(folder, self._cgroups.of(folder))
                if new:
                    remove(folder)
                raise

    def observe(self, handle: Handle) -> Observation:
        """The present state. Also finishes a pause that its caller did not live to finish."""
        if wrong := fault(Path(handle["folder"]) / "work"):
            return Observation(State.BROKEN, wrong)
        if tree.found(handle["pid"], handle["started"]) is None:
            return Observation(State.GONE, *ending(handle))
        freezer = _freezer(handle)
        if freezer.is_wanted and not freezer.is_frozen():
            with contextlib.suppress(RuntimeFailure), _living(handle):
                if freezer.is_wanted:
                    freezer.freeze()
        return Observation(State.PAUSED if freezer.is_wanted else State.RUNNING)

    def pause(self, handle: Handle) -> None:
        """Freeze every process and the log: while a sandbox is paused, its log does not grow."""
        with failing(f"sandbox {handle['sandbox_id']} cannot be paused"), _living(handle) as freezer:
            freezer.freeze()

    def resume(self, handle: Handle) -> None:
        """Let every process go on, also one that was stopped from outside while the sandbox was not paused."""
        with failing(f"sandbox {handle['sandbox_id']} cannot be resumed"), _living(handle) as freezer:
            if freezer.is_wanted:
                freezer.thaw()
            else:
                tree.Tree(handle["pid"]).thaw()

    def stop(self, handle: Handle) -> None:
        """End every process; the folder stays."""
        folder = Path(handle["folder"])
        with failing(f"sandbox {handle['sandbox_id']} cannot be stopped"), locked(lock_of(folder)):
            self._stop(folder, handle)

    def remove(self, sandbox_id: str) -> None:
        """End every process and remove the sandbox's folder with its content."""
        folder = self._folder_of(sandbox_id)
        with failing(f"sandbox {sandbox_id} cannot be removed"), locked(lock_of(folder)):
            self._stop(folder)
            remove(folder)
            lock_of(folder).unlink()

    def _stop(self, folder: Path, *known: Handle) -> None:
        """End every process of a folder whose lock is held.

        If the handle of the last start was never stored, the folder has a newer handle than the caller.
        """
        handles = [each for each in (*known, Handle(read(folder / HANDLE))) if each]
        for each in handles:
            if launcher := tree.found(each["pid"], each["started"]):
                self._end(launcher, each)
        _clear(folder, *(each["cgroup"] for each in handles), self._cgroups.of(folder))

    def disk_bytes(self, sandbox_id: str) -> int | None:
        """Bytes of the folder on the disk. Cost: one look at each file."""
        return used(self._folder_of(sandbox_id))

    def usage(self, sandbox_id: str) -> Usage:
        """What its processes use now. Cost: one file per process, or two of its cgroup."""
        handle = read(self._folder_of(sandbox_id) / HANDLE)
        if not handle or tree.found(handle["pid"], handle["started"]) is None:
            return Usage(None, None)
        return usage_of(Handle(handle))

    def known(self) -> list[Handle]:
        """Every sandbox that has a folder here.

        A folder without a handle is left by a start or a removal that its caller did not live to finish.
        """
        folders = [folder for folder in self._folder.glob("*/") if _ID.fullmatch(folder.name)]
        return [Handle(read(folder / HANDLE) or self._unfinished(folder)) for folder in folders]

    def logs(self, handle: Handle, tail: int) -> str:
        """The last lines that the sandbox printed, of the last one to two times `log_bytes`."""
        return printed(Path(handle["folder"]), tail)

    def pack(self, launch: Launch) -> Iterator[bytes]:
        """The working directory as a tar stream. Raises RuntimeFailure, also within the stream."""
        return archive.pack(self._folder_of(launch.sandbox_id) / "work")

    def names(self, launch: Launch, folder: str) -> Iterator[bytes]:
        """The path of every file in a folder of the agent, from there."""
        work = self._folder_of(launch.sandbox_id) / "work"
        return reading.names(work, _below(work, launch, folder))

    def content(self, launch: Launch, folder: str, path: str, most: int) -> bytes | None:
        """A file of a folder of the agent; None if there is none."""
        work = self._folder_of(launch.sandbox_id) / "work"
        return reading.content(work, reading.joined(_below(work, launch, folder), path), most)

    def unpack(self, launch: Launch, chunks: Iterable[bytes]) -> None:
        """Fill a new working directory from a tar stream, as a whole or not at all; one that is there stays."""
        fill(self._folder_of(launch.sandbox_id) / "work", lambda folder: archive.unpack(folder, chunks))

    def copy(self, launch: Launch, source_id: str) -> None:
        """Fill a new working directory with another sandbox's files, likewise."""
        source = self._folder_of(source_id) / "work"
        fill(self._folder_of(launch.sandbox_id) / "work", lambda folder: archive.copy(source, folder))

    def _folder_of(self, sandbox_id: str) -> Path:
        if not _ID.fullmatch(sandbox_id):
            raise RuntimeFailure(f"{sandbox_id!r} cannot name a sandbox's folder")
        return self._folder / sandbox_id

    def _unfinished(self, folder: Path) -> dict[str, Any]:
        """The handle for a folder without one: that of a sandbox without a launcher."""
        nothing: dict[str, Any] = {"limits": {}, "start": 0, "pid": 0, "started": ""}
        return described(folder, {}, self._cgroups.of(folder)) | nothing

    def _end(self, launcher: psutil.Process, handle: Handle) -> None:
        """Send a launcher SIGTERM, so that it ends its sandbox; kill the launcher at the timeout."""
        _freezer(handle).thaw()
        with contextlib.suppress(psutil.Error):
            launcher.terminate()
            deadline = time.monotonic() + self._grace + _END_TIMEOUT
            while tree.found(handle["pid"], handle["started"]) and time.monotonic() < deadline:
                time.sleep(tree.SIGNAL_POLL)
            launcher.kill()


def _below(work: Path, launch: Launch, folder: str) -> bytes:
    """The path of an agent's folder below its kept one. Raises FolderNotKept."""
    cwd = work if launch.working_dir.startswith("/") else work / launch.working_dir  # as `composed` has it
    return reading.below(str(work), str(cwd), folder)


def _freezer(handle: Handle) -> Freezer:
    if handle["cgroup"]:
        return Freezer(Path(handle["folder"]), cgroup.Cgroup(Path(handle["cgroup"])))
    return Freezer(Path(handle["folder"]), tree.Tree(handle["pid"], handle.get("wrappers", ())))


@contextlib.contextmanager
def _living(handle: Handle) -> Iterator[Freezer]:
    """The freezer of a sandbox, with its lock held. Raises RuntimeFailure if the sandbox has ended."""
    with locked(lock_of(Path(handle["folder"]))):
        if tree.found(handle["pid"], handle["started"]) is None:
            raise RuntimeFailure(f"the sandbox ended: {ending(handle)[0]}")
        yield _freezer(handle)


def _clear(folder: Path, *groups: str | Path | None) -> None:
    """End every process of a sandbox, also those that escaped from its launcher, and remove its cgroups."""
    for group in groups:
        if group is not None:
            cgroup.Cgroup(Path(group)).end()
    tree.end(lambda: tree.marked(folder))
