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
    """Return the outcome of a reply, the number of words after it, and an iterator over them."""
    words = reply if isinstance(reply, list) else [reply]
    return (words[0], len(words) - 1, iter(words[1:])) if words else (b"", 0, iter(()))


def _rows(words: Iterable[Any], width: int) -> zip[tuple[Any, ...]]:
    return zip(*[iter(words)] * width, strict=True)


class Spent(NamedTuple):
    nanos: int
    tokens: int
    unpriced: int
    model: str
    allowed_nanos: int
    allowed_tokens: int


def _spent(words: Iterator[Any]) -> Spent:
    return Spent(
        int(next(words)), int(next(words)), int(next(words)), next(words).decode(), int(next(words)), int(next(words))
    )


class LogState(NamedTuple):
    revision: int
    status: str
    created_at: str
    updated_at: str
    groups: str
    title: str
    approvals: bool
    listed: bool


def _log_state(words: Iterator[Any]) -> LogState:
    return LogState(
        int(next(words)),
        next(words).decode(),
        next(words).decode(),
        next(words).decode(),
        next(words).decode(),
        next(words).decode(),
        next(words) in (1, b"1"),
        next(words) in (1, b"1"),
    )


class EventFilter(NamedTuple):
    kind: str
    source: str
    lowest: str
    highest: str


class Spans(NamedTuple):
    host: int
    start: int


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

    class Outdated(NamedTuple):
        state: LogState


class AskDestination:
    """Replies of `ask_destination.lua`."""

    class Allowed(NamedTuple):
        rule_id: str

    class Full(NamedTuple):
        number: int

    class Many(NamedTuple):
        number: int

    class Often(NamedTuple):
        number: int


class AskSandbox:
    """Replies of `ask_sandbox.lua`."""

    class Refused(NamedTuple):
        status: str

    class Full(NamedTuple):
        running: int

    class Lost(NamedTuple):
        host: str


class AuditTerminal:
    """Replies of `audit_terminal.lua`."""

    class Done(NamedTuple):
        state: LogState


class ChangeStatus:
    """Replies of `change_status.lua`."""

    class Done(NamedTuple):
        state: LogState

    class Forbidden(NamedTuple):
        state: LogState

    class Changed(NamedTuple):
        state: LogState

    class Unread(NamedTuple):
        state: LogState

    class Held(NamedTuple):
        state: LogState

    class Refused(NamedTuple):
        state: LogState

    class Unattended(NamedTuple):
        state: LogState

    class External(NamedTuple):
        state: LogState


class ClaimChecks:
    """Replies of `claim_checks.lua`."""

    class Reply(NamedTuple):
        lease_end: Micros
        entries: list[bytes]


class ClaimDelivery:
    """Replies of `claim_delivery.lua`."""

    class Reply(NamedTuple):
        entry: bytes
        lease_end: Micros
        status: str
        url: str
        key: str
        tried: int


class ClaimGoAhead:
    """Replies of `claim_go_ahead.lua`."""

    class Reply(NamedTuple):
        member: str
        entry: bytes
        now: Micros


class ClaimIdempotencyKey:
    """Replies of `claim_idempotency_key.lua`."""

    class Claimed(NamedTuple):
        seed: str
        is_later: bool

    class Full(NamedTuple):
        number: int

    class Finished(NamedTuple):
        record: list[bytes]


class ClaimNotification:
    """Replies of `claim_notification.lua`."""

    class Reply(NamedTuple):
        place: str
        id: str
        body: bytes
        at: Micros
        tries: int
        trace: str


class ClaimQueue:
    """Replies of `claim_queue.lua`."""

    class Reply(NamedTuple):
        conversation: str
        entry: bytes
        tried: int
        queue: list[bytes]


class ClaimRing:
    """Replies of `claim_ring.lua`."""

    class Reply(NamedTuple):
        device: str
        place: str
        id: str
        body: bytes
        at: Micros
        tries: int
        trace: str


class ClaimSweep:
    """Replies of `claim_sweep.lua`."""

    class Reply(NamedTuple):
        sweep: list[bytes]
        conversations: list[str]


class CloseDestinations:
    """Replies of `close_destinations.lua`."""

    class Reply(NamedTuple):
        closed: int
        unnoted: int


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


class CreateStartTask:
    """Replies of `create_start_task.lua`."""

    class Created(NamedTuple):
        found: list[bytes]

    class Exists(NamedTuple):
        found: list[bytes]

    class Full(NamedTuple):
        unfinished: int


class DecideDestination:
    """Replies of `decide_destination.lua`."""

    class Made(NamedTuple):
        rule: str

    class Known(NamedTuple):
        id: str


class DecidePending:
    """Replies of `decide_pending.lua`."""

    class Delivery(NamedTuple):
        id: str
        verb: str
        reason: str
        actions: str
        decisions: str
        trace: str

    class Reply(NamedTuple):
        outcome: str
        state: LogState
        problems: str
        decided: str
        delivery: list[DecidePending.Delivery]


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


class FindAccessKey:
    """Replies of `find_access_key.lua`."""

    class Reply(NamedTuple):
        id: str
        name: str
        scopes: str
        left: Micros | None
        person: str


class FindDecisions:
    """Replies of `find_decisions.lua`."""

    class Reply(NamedTuple):
        entries: list[str | None]


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


class KeepDevice:
    """Replies of `keep_device.lua`."""

    class Kept(NamedTuple):
        renewed_at: Micros
        expires_at: Micros


class ListDecisions:
    """Replies of `list_decisions.lua`."""

    class Row(NamedTuple):
        id: str
        decision: str
        arguments: str | None


class ListDestinations:
    """Replies of `list_destinations.lua`."""

    class Following(NamedTuple):
        since: Micros
        member: str

    class Item(NamedTuple):
        sandbox: str
        conversation: str
        item: str

    class Reply(NamedTuple):
        following: list[ListDestinations.Following]
        items: list[ListDestinations.Item]


class ListGrants:
    """Replies of `list_grants.lua`."""

    class Reply(NamedTuple):
        version: bytes
        grants: list[str]


class ListPending:
    """Replies of `list_pending.lua`."""

    class Row(NamedTuple):
        seq: int
        since: str
        event: bytes


class ListRules:
    """Replies of `list_rules.lua`."""

    class Rule(NamedTuple):
        rule: str
        use: str

    class Reply(NamedTuple):
        version: bytes
        rules: list[ListRules.Rule]


class LocateEvent:
    """Replies of `locate_event.lua`."""

    class Found(NamedTuple):
        at: float
        seq: int


class MakeAccessKey:
    """Replies of `make_access_key.lua`."""

    class Made(NamedTuple):
        created_at: Micros


class MakeGrant:
    """Replies of `make_grant.lua`."""

    class Made(NamedTuple):
        grant: str


class MakeRule:
    """Replies of `make_rule.lua`."""

    class Made(NamedTuple):
        rule: str


class OpenDelivery:
    """Replies of `open_delivery.lua`."""

    class Reply(NamedTuple):
        taken: bool
        lease_end: Micros
        status: str
        url: str
        key: str


class OpenSandbox:
    """Replies of `open_sandbox.lua`."""

    class Opened(NamedTuple):
        id: str

    class TooFast(NamedTuple):
        left: int


class OpenTargets:
    """Replies of `open_targets.lua`."""

    class Row(NamedTuple):
        name: str
        messages: int


class OwnSandboxes:
    """Replies of `own_sandboxes.lua`."""

    class Reply(NamedTuple):
        running: list[str]
        paused: list[str]


class PageAudit:
    """Replies of `page_audit.lua`."""

    class Row(NamedTuple):
        member: str
        at: float


class PageConversations:
    """Replies of `page_conversations.lua`."""

    class Entry(NamedTuple):
        id: str
        place: bytes
        revision: int
        version: bytes

    class Reply(NamedTuple):
        following: list[bytes]
        entries: list[PageConversations.Entry]


class PagePendingActions:
    """Replies of `page_pending_actions.lua`."""

    class Following(NamedTuple):
        at: Micros
        member: str
        seq: int

    class Item(NamedTuple):
        member: str
        at: Micros
        item: str

    class Reply(NamedTuple):
        following: list[PagePendingActions.Following]
        items: list[PagePendingActions.Item]


class PageSandboxes:
    """Replies of `page_sandboxes.lua`."""

    class Reply(NamedTuple):
        at: Micros
        found: list[list[bytes]]


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


class ReadApprovals:
    """Replies of `read_approvals.lua`."""

    class Pending(NamedTuple):
        id: str
        record: str

    class Reply(NamedTuple):
        there: str
        revision: int
        title: str
        tags: str
        sandbox: str
        capabilities: str
        audited: int
        audit: list[bytes]
        folder: str
        origin: str
        inside: bool
        held: str
        pending: list[ReadApprovals.Pending]


class ReadChanges:
    """Replies of `read_changes.lua`."""

    class Change(NamedTuple):
        id: str
        fields: list[bytes]

    class Reply(NamedTuple):
        held: int
        first: str
        last: str
        changes: list[ReadChanges.Change]


class ReadDelivery:
    """Replies of `read_delivery.lua`."""

    class Reply(NamedTuple):
        id: str
        verb: str
        reason: str
        actions: str
        decisions: str
        trace: str


class ReadDevices:
    """Replies of `read_devices.lua`."""

    class Row(NamedTuple):
        id: str
        queued: int
        oldest: str | None
        device: list[bytes]
        state: list[bytes]


class ReadLink:
    """Replies of `read_link.lua`."""

    class Reply(NamedTuple):
        now: Micros
        use: list[bytes]


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


class ReadRequest:
    """Replies of `read_request.lua`."""

    class Reply(NamedTuple):
        origin: str
        external: str
        waits: str
        is_due: bool
        record: str | None
        entry: str | None


class ReadSandboxes:
    """Replies of `read_sandboxes.lua`."""

    class Reply(NamedTuple):
        at: Micros
        found: list[list[bytes]]


class ReadSpending:
    """Replies of `read_spending.lua`."""

    class Reply(NamedTuple):
        owner: str
        today: int
        conversation: Spent
        key: Spent
        day: Spent


class ReadTargets:
    """Replies of `read_targets.lua`."""

    class Row(NamedTuple):
        id: str
        name: str
        queued: int
        oldest: str | None
        state: list[bytes]


class ReadUnindexed:
    """Replies of `read_unindexed.lua`."""

    class Pending(NamedTuple):
        id: str
        at: Micros
        expires: str
        item: bytes

    class Entry(NamedTuple):
        seq: int
        at: Micros
        kind: str
        ids: str
        notice: bytes
        entry: bytes

    class Reply(NamedTuple):
        part: str
        revision: Micros
        audited: int
        pending: list[ReadUnindexed.Pending]
        entries: list[ReadUnindexed.Entry]


class RefuseCall:
    """Replies of `refuse_call.lua`."""

    class Reply(NamedTuple):
        outcome: str
        unnoted: int


class ReportConversation:
    """Replies of `report_conversation.lua`."""

    class Reported(NamedTuple):
        state: LogState

    class Foreign(NamedTuple):
        state: LogState


class RuleDestination:
    """Replies of `rule_destination.lua`."""

    class Made(NamedTuple):
        rule: str

    class Known(NamedTuple):
        id: str


class SendChunk:
    """Replies of `send_chunk.lua`."""

    class Closed(NamedTuple):
        transfer: list[bytes]


class SendMessage:
    """Replies of `send_message.lua`."""

    class Sent(NamedTuple):
        state: LogState

    class Early(NamedTuple):
        state: LogState
        earliest: Micros

    class Forbidden(NamedTuple):
        state: LogState

    class Changed(NamedTuple):
        state: LogState

    class TooLong(NamedTuple):
        state: LogState

    class Unattended(NamedTuple):
        state: LogState

    class External(NamedTuple):
        state: LogState


