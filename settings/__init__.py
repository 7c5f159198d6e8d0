"""Describes, checks and reads settings from the environment. `config.py` has the settings themselves."""

import math
import multiprocessing
import os
import re
from collections.abc import Callable
from dataclasses import Field, field, fields
from typing import Any


class ConfigError(ValueError):
    """Raised for an invalid setting. The message names the setting and its allowed values."""


def setting(
    default: Any,
    help: str,
    *,
    secret: bool = False,
    names: str | None = None,
    choices: tuple[str, ...] = (),
    least: float | None = None,
    most: float | None = None,
    is_limit: bool = False,
) -> Any:
    """Return a field of the settings. names: its variables, if it is not the field's name in capitals."""
    metadata = {
        "help": help,
        "names": names,
        "choices": choices,
        "least": least,
        "most": most,
        "is_limit": is_limit,
    }
    return field(default=default, repr=not secret, metadata=metadata)


def limit(default: Any, help: str, *, least: float | None = None, most: float | None = None) -> Any:
    """Return a setting for a limit whose default suits most servers. docs/limits.md lists it, not docs/settings.md."""
    return setting(default, help, is_limit=True, least=least, most=most)


def check_bounds(config: Any) -> None:
    """Raise ConfigError for the first setting that is out of bounds or not among its choices."""
    for one in fields(config):
        if (choices := one.metadata["choices"]) and getattr(config, one.name) not in choices:
            words = " or ".join([", ".join(choices[:-1]), choices[-1]])
            raise ConfigError(f"{one.name.upper()} must be {words}, not {getattr(config, one.name)!r}")
        value, least, most = (getattr(config, one.name), *map(one.metadata.get, ("least", "most")))
        if not (least is None or value >= least) or not (most is None or value <= most):
            raise ConfigError(f"{one.name.upper()} must be {allowed(one)}, not {value}")


def allowed(setting: "Field[Any]") -> str:
    """Return the allowed range of a setting; empty without a range."""
    least, most = setting.metadata["least"], setting.metadata["most"]
    return "" if least is None else f"at least {least}" if most is None else f"from {least} to {most}"


def check_each(name: str, values: tuple[str, ...], read: Callable[[str], Any], words: str) -> None:
    """Raise ConfigError for the first value that `read` refuses by None or a ValueError."""
    for value in values:
        try:
            known = read(value)
        except ValueError:
            known = None
        if known is None:
            raise ConfigError(f"{name} must be {words}, not {value!r}")


def worker_processes(web_concurrency: int) -> int:
    """Return the number of worker processes for WEB_CONCURRENCY; 0 is one per core."""
    return web_concurrency or multiprocessing.cpu_count()


def check_rate(name: str, value: str) -> None:
    """Raise ConfigError unless a value is a rate limit."""
    if not re.fullmatch(r"none|[1-9][0-9]{0,8}/(second|minute|hour|day)", value):
        form = "NUMBER/second, NUMBER/minute, NUMBER/hour, NUMBER/day or none"
        raise ConfigError(f"{name} must be {form}, not {value!r}")


def from_variables(cls: type[Any]) -> dict[str, Any]:
    """Return the fields that the environment sets, each by its name in capitals. Raises ConfigError.

    An empty variable is equivalent to an unset one.
    """
    values: dict[str, Any] = {}
    for one in fields(cls):
        name = one.name.upper()
        if not one.metadata["names"] and (given := variable(name)):
            read, kind = _READERS[type(one.default)]
            try:
                values[one.name] = read(given)
            except ValueError:
                raise ConfigError(f"{name} must be {kind}, not {given!r}") from None
    return values


def _number(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(text)
    return number


#: Type of a setting's default → conversion of its variable, and its description.
_READERS: dict[type, tuple[Callable[[str], Any], str]] = {
    str: (str, "text"),
    int: (int, "a whole number"),
    float: (_number, "a number"),
    tuple: (lambda text: tuple(part.strip() for part in text.split(",") if part.strip()), "texts"),
}


def variable(name: str) -> str:
    """Return a variable of the environment; empty if it is unset."""
    return os.environ.get(name, "")


def read_ports(name: str, text: str) -> range:
    """Return the ports of FIRST-LAST. Raises ConfigError."""
    match = re.fullmatch(r"([0-9]{4,5})-([0-9]{4,5})", text)
    if match is None or not 1024 <= int(match[1]) <= int(match[2]) <= 65535:
        raise ConfigError(f"{name} must be FIRST-LAST, two ports from 1024 to 65535, not {text!r}")
    return range(int(match[1]), int(match[2]) + 1)


def read_users(name: str, text: str) -> range:
    """Return the user ids of FIRST-LAST; empty for `none`. Raises ConfigError."""
    match = re.fullmatch(r"([0-9]{1,10})-([0-9]{1,10})", text)
    if text == "none":
        return range(0)
    if match is None or not 1000 <= int(match[1]) <= int(match[2]) < 2**32 - 1:
        raise ConfigError(f"{name} must be FIRST-LAST, two user ids from 1000 to {2**32 - 2}, or none, not {text!r}")
    return range(int(match[1]), int(match[2]) + 1)


def read_secret_keys(text: str) -> tuple[str, ...]:
    """Return the keys of a comma-separated text."""
    return tuple(key for part in text.split(",") if (key := part.strip()))
