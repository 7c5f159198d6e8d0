"""Make, list and revoke keys on the store's machine, for example:  python -m admin keys make NAME --scope read

The store is at REDIS_URL, or else embedded in DATA_DIR, whether its server runs or not. Before the first
key of an open server it prints how the key changes the server, and asks if it runs in a terminal.
"""

import argparse
import sys

from core.access import SCOPES
from core.programs import admin
from schemas.access import KeyInfo, KeyRequest
from settings import ConfigError
from settings.config import Config
from store import Store
from store.access.access_keys import AccessKey, KeyNotFound
from store.errors import UNAVAILABLE, StoreError
from wiring import store_here

#: Warning before the first key of an open server.
_FIRST_KEY = (
    "keys: A server that is open on this machine asks for a key from its next start if one is stored, and this one is "
    "not an admin's. Make yourself an admin key first: " + admin("keys make me --scope admin")
)


def main(words: list[str] | None = None) -> int:
    """Run a command, and return the exit status. Standard output only has a new key."""
    given = _parser().parse_args(words)
    try:
        with store_here() as store:
            match given.command:
                case "make":
                    wanted = {"name": given.name, "scopes": given.scope, "expires_at": given.expires_at}
                    if faults := KeyRequest().validate(wanted):
                        return _refuse("; ".join(f"{name}: {texts}" for name, texts in faults.items()))
                    if not _goes_on(store, given):
                        return 1
                    _tell_alike(store, given.name)
                    made, key = store.access.keys.make(**KeyRequest().load(wanted))
                    print(f"{made.name}: id {made.id}, scopes {', '.join(made.scopes)}. The key:", file=sys.stderr)
                    print(key)
                case "list":
                    for each in store.access.keys.all():
                        print(_line(each))
                case "revoke":
                    store.access.keys.revoke(given.id)
    except KeyNotFound:
        return _refuse(f"Key not found. Those that are there: {admin('keys list')}")
    except (ConfigError, StoreError, RuntimeError) as error:
        return _refuse(str(error))
    except UNAVAILABLE as error:
        return _refuse(f"the store does not answer: {error}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m admin keys", description="Keys of access: make, list, revoke.")
    commands = parser.add_subparsers(dest="command", required=True)
    make = commands.add_parser("make", help="make a key and print it once")
    make.add_argument("name")
    make.add_argument("--scope", action="append", choices=SCOPES, required=True, help="repeat it for several")
    make.add_argument("--expires-at", metavar="TIME", help="such as 2027-01-31T00:00:00Z; absent: never")
    make.add_argument("--yes", action="store_true", help="do not ask before the first key of an open server")
    commands.add_parser("list", help="list the keys, the newest first, without the keys themselves")
    commands.add_parser("revoke", help="revoke a key, which ends within a second").add_argument("id")
    return parser


def _tell_alike(store: Store, name: str) -> None:
    """Report existing keys of the name, which a second key does not end."""
    every = store.access.keys.all()
    live = store.access.keys.live([one.id for one in every if one.name == name])
    if live:
        revoke = admin(f"keys revoke {' '.join(sorted(live))}")
        print(f"keys: another key has this name and stays. To end it: {revoke}", file=sys.stderr)


def _goes_on(store: Store, given: argparse.Namespace) -> bool:
    """Warn before a key by which an open server would have keys but no admin key. Return whether to make it."""
    config = Config.from_env()
    opens = config.access.auth == "auto" and config.is_open
    if "admin" in given.scope or not opens or store.access.keys.of_admins():
        return True
    print(_FIRST_KEY, file=sys.stderr)
    if given.yes or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return True
    print(f"Make the key {given.name} all the same? [y/N]: ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _line(key: AccessKey) -> str:
    fields = KeyInfo().dump(key)
    ends, used = fields["expires_at"] or "never expires", fields["used_at"] or "never used"
    return "\t".join([key.id, key.name, ",".join(key.scopes), fields["created_at"], ends, used])


def _refuse(sentence: str) -> int:
    print(f"keys: {sentence}", file=sys.stderr)
    return 1
