"""Conversations that rest: moves them out of Redis, and deletes those that the settings keep no longer.

Source: docs/keeping.md.

One supervisor of all makes a pass of cold storage at a time, and also removes the objects that nobody needs. What one
leaves undone, a failure among it, a later pass does: no pass waits for one conversation or one object, and none is rare
unless the place of the objects is away.

Every supervisor deletes, with a cursor of its own and no lease: a script deletes a conversation only while nothing has
changed in it since its age was read, so two that meet delete it once.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

from agents.commands import Commands
from agents.deletions import delete_unchanged
from core.pauses import Backoff
from core.wire import ConversationId, Micros, micros, utc_time
from settings.keeping import KeepingSettings
from store import Store
from store.conversations.cold import Objects, ObjectsAway
from store.errors import UNAVAILABLE, ConversationNotFound
from store.listing import Cursor, ListingFilter

log = logging.getLogger("supervisor")

#: conversations that one pass freezes at most, and objects that it removes or lists
COLD_PART = 200

#: seconds between two passes of all supervisors, for which one freezes, and between two listings of all objects
PASS, _WORK, LISTING = 10.0, 5.0, 86_400.0

#: failures of the place of the objects after which a pass ends: it is away, or too slow
_MOST_FAILURES = 3

#: seconds without a pass of this supervisor after one that failed: the first time, and at most
_SHORTEST_DELAY, _LONGEST_DELAY = 10.0, 300.0

_DAY = 86_400_000_000


#: conversations that one sweep checks, the longest unchanged first
RETENTION_PART = 100

#: statuses in which an agent works or a decision is due
_BUSY = ("running", "waiting_for_confirmation")


class ColdSweep:
    """What one supervisor does for cold storage."""

    def __init__(
        self,
        store: Store,
        settings: KeepingSettings,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """clock: seconds."""
        self._store = store
        self._objects = store.conversations.cold.objects  #: None without cold storage
        self._span = settings.cold_days * _DAY
        self._clock = clock
        self._backoff, self._not_before = Backoff(_SHORTEST_DELAY, _LONGEST_DELAY), 0.0
        self._listed: Iterator[str] | None = None
        self._number = self._strange = 0

    def sweep(self) -> None:
        """Make a pass, unless another supervisor did a moment ago or the last one failed. Without cold storage it asks
        nothing. Raises one of UNAVAILABLE."""
        if (
            self._objects is None
            or self._clock() < self._not_before
            or not self._store.conversations.cold.claim("turn", PASS)
        ):
            return
        removed, failures = self._remove(self._objects)
        frozen, failed = self._freeze()
        failures += failed
        if frozen or removed:
            log.info(
                "cold storage: %d conversations became cold, %d objects were removed",
                *(frozen, removed),
                extra={"fields": {"frozen": frozen, "removed": removed, "failures": len(failures)}},
            )
        try:
            self._list(self._objects)
        except ObjectsAway as error:
            self._listed = None
            failures.append(error)
        if failures:
            log.warning("cold storage (COLD_URL) failed %d times, last: %s", len(failures), failures[-1])
        if not (frozen or removed) and any(isinstance(failure, ObjectsAway) for failure in failures):
            self._not_before = self._clock() + self._backoff.delay()
        else:
            self._backoff.reset()

    def _freeze(self) -> tuple[int, list[Exception]]:
        """Freeze conversations that rest; how many, and why others could not be frozen. One that fails while the place
        of the objects does not is set aside. Raises one of UNAVAILABLE if Redis does not answer then either."""
        frozen, failures, end = 0, list[Exception](), self._clock() + _WORK
        before = Micros(round(self._store.link.health.clock() - self._span)) if self._span else None
        resting = [] if before is None else self._store.conversations.cold.resting(before, COLD_PART)
        for conversation_id in resting:
            if self._clock() > end or _is_away(failures):
                break
            try:
                frozen += self._store.conversations.cold.freeze(conversation_id)
            except ObjectsAway as error:
                failures.append(error)
            except Exception as error:
                failures.append(error)
                log.error(
                    "the conversation %s cannot be frozen, and is left for an hour", conversation_id, exc_info=error
                )
                self._store.conversations.cold.set_aside(conversation_id)
        return frozen, failures

    def _remove(self, objects: Objects) -> tuple[int, list[Exception]]:
        """Remove objects that nobody needs; how many, and why others stayed, which are tried again in an hour.

        Raises one of UNAVAILABLE.
        """
        removed, stayed, failures = list[str](), list[str](), list[Exception]()
        for name in self._store.conversations.cold.unneeded(COLD_PART):
            if _is_away(failures):
                break
            try:
                objects.delete(name)
                removed.append(name)
            except Exception as error:  # those behind it do not wait for it
                failures.append(error)
                stayed.append(name)
                if not isinstance(error, ObjectsAway):
                    log.error("the object %s of cold storage cannot be removed", name, exc_info=error)
        self._store.conversations.cold.forget(removed)
        self._store.conversations.cold.postpone(stayed)
        return len(removed), failures

    def _list(self, objects: Objects) -> None:
        """Enter the next objects into the register, which a Redis that has lost writes may lack. Raises ObjectsAway."""
        if self._listed is None:
            if not self._store.conversations.cold.claim("listing", LISTING):
                return
            self._listed, self._number, self._strange = objects.names(), 0, 0
        names = list(islice(self._listed, COLD_PART))
        self._number += len(names)
        self._strange += self._store.conversations.cold.enter(names)
        if len(names) == COLD_PART:
            return
        self._listed = None
        log.info(
            "cold storage has %d objects; %d are of no conversation of this Redis, and stay",
            *(self._number, self._strange),
            extra={"fields": {"objects": self._number, "strange": self._strange}},
        )


def _is_away(failures: list[Exception]) -> bool:
    """Whether the place of the objects failed so often that a pass ends."""
    return sum(isinstance(failure, ObjectsAway) for failure in failures) >= _MOST_FAILURES


class Retention:
    """What one supervisor deletes for its age."""

    def __init__(self, store: Store, commands: Commands, settings: KeepingSettings) -> None:
        self._store = store
        self._commands = commands
        self._settings = settings
        self._start: Cursor | None = None

    def sweep(self) -> None:
        """Delete those of the next PART conversations that are due; after the last one it begins again.

        Without a setting it asks nothing. Otherwise three round trips, and those of the deletions. Raises one of
        UNAVAILABLE.
        """
        shortest = self._settings.shortest_retention
        if not shortest:
            return
        at = self._store.link.health.clock()  # a host whose clock goes wrong deletes nothing for its age
        filters = ListingFilter(updated_until=Micros(round(at - shortest * _DAY)))
        found, following = self._store.conversations.page(
            filters, by="updated", descending=False, limit=RETENTION_PART, start=self._start
        )
        self._start = following
        for state in found:
            days = self._settings.retention_of(state["tags"])
            try:
                if days and self._is_due(state, days, at):
                    self._delete(state, days)
            except UNAVAILABLE:
                raise
            except Exception:  # the next pass tries it again, and the others do not wait for it
                log.exception("the conversation %s cannot be deleted", state["id"])

    def _is_due(self, state: Mapping[str, Any], days: float, at: Micros) -> bool:
        """Whether nothing has changed for so many days before `at`, and nobody waits for anything."""
        conversation_id = ConversationId(state["id"])
        return (
            _rests_since(state) <= at - days * _DAY
            and state["execution_status"] not in _BUSY
            and not state.get("delivery_id")
            and next(self._store.conversations.in_sandboxes.children(conversation_id), None) is None
            and not self._store.conversations.queued_messages.waiting_for(conversation_id)
        )

    def _delete(self, state: dict[str, Any], days: float) -> None:
        try:
            is_gone = delete_unchanged(self._commands, state)
        except ConversationNotFound:  # another supervisor, or a client, was faster
            return
        if is_gone:
            since = utc_time(_rests_since(state))
            log.info("conversation %s was deleted: at rest since %s, it was kept for %g days", state["id"], since, days)


def _rests_since(state: Mapping[str, Any]) -> Micros:
    """An import keeps its times: its age here begins with the import."""
    return max(micros(state["updated_at"]), micros(state.get("imported_at", state["updated_at"])))
