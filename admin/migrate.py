"""Migrate the stored data to the version of this code:  python -m admin migrate

The store is at REDIS_URL, or else embedded in DATA_DIR, whether its server runs or not. The gunicorn
master runs it before the workers. Exit status 1, with a sentence: the data have a newer version, or REDIS_URL is not a
Redis. It warns if another SECRET_KEY has sealed the data, and if Redis is less durable than DURABILITY. If the store is
unavailable, the first request or the supervisor migrates it later.
"""

import argparse
import logging

from redis.exceptions import InvalidResponse

from settings import ConfigError
from settings.config import Config
from store.errors import UNAVAILABLE, NewerData, SecretsRefused
from store.keys import VERSION
from telemetry.logs import log_to_stderr, say
from wiring import store_here


def main(words: list[str] | None = None) -> int:
    """Migrate, and return the exit status."""
    options = argparse.ArgumentParser(
        prog="python -m admin migrate", description="Bring the stored data to this version."
    )
    options.add_argument(
        "--count-keys",
        action="store_true",
        help="then print how many keys the store holds, and how many of them are an admin's and valid",
    )
    given = options.parse_args(words)
    log_to_stderr("migrate", logging.WARNING)
    try:
        config = Config.from_env()
        with store_here() as store:
            store.data_version.ensure()
            for fault in store.link.health.probe().faults:
                logging.warning(fault)
            if config.notify.notifies:
                # So that events of the first requests are notified, before a supervisor announces its targets.
                store.notifications.outboxes.want()
            if other_key := store.link.seal_check.fault():
                logging.warning(other_key)
            if given.count_keys:
                print(len(store.access.keys.all()), store.access.keys.of_admins())
            else:
                say(f"The data have version {VERSION}, that of this release. There is nothing to migrate.")
    except (ConfigError, NewerData, SecretsRefused, RuntimeError) as error:
        say(str(error))
        return 1
    except InvalidResponse as error:
        say(f"What answers at REDIS_URL does not speak the protocol of Redis: {error}")
        return 1
    except UNAVAILABLE as error:
        logging.warning("The store does not answer yet, so the version of its data is not known: %s", error)
    return 0
