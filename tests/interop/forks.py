"""Clients as forks of an interpreter that has loaded the SDK once: see `loaded.py`, which is its program."""

import contextlib
import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from docs.examples.openhands_agent import VENV
from tests.servers import PROJECT, running, wait_until

#: seconds in which the SDK loads on a busy machine, and in which a client that is to end does
LOAD_SECONDS, END_SECONDS = 300, 15


class Forked:
    """A client: what of `subprocess.Popen` its callers need."""

    def __init__(self, connection: socket.socket, stdin: IO[bytes], stdout: IO[bytes]) -> None:
        self.stdin, self.stdout = stdin, stdout
        self._connection = connection
        self._told = connection.makefile("rb", buffering=0)
        self.pid = int(self._told.readline())
        self.returncode: int | None = None

    def wait(self, timeout: float) -> int:
        """The exit status. Raises subprocess.TimeoutExpired."""
        if self.returncode is None:
            self._connection.settimeout(timeout)
            try:
                self.returncode = int(self._told.readline())
            except TimeoutError:
                raise subprocess.TimeoutExpired(f"client {self.pid}", timeout) from None
        return self.returncode

    def end(self) -> None:
        """Have it end, as far as it has not."""
        with contextlib.suppress(ProcessLookupError):
            if self.returncode is None:
                os.kill(self.pid, signal.SIGTERM)
        try:
            self.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


class Loaded:
    """The interpreter that has loaded the SDK, or is about to."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @contextlib.contextmanager
    def client(self, argv: list[str], env: dict[str, str], errors: IO[bytes]) -> Iterator[Forked]:
        """A client that plays a program of this folder; it ends with the block."""
        found: list[socket.socket] = []
        wait_until(lambda: not found.append(self._connected()), "the SDK is loaded", seconds=LOAD_SECONDS)
        with contextlib.ExitStack() as stack:
            connection = stack.enter_context(found.pop())
            (theirs, writing), (reading, ours) = os.pipe(), os.pipe()
            stdin, stdout = (stack.enter_context(os.fdopen(*end)) for end in ((writing, "wb"), (reading, "rb")))
            asked = json.dumps({"argv": argv, "env": env}).encode()
            socket.send_fds(connection, [asked], [theirs, ours, errors.fileno()])
            os.close(theirs)
            os.close(ours)
            client = Forked(connection, stdin, stdout)
            stack.callback(client.end)
            yield client

    def _connected(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(str(self._path))
        except OSError:
            connection.close()
            raise
        return connection


@contextlib.contextmanager
def loaded(folder: Path, env: dict[str, str]) -> Iterator[Loaded]:
    """An interpreter that loads the SDK from now on; it ends with the block."""
    path = folder / "clients.sock"
    command = [f"{VENV}/bin/python", f"{PROJECT}/tests/interop/loaded.py", str(path)]
    with (folder / "log").open("ab") as log, running(command, env=env, stdout=log, stderr=log):
        yield Loaded(path)
