"""The delays between retries: each twice the one before, up to a bound."""


class Backoff:
    """The delays of one thing that is retried. Times are in seconds."""

    def __init__(self, shortest: float, longest: float) -> None:
        self._shortest, self._longest = shortest, longest
        self._next = shortest

    def delay(self) -> float:
        """The delay before the next retry."""
        delay, self._next = self._next, min(2 * self._next, self._longest)
        return delay

    def reset(self) -> None:
        """Begin with the shortest delay again, after a success."""
        self._next = self._shortest
