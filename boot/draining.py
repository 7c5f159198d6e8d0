"""The drain of a server that must stop: a balancer takes it out before its listener closes.

gunicorn closes the listener as soon as SIGTERM arrives, and the system resets the connections that wait to be accepted
there. So for DRAIN_SECONDS after SIGTERM the server serves as before, while `/ready` responds 503 and each response
ends its connection. Then it stops, as it does at once upon a second SIGTERM.
Only the standard library stands here, as everywhere in `boot/` but in `boot/worker.py`.
"""

import mmap
import signal
from typing import Any

#: one byte that the master writes and that the workers, which it forks, read
_is_draining = mmap.mmap(-1, 1)


def is_draining() -> bool:
    """Whether the server of this process is about to stop, and serves until then."""
    return _is_draining[0] == 1


def drain_before_stopping(arbiter: Any, seconds: int) -> None:
    """In gunicorn's master: drain for so many seconds between the first SIGTERM and the stop. 0: stop at once."""
    stop = arbiter.handle_term

    def handle_term() -> None:
        if not seconds or is_draining():
            stop()  # raises StopIteration, as gunicorn's main loop expects
        _is_draining[0] = 1
        # A timer of the system: the master goes on to look after its workers, and a fork inherits no thread.
        signal.setitimer(signal.ITIMER_REAL, seconds)
        arbiter.log.info("Draining: /ready responds 503, and in %s s this server stops", seconds)

    arbiter.handle_term, arbiter.handle_alrm = handle_term, stop
    signal.signal(signal.SIGALRM, arbiter.signal)
