"""The person's settings of hooks: which server, with which key, and how patient a hook is."""

import json
import os
import stat
from typing import Any

#: Seconds for which a hook that runs before the agent's own question waits for the inbox.
PATIENCE = 30.0


class BadSettings(Exception):
    """The settings cannot be used; the message says what to do."""


def path() -> str:
    """Return the path of the settings, which nobody else may read."""
    folder = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return os.path.join(folder, "agentctl", "hooks.json")


def read() -> dict[str, Any]:
    """Return the settings; empty where there are none. Raises BadSettings."""
    place = path()
    try:
        with open(place, encoding="utf-8") as file:
            found = json.load(file)
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise BadSettings(f"{place} cannot be read: {error}") from None
    if not isinstance(found, dict):
        raise BadSettings(f"{place} should be a JSON object")
    if not isinstance(found.get("patience", PATIENCE), (int, float)):
        raise BadSettings(f"{place}: `patience` should be a number of seconds")
    if found.get("key") and mode & 0o077:
        raise BadSettings(f"Others can read the key in {place}: chmod 600 {place}")
    return found


def write(values: dict[str, Any]) -> None:
    """Replace the settings. Only this user may read them."""
    place = path()
    os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)
    draft = f"{place}.{os.getpid()}"
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        json.dump(values, file, indent=2)
        file.write("\n")
    os.replace(draft, place)
