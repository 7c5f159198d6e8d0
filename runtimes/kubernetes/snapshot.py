"""What a call found some seconds ago, for many threads of which one asks: the supervisor looks at every sandbox."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from runtimes import RuntimeFailure

Found = TypeVar("Found")


class Snapshot(Generic[Found]):
    """The result of one call, used again for a time; so is its failure. Any number of threads may use it."""

    def __init__(self, ask: Callable[[], Found], seconds: float, clock: Callable[[], float]) -> None:
        """seconds: for which a result is used again. clock: seconds."""
        self._ask = ask
        self._seconds = seconds
        self._clock = clock
        self._asking = threading.Lock()
        self._until = float("-inf")
        self._found: Found | RuntimeFailure

    def value(self) -> Found:
        """Raises RuntimeFailure, as the call did."""
        with self._asking:
            if self._clock() >= self._until:
                try:
                    self._found = self._ask()
                except RuntimeFailure as error:
                    self._found = error
                self._until = self._clock() + self._seconds
            found = self._found
        if isinstance(found, RuntimeFailure):
            raise RuntimeFailure(str(found)) from found
        return found
