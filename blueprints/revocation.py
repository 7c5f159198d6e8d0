"""The end of what goes on for long: sockets, streams and long polls whose key is revoked or expires are ended.

A worker asks Redis about the keys of all that it serves, several times a second, in one round trip. While Redis does
not answer nothing ends, for nothing can be revoked either.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from access import Principal, is_revocable
from store.access_keys import AccessKeys
from store.errors import UNAVAILABLE

#: seconds between two checks
_POLL = 0.4

_log = logging.getLogger(__name__)


class Revocations:
    """What goes on in this worker under keys that can be revoked. The thread that checks starts with the first one."""

    def __init__(self, keys: AccessKeys) -> None:
        self._keys = keys
        self._lock = threading.Lock()
        self._ends: dict[str, dict[object, Callable[[], None]]] = {}  #: key id → what ends each
        self._thread: threading.Thread | None = None

    @contextmanager
    def ending(self, principal: Principal, end: Callable[[], None]) -> Iterator[None]:
        """Within the block `end` is called, in a thread of its own, when the principal's key opens nothing any more."""
        forget = self.watch(principal, end)
        try:
            yield
        finally:
            forget()

    def watch(self, principal: Principal, end: Callable[[], None]) -> Callable[[], None]:
        """The same for what has no block; returns what ends the watch."""
        if not is_revocable(principal):
            return lambda: None
        identity = object()
        with self._lock:
            self._ends.setdefault(principal.key_id, {})[identity] = end
            if self._thread is None:
                self._thread = threading.Thread(target=self._check, name="revocations", daemon=True)
                self._thread.start()
        return lambda: self._forget(principal.key_id, identity)

    def are_live(self, principal: Principal) -> bool:
        """Whether the principal's key still opens something. At most one round trip."""
        return not is_revocable(principal) or bool(self._keys.live([principal.key_id]))

    def _forget(self, key_id: str, identity: object) -> None:
        with self._lock:
            ends = self._ends.get(key_id, {})
            ends.pop(identity, None)
            if not ends:
                self._ends.pop(key_id, None)

    def _check(self) -> None:
        while True:
            time.sleep(_POLL)
            with self._lock:
                watched = list(self._ends)
            try:
                gone = set(watched) - self._keys.live(watched)
            except UNAVAILABLE:
                continue
            except Exception:  # no other thread restarts this one
                _log.exception("the keys of what goes on could not be checked")
                continue
            for key_id in gone:
                with self._lock:
                    ends = self._ends.pop(key_id, {})
                for end in ends.values():
                    # A client that takes nothing holds up its own end, and no other.
                    threading.Thread(target=end, daemon=True).start()
