"""The event log of a conversation: append, count, search, get."""

import json
from collections.abc import Sequence
from typing import Any

from redis import Redis

from store.confirmations import SUPERSEDED
from store.conversations import Conversations
from store.effects import effect, is_stored
from store.errors import ConversationNotFound, EventNotFound, UnknownCursor
from store.keys import ANY, ConversationKeys, escaped, pair
from store.scripts import Scripts
from store.stamps import Stamp
from store.text import MessageText, Place, fold, matches, record
from store.text import count as count_text
from wire import ConversationId, Event, Micros, Seq, user_message

#: runs of wanted events are read as one range when at most this many others lie between them
_NEAR = 4


class EventLog:
    """The events of all conversations."""

    def __init__(self, redis: "Redis", scripts: Scripts, conversations: Conversations, text: MessageText) -> None:
        self._redis = redis
        self._scripts = scripts
        self._conversations = conversations
        self._text = text

    def append(self, conversation_id: ConversationId, events: Sequence[Event]) -> tuple[int, Seq]:
        """Append a batch, all or nothing; known ids change nothing; an unknown conversation is created.

        Returns how many were new, and the seq of the conversation's last event.
        """
        stamp = Stamp.now()
        args: list[Any] = [stamp.id_prefix, stamp.event_time, stamp.at, stamp.utc_time]
        for event in events:
            raw = event.raw if is_stored(event) else b""
            args += (event.id, pair(event.kind, event.source), event.at, raw, record(event), effect(event))
        while (reply := self._scripts.append_events([ConversationKeys(conversation_id).root], args)) is None:
            self._conversations.create(conversation_id)
        appended, last = reply
        return appended, Seq(last)

    def send(self, conversation_id: ConversationId, *, content: list[dict[str, Any]], run: bool) -> None:
        """Append a user's message; with run, start the agent. What waits is rejected, never approved.

        Raises ConversationNotFound.
        """
        stamp = Stamp.now()
        event = user_message(content, stamp.at)
        args = [
            *(stamp.id_prefix, stamp.event_time, stamp.at, stamp.utc_time),
            *(event.id, pair(event.kind, event.source), event.raw, record(event)),
            *(int(run), json.dumps(SUPERSEDED)),
        ]
        if self._scripts.send_message([ConversationKeys(conversation_id).root], args) is None:
            raise ConversationNotFound

    def count(
        self,
        conversation_id: ConversationId,
        *,
        kind: str | None = None,
        source: str | None = None,
        body: str | None = None,
        since: Micros | None = None,
        until: Micros | None = None,
    ) -> int:
        """How many events pass the filters given. Raises ConversationNotFound."""
        if body is not None:
            if body and kind in (None, "MessageEvent"):
                if (source, since, until) == (None, None, None):
                    return sum(count_text(chunk, fold(body)) for chunk in self._text.chunks(conversation_id))
                return len(self._matches(conversation_id, body, source, since, until))
            kind = _with_body(kind)
        reply = self._scripts.count_events(
            [ConversationKeys(conversation_id).root], _filter(kind, source, since, until)
        )
        if reply is None:
            raise ConversationNotFound
        return int(reply)

    def search(
        self,
        conversation_id: ConversationId,
        *,
        kind: str | None = None,
        source: str | None = None,
        body: str | None = None,
        since: Micros | None = None,
        until: Micros | None = None,
        descending: bool = False,
        limit: int = 100,
        page_id: str | None = None,
    ) -> tuple[list[bytes], str | None]:
        """One page of the events that pass the filters, by (time, seq), and the id of the next page's first event.

        page_id is the inclusive cursor and need not pass the filters itself.
        Raises ConversationNotFound, UnknownCursor.
        """
        cursor = self._locate(conversation_id, page_id) if page_id else None
        if body and kind in (None, "MessageEvent"):
            found = sorted(self._matches(conversation_id, body, source, since, until), reverse=descending)
            if cursor is not None:
                found = [place for place in found if (place <= cursor if descending else place >= cursor)]
            seqs = [place.seq for place in found[: limit + 1]]
        else:
            kind = kind if body is None else _with_body(kind)
            place = (f"{cursor.at:.0f}", f"{cursor.seq:010d}") if cursor else ("", "")
            seqs = self._scripts.page_events(
                [ConversationKeys(conversation_id).root],
                [*_filter(kind, source, since, until), "desc" if descending else "asc", limit + 1, *place],
            )
            if seqs is None:
                raise ConversationNotFound
        events = self._read(conversation_id, seqs)
        following = json.loads(events[limit])["id"] if len(events) > limit else None
        return events[:limit], following

    def get(self, conversation_id: ConversationId, event_id: str) -> bytes:
        """One event. Raises ConversationNotFound, EventNotFound."""
        [event] = self.get_many(conversation_id, [event_id])
        if event is None:
            raise EventNotFound
        return event

    def get_many(self, conversation_id: ConversationId, event_ids: Sequence[str]) -> list[bytes | None]:
        """Events in the order of the ids, None for an id that is unknown. Raises ConversationNotFound."""
        reply = self._scripts.get_events([ConversationKeys(conversation_id).root], list(event_ids))
        if reply is None:
            raise ConversationNotFound
        return list(reply)

    def _locate(self, conversation_id: ConversationId, event_id: str) -> Place:
        reply = self._scripts.locate_event([ConversationKeys(conversation_id).root], [event_id])
        if reply is None:
            raise ConversationNotFound
        if reply == b"unknown":
            raise UnknownCursor
        at, seq = reply
        return Place(float(at), Seq(int(seq)))

    def _matches(
        self,
        conversation_id: ConversationId,
        body: str,
        source: str | None,
        since: Micros | None,
        until: Micros | None,
    ) -> list[Place]:
        needle = fold(body)
        return [
            place
            for chunk in self._text.chunks(conversation_id)
            for place in matches(chunk, needle, source)
            if (since is None or place.at >= float(since)) and (until is None or place.at < float(until))
        ]

    def _read(self, conversation_id: ConversationId, seqs: Sequence[Seq]) -> list[bytes]:
        """The bytes of events in the order of their seqs; events that lie close are read as one range."""
        runs: list[tuple[int, int]] = []
        for seq in sorted(seqs):
            if runs and seq - runs[-1][1] <= _NEAR:
                runs[-1] = (runs[-1][0], seq)
            else:
                runs.append((seq, seq))
        with self._redis.pipeline(transaction=False) as pipe:
            for first, last in runs:
                pipe.lrange(ConversationKeys(conversation_id).log, first - 1, last - 1)
            ranges = pipe.execute() if runs else []
        by_seq = {
            first + offset: raw
            for (first, _), read in zip(runs, ranges, strict=True)
            for offset, raw in enumerate(read)
        }
        try:
            return [by_seq[seq] for seq in seqs]
        except KeyError:  # deleted between the two calls
            raise ConversationNotFound from None


def _filter(kind: str | None, source: str | None, since: Micros | None, until: Micros | None) -> list[str]:
    """Filters as the scripts take them: kind, source, lowest and highest score."""
    return [
        ANY if kind is None else escaped(kind),
        ANY if source is None else escaped(source),
        "-inf" if since is None else str(since),
        "+inf" if until is None else f"({until}",
    ]


def _with_body(kind: str | None) -> str:
    """The kind that remains when only messages have a body: an empty body matches every MessageEvent."""
    return "MessageEvent" if kind in (None, "MessageEvent") else ""
