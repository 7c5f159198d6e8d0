"""The version of the stored data: this code reads one, migrates older ones, and refuses newer ones.

Version 1 is what `store/keys.py` says. A store without the key is empty. The next
version raises VERSION and enters into MIGRATIONS its migration; tests/store/test_data_version.py shows it.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from redis import Redis

from store.errors import NewerData
from store.keys import DATA_VERSION, VERSION

#: by the version that it leads to: what changes the data of the version before. Each may be repeated from its
#: beginning, as it is after an interruption, while no other server writes
MIGRATIONS: Mapping[int, Callable[["Redis"], None]] = MappingProxyType({})


class DataVersion:
    """Migrates the data to VERSION before a request reads any, and finds that a newer release has changed them."""

    def __init__(self, redis: "Redis", probe: "Redis") -> None:
        """probe: a client that waits so briefly that a request may ask first."""
        self._redis = redis
        self._probe = probe
        self.is_current = False  #: as it was found last

    def ensure(self) -> None:
        """Migrate older data. One round trip where nothing is to be done: every process asks again all the time.

        Raises NewerData, or one of UNAVAILABLE.
        """
        stored: Any = self._probe.get(DATA_VERSION)
        found = int(stored or VERSION)
        if stored is not None and found == VERSION and self.is_current:
            return
        self.is_current = False
        if found > VERSION:
            raise NewerData(found, VERSION)
        for version in range(found + 1, VERSION + 1):
            MIGRATIONS[version](self._redis)
        self._redis.set(DATA_VERSION, VERSION)
        self.is_current = True
