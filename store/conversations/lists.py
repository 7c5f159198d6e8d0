"""Lists as clients see them: pages and summaries of conversations, and streams of a list's changes.

Clients see a conversation's hash, the names of its secrets and its pending actions. Every script that changes any of
these changes the version of the hash: `revision`, or `approvals` if only pending actions change; another conversation
of the same id has another `incarnation`. Bytes that were rendered from a version are valid while Redis has that
version, and every page checks it.

The list of conversations, or that of sandboxes, is followed from the number of a change. There is one change per item:
its current state when it is read, or its deletion. A client that was away reads at most one change per item. Items that
change constantly are read at most every READ_SECONDS, for all streams of a process together.

| event     | data                                                                                    |
|-----------|-----------------------------------------------------------------------------------------|
| `reset`   | {reason}: the client's state is void. `new`: it named no change; `dropped`: some        |
|           | changes after the named one are no longer stored                                        |
| `ready`   | {}: after a reset; the client must read the list now, and misses nothing                |
| `changed` | the item, also a new one                                                                |
| `deleted` | {id}                                                                                    |
"""

import json
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from core.wire import ConversationId, Seq
from store.approvals.inbox_stream import InboxStreamEvent
from store.conversation import Conversation, State
from store.errors import UNREADABLE, FellBehind
from store.keys import APP_FIELD, ConversationKeys, ListingKeys, SandboxKeys, changed_channel
from store.link.commands import Redis
from store.link.connection import LazyCluster
from store.link.signals import MAYBE_MISSED
from store.listing import Cursor, Listing, ListingEntry, ListingFilter
from store.log.feed import Feed, FeedEntry, Follower, Followers, Reading, StoredChanges
from store.scripts import Scripts

log = logging.getLogger(__name__)

#: Maximum number of corrupt conversations that a process remembers to have logged.
_MOST_NAMED = 1000

_named: OrderedDict[ConversationId, None] = OrderedDict()


#: Maximum size of the cache for one kind of page, and overhead of an entry, in bytes.
KEPT_BYTES, _ENTRY_BYTES = 16 * 1024 * 1024, 700

#: Fields whose values together identify a state of a conversation.
VERSION = ("revision", "incarnation", "approvals")

#: Number of conversations that are read at once if the listing cannot filter, and maximum number of reads per page.
READ, MOST_READS = 200, 5

WAITING = "waiting_for_confirmation"

#: Members of a summary: of every conversation, and of an app conversation.
_MEMBERS = ["id", "execution_status", "sandbox_id", "created_at", "updated_at", "seq", "groups", *VERSION]
_OF_APP = ["parent_conversation_id", "llm_model"]
_FIELDS = [*_MEMBERS, "title", "tags", "external", "owner", *(APP_FIELD + name for name in _OF_APP)]
_NAMES = [name.encode() for name in _FIELDS]

#: Number of items per read, and minimum seconds between two reads.
PAGE, READ_SECONDS = 200, 0.25


class DamagedConversation:
    """Placeholder for a conversation whose record is corrupt. Its entry in the listing stays.

    Pages omit it, and it is logged. A request for the conversation itself fails, because no true response is possible.
    """


def readable(
    conversation_id: ConversationId, read: Callable[..., State], *stored: object
) -> State | DamagedConversation:
    """Return the state that `read` makes of stored data; DamagedConversation if corrupt, logged once per process."""
    try:
        state = read(*stored)
        int(state["revision"])  # every listing compares it
    except UNREADABLE as error:
        name_in_log(conversation_id, error)
        return DamagedConversation()
    return state


def name_in_log(conversation_id: ConversationId, error: Exception) -> None:
    """Log a corrupt conversation, once per process."""
    if conversation_id not in _named:
        _named[conversation_id] = None
        while len(_named) > _MOST_NAMED:
            _named.popitem(last=False)
        log.error("the conversation %s cannot be read: lists and sweeps pass it over", conversation_id, exc_info=error)


