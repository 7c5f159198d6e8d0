"""The list of all conversations, with what a list shows of each: of those in sandboxes and of the detached ones."""

import json
from collections.abc import Sequence
from typing import Any

from redis import Redis

from store.conversations.conversation_pages import VERSION, ConversationPages, Form
from store.keys import APP_FIELD, ConversationKeys
from store.listing import Cursor, Filter, Listing
from store.scripts import Scripts
from wire import ConversationId

#: conversations that are read at once where the listing cannot decide, and how often for one page
READ, MOST_READS = 200, 5

WAITING = "waiting_for_confirmation"

#: fields of a conversation's hash that are text, JSON, or JSON of an app conversation
_TEXTS = ["id", "execution_status", "sandbox_id", "created_at", "updated_at", "seq", "groups", *VERSION]
_JSON = ["title", "tags"]
_OF_APP = ["parent_conversation_id", "llm_model"]
_FIELDS = [*_TEXTS, *_JSON, *(APP_FIELD + name for name in _OF_APP)]


class ConversationList:
    """What a list shows of every conversation, whatever its log, its agent or its settings weigh."""

    def __init__(self, redis: "Redis", scripts: Scripts, listing: Listing) -> None:
        self._redis = redis
        self._listing = listing
        self._pages = ConversationPages(redis, scripts, listing, self.get_many)

    def get_many(self, ids: Sequence[ConversationId]) -> list[dict[str, Any] | None]:
        """Summaries in the order of the ids, None for an id that is unknown.

        A summary has the fields above, `app` and `pending`: the number of actions that wait for a decision. One round
        trip, and another one where a conversation waits.
        """
        with self._redis.pipeline(transaction=False) as pipe:
            for identity in ids:
                pipe.hmget(ConversationKeys(identity).root, _FIELDS)
            replies: list[Any] = pipe.execute() if ids else []
        found = [_read(values) if values[0] else None for values in replies]
        self._count_pending([state for state in found if state and state["execution_status"] == WAITING])
        return found

    def _count_pending(self, waiting: list[dict[str, Any]]) -> None:
        with self._redis.pipeline(transaction=False) as pipe:
            for state in waiting:
                pipe.hvals(ConversationKeys(state["id"]).pending)
            replies: list[Any] = pipe.execute() if waiting else []
        for state, records in zip(waiting, replies, strict=True):
            state["pending"] = sum("decided" not in json.loads(record) for record in records)

    def page(
        self, filters: Filter, form: Form, *, by: str, descending: bool, limit: int, start: Cursor | None
    ) -> tuple[list[bytes], Cursor | None]:
        """One page of summaries in a form, by `created`, `updated` or `title`, and the next page's cursor.

        The cost is that of `ConversationPages.page`; with the filter `tag` that of `Listing.page` and one read, up to
        MOST_READS times. A page may be shorter than the limit and not the last. Each wrong entry of the listing that
        the page meets is corrected.
        """
        if filters.tag is None:
            return self._pages.page(filters, form, by=by, descending=descending, limit=limit, start=start)
        found: list[bytes] = []
        for _ in range(MOST_READS):
            entries, start = self._listing.page(filters, by=by, descending=descending, limit=READ, start=start)
            for entry, state in zip(entries, self.get_many([entry.id for entry in entries]), strict=True):
                self._listing.correct(entry, state)
                if state is None or not filters.passes(state):
                    continue
                if len(found) == limit:
                    return found, (entry.at, entry.id)
                found.append(form.show(state))
            if start is None or len(found) == limit:
                break
        return found, start


def _read(values: list[bytes | None]) -> dict[str, Any]:
    """The summary of a conversation where nothing waits, from the values of its fields."""
    stored = dict(zip(_FIELDS, ((value or b"").decode() for value in values), strict=True))
    summary: dict[str, Any] = {name: stored[name] for name in _TEXTS}
    summary |= {name: json.loads(stored[name]) for name in _JSON}
    app = {name: json.loads(stored[APP_FIELD + name] or "null") for name in _OF_APP}
    return {**summary, "app": app, "pending": 0}