class SetFields:
    """Replies of `set_fields.lua`."""

    class Set(NamedTuple):
        state: LogState

    class Due(NamedTuple):
        state: LogState


class SetOwner:
    """Replies of `set_owner.lua`."""

    class Done(NamedTuple):
        state: LogState

    class Other(NamedTuple):
        state: LogState

    class Changed(NamedTuple):
        state: LogState


class StartSandbox:
    """Replies of `start_sandbox.lua`."""

    class Started(NamedTuple):
        at: Micros
        fields: list[bytes]

    class Exists(NamedTuple):
        at: Micros
        fields: list[bytes]

    class Full(NamedTuple):
        running: int

    class Kept(NamedTuple):
        stopped: int


class TakeChunk:
    """Replies of `take_chunk.lua`."""

    class Reply(NamedTuple):
        chunk: bytes | None
        transfer: list[bytes]


class TakeLink:
    """Replies of `take_link.lua`."""

    class First(NamedTuple):
        decision: str
        at: Micros

    class Again(NamedTuple):
        decision: str
        at: Micros

    class Other(NamedTuple):
        decision: str
        at: Micros


class TakePlace:
    """Replies of `take_place.lua`."""

    class Full(NamedTuple):
        places: int


class TurnBackSandbox:
    """Replies of `turn_back_sandbox.lua`."""

    class Refused(NamedTuple):
        status: str


class UseSandbox:
    """Replies of `use_sandbox.lua`."""

    class Reply(NamedTuple):
        at: Micros
        fields: list[bytes]


