"""What one holder may have open at once in this process: the followers of a key, the silent sockets of an address."""

import threading
from collections import Counter

from store.errors import StoreError


class Quota:
    """A bound for each holder. No Redis: a process counts its own."""

    def __init__(self, most: int, error: type["QuotaExceeded"]) -> None:
        self._most = most
        self._error = error
        self._lock = threading.Lock()
        self._taken: Counter[str] = Counter()

    def take(self, holder: str) -> None:
        """Count one more of a holder, until `give_back`. Raises the quota's error."""
        with self._lock:
            if self._taken[holder] >= self._most:
                raise self._error(self._most)
            self._taken[holder] += 1

    def give_back(self, holder: str) -> None:
        """Count one less of a holder that has taken one."""
        with self._lock:
            self._taken[holder] -= 1
            if self._taken[holder] <= 0:
                del self._taken[holder]


class QuotaExceeded(StoreError):
    """A holder has as many open as the settings allow."""

    def __init__(self, most: int) -> None:
        super().__init__(self.words.format(most=most))

    words = ""


class TooManyFollowersOfKey(QuotaExceeded):
    """One key has as many sockets, streams and long polls here as the settings allow."""

    words = "At most {most} connections with one key may follow conversations here (MAX_FOLLOWERS_PER_KEY)"


class TooManySilentSockets(QuotaExceeded):
    """One address has as many sockets here that have shown no key yet as the settings allow."""

    words = "At most {most} sockets of one address may wait here to show their key (MAX_SILENT_SOCKETS)"
