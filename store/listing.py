"""The listing of all conversations, in a slot of its own. Every change is listed before it is acknowledged.

If one server has all keys, the script that changes a conversation also lists it (`scripts/_follow.lua`). In a cluster
its caller does so. A change that a killed worker did not list was not acknowledged then, and the client's retry lists
it.

An entry never returns to an older revision, and a removed entry stays removed, even if a write that ran beside the
deletion is listed after it. Otherwise a deleted conversation would count as present and keep its sandbox. A search
corrects the entries that it reads.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from core.wire import ConversationId, ConversationKind, Micros, has_tag, micros
from store.keys import ListingKeys
from store.link.commands import Redis
from store.scripts import Scripts

#: Maximum number of entries that a script scans, 1,000 at most, and that all scripts of a page scan.
SCAN_CHUNK, MOST_SCANNED = 1000, 5000

#: Characters that a folded title replaces: NUL and lone surrogates.
_UNFIT = re.compile("[\0\ud800-\udfff]")

#: The cursor of a page: the time or the folded title of its first conversation, and its id.
Cursor = tuple[Micros | str, ConversationId]


_TIMES = ("created_since", "created_until", "updated_since", "updated_until")


class ListingEntry(NamedTuple):
    """A conversation of a page."""

    id: ConversationId
    at: Micros | str  #: sort key: a time, or the folded title
    revision: int
    version: bytes = b""  #: values of the requested fields, joined by spaces


@dataclass(frozen=True, slots=True)
class ListingFilter:
    """A filter of conversations. Absent members let all pass.

    The narrowest list is read: of the group, or else of the single status. The listing's index applies the other
    members, except `tag` and `kind`. For these, the caller reads the conversations and calls `passes`.
    """

    group: str | None = None  #: see `store/keys.toml`
    statuses: tuple[str, ...] = ()  #: any of these
    title: str | None = None  #: case-insensitive substring of the title
    top: bool = False  #: only conversations without a parent
    created_since: Micros | None = None
    created_until: Micros | None = None
    updated_since: Micros | None = None
    updated_until: Micros | None = None
    tag: tuple[str, str | None] | None = None  #: name and value of a tag; None: any value
    kind: ConversationKind | None = None

    @property
    def is_read(self) -> bool:
        """Return whether the filter needs the conversation itself."""
        return self.tag is not None or self.kind is not None

    def among(self, by: str) -> str | None:
        """Return the list that has all matches in an order. There is no list of a status by title."""
        return self.group or (self.statuses[0] if len(self.statuses) == 1 and by != "title" else None)

    def arguments(self, by: str) -> dict[str, str]:
        """Return the filters for `page_conversations.lua`; all are "" if everything in the list matches."""
        times = {name: getattr(self, name) for name in _TIMES}
        return {
            "statuses": "" if self.among(by) in self.statuses else ",".join(self.statuses),
            "part": folded(self.title),
            "top": "top" if self.top else "",
            **{name: "" if time is None else str(time) for name, time in times.items()},
        }

    def passes(self, state: Mapping[str, Any]) -> bool:
        return (
            (not self.statuses or state["execution_status"] in self.statuses)
            and (self.tag is None or has_tag(state["tags"], *self.tag))
            and self.kind in (None, kind_of(state))
            and folded(self.title) in folded(state["title"])
            and (not self.top or not state["app"].get("parent_conversation_id"))
            and _within(state["created_at"], self.created_since, self.created_until)
            and _within(state["updated_at"], self.updated_since, self.updated_until)
        )


def kind_of(state: Mapping[str, Any]) -> ConversationKind:
    """Return where the agent of a conversation runs."""
    return "external" if state.get("external") else "sandbox" if state.get("sandbox_id") else "detached"


def _within(time: str, since: Micros | None, until: Micros | None) -> bool:
    return (since is None or micros(time) >= since) and (until is None or micros(time) < until)


def folded(title: str | None) -> str:
    """Fold a title for sorting and searching: without case, in UTF-8, without NUL, which ends titles in the index."""
    return _UNFIT.sub("\N{REPLACEMENT CHARACTER}", (title or "").casefold())


class Listing:
    """The orders of all conversations by creation, last change and title, also per group; and by time per status."""

    def __init__(self, redis: Redis, scripts: Scripts) -> None:
        self._redis = redis
        self._scripts = scripts

    def note(
        self,
        conversation_id: ConversationId,
        revision: int,
        status: str,
        created_at: str,
        updated_at: str,
        groups: str = "",
        title: str | None = None,
    ) -> None:
        """Enter or move a conversation. groups: further lists, joined by commas. One round trip."""
        self._scripts.note_conversation(
            ListingKeys.root,
            id=conversation_id,
            revision=revision,
            status=status,
            created=micros(created_at),
            updated=micros(updated_at),
            groups=groups,
            title=folded(title),
        )

    def forget(self, conversation_id: ConversationId, revision: int) -> None:
        """Remove a conversation, unless a later revision is listed. One round trip."""
        self._scripts.note_conversation(
            ListingKeys.root,
            id=conversation_id,
            revision=revision,
            status="",
            created=0,
            updated=0,
            groups="",
            title="",
        )

    def correct(self, entry: ListingEntry, state: Mapping[str, Any] | None) -> None:
        """Update an entry from the state of its conversation, None if it is deleted.

        One round trip, none if they agree. A worker that was killed before it listed a change leaves a stale entry.
        """
        if state is None:
            self.forget(entry.id, entry.revision)
        elif int(state["revision"]) != entry.revision:
            words = (state[name] for name in ("execution_status", "created_at", "updated_at", "groups", "title"))
            self.note(entry.id, int(state["revision"]), *words)

    def page(
        self,
        filters: ListingFilter,
        *,
        by: str,
        descending: bool,
        limit: int,
        start: Cursor | None,
        version: Sequence[str] = (),
    ) -> tuple[list[ListingEntry], Cursor | None]:
        """Return a page of conversations, ordered by `created`, `updated` or `title`, and the next cursor.

        version: fields whose values to return too.

        One round trip. With filters at most MOST_SCANNED entries are scanned, in at most MOST_SCANNED / SCAN_CHUNK
        round trips. A page may be shorter than the limit without being the last.
        """
        found: list[ListingEntry] = []
        for _ in range(MOST_SCANNED // SCAN_CHUNK):
            entries, start = self._page(filters, by, descending, limit - len(found), start, version)
            found += entries
            if start is None or len(found) == limit:
                break
        return found, start

    def count(self, filters: ListingFilter) -> int:
        """Return the number of conversations that pass.

        One round trip for a list, or for a list and one range of time. Other filters scan all entries of the list,
        without reading conversations: one round trip per SCAN_CHUNK.
        """
        others = {name: time for name, time in _ranges(filters).items() if time != (None, None)}
        narrows = any(word for name, word in filters.arguments("created").items() if name not in _TIMES)
        if not narrows and len(others) < 2:
            by, (since, until) = next(iter(others.items()), ("created", (None, None)))
            least, most = "-inf" if since is None else since, "+inf" if until is None else f"({until}"
            return self._redis.zcount(ListingKeys.index(by, filters.among(by)), least, most)
        number, start = 0, None
        while True:
            entries, start = self._page(filters, "created", True, SCAN_CHUNK, start)
            number += len(entries)
            if start is None:
                return number

    def members(self, groups: list[str], most: int) -> list[list[ConversationId]]:
        """Return the oldest conversations of each group, in one round trip."""
        with self._redis.pipeline(transaction=False) as pipe:
            for group in groups:
                pipe.zrange(ListingKeys.index("created", group), 0, most - 1)
            found = pipe.execute() if groups else []
        return [[ConversationId(identity.decode()) for identity in members] for members in found]

    def _page(
        self,
        filters: ListingFilter,
        by: str,
        descending: bool,
        most: int,
        start: Cursor | None,
        version: Sequence[str] = (),
    ) -> tuple[list[ListingEntry], Cursor | None]:
        """Return the entries that one script finds, and the next cursor."""
        words = filters.arguments(by)
        at, identity = _entered(filters, by, descending, start) or ("", "")
        page = self._scripts.page_conversations(
            ListingKeys.root,
            by=by,
            among=filters.among(by) or "",
            order="desc" if descending else "asc",
            most=most,
            scan=SCAN_CHUNK if any(words.values()) else most + 1,
            cursor=str(at),
            cursor_id=identity,
            version=version,
            **words,
        )
        entries = [
            ListingEntry(ConversationId(one.id), _place(by, one.place), one.revision, one.version)
            for one in page.entries
        ]
        if not page.following:
            return entries, None
        place, last = page.following
        return entries, (_place(by, place), ConversationId(last.decode()))


def _ranges(filters: ListingFilter) -> dict[str, tuple[Micros | None, Micros | None]]:
    return {
        "created": (filters.created_since, filters.created_until),
        "updated": (filters.updated_since, filters.updated_until),
    }


def _entered(filters: ListingFilter, by: str, descending: bool, start: Cursor | None) -> tuple[object, str] | None:
    """Return the cursor at which a page begins: not before the range of its order."""
    since, until = _ranges(filters).get(by, (None, None))
    edge, at = (until if descending else since), start and start[0]
    if edge is None or (at is not None and (at < edge if descending else at >= edge)):  # type: ignore[operator]
        return start
    return edge, ""


def _place(by: str, stored: bytes) -> Micros | str:
    """Return the time or the folded title that orders an entry."""
    return stored.decode() if by == "title" else Micros(int(float(stored)))
