"""Remembers that the server was away, so that it is told once in a session and not at each call."""

import os
import time

#: Seconds for which a report is not tried again, and a hook is brief, after a server was away.
_REST = 30.0


def _path() -> str:
    folder = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return os.path.join(folder, "agentctl", "hooks-away")


def has_told() -> bool:
    """Return whether the server was away a moment ago."""
    try:
        return time.time() - os.stat(_path()).st_mtime < _REST
    except OSError:
        return False


def missed(session: str) -> bool:
    """Note that the server is away. Return whether that is new to a session."""
    path = _path()
    try:
        with open(path, encoding="utf-8") as file:
            told = file.read().splitlines()
    except (OSError, ValueError):
        told = []
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join([*told[-99:], *([] if session in told else [session])]))
    except OSError:
        pass  # it is told again
    return session not in told


def heard() -> None:
    """Note that the server answers."""
    try:
        os.unlink(_path())
    except OSError:
        pass
