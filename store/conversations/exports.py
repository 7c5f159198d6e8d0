"""Whole conversations, out of the store and into it. What a line of an export is: `schemas/exports.py`."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from store.bounds import Bounds
from store.conversations.conversations import Conversations
from store.conversations.copies import PAGE, Copy, policy_fields
from store.errors import ConversationNotFound, IdInUse, StoreError, TooManyKinds
from store.keys import ConversationKeys
from store.link.attempts import minted
from store.link.stamps import Stamp
from store.listing import Listing
from store.log.feed import read_log
from store.log.frames import originals
from store.scripts import Scripts
from wire import ConversationId, Event, Micros, Seq, utc_time

#: pairs of kind and source beyond MAX_EVENT_KINDS that the server's own events may have brought
_OWN_PAIRS = 5

#: bytes of events after which a page is written, also with less than PAGE events
_PAGE_BYTES = 256 * 1024

#: statuses that need no agent; in any other one an import is paused
_AT_REST = ("idle", "paused", "finished", "error", "stuck")


class RepeatedEvent(StoreError):
    """Two events of an import have the same id."""

    def __init__(self, seq: Seq, event_id: str) -> None:
        super().__init__(f"An earlier event has the id {event_id!r}")
        self.seq = seq  #: of the later one


class Exports:
    """Exports and imports of conversations."""

    def __init__(self, scripts: Scripts, listing: Listing, conversations: Conversations, bounds: Bounds) -> None:
        self._scripts = scripts
        self._listing = listing
        self._conversations = conversations
        self._most_pairs = bounds.event_kinds + _OWN_PAIRS
        self._bounds = bounds

    def pages(self, state: Mapping[str, Any]) -> Iterator[list[bytes]]:
        """The events of a conversation up to the end that its state tells, in log order; a page in memory at a time.

        Raises ConversationNotFound when it is deleted meanwhile.
        """
        seq, last = Seq(0), Seq(int(state["seq"]))
        while seq < last:
            incarnation, _, events = read_log(self._scripts, state["id"], seq, min(PAGE, last - seq))
            if incarnation.decode() != state["incarnation"]:
                raise ConversationNotFound
            yield events
            seq = Seq(seq + len(events))

    def load(self, conversation_id: ConversationId, head: Mapping[str, Any], events: Iterable[Event]) -> bool:
        """Make a conversation of its head (`schemas.exports.ExportHead`) and its events, in their order; True if this
        call made it, False if the conversation exists and its log begins with these very events.

        It is detached: no agent runs it, nothing waits in it, and it has no secrets. Readers see all of it or nothing;
        where this raises, or the process ends, nothing is left of it after an hour.
        Raises IdInUse of any other conversation of the id, RepeatedEvent, TooManyKinds, TimeoutError, and what
        `events` raises.
        """
        stamp = Stamp.now()
        copy = Copy(self._scripts, ConversationKeys(conversation_id, str(minted("import"))), stamp)
        try:
            copy.append([])
            self._fill(copy, events)
            if copy.adopt(self._listing, _fields(conversation_id, head, stamp.at)):
                return True
            if not self._has(copy, head["created_at"]):
                raise IdInUse
            return False
        finally:  # of an adopted copy no key is left under these names
            self._scripts.drop_copy([copy.keys.root], [])

    def _fill(self, copy: Copy, events: Iterable[Event]) -> None:
        page, size, known_pairs = list[Event](), 0, set[tuple[str, str]]()
        for event in events:
            known_pairs.add((event.kind, event.source))
            if len(known_pairs) > self._most_pairs:
                raise TooManyKinds(self._bounds.event_kinds)
            page.append(event)
            size += len(event.raw)
            if len(page) == PAGE or size >= _PAGE_BYTES:
                self._append(copy, page)
                page, size = [], 0
        if page:
            self._append(copy, page)

    def _append(self, copy: Copy, page: list[Event]) -> None:
        before, ids = copy.seq, set[str]()
        for seq, event in enumerate(page, before + 1):
            if event.id in ids:
                raise RepeatedEvent(Seq(seq), event.id)
            ids.add(event.id)
        copy.append(page)
        if copy.seq == before + len(page):
            return
        seqs = self._scripts.find_events([copy.keys.root], [event.id for event in page])
        for seq, (event, known) in enumerate(zip(page, seqs or (), strict=False), before + 1):
            if known != seq:
                raise RepeatedEvent(Seq(seq), event.id)

    def _has(self, copy: Copy, created_at: Micros) -> bool:
        """Whether the conversation of the id was made at that time, and its log begins with the events of a copy."""
        [state] = self._conversations.get_many([copy.keys.id])
        if state is None or state["created_at"] != utc_time(created_at):
            return False
        roots, seq = (copy.keys.root, ConversationKeys(copy.keys.id).root), Seq(0)
        while seq < copy.seq:
            args = [seq, min(PAGE, copy.seq - seq), _PAGE_BYTES]
            ours, theirs = (self._scripts.read_log([root], args) for root in roots)
            if ours is None or theirs is None or originals(ours[2:]) != originals(theirs[2:]):
                return False
            seq = Seq(seq + len(ours) - 2)
        return True


def _fields(conversation_id: ConversationId, head: Mapping[str, Any], revision: Micros) -> dict[str, str]:
    """The fields of the hash of an imported conversation."""
    fields = {
        "id": conversation_id,
        "revision": str(revision),
        "execution_status": head["execution_status"] if head["execution_status"] in _AT_REST else "paused",
        "created_at": utc_time(head["created_at"]),
        "updated_at": utc_time(head["updated_at"]),
        "imported_at": utc_time(revision),
        "unapproved_resumes": str(head["unapproved_resumes"]),
        **{name: json.dumps(head[name]) for name in ("title", "tags", "stats", "info")},
        **policy_fields(head),
    }
    return fields
