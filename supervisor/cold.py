"""Moves conversations that rest into the archive, and removes the objects that nobody needs. Source: docs/keeping.md.

One supervisor of all takes a turn at a time. What one leaves undone, a failure among it, a later turn does: no turn
waits for one conversation or one object.
"""

import logging
import time
from collections.abc import Callable, Iterator
from itertools import islice

from boot.backoff import Backoff
from settings.archive import ArchiveSettings
from store import Store
from store.conversations.cold import Objects, ObjectsAway
from store.errors import UNAVAILABLE
from wire import ConversationId, Micros, now

log = logging.getLogger("supervisor")

#: conversations that one turn freezes at most, and objects that it removes or lists
PART = 200

#: seconds between two turns of all supervisors, for which one freezes, and between two listings of all objects
TURN, _WORK, LISTING = 10.0, 5.0, 86_400.0

#: failures after which a turn ends: the place of the objects is away, or too slow
_MOST_FAILURES = 3

#: seconds without a turn of this supervisor after one that failed: the first time, and at most
_SHORTEST_DELAY, _LONGEST_DELAY = 10.0, 300.0

_DAY = 86_400_000_000


class ColdSweep:
    """What one supervisor does for the archive."""

    def __init__(
        self,
        store: Store,
        settings: ArchiveSettings,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """clock: seconds."""
        self._store = store
        self._objects = store.cold.objects  #: None where there is no archive
        self._span = settings.archive_days * _DAY
        self._clock = clock
        self._backoff, self._not_before = Backoff(_SHORTEST_DELAY, _LONGEST_DELAY), 0.0
        self._listed: Iterator[str] | None = None
        self._number = self._strange = 0

    def sweep(self) -> None:
        """Take a turn, unless another supervisor did a moment ago or the last one failed. Without an archive it asks
        nothing. Raises one of UNAVAILABLE."""
        if self._objects is None or self._clock() < self._not_before or not self._store.cold.claim("turn", TURN):
            return
        frozen, failures = self._freeze()
        removed, kept = self._remove(self._objects)
        failures += kept
        if frozen or removed:
            log.info(
                "the archive: %d conversations became cold, %d objects were removed",
                *(frozen, removed),
                extra={"fields": {"frozen": frozen, "removed": removed, "failures": len(failures)}},
            )
        try:
            self._list(self._objects)
        except ObjectsAway as error:
            self._listed = None
            failures.append(str(error))
        if failures:
            log.warning("the archive (ARCHIVE_URL) failed %d times, last: %s", len(failures), failures[-1])
            self._not_before = self._clock() + self._backoff.delay()
        else:
            self._backoff.reset()

    def _freeze(self) -> tuple[int, list[str]]:
        """Freeze conversations that rest; how many, and why others could not be frozen."""
        frozen, failures, end = 0, list[str](), self._clock() + _WORK
        resting = self._store.cold.resting(Micros(round(now() - self._span)), PART) if self._span else []
        for conversation_id in resting:
            if self._clock() > end or len(failures) == _MOST_FAILURES:
                break
            try:
                frozen += self._store.cold.freeze(conversation_id)
            except UNAVAILABLE:
                raise
            except Exception as error:
                failures.append(_failure(conversation_id, error))
        return frozen, failures

    def _remove(self, objects: Objects) -> tuple[int, list[str]]:
        """Remove objects that nobody needs; how many, and why others stayed."""
        removed, failures = list[str](), list[str]()
        for name in self._store.cold.unneeded(PART):
            if len(failures) == _MOST_FAILURES:
                break
            try:
                objects.delete(name)
                removed.append(name)
            except ObjectsAway as error:
                failures.append(str(error))
        self._store.cold.forget(removed)
        return len(removed), failures

    def _list(self, objects: Objects) -> None:
        """Enter the next objects into the register, which a Redis that has lost writes may lack. Raises ObjectsAway."""
        if self._listed is None:
            if not self._store.cold.claim("listing", LISTING):
                return
            self._listed, self._number, self._strange = objects.names(), 0, 0
        names = list(islice(self._listed, PART))
        self._number += len(names)
        self._strange += self._store.cold.enter(names)
        if len(names) == PART:
            return
        self._listed = None
        log.info(
            "the archive has %d objects; %d are of no conversation of this Redis, and stay",
            *(self._number, self._strange),
            extra={"fields": {"objects": self._number, "strange": self._strange}},
        )


def _failure(conversation_id: ConversationId, error: Exception) -> str:
    """What went wrong, as a sentence; an error that was not foreseen is logged with its traceback."""
    if not isinstance(error, ObjectsAway):
        log.error("the conversation %s cannot be frozen", conversation_id, exc_info=error)
    return f"conversation {conversation_id}: {error}"
