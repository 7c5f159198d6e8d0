"""Decides once, in gunicorn's master and before anything listens, whether clients need a key.

| AUTH   | a key is set | the server listens on | outcome                     |
|--------|--------------|-----------------------|-----------------------------|
| `auto` | yes          | any address           | keys                        |
| `auto` | no           | loopback alone        | open, and the log says so   |
| `auto` | not known    | loopback alone        | auto: the workers ask       |
| `auto` | no, not known | another address      | keys, and one is made       |
| `keys` | yes          | any address           | keys                        |
| `keys` | no, not known | any address          | keys, and one is made       |
| `open` | any          | loopback alone        | open, and the log says so   |
| `open` | any          | another address       | open, and the log warns     |

If keys are needed and no valid key has the scope `admin`, one is made too, so that nobody locks themselves out.
Standard library only, as everywhere in `boot/`.
"""

import contextlib
import os
import secrets
from collections.abc import Sequence
from logging import Logger
from pathlib import Path
from typing import Literal

from core.origins import is_loopback
from core.programs import admin
from settings.data_dir import make_private
from telemetry.logs import is_json, say

#: Variable with the original value of AUTH. The master replaces AUTH itself by the outcome.
ASKED_AUTH = "AUTH_ASKED"


#: Reason to make a key beside stored ones.
NO_ADMIN = "no stored key is a valid admin key"

#: An address of gunicorn: a host and a port, the path of a Unix socket, or an inherited descriptor.
Address = tuple[str, int] | str | int


def asked_auth(settled: str) -> str:
    """Return the setting AUTH as it was before gunicorn's master replaced it."""
    return os.environ.get(ASKED_AUTH, settled)


def settle(
    auth: str,
    addresses: Sequence[Address],
    key_file: Path,
    *,
    has_keys: bool | None,
    has_admin: bool = True,
    log: Logger,
) -> Literal["auto", "keys", "open"]:
    """Decide whether keys are needed, and make one if none is set.

    auth: the setting. has_keys: whether any key exists; None if the store is unavailable. has_admin: whether a valid
    key has the scope `admin`. Raises OSError if the new key cannot be stored.
    """
    is_keyed = has_keys if auth != "open" else False
    exposed = [address for address in addresses if not _is_of_this_machine(address)]
    with contextlib.suppress(OSError):  # there is no key, or the folder is read-only
        key_file.chmod(0o600)
    outcome: Literal["auto", "keys", "open"] = "open"
    if auth == "open" and exposed:
        log.warning(
            "AUTH=open: NO KEY IS NEEDED, AND EVERYONE WHO REACHES %s MAY DO EVERYTHING, run commands in sandboxes "
            "too. Set SESSION_API_KEY and unset AUTH.",
            " ".join(map(_named, exposed)),
        )
    elif auth == "auto" and not exposed and is_keyed is None:
        log.warning("The store does not answer. Once it does: if it has keys, each request needs one.")
        outcome = "auto"
    elif auth == "open" and has_keys:
        log.warning(
            "AUTH=open: keys are set or stored, AND NONE IS CHECKED. The server listens on this machine alone. "
            "Unset AUTH, or set AUTH=keys, to check them."
        )
    elif auth == "open":
        log.info("AUTH=open: no key is needed. The server listens on this machine alone. Unset AUTH to use keys.")
    elif auth == "auto" and not exposed and not is_keyed:
        log.info("No key is needed: the server listens on this machine alone. Set SESSION_API_KEY to need one.")
    else:
        outcome = "keys"
        if is_keyed and has_admin:
            log.info("A key is needed. If yours is lost, make one: %s", admin("keys make NAME --scope admin"))
        elif make_key(key_file):
            show_key(key_file, addresses, NO_ADMIN if is_keyed else "none is set")
            return outcome
    if url := _url(addresses):
        say(f"open {url}/")
    return outcome


def make_key(path: Path) -> bool:
    """Write a key of 256 random bits to a file that only its owner can read. Return false if the file exists.

    The file is created atomically, so that a server that starts at the same time reads the same key. Raises OSError.
    """
    make_private(path.parent)
    draft = path.with_name(f".key-{secrets.token_hex(8)}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_hex(32) + "\n")  # hex: a pasted key that begins with `-` would be an option
            file.flush()
            os.fsync(file.fileno())
        path.hardlink_to(draft)
    except FileExistsError:
        return False
    finally:
        draft.unlink(missing_ok=True)
    return True


def show_key(key_file: Path, addresses: Sequence[Address], reason: str) -> None:
    """Print a new key, with a link that uses it.

    Browsers do not send the part after `#`, so no access log has the key. If logs are JSON, and so collected, the
    message only names the file.
    """
    if is_json():
        say(f"A key is needed and {reason}: one was made in {key_file}")
        return
    url = _url(addresses) or "http://127.0.0.1:8000"
    say(f"A key is needed and {reason}: one was made in {key_file}. This link is shown this once:")
    say(f"open {url}/console/#key={key_file.read_text().strip()}")


def _url(addresses: Sequence[Address]) -> str:
    """Return the URL of the server for a browser on this machine; "" if its port is unknown."""
    for address in addresses:
        if isinstance(address, tuple):
            host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address[0], address[0])
            return f"http://[{host}]:{address[1]}" if ":" in host else f"http://{host}:{address[1]}"
    return ""


def _is_of_this_machine(address: Address) -> bool:
    """Return whether only this machine can reach an address. An inherited descriptor may be anything."""
    return isinstance(address, str) or (isinstance(address, tuple) and is_loopback(address[0]))


def _named(address: Address) -> str:
    return f"{address[0]}:{address[1]}" if isinstance(address, tuple) else str(address)
