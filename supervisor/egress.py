"""Keeps the proxy of the way out beside the supervisor: starts it, and starts it again whenever it ends."""

import contextlib
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from core.pauses import Backoff
from runtimes.starts import EGRESS_SOCKET

log = logging.getLogger("supervisor")

#: seconds between an end and the next start: the first time, and at most
_SHORTEST_DELAY, _LONGEST_DELAY = 0.1, 2.0

#: seconds after which one that ends is started again after the shortest delay, and that one may take to end
_STEADY, _GRACE = 3.0, 2.0

#: seconds between two polls of the process
_POLL = 0.1


class WayOut:
    """The proxy of the sandboxes in a folder, for as long as this host is supervised."""

    def __init__(self, folder: Path) -> None:
        self._socket = folder.absolute() / EGRESS_SOCKET
        self._stop = threading.Event()

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Keep it while the block runs."""
        keeper = threading.Thread(target=self._keep, name="egress")
        keeper.start()
        try:
            yield
        finally:
            self._stop.set()
            keeper.join()

    def _keep(self) -> None:
        backoff = Backoff(_SHORTEST_DELAY, _LONGEST_DELAY)
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                status = self._run()
            except OSError as error:  # as when the system has no more processes
                log.warning("the way out could not be started: %s", error)
            else:
                if self._stop.is_set():
                    return
                log.warning("the way out ended with status %s, and starts again", status)
            if time.monotonic() - began >= _STEADY:
                backoff.reset()
            self._stop.wait(backoff.delay())

    def _run(self) -> int:
        """Start it, and wait for its end or for the supervisor's. Returns its exit status."""
        # Its standard input is a pipe that ends with this process, and then it ends too.
        process = subprocess.Popen(
            [sys.executable, "-m", "egress", str(self._socket)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            while process.poll() is None and not self._stop.wait(_POLL):
                pass
        finally:
            process.terminate()
            try:
                process.wait(_GRACE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            assert process.stdin is not None
            process.stdin.close()
        return process.returncode
