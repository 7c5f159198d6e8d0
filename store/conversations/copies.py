"""Copies of whole conversations: forks, exports and imports. `schemas/exports.py` defines the lines of an export."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from redis.exceptions import TimeoutError

from core.refused import RefusalKind
from core.scopes import Origin
from core.wire import ConversationId, Micros, ReceivedEvent, Seq, read_event, utc_time
from settings.limits import ConversationLimits
from store.approvals.effects import final_effect, held_risks
from store.conversation import Conversation, State, info_fields, title_fields
from store.conversations.conversations import Conversations, in_sandbox
from store.errors import (
    UNAVAILABLE,
    ConversationNotFound,
    CopyEnded,
    EventNotFound,
    IdInUse,
    LogDamaged,
    LogTooLong,
    StoreError,
    TooManyKinds,
)
from store.keys import ConversationKeys, pair
from store.link.attempts import Stamp, is_finished, minted
from store.log.feed import read_log
from store.log.frames import compressed, originals
from store.log.text import record
from store.projections import Projections
from store.scripts import Scripts
from store.scripts.calls import AdoptFork

#: Maximum number of events per write.
PAGE = 100

#: Seconds without a new page after which Redis deletes an unfinished copy, and the error text for its writer.
_HOUR, _EXPIRED = 3600, "The copy of the conversation took so long that it has expired"


#: Number of pairs of kind and source that the server's own events may add to MAX_EVENT_KINDS.
_OWN_PAIRS = 5

#: Bytes of events after which a page is written, even with fewer than PAGE events.
_PAGE_BYTES = 256 * 1024

#: Statuses that need no agent. An import with another status is paused.
_AT_REST = ("idle", "paused", "finished", "error", "stuck")


class OwnSandbox(NamedTuple):
    """What a copy in a sandbox of its own does not inherit."""

    app: dict[str, Any]  #: members of an app conversation, with its `start_id`
    info: dict[str, Any]  #: workspace of the start request
    start_body: bytes  #: see `Conversations.create`


class Copy:
    """An unfinished copy. Nobody else knows its keys, and they expire unless the copy is adopted."""

    def __init__(self, scripts: Scripts, keys: ConversationKeys, stamp: Stamp) -> None:
        self.keys = keys
        self.seq = Seq(0)  #: seq of its last event
        self.bytes = 0  #: size of its events and their texts in Redis
        self._scripts = scripts
        self._stamp = stamp

    def begin(self, sandbox_id: str = "") -> None:
        """Begin the copy, once. A later deletion of its conversation's id ends it. Raises CopyEnded.

        sandbox_id: sandbox whose agent server makes its own copy.
        """
        begins = self._scripts.begin_copy(
            self._root, fork=self.keys.fork, utc=self._stamp.utc_time, seconds=_HOUR, sandbox=sandbox_id
        )
        if not begins:
            raise CopyEnded

    def close(self) -> bool:
        """End the copy, and return whether a deletion had ended it."""
        return self._scripts.close_copy(self._root, fork=self.keys.fork)

    def append(self, events: Sequence[ReceivedEvent]) -> None:
        """Write the next events, at most PAGE. An event whose id is in the log is skipped.

        Raises TimeoutError, CopyEnded.
        """
        rows = list[tuple[str, str, int, bytes, bytes, bool]]()
        for event in events:
            frame, text, may_be_final = compressed(event.raw), record(event), bool(final_effect(event))
            self.bytes += len(frame) + len(text)
            rows.append((event.id, pair(event.kind, event.source), event.at, frame, text, may_be_final))
        copied = self._scripts.copy_events(self.keys.root, utc=self._stamp.utc_time, seconds=_HOUR, events=rows)
        if copied is None:
            raise self._lost()
        self.seq = Seq(copied)

    def adopt(
        self,
        projections: Projections,
        fields: Mapping[str, str],
        claims: Sequence[str] = (),
        start_id: str = "",
        start_body: bytes = b"",
    ) -> bool:
        """Make the copy the conversation of its id, with these fields; False if the conversation exists.

        claims: allowed claims of the agent, see `effects.py`. start_id, start_body: see `Conversations.create`. One
        round trip. Raises TimeoutError, CopyEnded.
        """
        reply = self._scripts.adopt_fork(
            self._root,
            fork=self.keys.fork,
            at=self._stamp.at,
            start_id=start_id,
            start_body=start_body,
            claims=[f"{claim} {self.keys.fork}" for claim in claims],
            fields=fields,
        )
        if reply is None:
            raise self._lost()
        return isinstance(projections.settled(self.keys.id, reply), AdoptFork.Adopted)

    @property
    def _root(self) -> str:
        return ConversationKeys(self.keys.id).root

    def _lost(self) -> Exception:
        return CopyEnded() if self.close() else TimeoutError(_EXPIRED)


def policy_fields(state: Mapping[str, Any]) -> dict[str, str]:
    """Return the fields that define which actions wait, and for how long."""
    fields = Conversation.fields_of(
        confirmation_policy=state["confirmation_policy"],
        held=held_risks(state["confirmation_policy"]),
        security_analyzer=state["security_analyzer"],
    )
    if state.get("approves_inside"):
        fields |= Conversation.fields_of(approves_inside=True)
    if (seconds := state["confirmation_seconds"]) is not None:
        fields |= Conversation.fields_of(confirmation_seconds=seconds)
    return fields


class Forks:
    def __init__(self, scripts: Scripts, projections: Projections, conversations: Conversations) -> None:
        self._scripts = scripts
        self._projections = projections
        self._conversations = conversations

    def fork(
        self,
        source: ConversationId,
        *,
        id: ConversationId | None = None,
        title: str | None = None,
        tags: dict[str, str] | None = None,
        reset_metrics: bool = True,
        from_event_id: str | None = None,
        sandbox_id: str | None = None,
        claims: Sequence[str] = (),
        copy: Copy | None = None,
        key_id: str = "",
        own: OwnSandbox | None = None,
    ) -> ConversationId:
        """Copy a conversation up to an event, or completely. The copy is idle and has no pending actions.

        A deletion of the copy's id ends it while it is in progress.

        sandbox_id: of the source, whose agent server has made its own copy; None: the copy is detached. claims: allowed
        claims of the agent, see `effects.py`. copy: from `begin`. key_id: of the requesting key. own: if sandbox_id is
        the copy's own. Secrets are not copied. Raises ConversationNotFound, EventNotFound, IdInUse, StoreFull,
        CopyEnded, and TimeoutError after an hour without a page. Source: docs/wire.md, 8.
        """
        target = ConversationId(id or str(minted("conversation")))
        if is_finished():
            return target
        copy = copy or self.begin(target, sandbox_id)
        try:
            self._copy(copy, source, title, tags, reset_metrics, from_event_id, sandbox_id, claims, key_id, own)
        except BaseException:
            self.close(copy)
            raise
        return target

    def begin(self, target: ConversationId, sandbox_id: str | None) -> Copy:
        """Begin a copy for `fork`, so that a deletion ends it from now on. Raises CopyEnded."""
        copy = Copy(self._scripts, ConversationKeys(target, str(minted("fork"))), Stamp.now())
        copy.begin(sandbox_id or "")
        return copy

    def close(self, copy: Copy) -> None:
        """End a copy. If Redis does not answer, the copy expires."""
        with suppress(*UNAVAILABLE):
            copy.close()

    def end(self, target: ConversationId) -> list[str | None]:
        """End every unfinished copy into an id, imports included, even if their writers were killed.

        Returns for each copy the sandbox whose agent server makes its own copy, None if detached. One round trip.
        """
        return [one.sandbox or None for one in self._scripts.end_copies(ConversationKeys(target).root)]

    def _copy(
        self,
        copy: Copy,
        source: ConversationId,
        title: str | None,
        tags: dict[str, str] | None,
        reset_metrics: bool,
        from_event_id: str | None,
        sandbox_id: str | None,
        claims: Sequence[str],
        key_id: str,
        own: OwnSandbox | None,
    ) -> None:
        target, fork, stamp = copy.keys.id, copy.keys.fork, Stamp.now()
        state = self._conversations.get(source)
        last = state["seq"] if from_event_id is None else self._seq(source, from_event_id)
        self._fill(copy, source, state["incarnation"], last)
        origin = {"forked_from_conversation_id": source, "forked_from_event_id": from_event_id}
        info = {
            **state["info"],
            **origin,
            **(own.info if own else {}),
        }  # the agent of the copy reports its own capabilities
        fields = title_fields(title or state["title"]) | Conversation.fields_of(
            id=target,
            revision=stamp.at,
            tags=state["tags"] if tags is None else tags,
            right_tags=self._conversations.right_tags(source) if tags is None else tags,
            stats={} if reset_metrics else state["stats"],
            created_at=stamp.utc_time,
            updated_at=stamp.utc_time,
        )
        fields |= info_fields({name: value for name, value in info.items() if name != "capabilities"})
        fields |= _inherited(state, sandbox_id, fork, key_id, own, copy.seq)
        start = (own.app["start_id"], own.start_body) if own else ()
        if not copy.adopt(self._projections, fields, claims, *start):
            raise IdInUse

    def _seq(self, source: ConversationId, event_id: str) -> Seq:
        reply = self._scripts.locate_event(ConversationKeys(source).root, id=event_id)
        if reply is None:
            raise ConversationNotFound
        if reply == "unknown":
            raise EventNotFound
        return Seq(reply.seq)

    def _fill(self, copy: Copy, source: ConversationId, incarnation: str, last: Seq) -> None:
        for page in _pages(self._scripts, source, incarnation, last):
            copy.append([read_event(raw) for raw in page])


def _pages(scripts: Scripts, conversation_id: ConversationId, incarnation: str, last: Seq) -> Iterator[list[bytes]]:
    """Yield the events up to a seq, in log order, with one page in memory at a time.

    Raises ConversationNotFound if the incarnation differs, and LogDamaged if the log ends before that seq: a failover
    of Redis may lose the last events.
    """
    seq = Seq(0)
    while seq < last:
        found, _, events = read_log(scripts, conversation_id, seq, min(PAGE, last - seq))
        if found != incarnation:  # deleted meanwhile; another conversation may have its id
            raise ConversationNotFound
        if not events:
            raise LogDamaged(conversation_id, seq, last)
        yield events
        seq = Seq(seq + len(events))


def _inherited(
    state: State, sandbox_id: str | None, fork: str, key_id: str, own: OwnSandbox | None, seq: Seq
) -> dict[str, str]:
    """Return the fields that a copy inherits, with those of its place if it is in the same sandbox.

    The requesting key becomes the copy's key. In the same sandbox, the secrets of all its conversations are masked.
    """
    # The copy of an agent in a terminal has another folder and machine, so rules that name them do not apply.
    began = {} if state["external"] else state["origin"] or {}
    origin = Origin.of(began)._replace(key_id=key_id)
    fields = policy_fields(state) | Conversation.fields_of(origin=origin.stored)
    if sandbox_id is None:
        return fields | Conversation.fields_of(unattended=True)
    app = {name: value for name, value in state["app"].items() if name != "start_id"}
    if own:
        app.pop("parent_conversation_id", None)  # the parent is in another sandbox
        return fields | in_sandbox(sandbox_id, {**app, **own.app}, fork) | Conversation.fields_of(posted=seq)
    place = {"sandbox_id": sandbox_id, "groups": state["groups"], "secrets_version": fork}
    return fields | Conversation.fields_of(**place, app=app)


class RepeatedEvent(StoreError):
    """Two events of the import have the same id."""

    kind = RefusalKind.MEMBER

    def __init__(self, seq: Seq, event_id: str) -> None:
        super().__init__(f"An earlier event has the id {event_id!r}: give each event its own id")
        self.seq = seq  #: of the later event


class Exports:
    def __init__(
        self, scripts: Scripts, projections: Projections, conversations: Conversations, bounds: ConversationLimits
    ) -> None:
        self._scripts = scripts
        self._projections = projections
        self._conversations = conversations
        self._most_pairs = bounds.max_event_kinds + _OWN_PAIRS
        self._bounds = bounds

    def pages(self, state: Mapping[str, Any]) -> Iterator[list[bytes]]:
        """Yield the events of a conversation up to the seq in its state, in log order, one page in memory at a time.

        Raises LogDamaged, and ConversationNotFound if it is deleted meanwhile.
        """
        yield from _pages(self._scripts, state["id"], state["incarnation"], state["seq"])

    def load(
        self,
        conversation_id: ConversationId,
        head: Mapping[str, Any],
        events: Iterable[ReceivedEvent],
        key_id: str = "",
    ) -> bool:
        """Import a conversation from its head (`schemas.exports.ExportHead`) and its events, in order; True if created.

        False if the conversation exists and its log begins with exactly these events.

        It is detached: it has no agent, no pending actions and no secrets. Readers see all of it or nothing. After an
        error or a kill its data expire in an hour. A deletion of the id ends it. key_id: of the requesting key.

        Raises CopyEnded, IdInUse if another conversation has the id, RepeatedEvent, TooManyKinds, LogTooLong,
        StoreFull, TimeoutError, and errors of `events`.
        """
        stamp = Stamp.now()
        copy = Copy(self._scripts, ConversationKeys(conversation_id, str(minted("import"))), stamp)
        try:
            copy.begin()
            self._fill(copy, events)
            if copy.adopt(self._projections, _fields(conversation_id, head, stamp.at, key_id)):
                return True
            if not self._has(copy, head["created_at"]):
                raise IdInUse
            return False
        finally:  # an adopted copy has no keys under these names
            copy.close()
            self._scripts.drop_copy(copy.keys.root)

    def _fill(self, copy: Copy, events: Iterable[ReceivedEvent]) -> None:
        page, size, known_pairs = list[ReceivedEvent](), 0, set[tuple[str, str]]()
        for event in events:
            known_pairs.add((event.kind, event.source))
            if len(known_pairs) > self._most_pairs:
                raise TooManyKinds(self._bounds.max_event_kinds)
            page.append(event)
            size += len(event.raw)
            if len(page) == PAGE or size >= _PAGE_BYTES:
                self._append(copy, page)
                page, size = [], 0
        if page:
            self._append(copy, page)

    def _append(self, copy: Copy, page: list[ReceivedEvent]) -> None:
        before, ids = copy.seq, set[str]()
        for seq, event in enumerate(page, before + 1):
            if event.id in ids:
                raise RepeatedEvent(Seq(seq), event.id)
            ids.add(event.id)
        copy.append(page)
        if copy.bytes > self._bounds.max_conversation_bytes:
            raise LogTooLong(self._bounds.max_conversation_bytes)
        if copy.seq == before + len(page):
            return
        seqs = self._scripts.find_events(copy.keys.root, ids=[event.id for event in page])
        for seq, (event, known) in enumerate(zip(page, seqs or (), strict=False), before + 1):
            if known != seq:
                raise RepeatedEvent(Seq(seq), event.id)

    def _has(self, copy: Copy, created_at: Micros) -> bool:
        """Return whether the conversation was made at that time, and its log begins with the events of a copy."""
        [state] = self._conversations.get_many([copy.keys.id])
        if state is None or state["created_at"] != utc_time(created_at):
            return False
        roots, seq = (copy.keys.root, ConversationKeys(copy.keys.id).root), Seq(0)
        while seq < copy.seq:
            most = min(PAGE, copy.seq - seq)
            ours, theirs = (self._scripts.read_log(root, seq=seq, most=most, most_bytes=_PAGE_BYTES) for root in roots)
            if ours is None or theirs is None or not ours.events:
                return False
            if originals(ours.events) != originals(theirs.events):
                return False
            seq = Seq(seq + len(ours.events))
        return True


def _fields(conversation_id: ConversationId, head: Mapping[str, Any], revision: Micros, key_id: str) -> dict[str, str]:
    fields = Conversation.fields_of(
        id=conversation_id,
        revision=revision,
        execution_status=head["execution_status"] if head["execution_status"] in _AT_REST else "paused",
        created_at=utc_time(head["created_at"]),
        updated_at=utc_time(head["updated_at"]),
        imported_at=utc_time(revision),
        unapproved_resumes=head["unapproved_resumes"],
        tags=head["tags"],
        right_tags=head["tags"],
        stats=head["stats"],
        origin=Origin(key_id=key_id).stored,
        unattended=True,
    )
    return fields | info_fields(head["info"]) | title_fields(head["title"]) | policy_fields(head)
