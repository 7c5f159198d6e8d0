"""A program in a terminal of its own, as a person uses it: what it prints, and keys that are pressed."""

import contextlib
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from fcntl import ioctl

import pytest

from tests.servers import PROJECT, TIMEOUT

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]")


def _as_from_a_shell() -> None:
    """The terminal is the program's, and Ctrl-C ends it, also where these tests run in the background of a shell."""
    ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class ClientTerminal:
    """agentctl with some words, in a pseudo-terminal."""

    def __init__(self, *words: str, columns: int = 100, **environment: str) -> None:
        self._side, other = pty.openpty()
        ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        path = {"PYTHONPATH": str(PROJECT / "client/src"), "TERM": "xterm", "NO_COLOR": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "agentctl", *words],
            stdin=other,
            stdout=other,
            stderr=other,
            env={**os.environ, **path, **environment},
            start_new_session=True,
            preexec_fn=_as_from_a_shell,
        )
        os.close(other)
        self._raw, self._seen = b"", 0

    @property
    def raw(self) -> str:
        """Everything that it has printed, with the codes for the terminal."""
        return self._raw.decode(errors="replace")

    @property
    def shown(self) -> str:
        """Everything that it has printed."""
        return _ESCAPES.sub("", self.raw).replace("\r", "")

    def wait_for(self, words: str) -> None:
        """Wait until it prints words, after those of the last call."""
        deadline = time.monotonic() + TIMEOUT
        while (place := self.shown.find(words, self._seen)) < 0:
            if not self._read(deadline):
                pytest.fail(f"{words!r} was not shown:\n{self.shown}")
        self._seen = place + len(words)

    def press(self, keys: str) -> None:
        os.write(self._side, keys.encode())

    def end(self) -> int:
        """Wait for the end of the program; its exit code."""
        deadline = time.monotonic() + TIMEOUT
        while self._read(deadline):
            pass
        return self._process.wait(TIMEOUT)

    def _read(self, deadline: float) -> bool:
        if not select.select([self._side], [], [], max(0.0, deadline - time.monotonic()))[0]:
            return False
        try:
            piece = os.read(self._side, 1 << 16)
        except OSError:  # the program has ended
            return False
        self._raw += piece
        return bool(piece)

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(TIMEOUT)
        os.close(self._side)


@contextlib.contextmanager
def terminal(*words: str, columns: int = 100, **environment: str) -> Iterator[ClientTerminal]:
    """A terminal whose program ends with the block."""
    opened = ClientTerminal(*words, columns=columns, **environment)
    try:
        yield opened
    finally:
        opened.close()
