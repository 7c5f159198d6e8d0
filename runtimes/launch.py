"""The launcher of one sandbox: a process that starts the command, keeps its output and outlives the supervisor.

    python -m runtimes.launch LOCK        the order, as JSON, on standard input

It inherits the sandbox's lock as the open file LOCK and gives it up when it has answered: until then nobody can
start the sandbox a second time, also when the supervisor has died. An order that breaks off is not obeyed.
It writes who it is before it runs the command, and how the command ended before it ends itself. In between it waits
for signals and copies output, nothing else: SIGTERM, or the end of the command, ends all that runs below it.
"""

import contextlib
import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runtimes import RuntimeFailure, tree

#: the files of a sandbox's folder: its handle, how it ended, what it printed last and before
HANDLE, ENDING, LOG, OLDER_LOG = "handle.json", "ending.json", "log", "log.1"

#: bytes copied from the sandbox's output at once
_CHUNK = 65536

#: seconds for which a writer that is no longer ours may keep the log open
_LOG_PATIENCE = 2.0

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36

_ORDERS_TO_END = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}


@dataclass(frozen=True)
class Order:
    """What to run, and the handle to answer with when its own process is added."""

    handle: dict[str, Any]
    command: list[str]
    env: dict[str, str]
    working_dir: str
    log_bytes: int  #: of each of the two files
    address_space: int | None  #: bytes, of each process
    grace: float  #: seconds between SIGTERM and SIGKILL


def write(path: Path, value: object) -> None:
    """Write a file as JSON, all of it or nothing."""
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    unfinished.write_text(json.dumps(value))
    unfinished.replace(path)


def read(path: Path) -> dict[str, Any]:
    """What `write` wrote; empty if there is nothing, or only what a crash of the machine left of it."""
    with contextlib.suppress(OSError, ValueError):
        value: dict[str, Any] = json.loads(path.read_text())
        return value
    return {}


def main(lock: int) -> int:
    """Run one order to its end. Returns the exit status: 1 if there was none, or it could not be obeyed."""
    # Blocked, for all threads: `sigwait` takes them one by one, and none is lost between two looks.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, *_ORDERS_TO_END})
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        order = Order(**json.loads(sys.stdin.buffer.read()))
    except ValueError:  # the supervisor died while it wrote
        return 1
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    handle = {**order.handle, "pid": os.getpid(), "started": tree.started(os.getpid())}
    folder = Path(order.handle["folder"])
    write(folder / HANDLE, handle)
    output, end_of_output = os.pipe()
    try:
        command = _run(order, end_of_output)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        (folder / HANDLE).unlink()
        _answer({"error": f"{order.command[0]} cannot be run: {getattr(error, 'strerror', None) or error}"})
        return 1
    os.close(end_of_output)
    _answer({"handle": handle})
    os.close(lock)
    copier = threading.Thread(target=_copy, args=(output, folder, order.log_bytes), daemon=True)
    copier.start()
    code = _outlive(command, order.grace)
    copier.join(_LOG_PATIENCE)
    write(folder / ENDING, {"pid": handle["pid"], "started": handle["started"], "code": code})
    return 0


def _run(order: Order, output: int) -> subprocess.Popen[bytes]:
    """Start the command. Raises OSError, ValueError or SubprocessError if it cannot be run."""
    return subprocess.Popen(
        order.command,
        env=order.env,
        cwd=order.working_dir,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
        preexec_fn=_preparation(os.getpid(), order.address_space),
    )


def _preparation(launcher: int, address_space: int | None) -> Callable[[], None]:
    def prepare() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, set())
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != launcher:  # it died before it could be asked for that
            os._exit(1)
        if address_space is not None:
            resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space))

    return prepare


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _answer(answer: dict[str, Any]) -> None:
    """Tell the supervisor, if it still lives, and let go of what is shared with it."""
    with contextlib.suppress(BrokenPipeError):
        print(json.dumps(answer), flush=True)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    os.close(nothing)


def _outlive(command: subprocess.Popen[bytes], grace: float) -> int | None:
    """Wait for the end of the command or the order to end it, then end what runs below; the command's exit code."""
    ended: dict[int, int] = {}
    while command.pid not in ended and signal.sigwait({signal.SIGCHLD, *_ORDERS_TO_END}) not in _ORDERS_TO_END:
        ended |= _reaped()
    with contextlib.suppress(RuntimeFailure):  # whoever stops the sandbox looks again, and can say so
        tree.end(lambda: tree.descendants(os.getpid()), grace=grace)
    ended |= _reaped()
    command.returncode = ended.get(command.pid)
    return command.returncode


def _reaped() -> dict[int, int]:
    """Take leave of every child and adopted orphan that has ended; their exit codes, negative for a signal."""
    ended = {}
    with contextlib.suppress(ChildProcessError):
        while (child := os.waitpid(-1, os.WNOHANG))[0]:
            ended[child[0]] = os.waitstatus_to_exitcode(child[1])
    return ended


def _copy(output: int, folder: Path, log_bytes: int) -> None:
    """Append output to the log until every writer has closed it; a full log takes the place of the older one.

    What cannot be written is lost: a full disk must not stop the sandbox.
    """
    log = folder / LOG
    while text := os.read(output, min(log_bytes, _CHUNK)):
        with contextlib.suppress(OSError):
            if log.exists() and log.stat().st_size + len(text) > log_bytes:
                log.replace(folder / OLDER_LOG)
            with log.open("ab", buffering=0) as file:
                file.write(text)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
