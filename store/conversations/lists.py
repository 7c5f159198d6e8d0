"""Lists as clients see them: pages and summaries of conversations, and a list as it changes.

What clients see of a conversation is made of its hash, the names of its secrets and its pending actions. Every script
that changes any of that gives the hash another version: it raises `revision`, or `approvals` where nothing but pending
actions changes; another conversation of the same id has another `incarnation`. So the bytes that were made of a version
are right for as long as Redis has that version, which every page asks.

A list as it changes, that of the conversations or that of the sandboxes, is followed from any number of a change. A
change is one per item, whatever happened since: the item as it is when it is read, or that it is gone. So a client that
was away reads at most as many changes as there are items, and items that change all the time are read at most every
READ_SECONDS, for all streams of a process together.

| event     | data                                                                                    |
|-----------|-----------------------------------------------------------------------------------------|
| `reset`   | {reason}: what the client knew is void. `new`: it asked for no change; `dropped`: not   |
|           | all changes after the one that it asked for are held                                    |
| `ready`   | {}: after a reset; a list that the client reads from now on misses nothing of before    |
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
from store.approvals.inbox_stream import Sent
from store.conversation import Conversation, State
from store.errors import UNREADABLE, FellBehind
from store.keys import APP_FIELD, ConversationKeys, ListingKeys, SandboxKeys, changed_channel
from store.link.commands import Redis
from store.link.connection import LazyCluster
from store.link.signals import MAYBE_MISSED
from store.listing import Cursor, Listing, ListingEntry, ListingFilter
from store.log.feed import Feed, FeedEntry, Follower, Followers, Held, Reading
from store.scripts import Scripts

log = logging.getLogger(__name__)

#: conversations that one process remembers to have named
_MOST_NAMED = 1000

_named: OrderedDict[ConversationId, None] = OrderedDict()


#: most bytes that one process keeps of one kind of page, and what an entry costs beside its own bytes
KEPT_BYTES, _ENTRY_BYTES = 16 * 1024 * 1024, 700

#: the fields of a conversation whose values, taken together, no two of its states have
VERSION = ("revision", "incarnation", "approvals")

#: conversations that are read at once where the listing cannot decide, and how often for one page
READ, MOST_READS = 200, 5

WAITING = "waiting_for_confirmation"

#: members of a summary: of every conversation, and of an app conversation
_MEMBERS = ["id", "execution_status", "sandbox_id", "created_at", "updated_at", "seq", "groups", *VERSION]
_OF_APP = ["parent_conversation_id", "llm_model"]
_FIELDS = [*_MEMBERS, "title", "tags", "external", "owner", *(APP_FIELD + name for name in _OF_APP)]
_NAMES = [name.encode() for name in _FIELDS]

#: items that are read at once, and seconds from one reading to the next
PAGE, READ_SECONDS = 200, 0.25


class Damaged:
    """In the place of the state of a conversation that cannot be read, whose entry in the listing stays as it is.

    A page goes on without it, and the log names it. A request for such a conversation alone still fails: there is
    nothing true that it could be answered with.
    """


def readable(conversation_id: ConversationId, read: Callable[..., State], *stored: object) -> State | Damaged:
    """What `read` makes of what is stored: a state; or Damaged, which the log names once for each process."""
    try:
        state = read(*stored)
        int(state["revision"])  # every listing compares it
    except UNREADABLE as error:
        name_in_log(conversation_id, error)
        return Damaged()
    return state


def name_in_log(conversation_id: ConversationId, error: Exception) -> None:
    """Name a conversation that cannot be read in the log, once for each process."""
    if conversation_id not in _named:
        _named[conversation_id] = None
        while len(_named) > _MOST_NAMED:
            _named.popitem(last=False)
        log.error("the conversation %s cannot be read: lists and sweeps pass it over", conversation_id, exc_info=error)


class Form(NamedTuple):
    """What clients see of a conversation: a name, and the bytes that a state has in this form and nothing else."""

    name: str
    show: Callable[[State], bytes]


class _Kept(NamedTuple):
    revision: int
    version: bytes  #: the fields of VERSION, joined by blanks
    raw: bytes


class ConversationPages:
    """Pages of the listing, each conversation in a form."""

    def __init__(
        self,
        redis: Redis,
        listing: Listing,
        read: Callable[[Sequence[ConversationId]], Sequence[State | Damaged | None]],
        kept_bytes: int = KEPT_BYTES,
    ) -> None:
        """read: states by id, None for an unknown one, Damaged for one that is left out."""
        self._redis, self._is_cluster = redis, isinstance(redis, LazyCluster)
        self._listing = listing
        self._read = read
        self._kept: OrderedDict[tuple[str, ConversationId], _Kept] = OrderedDict()
        self._size, self._most = 0, kept_bytes

    def page(
        self, filters: ListingFilter, form: Form, *, by: str, descending: bool, limit: int, start: Cursor | None
    ) -> tuple[list[bytes], Cursor | None]:
        """One page of the conversations that pass the filters, but for `tag` and `kind`; and the next page's cursor.

        Cost: `Listing.page`, and one read of those that this process has not shown before or that have changed; in a
        cluster one round trip more. Each wrong entry of the listing that the page meets is corrected, by one more.
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
            if isinstance(state, Damaged):
                continue
            self._listing.correct(entry, state)
            if state is not None and filters.passes(state):
                shown[entry.id] = self._show(form, state)
        return [shown[entry.id] for entry in entries if entry.id in shown], following

    def _find(self, form: Form, entries: Sequence[ListingEntry]) -> dict[ConversationId, bytes]:
        """What is kept of the entries that are right, by id; not of a conversation that has changed."""
        found = [(entry, self._kept.get((form.name, entry.id))) for entry in entries]
        kept = [(entry, one) for entry, one in found if one is not None and one.revision == entry.revision]
        versions = self._versions([entry for entry, _ in kept]) if kept else []
        shown = {
            entry.id: one.raw for (entry, one), version in zip(kept, versions, strict=True) if one.version == version
        }
        for identity in shown:
            if (form.name, identity) in self._kept:  # while Redis was asked, another request may have dropped it
                self._kept.move_to_end((form.name, identity))
        return shown

    def _versions(self, entries: Sequence[ListingEntry]) -> list[bytes]:
        """What conversations have in the fields of VERSION, joined by blanks. None, or one round trip in a cluster."""
        if not self._is_cluster:
            return [entry.version for entry in entries]
        with self._redis.pipeline(transaction=False) as pipe:
            for entry in entries:
                pipe.hmget(ConversationKeys(entry.id).root, VERSION)
            replies = pipe.execute()
        return [b" ".join(value or b"" for value in values) for values in replies]

    def _show(self, form: Form, state: State) -> bytes:
        raw, key = form.show(state), (form.name, state["id"])
        self._size -= self._cost(self._kept.pop(key, None))
        version = " ".join(state.get(name) or "" for name in VERSION).encode()
        self._kept[key] = kept = _Kept(int(state["revision"]), version, raw)
        self._size += self._cost(kept)
        while self._size > self._most:
            self._size -= self._cost(self._kept.popitem(last=False)[1])
        return raw

    def _cost(self, kept: _Kept | None) -> int:
        return 0 if kept is None else len(kept.raw) + _ENTRY_BYTES


