"""The event log of a conversation: append, count, search, get, and histograms."""

import itertools
import json
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Literal
from urllib.parse import unquote

from core.masking import NOTHING, Mask
from core.pauses import take_turns
from core.wire import ConversationId, Micros, ReceivedEvent, Seq, read_event, user_message
from settings.limits import ConversationLimits
from store.approvals.audit import SERVER, DecisionActor, canonical_text
from store.approvals.decisions import SUPERSEDED
from store.approvals.effects import (
    claim,
    disowned,
    disowned_code,
    effect,
    finish_message,
    log_unapproved,
    stored_bytes,
    written,
)
from store.conversations.conversations import Conversations
from store.conversations.masks import Masks
from store.errors import (
    ConversationNotFound,
    EventNotFound,
    EventsTooLong,
    LogTooLong,
    NeedsApproval,
    NobodyRuns,
    NotItsSandbox,
    NotStartedHere,
    Outdated,
    RightsChanged,
    RunsInTerminal,
    TooManyKinds,
    TooManyPending,
    UnknownCursor,
)
from store.keys import ANY, PEAK_SEQS, ConversationKeys, escaped, pair
from store.link.attempts import Stamp, minted
from store.link.commands import Redis
from store.log.feed import read_log
from store.log.frames import PAGE_BYTES, compressed, original, originals
from store.log.text import MessageText, Position, fold, matches, passes, record, texts, times
from store.log.text import count as count_text
from store.projections import Projections
from store.scripts import Scripts
from store.scripts.calls import AppendEvents, EventFilter, SendMessage
from telemetry import traces

#: Maximum number of events that a search by `text` reads per request, with at most PAGE_BYTES.
SEARCHED_EVENTS = 1000

#: Maximum number of events to which one snapshot of the folder applies.
MOST_AT_REST = 20

#: Prepare one batch at a time. Otherwise each waiting request would wait for a slice of every batch.
_preparing = Lock()


#: Maximum number of series of a histogram. There may be more names, because agents choose kinds and sources freely.
MOST_SERIES = 20

#: Series of all other names.
OTHER = "other"


