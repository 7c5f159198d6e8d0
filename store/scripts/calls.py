"""The scripts as methods: arguments have names, replies have types. Made by docs/make.py from the heads.

An outcome with data is a class of the script's namespace; an outcome without is its word.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Literal, NamedTuple, Protocol

from core.wire import Micros
from store.errors import UnknownReply
from store.link.attempts import Stamp


class Sends(Protocol):
    """Sends a script's keys and arguments, and returns its reply as Redis gives it."""

    def __call__(self, keys: list[str], args: list[Any]) -> Any: ...


def _outcome(reply: Any) -> tuple[bytes, int, Iterator[Any]]:
    """The outcome of a reply, the number of the words after it, and these."""
    words = reply if isinstance(reply, list) else [reply]
    return (words[0], len(words) - 1, iter(words[1:])) if words else (b"", 0, iter(()))


def _rows(words: Iterable[Any], width: int) -> zip[tuple[Any, ...]]:
    return zip(*[iter(words)] * width, strict=True)


class LogState(NamedTuple):
    revision: int
    status: str
    created_at: str
    updated_at: str
    groups: str
    title: str
    approvals: bool


def _log_state(words: Iterator[Any]) -> LogState:
    return LogState(
        int(next(words)),
        next(words).decode(),
        next(words).decode(),
        next(words).decode(),
        next(words).decode(),
        next(words).decode(),
        next(words) in (1, b"1"),
    )


class EventFilter(NamedTuple):
    kind: str
    source: str
    lowest: str
    highest: str


class AdoptFork:
    """Replies of `adopt_fork.lua`."""

    class Adopted(NamedTuple):
        state: LogState

    class Exists(NamedTuple):
        state: LogState


class AppendEvents:
    """Replies of `append_events.lua`."""

    class Appended(NamedTuple):
        state: LogState
        number: int
        last: int
        resumed: str
        trace: str

    class Unowned(NamedTuple):
        state: LogState
        places: str

    class Foreign(NamedTuple):
        state: LogState

    class Unmasked(NamedTuple):
        state: LogState

    class TooManyPending(NamedTuple):
        state: LogState

    class TooManyPairs(NamedTuple):
        state: LogState

    class TooLong(NamedTuple):
        state: LogState


class AskSandbox:
    """Replies of `ask_sandbox.lua`."""

    class Refused(NamedTuple):
        status: str

    class Full(NamedTuple):
        running: int

    class Lost(NamedTuple):
        host: str


class ChangeStatus:
    """Replies of `change_status.lua`."""

    class Done(NamedTuple):
        state: LogState

    class Forbidden(NamedTuple):
        state: LogState

    class Refused(NamedTuple):
        state: LogState


class ClaimQueue:
    """Replies of `claim_queue.lua`."""

    class Reply(NamedTuple):
        conversation: str
        entry: bytes
        tried: int
        sent: str
        after: str


class CountOverTime:
    """Replies of `count_over_time.lua`."""

    class Reply(NamedTuple):
        since: str
        before: str
        next: str
        numbers: Any


class CreateConversation:
    """Replies of `create_conversation.lua`."""

    class Created(NamedTuple):
        state: LogState

    class Exists(NamedTuple):
        state: LogState


class DeleteConversation:
    """Replies of `delete_conversation.lua`."""

    class Deleted(NamedTuple):
        revision: int
        is_audited: bool

    class Gone(NamedTuple):
        revision: int
        is_audited: bool


class DueObjects:
    """Replies of `due_objects.lua`."""

    class Row(NamedTuple):
        name: str
        pieces: int


class EndCopies:
    """Replies of `end_copies.lua`."""

    class Row(NamedTuple):
        fork: str
        sandbox: str


class GetEvents:
    """Replies of `get_events.lua`."""

    class Found(NamedTuple):
        events: list[bytes | None]


class InterruptConversation:
    """Replies of `interrupt_conversation.lua`."""

    class Noted(NamedTuple):
        state: LogState

    class Foreign(NamedTuple):
        state: LogState


class LocateEvent:
    """Replies of `locate_event.lua`."""

    class Found(NamedTuple):
        at: float
        seq: int


class PageConversations:
    """Replies of `page_conversations.lua`."""

    class Entry(NamedTuple):
        id: str
        place: bytes
        revision: int

    class Reply(NamedTuple):
        following: list[bytes]
        entries: list[PageConversations.Entry]


