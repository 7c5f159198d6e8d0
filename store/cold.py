"""Cold conversations: those whose log lies in one compressed object outside Redis, until something needs it.

A conversation is cold while its hash has the field `cold`, the name of its object. `freeze` puts the object there,
`thaw` brings the log back; `store/scripts` thaws before a script that needs the log, and calls the script again. Each
freezing has an object of its own name, which is registered before it is put: an object that nobody needs is found,
whatever was killed, and none that was given up is ever needed again.
"""

import threading
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from redis import Redis

from store.bounds import Bounds
from store.errors import TemporaryRefusal
from store.listing import Listing
from store.scripts import Scripts
from wire import ConversationId, Micros


class ObjectsAway(Exception):
    """The place of the objects cannot be reached, or refuses; the message says what is wrong with it."""


class ObjectMissing(Exception):
    """There is no object of that name."""


class StillCold(TemporaryRefusal):
    """A cold conversation cannot be brought back now. The request gets 503, and a supervisor retries."""


class Objects(Protocol):
    """A place for objects: bytes by name. A name has letters, digits and hyphens, and is used for one content.

    Each call raises ObjectsAway when the place cannot be reached.
    """

    def put(self, name: str, content: bytes) -> None:
        """Keep an object; when it returns, the whole object is on stable storage."""

    def get(self, name: str) -> bytes:
        """An object. Raises ObjectMissing."""

    def delete(self, name: str) -> None:
        """Delete an object; of a missing one it does nothing."""

    def names(self) -> Iterator[str]:
        """The names of all objects."""


class Cold:
    """Freezes conversations, thaws them, and knows the objects that nobody needs."""

    def __init__(
        self, redis: "Redis", scripts: Scripts, listing: Listing, bounds: Bounds, objects: Objects | None
    ) -> None:
        """objects: where they lie; None: nothing is frozen, and what is cold stays so."""
        self._redis: Any = redis
        self._scripts = scripts
        self._listing = listing
        self._most_bytes = bounds.archive_bytes
        self._objects = objects
        self._lock = threading.Lock()

    def resting(self, before: Micros, limit: int) -> list[ConversationId]:
        """The next conversations that may be frozen: unchanged since a time, neither cold nor warm.

        Each call goes on where the last one ended, and after the last conversation begins again. It scans a bounded
        number of conversations: fewer than `limit`, or none, does not mean that no others are left.
        """
        raise NotImplementedError

    def freeze(self, conversation_id: ConversationId) -> bool:
        """Move the log of a conversation into an object. False if the conversation is cold, does not rest, is too
        large, has changed meanwhile, or does not exist. Raises ObjectsAway, or one of UNAVAILABLE.
        """
        raise NotImplementedError

    def thaw(self, conversation_id: ConversationId) -> None:
        """Bring the log of a conversation back, if it is cold. Raises StillCold, or one of UNAVAILABLE."""
        raise NotImplementedError

    def unneeded(self, limit: int) -> list[str]:
        """Names of objects that nobody needs, now or later: delete each, then `forget` it."""
        raise NotImplementedError

    def forget(self, names: Sequence[str]) -> None:
        """Take deleted objects out of the register."""
        raise NotImplementedError

    def enter(self, names: Sequence[str]) -> None:
        """Enter objects that the register may lack: each is unneeded in an hour unless a conversation needs it."""
        raise NotImplementedError