class EventLog:
    def __init__(
        self,
        redis: Redis,
        scripts: Scripts,
        projections: Projections,
        conversations: Conversations,
        text: MessageText,
        bounds: ConversationLimits,
        masks: Masks,
    ) -> None:
        self.histograms = Histograms(scripts, text)
        self._redis = redis
        self._scripts = scripts
        self._projections = projections
        self._conversations = conversations
        self._text = text
        self._bounds = bounds
        self._masks = masks

    def append(
        self,
        conversation_id: ConversationId,
        events: Sequence[ReceivedEvent],
        *,
        sandbox_id: str | None = None,
        made_here: bool = False,
        fetched: bool = False,
        posted: int | None = None,
        hook_hash: str = "",
        actor: DecisionActor = SERVER,
        asked: Mapping[str, object] | None = None,
        unasked: str = "",
        audited: bool = True,
    ) -> tuple[int, Seq]:
        """Append all events of a batch, or none. Return the number of new events, and the last seq of the log.

        Skip known ids. Mask secrets. Create the conversation if it does not exist, unless a sandbox sends the events.

        sandbox_id: the sender. What its events claim about people is checked (`effects.py`).
        made_here: this server made the events, and the agent's own log lacks them.
        fetched: the events come from the agent's own log. Newer events may already be stored; their state is kept.
        posted: number of events that the agent must have posted before. hook_hash: hash of the hook key; "" for none.
        asked: decision that an asker awaits. unasked: why actions ran without one. audited: whether the audit says so.

        Raises NotItsSandbox, TooManyPending, TooManyKinds, LogTooLong, StoreFull, NotStartedHere if the sandbox lacks
        the conversation, and Outdated if `posted` differs.
        """
        stamp, root = Stamp.now(), ConversationKeys(conversation_id).root
        poster = actor.json if unasked else actor.by("agent").json
        is_checked, batch = sandbox_id is not None and not made_here, list(events)
        in_sandbox = self._masks.of_sandbox(sandbox_id, hook_hash) if sandbox_id else NOTHING
        version, mask = self._masks.of_conversation(conversation_id)
        while True:
            with _preparing:
                rows = [_arguments(event, (mask, in_sandbox), is_checked, fetched) for event in batch]
            reply = self._scripts.append_events(
                root,
                stamp=stamp,
                sandbox=sandbox_id or "",
                most_open=self._bounds.max_pending_actions,
                most_pairs=self._bounds.max_event_kinds,
                made_here=made_here,
                actor=poster,
                expiry=self._bounds.confirmation_seconds,
                most_bytes=self._bounds.max_conversation_bytes,
                secrets_version=version,
                posted=posted,
                asked=json.dumps(asked) if asked else "",
                unasked=canonical_text(unasked) if unasked else "",
                audited=audited,
                events=rows,
            )
            if reply is None:
                if sandbox_id is not None:
                    raise NotStartedHere
                self._conversations.create(conversation_id)
                continue
            self._projections.settle(conversation_id, reply.state)
            match reply:
                case AppendEvents.Unmasked():
                    version, mask = self._masks.read(conversation_id)
                case AppendEvents.Unowned():
                    for place in json.loads(reply.places):
                        log_unapproved(conversation_id, sandbox_id, disowned_code(batch[place]), [batch[place].id])
                        batch[place] = disowned(batch[place])
                case AppendEvents.Appended():
                    if reply.resumed:
                        log_unapproved(conversation_id, sandbox_id, "unapproved_resume", json.loads(reply.resumed))
                    traces.note_next(conversation_id, reply.trace)
                    return reply.number, Seq(reply.last)
                case AppendEvents.Foreign():
                    raise NotItsSandbox
                case AppendEvents.Outdated():
                    raise Outdated
                case AppendEvents.TooManyPending():
                    raise TooManyPending(self._bounds.max_pending_actions)
                case AppendEvents.TooManyPairs():
                    raise TooManyKinds(self._bounds.max_event_kinds)
                case AppendEvents.TooLong():
                    raise LogTooLong(self._bounds.max_conversation_bytes)

    def send(
        self,
        conversation_id: ConversationId,
        *,
        content: list[dict[str, object]],
        run: bool,
        actor: DecisionActor = SERVER,
    ) -> None:
        """Append a user's message, and with `run` start the agent. Pending actions are rejected, never approved.

        actor: the sender. Raises NeedsApproval if actions are pending and the sender may not reject them.
        Raises ConversationNotFound, NobodyRuns, LogTooLong, StoreFull.
        """
        stamp = Stamp.now()
        while True:
            event = user_message(content, stamp.at, minted("message"))
            reply = self._scripts.send_message(
                ConversationKeys(conversation_id).root,
                stamp=stamp,
                id=event.id,
                pair=pair(event.kind, event.source),
                event=compressed(event.raw),
                record=record(event),
                run=run,
                reason=json.dumps(SUPERSEDED),
                may_decide=actor.may_decide,
                actor=actor.by("message").json,
                voter=actor.voter,
                rights=actor.rights,
                most_bytes=self._bounds.max_conversation_bytes,
            )
            if reply is None:
                raise ConversationNotFound
            self._projections.settle(conversation_id, reply.state)
            match reply:
                case SendMessage.Sent():
                    return
                case SendMessage.Early():
                    stamp = replace(stamp, at=reply.earliest)
                case SendMessage.Forbidden():
                    raise NeedsApproval
                case SendMessage.Changed():
                    raise RightsChanged
                case SendMessage.Unattended():
                    raise NobodyRuns
                case SendMessage.External():
                    raise RunsInTerminal
                case SendMessage.TooLong():
                    raise LogTooLong(self._bounds.max_conversation_bytes)

    def since_the_last_result(self, conversation_id: ConversationId, after: Seq, until: Seq) -> list[str]:
        """Return the ids of the events in a range of seqs, beginning with the last result of an action.

        Return at most the last MOST_AT_REST. One round trip. Raises ConversationNotFound.
        """
        begin = Seq(max(after, until - MOST_AT_REST))
        _, _, raws = read_log(self._scripts, conversation_id, begin, until - begin)
        ids = list[str]()
        for event in reversed([read_event(raw) for raw in raws]):
            ids.append(event.id)
            if event.kind in ("ObservationEvent", "AgentErrorEvent"):
                break
        return ids[::-1]

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
        """Return the number of events that pass the filters. Raises ConversationNotFound."""
        if body is not None:
            if body and kind in (None, "MessageEvent"):
                if (source, since, until) == (None, None, None):
                    return sum(count_text(piece, fold(body)) for piece in self._text.pieces(conversation_id))
                return len(self._matches(conversation_id, body, source, since, until))
            kind = _with_body(kind)
        number = self._scripts.count_events(
            ConversationKeys(conversation_id).root, filter=_filter(kind, source, since, until)
        )
        if number is None:
            raise ConversationNotFound
        return number

    def search(
        self,
        conversation_id: ConversationId,
        *,
        kind: str | None = None,
        source: str | None = None,
        body: str | None = None,
        text: str | None = None,
        since: Micros | None = None,
        until: Micros | None = None,
        descending: bool = False,
        limit: int = 100,
        page_id: str | None = None,
    ) -> tuple[list[bytes], str | None]:
        """Return a page of the events that pass the filters, by (time, seq), and the id of the next page's first event.

        The page ends before the first event that would exceed PAGE_BYTES. `text` has no index: a page then also ends
        after SEARCHED_EVENTS that pass the other filters, so it may be empty although more pages follow. page_id:
        inclusive cursor, the id of any event. Raises ConversationNotFound, UnknownCursor.
        """
        cursor = self._locate(conversation_id, page_id) if page_id else None
        root, most = ConversationKeys(conversation_id).root, SEARCHED_EVENTS if text else limit
        if body and not text and kind in (None, "MessageEvent"):
            positions = sorted(self._matches(conversation_id, body, source, since, until), reverse=descending)
            if cursor is not None:
                positions = [one for one in positions if (one <= cursor if descending else one >= cursor)]
            seqs = [position.seq for position in positions[: limit + 1]]
            page = self._scripts.read_events(root, most_bytes=PAGE_BYTES, seqs=seqs) if seqs else []
        else:
            kind = kind if body is None else _with_body(kind)
            page = self._scripts.page_events(
                root,
                filter=_filter(kind, source, since, until),
                order="desc" if descending else "asc",
                most=most + 1,
                cursor_at=f"{cursor.at:.0f}" if cursor else "",
                cursor_seq=f"{cursor.seq:010d}" if cursor else "",
                most_bytes=PAGE_BYTES,
            )
        if page is None:
            raise ConversationNotFound
        events = originals(page)
        size = min(most, _fitting(events))
        found = events[:size]
        if text:
            found, size = _having(found, limit, body=body, text=text)
        following = json.loads(events[size])["id"] if len(events) > size else None
        return found, following

    def get(self, conversation_id: ConversationId, event_id: str) -> bytes:
        """Return an event. Raises ConversationNotFound, EventNotFound."""
        [event] = self.get_many(conversation_id, [event_id])
        if event is None:
            raise EventNotFound
        return event

    def get_many(self, conversation_id: ConversationId, event_ids: Sequence[str]) -> list[bytes | None]:
        """Return events in the order of the ids, None for an unknown id.

        Raises ConversationNotFound, and EventsTooLong if the events together exceed PAGE_BYTES.
        """
        reply = self._scripts.get_events(ConversationKeys(conversation_id).root, most_bytes=PAGE_BYTES, ids=event_ids)
        if reply is None:
            raise ConversationNotFound
        if reply == "too_long":
            raise EventsTooLong(PAGE_BYTES)
        return [kept and original(kept) for kept in reply.events]

    def unknown(self, conversation_id: ConversationId, event_ids: Sequence[str]) -> set[str]:
        """Return the ids that the log lacks. One round trip, without the events' bytes."""
        root = ConversationKeys(conversation_id).root
        seqs = (self._scripts.find_events(root, ids=event_ids) if event_ids else None) or []
        return set(event_ids) - {one for one, seq in zip(event_ids, seqs, strict=False) if seq is not None}

    def seq(self, conversation_id: ConversationId, event_id: str) -> Seq:
        """Return the seq of an event. One round trip. Raises ConversationNotFound, EventNotFound."""
        found = self._scripts.find_events(ConversationKeys(conversation_id).root, ids=[event_id])
        if not found:
            raise ConversationNotFound
        if found[0] is None:
            raise EventNotFound
        return Seq(found[0])

    def cursor_before(self, conversation_id: ConversationId, since: Micros) -> Seq | None:
        """Return a cursor before all events since a time; None if there are no such events.

        Times may be out of order. The cursor is at most 999 events before the first such event.
        """
        block = self._scripts.cursor_before(ConversationKeys(conversation_id).root, since=since)
        return None if block is None else Seq(block * PEAK_SEQS)

    def final_response(self, conversation_id: ConversationId) -> str:
        """Return the agent's final message or its last message, whichever is later; empty if there is none.

        Raises ConversationNotFound. Source: docs/wire.md, 8.
        """
        reply = self._scripts.get_final_event(ConversationKeys(conversation_id).root)
        if reply is None:
            raise ConversationNotFound
        fields = json.loads(original(reply[0])) if reply else {}
        finished = finish_message(fields)
        if finished is not None:
            return finished
        spoken = fields.get("llm_message")
        return "".join(texts(spoken.get("content"))) if isinstance(spoken, dict) else ""

    def _locate(self, conversation_id: ConversationId, event_id: str) -> Position:
        reply = self._scripts.locate_event(ConversationKeys(conversation_id).root, id=event_id)
        if reply is None:
            raise ConversationNotFound
        if reply == "unknown":
            raise UnknownCursor
        return Position(reply.at, Seq(reply.seq))

    def _matches(
        self,
        conversation_id: ConversationId,
        body: str,
        source: str | None,
        since: Micros | None,
        until: Micros | None,
    ) -> list[Position]:
        needle = fold(body)
        return [
            position
            for piece in self._text.pieces(conversation_id)
            for position in matches(piece, needle, source)
            if (since is None or position.at >= float(since)) and (until is None or position.at < float(until))
        ]


