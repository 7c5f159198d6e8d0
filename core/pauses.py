"""Pauses: the delays between retries, and the turns of greenlets that do not wait.

gevent switches where a greenlet waits. A long computation does not wait, and neither does a connection whose peer is
faster than this process: without a turn in between every other request waits for as long.
"""

import time

#: seconds for which a greenlet goes on before the others get a turn: what one of our requests takes, or two. A turn
#: costs 20 µs
_TURN = 0.0005

#: seconds for which one share goes on: its pauses are as long, and a loop's timers have a resolution of 1 ms
_SHARE_TURN = 0.005

#: seconds of a turn: the least that gevent waits for. After a `sleep(0)` its loop goes on with whatever is ready, and
#: polls the sockets only at every fiftieth
_LEAST = 1e-6

#: seconds for which another share counts as at work after it was here
_COMPANY = 0.1


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


_turned = 0.0


def take_turns() -> None:
    """Let the other greenlets of this process go on, if none was let for a while; call it between pieces of work."""
    global _turned
    if time.monotonic() - _turned > _TURN:
        time.sleep(_LEAST)
        _turned = time.monotonic()


def serve_nobody() -> None:
    """Take no turns in this process from now on: no other greenlet waits for one."""
    global _turned
    _turned = float("inf")


#: which share was here last, and when the one before was another
_latest, _shared = 0, float("-inf")

#: when a share gave the others a turn. `_turned` would hide how long they go on: their greenlets take turns besides
_paid = 0.0


class TurnShare:
    """The turns of one of those who share this process: its greenlets together get half of the time, however many.

    It gets all of it while none of the others is at work.
    """

    def __init__(self) -> None:
        self._due = 0.0  #: seconds of the monotonic clock: when its turns so far are paid for

    def take_turns(self) -> None:
        """As the function of that name; the turn is longer where greenlets of this one took others just before."""
        global _latest, _shared, _paid
        now = time.monotonic()
        if _latest != id(self):
            _latest, _shared = id(self), now if _latest else _shared
        if now - _paid > _SHARE_TURN:
            early = max(0.0, self._due - now) if now - _shared < _COMPANY else 0.0
            self._due = now + early + 2 * _SHARE_TURN
            time.sleep(max(_LEAST, early))
            _paid = time.monotonic()