class ConversationForm(NamedTuple):
    """A representation of conversations: its name, and the function that renders a state to bytes for clients.

    The bytes depend on nothing but the state.
    """

    name: str
    show: Callable[[State], bytes]


class _CachedItem(NamedTuple):
    revision: int
    version: bytes  #: the fields of VERSION, joined by spaces
    raw: bytes


class ConversationPages:
    """Pages of the listing, with each conversation rendered in a form."""

    def __init__(
        self,
        redis: Redis,
        listing: Listing,
        read: Callable[[Sequence[ConversationId]], Sequence[State | DamagedConversation | None]],
        kept_bytes: int = KEPT_BYTES,
    ) -> None:
        """read: returns states by id, None for an unknown one, DamagedConversation for one to omit."""
        self._redis, self._is_cluster = redis, isinstance(redis, LazyCluster)
        self._listing = listing
        self._read = read
        self._kept: OrderedDict[tuple[str, ConversationId], _CachedItem] = OrderedDict()
        self._size, self._most = 0, kept_bytes

    def page(
        self,
        filters: ListingFilter,
        form: ConversationForm,
        *,
        by: str,
        descending: bool,
        limit: int,
        start: Cursor | None,
    ) -> tuple[list[bytes], Cursor | None]:
        """Return a page of the conversations that pass the filters, except `tag` and `kind`; and the next cursor.

        Cost: `Listing.page`, one read of conversations that are new to this process or have changed, and one round trip
        per wrong entry of the listing, which is corrected; in a cluster one more.
        """
        entries, following = self._listing.page(
            filters,
            by=by,
            descending=descending,
            limit=limit,
            start=start,
            version=() if self._is_cluster else VERSION,
        )
        shown = self._find(form, entries)
        others = [entry for entry in entries if entry.id not in shown]
        states = self._read([entry.id for entry in others]) if others else []
        for entry, state in zip(others, states, strict=True):
            if isinstance(state, DamagedConversation):
                continue
            self._listing.correct(entry, state)
            if state is not None and filters.passes(state):
                shown[entry.id] = self._show(form, state)
        return [shown[entry.id] for entry in entries if entry.id in shown], following

    def _find(self, form: ConversationForm, entries: Sequence[ListingEntry]) -> dict[ConversationId, bytes]:
        """Return the cached bytes of unchanged conversations, by id."""
        found = [(entry, self._kept.get((form.name, entry.id))) for entry in entries]
        kept = [(entry, one) for entry, one in found if one is not None and one.revision == entry.revision]
        versions = self._versions([entry for entry, _ in kept]) if kept else []
        shown = {
            entry.id: one.raw for (entry, one), version in zip(kept, versions, strict=True) if one.version == version
        }
        for identity in shown:
            if (form.name, identity) in self._kept:  # another request may have dropped it during the round trip
                self._kept.move_to_end((form.name, identity))
        return shown

    def _versions(self, entries: Sequence[ListingEntry]) -> list[bytes]:
        """Return the fields of VERSION of conversations, joined by spaces. No round trip; in a cluster one."""
        if not self._is_cluster:
            return [entry.version for entry in entries]
        with self._redis.pipeline(transaction=False) as pipe:
            for entry in entries:
                pipe.hmget(ConversationKeys(entry.id).root, VERSION)
            replies = pipe.execute()
        return [b" ".join(value or b"" for value in values) for values in replies]

    def _show(self, form: ConversationForm, state: State) -> bytes:
        raw, key = form.show(state), (form.name, state["id"])
        self._size -= self._cost(self._kept.pop(key, None))
        version = " ".join(state.get(name) or "" for name in VERSION).encode()
        self._kept[key] = kept = _CachedItem(int(state["revision"]), version, raw)
        self._size += self._cost(kept)
        while self._size > self._most:
            self._size -= self._cost(self._kept.popitem(last=False)[1])
        return raw

    def _cost(self, kept: _CachedItem | None) -> int:
        return 0 if kept is None else len(kept.raw) + _ENTRY_BYTES