def _having(events: Sequence[bytes], limit: int, *, body: str | None, text: str) -> tuple[list[bytes], int]:
    """Return the first `limit` events that pass the filters, and the number of events that were read."""
    found = list[bytes]()
    for number, event in enumerate(events, 1):
        take_turns()
        if passes(json.loads(event), body=body, text=text):
            found.append(event)
            if len(found) == limit:
                return found, number
    return found, len(events)


def _fitting(events: Sequence[bytes]) -> int:
    """Return how many of the first events fit into PAGE_BYTES."""
    if sum(map(len, events)) <= PAGE_BYTES:
        return len(events)
    return sum(size <= PAGE_BYTES for size in itertools.accumulate(map(len, events)))


def _arguments(
    event: ReceivedEvent, masks: Iterable[Mask], is_checked: bool, fetched: bool
) -> tuple[str, str, Micros, bytes, bytes, str | bytes]:
    """Return an event as arguments of `append_events.lua`. Compute its claim before masking, and all else after."""
    take_turns()  # a batch of 500 events of 16 kB takes 90 ms
    claimed = claim(event) if is_checked else None
    for mask in masks:
        event = mask.event(event)
    effects = effect(event) | ({"claim": claimed} if claimed else {}) | ({"fetched": True} if fetched else {})
    place = (event.id, pair(event.kind, event.source), event.at)
    return (*place, stored_bytes(event), record(event), written(effects))


