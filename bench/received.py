"""What listeners of another process receive while this one appends, and how long each delivery took."""

import multiprocessing
import time
from collections.abc import Callable
from typing import Any

#: seconds after which what has not arrived counts as lost
TIMEOUT = 30.0


class Received:
    """All deliveries of one measurement: seconds from sending to receiving, and seconds in all."""

    def __init__(self, latencies: list[float], seconds: float) -> None:
        self.latencies = sorted(latencies)
        self.seconds = seconds

    def percentile(self, share: float) -> float:
        """In milliseconds."""
        return 1000 * self.latencies[min(len(self.latencies) - 1, int(share * len(self.latencies)))]


def received(listen: Callable[..., None], arguments: tuple[Any, ...], append: Callable[[], None]) -> Received:
    """Run `listen(pipe, *arguments)` in a process of its own, and `append` once it has sent that it listens.

    It then sends its latencies in seconds, or an error. Raises RuntimeError.
    """
    ours, theirs = multiprocessing.Pipe()
    listener = multiprocessing.get_context("fork").Process(target=listen, args=(theirs, *arguments), daemon=True)
    listener.start()
    theirs.close()
    try:
        ours.recv()
        start = time.monotonic()
        append()
        if not ours.poll(TIMEOUT):
            raise RuntimeError(f"the listeners did not receive everything within {TIMEOUT:g} s")
        answer = ours.recv()
    finally:
        listener.terminate()
        listener.join()
    if isinstance(answer, str):
        raise RuntimeError(answer)
    return Received(answer, time.monotonic() - start)
