"""Delays between retries, and CPU fairness between greenlets.

gevent switches only when a greenlet waits. A long computation never waits, nor does a connection whose peer is faster
than this process. Without explicit yields, every other request would wait for them.
"""

import time

#: Seconds for which a greenlet runs before it yields: about one or two requests. A yield costs 20 µs.
_TURN = 0.0005

#: Seconds for which one tenant runs. Its pauses are as long, and the loop's timers have a resolution of 1 ms.
_SHARE_TURN = 0.005

#: Seconds of a yield: the shortest sleep that polls the sockets. After `sleep(0)` gevent's loop continues with whatever
#: is ready, and polls the sockets only every fiftieth time.
_LEAST = 1e-6

#: Seconds for which a tenant counts as active after its last turn.
_COMPANY = 0.1


class Backoff:
    """The delays between the retries of one operation, in seconds."""

    def __init__(self, shortest: float, longest: float) -> None:
        self._shortest, self._longest = shortest, longest
        self._next = shortest

    def delay(self) -> float:
        """Return the delay before the next retry."""
        delay, self._next = self._next, min(2 * self._next, self._longest)
        return delay

    def reset(self) -> None:
        """Start again with the shortest delay, after a success."""
        self._next = self._shortest


_turned = 0.0


def take_turns() -> None:
    """Yield to the other greenlets if none has run for a while. Call it between pieces of work."""
    global _turned
    if time.monotonic() - _turned > _TURN:
        time.sleep(_LEAST)
        _turned = time.monotonic()


def serve_nobody() -> None:
    """Stop yielding in this process, which has no other greenlets."""
    global _turned
    _turned = float("inf")


#: The tenant that ran last, and since when.
_latest, _shared = 0, float("-inf")

#: When a tenant last yielded. `_turned` would hide how long they run, because their greenlets also yield on their own.
_paid = 0.0


class TurnShare:
    """CPU fairness between the tenants of a process: the greenlets of one tenant together get half of the time.

    A tenant gets all of it while no other is active.
    """

    def __init__(self) -> None:
        self._due = 0.0  #: seconds of the monotonic clock: when its turns so far are paid for

    def take_turns(self) -> None:
        """Like the function `take_turns`, with a longer yield if this tenant's greenlets have just run."""
        global _latest, _shared, _paid
        now = time.monotonic()
        if _latest != id(self):
            _latest, _shared = id(self), now if _latest else _shared
        if now - _paid > _SHARE_TURN:
            early = max(0.0, self._due - now) if now - _shared < _COMPANY else 0.0
            self._due = now + early + 2 * _SHARE_TURN
            time.sleep(max(_LEAST, early))
            _paid = time.monotonic()
