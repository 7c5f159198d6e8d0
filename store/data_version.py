"""The version of the stored data: this code reads one, migrates older ones, and refuses newer ones.

A store without the key `data_version` is empty, or of version 0: written before the key was introduced.

| version | what its data are                                                                            |
|---------|----------------------------------------------------------------------------------------------|
| 0       | pending actions and decisions as lines of text, the members of app conversations as one JSON |
| 1       | sandboxes that end with their processes                                                      |
| 2       | a sandbox has one key, in plain; fields of a sandbox that version 1 lacks have defaults      |
| 3       | open actions without digests                                                                 |
| 4       | the listing has the titles of app conversations alone                                        |
| 5       | events as they came, and all their ids in `conv:{ID}:ids`                                    |
| 6       | no conversation is cold; logs of version 5 are logs of version 6                              |
| 7       | as `store/keys.py`, `store/approval_keys.py` and `store/cold_keys.py` say                     |
"""

from typing import Any

from redis import Redis

from store.errors import NewerData
from store.keys import DATA_VERSION, ListingKeys, SandboxKeys, StartKeys
from store.link.secrets import Sealer
from store.listing import Listing
from store.migration import migrate_to_1, migrate_to_3, migrate_to_4, migrate_to_5

#: of the data that this code reads and writes
VERSION = 7


class DataVersion:
    """Migrates the data to VERSION before a request reads any. One round trip, once in the life of a process."""

    def __init__(self, redis: "Redis", probe: "Redis", listing: Listing, sealer: Sealer) -> None:
        """probe: a client that waits so briefly that a request may ask first."""
        self._redis = redis
        self._probe = probe
        self._listing = listing
        self._sealer = sealer
        self.is_current = False

    def ensure(self) -> None:
        """Migrate older data. A migration that was interrupted begins again, and every step of it may be repeated.

        Raises NewerData, SecretsRefused where older data have keys and no key is set, or one of UNAVAILABLE.
        """
        if self.is_current:
            return
        found = self._found()
        if found > VERSION:
            raise NewerData(found, VERSION)
        if found < 1:
            migrate_to_1(self._redis, self._listing)
        if found < 3:
            migrate_to_3(self._redis, self._sealer)
        if found < 4:
            migrate_to_4(self._redis)
        if found < 5:
            migrate_to_5(self._redis, self._listing)
        self._redis.set(DATA_VERSION, VERSION)
        self.is_current = True

    def _found(self) -> int:
        stored: Any = self._probe.get(DATA_VERSION)
        if stored is not None:
            return int(stored)
        roots = (ListingKeys.index("created"), SandboxKeys.created, StartKeys.created())
        return 0 if any(self._probe.exists(key) for key in roots) else VERSION