class ConversationList:
    """What a list shows of every conversation, whatever its log, its agent or its settings weigh."""

    def __init__(self, redis: Redis, listing: Listing) -> None:
        self._redis = redis
        self._listing = listing
        self._pages = ConversationPages(redis, listing, self.get_each)

    def get_many(self, ids: Sequence[ConversationId]) -> list[State | None]:
        """As `get_each`, with None also for a conversation that cannot be read."""
        return [None if isinstance(state, Damaged) else state for state in self.get_each(ids)]

    def get_each(self, ids: Sequence[ConversationId]) -> list[State | Damaged | None]:
        """Summaries in the order of the ids, None for an id that is unknown, Damaged as its module says.

        A summary has the fields above, `app` and `pending`: the number of actions that wait for a decision. One round
        trip, and another one where a conversation waits.
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
        self, filters: ListingFilter, form: Form, *, by: str, descending: bool, limit: int, start: Cursor | None
    ) -> tuple[list[bytes], Cursor | None]:
        """One page of summaries in a form, by `created`, `updated` or `title`, and the next page's cursor.

        The cost is that of `ConversationPages.page`; of filters that read, that of `Listing.page` and one read, up to
        MOST_READS times. A page may be shorter than the limit and not the last. Each wrong entry of the listing that
        the page meets is corrected.
        """
        if not filters.is_read:
            return self._pages.page(filters, form, by=by, descending=descending, limit=limit, start=start)
        found: list[bytes] = []
        for _ in range(MOST_READS):
            entries, start = self._listing.page(filters, by=by, descending=descending, limit=READ, start=start)
            for entry, state in zip(entries, self.get_each([entry.id for entry in entries]), strict=True):
                if isinstance(state, Damaged):
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
    """The summary of a conversation where nothing waits, from the values of its fields."""
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


#: reads items by id, None for each that is gone
Load = Callable[[Sequence[Any]], Sequence[Any | None]]

#: an item as clients see it
Show = Callable[[Any], Any]


class ListChange(FeedEntry):
    """The newest change of an item; its bytes are the data of the event."""

    __slots__ = ("id", "name")

    def __init__(self, number: Seq, identity: str, shown: object | None) -> None:
        super().__init__(number, json.dumps({"id": identity} if shown is None else shown).encode())
        self.id = identity
        self.name = "deleted" if shown is None else "changed"


def _read_changes(scripts: Scripts, root: str, after: Seq, most: int) -> tuple[Held, list[tuple[str, Seq]]]:
    """What is held, and the ids that changed after a number, with the number of each. One round trip."""
    found = scripts.read_list_changes(root, number=after, most=most)
    changes = [(one.id, Seq(int(one.number))) for one in found.changes]
    return Held(found.size, Seq(int(found.floor)), Seq(int(found.last))), changes


class ListFeed(Feed):
    """The one reader of a list's changes in this process."""

    def __init__(self, root: str, last: Seq, scripts: Scripts, load: Load, show: Show, ring_bytes: int) -> None:
        super().__init__(changed_channel(root), "", last, ring_bytes)
        self._root = root
        self._scripts = scripts
        self._load = load
        self._show = show
        self._next_read = 0.0

    def page(self, after: Seq) -> tuple[Seq, list[FeedEntry]]:
        """The number of the last change, and the next changes. Raises FellBehind where some are no longer held."""
        held, changes = _read_changes(self._scripts, self._root, after, PAGE)
        if not held.continues(after):
            raise FellBehind
        items = self._load([identity for identity, _ in changes])
        return held.last, [
            ListChange(number, identity, None if item is None else self._show(item))
            for (identity, number), item in zip(changes, items, strict=True)
        ]

    def receive(self, signal: bytes) -> None:
        """Wake a follower to read, unless that change is read already."""
        if signal == MAYBE_MISSED or int(signal) > self.last:
            super().receive(signal)

    def read(self) -> None:
        """Fill the ring, READ_SECONDS after the last time or later. Raises one of UNAVAILABLE."""
        time.sleep(max(0.0, self._next_read - time.monotonic()))
        super().read()
        self._next_read = time.monotonic() + READ_SECONDS


