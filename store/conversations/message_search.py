"""The search for a text in the messages of all conversations, without an index: bounded, and continued by a cursor."""

import json
from collections.abc import Sequence
from itertools import chain, groupby
from operator import attrgetter
from typing import NamedTuple

from core.wire import ConversationId, Micros, Seq
from store.errors import ConversationNotFound
from store.keys import ConversationKeys
from store.link.commands import Redis
from store.listing import Filter, Listing
from store.log.frames import PAGE_BYTES, originals
from store.log.text import MessageText, Pieces, fold, matches
from store.scripts import Scripts

#: conversations, and bytes of their text, that one page scans: about 0.1 s of a worker whose cache is empty
MOST_CONVERSATIONS, MOST_TEXT_BYTES = 200, 32 * 1024 * 1024


class Cursor(NamedTuple):
    """A position in the search: in the text of a conversation, which is read a chunk at a time, from an event on."""

    at: Micros  #: when the conversation was created
    conversation_id: ConversationId
    chunk: int
    seq: Seq


class FoundMessage(NamedTuple):
    """A MessageEvent, with the bytes as it was appended."""

    conversation_id: ConversationId
    title: str | None  #: of its conversation
    event: bytes


class Query(NamedTuple):
    """What a message must have."""

    text: str  #: part of it, whatever its case
    source: str | None = None
    since: Micros | None = None
    until: Micros | None = None


class MessageSearch:
    """Finds messages of all conversations."""

    def __init__(self, redis: Redis, scripts: Scripts, listing: Listing, text: MessageText) -> None:
        self._redis = redis
        self._scripts = scripts
        self._listing = listing
        self._text = text

    def page(self, query: Query, *, limit: int, start: Cursor | None) -> tuple[list[FoundMessage], Cursor | None]:
        """Messages that pass, those of the newest conversation first and each conversation's in the order of its log;
        and the next page's cursor.

        A page scans MOST_CONVERSATIONS and little more than MOST_TEXT_BYTES, and holds PAGE_BYTES: it may be shorter
        than the limit, or empty, and not the last. Round trips: one for each conversation that is scanned and one for
        each that is shown, and two more.
        """
        found, following = self._scan(query, limit, start)
        items, left = self._load(found)
        return items, left or following

    def _scan(self, query: Query, limit: int, start: Cursor | None) -> tuple[list[Cursor], Cursor | None]:
        """The positions of the page's messages, and the cursor of the next page."""
        first = (start.at, start.conversation_id) if start else None
        entries, beyond = self._listing.page(
            Filter(), by="created", descending=True, limit=MOST_CONVERSATIONS, start=first
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
        """The chunk of a cursor, and the cursor of the conversation's next one. One that was deleted has no text."""
        try:
            text, last = self._text.chunk(cursor.conversation_id, cursor.chunk)
        except ConversationNotFound:
            return (), None
        following = cursor._replace(chunk=cursor.chunk + 1, seq=Seq(0))
        return text, following if cursor.chunk < last else None

    def _load(self, found: Sequence[Cursor]) -> tuple[list[FoundMessage], Cursor | None]:
        """The messages at these positions, and the first one that does not fit into the page."""
        items: list[FoundMessage] = []
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
                items.append(FoundMessage(conversation_id, json.loads(title), event))
        return items, None

    def _titles(self, found: Sequence[Cursor]) -> dict[ConversationId, bytes | None]:
        """The titles of conversations as JSON; None for one that was deleted meanwhile."""
        of = list(dict.fromkeys(cursor.conversation_id for cursor in found))
        with self._redis.pipeline(transaction=False) as pipe:
            for conversation_id in of:
                pipe.hget(ConversationKeys(conversation_id).root, "title")
            titles = pipe.execute() if of else []
        return dict(zip(of, titles, strict=True))


def _is_within(at: float, query: Query) -> bool:
    return (query.since is None or at >= float(query.since)) and (query.until is None or at < float(query.until))
