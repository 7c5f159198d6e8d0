"""Which server, and with which key: the environment, or a profile of a file."""

import os
import re
import stat
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from agent_server_client.visible import beginning, in_line


class BadProfile(Exception):
    """The file of profiles cannot be used; the message says what to do."""


class ServerAndKey(NamedTuple):
    """A server and a key; each may be empty."""

    url: str = ""
    key: str = ""


class Profile(NamedTuple):
    """A profile as it is listed: without its key, and without the password of its URL."""

    name: str
    url: str
    has_key: bool
    is_used: bool  #: whether a command without --profile talks to it


def file_of(environment: Mapping[str, str]) -> Path:
    """The file of profiles."""
    folder = environment.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(folder) / "agentctl/config.toml"


def target(profile: str = "", environment: Mapping[str, str] = os.environ) -> ServerAndKey:
    """The server to talk to.

    Without a named profile AGENT_SERVER_URL and AGENT_SERVER_KEY come first, then the profile `default`. The key of a
    profile is never sent to the server of AGENT_SERVER_URL. Raises BadProfile.
    """
    url, key = environment.get("AGENT_SERVER_URL", ""), environment.get("AGENT_SERVER_KEY", "")
    if url and not profile:
        return ServerAndKey(_checked(url, "AGENT_SERVER_URL"), key)
    path = file_of(environment)
    if not path.exists():
        if profile:
            raise BadProfile(f"There is no profile {profile}: {path} does not exist")
        return ServerAndKey(url, key)
    tables = _read(path)
    found = tables.get(profile or "default", {} if not profile else None)
    if not isinstance(found, dict):
        choice = _choice([name for name, table in tables.items() if isinstance(table, dict)])
        more = f". {choice}" if choice else ""
        raise BadProfile(f"{path} has no profile {profile}: add a table [{profile}] with `url` and `key`{more}")
    values = {name: found.get(name, "") for name in ("url", "key")}
    for name, value in values.items():
        if not isinstance(value, str):
            raise BadProfile(f"{path}: `{name}` of the profile should be a text")
    if values["key"] and stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise BadProfile(f"Others can read the key in {path}: chmod 600 {path}")
    return ServerAndKey(_checked(values["url"], f"`url` in {path}"), values["key"] if profile else key or values["key"])


def listed(profile: str = "", environment: Mapping[str, str] = os.environ) -> list[Profile]:
    """The profiles of the file, in its order. profile: the one that is named. Raises BadProfile."""
    path = file_of(environment)
    used = profile or ("" if environment.get("AGENT_SERVER_URL") else "default")
    tables = {name: table for name, table in (_read(path) if path.exists() else {}).items() if isinstance(table, dict)}
    return [
        Profile(name, without_password(str(table.get("url", ""))), bool(table.get("key")), name == used)
        for name, table in tables.items()
    ]


def unchosen(profile: str = "", environment: Mapping[str, str] = os.environ) -> str:
    """How to choose one of the profiles where nothing names a server; empty where something does, or there is none."""
    if profile or environment.get("AGENT_SERVER_URL"):
        return ""
    try:
        found = listed(profile, environment)
    except BadProfile:  # it is told where the file is used
        return ""
    return "" if any(one.is_used for one in found) else _choice([one.name for one in found])


def _choice(names: Sequence[str]) -> str:
    """The sentence that names profiles; empty without one."""
    shown = ", ".join(in_line(name) for name in names)
    return f"Your profiles: {shown}. Choose one by --profile NAME or AGENTCTL_PROFILE" if names else ""


def without_password(url: str) -> str:
    """A URL as it is shown."""
    return re.sub(r"(://[^/:]*):[^/]*@", r"\1:**********@", url)


def are_private(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether nobody else may read the file of profiles, or there is none."""
    path = file_of(environment)
    return not path.exists() or not stat.S_IMODE(path.stat().st_mode) & 0o077


def _checked(url: str, name: str) -> str:
    """The URL of a server, or "" for the default. Raises BadProfile."""
    if url and not url.startswith(("http://", "https://")):
        raise BadProfile(f"{name} should begin with http:// or https://, not {beginning(url, 80)!r}")
    return url


def _read(path: Path) -> dict[str, object]:
    try:
        return tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise BadProfile(f"{path}: {error}") from None