class ListFollower(Reading):
    """The changes of a list, each item's newest one. Close it."""

    def __init__(self, follower: Follower, reset: str) -> None:
        """reset: why the client must read the list, "" where it need not."""
        super().__init__(follower)
        self._reset = reset

    @property
    def seq(self) -> str:
        """The number of the last change that was taken."""
        return str(self._follower.seq)

    def next(self, timeout: float) -> list[Sent]:
        """The next changes as soon as there are any; none at the timeout, which is in seconds.

        Raises FellBehind, Stopping, or one of UNAVAILABLE: after one of UNAVAILABLE it may be called again.
        """
        if self._reset:
            reset, self._reset = json.dumps({"reason": self._reset}).encode(), ""
            return [Sent("reset", reset), Sent("ready", b"{}", self.seq)]
        changes = [change for change in self._follower.next(timeout) if isinstance(change, ListChange)]
        newest = {change.id: change.seq for change in changes}
        return [Sent(change.name, change.raw, str(change.seq)) for change in changes if newest[change.id] == change.seq]


class ListStream:
    """The streams of one list in this process."""

    def __init__(
        self, keys: type[ListingKeys] | type[SandboxKeys], scripts: Scripts, followers: Followers, load: Load
    ) -> None:
        self._keys = keys
        self._scripts = scripts
        self._followers = followers
        self._load = load

    def follow(self, after: int | None, show: Show) -> ListFollower:
        """Follow the list after the change of a number; None: from now on. Raises TooManyFollowers, Stopping.

        show: makes of an item what every client may see; that of the first follower serves all of the process.
        """
        root = self._keys.root
        follower, reset = self._followers.follow_changes(
            None if after is None else Seq(after),
            lambda: _read_changes(self._scripts, root, Seq(0), 0)[0],
            lambda last: ListFeed(root, last, self._scripts, self._load, show, self._followers.ring_bytes),
        )
        return ListFollower(follower, reset)