class Calls:
    """Every script as a method."""

    _adopt_fork: Sends
    _adopt_thaw: Sends
    _adopt_workspace: Sends
    _advance_start_task: Sends
    _append_events: Sends
    _ask_destination: Sends
    _ask_sandbox: Sends
    _audit_terminal: Sends
    _await_place: Sends
    _beat_host: Sends
    _begin_copy: Sends
    _begin_sandbox: Sends
    _book_call: Sends
    _bury_conversation: Sends
    _bury_start: Sends
    _change_settings: Sends
    _change_status: Sends
    _check_sandbox: Sends
    _claim_checks: Sends
    _claim_delivery: Sends
    _claim_failed_start_task: Sends
    _claim_go_ahead: Sends
    _claim_idempotency_key: Sends
    _claim_notification: Sends
    _claim_queue: Sends
    _claim_rehearsal: Sends
    _claim_ring: Sends
    _claim_rule_uses: Sends
    _claim_sandbox: Sends
    _claim_start_task: Sends
    _claim_sweep: Sends
    _claim_warm_sandbox: Sends
    _clear_start_task: Sends
    _close_check: Sends
    _close_copy: Sends
    _close_delivery: Sends
    _close_destinations: Sends
    _close_go_ahead: Sends
    _close_notification: Sends
    _close_transfer: Sends
    _copy_events: Sends
    _count_events: Sends
    _count_hit: Sends
    _count_hosts: Sends
    _count_over_time: Sends
    _count_queue: Sends
    _create_conversation: Sends
    _create_start_task: Sends
    _cursor_before: Sends
    _decide_destination: Sends
    _decide_pending: Sends
    _declare_warm_pools: Sends
    _delete_conversation: Sends
    _discard_warm_sandbox: Sends
    _drop_copy: Sends
    _drop_queue: Sends
    _due_approvals: Sends
    _due_objects: Sends
    _empty_outbox: Sends
    _end_copies: Sends
    _end_devices: Sends
    _end_idempotency_claim: Sends
    _end_start_task: Sends
    _expect_echoes: Sends
    _expire_sandboxes: Sends
    _expire_workspaces: Sends
    _fill_warm_pool: Sends
    _find_access_key: Sends
    _find_decisions: Sends
    _find_events: Sends
    _finish_start_task: Sends
    _forget_echo: Sends
    _forget_go_ahead: Sends
    _forget_objects: Sends
    _forget_start_task: Sends
    _freeze_log: Sends
    _get_events: Sends
    _get_final_event: Sends
    _hold_request: Sends
    _interrupt_conversation: Sends
    _join_sandbox: Sends
    _keep_device: Sends
    _keep_fields: Sends
    _leave_place: Sends
    _leave_place_queue: Sends
    _list_access_keys: Sends
    _list_decisions: Sends
    _list_destinations: Sends
    _list_grants: Sends
    _list_pending: Sends
    _list_rules: Sends
    _live_access_keys: Sends
    _locate_event: Sends
    _make_access_key: Sends
    _make_grant: Sends
    _make_rule: Sends
    _make_ticket: Sends
    _name_owner: Sends
    _name_workspace: Sends
    _note_approvals: Sends
    _note_comparison: Sends
    _note_conversation: Sends
    _note_destinations: Sends
    _note_objects: Sends
    _note_person: Sends
    _note_rule: Sends
    _open_delivery: Sends
    _open_rehearsal: Sends
    _open_sandbox: Sends
    _open_targets: Sends
    _open_transfer: Sends
    _own_sandboxes: Sends
    _page_audit: Sends
    _page_conversations: Sends
    _page_events: Sends
    _page_pending_actions: Sends
    _page_sandboxes: Sends
    _page_start_tasks: Sends
    _plan_freeze: Sends
    _postpone_queue: Sends
    _put_secrets: Sends
    _queue_message: Sends
    _queue_notifications: Sends
    _read_approvals: Sends
    _read_changes: Sends
    _read_delivery: Sends
    _read_devices: Sends
    _read_events: Sends
    _read_link: Sends
    _read_list_changes: Sends
    _read_log: Sends
    _read_request: Sends
    _read_sandboxes: Sends
    _read_spending: Sends
    _read_start_tasks: Sends
    _read_targets: Sends
    _read_unindexed: Sends
    _record_destination: Sends
    _refuse_call: Sends
    _release_host: Sends
    _remember_chat: Sends
    _rename_host: Sends
    _renew_delivery: Sends
    _renew_notification: Sends
    _renew_start_task: Sends
    _reopen_actions: Sends
    _report_conversation: Sends
    _report_rehearsal: Sends
    _report_sandbox: Sends
    _return_rule_uses: Sends
    _return_workspace: Sends
    _revoke_access_key: Sends
    _revoke_destination_rule: Sends
    _revoke_grant: Sends
    _revoke_rule: Sends
    _rule_destination: Sends
    _send_chunk: Sends
    _send_message: Sends
    _set_aside: Sends
    _set_fields: Sends
    _set_owner: Sends
    _settle_delivery: Sends
    _settle_labels: Sends
    _settle_message: Sends
    _start_sandbox: Sends
    _stop_sandbox: Sends
    _take_chat: Sends
    _take_chunk: Sends
    _take_link: Sends
    _take_place: Sends
    _take_ticket: Sends
    _thaw_piece: Sends
    _turn_back_sandbox: Sends
    _use_sandbox: Sends

    def adopt_fork(
        self,
        root: str,
        *,
        fork: str,
        at: int,
        start_id: str,
        start_body: bytes,
        claims: Collection[str],
        fields: Mapping[str, object],
    ) -> AdoptFork.Adopted | AdoptFork.Exists | None:
        """Rename the keys of a finished copy to those of its conversation, unless that conversation exists."""
        reply = self._adopt_fork(
            [root], [fork, at, start_id, start_body, len(claims), *claims, *chain.from_iterable(fields.items())]
        )
        if reply is None:
            return None
        match _outcome(reply):
            case b"adopted", 8, words:
                return AdoptFork.Adopted(_log_state(words))
            case b"exists", 8, words:
                return AdoptFork.Exists(_log_state(words))
        raise UnknownReply("adopt_fork", reply)

    def adopt_thaw(
        self, root: str, *, name: str, span: int, pieces: int
    ) -> Literal["adopted", "torn", "expired"] | None:
        """Adopt the log that thaw_piece has staged."""
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

    def adopt_workspace(self, root: str, *, owner: str, spec: str, start: str, gives_way: bool) -> str | None:
        """Bind the workspace sandbox of a key to a start task of the key, with the files that were uploaded."""
        reply = self._adopt_workspace([root], [owner, spec, start, "1" if gives_way else ""])
        if reply is None:
            return None
        result: str = reply.decode()
        return result

    def advance_start_task(self, root: str, *, id: str, lease: str, span: int, fields: Mapping[str, object]) -> bool:
        """Write the progress of an unfinished start task, and renew its lease."""
        reply = self._advance_start_task([root], [id, lease, span, *chain.from_iterable(fields.items())])
        result: bool = reply in (1, b"1")
        return result

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
        posted: int | None = None,
        asked: str,
        unasked: str,
        audited: bool,
        events: Iterable[tuple[str, str, int, bytes, bytes, str | bytes]],
    ) -> (
        AppendEvents.Appended
        | AppendEvents.Unowned
        | AppendEvents.Foreign
        | AppendEvents.Unmasked
        | AppendEvents.TooManyPending
        | AppendEvents.TooManyPairs
        | AppendEvents.TooLong
        | AppendEvents.Outdated
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
                "" if posted is None else posted,
                asked,
                unasked,
                "1" if audited else "",
                *chain.from_iterable(events),
            ],
        )
        if reply is None:
            return None
        match _outcome(reply):
            case b"appended", 12, words:
                return AppendEvents.Appended(
                    _log_state(words), int(next(words)), int(next(words)), next(words).decode(), next(words).decode()
                )
            case b"unowned", 9, words:
                return AppendEvents.Unowned(_log_state(words), next(words).decode())
            case b"foreign", 8, words:
                return AppendEvents.Foreign(_log_state(words))
            case b"unmasked", 8, words:
                return AppendEvents.Unmasked(_log_state(words))
            case b"too_many_pending", 8, words:
                return AppendEvents.TooManyPending(_log_state(words))
            case b"too_many_pairs", 8, words:
                return AppendEvents.TooManyPairs(_log_state(words))
            case b"too_long", 8, words:
                return AppendEvents.TooLong(_log_state(words))
            case b"outdated", 8, words:
                return AppendEvents.Outdated(_log_state(words))
        raise UnknownReply("append_events", reply)

    def ask_destination(
        self,
        root: str,
        *,
        sandbox: str,
        name: str,
        port: int,
        program: str,
        most_open: int,
        most_known: int,
        span: int,
        time: str,
        kept: int,
        actor: str,
        said: str,
        most_asked: int,
        most_refused: int,
    ) -> (
        AskDestination.Allowed
        | AskDestination.Full
        | AskDestination.Many
        | AskDestination.Often
        | Literal["asked", "waiting", "rejected", "forbidden", "expired", "ended"]
    ):
        """Return whether a sandbox may connect to a name and port now."""
        reply = self._ask_destination(
            [root],
            [
                sandbox,
                name,
                port,
                program,
                most_open,
                most_known,
                span,
                time,
                kept,
                actor,
                said,
                most_asked,
                most_refused,
            ],
        )
        match _outcome(reply):
            case b"allowed", 1, words:
                return AskDestination.Allowed(next(words).decode())
            case b"asked", 0, _:
                return "asked"
            case b"waiting", 0, _:
                return "waiting"
            case b"rejected", 0, _:
                return "rejected"
            case b"forbidden", 0, _:
                return "forbidden"
            case b"expired", 0, _:
                return "expired"
            case b"full", 1, words:
                return AskDestination.Full(int(next(words)))
            case b"many", 1, words:
                return AskDestination.Many(int(next(words)))
            case b"often", 1, words:
                return AskDestination.Often(int(next(words)))
            case b"ended", 0, _:
                return "ended"
        raise UnknownReply("ask_destination", reply)

    def ask_sandbox(
        self, root: str, *, id: str, verb: str, most: int, host_span: int, trace: str, used_at: int
    ) -> AskSandbox.Refused | AskSandbox.Full | AskSandbox.Lost | Literal["done"] | None:
        """Pause, resume or delete a sandbox, by writing its desired state."""
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

    def audit_terminal(
        self, root: str, *, id_prefix: str, time: str, what: str, actor: str, reason: str
    ) -> AuditTerminal.Done | None:
        """Audit that a terminal was opened or closed in a conversation's sandbox, a preview opened, a push begun, or a rule of the conversation made or revoked."""
        reply = self._audit_terminal([root], [id_prefix, time, what, actor, reason])
        if reply is None:
            return None
        match _outcome(reply):
            case b"done", 8, words:
                return AuditTerminal.Done(_log_state(words))
        raise UnknownReply("audit_terminal", reply)

    def await_place(
        self, root: str, *, id: str, lease: str, again: int, most: int, detail: str
    ) -> Literal["waits", "over"] | None:
        """Queue a start task for the place of a sandbox, by time of creation."""
        reply = self._await_place([root], [id, lease, again, most, detail])
        if reply is None:
            return None
        match _outcome(reply):
            case b"waits", 0, _:
                return "waits"
            case b"over", 0, _:
                return "over"
        raise UnknownReply("await_place", reply)

    def beat_host(self, root: str, *, host: str, supervisor: str, spans: Spans) -> Literal["alive", "taken"]:
        """Record the heartbeat of a host's supervisor, and mark the sandboxes of lost hosts."""
        reply = self._beat_host([root], [host, supervisor, *spans])
        match _outcome(reply):
            case b"alive", 0, _:
                return "alive"
            case b"taken", 0, _:
                return "taken"
        raise UnknownReply("beat_host", reply)

    def begin_copy(self, root: str, *, fork: str, utc: str, seconds: int, sandbox: str) -> bool:
        """Begin the copy of a future conversation."""
        reply = self._begin_copy([root], [fork, utc, seconds, sandbox])
        result: bool = reply in (1, b"1")
        return result

    def begin_sandbox(
        self,
        root: str,
        *,
        id: str,
        host: str,
        supervisor: str,
        agent_key: str,
        hook_hash: str,
        runtime: str,
        session_hash: str,
        folder: str,
        hidden: str,
    ) -> Literal["begun", "passed", "taken"] | None:
        """Number a start of a sandbox's processes, with two new keys."""
        reply = self._begin_sandbox(
            [root], [id, host, supervisor, agent_key, hook_hash, runtime, session_hash, folder, hidden]
        )
        if reply is None:
            return None
        match _outcome(reply):
            case b"begun", 0, _:
                return "begun"
            case b"passed", 0, _:
                return "passed"
            case b"taken", 0, _:
                return "taken"
        raise UnknownReply("begin_sandbox", reply)

    def book_call(
        self,
        root: str,
        *,
        sandbox: str,
        owner: str,
        model: str,
        kept: int,
        unpriced: str,
        numbers: Iterable[tuple[str, int]],
    ) -> None:
        """Count the usage of a model's call: for its sandbox, for its key and for all today, and by model."""
        self._book_call([root], [sandbox, owner, model, kept, unpriced, *chain.from_iterable(numbers)])

    def bury_conversation(self, root: str, *, sandbox: str, conversation: str, most: int) -> Literal["buried"] | None:
        """Write a tombstone of a deleted conversation in its sandbox, so that none of the sandbox's webhooks creates the conversation again, and free its place."""
        reply = self._bury_conversation([root], [sandbox, conversation, most])
        if reply is None:
            return None
        match _outcome(reply):
            case b"buried", 0, _:
                return "buried"
        raise UnknownReply("bury_conversation", reply)

    def bury_start(self, root: str, *, id: str, late: int) -> None:
        """Bar an ended start task from creating anything below a root: a conversation, or a use of a sandbox."""
        self._bury_start([root], [id, late])

    def change_settings(
        self, root: str, *, before: int, id: str, most: int, most_bytes: int, changes: Iterable[tuple[str, bytes]]
    ) -> Literal["changed", "stale", "many", "long"]:
        """Change the entries of a key, unless they have changed since they were read."""
        reply = self._change_settings([root], [before, id, most, most_bytes, *chain.from_iterable(changes)])
        match _outcome(reply):
            case b"changed", 0, _:
                return "changed"
            case b"stale", 0, _:
                return "stale"
            case b"many", 0, _:
                return "many"
            case b"long", 0, _:
                return "long"
        raise UnknownReply("change_settings", reply)

    def change_status(
        self, root: str, *, stamp: Stamp, verb: str, may_decide: bool, actor: str, rights: str, quorum: str
    ) -> (
        ChangeStatus.Done
        | ChangeStatus.Forbidden
        | ChangeStatus.Changed
        | ChangeStatus.Unread
        | ChangeStatus.Held
        | ChangeStatus.Refused
        | ChangeStatus.Unattended
        | ChangeStatus.External
        | None
    ):
        """Run, pause or interrupt a conversation, as defined in `_status.lua`."""
        reply = self._change_status([root], [*stamp.args, verb, "1" if may_decide else "", actor, rights, quorum])
        if reply is None:
            return None
        match _outcome(reply):
            case b"done", 8, words:
                return ChangeStatus.Done(_log_state(words))
            case b"forbidden", 8, words:
                return ChangeStatus.Forbidden(_log_state(words))
            case b"changed", 8, words:
                return ChangeStatus.Changed(_log_state(words))
            case b"unread", 8, words:
                return ChangeStatus.Unread(_log_state(words))
            case b"held", 8, words:
                return ChangeStatus.Held(_log_state(words))
            case b"refused", 8, words:
                return ChangeStatus.Refused(_log_state(words))
            case b"unattended", 8, words:
                return ChangeStatus.Unattended(_log_state(words))
            case b"external", 8, words:
                return ChangeStatus.External(_log_state(words))
        raise UnknownReply("change_status", reply)

    def check_sandbox(self, root: str, *, id: str) -> None:
        """Make every conversation of a sandbox due for comparison with its agent at once."""
        self._check_sandbox([root], [id])

    def claim_checks(self, root: str, *, host: str, lease: int, most: int, spans: Spans) -> ClaimChecks.Reply | None:
        """Claim conversations that are due for comparison with their agents, the longest overdue first: of a host's sandboxes, of lost hosts, and of deleted sandboxes."""
        reply = self._claim_checks([root], [host, lease, most, *spans])
        if reply is None:
            return None
        words = iter(reply)
        return ClaimChecks.Reply(Micros(int(next(words))), [value for value in words])

    def claim_delivery(
        self, root: str, *, token: str, lease: int, host_span: int, start_span: int
    ) -> ClaimDelivery.Reply | None:
        """Claim the longest overdue delivery, with the lease of its agent."""
        reply = self._claim_delivery([root], [token, lease, host_span, start_span])
        if reply is None:
            return None
        words = iter(reply)
        return ClaimDelivery.Reply(
            next(words),
            Micros(int(next(words))),
            next(words).decode(),
            next(words).decode(),
            next(words).decode(),
            int(next(words)),
        )

    def claim_failed_start_task(self, root: str, *, span: int) -> list[bytes] | None:
        """Claim a failed start task, to remove its conversation and sandbox."""
        reply = self._claim_failed_start_task([root], [span])
        if reply is None:
            return None
        result: list[bytes] = reply
        return result

    def claim_go_ahead(self, root: str, *, span: int) -> ClaimGoAhead.Reply | None:
        """Claim a due go-ahead, to find out whether to notify its agent."""
        reply = self._claim_go_ahead([root], [span])
        if reply is None:
            return None
        words = iter(reply)
        return ClaimGoAhead.Reply(next(words).decode(), next(words), Micros(int(next(words))))

    def claim_idempotency_key(
        self, root: str, *, key: str, fingerprint: str, token: str, seed: str, lease: int, span: int, most: int
    ) -> (
        ClaimIdempotencyKey.Claimed
        | ClaimIdempotencyKey.Full
        | ClaimIdempotencyKey.Finished
        | Literal["busy", "reused"]
    ):
        """Claim the record of an Idempotency-Key for an attempt at its request, or read its response."""
        reply = self._claim_idempotency_key([root], [key, fingerprint, token, seed, lease, span, most])
        match _outcome(reply):
            case b"claimed", 2, words:
                return ClaimIdempotencyKey.Claimed(next(words).decode(), next(words) in (1, b"1"))
            case b"busy", 0, _:
                return "busy"
            case b"reused", 0, _:
                return "reused"
            case b"full", 1, words:
                return ClaimIdempotencyKey.Full(int(next(words)))
            case b"finished", 1, words:
                return ClaimIdempotencyKey.Finished(next(words))
        raise UnknownReply("claim_idempotency_key", reply)

    def claim_notification(self, root: str, *, target: str, token: str, span: int) -> ClaimNotification.Reply | None:
        """Take the lease of a target whose oldest message is due."""
        reply = self._claim_notification([root], [target, token, span])
        if reply is None:
            return None
        words = iter(reply)
        return ClaimNotification.Reply(
            next(words).decode(),
            next(words).decode(),
            next(words),
            Micros(int(next(words))),
            int(next(words)),
            next(words).decode(),
        )

    def claim_queue(self, root: str, *, lease: str, span: int, poll: int) -> ClaimQueue.Reply | None:
        """Claim the lease of a due queue."""
        reply = self._claim_queue([root], [lease, span, poll])
        if reply is None:
            return None
        words = iter(reply)
        return ClaimQueue.Reply(next(words).decode(), next(words), int(next(words)), next(words))

    def claim_rehearsal(
        self, root: str, *, id: str, runner: str, most: int, most_tries: int, lease: int, kept: int
    ) -> Literal["claimed", "held", "ended", "given_up"]:
        """Continue a rehearsal whose runner is gone, unless the maximum number is running."""
        reply = self._claim_rehearsal([root], [id, runner, most, most_tries, lease, kept])
        match _outcome(reply):
            case b"claimed", 0, _:
                return "claimed"
            case b"held", 0, _:
                return "held"
            case b"ended", 0, _:
                return "ended"
            case b"given_up", 0, _:
                return "given_up"
        raise UnknownReply("claim_rehearsal", reply)

    def claim_ring(self, root: str, *, token: str, span: int) -> ClaimRing.Reply | None:
        """Take the lease of a device whose oldest message is due."""
        reply = self._claim_ring([root], [token, span])
        if reply is None:
            return None
        words = iter(reply)
        return ClaimRing.Reply(
            next(words).decode(),
            next(words).decode(),
            next(words).decode(),
            next(words),
            Micros(int(next(words))),
            int(next(words)),
            next(words).decode(),
        )

    def claim_rule_uses(self, root: str, *, doubts: Collection[str], uses: Iterable[tuple[str, str]]) -> int:
        """Count a use of a rule for each action that it is about to decide, all or none."""
        reply = self._claim_rule_uses([root], [len(doubts), *doubts, *chain.from_iterable(uses)])
        result: int = int(reply)
        return result

    def claim_sandbox(self, root: str, *, host: str, most: int) -> str | None:
        """Give a host the sandbox that has waited longest for one, within the maximum of running sandboxes."""
        reply = self._claim_sandbox([root], [host, most])
        if reply is None:
            return None
        result: str = reply.decode()
        return result

    def claim_start_task(
        self, root: str, *, lease: str, span: int, most: int, detail: str, kept: int
    ) -> list[bytes] | None:
        """Claim an unfinished start task without a driver."""
        reply = self._claim_start_task([root], [lease, span, most, detail, kept])
        if reply is None:
            return None
        result: list[bytes] = reply
        return result

    def claim_sweep(self, root: str, *, span: int, most: int, kept: int) -> ClaimSweep.Reply | None:
        """Claim the next part of the sweep, which compares the index of approvals with the conversations, unless the last part was claimed a moment ago."""
        reply = self._claim_sweep([root], [span, most, kept])
        if reply is None:
            return None
        words = iter(reply)
        return ClaimSweep.Reply(next(words), [value.decode() for value in words])

    def claim_warm_sandbox(
        self, root: str, *, spec: str, version: str, start: str, host_span: int, gives_way: bool, owner: str
    ) -> str | None:
        """Bind the warm sandbox of a spec that has waited longest, and runs on a live host, to a start task."""
        reply = self._claim_warm_sandbox([root], [spec, version, start, host_span, "1" if gives_way else "", owner])
        if reply is None:
            return None
        result: str = reply.decode()
        return result

    def clear_start_task(self, root: str, *, id: str, late: int) -> bool:
        """Record that a driver has removed everything that a failed start task had created."""
        reply = self._clear_start_task([root], [id, late])
        result: bool = reply in (1, b"1")
        return result

    def close_check(self, root: str, *, entry: str | bytes, lease_end: int, again: int | None = None) -> bool:
        """End a comparison: the conversation is due again later, or when something happens in it."""
        reply = self._close_check([root], [entry, lease_end, "" if again is None else again])
        result: bool = reply in (1, b"1")
        return result

    def close_copy(self, root: str, *, fork: str) -> bool:
        """Record that a copy into an id has failed."""
        reply = self._close_copy([root], [fork])
        result: bool = reply in (1, b"1")
        return result

    def close_delivery(self, root: str, *, entry: str | bytes, token: str, again: int | None = None) -> bool:
        """End an attempt: release the lease of the agent, and make the delivery due again or delete it."""
        reply = self._close_delivery([root], [entry, token, "" if again is None else again])
        result: bool = reply in (1, b"1")
        return result

    def close_destinations(self, root: str, *, time: str, kept: int, most: int) -> CloseDestinations.Reply:
        """End waits for destinations and budgets whose deadline has passed, whose sandbox has ended, or that a new rule decides."""
        reply = self._close_destinations([root], [time, kept, most])
        words = iter(reply)
        return CloseDestinations.Reply(int(next(words)), int(next(words)))

    def close_go_ahead(self, root: str, *, member: str, id: str, again_in: int) -> None:
        """Make a go-ahead due again later, because its agent is working, or delete it."""
        self._close_go_ahead([root], [member, id, again_in])

    def close_notification(
        self, root: str, *, target: str, token: str, place: str, outcome: str, reason: str, again: int, kept: int
    ) -> Literal["sent", "failed", "given up", "gone", "late"]:
        """Record the outcome of an attempt, and end the lease of its target."""
        reply = self._close_notification([root], [target, token, place, outcome, reason, again, kept])
        match _outcome(reply):
            case b"sent", 0, _:
                return "sent"
            case b"failed", 0, _:
                return "failed"
            case b"given up", 0, _:
                return "given up"
            case b"gone", 0, _:
                return "gone"
            case b"late", 0, _:
                return "late"
        raise UnknownReply("close_notification", reply)

    def close_transfer(self, root: str, *, id: str, kept: int, fields: Mapping[str, object]) -> list[bytes] | None:
        """Record how a side ended a stream, unless it has done so already."""
        reply = self._close_transfer([root], [id, kept, *chain.from_iterable(fields.items())])
        if reply is None:
            return None
        result: list[bytes] = reply
        return result

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
        result: int = int(reply)
        return result

    def count_events(self, root: str, *, filter: EventFilter) -> int | None:
        """Return the number of events that pass a filter."""
        reply = self._count_events([root], [*filter])
        if reply is None:
            return None
        result: int = int(reply)
        return result

    def count_hit(self, root: str, *, number: int, window: int) -> int:
        """Count a hit in a window, which begins with its first hit."""
        reply = self._count_hit([root], [number, window])
        result: int = int(reply)
        return result

    def count_hosts(self, root: str, *, host_span: int) -> int:
        """Return the number of hosts with a recent heartbeat."""
        reply = self._count_hosts([root], [host_span])
        result: int = int(reply)
        return result

    def count_over_time(
        self, root: str, *, since: str, before: str, buckets: int, first: str
    ) -> CountOverTime.Reply | None:
        """Return the number of events in equal buckets of a window, by (kind, source) pair."""
        reply = self._count_over_time([root], [since, before, buckets, first])
        if reply is None:
            return None
        words = iter(reply)
        return CountOverTime.Reply(next(words).decode(), next(words).decode(), next(words).decode(), next(words))

    def count_queue(self, root: str, *, conversation: str) -> int:
        """Return the number of messages that wait for a conversation."""
        reply = self._count_queue([root], [conversation])
        result: int = int(reply)
        return result

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
        secrets: Mapping[str, object],
        fields: Mapping[str, object],
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
                len(secrets),
                *chain.from_iterable(secrets.items()),
                *chain.from_iterable(fields.items()),
            ],
        )
        if reply is None:
            return None
        match _outcome(reply):
            case b"created", 8, words:
                return CreateConversation.Created(_log_state(words))
            case b"exists", 8, words:
                return CreateConversation.Exists(_log_state(words))
        raise UnknownReply("create_conversation", reply)

    def create_start_task(
        self, root: str, *, id: str, conversation: str, most: int, asked: str, body: bytes, fields: Mapping[str, object]
    ) -> CreateStartTask.Created | CreateStartTask.Exists | CreateStartTask.Full | Literal["gone"]:
        """Create a start task, once per id, which a driver will claim."""
        reply = self._create_start_task(
            [root], [id, conversation, most, asked, body, *chain.from_iterable(fields.items())]
        )
        match _outcome(reply):
            case b"created", 1, words:
                return CreateStartTask.Created(next(words))
            case b"exists", 1, words:
                return CreateStartTask.Exists(next(words))
            case b"full", 1, words:
                return CreateStartTask.Full(int(next(words)))
            case b"gone", 0, _:
                return "gone"
        raise UnknownReply("create_start_task", reply)

    def cursor_before(self, root: str, *, since: int) -> int | None:
        """Return the first block of the log with an event at or after a time."""
        reply = self._cursor_before([root], [since])
        if reply is None:
            return None
        result: int = int(reply)
        return result

    def decide_destination(
        self,
        root: str,
        *,
        asker: str,
        at: str,
        since: int,
        decision: str,
        scope: str,
        rule_id: str,
        maker: str,
        most: int,
        time: str,
        kept: int,
        actor: str,
        reason: str,
    ) -> (
        DecideDestination.Made
        | DecideDestination.Known
        | Literal["decided", "full", "revoked", "missing", "changed", "expired"]
    ):
        """Decide a pending destination or budget."""
        reply = self._decide_destination(
            [root], [asker, at, since, decision, scope, rule_id, maker, most, time, kept, actor, reason]
        )
        match _outcome(reply):
            case b"decided", 0, _:
                return "decided"
            case b"made", 1, words:
                return DecideDestination.Made(next(words).decode())
            case b"known", 1, words:
                return DecideDestination.Known(next(words).decode())
            case b"full", 0, _:
                return "full"
            case b"revoked", 0, _:
                return "revoked"
            case b"missing", 0, _:
                return "missing"
            case b"changed", 0, _:
                return "changed"
            case b"expired", 0, _:
                return "expired"
        raise UnknownReply("decide_destination", reply)

    def decide_pending(
        self,
        root: str,
        *,
        stamp: Stamp,
        verb: str,
        reason: str,
        sandbox: str,
        latest: int | None = None,
        may_decide: bool,
        echo: str,
        actor: str,
        said: str,
        ballot: str,
        rights: str,
        quorum: str,
        at_terminal: bool,
        each: str,
    ) -> DecidePending.Reply | None:
        """Decide pending actions, all alike or each by itself."""
        reply = self._decide_pending(
            [root],
            [
                *stamp.args,
                verb,
                reason,
                sandbox,
                "" if latest is None else latest,
                "1" if may_decide else "",
                echo,
                actor,
                said,
                ballot,
                rights,
                quorum,
                "1" if at_terminal else "",
                each,
            ],
        )
        if reply is None:
            return None
        words = iter(reply)
        return DecidePending.Reply(
            next(words).decode(),
            _log_state(words),
            next(words).decode(),
            next(words).decode(),
            [
                DecidePending.Delivery(
                    id.decode(), verb.decode(), reason.decode(), actions.decode(), decisions.decode(), trace.decode()
                )
                for id, verb, reason, actions, decisions, trace in _rows(next(words), 6)
            ],
        )

    def declare_warm_pools(self, root: str, *, pools: Iterable[tuple[str, str, int]]) -> None:
        """Set how many warm sandboxes each spec keeps, and of which version."""
        self._declare_warm_pools([root], [*chain.from_iterable(pools)])

    def delete_conversation(
        self, root: str, *, deletion: str, utc: str, actor: str, audit_seconds: int, wanted: str
    ) -> DeleteConversation.Deleted | DeleteConversation.Gone | Literal["changed"] | None:
        """Delete a conversation with all its keys except its audit."""
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

    def discard_warm_sandbox(self, root: str, *, id: str, failed: bool) -> bool:
        """End a warm sandbox, unless it is bound by now."""
        reply = self._discard_warm_sandbox([root], [id, "1" if failed else ""])
        result: bool = reply in (1, b"1")
        return result

    def drop_copy(self, root: str) -> None:
        """Delete the unfinished copy of a conversation."""
        self._drop_copy([root], [])

    def drop_queue(self, root: str, *, conversation: str) -> None:
        """Delete the queued messages of a deleted conversation."""
        self._drop_queue([root], [conversation])

    def due_approvals(self, root: str, *, most: int, random: str) -> list[str]:
        """Return conversations with an action whose deadline has passed, from a random one on."""
        reply = self._due_approvals([root], [most, random])
        result: list[str] = [value.decode() for value in reply]
        return result

    def due_objects(self, root: str, *, most: int) -> list[DueObjects.Row]:
        """Return the objects that are due for a check."""
        reply = self._due_objects([root], [most])
        result: list[DueObjects.Row] = [DueObjects.Row(name.decode(), int(pieces)) for name, pieces in _rows(reply, 2)]
        return result

    def empty_outbox(self, root: str, *, entries: Iterable[bytes]) -> int:
        """Remove queued entries from an outbox."""
        reply = self._empty_outbox([root], [*entries])
        result: int = int(reply)
        return result

    def end_copies(self, root: str) -> list[EndCopies.Row]:
        """End the unfinished copies into an id, so that they create no conversation."""
        reply = self._end_copies([root], [])
        result: list[EndCopies.Row] = [
            EndCopies.Row(fork.decode(), sandbox.decode()) for fork, sandbox in _rows(reply, 2)
        ]
        return result

    def end_devices(self, root: str, *, ids: Iterable[str]) -> int:
        """Delete devices and their queues."""
        reply = self._end_devices([root], [*ids])
        result: int = int(reply)
        return result

    def end_idempotency_claim(
        self, root: str, *, key: str, token: str, span: int, fields: Mapping[str, object]
    ) -> Literal["ended", "late"]:
        """End an attempt: its response is stored, or the record may be claimed again, or the key is free."""
        reply = self._end_idempotency_claim([root], [key, token, span, *chain.from_iterable(fields.items())])
        match _outcome(reply):
            case b"ended", 0, _:
                return "ended"
            case b"late", 0, _:
                return "late"
        raise UnknownReply("end_idempotency_claim", reply)

    def end_start_task(
        self, root: str, *, id: str, conversation: str, children: bool, detail: str, failure: str
    ) -> list[str]:
        """End an unfinished start task, or all of a conversation and its children, as ERROR, for good."""
        reply = self._end_start_task([root], [id, conversation, "1" if children else "", detail, failure])
        result: list[str] = [value.decode() for value in reply]
        return result

    def expect_echoes(self, root: str, *, at: int, token: str, claims: Iterable[str]) -> int | None:
        """Record claims that an agent may make, each once."""
        reply = self._expect_echoes([root], [at, token, *claims])
        if reply is None:
            return None
        result: int = int(reply)
        return result

    def expire_sandboxes(self, root: str, *, kept: int, passed: int) -> int:
        """Request the deletion of sandboxes that failed long ago."""
        reply = self._expire_sandboxes([root], [kept, passed])
        result: int = int(reply)
        return result

    def expire_workspaces(self, root: str, *, unused: int) -> int:
        """Request the deletion of workspace sandboxes that have been unused for long."""
        reply = self._expire_workspaces([root], [unused])
        result: int = int(reply)
        return result

    def fill_warm_pool(
        self, root: str, *, spec: str, version: str, id: str, files_key: str, most_running: int
    ) -> Literal["added", "full", "waits", "other", "undeclared"]:
        """Add a warm sandbox to the pool of a spec that lacks one, for a supervisor to claim."""
        reply = self._fill_warm_pool([root], [spec, version, id, files_key, most_running])
        match _outcome(reply):
            case b"added", 0, _:
                return "added"
            case b"full", 0, _:
                return "full"
            case b"waits", 0, _:
                return "waits"
            case b"other", 0, _:
                return "other"
            case b"undeclared", 0, _:
                return "undeclared"
        raise UnknownReply("fill_warm_pool", reply)

    def find_access_key(self, root: str, *, digest: str) -> FindAccessKey.Reply | None:
        """Return the key with a hash, unless it was revoked or has expired."""
        reply = self._find_access_key([root], [digest])
        if reply is None:
            return None
        words = iter(reply)
        return FindAccessKey.Reply(
            next(words).decode(),
            next(words).decode(),
            next(words).decode(),
            None if (value := next(words)) is None else Micros(int(value)),
            next(words).decode(),
        )

    def find_decisions(self, root: str, *, ids: Iterable[str]) -> FindDecisions.Reply | None:
        """Return the audit entries of the decisions about some actions."""
        reply = self._find_decisions([root], [*ids])
        if reply is None:
            return None
        words = iter(reply)
        return FindDecisions.Reply([None if value is None else value.decode() for value in words])

    def find_events(self, root: str, *, ids: Iterable[str]) -> list[int | None] | None:
        """Return which events a log has, without their bytes."""
        reply = self._find_events([root], [*ids])
        if reply is None:
            return None
        result: list[int | None] = [None if value is None else int(value) for value in reply]
        return result

    def finish_start_task(self, root: str, *, id: str, lease: str, status: str, detail: str) -> bool:
        """End a start task as READY or ERROR, which is final."""
        reply = self._finish_start_task([root], [id, lease, status, detail])
        result: bool = reply in (1, b"1")
        return result

    def forget_echo(self, root: str, *, claim: str, token: str) -> bool:
        """Stop expecting a claim of an agent."""
        reply = self._forget_echo([root], [claim, token])
        result: bool = reply in (1, b"1")
        return result

    def forget_go_ahead(self, root: str, *, member: str, entry: bytes) -> None:
        """Delete a go-ahead whose record is corrupt."""
        self._forget_go_ahead([root], [member, entry])

    def forget_objects(self, root: str, *, names: Iterable[str]) -> int:
        """Remove objects, and the numbers of their pieces, from the register."""
        reply = self._forget_objects([root], [*names])
        result: int = int(reply)
        return result

    def forget_start_task(self, root: str, *, id: str, late: int) -> None:
        """Delete a start task in any status."""
        self._forget_start_task([root], [id, late])

    def freeze_log(self, root: str, *, name: str, digest: str, incarnation: str, revision: str, latest: int) -> bool:
        """Delete the keys of a log that is complete in an object, unless the conversation has changed since."""
        reply = self._freeze_log([root], [name, digest, incarnation, revision, latest])
        result: bool = reply in (1, b"1")
        return result

    def get_events(
        self, root: str, *, most_bytes: int, ids: Iterable[str]
    ) -> GetEvents.Found | Literal["too_long"] | None:
        """Return events by id."""
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
        """Return the event with the agent's final response."""
        reply = self._get_final_event([root], [])
        if reply is None:
            return None
        result: list[bytes] = [value for value in reply]
        return result

    def hold_request(
        self, root: str, *, conversation: str, request: str, lease: int, most: int, most_here: int, most_sessions: int
    ) -> Literal["held", "full", "session_full", "too_many_sessions"]:
        """Count an open request of a key, or its session, within their limits."""
        reply = self._hold_request([root], [conversation, request, lease, most, most_here, most_sessions])
        match _outcome(reply):
            case b"held", 0, _:
                return "held"
            case b"full", 0, _:
                return "full"
            case b"session_full", 0, _:
                return "session_full"
            case b"too_many_sessions", 0, _:
                return "too_many_sessions"
        raise UnknownReply("hold_request", reply)

    def interrupt_conversation(
        self, root: str, *, stamp: Stamp, sandbox_id: str, failure: str
    ) -> InterruptConversation.Noted | InterruptConversation.Foreign | None:
        """Record that the agent server of a conversation ended."""
        reply = self._interrupt_conversation([root], [*stamp.args, sandbox_id, failure])
        if reply is None:
            return None
        match _outcome(reply):
            case b"noted", 8, words:
                return InterruptConversation.Noted(_log_state(words))
            case b"foreign", 8, words:
                return InterruptConversation.Foreign(_log_state(words))
        raise UnknownReply("interrupt_conversation", reply)

    def join_sandbox(
        self,
        root: str,
        *,
        sandbox: str,
        key: str,
        may_join_any: bool,
        id: str,
        conversation: str,
        actor: str,
        reason: str,
        time: str,
        kept: int,
    ) -> Literal["joined", "foreign"] | None:
        """Let a key join a sandbox that it started, or any sandbox if it may, and audit it once."""
        reply = self._join_sandbox(
            [root], [sandbox, key, "1" if may_join_any else "", id, conversation, actor, reason, time, kept]
        )
        if reply is None:
            return None
        match _outcome(reply):
            case b"joined", 0, _:
                return "joined"
            case b"foreign", 0, _:
                return "foreign"
        raise UnknownReply("join_sandbox", reply)

    def keep_device(
        self, root: str, *, id: str, owner: str, lasts: int, most: int, most_own: int, fields: Mapping[str, object]
    ) -> KeepDevice.Kept | Literal["full", "own full"]:
        """Store a device, or renew it."""
        reply = self._keep_device([root], [id, owner, lasts, most, most_own, *chain.from_iterable(fields.items())])
        match _outcome(reply):
            case b"kept", 2, words:
                return KeepDevice.Kept(Micros(int(next(words))), Micros(int(next(words))))
            case b"full", 0, _:
                return "full"
            case b"own full", 0, _:
                return "own full"
        raise UnknownReply("keep_device", reply)

    def keep_fields(self, root: str, *, fields: Mapping[str, object]) -> bool:
        """Store internal fields of a sandbox or a conversation, without a new revision or time."""
        reply = self._keep_fields([root], [*chain.from_iterable(fields.items())])
        result: bool = reply in (1, b"1")
        return result

    def leave_place(self, root: str, *, sandbox: str, conversation: str, made: bool) -> bool:
        """Free the place in a sandbox of a conversation that is not created."""
        reply = self._leave_place([root], [sandbox, conversation, "1" if made else ""])
        result: bool = reply in (1, b"1")
        return result

    def leave_place_queue(self, root: str, *, id: str, lease: str) -> bool:
        """Record that a start task has found a place."""
        reply = self._leave_place_queue([root], [id, lease])
        result: bool = reply in (1, b"1")
        return result

    def list_access_keys(self, root: str) -> list[list[bytes]]:
        """Return all keys, the newest first."""
        reply = self._list_access_keys([root], [])
        result: list[list[bytes]] = [value for value in reply]
        return result

    def list_decisions(self, root: str) -> list[ListDecisions.Row] | None:
        """Return the approved actions with which the conversation has continued, and that are not observed yet, in log order."""
        reply = self._list_decisions([root], [])
        if reply is None:
            return None
        result: list[ListDecisions.Row] = [
            ListDecisions.Row(id.decode(), decision.decode(), None if (value := arguments) is None else value.decode())
            for id, decision, arguments in _rows(reply, 3)
        ]
        return result

    def list_destinations(
        self, root: str, *, most: int, only: str, cursor: int | None = None, cursor_member: str
    ) -> ListDestinations.Reply:
        """Return a page of pending destinations, of all sandboxes or of one, the longest wait first."""
        reply = self._list_destinations([root], [most, only, "" if cursor is None else cursor, cursor_member])
        words = iter(reply)
        return ListDestinations.Reply(
            [
                ListDestinations.Following(Micros(int(since)), member.decode())
                for since, member in _rows(next(words), 2)
            ],
            [
                ListDestinations.Item(sandbox.decode(), conversation.decode(), item.decode())
                for sandbox, conversation, item in _rows(next(words), 3)
            ],
        )

    def list_grants(self, root: str) -> ListGrants.Reply:
        """Return the grants of people, and their version."""
        reply = self._list_grants([root], [])
        words = iter(reply)
        return ListGrants.Reply(next(words), [value.decode() for value in next(words)])

    def list_pending(self, root: str, *, after: int, most_bytes: int) -> list[ListPending.Row] | None:
        """Return a page of the pending actions, in log order."""
        reply = self._list_pending([root], [after, most_bytes])
        if reply is None:
            return None
        result: list[ListPending.Row] = [
            ListPending.Row(int(seq), since.decode(), event) for seq, since, event in _rows(reply, 3)
        ]
        return result

    def list_rules(self, root: str, *, ids: Iterable[str]) -> ListRules.Reply:
        """Return approval rules with their uses, and the version of all rules."""
        reply = self._list_rules([root], [*ids])
        words = iter(reply)
        return ListRules.Reply(
            next(words), [ListRules.Rule(rule.decode(), use.decode()) for rule, use in _rows(next(words), 2)]
        )

    def live_access_keys(self, root: str, *, ids: Iterable[str]) -> list[str]:
        """Return which keys are neither revoked nor expired, and which people have lost no right."""
        reply = self._live_access_keys([root], [*ids])
        result: list[str] = [value.decode() for value in reply]
        return result

    def locate_event(self, root: str, *, id: str) -> LocateEvent.Found | Literal["unknown"] | None:
        """Return the position of an event in the order (time, seq)."""
        reply = self._locate_event([root], [id])
        if reply is None:
            return None
        match _outcome(reply):
            case b"found", 2, words:
                return LocateEvent.Found(float(next(words)), int(next(words)))
            case b"unknown", 0, _:
                return "unknown"
        raise UnknownReply("locate_event", reply)

    def make_access_key(
        self, root: str, *, id: str, digest: str, expires_at: int | None = None, most: int, fields: Mapping[str, object]
    ) -> MakeAccessKey.Made | Literal["full", "past"]:
        """Store a key by its hash, once per id."""
        reply = self._make_access_key(
            [root], [id, digest, "" if expires_at is None else expires_at, most, *chain.from_iterable(fields.items())]
        )
        match _outcome(reply):
            case b"made", 1, words:
                return MakeAccessKey.Made(Micros(int(next(words))))
            case b"full", 0, _:
                return "full"
            case b"past", 0, _:
                return "past"
        raise UnknownReply("make_access_key", reply)

    def make_grant(self, root: str, *, id: str, grant: str, most: int) -> MakeGrant.Made | Literal["full", "revoked"]:
        """Store a grant of a person or of a group, once per id."""
        reply = self._make_grant([root], [id, grant, most])
        match _outcome(reply):
            case b"made", 1, words:
                return MakeGrant.Made(next(words).decode())
            case b"full", 0, _:
                return "full"
            case b"revoked", 0, _:
                return "revoked"
        raise UnknownReply("make_grant", reply)

    def make_rule(
        self, root: str, *, id: str, rule: str, expires_at: int | None = None, max_uses: int | None = None, most: int
    ) -> MakeRule.Made | Literal["full", "past", "revoked"]:
        """Store an approval rule, once per id."""
        reply = self._make_rule(
            [root], [id, rule, "" if expires_at is None else expires_at, "" if max_uses is None else max_uses, most]
        )
        match _outcome(reply):
            case b"made", 1, words:
                return MakeRule.Made(next(words).decode())
            case b"full", 0, _:
                return "full"
            case b"past", 0, _:
                return "past"
            case b"revoked", 0, _:
                return "revoked"
        raise UnknownReply("make_rule", reply)

    def make_ticket(self, root: str, *, digest: str, span: int, fields: Mapping[str, object]) -> None:
        """Store a ticket by its hash until it expires."""
        self._make_ticket([root], [digest, span, *chain.from_iterable(fields.items())])

    def name_owner(self, root: str, *, owner: str) -> bool:
        """Record who made a conversation without an owner: a copy, or an adopted one."""
        reply = self._name_owner([root], [owner])
        result: bool = reply in (1, b"1")
        return result

    def name_workspace(self, root: str, *, owner: str, fresh: str, host_span: int) -> str | None:
        """Return the workspace sandbox of a key, which serves its calls before it has a conversation."""
        reply = self._name_workspace([root], [owner, fresh, host_span])
        if reply is None:
            return None
        result: str = reply.decode()
        return result

    def note_approvals(
        self,
        root: str,
        *,
        conversation: str,
        revision: int,
        part: str,
        number: int,
        pending: Collection[tuple[str, int, str, bytes]],
        entries: Iterable[tuple[int, int, str, str, bytes, bytes]],
    ) -> Literal["noted", "late"]:
        """Update the index of all approvals for a conversation."""
        reply = self._note_approvals(
            [root],
            [
                conversation,
                revision,
                part,
                number,
                len(pending),
                *chain.from_iterable(pending),
                *chain.from_iterable(entries),
            ],
        )
        match _outcome(reply):
            case b"noted", 0, _:
                return "noted"
            case b"late", 0, _:
                return "late"
        raise UnknownReply("note_approvals", reply)

    def note_comparison(self, root: str, *, before: str, after: str, ended: bool) -> bool | None:
        """Store how far the log of a conversation was compared with that of its live agent, unless another comparison or a settlement has stored its own progress."""
        reply = self._note_comparison([root], [before, after, "1" if ended else ""])
        if reply is None:
            return None
        result: bool = reply in (1, b"1")
        return result

    def note_conversation(
        self, root: str, *, id: str, revision: int, status: str, created: int, updated: int, groups: str, title: str
    ) -> Literal["noted", "late"]:
        """Enter a conversation into the listing, move it, or remove it."""
        reply = self._note_conversation([root], [id, revision, status, created, updated, groups, title])
        match _outcome(reply):
            case b"noted", 0, _:
                return "noted"
            case b"late", 0, _:
                return "late"
        raise UnknownReply("note_conversation", reply)

    def note_destinations(
        self, root: str, *, most: int, entries: Iterable[tuple[str, str, int, str, str, str, str, str]]
    ) -> None:
        """Index audit entries of destinations, and publish them to the stream of the inbox and the outbox."""
        self._note_destinations([root], [most, *chain.from_iterable(entries)])

    def note_objects(self, root: str, *, span: int, only_new: bool, names: Iterable[str]) -> None:
        """Enter objects into the register, or change when they are checked."""
        self._note_objects([root], [span, "1" if only_new else "", *names])

    def note_person(self, root: str, *, id: str, person: str, version: str, most: int) -> bool:
        """Record that a person with a right has used this server, so that their connections can be ended."""
        reply = self._note_person([root], [id, person, version, most])
        result: bool = reply in (1, b"1")
        return result

    def note_rule(self, root: str, *, time: str, kept: int, actor: str, what: str, id: str, reason: str) -> bool:
        """Audit in the day's chain that an approval rule without conversations was made or revoked."""
        reply = self._note_rule([root], [time, kept, actor, what, id, reason])
        result: bool = reply in (1, b"1")
        return result

    def open_delivery(
        self, root: str, *, entry: str, token: str, lease: int, host_span: int, start_span: int, check_span: int
    ) -> OpenDelivery.Reply:
        """Record a delivery before its decision, so that a supervisor finds it if the worker is killed, and take the lease of its agent unless another delivery has it."""
        reply = self._open_delivery([root], [entry, token, lease, host_span, start_span, check_span])
        words = iter(reply)
        return OpenDelivery.Reply(
            next(words) in (1, b"1"),
            Micros(int(next(words))),
            next(words).decode(),
            next(words).decode(),
            next(words).decode(),
        )

    def open_rehearsal(
        self, root: str, *, id: str, runner: str, draft: str, most: int, lease: int, kept: int
    ) -> Literal["opened", "again", "full"]:
        """Store a rehearsal that its runner begins now, unless the maximum number is running."""
        reply = self._open_rehearsal([root], [id, runner, draft, most, lease, kept])
        match _outcome(reply):
            case b"opened", 0, _:
                return "opened"
            case b"again", 0, _:
                return "again"
            case b"full", 0, _:
                return "full"
        raise UnknownReply("open_rehearsal", reply)

    def open_sandbox(
        self,
        root: str,
        *,
        hash: str,
        conversation: str,
        check_span: int,
        brought: int,
        most_bytes: int,
        most_in_window: int,
        window: int,
    ) -> OpenSandbox.Opened | OpenSandbox.TooFast | Literal["too much"] | None:
        """Return the sandbox of a hook key."""
        reply = self._open_sandbox(
            [root], [hash, conversation, check_span, brought, most_bytes, most_in_window, window]
        )
        if reply is None:
            return None
        match _outcome(reply):
            case b"opened", 1, words:
                return OpenSandbox.Opened(next(words).decode())
            case b"too much", 0, _:
                return "too much"
            case b"too fast", 1, words:
                return OpenSandbox.TooFast(int(next(words)))
        raise UnknownReply("open_sandbox", reply)

    def open_targets(
        self, root: str, *, kept: int, again: bool, targets: Iterable[tuple[str, str]]
    ) -> list[OpenTargets.Row]:
        """Store the targets of a supervisor, and delete those that no supervisor has any more, when all their messages have timed out."""
        reply = self._open_targets([root], [kept, "1" if again else "", *chain.from_iterable(targets)])
        result: list[OpenTargets.Row] = [
            OpenTargets.Row(name.decode(), int(messages)) for name, messages in _rows(reply, 2)
        ]
        return result

    def open_transfer(self, root: str, *, id: str, kept: int) -> None:
        """Begin a stream of chunks."""
        self._open_transfer([root], [id, kept])

    def own_sandboxes(self, root: str, *, owner: str) -> OwnSandboxes.Reply:
        """Return the running and paused sandboxes that are bound and were started by a key."""
        reply = self._own_sandboxes([root], [owner])
        words = iter(reply)
        return OwnSandboxes.Reply([value.decode() for value in next(words)], [value.decode() for value in next(words)])

    def page_audit(
        self, root: str, *, order: str, most: int, since: str, before: str, at: int | None = None, member: str
    ) -> list[PageAudit.Row]:
        """Return a page of the positions of all audit entries, in the order of their times."""
        reply = self._page_audit([root], [order, most, since, before, "" if at is None else at, member])
        result: list[PageAudit.Row] = [PageAudit.Row(member.decode(), float(at)) for member, at in _rows(reply, 2)]
        return result

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
        version: Iterable[str],
    ) -> PageConversations.Reply:
        """Return a page of the listing, from a cursor on."""
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
                *version,
            ],
        )
        words = iter(reply)
        return PageConversations.Reply(
            next(words),
            [
                PageConversations.Entry(id.decode(), place, int(revision), version)
                for id, place, revision, version in _rows(next(words), 4)
            ],
        )

    def page_events(
        self, root: str, *, filter: EventFilter, order: str, most: int, cursor_at: str, cursor_seq: str, most_bytes: int
    ) -> list[bytes] | None:
        """Return a page of events, in the order (time, seq) or its reverse, from a cursor on."""
        reply = self._page_events([root], [*filter, order, most, cursor_at, cursor_seq, most_bytes])
        if reply is None:
            return None
        result: list[bytes] = [value for value in reply]
        return result

    def page_pending_actions(
        self,
        root: str,
        *,
        conversation: str,
        order: str,
        most: int,
        scan: int,
        cursor: int | None = None,
        cursor_member: str,
        cursor_seq: int | None = None,
        tool: str,
        risk: str,
        since: int | None = None,
        before: int | None = None,
    ) -> PagePendingActions.Reply:
        """Return a page of the index of pending actions, from a cursor on, ordered by when they began to wait."""
        reply = self._page_pending_actions(
            [root],
            [
                conversation,
                order,
                most,
                scan,
                "" if cursor is None else cursor,
                cursor_member,
                "" if cursor_seq is None else cursor_seq,
                tool,
                risk,
                "" if since is None else since,
                "" if before is None else before,
            ],
        )
        words = iter(reply)
        return PagePendingActions.Reply(
            [
                PagePendingActions.Following(Micros(int(at)), member.decode(), int(seq))
                for at, member, seq in _rows(next(words), 3)
            ],
            [
                PagePendingActions.Item(member.decode(), Micros(int(at)), item.decode())
                for member, at, item in _rows(next(words), 3)
            ],
        )

    def page_sandboxes(
        self, root: str, *, spans: Spans, status: str, spec: str, most: int, first_at: int | None = None, first_id: str
    ) -> PageSandboxes.Reply:
        """Return a page of the sandboxes, the newest first, after those of lost hosts are marked MISSING."""
        reply = self._page_sandboxes(
            [root], [*spans, status, spec, most, "" if first_at is None else first_at, first_id]
        )
        words = iter(reply)
        return PageSandboxes.Reply(Micros(int(next(words))), [value for value in words])

    def page_start_tasks(
        self,
        root: str,
        *,
        span: int,
        detail: str,
        by: str,
        conversation: str,
        descending: bool,
        since: int | None = None,
        most: int,
        first_at: int | None = None,
        first_id: str,
    ) -> list[list[bytes]]:
        """Return a page of all start tasks or of one conversation's, after those without a supervisor have failed."""
        reply = self._page_start_tasks(
            [root],
            [
                span,
                detail,
                by,
                conversation,
                "1" if descending else "",
                "" if since is None else since,
                most,
                "" if first_at is None else first_at,
                first_id,
            ],
        )
        result: list[list[bytes]] = [value for value in reply]
        return result

    def plan_freeze(self, root: str) -> PlanFreeze.Reply | None:
        """Return what a freeze of a conversation must move."""
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

    def postpone_queue(
        self, root: str, *, conversation: str, lease: str, span: int, state: Mapping[str, object]
    ) -> bool:
        """Renew the lease of a queue, or make it due again, and record what its driver has done."""
        reply = self._postpone_queue([root], [conversation, lease, span, *chain.from_iterable(state.items())])
        result: bool = reply in (1, b"1")
        return result

    def put_secrets(
        self, root: str, *, utc: str, version: str, most: int, most_bytes: int, secrets: Mapping[str, object]
    ) -> PutSecrets.Put | PutSecrets.TooMany | None:
        """Store secrets of a conversation, sealed by the caller, all or none."""
        reply = self._put_secrets([root], [utc, version, most, most_bytes, *chain.from_iterable(secrets.items())])
        if reply is None:
            return None
        match _outcome(reply):
            case b"put", 8, words:
                return PutSecrets.Put(_log_state(words))
            case b"too_many", 8, words:
                return PutSecrets.TooMany(_log_state(words))
        raise UnknownReply("put_secrets", reply)

    def queue_message(
        self, root: str, *, conversation: str, start_id: str, id: str, message: str, most: int, seconds: int
    ) -> QueueMessage.Queued | QueueMessage.Full:
        """Append a message to a conversation's queue, once per id."""
        reply = self._queue_message([root], [conversation, start_id, id, message, most, seconds])
        match _outcome(reply):
            case b"queued", 1, words:
                return QueueMessage.Queued(int(next(words)))
            case b"full", 1, words:
                return QueueMessage.Full(int(next(words)))
        raise UnknownReply("queue_message", reply)

    def queue_notifications(
        self,
        root: str,
        *,
        most: int,
        most_marks: int,
        names: str,
        devices: str,
        most_rings: int,
        words: Iterable[str | bytes],
    ) -> list[int]:
        """Queue messages for every target, each message once per id."""
        reply = self._queue_notifications([root], [most, most_marks, names, devices, most_rings, *words])
        result: list[int] = [int(value) for value in reply]
        return result

    def read_approvals(self, root: str, *, after: int, most: int) -> ReadApprovals.Reply:
        """Return the pending actions of a conversation, and the end of its audit, at one moment."""
        reply = self._read_approvals([root], [after, most])
        words = iter(reply)
        return ReadApprovals.Reply(
            next(words).decode(),
            int(next(words)),
            next(words).decode(),
            next(words).decode(),
            next(words).decode(),
            next(words).decode(),
            int(next(words)),
            next(words),
            next(words).decode(),
            next(words).decode(),
            next(words) in (1, b"1"),
            next(words).decode(),
            [ReadApprovals.Pending(id.decode(), record.decode()) for id, record in _rows(next(words), 2)],
        )

    def read_changes(self, root: str, *, after: str, most: int, most_bytes: int) -> ReadChanges.Reply:
        """Return a page of the inbox' changes after an id, and which changes the stream stores."""
        reply = self._read_changes([root], [after, most, most_bytes])
        words = iter(reply)
        return ReadChanges.Reply(
            int(next(words)),
            next(words).decode(),
            next(words).decode(),
            [ReadChanges.Change(id.decode(), fields) for id, fields in _rows(next(words), 2)],
        )

    def read_delivery(self, root: str) -> ReadDelivery.Reply | None:
        """Return the decision that a conversation's agent may not have received."""
        reply = self._read_delivery([root], [])
        if reply is None:
            return None
        words = iter(reply)
        return ReadDelivery.Reply(
            next(words).decode(),
            next(words).decode(),
            next(words).decode(),
            next(words).decode(),
            next(words).decode(),
            next(words).decode(),
        )

    def read_devices(self, root: str, *, ids: Iterable[str]) -> list[ReadDevices.Row]:
        """Return the devices that have not expired."""
        reply = self._read_devices([root], [*ids])
        result: list[ReadDevices.Row] = [
            ReadDevices.Row(
                id.decode(), int(queued), None if (value := oldest) is None else value.decode(), device, state
            )
            for id, queued, oldest, device, state in _rows(reply, 5)
        ]
        return result

    def read_events(self, root: str, *, most_bytes: int, seqs: Iterable[int]) -> list[bytes] | None:
        """Return a page of events by seq."""
        reply = self._read_events([root], [most_bytes, *seqs])
        if reply is None:
            return None
        result: list[bytes] = [value for value in reply]
        return result

    def read_link(self, root: str, *, id: str) -> ReadLink.Reply:
        """Return the use of a one-time link, and the time."""
        reply = self._read_link([root], [id])
        words = iter(reply)
        return ReadLink.Reply(Micros(int(next(words))), next(words))

    def read_list_changes(self, root: str, *, number: int, most: int) -> ReadListChanges.Reply:
        """Return the ids of a list that have changed after a number, in the order of their newest changes."""
        reply = self._read_list_changes([root], [number, most])
        words = iter(reply)
        return ReadListChanges.Reply(
            int(next(words)),
            float(next(words)),
            float(next(words)),
            [ReadListChanges.Change(id.decode(), float(number)) for id, number in _rows(words, 2)],
        )

    def read_log(self, root: str, *, seq: int, most: int, most_bytes: int) -> ReadLog.Reply | None:
        """Return a page of the events after a seq."""
        reply = self._read_log([root], [seq, most, most_bytes])
        if reply is None:
            return None
        words = iter(reply)
        return ReadLog.Reply(next(words).decode(), int(next(words)), [value for value in words])

    def read_request(self, root: str, *, id: str, renews: bool) -> ReadRequest.Reply | None:
        """Return an action that an asker awaits, and its decision."""
        reply = self._read_request([root], [id, "1" if renews else ""])
        if reply is None:
            return None
        words = iter(reply)
        return ReadRequest.Reply(
            next(words).decode(),
            next(words).decode(),
            next(words).decode(),
            next(words) in (1, b"1"),
            None if (value := next(words)) is None else value.decode(),
            None if (value := next(words)) is None else value.decode(),
        )

    def read_sandboxes(self, root: str, *, spans: Spans, host: str, ids: Iterable[str]) -> ReadSandboxes.Reply:
        """Return sandboxes by id, or all of one host, after the sandboxes of lost hosts are marked MISSING."""
        reply = self._read_sandboxes([root], [*spans, host, *ids])
        words = iter(reply)
        return ReadSandboxes.Reply(Micros(int(next(words))), [value for value in words])

    def read_spending(self, root: str, *, sandbox: str) -> ReadSpending.Reply | None:
        """Return the spending of a sandbox on models, and today's of its key's sandboxes and of all, in UTC."""
        reply = self._read_spending([root], [sandbox])
        if reply is None:
            return None
        words = iter(reply)
        return ReadSpending.Reply(next(words).decode(), int(next(words)), _spent(words), _spent(words), _spent(words))

    def read_start_tasks(self, root: str, *, span: int, detail: str, ids: Iterable[str]) -> list[list[bytes]]:
        """Return start tasks by id, after those without a supervisor have failed."""
        reply = self._read_start_tasks([root], [span, detail, *ids])
        result: list[list[bytes]] = [value for value in reply]
        return result

    def read_targets(self, root: str) -> list[ReadTargets.Row]:
        """Return the queue of every target that a supervisor has had."""
        reply = self._read_targets([root], [])
        result: list[ReadTargets.Row] = [
            ReadTargets.Row(
                id.decode(), name.decode(), int(queued), None if (value := oldest) is None else value.decode(), state
            )
            for id, name, queued, oldest, state in _rows(reply, 5)
        ]
        return result

    def read_unindexed(self, root: str, *, after: int, most: int) -> ReadUnindexed.Reply:
        """Return what the index of all approvals may lack of a conversation, as arguments of `note_approvals`."""
        reply = self._read_unindexed([root], [after, most])
        words = iter(reply)
        return ReadUnindexed.Reply(
            next(words).decode(),
            Micros(int(next(words))),
            int(next(words)),
            [
                ReadUnindexed.Pending(id.decode(), Micros(int(at)), expires.decode(), item)
                for id, at, expires, item in _rows(next(words), 4)
            ],
            [
                ReadUnindexed.Entry(int(seq), Micros(int(at)), kind.decode(), ids.decode(), notice, entry)
                for seq, at, kind, ids, notice, entry in _rows(next(words), 6)
            ],
        )

    def record_destination(
        self, root: str, *, sandbox: str, name: str, port: int, outcome: str, sent: int, received: int, most: int
    ) -> bool:
        """Count a connection or a refusal of a sandbox by name and port."""
        reply = self._record_destination([root], [sandbox, name, port, outcome, sent, received, most])
        result: bool = reply in (1, b"1")
        return result

    def refuse_call(
        self,
        root: str,
        *,
        sandbox: str,
        owner: str,
        setting: str,
        name: str,
        port: int,
        why: str,
        time: str,
        kept: int,
        actor: str,
        days: int,
        nanos: int | None = None,
        tokens: int | None = None,
        day: int,
        seen_nanos: int,
        seen_tokens: int,
        span: int,
        most: int,
    ) -> RefuseCall.Reply:
        """Count a model's call that a budget refuses, and ask a person for the same amount once more, once per budget and owner."""
        reply = self._refuse_call(
            [root],
            [
                sandbox,
                owner,
                setting,
                name,
                port,
                why,
                time,
                kept,
                actor,
                days,
                "" if nanos is None else nanos,
                "" if tokens is None else tokens,
                day,
                seen_nanos,
                seen_tokens,
                span,
                most,
            ],
        )
        words = iter(reply)
        return RefuseCall.Reply(next(words).decode(), int(next(words)))

    def release_host(self, root: str, *, host: str, supervisor: str) -> Literal["released", "taken"]:
        """Release the host of a supervisor that stops, so that another one need not wait for the end of the lease."""
        reply = self._release_host([root], [host, supervisor])
        match _outcome(reply):
            case b"released", 0, _:
                return "released"
            case b"taken", 0, _:
                return "taken"
        raise UnknownReply("release_host", reply)

    def remember_chat(self, root: str, *, conversation: str, span: int) -> None:
        """Record which conversation gave the last answer of a chat, so that the chat continues with it."""
        self._remember_chat([root], [conversation, span])

    def rename_host(self, root: str, *, host: str, name: str) -> int:
        """Move the sandboxes of a host to another name, after a store was moved."""
        reply = self._rename_host([root], [host, name])
        result: int = int(reply)
        return result

    def renew_delivery(self, root: str, *, entry: str, token: str, lease: int) -> bool:
        """Renew the lease of an agent."""
        reply = self._renew_delivery([root], [entry, token, lease])
        result: bool = reply in (1, b"1")
        return result

    def renew_notification(self, root: str, *, target: str, token: str, span: int) -> bool:
        """Renew the lease of a target."""
        reply = self._renew_notification([root], [target, token, span])
        result: bool = reply in (1, b"1")
        return result

    def renew_start_task(self, root: str, *, id: str, lease: str, span: int, counter: str) -> bool:
        """Renew the lease of an unfinished start task."""
        reply = self._renew_start_task([root], [id, lease, span, counter])
        result: bool = reply in (1, b"1")
        return result

    def reopen_actions(
        self, root: str, *, time: str, expiry: int, actions: Iterable[tuple[str, int, str]]
    ) -> int | None:
        """Make the open actions those that an agent waits for."""
        reply = self._reopen_actions([root], [time, expiry, *chain.from_iterable(actions)])
        if reply is None:
            return None
        result: int = int(reply)
        return result

    def report_conversation(
        self,
        root: str,
        *,
        stamp: Stamp,
        sandbox: str,
        title: str,
        folded_title: str,
        tags: str,
        fields: Mapping[str, object],
    ) -> ReportConversation.Reported | ReportConversation.Foreign | None:
        """Store the report of a sandbox's agent server about a conversation, member by member, so that a client's concurrent change of another member stays."""
        reply = self._report_conversation(
            [root], [*stamp.args, sandbox, title, folded_title, tags, *chain.from_iterable(fields.items())]
        )
        if reply is None:
            return None
        match _outcome(reply):
            case b"reported", 8, words:
                return ReportConversation.Reported(_log_state(words))
            case b"foreign", 8, words:
                return ReportConversation.Foreign(_log_state(words))
        raise UnknownReply("report_conversation", reply)

    def report_rehearsal(
        self, root: str, *, id: str, runner: str, state: str, found: str, lease: int, kept: int
    ) -> bool:
        """Store the results of a rehearsal so far, and renew the lease of its runner."""
        reply = self._report_rehearsal([root], [id, runner, state, found, lease, kept])
        result: bool = reply in (1, b"1")
        return result

    def report_sandbox(
        self, root: str, *, id: str, host: str, supervisor: str, status: str, log: str, fields: Mapping[str, object]
    ) -> Literal["noted", "passed", "taken"] | None:
        """Write the observed state of a host's sandbox."""
        reply = self._report_sandbox([root], [id, host, supervisor, status, log, *chain.from_iterable(fields.items())])
        if reply is None:
            return None
        match _outcome(reply):
            case b"noted", 0, _:
                return "noted"
            case b"passed", 0, _:
                return "passed"
            case b"taken", 0, _:
                return "taken"
        raise UnknownReply("report_sandbox", reply)

    def return_rule_uses(self, root: str, *, uses: Iterable[tuple[str, str]]) -> int:
        """Return uses of rules, because their actions were decided by other means."""
        reply = self._return_rule_uses([root], [*chain.from_iterable(uses)])
        result: int = int(reply)
        return result

    def return_workspace(self, root: str, *, id: str, start: str) -> bool:
        """Return a workspace sandbox to its key, because the start task that adopted it has failed."""
        reply = self._return_workspace([root], [id, start])
        result: bool = reply in (1, b"1")
        return result

    def revoke_access_key(self, root: str, *, id: str, request: str) -> bool:
        """Delete an access key."""
        reply = self._revoke_access_key([root], [id, request])
        result: bool = reply in (1, b"1")
        return result

    def revoke_destination_rule(self, root: str, *, id: str, time: str, kept: int, actor: str, request: str) -> bool:
        """Delete a rule for a destination."""
        reply = self._revoke_destination_rule([root], [id, time, kept, actor, request])
        result: bool = reply in (1, b"1")
        return result

    def revoke_grant(self, root: str, *, id: str, request: str) -> bool:
        """Delete a grant."""
        reply = self._revoke_grant([root], [id, request])
        result: bool = reply in (1, b"1")
        return result

    def revoke_rule(self, root: str, *, id: str, request: str, by: str) -> bool:
        """Delete an approval rule."""
        reply = self._revoke_rule([root], [id, request, by])
        result: bool = reply in (1, b"1")
        return result

    def rule_destination(
        self,
        root: str,
        *,
        time: str,
        kept: int,
        actor: str,
        id: str,
        name: str,
        port: int,
        decision: str,
        maker: str,
        most: int,
    ) -> RuleDestination.Made | RuleDestination.Known | Literal["full", "revoked"]:
        """Store a rule for a destination, once per id, and one per pattern and port."""
        reply = self._rule_destination([root], [time, kept, actor, id, name, port, decision, maker, most])
        match _outcome(reply):
            case b"made", 1, words:
                return RuleDestination.Made(next(words).decode())
            case b"known", 1, words:
                return RuleDestination.Known(next(words).decode())
            case b"full", 0, _:
                return "full"
            case b"revoked", 0, _:
                return "revoked"
        raise UnknownReply("rule_destination", reply)

    def send_chunk(
        self, root: str, *, id: str, kept: int, number: int, most: int, chunk: bytes
    ) -> SendChunk.Closed | Literal["sent", "full"] | None:
        """Append the next chunk of a stream, if there is room."""
        reply = self._send_chunk([root], [id, kept, number, most, chunk])
        if reply is None:
            return None
        match _outcome(reply):
            case b"sent", 0, _:
                return "sent"
            case b"full", 0, _:
                return "full"
            case b"closed", 1, words:
                return SendChunk.Closed(next(words))
        raise UnknownReply("send_chunk", reply)

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
        voter: str,
        rights: str,
        most_bytes: int,
    ) -> (
        SendMessage.Sent
        | SendMessage.Early
        | SendMessage.Forbidden
        | SendMessage.Changed
        | SendMessage.TooLong
        | SendMessage.Unattended
        | SendMessage.External
        | None
    ):
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
                voter,
                rights,
                most_bytes,
            ],
        )
        if reply is None:
            return None
        match _outcome(reply):
            case b"sent", 8, words:
                return SendMessage.Sent(_log_state(words))
            case b"early", 9, words:
                return SendMessage.Early(_log_state(words), Micros(int(next(words))))
            case b"forbidden", 8, words:
                return SendMessage.Forbidden(_log_state(words))
            case b"changed", 8, words:
                return SendMessage.Changed(_log_state(words))
            case b"too_long", 8, words:
                return SendMessage.TooLong(_log_state(words))
            case b"unattended", 8, words:
                return SendMessage.Unattended(_log_state(words))
            case b"external", 8, words:
                return SendMessage.External(_log_state(words))
        raise UnknownReply("send_message", reply)

    def set_aside(self, root: str, *, span: int) -> None:
        """Exclude a conversation from freezing for a time."""
        self._set_aside([root], [span])

    def set_fields(
        self,
        root: str,
        *,
        stamp: Stamp,
        held: str,
        mode: str | None = None,
        actor: str | None = None,
        reason: str | None = None,
        fields: Iterable[tuple[str, str, bool]],
    ) -> SetFields.Set | SetFields.Due | None:
        """Set fields of a conversation."""
        reply = self._set_fields(
            [root],
            [
                *stamp.args,
                held,
                "" if mode is None else mode,
                "" if actor is None else actor,
                "" if reason is None else reason,
                *(word for name, value, is_event in fields for word in (name, value, "1" if is_event else "")),
            ],
        )
        if reply is None:
            return None
        match _outcome(reply):
            case b"set", 8, words:
                return SetFields.Set(_log_state(words))
            case b"due", 8, words:
                return SetFields.Due(_log_state(words))
        raise UnknownReply("set_fields", reply)

    def set_owner(
        self, root: str, *, id_prefix: str, time: str, actor: str, reason: str, rights: str, owner: str, before: str
    ) -> SetOwner.Done | SetOwner.Other | SetOwner.Changed | None:
        """Change the owner of a conversation, with an audit entry."""
        reply = self._set_owner([root], [id_prefix, time, actor, reason, rights, owner, before])
        if reply is None:
            return None
        match _outcome(reply):
            case b"done", 8, words:
                return SetOwner.Done(_log_state(words))
            case b"other", 8, words:
                return SetOwner.Other(_log_state(words))
            case b"changed", 8, words:
                return SetOwner.Changed(_log_state(words))
        raise UnknownReply("set_owner", reply)

    def settle_delivery(self, root: str, *, id: str) -> bool:
        """Delete a decision that the agent has received or never will."""
        reply = self._settle_delivery([root], [id])
        result: bool = reply in (1, b"1")
        return result

    def settle_labels(self, root: str, *, due: str) -> bool:
        """Record that the agent of a conversation has its title and tags, unless a client has changed them since."""
        reply = self._settle_labels([root], [due])
        result: bool = reply in (1, b"1")
        return result

    def settle_message(self, root: str, *, conversation: str, lease: str, id: str) -> bool:
        """Remove the first message from a queue, after it was delivered or dropped."""
        reply = self._settle_message([root], [conversation, lease, id])
        result: bool = reply in (1, b"1")
        return result

    def start_sandbox(
        self,
        root: str,
        *,
        id: str,
        spec: str,
        most: int,
        host_span: int,
        most_stopped: int,
        files_key: str,
        source: str,
        host: str,
        gives_way: bool,
        trace: str,
        owner: str,
        start: str,
    ) -> (
        StartSandbox.Started | StartSandbox.Exists | StartSandbox.Full | StartSandbox.Kept | Literal["no host", "gone"]
    ):
        """Create the record of a sandbox, once per id."""
        reply = self._start_sandbox(
            [root],
            [
                id,
                spec,
                most,
                host_span,
                most_stopped,
                files_key,
                source,
                host,
                "1" if gives_way else "",
                trace,
                owner,
                start,
            ],
        )
        match _outcome(reply):
            case b"started", 2, words:
                return StartSandbox.Started(Micros(int(next(words))), next(words))
            case b"exists", 2, words:
                return StartSandbox.Exists(Micros(int(next(words))), next(words))
            case b"full", 1, words:
                return StartSandbox.Full(int(next(words)))
            case b"kept", 1, words:
                return StartSandbox.Kept(int(next(words)))
            case b"no host", 0, _:
                return "no host"
            case b"gone", 0, _:
                return "gone"
        raise UnknownReply("start_sandbox", reply)

    def stop_sandbox(
        self, root: str, *, id: str, host: str, supervisor: str, seen: str, detail: str, log: str, resumes: bool
    ) -> Literal["noted", "taken"] | None:
        """Record that the processes of a sandbox have ended and its files are kept."""
        reply = self._stop_sandbox([root], [id, host, supervisor, seen, detail, log, "1" if resumes else ""])
        if reply is None:
            return None
        match _outcome(reply):
            case b"noted", 0, _:
                return "noted"
            case b"taken", 0, _:
                return "taken"
        raise UnknownReply("stop_sandbox", reply)

    def take_chat(self, root: str, *, words: str) -> str | None:
        """Return the conversation that gave the last answer of a chat, only for the first messages that follow it."""
        reply = self._take_chat([root], [words])
        if reply is None:
            return None
        result: str = reply.decode()
        return result

    def take_chunk(self, root: str, *, id: str, kept: int, number: int) -> TakeChunk.Reply | None:
        """Read a chunk of a stream."""
        reply = self._take_chunk([root], [id, kept, number])
        if reply is None:
            return None
        words = iter(reply)
        return TakeChunk.Reply(next(words), next(words))

    def take_link(
        self, root: str, *, id: str, ends: int, decision: str
    ) -> TakeLink.First | TakeLink.Again | TakeLink.Other | Literal["past"]:
        """Use a one-time link for a decision."""
        reply = self._take_link([root], [id, ends, decision])
        match _outcome(reply):
            case b"first", 2, words:
                return TakeLink.First(next(words).decode(), Micros(int(next(words))))
            case b"again", 2, words:
                return TakeLink.Again(next(words).decode(), Micros(int(next(words))))
            case b"other", 2, words:
                return TakeLink.Other(next(words).decode(), Micros(int(next(words))))
            case b"past", 0, _:
                return "past"
        raise UnknownReply("take_link", reply)

    def take_place(
        self, root: str, *, sandbox: str, conversation: str, most: int, made: bool, start: str
    ) -> TakePlace.Full | Literal["taken", "had"] | None:
        """Give a conversation its place in a sandbox, once per conversation, if the sandbox has room."""
        reply = self._take_place([root], [sandbox, conversation, most, "1" if made else "", start])
        if reply is None:
            return None
        match _outcome(reply):
            case b"taken", 0, _:
                return "taken"
            case b"had", 0, _:
                return "had"
            case b"full", 1, words:
                return TakePlace.Full(int(next(words)))
        raise UnknownReply("take_place", reply)

    def take_ticket(self, root: str, *, digest: str, request: str, about: str) -> str | None:
        """Return the content of a ticket, for a single request."""
        reply = self._take_ticket([root], [digest, request, about])
        if reply is None:
            return None
        result: str = reply.decode()
        return result

    def thaw_piece(self, root: str, *, name: str, piece: int, span: int, ranges: Iterable[str | bytes]) -> int | None:
        """Stage a piece of a cold conversation's log, until adopt_thaw adopts all of it."""
        reply = self._thaw_piece([root], [name, piece, span, *ranges])
        if reply is None:
            return None
        result: int = int(reply)
        return result

    def turn_back_sandbox(self, root: str, *, id: str, back: str) -> TurnBackSandbox.Refused | Literal["asked"] | None:
        """Restore the files of a conversation in a running sandbox as of an earlier event."""
        reply = self._turn_back_sandbox([root], [id, back])
        if reply is None:
            return None
        match _outcome(reply):
            case b"asked", 0, _:
                return "asked"
            case b"refused", 1, words:
                return TurnBackSandbox.Refused(next(words).decode())
        raise UnknownReply("turn_back_sandbox", reply)

    def use_sandbox(self, root: str, *, id: str, spans: Spans) -> UseSandbox.Reply | None:
        """Read a sandbox and record its use, at most once a second."""
        reply = self._use_sandbox([root], [id, *spans])
        if reply is None:
            return None
        words = iter(reply)
        return UseSandbox.Reply(Micros(int(next(words))), next(words))
