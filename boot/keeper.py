"""Keeps a supervisor running beside the server: starts it, starts it anew when it dies, ends it with the server.

    python -m boot.keeper

The gunicorn master starts this process and holds its standard input; its end, however it came, is this one's too.
Only the standard library stands here: the gunicorn master must not load what gevent has to patch in the workers.
"""

import contextlib
import signal
import subprocess
import sys
from pathlib import Path

from boot.lifeline import parent_is_there

#: seconds between two looks at the supervisor, and before one that died is started anew
_LOOK = 0.2

#: seconds that a supervisor may take to end what it is at
_PATIENCE = 20.0


class Keeper:
    """The gunicorn master's hold on the process."""

    def __init__(self) -> None:
        # A session of its own: Ctrl-C reaches the workers, whose requests still need the supervisor.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "boot.keeper"],
            stdin=subprocess.PIPE,
            start_new_session=True,
            cwd=Path(__file__).parent.parent,
        )

    def stop(self) -> None:
        """End the supervisor; its sandboxes go on unless STOP_SANDBOXES is set."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_PATIENCE + 5)


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    process = _start()
    try:
        while parent_is_there(_LOOK):
            if process.poll() is not None:
                process = _start()
    finally:
        process.terminate()
        try:
            process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()


def _start() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "supervisor", "--stand-by"], stdin=subprocess.PIPE)


if __name__ == "__main__":
    main()
