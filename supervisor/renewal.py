"""A lease that is renewed while its work goes on."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from store.errors import UNAVAILABLE


@contextmanager
def renewed(renew: Callable[[], bool], seconds: float) -> Iterator[None]:
    """Renew a lease of so many seconds until the block ends, or until the lease is another driver's."""
    done = threading.Event()

    def go_on() -> None:
        is_ours = True
        while is_ours and not done.wait(seconds / 3):
            with suppress(*UNAVAILABLE):
                is_ours = renew()

    thread = threading.Thread(target=go_on, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
