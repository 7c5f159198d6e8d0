"""The tool `terminal`: commands, each in a shell of its own, one at a time."""

import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from agents.reference.events import Event

#: seconds that a command may take, and bytes at the end of its output that it reports
COMMAND_SECONDS, MOST_OUTPUT = 600, 100_000

#: the exit code that shells give a command that cannot be executed
NOT_EXECUTED = 126

#: seconds without output after which the end of a command counts, while processes that it left hold its output open
_SILENCE = 0.2


class Terminal:
    """The commands of one conversation. `kill` may be called by any thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._killed = False

    def start(self, command: str, secrets: Mapping[str, str]) -> Event | None:
        """Start a command. Returns an observation if it cannot be executed."""
        self._killed = False
        try:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", command],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**os.environ, **secrets},
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            return seen(command, f"The command cannot be executed: {error}", NOT_EXECUTED)
        return None

    def finish(self, action: Event) -> Event | None:
        """Wait for the command to end, at most the seconds that the action or the tool allows; None if it was killed.

        Limitation: a process that the command leaves behind loses its output, unless that goes to a file.
        """
        process = self._process
        assert process is not None
        assert process.stdout is not None
        seconds = min(action.get("timeout") or COMMAND_SECONDS, COMMAND_SECONDS)
        deadline, output = time.monotonic() + seconds, bytearray()
        with process.stdout as pipe:
            while True:
                if select.select([pipe], [], [], _SILENCE)[0]:
                    if not (part := os.read(pipe.fileno(), 1 << 16)):
                        break
                    output += part
                    del output[:-MOST_OUTPUT]
                elif process.poll() is not None:
                    break
                if time.monotonic() > deadline:
                    _kill(process)
                    output += f"\nnot done within {seconds} s".encode()
                    break
        code = self._code(process, deadline)
        self._process = None
        if self._killed and code == -signal.SIGKILL:
            return None
        return seen(action["command"], bytes(output[-MOST_OUTPUT:]).decode(errors="replace"), code)

    def kill(self) -> None:
        """End the present command."""
        if process := self._process:
            self._killed = True
            _kill(process)

    def _code(self, process: subprocess.Popen[bytes], deadline: float) -> int:
        """The exit code, also of a command that has closed its output and works on."""
        try:
            return process.wait(max(deadline - time.monotonic(), 1))
        except subprocess.TimeoutExpired:
            _kill(process)
            return process.wait()


def seen(command: str, output: str, code: int) -> Event:
    content = [{"type": "text", "text": output}]
    return {"content": content, "is_error": code != 0, "exit_code": code, "command": command}


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
