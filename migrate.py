"""Bring the stored data to the version of this code:  python -m migrate [--logs]

The store is that of REDIS_URL; without one, the embedded store of DATA_DIR, whether its server runs or not. The
gunicorn master runs it before the workers. Exit status 1: the data are of a newer version, said in a sentence.
It warns where another SECRET_KEY has sealed the data, and where Redis is not what DURABILITY asks for.
A store that does not answer is migrated by the first request, or by the supervisor, that reaches it.

--logs: pack the logs of older releases too, see `store/conversations/packing.py`. Servers may run meanwhile; it may be
stopped, and the next call goes on.
"""

import argparse
import logging

from boot.json_lines import is_json, log_to_stderr, say
from boot.program import run
from config import Config, ConfigError
from store.conversations.packing import Packing
from store.errors import UNAVAILABLE, NewerData, SecretsRefused
from wiring import store_here

#: conversations between two lines in the log
_REPORTED = 1000


def main() -> int:
    """Returns the exit status."""
    options = argparse.ArgumentParser(prog="python -m migrate", description="Bring the stored data to this version.")
    options.add_argument("--logs", action="store_true", help="pack the logs of older releases, while servers run")
    given = options.parse_args()
    log_to_stderr(logging.Formatter("[%(process)d] [migrate] %(message)s"), logging.WARNING, as_json=is_json())
    try:
        config = Config.from_env()
        with store_here() as store:
            store.data_version.ensure()
            for fault in store.health.probe().faults:
                logging.warning(fault)
            if config.notifies:
                store.outboxes.want()  # what the first requests bring is notified of before a supervisor has said so
            if other_key := store.seal_check.fault():
                logging.warning(other_key)
            if given.logs:
                _pack(store.packing)
    except (ConfigError, NewerData, SecretsRefused, RuntimeError) as error:
        say(str(error))
        return 1
    except UNAVAILABLE as error:
        logging.warning("The store does not answer yet, so the version of its data is not known: %s", error)
    return 0


def _pack(packing: Packing) -> None:
    """Pack every log, and say how far it is. Raises one of UNAVAILABLE."""
    packed = number = 0
    for number, conversation_id in enumerate(packing.conversations(), 1):
        packed += sum(packing.pack(conversation_id))
        if number % _REPORTED == 0:
            logging.warning("The logs of %s conversations are packed", number)
    logging.warning("All logs are packed: %s conversations, %s events and ids moved", number, packed)


if __name__ == "__main__":
    run(main)
