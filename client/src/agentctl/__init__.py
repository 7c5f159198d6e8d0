"""The command `agentctl`: it begins here, where Ctrl-C ends it quietly before anything else is imported."""

import os
import signal
from types import FrameType

#: exit code after Ctrl-C, as of the command itself
_INTERRUPTED = 130


def _quit(_: int, __: FrameType | None) -> None:
    os._exit(_INTERRUPTED)


def main() -> int:
    """Run the command of this process's arguments, and return its exit code."""
    before = signal.getsignal(signal.SIGINT)
    is_heeded = before is signal.default_int_handler  # a shell that runs it in the background ignores Ctrl-C
    if is_heeded:
        signal.signal(signal.SIGINT, _quit)
    from agent_server_client.cli import main as run

    if is_heeded:
        signal.signal(signal.SIGINT, before)
    try:
        return run()
    finally:
        if is_heeded:
            signal.signal(signal.SIGINT, _quit)  # what is left to do writes nothing
