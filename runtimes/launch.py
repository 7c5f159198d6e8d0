"""The launcher of one sandbox: a process that starts the command, keeps its output and outlives the supervisor.

    python -m runtimes.launch LOCK        the order, as JSON, on standard input

The launcher inherits the sandbox's lock as the open file LOCK and releases it after its reply: until then no process
can start the sandbox a second time, also when the supervisor has died. The launcher ignores an order that breaks off.
It also inherits the files that hold the sandbox's ports, and keeps them open until it ends.

The launcher writes its handle before it runs the command, and the ending of the command before it ends itself. In
between it waits for signals, copies output, polls for its supervisor, and carries what passes between a confined
sandbox and the host (`isolation/entrance.py`). SIGTERM, the end of the command, or the
absence of every supervisor for `orphan_seconds` makes it end all processes below it, also frozen ones. The launcher
itself is never frozen.
"""

import contextlib
import json
import os
import resource
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runtimes import RuntimeFailure, tree
from runtimes.cgroup import Cgroup, own
from runtimes.freezer import PAUSED, gate
from runtimes.isolation import BUBBLEWRAP, syscalls
from runtimes.isolation.entrance import Confinement, Entrance, entrance
from runtimes.orphans import OrphanWatch

#: the files of a sandbox's folder: its handle, its ending, its log and its older log
HANDLE, ENDING, LOG, OLDER_LOG = "handle.json", "ending.json", "log", "log.1"

#: bytes copied from the sandbox's output at once
_CHUNK = 65536

#: seconds for which a writer that is no longer ours may keep the log open
_LOG_TIMEOUT = 2.0

#: seconds between two polls of a copier whose sandbox stands still
_PAUSED_POLL = 0.1

_ORDERS_TO_END = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}


@dataclass(frozen=True)
class Order:
    """The command to run, and the handle to reply with, to which the launcher adds its own process."""

    handle: dict[str, Any]
    command: list[str]
    env: dict[str, str] = field(repr=False)  #: it has secrets
    working_dir: str
    log_bytes: int  #: of each of the two files
    confinement: Confinement
    address_space: int | None  #: bytes, of each process
    grace: float  #: seconds between SIGTERM and SIGKILL
    orphan_seconds: float  #: for which no supervisor may live

    @property
    def folder(self) -> Path:
        return Path(self.handle["folder"])

    @classmethod
    def read(cls, text: bytes) -> "Order":
        """The order of that JSON. Raises ValueError."""
        members = json.loads(text)
        return cls(**{**members, "confinement": Confinement(**members["confinement"])})

    @property
    def group(self) -> Cgroup | None:
        return Cgroup(Path(self.handle["cgroup"])) if self.handle["cgroup"] else None


def write(path: Path, value: object) -> None:
    """Write a file as JSON, all of it or nothing."""
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    unfinished.write_text(json.dumps(value))
    unfinished.replace(path)


def read(path: Path) -> dict[str, Any]:
    """The object that `write` wrote; empty if the file is missing, or broken by a crash of the machine."""
    with contextlib.suppress(OSError, ValueError):
        value: dict[str, Any] = json.loads(path.read_text())
        return value
    return {}


def printed(folder: Path, tail: int) -> str:
    """The last lines of a sandbox's log, at most `tail`; empty if there are none."""
    text = b""
    with contextlib.suppress(OSError), (folder / LOG).open("rb") as log:
        # The newer log first: if it becomes the older one meanwhile, that is detected and it is not read twice.
        text = log.read()
        with (folder / OLDER_LOG).open("rb") as older:
            if not os.path.samestat(os.fstat(log.fileno()), os.fstat(older.fileno())):
                text = older.read() + text
    lines = text.decode(errors="replace").splitlines()
    return "\n".join(lines[-tail:] if tail > 0 else [])


def main(lock: int) -> int:
    """Run one order to its end. Returns the exit status: 1 if no order came, or its command could not be run."""
    os.umask(0o077)  # the sandbox inherits it: its files are its own
    # Blocked, for all threads: `sigtimedwait` takes them one by one, and none is lost in between.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, *_ORDERS_TO_END})
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        order = Order.read(sys.stdin.buffer.read())
    except ValueError:  # the supervisor died while it wrote
        return 1
    syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
    handle = {**order.handle, "pid": os.getpid(), "started": tree.started(os.getpid())}
    folder = order.folder
    write(folder / HANDLE, handle)
    output, end_of_output = os.pipe()
    try:
        way_in = entrance(order.confinement, order.command, order.env, order.working_dir)
        command = _run(order, way_in, end_of_output)
        handle["wrappers"] = way_in.wrappers(command.pid)
        _set_apart(order, handle["wrappers"])
        write(folder / HANDLE, handle)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        (folder / HANDLE).unlink()
        reason = _printed_at_once(output) or getattr(error, "strerror", None) or str(error)
        _reply({"error": f"{order.command[0]} cannot be run: {reason}"})
        _end_all(order, None)
        return 1
    os.close(end_of_output)
    way_in.close()
    _reply({"handle": handle})
    os.close(lock)
    copier = threading.Thread(target=_copy, args=(output, folder, order.log_bytes), daemon=True)
    copier.start()
    way_in.serve()
    watch = OrphanWatch(folder.parent, order.orphan_seconds)
    ended = _wait(command.pid, watch)
    out_of_memory = order.group is not None and order.group.ran_out_of_memory()
    ended |= _end_all(order, command.pid)
    command.returncode = _code(ended.get(command.pid), order.confinement.kind)
    copier.join(_LOG_TIMEOUT)
    ending = {"code": command.returncode, "orphan_seconds": order.orphan_seconds if watch.is_orphan() else None}
    with contextlib.suppress(OSError):  # a full disk: then how it ended is not known
        identity = {"pid": handle["pid"], "started": handle["started"]}
        write(folder / ENDING, identity | ending | {"out_of_memory": out_of_memory})
    return 0


