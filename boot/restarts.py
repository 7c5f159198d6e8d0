"""The loop that keeps a process running: restarts it with backoff, and ends it when our own parent has ended."""

import subprocess
import time
from collections.abc import Callable

from boot.backoff import Backoff
from boot.json_lines import say
from boot.lifeline import parent_is_there

#: seconds between two polls of the process
_POLL = 0.2

#: seconds between the end of the process and its restart: the first time, and at most
_SHORTEST_DELAY, _LONGEST_DELAY = 0.1, 2.0


def keep_running(
    process: subprocess.Popen[bytes],
    start: Callable[[], subprocess.Popen[bytes]],
    *,
    name: str,
    steady: float,
    grace: float,
) -> None:
    """Restart a process whenever it ends, until standard input does; then end it.

    name: for the log. steady: seconds; a process that lived for so long is restarted after the shortest delay.
    grace: seconds between SIGTERM and SIGKILL at the end.
    """
    backoff, began = Backoff(_SHORTEST_DELAY, _LONGEST_DELAY), time.monotonic()
    try:
        while parent_is_there(_POLL):
            if process.poll() is None:
                continue
            if time.monotonic() - began >= steady:
                backoff.reset()
            delay = backoff.delay()
            say(f"{name} ended with status {process.returncode}: restart in {delay:g} s")
            if not parent_is_there(delay):
                return
            began = time.monotonic()
            try:
                process = start()
            except OSError as error:  # as when the system has no more processes; the next round retries
                say(f"{name} could not be started: {error}")
    finally:
        end(process, grace)


def end(process: subprocess.Popen[bytes], grace: float) -> None:
    """SIGTERM, SIGKILL after so many seconds, and wait."""
    process.terminate()
    try:
        process.wait(grace)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
