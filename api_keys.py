"""The admin keys that the environment and the key file give."""

import re
from collections.abc import Callable
from itertools import count
from pathlib import Path

from settings import ConfigError

#: long enough not to be guessed, and of characters that every header can bear
_KEY = re.compile(r"[!-~]{16,512}")


def check_key(name: str, key: str) -> None:
    """Raises ConfigError with a sentence that names where the key stands, and does not show it."""
    if not _KEY.fullmatch(key):
        raise ConfigError(f"{name} must have from 16 to 512 characters, all of them printable ASCII and none a blank")


def read_keys(variable: Callable[[str, str], str], file: Path) -> tuple[str, ...]:
    """The keys of the environment, then that of the file, each once.

    variable: the value of a variable, or the text after its name if it is unset. `OH_SESSION_API_KEYS_n` are read up to
    the first gap. Raises ConfigError, which names the variable or the file.
    """
    named = [("SESSION_API_KEY", variable("SESSION_API_KEY", ""))]
    named += [("SESSION_API_KEYS", key.strip()) for key in variable("SESSION_API_KEYS", "").split(",")]
    for n in count():
        if not (key := variable(name := f"OH_SESSION_API_KEYS_{n}", "")):
            break
        named.append((name, key))
    try:
        named.append((str(file), file.read_text().removesuffix("\n")))
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read: {error}") from None
    for name, key in named:
        if key:
            check_key(name, key)
    return tuple(dict.fromkeys(key for _, key in named if key))
