"""Deletes conversations that have rested for as long as the settings keep them. Source: docs/keeping.md.

Every supervisor sweeps, with a cursor of its own and no lease: a script deletes a conversation only while nothing has
changed in it since its age was read, so two that meet delete it once.
"""

import logging
from collections.abc import Mapping
from typing import Any

from agents.commands import Commands
from agents.deletions import delete_unchanged
from settings.keeping import KeepingSettings
from store import Store
from store.errors import ConversationNotFound
from store.listing import Cursor, Filter
from wire import ConversationId, Micros, micros, now, utc_time

log = logging.getLogger("supervisor")

#: conversations that one sweep looks at, the longest unchanged first
PART = 100

_DAY = 86_400_000_000

#: statuses in which an agent works or a decision is due
_BUSY = ("running", "waiting_for_confirmation")


class Retention:
    """What one supervisor deletes for its age."""

    def __init__(self, store: Store, commands: Commands, settings: KeepingSettings) -> None:
        self._store = store
        self._commands = commands
        self._settings = settings
        self._start: Cursor | None = None

    def sweep(self) -> None:
        """Delete those of the next PART conversations that are due; after the last one it begins again.

        Without a setting it asks nothing. Otherwise two round trips, and those of the deletions.
        """
        shortest = self._settings.shortest_retention
        if not shortest:
            return
        filters = Filter(updated_until=Micros(round(now() - shortest * _DAY)))
        found, following = self._store.conversations.page(
            filters, by="updated", descending=False, limit=PART, start=self._start
        )
        for state in found:
            days = self._settings.retention_of(state["tags"])
            if days and self._is_due(state, days):
                self._delete(state, days)
        self._start = following

    def _is_due(self, state: Mapping[str, Any], days: float) -> bool:
        """Whether nothing has changed for so many days, and nobody waits for anything."""
        conversation_id = ConversationId(state["id"])
        return (
            _rests_since(state) <= now() - days * _DAY
            and state["execution_status"] not in _BUSY
            and not state.get("delivery_id")
            and next(self._store.app_conversations.children(conversation_id), None) is None
            and not self._store.queued_messages.waiting_for(conversation_id)
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
