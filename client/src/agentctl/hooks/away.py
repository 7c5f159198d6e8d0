"""Remembers that the server was away, so that it is told once in a session and not at each call."""

import os
import time
from contextlib import suppress
from pathlib import Path

#: Seconds for which a report is not tried again, and a hook is brief, after a server was away.
_REST = 30.0


def state(name: str) -> Path:
    """Return the path of a file of the hooks' state."""
    folder = os.environ.get("XDG_STATE_HOME")
    return Path(folder or Path.home() / ".local/state") / "agentctl" / name


def _path() -> Path:
    return state("hooks-away")


def has_told() -> bool:
    """Return whether the server was away a moment ago."""
    try:
        return time.time() - _path().stat().st_mtime < _REST
    except OSError:
        return False


def missed(session: str) -> bool:
    """Note that the server is away. Return whether that is new to a session."""
    path = _path()
    try:
        told = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        told = []
    with suppress(OSError):  # without the note it is told again
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join([*told[-99:], *([] if session in told else [session])]), encoding="utf-8")
    return session not in told


def heard() -> None:
    """Note that the server answers."""
    with suppress(OSError):
        _path().unlink()
