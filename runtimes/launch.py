"""The launcher of one sandbox: a process that starts the command, keeps its output and outlives the supervisor.

    python -m runtimes.launch LOCK        the order, as JSON, on standard input

The launcher inherits the sandbox's lock as the open file LOCK and releases it after its reply. Until then no process
can start the sandbox a second time, even if the supervisor has died. The launcher ignores a truncated order. It also
inherits the files that hold the sandbox's ports, and keeps them open until it ends.

The launcher writes its handle before it runs the command, and the command's ending before it ends itself. In between it
waits for signals, copies output, polls for its supervisor, and carries connections between a confined sandbox and the
host (`isolation/entrance.py`). SIGTERM, the end of the command, or `orphan_seconds` without a supervisor make it end
all processes below it, also frozen ones. It ends after the last of them (`ends.py`). The launcher itself is never
frozen.
"""

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from runtimes import RuntimeCallFailed, tree
from runtimes.cgroup import CHUNK, PAUSED, Cgroup, copy, own
from runtimes.ends import OrphanWatch, kill_all_below, own_mark, reap
from runtimes.folder import opened_below
from runtimes.isolation import BUBBLEWRAP, LANDLOCK, NONE, kernel
from runtimes.isolation.entrance import Confinement, Entrance, entrance

#: Files in a sandbox's folder: its handle and its ending.
HANDLE, ENDING = "handle.json", "ending.json"

#: Seconds in which a writer that is no longer the launcher's may keep the log open.
_LOG_TIMEOUT = 2.0

_ORDERS_TO_END = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}


@dataclass(frozen=True)
class Order:
    """The command to run, and the handle to reply with, to which the launcher adds its own process."""

    handle: dict[str, Any]
    command: list[str]
    env: dict[str, str] = field(repr=False)  #: has secrets
    working_dir: str
    log_bytes: int  #: size of each of the two files
    confinement: Confinement
    address_space: int | None  #: bytes, per process
    file_bytes: int | None  #: maximum size of a file, holes included
    grace: float  #: seconds between SIGTERM and SIGKILL
    orphan_seconds: float  #: maximum time without a supervisor

    @property
    def folder(self) -> Path:
        return Path(self.handle["folder"])

    @classmethod
    def read(cls, text: bytes) -> "Order":
        """Parse an order. Raises ValueError."""
        members = json.loads(text)
        return cls(**{**members, "confinement": Confinement(**members["confinement"])})

    @property
    def group(self) -> Cgroup | None:
        return Cgroup(Path(self.handle["cgroup"])) if self.handle["cgroup"] else None

    @property
    def holding_cgroup(self) -> str | None:
        """Return the cgroup if the sandbox cannot leave it. An unconfined sandbox could write where root may."""
        is_held = self.confinement.kind != NONE or self.confinement.user is not None
        return self.handle["cgroup"] if is_held else None


def write(path: Path, value: object) -> None:
    """Write a file as JSON, atomically."""
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    unfinished.write_text(json.dumps(value))
    unfinished.replace(path)


def read(path: Path) -> dict[str, Any]:
    """Read an object that `write` wrote; {} if the file is missing, or damaged by a crash of the machine."""
    with contextlib.suppress(OSError, ValueError):
        value: dict[str, Any] = json.loads(path.read_text())
        return value
    return {}


def main(lock: int) -> int:
    """Run one order to its end. Return the exit status: 1 without an order, or if its command could not run."""
    os.umask(0o077)  # inherited: the sandbox's files are private
    # Blocked for all threads: `sigtimedwait` takes them one by one, and none is lost in between.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, *_ORDERS_TO_END})
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        order = Order.read(sys.stdin.buffer.read())
    except ValueError:  # the supervisor died during the write
        return 1
    kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
    folder, mark = order.folder, own_mark(order.holding_cgroup, order.confinement.user)
    handle = {**order.handle, "pid": mark.pid, "started": mark.started}
    is_scoped = order.confinement.kind == LANDLOCK and kernel.scope_signals()
    output, end_of_output = os.pipe()
    try:
        mark.write(folder)
        write(folder / HANDLE, handle)
        way_in = entrance(order.confinement, order.command, order.env, order.working_dir)
        command = _run(order, way_in, end_of_output)
        handle["wrappers"] = way_in.wrappers(command.pid)
        for init in handle["wrappers"][1:]:
            mark = replace(mark, init=init, init_started=tree.started(init))
            mark.write(folder)
        _set_apart(order, handle["wrappers"])
        write(folder / HANDLE, handle)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        (folder / HANDLE).unlink(missing_ok=True)
        _end_all(order, None, is_scoped=is_scoped)
        mark.remove(folder)
        reason = _printed_at_once(output) or getattr(error, "strerror", None) or error
        _reply({"error": f"{order.command[0]} cannot be run: {reason}"})
        return 1
    os.close(end_of_output)
    way_in.close()
    _reply({"handle": handle})
    os.close(lock)
    copier = threading.Thread(target=copy, args=(output, folder, order.log_bytes), daemon=True)
    copier.start()
    way_in.serve()
    watch = OrphanWatch(folder.parent, order.orphan_seconds)
    ended = _wait(command.pid, watch)
    out_of_memory = order.group is not None and order.group.ran_out_of_memory()
    command.returncode = _code((ended | _end_all(order, command.pid, is_scoped=is_scoped)).get(command.pid), order)
    mark.remove(folder)
    copier.join(_LOG_TIMEOUT)
    orphan_seconds = order.orphan_seconds if watch.is_orphan() else None
    ending = {"code": command.returncode, "orphan_seconds": orphan_seconds, "out_of_memory": out_of_memory}
    with contextlib.suppress(OSError):  # on a full disk the ending stays unknown
        write(folder / ENDING, {"pid": mark.pid, "started": mark.started, **ending})
    return 0