def _set_apart(order: Order, wrappers: list[int]) -> None:
    """Move what passes the command's end on out of the cgroup: frozen, it would not."""
    home = own()
    if order.group is not None and home is not None:
        for pid in wrappers:
            with contextlib.suppress(OSError):
                Cgroup(home).add(pid)


def _code(code: int | None, kind: str) -> int | None:
    """The exit code of the command, negative for a signal, which bubblewrap reports as 128 and its number."""
    return 128 - code if code is not None and kind == BUBBLEWRAP and 128 < code < 128 + signal.NSIG else code


def _printed_at_once(output: int) -> str:
    """What a process printed that has ended by now."""
    os.set_blocking(output, False)
    with contextlib.suppress(BlockingIOError):
        return os.read(output, _CHUNK).decode(errors="replace").strip()
    return ""


def _run(order: Order, way_in: Entrance, output: int) -> subprocess.Popen[bytes]:
    """Start the command. Raises OSError, ValueError or SubprocessError if it cannot be run."""
    return subprocess.Popen(
        way_in.command,
        env=way_in.env,
        cwd=way_in.folder,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
        pass_fds=way_in.files,
        preexec_fn=_preparation(os.getpid(), order, way_in),
    )


def _preparation(launcher: int, order: Order, way_in: Entrance) -> Callable[[], None]:
    group, address_space = order.group, order.address_space

    def prepare() -> None:
        if group is not None:
            group.add(0)
        signal.pthread_sigmask(signal.SIG_SETMASK, set())
        way_in.enter()
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)  # a change of user forgets an earlier one
        if os.getppid() != launcher:  # the launcher died before prctl
            os._exit(1)
        if address_space is not None:
            resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space))

    return prepare


def _reply(reply: dict[str, Any]) -> None:
    """Reply to the supervisor, if it still lives, and close the files shared with it."""
    with contextlib.suppress(BrokenPipeError):
        print(json.dumps(reply), flush=True)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    os.close(nothing)


def _wait(command: int, watch: OrphanWatch) -> dict[int, int]:
    """Wait for the command's end, a signal or the supervisor's loss. Returns the exit codes of ended processes."""
    ended: dict[int, int] = {}
    while command not in ended and not watch.is_orphan():
        received = signal.sigtimedwait({signal.SIGCHLD, *_ORDERS_TO_END}, watch.seconds_left)
        if received is not None and received.si_signo in _ORDERS_TO_END:
            break
        ended |= _reaped()
    return ended


def _end_all(order: Order, command: int | None) -> dict[int, int]:
    """End all processes below, frozen or not, and remove the cgroup. Returns the exit codes of ended processes.

    A process that survives is left to the runtime's `stop`, which can report it.
    """
    group, grace = order.group, order.grace
    # The marker goes first: `observe` must not freeze the sandbox again, and the copier may write its last output.
    (order.folder / PAUSED).unlink(missing_ok=True)
    if group is not None:
        with contextlib.suppress(RuntimeFailure):
            group.thaw()
    with contextlib.suppress(RuntimeFailure):
        if order.confinement.kind == BUBBLEWRAP and command is not None:
            # At SIGTERM bubblewrap would kill what is inside, so what is inside ends first. Its network goes last.
            wrappers = [each.pid for each in tree.family(command)[:2]]
            tree.end(lambda: tree.family(command), grace=grace, follow=wrappers)
            grace = 0
        tree.end(lambda: tree.descendants(os.getpid()), grace=grace)
    ended = _reaped()
    if group is not None and os.getpid() not in [each.pid for each in group.processes()]:
        with contextlib.suppress(RuntimeFailure):
            group.end()
    return ended


def _reaped() -> dict[int, int]:
    """Reap every child and adopted orphan that has ended; their exit codes, negative for a signal."""
    ended = {}
    with contextlib.suppress(ChildProcessError):
        while (child := os.waitpid(-1, os.WNOHANG))[0]:
            ended[child[0]] = os.waitstatus_to_exitcode(child[1])
    return ended


def _copy(output: int, folder: Path, log_bytes: int) -> None:
    """Append output to the log until every writer has closed it; a full log takes the place of the older one.

    While the sandbox stands still nothing is copied. Limitation: output that cannot be written is lost, for a full disk
    must not stop the sandbox.
    """
    while True:
        select.select([output], [], [])
        with gate(folder, float("inf")):
            is_paused = (folder / PAUSED).exists()
            if not is_paused:
                text = os.read(output, min(log_bytes, _CHUNK))
                if not text:
                    return
                with contextlib.suppress(OSError):
                    _append(text, folder, log_bytes)
        if is_paused:
            time.sleep(_PAUSED_POLL)


def _append(text: bytes, folder: Path, log_bytes: int) -> None:
    log = folder / LOG
    if log.exists() and log.stat().st_size + len(text) > log_bytes:
        log.replace(folder / OLDER_LOG)
    with log.open("ab", buffering=0) as file:
        file.write(text)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
