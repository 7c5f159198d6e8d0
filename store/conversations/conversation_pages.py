"""Pages of conversations as clients see them: the bytes of each conversation are kept until its state changes.

What clients see of a conversation is made of its hash, the names of its secrets and its pending actions. Every script
that changes any of that gives the hash another version: it raises `revision`, or `approvals` where nothing but pending
actions changes; another conversation of the same id has another `incarnation`. So the bytes that were made of a version
are right for as long as Redis has that version, which every page asks.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from redis import Redis

from store.keys import ConversationKeys
from store.link.cluster import LazyCluster
from store.listing import Cursor, Entry, Filter, Listing
from store.scripts import Scripts
from wire import ConversationId

#: most bytes that one process keeps of one kind of page, and what an entry costs beside its own bytes
KEPT_BYTES, _ENTRY_BYTES = 16 * 1024 * 1024, 700

State = Mapping[str, Any]

#: the fields of a conversation whose values, taken together, no two of its states have
VERSION = ("revision", "incarnation", "approvals")


class Form(NamedTuple):
    """What clients see of a conversation: a name, and the bytes that a state has in this form and nothing else."""

    name: str
    show: Callable[[State], bytes]


class _Kept(NamedTuple):
    revision: int
    version: bytes  #: the fields of VERSION, joined by blanks
    root: str  #: the key that has them
    raw: bytes


class ConversationPages:
    """Pages of the listing, each conversation in a form."""

    def __init__(
        self,
        redis: "Redis",
        scripts: Scripts,
        listing: Listing,
        read: Callable[[Sequence[ConversationId]], Sequence[State | None]],
        kept_bytes: int = KEPT_BYTES,
    ) -> None:
        """read: states by id, None for an unknown one."""
        self._redis = redis
        self._scripts = scripts
        self._listing = listing
        self._read = read
        self._kept: OrderedDict[tuple[str, ConversationId], _Kept] = OrderedDict()
        self._size, self._most = 0, kept_bytes

    def page(
        self, filters: Filter, form: Form, *, by: str, descending: bool, limit: int, start: Cursor | None
    ) -> tuple[list[bytes], Cursor | None]:
        """One page of the conversations that pass the filters, but for `tag`; and the next page's cursor.

        Cost: `Listing.page`, one round trip for those that this process has shown before, and one read of those that it
        has not or that have changed. Each wrong entry of the listing that the page meets is corrected, by one more.
        """
        entries, following = self._listing.page(filters, by=by, descending=descending, limit=limit, start=start)
        shown = self._find(form, entries)
        others = [entry for entry in entries if entry.id not in shown]
        states = self._read([entry.id for entry in others]) if others else []
        for entry, state in zip(others, states, strict=True):
            self._listing.correct(entry, state)
            if state is not None and filters.passes(state):
                shown[entry.id] = self._show(form, state)
        return [shown[entry.id] for entry in entries if entry.id in shown], following

    def _find(self, form: Form, entries: Sequence[Entry]) -> dict[ConversationId, bytes]:
        """What is kept of the entries that are right, by id; not of a conversation that has changed."""
        found = [(entry.id, self._kept.get((form.name, entry.id))) for entry in entries]
        kept = [
            (identity, one)
            for (identity, one), entry in zip(found, entries, strict=True)
            if one is not None and one.revision == entry.revision
        ]
        versions = self._versions([one.root for _, one in kept]) if kept else []
        shown = {
            identity: one.raw for (identity, one), version in zip(kept, versions, strict=True) if one.version == version
        }
        for identity in shown:
            if (form.name, identity) in self._kept:  # while Redis was asked, another request may have dropped it
                self._kept.move_to_end((form.name, identity))
        return shown

    def _versions(self, roots: list[str]) -> list[bytes]:
        """What conversations have now in the fields of VERSION, joined by blanks. One round trip."""
        if not isinstance(self._redis, LazyCluster):
            return list(self._scripts.read_versions(roots, list(VERSION)))
        with self._redis.pipeline(transaction=False) as pipe:
            for root in roots:
                pipe.hmget(root, VERSION)
            replies: list[Any] = pipe.execute()
        return [b" ".join(value or b"" for value in values) for values in replies]

    def _show(self, form: Form, state: State) -> bytes:
        raw, key = form.show(state), (form.name, state["id"])
        self._size -= self._cost(self._kept.pop(key, None))
        version = " ".join(state.get(name) or "" for name in VERSION).encode()
        self._kept[key] = kept = _Kept(int(state["revision"]), version, ConversationKeys(state["id"]).root, raw)
        self._size += self._cost(kept)
        while self._size > self._most:
            self._size -= self._cost(self._kept.popitem(last=False)[1])
        return raw

    def _cost(self, kept: _Kept | None) -> int:
        return 0 if kept is None else len(kept.raw) + _ENTRY_BYTES