class ConversationList:
    """Summaries of conversations, whose cost does not depend on log, agent and settings."""

    def __init__(self, redis: Redis, listing: Listing) -> None:
        self._redis = redis
        self._listing = listing
        self._pages = ConversationPages(redis, listing, self.get_each)

    def get_many(self, ids: Sequence[ConversationId]) -> list[State | None]:
        """Return summaries as `get_each`, but None for a corrupt conversation."""
        return [None if isinstance(state, DamagedConversation) else state for state in self.get_each(ids)]

    def get_each(self, ids: Sequence[ConversationId]) -> list[State | DamagedConversation | None]:
        """Return summaries in the order of the ids, None for an unknown id, DamagedConversation for a corrupt one.

        A summary has the fields above, `app`, and `pending`: the number of actions that wait for a decision. One round
        trip, and another one if a conversation waits.
        """
        with self._redis.pipeline(transaction=False) as pipe:
            for identity in ids:
                pipe.hmget(ConversationKeys(identity).root, _FIELDS)
            replies = pipe.execute() if ids else []
        found = [
            readable(one, _summary, values) if values[0] else None for one, values in zip(ids, replies, strict=True)
        ]
        states = [(at, state) for at, state in enumerate(found) if isinstance(state, dict)]
        waiting = [(at, state) for at, state in states if state["execution_status"] == WAITING]
        with self._redis.pipeline(transaction=False) as pipe:
            for at, _ in waiting:
                pipe.hvals(ConversationKeys(ids[at]).pending)
            counted = pipe.execute() if waiting else []
        for (at, state), records in zip(waiting, counted, strict=True):
            found[at] = readable(ids[at], _with_pending, state, records)
        return found

    def page(
        self,
        filters: ListingFilter,
        form: ConversationForm,
        *,
        by: str,
        descending: bool,
        limit: int,
        start: Cursor | None,
    ) -> tuple[list[bytes], Cursor | None]:
        """Return a page of rendered summaries by `created`, `updated` or `title`, and the next cursor.

        Cost: `ConversationPages.page`. Filters that must read conversations: `Listing.page` and one read, up to
        MOST_READS times. A page may be shorter than the limit without being the last. Each wrong entry of the listing
        on the page is corrected.
        """
        if not filters.is_read:
            return self._pages.page(filters, form, by=by, descending=descending, limit=limit, start=start)
        found: list[bytes] = []
        for _ in range(MOST_READS):
            entries, start = self._listing.page(filters, by=by, descending=descending, limit=READ, start=start)
            for entry, state in zip(entries, self.get_each([entry.id for entry in entries]), strict=True):
                if isinstance(state, DamagedConversation):
                    continue
                self._listing.correct(entry, state)
                if state is None or not filters.passes(state):
                    continue
                if len(found) == limit:
                    return found, (entry.at, entry.id)
                found.append(form.show(state))
            if start is None or len(found) == limit:
                break
        return found, start


def _summary(values: list[bytes | None]) -> State:
    """Make the summary of a conversation without pending actions from its fields."""
    stored = {name: value for name, value in zip(_NAMES, values, strict=True) if value is not None}
    found = Conversation.members(stored)
    app = {name: found["app"].get(name) for name in _OF_APP}
    return {name: found.get(name, "") for name in _MEMBERS} | {
        "title": found["title"],
        "tags": found["tags"],
        "external": found.get("external"),
        "owner": stored.get(b"owner", b"").decode() or None,
        "app": app,
        "pending": 0,
    }


def _with_pending(summary: State, records: list[bytes]) -> State:
    return {**summary, "pending": sum("decided" not in json.loads(record) for record in records)}


#: Reads items by id, with None for a deleted item.
Load = Callable[[Sequence[Any]], Sequence[Any | None]]

#: Renders an item for clients.
Show = Callable[[Any], Any]


