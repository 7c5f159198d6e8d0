"""Reads a shell's output until the shell ends, and then drains the pipes of its background processes.

A command ends with its shell. A background process still holds the pipe, and SIGPIPE would kill it without a reader.
"""

import array
import fcntl
import os
import select
import signal
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

_PIECE = 1 << 16  #: size of one read, in bytes
#: Seconds of silence after which an ended shell counts as ended, and the maximum for background jobs that never pause.
_SILENCE, _LINGER = 0.2, 0.5
#: Maximum number of drained pipes. Seconds between two reads of them, which slows down a flood.
MOST_LEFT, _REST = 256, 0.05
Pipe = IO[bytes]


def pieces(has_ended: Callable[[], bool], pipes: list[Pipe], deadline: float) -> Iterator[tuple[Pipe, bytes] | None]:
    """Yield a shell's output: b"" at the end of a pipe, None if nothing came. Consumes the pipes."""
    is_open, since = list(pipes), 0.0
    left = dict[Pipe, int]()  # unread bytes of each pipe when the shell ended
    try:
        while is_open:
            # Check for the end before the pipes, so that output between the two checks is not lost.
            if not left and has_ended():
                left, since = {pipe: unread(pipe.fileno()) for pipe in is_open}, time.monotonic()
            if not left and time.monotonic() > deadline:
                break
            ready, _, _ = select.select(is_open, [], [], _SILENCE)
            for pipe in ready:
                part = os.read(pipe.fileno(), _PIECE)
                left = {one: size - len(part) * (one is pipe) for one, size in left.items()}
                if not part:
                    is_open.remove(pipe)
                yield pipe, part
            if not ready:
                yield None
            if left and (not ready or (max(left.values()) <= 0 and time.monotonic() - since > _LINGER)):
                break
    finally:
        for pipe in pipes:
            if pipe in is_open:
                _left.read_on(pipe)
            pipe.close()


def unread(file: int) -> int:
    number = array.array("i", [0])
    fcntl.ioctl(file, termios.FIONREAD, number)
    return number[0]


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a shell and all that it started. Does nothing after its end."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def end_marked(variable: str) -> None:
    """Kill all processes that started with a variable, NAME=VALUE, in their environment."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if variable.encode() in (process / "environ").read_bytes().split(b"\0"):
                os.kill(int(process.name), signal.SIGKILL)


def code_of(process: subprocess.Popen[bytes], deadline: float) -> tuple[int, bool]:
    """Return the exit code of a shell, and whether it was killed at the deadline."""
    try:
        return process.wait(max(deadline - time.monotonic(), _SILENCE)), False
    except subprocess.TimeoutExpired:
        kill(process)
        code = process.wait()
        return code, code == -signal.SIGKILL  # otherwise it ended by itself just then


class _Left:
    """The pipes of background processes. One thread reads them all."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._poll: select.epoll | None = None
        self._files = set[int]()

    def read_on(self, pipe: Pipe) -> None:
        """Drain a pipe until its end. Above MOST_LEFT the pipe is closed, which ends its writer."""
        with self._lock:
            if len(self._files) >= MOST_LEFT:
                return
            if self._poll is None:
                self._poll = select.epoll()
                threading.Thread(target=self._read, args=(self._poll,), daemon=True).start()
            file = os.dup(pipe.fileno())
            self._files.add(file)
            self._poll.register(file, select.EPOLLIN)

    def _read(self, poll: select.epoll) -> None:
        while True:
            for file, _ in poll.poll():
                if not os.read(file, _PIECE):
                    with self._lock:
                        poll.unregister(file)
                        self._files.discard(file)
                        os.close(file)
            time.sleep(_REST)


_left = _Left()
