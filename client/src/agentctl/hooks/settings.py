"""The person's settings of hooks: which server, with which key, and how patient a hook is."""

import json
import os
import stat
from pathlib import Path
from typing import Any

#: Seconds for which a hook that runs before the agent's own question waits for the inbox.
PATIENCE = 30.0


class BadSettings(Exception):
    """The settings cannot be used; the message says what to do."""


def path() -> Path:
    """Return the path of the settings, which nobody else may read."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "agentctl/hooks.json"


def read() -> dict[str, Any]:
    """Return the settings; empty where there are none. Raises BadSettings."""
    place = path()
    try:
        with place.open(encoding="utf-8") as file:
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
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = place.with_name(f"{place.name}.{os.getpid()}")
    draft.touch(mode=0o600)
    draft.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
    draft.replace(place)
