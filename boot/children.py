"""Children of the gunicorn master that it restarts: the embedded store and the keeper.

gunicorn reaps every child, so a pipe tells when a child ends. Standard library only, as everywhere in `boot/`.
"""

import contextlib
import json
import os
import select
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from core.pauses import Backoff
from telemetry.logs import say

#: Maximum number of restarts of a child within a number of seconds. One more ends the server.
_MOST_RESTARTS, _WITHIN = 6, 60.0

#: Shortest and longest delay of a restart, in seconds. The last of _MOST_RESTARTS comes half a minute after the first.
_SHORTEST_DELAY, _LONGEST_DELAY = 0.5, 16.0


class TooManyRestarts(Exception):
    """A child ended too often. The message is for the operator."""


class Child:
    """A child process of the master.

    It ends when its standard input closes, that is when the master ends for any reason. Its standard output is a pipe
    that no other process has, so that its end is the end of the child. The child may print one line of JSON, whose
    `error` says why it ends.
    """

    def __init__(self, name: str, command: Sequence[str], pass_fds: Sequence[int] = ()) -> None:
        """name: for the log. Raises OSError."""
        self.command = [*command]  #: for the next start
        self._name, self._pass_fds = name, pass_fds
        self._backoff = Backoff(_SHORTEST_DELAY, _LONGEST_DELAY)
        self._restarted: list[float] = []
        self._due: float | None = None  #: time of the next restart
        self._start()

    def _start(self) -> None:
        # In its own session: Ctrl-C must not end it before the workers, which need it to finish their requests.
        self._process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            pass_fds=self._pass_fds,
            start_new_session=True,
            cwd=Path(__file__).parent.parent,
        )
        self._printed = b""

    def report(self) -> dict[str, Any]:
        """Wait for the line that the child prints; empty if it ends first."""
        assert self._process.stdout is not None
        return _read(self._process.stdout.readline())

    def look(self) -> None:
        """Restart the child after a delay if it has ended. Does not block. Raises TooManyRestarts."""
        if not self._has_ended():
            return
        now = time.monotonic()
        if self._due is None:
            self._due = now + self._delay(now)
        if now < self._due:
            return
        self._due = None
        self._restarted.append(now)
        ended = self._process
        try:
            self._start()
        except OSError as error:  # for instance no free process; the next look retries
            say(f"{self._name} could not be started: {error}")
        else:
            _forget(ended)

    def _delay(self, now: float) -> float:
        """Return the seconds until the restart of a child that has just ended. Raises TooManyRestarts."""
        self._restarted = [at for at in self._restarted if now - at < _WITHIN]
        error = _read(self._printed).get("error")
        reason = f": {error}" if error else ""
        if len(self._restarted) >= _MOST_RESTARTS:
            raise TooManyRestarts(
                f"{self._name} has been restarted {_MOST_RESTARTS} times within {_WITHIN:g} s, and has ended again"
                f"{reason or '. The lines of the log above say more'}"
            )
        if not self._restarted:
            self._backoff.reset()
        delay = self._backoff.delay()
        say(f"{self._name} has ended{reason or ' unexpectedly'}. Restart in {delay:g} s")
        return delay

    def _has_ended(self) -> bool:
        assert self._process.stdout is not None
        while select.select([self._process.stdout], [], [], 0)[0]:
            printed = os.read(self._process.stdout.fileno(), 1 << 16)
            if not printed:
                return True
            self._printed += printed
        return False

    def stop(self, seconds: float | None = None) -> None:
        """End the child, and wait up to a number of seconds."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        _forget(self._process)


def _forget(process: subprocess.Popen[bytes]) -> None:
    """Close our ends of its pipes, and reap it if gunicorn has not."""
    process.poll()
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        pipe.close()


def _read(line: bytes) -> dict[str, Any]:
    """Parse the line of JSON that a child printed; empty if it is missing or incomplete."""
    try:
        found: dict[str, Any] = json.loads(line)
    except ValueError:
        return {}
    return found