def _set_apart(order: Order, wrappers: list[int]) -> None:
    """Move processes that report the command's end out of the cgroup: frozen, they could not report."""
    home = own()
    if order.group is not None and home is not None:
        for pid in wrappers:
            with contextlib.suppress(OSError):
                Cgroup(home).add(pid)


def _code(code: int | None, order: Order) -> int | None:
    """Return the exit code of the command, negative for a signal. bubblewrap reports 128 plus the signal's number."""
    is_signal = order.confinement.kind == BUBBLEWRAP and code is not None and 128 < code < 128 + signal.NSIG
    return 128 - code if code is not None and is_signal else code


def _printed_at_once(output: int) -> str:
    os.set_blocking(output, False)
    with contextlib.suppress(BlockingIOError):
        return os.read(output, CHUNK).decode(errors="replace").strip()
    return ""


def _run(order: Order, way_in: Entrance, output: int) -> subprocess.Popen[bytes]:
    """Start the command. Raises OSError, ValueError or SubprocessError if it cannot run."""
    is_inside = order.confinement.kind == BUBBLEWRAP  # bubblewrap goes there itself, as the sandbox's user
    directory = opened_below("/", "/") if is_inside else opened_below(order.folder / "work", order.working_dir)
    try:
        return subprocess.Popen(
            way_in.command,
            env=way_in.env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            pass_fds=way_in.files,
            preexec_fn=_preparation(os.getpid(), order, way_in, directory),
        )
    finally:
        os.close(directory)


def _preparation(launcher: int, order: Order, way_in: Entrance, directory: int) -> Callable[[], None]:
    """Return the setup that the command's process runs. directory: the open working folder, whose path may change."""
    group, limits = order.group, {resource.RLIMIT_AS: order.address_space, resource.RLIMIT_FSIZE: order.file_bytes}

    def prepare() -> None:
        if group is not None:
            group.add(0)
        signal.pthread_sigmask(signal.SIG_SETMASK, set())
        os.fchdir(directory)
        way_in.enter()
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)  # a change of user resets an earlier setting
        if os.getppid() != launcher:  # the launcher died before prctl
            os._exit(1)
        for limit, most in limits.items():
            if most is not None:
                resource.setrlimit(limit, (most, most))

    return prepare


def _reply(reply: dict[str, Any]) -> None:
    """Reply to the supervisor, if it is still alive, and close the files shared with it."""
    with contextlib.suppress(BrokenPipeError):
        print(json.dumps(reply), flush=True)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    os.close(nothing)


def _wait(command: int, watch: OrphanWatch) -> dict[int, int]:
    """Wait for the command's end, a signal or the supervisor's loss. Return the exit codes of ended processes."""
    ended: dict[int, int] = {}
    while command not in ended and not watch.is_orphan():
        received = signal.sigtimedwait({signal.SIGCHLD, *_ORDERS_TO_END}, watch.seconds_left)
        if received is not None and received.si_signo in _ORDERS_TO_END:
            break
        ended |= reap()[0]
    return ended


def _end_all(order: Order, command: int | None, *, is_scoped: bool) -> dict[int, int]:
    """End all processes below, frozen or not, and delete the cgroup. Return the exit codes of ended processes.

    Returns when all have ended, so a launcher lives as long as any process of its sandbox.
    """
    group = order.group
    # Delete the marker first: `observe` must not freeze the sandbox again, and the copier may write its last output.
    (order.folder / PAUSED).unlink(missing_ok=True)
    if group is not None:
        with contextlib.suppress(RuntimeCallFailed):
            group.thaw()
    if order.confinement.kind == BUBBLEWRAP and command is not None:
        # SIGTERM would make bubblewrap kill the processes inside, so they end first. Its network ends last.
        wrappers = [each.pid for each in tree.family(command)[:2]]
        tree.ask_to_end(lambda: tree.family(command), order.grace, follow=wrappers)
    else:
        tree.ask_to_end(lambda: tree.descendants(os.getpid()), order.grace)
    if group is not None and os.getpid() in [each.pid for each in group.processes()]:
        group = None  # it would end this process too; the runtime's `stop` does it
    ended = kill_all_below(group, order.confinement.user, is_scoped=is_scoped)
    if group is not None:
        with contextlib.suppress(RuntimeCallFailed):
            group.end()
    return ended


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
