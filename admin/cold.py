"""Verify the objects of cold conversations:  python -m admin cold verify

Reads every object of COLD_URL once, and changes nothing. Servers and supervisors may run meanwhile. The conversations
are in the store of REDIS_URL, or in the embedded store of DATA_DIR. Each line of standard output names an invalid
object, and the reason. Exit status: 0 all objects are valid, 1 some are invalid, 2 cold storage or the store cannot be
read. Source: docs/keeping.md.
"""

import argparse
import sys

from settings import ConfigError
from store import Store
from store.conversations.cold import ObjectsAway
from store.errors import UNAVAILABLE, StoreError
from wiring import store_here


class Unset(Exception):
    """Raised if there is no cold storage to verify."""


def main(words: list[str] | None = None) -> int:
    """Run the command, and return the exit status."""
    _parser().parse_args(words)
    try:
        with store_here() as store:
            store.data_version.ensure()
            return _verify(store)
    except (ConfigError, StoreError, RuntimeError, ObjectsAway, Unset) as error:
        print(f"cold: cannot be read: {error}", file=sys.stderr)
    except UNAVAILABLE as error:
        print(f"cold: cannot be read: the store does not answer: {error}", file=sys.stderr)
    return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m admin cold", description="The objects of cold conversations.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("verify", help="read every object of COLD_URL, and list the invalid objects")
    return parser


def _verify(store: Store) -> int:
    if store.conversations.cold.objects is None:
        raise Unset("COLD_URL is not set")
    needed = others = faults = 0
    for checked in store.conversations.cold.checks():
        if checked.fault is not None:
            faults += 1
            print(f"{checked.name}: {checked.fault}", flush=True)
        elif checked.is_needed:
            needed += 1
        else:
            others += 1
    print(
        f"cold: {needed} objects of cold conversations are valid, and {others} that no conversation of this "
        f"store needs; {faults} are invalid",
        file=sys.stderr,
    )
    return 1 if faults else 0
