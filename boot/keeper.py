"""Runs the supervisor beside the server: restarts it with backoff, and ends it with the server.

    python -m boot.keeper TALLIES

TALLIES is the descriptor of the shared memory for the supervisor's metrics (`telemetry/meter.py`). The gunicorn master
starts this process, restarts it if it is killed, and holds its standard input. When that closes, the keeper and the
supervisor end, and the supervisor of the next keeper takes over. Standard library only, as everywhere in `boot/`.
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

#: Seconds between two polls of the process.
_POLL = 0.2

#: Shortest and longest delay of a restart, in seconds.
_SHORTEST_DELAY, _LONGEST_DELAY = 0.1, 2.0

#: Lifetime in seconds after which a restart has the shortest delay.
_STEADY = 3.0

#: Grace period of a supervisor and its sandboxes, in seconds.
_GRACE = 20.0


def parent_is_there(seconds: float) -> bool:
    """Wait up to a number of seconds. Return whether standard input, the parent's pipe, is still open."""
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
    """Restart a process whenever it ends, until `goes_on` returns false; then end it.

    A process that has just ended is started once more, because only it can clean up what it left.

    process: None: it could not be started yet. name: for the log. steady: lifetime in seconds after which a restart has
    the shortest delay. grace: seconds between SIGTERM and SIGKILL. goes_on: waits up to a number of seconds.
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
            except OSError as error:  # for instance no free process; the next round retries
                say(f"{name} could not be started: {error}")
    finally:
        if process is not None:
            end(process, grace)


def end(process: subprocess.Popen[bytes], grace: float) -> None:
    """Send SIGTERM, after the grace period SIGKILL, and wait."""
    process.terminate()
    try:
        process.wait(grace)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Keeper(Child):
    """The gunicorn master's handle of the process."""

    def __init__(self, tallies: int) -> None:
        command = [sys.executable, "-m", "boot.keeper", str(tallies)]
        super().__init__("the keeper of the supervisor", command, [tallies])

    def stop(self, seconds: float | None = _GRACE + 5) -> None:
        """End the supervisor. Its sandboxes keep running unless STOP_SANDBOXES is set."""
        super().stop(seconds)


def main(tallies: int) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    command = [sys.executable, "-m", "supervisor", "--stand-by", "--tallies", str(tallies)]

    def start() -> subprocess.Popen[bytes]:
        # Keep our standard output to ourselves: its end tells the master that this process has ended.
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=sys.stderr, pass_fds=[tallies], preexec_fn=hold_sigterm
        )

    def hold_sigterm() -> None:
        """Defer SIGTERM until the supervisor is loaded, and can clean up after its predecessor."""
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    keep_running(start(), start, name="the supervisor", steady=_STEADY, grace=_GRACE)


if __name__ == "__main__":
    main(int(sys.argv[1]))