def _filter(kind: str | None, source: str | None, since: Micros | None, until: Micros | None) -> EventFilter:
    return EventFilter(
        kind=ANY if kind is None else escaped(kind),
        source=ANY if source is None else escaped(source),
        lowest="-inf" if since is None else str(since),
        highest="+inf" if until is None else f"({until}",
    )


def _with_body(kind: str | None) -> str:
    """Return the kind for a search by body: only messages have one. Other kinds become "", which matches no event."""
    return "MessageEvent" if kind in (None, "MessageEvent") else ""


@dataclass(frozen=True, slots=True)
class EventHistogram:
    """The events of a window in equal buckets. Without events, the window is undefined unless it was requested."""

    start: Micros | None
    end: Micros | None  #: exclusive
    bucket_seconds: float  #: 0 for an empty window
    series: dict[str, list[int]]  #: name → number of events in each bucket, the most frequent name first, OTHER last

    @property
    def total(self) -> int:
        return sum(map(sum, self.series.values()))


class Histograms:
    def __init__(self, scripts: Scripts, text: MessageText) -> None:
        self._scripts = scripts
        self._text = text

    def of(
        self,
        conversation_id: ConversationId,
        *,
        by: Literal["kind", "source"],
        buckets: int,
        since: Micros | None = None,
        until: Micros | None = None,
        body: str | None = None,
    ) -> EventHistogram:
        """Return the number of events per bucket in a window, by default of all events. Raises ConversationNotFound.

        body: count only messages with this text. Cost: one round trip, more with very many pairs of kind and source,
        and with `body` those of `count` and the time to read all text. A round trip takes a limited time, and may miss
        concurrent events.
        """
        counts: dict[str, list[int]] = {}
        start, end, pairs = self._pairs(conversation_id, _written(since), _written(until), 1 if body else buckets)
        if body and start and end:
            counts = self._with_text(conversation_id, body, by, _edges(int(start), int(end), buckets))
        else:
            for (kind, source), numbers in pairs.items():
                if body is None or kind == "MessageEvent":
                    name = kind if by == "kind" else source
                    counts[name] = _added(counts[name], numbers) if name in counts else numbers
        return _histogram(start, end, buckets, _bounded(counts))

    def _pairs(
        self, conversation_id: ConversationId, start: str, end: str, buckets: int
    ) -> tuple[str, str, dict[tuple[str, str], list[int]]]:
        """Return the window, and the numbers of each pair of kind and source. Raises ConversationNotFound."""
        pairs: dict[tuple[str, str], list[int]] = {}
        following = ""
        while True:
            reply = self._scripts.count_over_time(
                ConversationKeys(conversation_id).root, since=start, before=end, buckets=buckets, first=following
            )
            if reply is None:
                raise ConversationNotFound
            start, end, following, found = reply
            pairs |= zip(map(_pair, found[::2]), found[1::2], strict=True)
            if not following:
                return start, end, pairs

    def _with_text(
        self, conversation_id: ConversationId, body: str, by: str, edges: list[float]
    ) -> dict[str, list[int]]:
        """Return the numbers of messages with a text between edges, by name."""
        counts: dict[str, list[int]] = {}
        needle, empty = fold(body), [0] * (len(edges) - 1)
        for piece in self._text.pieces(conversation_id):
            for at, source in times(piece, needle):
                if edges[0] <= at < edges[-1]:
                    name = "MessageEvent" if by == "kind" else source
                    counts.setdefault(name, [*empty])[bisect_right(edges, at) - 1] += 1
        return counts


