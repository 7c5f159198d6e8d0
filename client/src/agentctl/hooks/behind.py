"""Processes that a hook leaves behind, which the agent does not wait for."""

import os


def is_left_behind() -> bool:
    """Fork. Return whether this is the process that stays behind. Raises OSError."""
    if os.fork():
        return False
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)  # an agent waits until its hook's output is closed
    return True