class PlanFreeze:
    """Replies of `plan_freeze.lua`."""

    class Reply(NamedTuple):
        at: Micros
        incarnation: str
        revision: str
        bytes: int
        chunks: int
        parts: list[str]


class PutSecrets:
    """Replies of `put_secrets.lua`."""

    class Put(NamedTuple):
        state: LogState

    class TooMany(NamedTuple):
        state: LogState


class QueueMessage:
    """Replies of `queue_message.lua`."""

    class Queued(NamedTuple):
        position: int

    class Full(NamedTuple):
        number: int


class ReadListChanges:
    """Replies of `read_list_changes.lua`."""

    class Change(NamedTuple):
        id: str
        number: float

    class Reply(NamedTuple):
        size: int
        floor: float
        last: float
        changes: list[ReadListChanges.Change]


class ReadLog:
    """Replies of `read_log.lua`."""

    class Reply(NamedTuple):
        incarnation: str
        last: int
        events: list[bytes]


class ReportConversation:
    """Replies of `report_conversation.lua`."""

    class Reported(NamedTuple):
        state: LogState

    class Foreign(NamedTuple):
        state: LogState


class SendMessage:
    """Replies of `send_message.lua`."""

    class Sent(NamedTuple):
        state: LogState

    class Early(NamedTuple):
        state: LogState
        earliest: Micros

    class Forbidden(NamedTuple):
        state: LogState

    class TooLong(NamedTuple):
        state: LogState


class SetFields:
    """Replies of `set_fields.lua`."""

    class Set(NamedTuple):
        state: LogState

    class Due(NamedTuple):
        state: LogState


