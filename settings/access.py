"""The settings of access: the keys of admins, and what one client may use."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from settings import ConfigError, check_bounds, check_rate, limit, setting

#: long enough not to be guessed, and of characters that every header can bear
_KEY = re.compile(r"[!-~]{16,512}")

#: numbered variables that are read
_MOST_NUMBERED = 100


def check_key(name: str, key: str) -> None:
    """Raises ConfigError with a sentence that names where the key stands, and does not show it."""
    if not _KEY.fullmatch(key):
        raise ConfigError(f"{name} must have from 16 to 512 characters, all of them printable ASCII and none a blank")


def read_keys(variable: Callable[[str, str], str], file: Path) -> tuple[str, ...]:
    """The keys of the environment, then that of the file, each once.

    variable: the value of a variable, or the text after its name if it is unset; an empty one counts as unset. Raises
    ConfigError, which names the variable or the file, of a key that is none, and of what is set and gives no key:
    whoever set it believes that the server asks for one.
    """
    listed = variable("SESSION_API_KEYS", "")
    of_list = [key.strip() for key in listed.split(",") if key.strip()] or ([""] if listed else [])
    named = [("SESSION_API_KEYS", key) for key in of_list] + _numbered(variable)
    if key := variable("SESSION_API_KEY", ""):
        named.insert(0, ("SESSION_API_KEY", key))
    try:
        named.append((str(file), file.read_text().removesuffix("\n")))
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read: {error}") from None
    for name, key in named:
        check_key(name, key)
    return tuple(dict.fromkeys(key for _, key in named))


def _numbered(variable: Callable[[str, str], str]) -> list[tuple[str, str]]:
    """The keys of `OH_SESSION_API_KEYS_0`, `_1` and so on. Raises ConfigError of a gap, and of no number."""
    prefix = "OH_SESSION_API_KEYS"
    names = [f"{prefix}_{n}" for n in range(_MOST_NUMBERED)]
    given = [name for name in (prefix, *names) if variable(name, "")]
    if odd := [name for name in given if name not in names[: len(given)]]:
        raise ConfigError(f"{odd[0]} must follow the number before it: {prefix}_0 is the first")
    return [(name, variable(name, "")) for name in given]


@dataclass(frozen=True, slots=True)
class AccessSettings:
    """Access: the keys of admins, and what one client may use."""

    auth: str = setting(
        "auto",
        "`auto`: API keys are needed where one is set; without one, no key is needed on a loopback address, and on any "
        "other a key is made in the file `key` in DATA_DIR. `keys`: always needed, and made where none is set. `open`: "
        "never needed.",
        choices=("auto", "keys", "open"),
    )
    api_keys: tuple[str, ...] = setting(
        (),
        "Admin keys: one, several with commas, or one per variable; also the line of the file `key` in DATA_DIR. An "
        "empty variable counts as unset. Commas without a key, and an empty file, stop the start. 16 characters or "
        "more, printable ASCII without blanks.",
        secret=True,
        names="`SESSION_API_KEY`, `SESSION_API_KEYS`, `OH_SESSION_API_KEYS_0` …",
    )
    rate_limit_writes: str = setting(
        "6000/minute",
        "Writing requests with one key: `NUMBER/second`, `/minute`, `/hour` or `/day`; 429 beyond. `none`: no limit.",
    )
    rate_limit_reads: str = setting(
        "none", "Reading requests with one key; `none`: no limit, and no round trip to count them."
    )
    rate_limit_starts: str = setting(
        "120/minute",
        "Starts and resumes of sandboxes and starts of app conversations with one key, without keys of one address.",
    )
    rate_limit_failures: str = setting("60/minute", "Requests of one address with a wrong key or without one.")
    max_followers_per_key: int = limit(
        1000, "Most sockets, streams and long polls with one key per worker; one more is refused.", least=1
    )
    max_silent_sockets: int = limit(
        64, "Most sockets of one address per worker that have not shown a key yet; one more is refused.", least=1
    )

    def __post_init__(self) -> None:
        check_bounds(self)
        for of in ("writes", "reads", "starts", "failures"):
            check_rate(f"RATE_LIMIT_{of.upper()}", getattr(self, f"rate_limit_{of}"))
        for key in self.api_keys:
            check_key("SESSION_API_KEY", key)
