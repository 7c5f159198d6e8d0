"""The search for a text in the messages of all conversations, without an index.

It is bounded, and continues at a cursor.
"""

import json
from collections.abc import Sequence
from itertools import chain, groupby
from operator import attrgetter
from typing import NamedTuple

from core.wire import ConversationId, Micros, Seq
from store.errors import ConversationNotFound
from store.keys import ConversationKeys
from store.link.commands import Redis
from store.listing import Listing, ListingFilter
from store.log.frames import PAGE_BYTES, originals
from store.log.text import MessageText, Pieces, fold, matches
from store.scripts import Scripts

#: Maximum number of conversations per page, and bytes of their text: about 0.1 s of a worker with an empty cache.
MOST_CONVERSATIONS, MOST_TEXT_BYTES = 200, 32 * 1024 * 1024


class Cursor(NamedTuple):
    """A position in the search: a chunk of a conversation's text, and an event in it."""

    at: Micros  #: creation time of the conversation
    conversation_id: ConversationId
    chunk: int
    seq: Seq


class MessageMatch(NamedTuple):
    """A MessageEvent, with its original bytes."""

    conversation_id: ConversationId
    title: str | None
    event: bytes


class Query(NamedTuple):
    text: str  #: case-insensitive substring
    source: str | None = None
    since: Micros | None = None
    until: Micros | None = None


class MessageSearch:
    def __init__(self, redis: Redis, scripts: Scripts, listing: Listing, text: MessageText) -> None:
        self._redis = redis
        self._scripts = scripts
        self._listing = listing
        self._text = text

    def page(self, query: Query, *, limit: int, start: Cursor | None) -> tuple[list[MessageMatch], Cursor | None]:
        """Return a page of matching messages, and the next cursor.

        The newest conversation comes first, each in log order. A page scans MOST_CONVERSATIONS and little more than
        MOST_TEXT_BYTES, and holds PAGE_BYTES. It may be shorter than the limit, or empty, without being the last. Round
        trips: one per scanned conversation, one per conversation with results, and two more.
        """
        found, following = self._scan(query, limit, start)
        items, left = self._load(found)
        return items, left or following

    def _scan(self, query: Query, limit: int, start: Cursor | None) -> tuple[list[Cursor], Cursor | None]:
        """Return the positions of the page's messages, and the next cursor."""
        first = (start.at, start.conversation_id) if start else None
        entries, beyond = self._listing.page(
            ListingFilter(), by="created", descending=True, limit=MOST_CONVERSATIONS, start=first
        )
        found: list[Cursor] = []
        room, needle = MOST_TEXT_BYTES, fold(query.text)
        for entry in entries:
            is_begun = start is not None and start.conversation_id == entry.id
            cursor = start if is_begun else Cursor(Micros(int(entry.at)), entry.id, 0, Seq(0))
            while cursor is not None:
                if room <= 0:
                    return found, cursor
                text, following = self._chunk(cursor)
                room -= sum(map(len, text))
                for position in chain.from_iterable(matches(piece, needle, query.source) for piece in text):
                    if position.seq < cursor.seq or not _is_within(position.at, query):
                        continue
                    if len(found) == limit:
                        return found, cursor._replace(seq=position.seq)
                    found.append(cursor._replace(seq=position.seq))
                cursor = following
        return found, Cursor(Micros(int(beyond[0])), beyond[1], 0, Seq(0)) if beyond else None

    def _chunk(self, cursor: Cursor) -> tuple[Pieces, Cursor | None]:
        """Return the chunk at a cursor, and the cursor of the conversation's next chunk.

        A deleted conversation has no text.
        """
        try:
            text, last = self._text.chunk(cursor.conversation_id, cursor.chunk)
        except ConversationNotFound:
            return (), None
        following = cursor._replace(chunk=cursor.chunk + 1, seq=Seq(0))
        return text, following if cursor.chunk < last else None

    def _load(self, found: Sequence[Cursor]) -> tuple[list[MessageMatch], Cursor | None]:
        """Return the messages at these positions, and the first position that does not fit into the page."""
        items: list[MessageMatch] = []
        titles, room = self._titles(found), PAGE_BYTES
        for conversation_id, group in groupby(found, attrgetter("conversation_id")):
            cursors, title = list(group), titles[conversation_id]
            if title is None:
                continue
            seqs = [cursor.seq for cursor in cursors]
            root = ConversationKeys(conversation_id).root
            events = self._scripts.read_events(root, most_bytes=room, seqs=seqs) or []
            for cursor, event in zip(cursors, originals(events), strict=False):
                room -= len(event)
                if room < 0:
                    return items, cursor
                items.append(MessageMatch(conversation_id, json.loads(title), event))
        return items, None

    def _titles(self, found: Sequence[Cursor]) -> dict[ConversationId, bytes | None]:
        """Return the titles of conversations as JSON; None if deleted."""
        of = list(dict.fromkeys(cursor.conversation_id for cursor in found))
        with self._redis.pipeline(transaction=False) as pipe:
            for conversation_id in of:
                pipe.hget(ConversationKeys(conversation_id).root, "title")
            titles = pipe.execute() if of else []
        return dict(zip(of, titles, strict=True))


def _is_within(at: float, query: Query) -> bool:
    return (query.since is None or at >= float(query.since)) and (query.until is None or at < float(query.until))