class ListChange(FeedEntry):
    """The newest change of an item. Its bytes are the data of the event."""

    __slots__ = ("id", "name")

    def __init__(self, number: Seq, identity: str, shown: object | None) -> None:
        super().__init__(number, json.dumps({"id": identity} if shown is None else shown).encode())
        self.id = identity
        self.name = "deleted" if shown is None else "changed"


def _read_changes(scripts: Scripts, root: str, after: Seq, most: int) -> tuple[StoredChanges, list[tuple[str, Seq]]]:
    """Return which changes are stored, and the ids that changed after a number, with their numbers. One round trip."""
    found = scripts.read_list_changes(root, number=after, most=most)
    changes = [(one.id, Seq(int(one.number))) for one in found.changes]
    return StoredChanges(found.size, Seq(int(found.floor)), Seq(int(found.last))), changes


class ListFeed(Feed):
    """The only reader of a list's changes in this process."""

    def __init__(self, root: str, last: Seq, scripts: Scripts, load: Load, show: Show, ring_bytes: int) -> None:
        super().__init__(changed_channel(root), "", last, ring_bytes)
        self._root = root
        self._scripts = scripts
        self._load = load
        self._show = show
        self._next_read = 0.0

    def page(self, after: Seq) -> tuple[Seq, list[FeedEntry]]:
        """Return the number of the last change, and the next changes.

        Raises FellBehind if some are no longer stored.
        """
        held, changes = _read_changes(self._scripts, self._root, after, PAGE)
        if not held.continues(after):
            raise FellBehind
        items = self._load([identity for identity, _ in changes])
        return held.last, [
            ListChange(number, identity, None if item is None else self._show(item))
            for (identity, number), item in zip(changes, items, strict=True)
        ]

    def receive(self, signal: bytes) -> None:
        """Wake a follower to read, unless that change has been read."""
        if signal == MAYBE_MISSED or int(signal) > self.last:
            super().receive(signal)

    def read(self) -> None:
        """Fill the ring, at least READ_SECONDS after the last time. Raises one of UNAVAILABLE."""
        time.sleep(max(0.0, self._next_read - time.monotonic()))
        super().read()
        self._next_read = time.monotonic() + READ_SECONDS


class ListFollower(Reading):
    """The changes of a list, only the newest of each item. Close it."""

    def __init__(self, follower: Follower, reset: str) -> None:
        """reset: why the client must read the list; "": it need not."""
        super().__init__(follower)
        self._reset = reset

    @property
    def seq(self) -> str:
        """Return the number of the last change that was taken."""
        return str(self._follower.seq)

    def next(self, timeout: float) -> list[InboxStreamEvent]:
        """Return the next changes as soon as there are any; none on timeout, in seconds.

        Raises FellBehind, Stopping, or one of UNAVAILABLE. After the latter it may be called again.
        """
        if self._reset:
            reset, self._reset = json.dumps({"reason": self._reset}).encode(), ""
            return [InboxStreamEvent("reset", reset), InboxStreamEvent("ready", b"{}", self.seq)]
        changes = [change for change in self._follower.next(timeout) if isinstance(change, ListChange)]
        newest = {change.id: change.seq for change in changes}
        return [
            InboxStreamEvent(change.name, change.raw, str(change.seq))
            for change in changes
            if newest[change.id] == change.seq
        ]


class ListStream:
    def __init__(
        self, keys: type[ListingKeys] | type[SandboxKeys], scripts: Scripts, followers: Followers, load: Load
    ) -> None:
        self._keys = keys
        self._scripts = scripts
        self._followers = followers
        self._load = load

    def follow(self, after: int | None, show: Show) -> ListFollower:
        """Follow the list after a change; None: from now on. Raises TooManyFollowers, Stopping.

        show: renders an item for all clients; the first follower's function serves the whole process.
        """
        root = self._keys.root
        follower, reset = self._followers.follow_changes(
            None if after is None else Seq(after),
            lambda: _read_changes(self._scripts, root, Seq(0), 0)[0],
            lambda last: ListFeed(root, last, self._scripts, self._load, show, self._followers.ring_bytes),
        )
        return ListFollower(follower, reset)
