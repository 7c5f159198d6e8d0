"""The settings of access: admin keys, and limits per client."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path

from settings import ConfigError, check_bounds, check_each, check_rate, limit, setting

#: Form of a key: too long to guess, and valid in every header.
_KEY = re.compile(r"[!-~]{16,512}")

#: Form of a person's header: without underscores, which WSGI cannot tell from hyphens.
_HEADER = re.compile(r"[A-Za-z][A-Za-z0-9]*(-[A-Za-z0-9]+)*")

#: Headers with another meaning.
_TAKEN = frozenset(
    {
        *("authorization", "connection", "content-length", "content-type", "cookie", "forwarded", "host", "origin"),
        *("referer", "upgrade", "user-agent", "x-forwarded-for", "x-forwarded-host", "x-forwarded-prefix"),
        *("x-forwarded-proto", "x-person-proxy-secret", "x-session-api-key"),
    }
)

#: Maximum length of a header's name, in characters.
MOST_HEADER = 64

#: Maximum number of numbered variables.
_MOST_NUMBERED = 100


def check_key(name: str, key: str) -> None:
    """Raise ConfigError for an invalid key. The message names its source, and does not contain the key."""
    if not _KEY.fullmatch(key):
        raise ConfigError(f"{name} must have from 16 to 512 characters, only printable ASCII without blanks")


def read_keys(variable: Callable[[str, str], str], file: Path) -> tuple[str, ...]:
    """Return the distinct keys of the environment, and then of the file.

    variable: returns the value of a variable, or the second argument if it is unset; empty is equivalent to unset.
    Raises ConfigError, which names the variable or the file, for an invalid key. It is also raised for a source without
    a key, because the operator then believes that the server asks for a key.
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
    """Return the keys of `OH_SESSION_API_KEYS_0`, `_1` and so on. Raises ConfigError for a gap or a missing number."""
    prefix = "OH_SESSION_API_KEYS"
    names = [f"{prefix}_{n}" for n in range(_MOST_NUMBERED)]
    given = [name for name in (prefix, *names) if variable(name, "")]
    if odd := [name for name in given if name not in names[: len(given)]]:
        raise ConfigError(f"{odd[0]} must follow the number before it: {prefix}_0 is the first")
    return [(name, variable(name, "")) for name in given]


@dataclass(frozen=True, slots=True)
class AccessSettings:
    """Access: admin keys, and limits per client."""

    auth: str = setting(
        "auto",
        "`auto`: API keys are needed if one is set. Otherwise no key is needed on a loopback "
        "address, and on any other address a key is made in the file `key` in DATA_DIR. `keys`: "
        "keys are always needed, and one is made if none is set. `open`: no key is needed.",
        choices=("auto", "keys", "open"),
    )
    api_keys: tuple[str, ...] = setting(
        (),
        "Admin keys: one, several separated by commas, or one per variable; also the line of the file `key` in "
        "DATA_DIR. At least 16 characters, printable ASCII without blanks.",
        secret=True,
        names="`SESSION_API_KEY`, `SESSION_API_KEYS`, `OH_SESSION_API_KEYS_0` …",
    )
    person_header: str = setting(
        "",
        "Header in which a proxy names the person that it authenticated, such as "
        "`X-Forwarded-User` (docs/access.md, People). Needs `AUTH=keys`, PERSON_PROXIES and "
        "PERSON_PROXY_SECRET. Unset: people are not read from headers.",
    )
    person_groups_header: str = setting(
        "", "Header in which the proxy names the person's groups, separated by commas, such as `X-Forwarded-Groups`."
    )
    person_proxies: tuple[str, ...] = setting(
        (),
        "Addresses or networks of the proxy, separated by commas. A request with PERSON_HEADER "
        "from any other address is refused.",
    )
    person_proxy_secret: str = setting(
        "",
        "Secret that the proxy sends in `X-Person-Proxy-Secret` with each request: at least 16 "
        "characters, printable ASCII without blanks. A request with PERSON_HEADER is refused "
        "without it.",
        secret=True,
    )
    rate_limit_writes: str = setting(
        "6000/minute",
        "Writing requests per key: `NUMBER/second`, `/minute`, `/hour` or `/day`; 429 beyond. `none`: no limit.",
    )
    rate_limit_reads: str = setting(
        "none", "Reading requests per key; `none`: no limit, and no round trip to count them."
    )
    rate_limit_starts: str = setting(
        "120/minute",
        "Starts and resumes of sandboxes, and starts of app conversations, per key, or per address without a key.",
    )
    rate_limit_failures: str = setting("60/minute", "Requests per address with a wrong key or without a key.")
    max_followers_per_key: int = limit(
        1000, "Maximum number of sockets, streams and long polls per key and worker. Others are refused.", least=1
    )
    max_silent_sockets: int = limit(
        64,
        "Maximum number of sockets per address and worker that have not yet sent a key. Others are refused.",
        least=1,
    )

    def __post_init__(self) -> None:
        check_bounds(self)
        for of in ("writes", "reads", "starts", "failures"):
            check_rate(f"RATE_LIMIT_{of.upper()}", getattr(self, f"rate_limit_{of}"))
        for key in self.api_keys:
            check_key("SESSION_API_KEY", key)
        self._check_people()

    def _check_people(self) -> None:
        """Raise ConfigError for settings that would admit an unauthenticated person."""
        others = {
            "PERSON_GROUPS_HEADER": self.person_groups_header,
            "PERSON_PROXIES": self.person_proxies,
            "PERSON_PROXY_SECRET": self.person_proxy_secret,
        }
        if not self.person_header:
            for name, value in others.items():
                if value:
                    raise ConfigError(f"{name} goes with PERSON_HEADER, which is not set")
            return
        for name, header in (
            ("PERSON_HEADER", self.person_header),
            ("PERSON_GROUPS_HEADER", self.person_groups_header or "X-Groups"),
        ):
            if not _HEADER.fullmatch(header) or len(header) > MOST_HEADER or header.lower() in _TAKEN:
                raise ConfigError(
                    f"{name} must be the name of a header of letters, digits and hyphens without another meaning, "
                    f"such as X-Forwarded-User, not {header!r}"
                )
        if self.person_header.lower() == self.person_groups_header.lower():
            raise ConfigError("PERSON_GROUPS_HEADER must be another header than PERSON_HEADER")
        if self.auth != "keys":
            raise ConfigError("PERSON_HEADER needs AUTH=keys: an open server lets everybody do everything")
        if not self.person_proxies:
            raise ConfigError("PERSON_HEADER needs PERSON_PROXIES: the addresses from which the proxy connects")
        check_each("PERSON_PROXIES", self.person_proxies, ip_network, "addresses or networks such as 10.0.0.0/8")
        if not self.person_proxy_secret:
            raise ConfigError(
                "PERSON_HEADER needs PERSON_PROXY_SECRET: any program at the proxy's address could be anybody"
            )
        check_key("PERSON_PROXY_SECRET", self.person_proxy_secret)
