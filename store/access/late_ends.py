"""Ends of claims of Idempotency-Keys that Redis did not take at once, as during a failover: they are sent again.

Without it a repeat of such a request would wait for the lease of a claim whose request has long ended.
"""

import logging
import threading
import time
from collections import deque
from typing import Any

from store.errors import UNAVAILABLE
from store.scripts import Scripts

#: seconds between two tries
_RETRY = 0.5

#: ends that wait at most, each with a response of 8 KiB or less; beyond it the oldest are left to their leases
MOST_WAITING = 1_000


_log = logging.getLogger(__name__)


class LateEnds:
    """The ends that this process has still to send. A thread sends them, as long as there are some."""

    def __init__(self, scripts: Scripts, *, most_seconds: float) -> None:
        """most_seconds: after which an end is given up, as the lease of its claim has ended."""
        self._scripts = scripts
        self._most_seconds = most_seconds
        self._lock = threading.Lock()
        self._waiting: deque[tuple[float, str, list[Any]]] = deque(maxlen=MOST_WAITING)
        self._is_sending = False

    def add(self, root: str, args: list[Any]) -> None:
        """Send an end, as `end_idempotency_claim.lua` takes it, until Redis has taken it."""
        with self._lock:
            self._waiting.append((time.monotonic() + self._most_seconds, root, args))
            if self._is_sending:
                return
            self._is_sending = True
        threading.Thread(target=self._send, name="late ends", daemon=True).start()

    def _send(self) -> None:
        while True:
            time.sleep(_RETRY)
            with self._lock:
                due = list(self._waiting)
            sent = []
            for end in due:
                until, root, args = end
                try:
                    if time.monotonic() < until:
                        self._scripts.end_idempotency_claim([root], args)
                except UNAVAILABLE:
                    continue  # in a cluster another node may have it
                except Exception:  # no other thread goes on with the ends after this one
                    _log.exception("the end of a claim of an Idempotency-Key could not be sent")
                sent.append(end)
            with self._lock:
                for end in sent:
                    if end in self._waiting:
                        self._waiting.remove(end)
                if not self._waiting:
                    self._is_sending = False
                    return