class Calls:
    """Every script as a method."""

    _adopt_fork: Sends
    _adopt_thaw: Sends
    _append_events: Sends
    _ask_sandbox: Sends
    _begin_copy: Sends
    _bury_conversation: Sends
    _change_status: Sends
    _claim_queue: Sends
    _close_copy: Sends
    _copy_events: Sends
    _count_events: Sends
    _count_over_time: Sends
    _count_queue: Sends
    _create_conversation: Sends
    _cursor_before: Sends
    _delete_conversation: Sends
    _drop_copy: Sends
    _drop_queue: Sends
    _due_objects: Sends
    _end_copies: Sends
    _find_events: Sends
    _forget_objects: Sends
    _freeze_log: Sends
    _get_events: Sends
    _get_final_event: Sends
    _interrupt_conversation: Sends
    _keep_fields: Sends
    _locate_event: Sends
    _note_conversation: Sends
    _note_objects: Sends
    _page_conversations: Sends
    _page_events: Sends
    _plan_freeze: Sends
    _postpone_queue: Sends
    _put_secrets: Sends
    _queue_message: Sends
    _read_events: Sends
    _read_list_changes: Sends
    _read_log: Sends
    _read_versions: Sends
    _remember_chat: Sends
    _report_conversation: Sends
    _send_message: Sends
    _set_aside: Sends
    _set_fields: Sends
    _settle_labels: Sends
    _settle_message: Sends
    _take_chat: Sends
    _thaw_piece: Sends

    def adopt_fork(
        self, root: str, *, fork: str, at: int, claims: Collection[str], fields: Mapping[str, Any]
    ) -> AdoptFork.Adopted | AdoptFork.Exists | None:
        """Rename the keys of a finished copy to those of its conversation, unless that conversation exists."""
        reply = self._adopt_fork([root], [fork, at, len(claims), *claims, *chain.from_iterable(fields.items())])
        if reply is None:
            return None
        match _outcome(reply):
            case b"adopted", 7, words:
                return AdoptFork.Adopted(_log_state(words))
            case b"exists", 7, words:
                return AdoptFork.Exists(_log_state(words))
        raise UnknownReply("adopt_fork", reply)

    def adopt_thaw(
        self, root: str, *, name: str, span: int, pieces: int
    ) -> Literal["adopted", "torn", "expired"] | None:
        """Make the log current that thaw_piece has put aside."""
        reply = self._adopt_thaw([root], [name, span, pieces])
        if reply is None:
            return None
        match _outcome(reply):
            case b"adopted", 0, _:
                return "adopted"
            case b"torn", 0, _:
                return "torn"
            case b"expired", 0, _:
                return "expired"
        raise UnknownReply("adopt_thaw", reply)

    def append_events(
        self,
        root: str,
        *,
        stamp: Stamp,
        sandbox: str,
        most_open: int,
        most_pairs: int,
        made_here: bool,
        actor: str,
        expiry: int,
        most_bytes: int,
        secrets_version: str,
        events: Iterable[tuple[str, str, int, bytes, bytes, str | bytes]],
    ) -> (
        AppendEvents.Appended
        | AppendEvents.Unowned
        | AppendEvents.Foreign
        | AppendEvents.Unmasked
        | AppendEvents.TooManyPending
        | AppendEvents.TooManyPairs
        | AppendEvents.TooLong
        | None
    ):
        """Append a batch, each event once per id, with its effect on the conversation's state."""
        reply = self._append_events(
            [root],
            [
                *stamp.args,
                sandbox,
                most_open,
                most_pairs,
                "1" if made_here else "",
                actor,
                expiry,
                most_bytes,
                secrets_version,
                *chain.from_iterable(events),
            ],
        )
        if reply is None:
            return None
        match _outcome(reply):
            case b"appended", 11, words:
                return AppendEvents.Appended(
                    _log_state(words), int(next(words)), int(next(words)), next(words).decode(), next(words).decode()
                )
            case b"unowned", 8, words:
                return AppendEvents.Unowned(_log_state(words), next(words).decode())
            case b"foreign", 7, words:
                return AppendEvents.Foreign(_log_state(words))
            case b"unmasked", 7, words:
                return AppendEvents.Unmasked(_log_state(words))
            case b"too_many_pending", 7, words:
                return AppendEvents.TooManyPending(_log_state(words))
            case b"too_many_pairs", 7, words:
                return AppendEvents.TooManyPairs(_log_state(words))
            case b"too_long", 7, words:
                return AppendEvents.TooLong(_log_state(words))
        raise UnknownReply("append_events", reply)

    def ask_sandbox(
        self, root: str, *, id: str, verb: str, most: int, host_span: int, trace: str, used_at: int
    ) -> AskSandbox.Refused | AskSandbox.Full | AskSandbox.Lost | Literal["done"] | None:
        """Pause, resume or delete a sandbox, or have it yield its place, as `_sandbox.lua` has it."""
        reply = self._ask_sandbox([root], [id, verb, most, host_span, trace, used_at])
        if reply is None:
            return None
        match _outcome(reply):
            case b"done", 0, _:
                return "done"
            case b"refused", 1, words:
                return AskSandbox.Refused(next(words).decode())
            case b"full", 1, words:
                return AskSandbox.Full(int(next(words)))
            case b"lost", 1, words:
                return AskSandbox.Lost(next(words).decode())
        raise UnknownReply("ask_sandbox", reply)

    def begin_copy(self, root: str, *, fork: str, utc: str, seconds: int, sandbox: str) -> bool:
        """Begin the copy of a conversation that will have this id."""
        reply = self._begin_copy([root], [fork, utc, seconds, sandbox])
        value: bool = reply in (1, b"1")
        return value

    def bury_conversation(self, root: str, *, sandbox: str, conversation: str, most: int) -> Literal["buried"] | None:
        """Keep a tombstone of a deleted conversation beside its sandbox, so that no webhook of that sandbox creates the conversation again, and free its place."""
        reply = self._bury_conversation([root], [sandbox, conversation, most])
        if reply is None:
            return None
        match _outcome(reply):
            case b"buried", 0, _:
                return "buried"
        raise UnknownReply("bury_conversation", reply)

    def change_status(
        self, root: str, *, stamp: Stamp, verb: str, may_decide: bool, actor: str
    ) -> ChangeStatus.Done | ChangeStatus.Forbidden | ChangeStatus.Refused | None:
        """Run, pause or interrupt a conversation, as `_status.lua` has it."""
        reply = self._change_status([root], [*stamp.args, verb, "1" if may_decide else "", actor])
        if reply is None:
            return None
        match _outcome(reply):
            case b"done", 7, words:
                return ChangeStatus.Done(_log_state(words))
            case b"forbidden", 7, words:
                return ChangeStatus.Forbidden(_log_state(words))
            case b"refused", 7, words:
                return ChangeStatus.Refused(_log_state(words))
        raise UnknownReply("change_status", reply)

    def claim_queue(self, root: str, *, lease: str, span: int, poll: int) -> ClaimQueue.Reply | None:
        """Take the lease of a queue that is due."""
        reply = self._claim_queue([root], [lease, span, poll])
        if reply is None:
            return None
        words = iter(reply)
        return ClaimQueue.Reply(
            next(words).decode(), next(words), int(next(words)), next(words).decode(), next(words).decode()
        )

    def close_copy(self, root: str, *, fork: str) -> bool:
        """Note that a copy into an id is made no more: its writer has failed."""
        reply = self._close_copy([root], [fork])
        value: bool = reply in (1, b"1")
        return value

    def copy_events(
        self, root: str, *, utc: str, seconds: int, events: Iterable[tuple[str, str, int, bytes, bytes, bool]]
    ) -> int | None:
        """Append events to the unfinished copy of a conversation, which expires unless adopt_fork renames its keys."""
        reply = self._copy_events(
            [root],
            [
                utc,
                seconds,
                *(
                    word
                    for id, pair, at, event, record, may_be_final in events
                    for word in (id, pair, at, event, record, "1" if may_be_final else "")
                ),
            ],
        )
        if reply is None:
            return None
        value: int = int(reply)
        return value

    def count_events(self, root: str, *, filter: EventFilter) -> int | None:
        """The number of events that pass a filter."""
        reply = self._count_events([root], [*filter])
        if reply is None:
            return None
        value: int = int(reply)
        return value

    def count_over_time(
        self, root: str, *, since: str, before: str, buckets: int, first: str
    ) -> CountOverTime.Reply | None:
        """The number of events in each of equal spans of a window, by (kind, source) pair."""
        reply = self._count_over_time([root], [since, before, buckets, first])
        if reply is None:
            return None
        words = iter(reply)
        return CountOverTime.Reply(next(words).decode(), next(words).decode(), next(words).decode(), next(words))

    def count_queue(self, root: str, *, conversation: str) -> int:
        """The number of messages that wait for a conversation."""
        reply = self._count_queue([root], [conversation])
        value: int = int(reply)
        return value

    def create_conversation(
        self,
        root: str,
        *,
        stamp: Stamp,
        incarnation: str,
        message_id: str,
        pair: str,
        event: bytes,
        record: bytes,
        echo: str,
        start_body: bytes,
        start_id: str,
        secrets: Mapping[str, Any],
        fields: Mapping[str, Any],
    ) -> CreateConversation.Created | CreateConversation.Exists | None:
        """Create a conversation unless the id is taken, with its first message when there is one."""
        reply = self._create_conversation(
            [root],
            [
                *stamp.args,
                incarnation,
                message_id,
                pair,
                event,
                record,
                echo,
                start_body,
                start_id,
                2 * len(secrets),
                *chain.from_iterable(secrets.items()),
                *chain.from_iterable(fields.items()),
            ],
        )
        if reply is None:
            return None
        match _outcome(reply):
            case b"created", 7, words:
                return CreateConversation.Created(_log_state(words))
            case b"exists", 7, words:
                return CreateConversation.Exists(_log_state(words))
        raise UnknownReply("create_conversation", reply)

    def cursor_before(self, root: str, *, since: int) -> int | None:
        """The block of the log before which every event is earlier than a time."""
        reply = self._cursor_before([root], [since])
        if reply is None:
            return None
        value: int = int(reply)
        return value

    def delete_conversation(
        self, root: str, *, deletion: str, utc: str, actor: str, audit_seconds: int, wanted: str
    ) -> DeleteConversation.Deleted | DeleteConversation.Gone | Literal["changed"] | None:
        """Remove a conversation with all its keys but its audit."""
        reply = self._delete_conversation([root], [deletion, utc, actor, audit_seconds, wanted])
        if reply is None:
            return None
        match _outcome(reply):
            case b"deleted", 2, words:
                return DeleteConversation.Deleted(int(next(words)), next(words) in (1, b"1"))
            case b"changed", 0, _:
                return "changed"
            case b"gone", 2, words:
                return DeleteConversation.Gone(int(next(words)), next(words) in (1, b"1"))
        raise UnknownReply("delete_conversation", reply)

    def drop_copy(self, root: str) -> None:
        """Remove the unfinished copy of a conversation."""
        self._drop_copy([root], [])

    def drop_queue(self, root: str, *, conversation: str) -> None:
        """Remove the messages that wait for a conversation, which is gone."""
        self._drop_queue([root], [conversation])

    def due_objects(self, root: str, *, most: int) -> list[DueObjects.Row]:
        """The objects that are to be looked at."""
        reply = self._due_objects([root], [most])
        value: list[DueObjects.Row] = [DueObjects.Row(name.decode(), int(pieces)) for name, pieces in _rows(reply, 2)]
        return value

    def end_copies(self, root: str) -> list[EndCopies.Row]:
        """End the copies into an id that are made at present: no conversation comes of them."""
        reply = self._end_copies([root], [])
        value: list[EndCopies.Row] = [
            EndCopies.Row(fork.decode(), sandbox.decode()) for fork, sandbox in _rows(reply, 2)
        ]
        return value

    def find_events(self, root: str, *, ids: Iterable[str]) -> list[int | None] | None:
        """Which events a log has, without their bytes."""
        reply = self._find_events([root], [*ids])
        if reply is None:
            return None
        value: list[int | None] = [None if value is None else int(value) for value in reply]
        return value

    def forget_objects(self, root: str, *, names: Iterable[str]) -> int:
        """Take objects out of the register, and the numbers of their pieces."""
        reply = self._forget_objects([root], [*names])
        value: int = int(reply)
        return value

    def freeze_log(self, root: str, *, name: str, incarnation: str, revision: str, latest: int) -> bool:
        """Drop the keys of a log that lies whole in an object, unless the conversation has changed since."""
        reply = self._freeze_log([root], [name, incarnation, revision, latest])
        value: bool = reply in (1, b"1")
        return value

    def get_events(
        self, root: str, *, most_bytes: int, ids: Iterable[str]
    ) -> GetEvents.Found | Literal["too_long"] | None:
        """Events by id."""
        reply = self._get_events([root], [most_bytes, *ids])
        if reply is None:
            return None
        match _outcome(reply):
            case b"found", _, words:
                return GetEvents.Found([value for value in words])
            case b"too_long", 0, _:
                return "too_long"
        raise UnknownReply("get_events", reply)

    def get_final_event(self, root: str) -> list[bytes] | None:
        """The event that holds the agent's final response."""
        reply = self._get_final_event([root], [])
        if reply is None:
            return None
        value: list[bytes] = [value for value in reply]
        return value

    def interrupt_conversation(
        self, root: str, *, stamp: Stamp, sandbox_id: str, failure: str
    ) -> InterruptConversation.Noted | InterruptConversation.Foreign | None:
        """Note that the agent server of a conversation ended."""
        reply = self._interrupt_conversation([root], [*stamp.args, sandbox_id, failure])
        if reply is None:
            return None
        match _outcome(reply):
            case b"noted", 7, words:
                return InterruptConversation.Noted(_log_state(words))
            case b"foreign", 7, words:
                return InterruptConversation.Foreign(_log_state(words))
        raise UnknownReply("interrupt_conversation", reply)

    def keep_fields(self, root: str, *, fields: Mapping[str, Any]) -> bool:
        """Keep fields of a sandbox or a conversation that no client sees change: neither a revision nor a time does."""
        reply = self._keep_fields([root], [*chain.from_iterable(fields.items())])
        value: bool = reply in (1, b"1")
        return value

    def locate_event(self, root: str, *, id: str) -> LocateEvent.Found | Literal["unknown"] | None:
        """The position of an event in the order (time, seq)."""
        reply = self._locate_event([root], [id])
        if reply is None:
            return None
        match _outcome(reply):
            case b"found", 2, words:
                return LocateEvent.Found(float(next(words)), int(next(words)))
            case b"unknown", 0, _:
                return "unknown"
        raise UnknownReply("locate_event", reply)

    def note_conversation(
        self, root: str, *, id: str, revision: int, status: str, created: int, updated: int, groups: str, title: str
    ) -> Literal["noted", "late"]:
        """Enter a conversation into the listing, move it, or take it out."""
        reply = self._note_conversation([root], [id, revision, status, created, updated, groups, title])
        match _outcome(reply):
            case b"noted", 0, _:
                return "noted"
            case b"late", 0, _:
                return "late"
        raise UnknownReply("note_conversation", reply)

    def note_objects(self, root: str, *, span: int, only_new: bool, names: Iterable[str]) -> None:
        """Enter objects into the register, or change when they are looked at."""
        self._note_objects([root], [span, "1" if only_new else "", *names])

    def page_conversations(
        self,
        root: str,
        *,
        by: str,
        among: str,
        order: str,
        most: int,
        scan: int,
        cursor: str,
        cursor_id: str,
        statuses: str,
        part: str,
        top: str,
        created_since: str,
        created_until: str,
        updated_since: str,
        updated_until: str,
    ) -> PageConversations.Reply:
        """One page of the listing, from a cursor on."""
        reply = self._page_conversations(
            [root],
            [
                by,
                among,
                order,
                most,
                scan,
                cursor,
                cursor_id,
                statuses,
                part,
                top,
                created_since,
                created_until,
                updated_since,
                updated_until,
            ],
        )
        words = iter(reply)
        return PageConversations.Reply(
            next(words),
            [
                PageConversations.Entry(id.decode(), place, int(revision))
                for id, place, revision in _rows(next(words), 3)
            ],
        )

    def page_events(
        self, root: str, *, filter: EventFilter, order: str, most: int, cursor_at: str, cursor_seq: str, most_bytes: int
    ) -> list[bytes] | None:
        """The events of one page, in the order (time, seq) or its reverse, from a cursor on."""
        reply = self._page_events([root], [*filter, order, most, cursor_at, cursor_seq, most_bytes])
        if reply is None:
            return None
        value: list[bytes] = [value for value in reply]
        return value

    def plan_freeze(self, root: str) -> PlanFreeze.Reply | None:
        """What a freezing of a conversation has to move."""
        reply = self._plan_freeze([root], [])
        if reply is None:
            return None
        words = iter(reply)
        return PlanFreeze.Reply(
            Micros(int(next(words))),
            next(words).decode(),
            next(words).decode(),
            int(next(words)),
            int(next(words)),
            [value.decode() for value in words],
        )

    def postpone_queue(self, root: str, *, conversation: str, lease: str, span: int, state: Mapping[str, Any]) -> bool:
        """Renew the lease of a queue, or make it due again, and note what its driver has done."""
        reply = self._postpone_queue([root], [conversation, lease, span, *chain.from_iterable(state.items())])
        value: bool = reply in (1, b"1")
        return value

    def put_secrets(
        self, root: str, *, utc: str, version: str, most: int, most_bytes: int, secrets: Mapping[str, Any]
    ) -> PutSecrets.Put | PutSecrets.TooMany | None:
        """Keep secrets beside a conversation, sealed by the caller."""
        reply = self._put_secrets([root], [utc, version, most, most_bytes, *chain.from_iterable(secrets.items())])
        if reply is None:
            return None
        match _outcome(reply):
            case b"put", 7, words:
                return PutSecrets.Put(_log_state(words))
            case b"too_many", 7, words:
                return PutSecrets.TooMany(_log_state(words))
        raise UnknownReply("put_secrets", reply)

    def queue_message(
        self, root: str, *, conversation: str, start_id: str, id: str, message: str, most: int, seconds: int
    ) -> QueueMessage.Queued | QueueMessage.Full:
        """Put a message at the end of a conversation's queue, once per id."""
        reply = self._queue_message([root], [conversation, start_id, id, message, most, seconds])
        match _outcome(reply):
            case b"queued", 1, words:
                return QueueMessage.Queued(int(next(words)))
            case b"full", 1, words:
                return QueueMessage.Full(int(next(words)))
        raise UnknownReply("queue_message", reply)

    def read_events(self, root: str, *, most_bytes: int, seqs: Iterable[int]) -> list[bytes] | None:
        """Events by seq, as many as fit into a page."""
        reply = self._read_events([root], [most_bytes, *seqs])
        if reply is None:
            return None
        value: list[bytes] = [value for value in reply]
        return value

    def read_list_changes(self, root: str, *, number: int, most: int) -> ReadListChanges.Reply:
        """The ids of a list that have changed after a number, in the order of their newest changes."""
        reply = self._read_list_changes([root], [number, most])
        words = iter(reply)
        return ReadListChanges.Reply(
            int(next(words)),
            float(next(words)),
            float(next(words)),
            [ReadListChanges.Change(id.decode(), float(number)) for id, number in _rows(words, 2)],
        )

    def read_log(self, root: str, *, seq: int, most: int, most_bytes: int) -> ReadLog.Reply | None:
        """The events after a seq, as many as fit."""
        reply = self._read_log([root], [seq, most, most_bytes])
        if reply is None:
            return None
        words = iter(reply)
        return ReadLog.Reply(next(words).decode(), int(next(words)), [value for value in words])

    def read_versions(self, roots: list[str], *, fields: Iterable[str]) -> list[bytes]:
        """The present versions of many conversations."""
        reply = self._read_versions(roots, [*fields])
        value: list[bytes] = [value for value in reply]
        return value

    def remember_chat(self, root: str, *, conversation: str, span: int) -> None:
        """Note which conversation gave the last answer of a chat, so that the chat goes on with it."""
        self._remember_chat([root], [conversation, span])

    def report_conversation(
        self, root: str, *, stamp: Stamp, sandbox: str, title: str, tags: str, fields: Mapping[str, Any]
    ) -> ReportConversation.Reported | ReportConversation.Foreign | None:
        """Keep the report of a sandbox's agent server about a conversation, member by member: a member that a client changes meanwhile stays."""
        reply = self._report_conversation(
            [root], [*stamp.args, sandbox, title, tags, *chain.from_iterable(fields.items())]
        )
        if reply is None:
            return None
        match _outcome(reply):
            case b"reported", 7, words:
                return ReportConversation.Reported(_log_state(words))
            case b"foreign", 7, words:
                return ReportConversation.Foreign(_log_state(words))
        raise UnknownReply("report_conversation", reply)

    def send_message(
        self,
        root: str,
        *,
        stamp: Stamp,
        id: str,
        pair: str,
        event: bytes,
        record: bytes,
        run: bool,
        reason: str,
        may_decide: bool,
        actor: str,
        most_bytes: int,
    ) -> SendMessage.Sent | SendMessage.Early | SendMessage.Forbidden | SendMessage.TooLong | None:
        """Append a user's message."""
        reply = self._send_message(
            [root],
            [
                *stamp.args,
                id,
                pair,
                event,
                record,
                "1" if run else "",
                reason,
                "1" if may_decide else "",
                actor,
                most_bytes,
            ],
        )
        if reply is None:
            return None
        match _outcome(reply):
            case b"sent", 7, words:
                return SendMessage.Sent(_log_state(words))
            case b"early", 8, words:
                return SendMessage.Early(_log_state(words), Micros(int(next(words))))
            case b"forbidden", 7, words:
                return SendMessage.Forbidden(_log_state(words))
            case b"too_long", 7, words:
                return SendMessage.TooLong(_log_state(words))
        raise UnknownReply("send_message", reply)

    def set_aside(self, root: str, *, span: int) -> None:
        """Do not freeze a conversation for a time."""
        self._set_aside([root], [span])

    def set_fields(
        self, root: str, *, stamp: Stamp, held: str, fields: Iterable[tuple[str, str, bool]]
    ) -> SetFields.Set | SetFields.Due | None:
        """Set fields of a conversation."""
        reply = self._set_fields(
            [root],
            [
                *stamp.args,
                held,
                *(word for name, value, is_event in fields for word in (name, value, "1" if is_event else "")),
            ],
        )
        if reply is None:
            return None
        match _outcome(reply):
            case b"set", 7, words:
                return SetFields.Set(_log_state(words))
            case b"due", 7, words:
                return SetFields.Due(_log_state(words))
        raise UnknownReply("set_fields", reply)

    def settle_labels(self, root: str, *, due: str) -> bool:
        """Note that the agent of a conversation has its title and tags, unless a client has changed them since."""
        reply = self._settle_labels([root], [due])
        value: bool = reply in (1, b"1")
        return value

    def settle_message(self, root: str, *, conversation: str, lease: str, id: str) -> bool:
        """Take the first message off a queue, which was delivered or given up."""
        reply = self._settle_message([root], [conversation, lease, id])
        value: bool = reply in (1, b"1")
        return value

    def take_chat(self, root: str, *, words: str) -> str | None:
        """The conversation that gave the last answer of a chat, to the first words that follow it alone."""
        reply = self._take_chat([root], [words])
        if reply is None:
            return None
        value: str = reply.decode()
        return value

    def thaw_piece(self, root: str, *, name: str, piece: int, span: int, ranges: Iterable[str | bytes]) -> int | None:
        """Put a piece of a cold conversation's log aside, until adopt_thaw makes all of it current."""
        reply = self._thaw_piece([root], [name, piece, span, *ranges])
        if reply is None:
            return None
        value: int = int(reply)
        return value
