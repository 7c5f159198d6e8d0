"""Whole conversations, copied: forks, exports and imports. What a line of an export is: `schemas/exports.py`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from redis.exceptions import TimeoutError

from core.refused import Kind
from core.scopes import Origin
from core.wire import ConversationId, Event, Micros, Seq, read_event, utc_time
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

#: events that one call writes
PAGE = 100

#: seconds without a new page after which Redis removes an unfinished copy, and the error of its writer then
_HOUR, _EXPIRED = 3600, "The copy of the conversation took so long that it has expired"


#: pairs of kind and source beyond MAX_EVENT_KINDS that the server's own events may have brought
_OWN_PAIRS = 5

#: bytes of events after which a page is written, also with less than PAGE events
_PAGE_BYTES = 256 * 1024

#: statuses that need no agent; in any other one an import is paused
_AT_REST = ("idle", "paused", "finished", "error", "stuck")


class OwnSandbox(NamedTuple):
    """What a copy has in a sandbox of its own that its source has not."""

    app: dict[str, Any]  #: members that only app conversations have, its `start_id` among them
    info: dict[str, Any]  #: of the start request: its workspace
    start_body: bytes  #: as `Conversations.create` has it


class Copy:
    """One unfinished copy: nobody else knows its keys, and they expire unless it is adopted."""

    def __init__(self, scripts: Scripts, keys: ConversationKeys, stamp: Stamp) -> None:
        self.keys = keys
        self.seq = Seq(0)  #: of its last event
        self.bytes = 0  #: of its events and their texts in Redis
        self._scripts = scripts
        self._stamp = stamp

    def begin(self, sandbox_id: str = "") -> None:
        """Begin it, once. From here on a deletion of its conversation's id ends it. Raises CopyEnded.

        sandbox_id: of the one whose agent server makes the same copy.
        """
        begins = self._scripts.begin_copy(
            self._root, fork=self.keys.fork, utc=self._stamp.utc_time, seconds=_HOUR, sandbox=sandbox_id
        )
        if not begins:
            raise CopyEnded

    def close(self) -> bool:
        """Note that nobody makes it any more; whether a deletion has ended it."""
        return self._scripts.close_copy(self._root, fork=self.keys.fork)

    def append(self, events: Sequence[Event]) -> None:
        """Write the next events, at most PAGE; one of an id that is in the log is not written again.

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
        """Make it the conversation of its id, with fields of the hash; False where that conversation exists.

        claims: what the agent may claim of it, see `effects.py`. start_id, start_body: as `Conversations.create` has
        them. One round trip. Raises TimeoutError, CopyEnded.
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
    """The fields of the hash that say which actions wait, and for how long."""
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
    """Copies conversations."""

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
        """Copy a conversation up to an event, or up to its end; the copy is idle and has no pending actions.

        A deletion of the copy's id ends it while it is under way.

        sandbox_id: that of the source, whose agent server has made the same copy; None: the copy is detached. claims:
        what the agent may claim of the copy, see `effects.py`. copy: by `begin`. key_id: of the key that asks. own:
        where sandbox_id is the copy's own. Secrets are not copied. Raises ConversationNotFound, EventNotFound, IdInUse,
        StoreFull, CopyEnded, and TimeoutError of an hour without a page.
        Source: docs/wire.md, 8.
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
        """Begin a copy that `fork` fills, so that a deletion ends it from now on. Raises CopyEnded."""
        copy = Copy(self._scripts, ConversationKeys(target, str(minted("fork"))), Stamp.now())
        copy.begin(sandbox_id or "")
        return copy

    def close(self, copy: Copy) -> None:
        """Note that a copy is made no more; where Redis does not answer, it ends by itself."""
        with suppress(*UNAVAILABLE):
            copy.close()

    def end(self, target: ConversationId) -> list[str | None]:
        """End every copy into an id that is under way, an import too: nothing comes of it, whoever is killed.

        Returns of each the sandbox whose agent server makes the same copy, None of a detached one. One round trip.
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
        }  # the agent of a copy says itself what it is capable of
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
        """Write the log up to `last` into the copy."""
        for page in _pages(self._scripts, source, incarnation, last):
            copy.append([read_event(raw) for raw in page])


def _pages(scripts: Scripts, conversation_id: ConversationId, incarnation: str, last: Seq) -> Iterator[list[bytes]]:
    """The events up to a seq, in log order; a page in memory at a time.

    Raises ConversationNotFound of another incarnation, LogDamaged where the log ends before that seq: a failover of
    Redis may forget the latest events.
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
    """The fields of a conversation that its copy has too; those of its place where the copy is in the same sandbox.

    Its key is the one that asked for the copy.

    There its events are masked by the secrets of all conversations of the sandbox, its source's among them.
    """
    # The folder and the machine of an agent in a terminal are not its copy's: rules that name them do not hold there.
    began = {} if state["external"] else state["origin"] or {}
    origin = Origin.of(began)._replace(key_id=key_id)
    fields = policy_fields(state) | Conversation.fields_of(origin=origin.stored)
    if sandbox_id is None:
        return fields | Conversation.fields_of(unattended=True)
    app = {name: value for name, value in state["app"].items() if name != "start_id"}
    if own:
        app.pop("parent_conversation_id", None)  # it is in another sandbox
        return fields | in_sandbox(sandbox_id, {**app, **own.app}, fork) | Conversation.fields_of(posted=seq)
    place = {"sandbox_id": sandbox_id, "groups": state["groups"], "secrets_version": fork}
    return fields | Conversation.fields_of(**place, app=app)


