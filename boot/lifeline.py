"""How a process learns that its parent has ended, in whatever way: standard input, a pipe from the parent, ends."""

import os
import select


def parent_is_there(seconds: float) -> bool:
    """Wait up to so many seconds; whether standard input, a pipe that the parent holds, is still open."""
    readable, _, _ = select.select([0], [], [], seconds)
    return not readable or bool(os.read(0, 1))
