"""How a process learns that the one which started it has ended, however that came about: its standard input ends."""

import os
import select


def parent_is_there(seconds: float) -> bool:
    """Whether standard input, a pipe that the parent holds, is still open after waiting that long."""
    readable, _, _ = select.select([0], [], [], seconds)
    return not readable or bool(os.read(0, 1))
