"""Moves inactive conversations to cold storage, and deletes expired ones. Source: docs/keeping.md.

One supervisor at a time makes a pass of cold storage, and also removes unneeded objects. A later pass completes
anything that failed or was left, so no pass waits for a single conversation or object. Failures are rare unless the
object storage is unavailable.

Every supervisor deletes expired conversations, with its own cursor and no lease. A script deletes a conversation only
if it has not changed since its age was read, so two supervisors delete it once.
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

#: Maximum number of conversations that a pass freezes, and of objects that it removes or lists.
COLD_PART = 200

#: Interval between two passes, maximum time of freezing in a pass, and interval between two listings, in seconds.
PASS, _WORK, LISTING = 10.0, 5.0, 86_400.0

#: Number of failures of the object storage after which a pass ends: it is unavailable or too slow.
_MOST_FAILURES = 3

#: Shortest and longest delay in seconds of this supervisor's next pass after a failed pass.
_SHORTEST_DELAY, _LONGEST_DELAY = 10.0, 300.0

_DAY = 86_400_000_000


#: Number of conversations that a sweep checks, the least recently changed first.
RETENTION_PART = 100

#: Statuses in which an agent works or a decision is due.
_BUSY = ("running", "waiting_for_confirmation")


class ColdSweep:
    """The cold storage passes of a supervisor."""

    def __init__(
        self,
        store: Store,
        settings: KeepingSettings,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """clock: in seconds."""
        self._store = store
        self._objects = store.conversations.cold.objects  #: None without cold storage
        self._span = settings.cold_days * _DAY
        self._clock = clock
        self._backoff, self._not_before = Backoff(_SHORTEST_DELAY, _LONGEST_DELAY), 0.0
        self._listed: Iterator[str] | None = None
        self._number = self._strange = 0

    def sweep(self) -> None:
        """Make a pass, unless another supervisor just did or the last pass failed. Raises one of UNAVAILABLE.

        Without cold storage it does nothing.
        """
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
        """Freeze inactive conversations. Return their number, and the errors of others. Raises one of UNAVAILABLE.

        A conversation that fails while the object storage works is set aside.
        """
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
        """Remove unneeded objects. Return their number, and the errors of others, which are retried in an hour.

        Raises one of UNAVAILABLE.
        """
        removed, stayed, failures = list[str](), list[str](), list[Exception]()
        for name in self._store.conversations.cold.unneeded(COLD_PART):
            if _is_away(failures):
                break
            try:
                objects.delete(name)
                removed.append(name)
            except Exception as error:  # later objects must not wait
                failures.append(error)
                stayed.append(name)
                if not isinstance(error, ObjectsAway):
                    log.error("the object %s of cold storage cannot be removed", name, exc_info=error)
        self._store.conversations.cold.forget(removed)
        self._store.conversations.cold.postpone(stayed)
        return len(removed), failures

    def _list(self, objects: Objects) -> None:
        """Add the next objects to the register, which may lack them if Redis lost writes. Raises ObjectsAway."""
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
            "cold storage has %d objects; %d belong to no conversation of this Redis, and are kept",
            *(self._number, self._strange),
            extra={"fields": {"objects": self._number, "strange": self._strange}},
        )


def _is_away(failures: list[Exception]) -> bool:
    """Return whether the object storage failed so often that a pass ends."""
    return sum(isinstance(failure, ObjectsAway) for failure in failures) >= _MOST_FAILURES


class Retention:
    """Deletes expired conversations for a supervisor."""

    def __init__(self, store: Store, commands: Commands, settings: KeepingSettings) -> None:
        self._store = store
        self._commands = commands
        self._settings = settings
        self._start: Cursor | None = None

    def sweep(self) -> None:
        """Delete the expired ones of the next RETENTION_PART conversations. After the last it starts over.

        Without a setting it does nothing. Otherwise it costs three round trips, and those of the deletions. Raises one
        of UNAVAILABLE.
        """
        shortest = self._settings.shortest_retention
        if not shortest:
            return
        at = self._store.link.health.clock()  # the clock of Redis, so that a wrong clock of a host deletes nothing
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
            except Exception:  # the next pass retries it, and the others do not wait
                log.exception("the conversation %s cannot be deleted", state["id"])

    def _is_due(self, state: Mapping[str, Any], days: float, at: Micros) -> bool:
        """Return whether nothing has changed for `days` before `at`, and nothing is pending."""
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
        except ConversationNotFound:  # another supervisor or a client was faster
            return
        if is_gone:
            since = utc_time(_rests_since(state))
            log.info("conversation %s was deleted: at rest since %s, it was kept for %g days", state["id"], since, days)


def _rests_since(state: Mapping[str, Any]) -> Micros:
    """Return when a conversation changed last. An import counts from its own time."""
    return max(micros(state["updated_at"]), micros(state.get("imported_at", state["updated_at"])))