def _written(time: Micros | None) -> str:
    return "" if time is None else str(time)


def _pair(stored: bytes) -> tuple[str, str]:
    kind, _, source = stored.decode().partition(":")
    return unquote(kind), unquote(source)


def _edges(start: int, end: int, buckets: int) -> list[float]:
    """Return the edges of the buckets, rounded to µs as in `count_over_time.lua`."""
    return [float(start - (-number * (end - start) // buckets)) for number in range(buckets + 1)]


def _added(*series: list[int]) -> list[int]:
    return [sum(numbers) for numbers in zip(*series, strict=True)]


def _bounded(counts: dict[str, list[int]]) -> dict[str, list[int]]:
    """Keep the most frequent names. Add up all others under the name OTHER."""
    names = sorted(counts.keys() - {OTHER}, key=lambda name: (-sum(counts[name]), name))
    kept = names if len(counts) <= MOST_SERIES else names[: MOST_SERIES - 1]
    others = [numbers for name, numbers in counts.items() if name not in kept]
    return {name: counts[name] for name in kept} | ({OTHER: _added(*others)} if others else {})


def _histogram(start: str, end: str, buckets: int, series: dict[str, list[int]]) -> EventHistogram:
    """Make a histogram. If there are no events, and only one edge was requested, the other edge equals it."""
    first, last = start or end, end or start
    if not first:
        return EventHistogram(None, None, 0.0, series)
    begins = Micros(int(first))
    ends = max(begins, Micros(int(last)))
    return EventHistogram(begins, ends, (ends - begins) / 1e6 / buckets, series)
