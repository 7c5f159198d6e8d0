"""Keeps a supervisor beside the server: restarts it with backoff, and ends it with the server.

    python -m boot.keeper TALLIES

TALLIES is the descriptor of the memory that the supervisor counts in (see `telemetry/meter.py`).
The gunicorn master starts this process, again if it is killed, and holds its standard input, whose end, in whatever
way, ends this process: the supervisor ends too, and the one of the next keeper takes over.
Only the standard library stands here: the gunicorn master must not load what gevent has to patch in the workers.
"""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable

from boot.children import Child
from core.pauses import Backoff
from telemetry.logs import say

#: seconds between two polls of the process
_POLL = 0.2

#: seconds between the end of the process and its restart: the first time, and at most
_SHORTEST_DELAY, _LONGEST_DELAY = 0.1, 2.0

#: seconds after which a supervisor that ends is restarted after the shortest delay
_STEADY = 3.0

#: seconds that a supervisor may take to end, its sandboxes included
_GRACE = 20.0


def parent_is_there(seconds: float) -> bool:
    """Wait up to so many seconds; whether standard input, a pipe that the parent holds, is still open."""
    readable, _, _ = select.select([0], [], [], seconds)
    return not readable or bool(os.read(0, 1))


def keep_running(
    process: subprocess.Popen[bytes] | None,
    start: Callable[[], subprocess.Popen[bytes]],
    *,
    name: str,
    steady: float,
    grace: float,
    goes_on: Callable[[float], bool] = parent_is_there,
) -> None:
    """Restart a process whenever it ends, as long as `goes_on` says so; then end it.

    One that has ended just then is started once more: what it left may be its own to end.
    process: None: it could not be started yet. name: for the log. steady: seconds; a process that lived for so long is
    restarted after the shortest delay. grace: seconds between SIGTERM and SIGKILL at the end. goes_on: waits up to so
    many seconds.
    """
    backoff, began, is_kept = Backoff(_SHORTEST_DELAY, _LONGEST_DELAY), time.monotonic(), True
    try:
        while is_kept:
            is_kept = goes_on(_POLL)
            if process is not None and process.poll() is None:
                continue
            if time.monotonic() - began >= steady:
                backoff.reset()
            delay = backoff.delay()
            if process is not None:
                say(f"{name} ended with status {process.returncode}: restart in {delay:g} s")
            is_kept = goes_on(delay)
            began = time.monotonic()
            try:
                process = start()
            except OSError as error:  # as when the system has no more processes; the next round retries
                say(f"{name} could not be started: {error}")
    finally:
        if process is not None:
            end(process, grace)


def end(process: subprocess.Popen[bytes], grace: float) -> None:
    """SIGTERM, SIGKILL after so many seconds, and wait."""
    process.terminate()
    try:
        process.wait(grace)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Keeper(Child):
    """The gunicorn master's hold on the process."""

    def __init__(self, tallies: int) -> None:
        command = [sys.executable, "-m", "boot.keeper", str(tallies)]
        super().__init__("the keeper of the supervisor", command, [tallies])

    def stop(self, seconds: float | None = _GRACE + 5) -> None:
        """End the supervisor; its sandboxes go on unless STOP_SANDBOXES is set."""
        super().stop(seconds)


def main(tallies: int) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    command = [sys.executable, "-m", "supervisor", "--stand-by", "--tallies", str(tallies)]

    def start() -> subprocess.Popen[bytes]:
        # Our standard output is ours alone: its end tells the master that this process has ended.
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=sys.stderr, pass_fds=[tallies], preexec_fn=hold_sigterm
        )

    def hold_sigterm() -> None:
        """Until the supervisor is loaded and can end what the one before it left."""
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    keep_running(start(), start, name="the supervisor", steady=_STEADY, grace=_GRACE)


if __name__ == "__main__":
    main(int(sys.argv[1]))
