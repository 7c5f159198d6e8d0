"""The command `agentctl`: it begins here, where Ctrl-C ends it quietly before anything else is imported.

Limitation: for the first hundredth of a second, in which Python itself starts, Ctrl-C prints Python's traceback.
"""

# `signal` imports enum, for several milliseconds in which Ctrl-C would print a traceback.
import _signal  # type: ignore[import-not-found]
import importlib
import os
import sys

from agentctl import hooks

#: exit code after Ctrl-C, as of the command itself
_INTERRUPTED = 130


def _quit(_: int, __: object) -> None:
    os._exit(_INTERRUPTED)


def main() -> None:
    """Run the command of this process's arguments, and exit with its code."""
    before = _signal.getsignal(_signal.SIGINT)
    is_heeded = before is _signal.default_int_handler  # a shell that runs it in the background ignores Ctrl-C
    if is_heeded:
        _signal.signal(_signal.SIGINT, _quit)
    _, *words = sys.argv
    if words[:1] == ["hook"] and len(words) > 1 and words[1] in hooks.NAMES and words[2:] in ([], [hooks.GATE]):
        # An agent runs this at each call: it imports little.
        os._exit(importlib.import_module("agentctl.hooks.run").main(words[1], is_gate=bool(words[2:])))
    run = importlib.import_module("agent_server_client.cli").main
    if is_heeded:
        _signal.signal(_signal.SIGINT, before)
    try:
        run()
    finally:
        if is_heeded:
            _signal.signal(_signal.SIGINT, _quit)  # what is left to do writes nothing
