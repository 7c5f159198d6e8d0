"""What goes on for long: sockets, streams and long polls. Each key may have so many; they end when the key does.

A worker asks Redis about the keys of all that it serves, several times a second, in one round trip. While Redis does
not answer nothing ends, for nothing can be revoked either.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from flask import request

from access import Principal, is_revocable
from store.access.access_keys import AccessKeys
from store.access.quotas import Quota
from store.errors import UNAVAILABLE

#: seconds between two checks
_POLL = 0.4

_log = logging.getLogger(__name__)


class Following:
    """What goes on in this worker. The thread that checks keys starts with the first key that can be revoked."""

    def __init__(self, keys: AccessKeys, quota: Quota) -> None:
        """quota: of what one key may have at once, and without a key one address."""
        self._keys = keys
        self._quota = quota
        self._lock = threading.Lock()
        self._ends: dict[str, dict[object, Callable[[], None]]] = {}  #: key id → what ends each
        self._thread: threading.Thread | None = None

    @contextmanager
    def going_on(self, principal: Principal, end: Callable[[], None]) -> Iterator[None]:
        """Within the block the present request counts, and `end` is called, in a thread of its own, when the key of its
        principal opens nothing any more. Raises TooManyFollowersOfKey."""
        done = self.begin(principal, end)
        try:
            yield
        finally:
            done()

    def begin(self, principal: Principal, end: Callable[[], None]) -> Callable[[], None]:
        """The same for what has no block; returns what must be called once at its end."""
        holder, identity = principal.key_id or f"address {request.remote_addr}", object()
        self._quota.take(holder)
        if is_revocable(principal):
            with self._lock:
                self._ends.setdefault(principal.key_id, {})[identity] = end
                if self._thread is None:
                    self._thread = threading.Thread(target=self._check, name="keys", daemon=True)
                    self._thread.start()

        def done() -> None:
            self._quota.give_back(holder)
            self._forget(principal.key_id, identity)

        return done

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
