"""Keeps a supervisor beside the server: restarts it with backoff, and ends it with the server.

    python -m boot.keeper TALLIES

TALLIES is the descriptor of the memory that the supervisor counts in (see `boot/tallies.py`).
The gunicorn master starts this process and holds its standard input, whose end, in whatever way, ends this process.
Only the standard library stands here: the gunicorn master must not load what gevent has to patch in the workers.
"""

import contextlib
import signal
import subprocess
import sys
from pathlib import Path

from boot.restarts import keep_running

#: seconds after which a supervisor that ends is restarted after the shortest delay
_STEADY = 3.0

#: seconds that a supervisor may take to end, its sandboxes included
_GRACE = 20.0


class Keeper:
    """The gunicorn master's hold on the process."""

    def __init__(self, tallies: int) -> None:
        # A session of its own: Ctrl-C reaches the workers, whose requests still need the supervisor.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "boot.keeper", str(tallies)],
            stdin=subprocess.PIPE,
            pass_fds=[tallies],
            start_new_session=True,
            cwd=Path(__file__).parent.parent,
        )

    def stop(self) -> None:
        """End the supervisor; its sandboxes go on unless STOP_SANDBOXES is set."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_GRACE + 5)


def main(tallies: int) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    command = [sys.executable, "-m", "supervisor", "--stand-by", "--tallies", str(tallies)]

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[tallies])

    keep_running(start(), start, name="the supervisor", steady=_STEADY, grace=_GRACE)


if __name__ == "__main__":
    main(int(sys.argv[1]))
