"""How a process sandbox ended, and whether its files can be used."""

import os
import signal
from pathlib import Path

from runtimes import Handle
from runtimes.launch import ENDING, read


def fault(work: Path) -> str:
    """Why a sandbox's working directory cannot be used; empty if it can."""
    if not work.is_dir():
        return "its folder was deleted from outside: a resume starts it with an empty one"
    if not os.access(work, os.R_OK | os.W_OK | os.X_OK):
        return "its folder cannot be written: make it writable, then resume it"
    return ""


def ending(handle: Handle) -> tuple[str, bool]:
    """How a sandbox ended, as far as that is known, and whether the runtime ended it."""
    known = read(Path(handle["folder"]) / ENDING)
    if (known.get("pid"), known.get("started")) != (handle["pid"], handle["started"]):
        return "it was killed from outside", False
    if known.get("orphan_seconds"):
        return f"its supervisor was gone for {known['orphan_seconds']:g} s (ORPHAN_SECONDS)", True
    if known.get("out_of_memory"):
        return "it needed more memory than it may have", False
    code = known["code"]
    if code is None:
        return "it was sent a signal to end", False
    return f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}", False