class RepeatedEvent(StoreError):
    """Two events of the import have the same id."""

    kind = Kind.MEMBER

    def __init__(self, seq: Seq, event_id: str) -> None:
        super().__init__(f"An earlier event has the id {event_id!r}: give each event its own")
        self.seq = seq  #: of the later one


class Exports:
    """Exports and imports of conversations."""

    def __init__(
        self, scripts: Scripts, projections: Projections, conversations: Conversations, bounds: ConversationLimits
    ) -> None:
        self._scripts = scripts
        self._projections = projections
        self._conversations = conversations
        self._most_pairs = bounds.max_event_kinds + _OWN_PAIRS
        self._bounds = bounds

    def pages(self, state: Mapping[str, Any]) -> Iterator[list[bytes]]:
        """The events of a conversation up to the end that its state tells, in log order; a page in memory at a time.

        Raises ConversationNotFound when it is deleted meanwhile, LogDamaged.
        """
        yield from _pages(self._scripts, state["id"], state["incarnation"], state["seq"])

    def load(
        self, conversation_id: ConversationId, head: Mapping[str, Any], events: Iterable[Event], key_id: str = ""
    ) -> bool:
        """Make a conversation of its head (`schemas.exports.ExportHead`) and its events, in their order; True if this
        call made it, False if the conversation exists and its log begins with these very events.

        It is detached: no agent runs it, nothing waits in it, and it has no secrets. Readers see all of it or nothing;
        where this raises, or the process ends, nothing is left of it after an hour. A deletion of the id ends it.
        key_id: of the key that asks.
        Raises CopyEnded, IdInUse of any other conversation of the id, RepeatedEvent, TooManyKinds, LogTooLong,
        StoreFull, TimeoutError, and what `events` raises.
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
        finally:  # of an adopted copy no key is left under these names
            copy.close()
            self._scripts.drop_copy(copy.keys.root)

    def _fill(self, copy: Copy, events: Iterable[Event]) -> None:
        page, size, known_pairs = list[Event](), 0, set[tuple[str, str]]()
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

    def _append(self, copy: Copy, page: list[Event]) -> None:
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
        """Whether the conversation of the id was made at that time, and its log begins with the events of a copy."""
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
    """The fields of the hash of an imported conversation."""
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
