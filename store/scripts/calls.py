"""The scripts as methods: arguments have names, replies have types. Made by docs/make.py from the heads.

An outcome with data is a class of the script's namespace; an outcome without is its word.
"""

from collections.abc import Collection, Iterable
from itertools import chain
from typing import Any, Literal, NamedTuple, Protocol

from core.wire import Micros
from store.errors import UnknownReply
from store.link.attempts import Stamp


class Sends(Protocol):
    """Sends a script's keys and arguments, and returns its reply as Redis gives it."""

    def __call__(self, keys: list[str], args: list[Any]) -> Any: ...


def _rows(words: list[Any], width: int) -> "zip[tuple[Any, ...]]":
    return zip(*[iter(words)] * width, strict=True)


class Spent(NamedTuple):
    nanos: int
    tokens: int
    unpriced: int
    model: str
    allowed_nanos: int
    allowed_tokens: int


class LogState(NamedTuple):
    revision: int
    status: str
    created_at: str
    updated_at: str
    groups: str
    title: str
    approvals: bool


class EventFilter(NamedTuple):
    kind: str
    source: str
    lowest: str
    highest: str


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


class ClaimDelivery:
    """Replies of `claim_delivery.lua`."""

    class Reply(NamedTuple):
        entry: bytes
        lease_end: Micros
        status: str
        url: str
        key: str
        tried: int


class ClaimIdempotencyKey:
    """Replies of `claim_idempotency_key.lua`."""

    class Claimed(NamedTuple):
        seed: str
        is_later: bool

    class Full(NamedTuple):
        number: int

    class Finished(NamedTuple):
        seed: str
        status: str
        content_type: str
        body: str


class ClaimNotification:
    """Replies of `claim_notification.lua`."""

    class Reply(NamedTuple):
        place: str
        id: str
        body: bytes
        at: Micros
        tries: int
        trace: str


class ClaimSweep:
    """Replies of `claim_sweep.lua`."""

    class Reply(NamedTuple):
        created: Micros | None
        id: str
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
        delivery: "list[DecidePending.Delivery]"


class FindAccessKey:
    """Replies of `find_access_key.lua`."""

    class Reply(NamedTuple):
        id: str
        name: str
        scopes: str
        left: Micros | None


class GetEvents:
    """Replies of `get_events.lua`."""

    class Found(NamedTuple):
        events: list[bytes | None]


class ListAccessKeys:
    """Replies of `list_access_keys.lua`."""

    class Row(NamedTuple):
        id: str
        name: str
        scopes: str
        created_at: Micros
        expires_at: Micros | None
        used_at: Micros | None


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
        following: "list[ListDestinations.Following]"
        items: "list[ListDestinations.Item]"


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
        rules: "list[ListRules.Rule]"


class LocateEvent:
    """Replies of `locate_event.lua`."""

    class Found(NamedTuple):
        at: float
        seq: int


class MakeAccessKey:
    """Replies of `make_access_key.lua`."""

    class Made(NamedTuple):
        created_at: Micros


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


class OpenTargets:
    """Replies of `open_targets.lua`."""

    class Row(NamedTuple):
        name: str
        messages: int


class PageAudit:
    """Replies of `page_audit.lua`."""

    class Row(NamedTuple):
        member: str
        at: float


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
        following: "list[PagePendingActions.Following]"
        items: "list[PagePendingActions.Item]"


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
        pending: "list[ReadApprovals.Pending]"


class ReadChanges:
    """Replies of `read_changes.lua`."""

    class Change(NamedTuple):
        id: str
        fields: list[bytes]

    class Reply(NamedTuple):
        held: int
        first: str
        last: str
        changes: "list[ReadChanges.Change]"


class ReadDelivery:
    """Replies of `read_delivery.lua`."""

    class Reply(NamedTuple):
        status: str
        id: str
        verb: str
        reason: str
        actions: str
        decisions: str
        trace: str


class ReadLink:
    """Replies of `read_link.lua`."""

    class Reply(NamedTuple):
        now: Micros
        decision: str
        at: Micros | None


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


class RefuseCall:
    """Replies of `refuse_call.lua`."""

    class Reply(NamedTuple):
        outcome: str
        unnoted: int


class RuleDestination:
    """Replies of `rule_destination.lua`."""

    class Made(NamedTuple):
        rule: str

    class Known(NamedTuple):
        id: str


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


class Calls:
    """Every script as a method."""

    _append_events: Sends
    _ask_destination: Sends
    _ask_sandbox: Sends
    _audit_terminal: Sends
    _book_call: Sends
    _change_settings: Sends
    _claim_delivery: Sends
    _claim_idempotency_key: Sends
    _claim_notification: Sends
    _claim_rule_uses: Sends
    _claim_sweep: Sends
    _close_delivery: Sends
    _close_destinations: Sends
    _close_notification: Sends
    _count_events: Sends
    _count_hit: Sends
    _count_over_time: Sends
    _cursor_before: Sends
    _decide_destination: Sends
    _decide_pending: Sends
    _drop_actions: Sends
    _due_approvals: Sends
    _empty_outbox: Sends
    _end_idempotency_claim: Sends
    _find_access_key: Sends
    _find_events: Sends
    _get_events: Sends
    _get_final_event: Sends
    _join_sandbox: Sends
    _list_access_keys: Sends
    _list_decisions: Sends
    _list_destinations: Sends
    _list_pending: Sends
    _list_rules: Sends
    _live_access_keys: Sends
    _locate_event: Sends
    _make_access_key: Sends
    _make_rule: Sends
    _make_ticket: Sends
    _note_approvals: Sends
    _note_destinations: Sends
    _open_delivery: Sends
    _open_targets: Sends
    _page_audit: Sends
    _page_events: Sends
    _page_pending_actions: Sends
    _queue_notifications: Sends
    _read_approvals: Sends
    _read_changes: Sends
    _read_delivery: Sends
    _read_events: Sends
    _read_link: Sends
    _read_spending: Sends
    _read_targets: Sends
    _record_destination: Sends
    _refuse_call: Sends
    _renew_delivery: Sends
    _renew_notification: Sends
    _reopen_actions: Sends
    _return_rule_uses: Sends
    _revoke_access_key: Sends
    _revoke_destination_rule: Sends
    _revoke_rule: Sends
    _rule_destination: Sends
    _send_message: Sends
    _settle_delivery: Sends
    _take_link: Sends
    _take_ticket: Sends

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
        match reply if isinstance(reply, list) else [reply]:
            case [
                b"appended",
                state_revision,
                state_status,
                state_created_at,
                state_updated_at,
                state_groups,
                state_title,
                state_approvals,
                number,
                last,
                resumed,
                trace,
            ]:
                return AppendEvents.Appended(
                    LogState(
                        int(state_revision),
                        state_status.decode(),
                        state_created_at.decode(),
                        state_updated_at.decode(),
                        state_groups.decode(),
                        state_title.decode(),
                        state_approvals in (1, b"1"),
                    ),
                    int(number),
                    int(last),
                    resumed.decode(),
                    trace.decode(),
                )
            case [
                b"unowned",
                state_revision,
                state_status,
                state_created_at,
                state_updated_at,
                state_groups,
                state_title,
                state_approvals,
                places,
            ]:
                return AppendEvents.Unowned(
                    LogState(
                        int(state_revision),
                        state_status.decode(),
                        state_created_at.decode(),
                        state_updated_at.decode(),
                        state_groups.decode(),
                        state_title.decode(),
                        state_approvals in (1, b"1"),
                    ),
                    places.decode(),
                )
            case [
                b"foreign",
                state_revision,
                state_status,
                state_created_at,
                state_updated_at,
                state_groups,
                state_title,
                state_approvals,
            ]:
                return AppendEvents.Foreign(
                    LogState(
                        int(state_revision),
                        state_status.decode(),
                        state_created_at.decode(),
                        state_updated_at.decode(),
                        state_groups.decode(),
                        state_title.decode(),
                        state_approvals in (1, b"1"),
                    )
                )
            case [
                b"unmasked",
                state_revision,
                state_status,
                state_created_at,
                state_updated_at,
                state_groups,
                state_title,
                state_approvals,
            ]:
                return AppendEvents.Unmasked(
                    LogState(
                        int(state_revision),
                        state_status.decode(),
                        state_created_at.decode(),
                        state_updated_at.decode(),
                        state_groups.decode(),
                        state_title.decode(),
                        state_approvals in (1, b"1"),
                    )
                )
            case [
                b"too_many_pending",
                state_revision,
                state_status,
                state_created_at,
                state_updated_at,
                state_groups,
                state_title,
                state_approvals,
            ]:
                return AppendEvents.TooManyPending(
                    LogState(
                        int(state_revision),
                        state_status.decode(),
                        state_created_at.decode(),
                        state_updated_at.decode(),
                        state_groups.decode(),
                        state_title.decode(),
                        state_approvals in (1, b"1"),
                    )
                )
            case [
                b"too_many_pairs",
                state_revision,
                state_status,
                state_created_at,
                state_updated_at,
                state_groups,
                state_title,
                state_approvals,
            ]:
                return AppendEvents.TooManyPairs(
                    LogState(
                        int(state_revision),
                        state_status.decode(),
                        state_created_at.decode(),
                        state_updated_at.decode(),
                        state_groups.decode(),
                        state_title.decode(),
                        state_approvals in (1, b"1"),
                    )
                )
            case [
                b"too_long",
                state_revision,
                state_status,
                state_created_at,
                state_updated_at,
                state_groups,
                state_title,
                state_approvals,
            ]:
                return AppendEvents.TooLong(
                    LogState(
                        int(state_revision),
                        state_status.decode(),
                        state_created_at.decode(),
                        state_updated_at.decode(),
                        state_groups.decode(),
                        state_title.decode(),
                        state_approvals in (1, b"1"),
                    )
                )
            case _:
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
        """Whether a sandbox may connect to a name and port now."""
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
        match reply if isinstance(reply, list) else [reply]:
            case [b"allowed", rule_id]:
                return AskDestination.Allowed(rule_id.decode())
            case [b"asked"]:
                return "asked"
            case [b"waiting"]:
                return "waiting"
            case [b"rejected"]:
                return "rejected"
            case [b"forbidden"]:
                return "forbidden"
            case [b"expired"]:
                return "expired"
            case [b"full", number]:
                return AskDestination.Full(int(number))
            case [b"many", number]:
                return AskDestination.Many(int(number))
            case [b"often", number]:
                return AskDestination.Often(int(number))
            case [b"ended"]:
                return "ended"
            case _:
                raise UnknownReply("ask_destination", reply)

    def ask_sandbox(
        self, root: str, *, id: str, verb: str, most: int, host_span: int, trace: str, used_at: int
    ) -> AskSandbox.Refused | AskSandbox.Full | AskSandbox.Lost | Literal["done"] | None:
        """Pause, resume or delete a sandbox, or have it yield its place, as `_sandbox.lua` has it."""
        reply = self._ask_sandbox([root], [id, verb, most, host_span, trace, used_at])
        if reply is None:
            return None
        match reply if isinstance(reply, list) else [reply]:
            case [b"done"]:
                return "done"
            case [b"refused", status]:
                return AskSandbox.Refused(status.decode())
            case [b"full", running]:
                return AskSandbox.Full(int(running))
            case [b"lost", host]:
                return AskSandbox.Lost(host.decode())
            case _:
                raise UnknownReply("ask_sandbox", reply)

    def audit_terminal(
        self, root: str, *, id_prefix: str, time: str, what: str, actor: str, reason: str
    ) -> AuditTerminal.Done | None:
        """Note in the audit of a conversation that a terminal was opened or closed in its sandbox, or a preview opened."""
        reply = self._audit_terminal([root], [id_prefix, time, what, actor, reason])
        if reply is None:
            return None
        match reply if isinstance(reply, list) else [reply]:
            case [
                b"done",
                state_revision,
                state_status,
                state_created_at,
                state_updated_at,
                state_groups,
                state_title,
                state_approvals,
            ]:
                return AuditTerminal.Done(
                    LogState(
                        int(state_revision),
                        state_status.decode(),
                        state_created_at.decode(),
                        state_updated_at.decode(),
                        state_groups.decode(),
                        state_title.decode(),
                        state_approvals in (1, b"1"),
                    )
                )
            case _:
                raise UnknownReply("audit_terminal", reply)

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
        """Count what a call of a model has used: of its sandbox while that is, of its key and of all today, and by model."""
        self._book_call([root], [sandbox, owner, model, kept, unpriced, *chain.from_iterable(numbers)])

    def change_settings(
        self, root: str, *, before: int, id: str, most: int, most_bytes: int, changes: Iterable[tuple[str, bytes]]
    ) -> Literal["changed", "stale", "many", "long"]:
        """Change what a key keeps, unless somebody has changed it since it was read."""
        reply = self._change_settings([root], [before, id, most, most_bytes, *chain.from_iterable(changes)])
        match reply if isinstance(reply, list) else [reply]:
            case [b"changed"]:
                return "changed"
            case [b"stale"]:
                return "stale"
            case [b"many"]:
                return "many"
            case [b"long"]:
                return "long"
            case _:
                raise UnknownReply("change_settings", reply)

    def claim_delivery(
        self, root: str, *, token: str, lease: int, host_span: int, start_span: int
    ) -> ClaimDelivery.Reply | None:
        """Take the delivery that has been due for longest, with the lease of its agent."""
        reply = self._claim_delivery([root], [token, lease, host_span, start_span])
        if reply is None:
            return None
        entry, lease_end, status, url, key, tried = reply
        return ClaimDelivery.Reply(
            entry, Micros(int(lease_end)), status.decode(), url.decode(), key.decode(), int(tried)
        )

    def claim_idempotency_key(
        self, root: str, *, key: str, fingerprint: str, token: str, seed: str, lease: int, span: int, most: int
    ) -> (
        ClaimIdempotencyKey.Claimed
        | ClaimIdempotencyKey.Full
        | ClaimIdempotencyKey.Finished
        | Literal["busy", "reused"]
    ):
        """Claim the record of an Idempotency-Key for one attempt at its request, or read its response."""
        reply = self._claim_idempotency_key([root], [key, fingerprint, token, seed, lease, span, most])
        match reply if isinstance(reply, list) else [reply]:
            case [b"claimed", seed_, is_later]:
                return ClaimIdempotencyKey.Claimed(seed_.decode(), is_later in (1, b"1"))
            case [b"busy"]:
                return "busy"
            case [b"reused"]:
                return "reused"
            case [b"full", number]:
                return ClaimIdempotencyKey.Full(int(number))
            case [b"finished", seed_, status, content_type, body]:
                return ClaimIdempotencyKey.Finished(
                    seed_.decode(), status.decode(), content_type.decode(), body.decode()
                )
            case _:
                raise UnknownReply("claim_idempotency_key", reply)

    def claim_notification(self, root: str, *, target: str, token: str, span: int) -> ClaimNotification.Reply | None:
        """Take the lease of a target whose oldest message is due."""
        reply = self._claim_notification([root], [target, token, span])
        if reply is None:
            return None
        place, id, body, at, tries, trace = reply
        return ClaimNotification.Reply(place.decode(), id.decode(), body, Micros(int(at)), int(tries), trace.decode())

    def claim_rule_uses(self, root: str, *, doubts: Collection[str], uses: Iterable[tuple[str, str]]) -> int:
        """Count a use of a rule for each action that it is about to decide: all of them, or none."""
        reply = self._claim_rule_uses([root], [len(doubts), *doubts, *chain.from_iterable(uses)])
        value: int = int(reply)
        return value

    def claim_sweep(self, root: str, *, span: int, most: int) -> ClaimSweep.Reply | None:
        """Take the next part of the sweep, which compares the index of approvals with the conversations, unless one was taken a moment ago."""
        reply = self._claim_sweep([root], [span, most])
        if reply is None:
            return None
        created, id, *conversations = reply
        return ClaimSweep.Reply(
            None if created is None else Micros(int(created)), id.decode(), [value.decode() for value in conversations]
        )

    def close_delivery(self, root: str, *, entry: str | bytes, token: str, again: int | None = None) -> bool:
        """End an attempt: give back the lease of the agent, and have the delivery due again or forget it."""
        reply = self._close_delivery([root], [entry, token, "" if again is None else again])
        value: bool = reply in (1, b"1")
        return value

    def close_destinations(self, root: str, *, time: str, kept: int, most: int) -> CloseDestinations.Reply:
        """Have what waits wait no longer where its deadline has passed, its sandbox has ended, or a rule that was made since decides it."""
        reply = self._close_destinations([root], [time, kept, most])
        closed, unnoted = reply
        return CloseDestinations.Reply(int(closed), int(unnoted))

    def close_notification(
        self, root: str, *, target: str, token: str, place: str, outcome: str, reason: str, again: int, kept: int
    ) -> Literal["sent", "failed", "given up", "gone", "late"]:
        """Note the outcome of a try, and end the lease of its target."""
        reply = self._close_notification([root], [target, token, place, outcome, reason, again, kept])
        match reply if isinstance(reply, list) else [reply]:
            case [b"sent"]:
                return "sent"
            case [b"failed"]:
                return "failed"
            case [b"given up"]:
                return "given up"
            case [b"gone"]:
                return "gone"
            case [b"late"]:
                return "late"
            case _:
                raise UnknownReply("close_notification", reply)

    def count_events(self, root: str, *, filter: EventFilter) -> int | None:
        """The number of events that pass a filter."""
        reply = self._count_events([root], [*filter])
        if reply is None:
            return None
        value: int = int(reply)
        return value

    def count_hit(self, root: str, *, number: int, window: int) -> int:
        """Count one more hit within a window, which begins with its first hit."""
        reply = self._count_hit([root], [number, window])
        value: int = int(reply)
        return value

    def count_over_time(
        self, root: str, *, since: str, before: str, buckets: int, first: str
    ) -> CountOverTime.Reply | None:
        """The number of events in each of equal spans of a window, by (kind, source) pair."""
        reply = self._count_over_time([root], [since, before, buckets, first])
        if reply is None:
            return None
        since_, before_, next, numbers = reply
        return CountOverTime.Reply(since_.decode(), before_.decode(), next.decode(), numbers)

    def cursor_before(self, root: str, *, since: int) -> int | None:
        """The block of the log before which every event is earlier than a time."""
        reply = self._cursor_before([root], [since])
        if reply is None:
            return None
        value: int = int(reply)
        return value

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
        """Decide a destination or a budget that waits."""
        reply = self._decide_destination(
            [root], [asker, at, since, decision, scope, rule_id, maker, most, time, kept, actor, reason]
        )
        match reply if isinstance(reply, list) else [reply]:
            case [b"decided"]:
                return "decided"
            case [b"made", rule]:
                return DecideDestination.Made(rule.decode())
            case [b"known", id]:
                return DecideDestination.Known(id.decode())
            case [b"full"]:
                return "full"
            case [b"revoked"]:
                return "revoked"
            case [b"missing"]:
                return "missing"
            case [b"changed"]:
                return "changed"
            case [b"expired"]:
                return "expired"
            case _:
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
                each,
            ],
        )
        if reply is None:
            return None
        (
            outcome,
            state_revision,
            state_status,
            state_created_at,
            state_updated_at,
            state_groups,
            state_title,
            state_approvals,
            problems,
            decided,
            delivery,
        ) = reply
        return DecidePending.Reply(
            outcome.decode(),
            LogState(
                int(state_revision),
                state_status.decode(),
                state_created_at.decode(),
                state_updated_at.decode(),
                state_groups.decode(),
                state_title.decode(),
                state_approvals in (1, b"1"),
            ),
            problems.decode(),
            decided.decode(),
            [
                DecidePending.Delivery(
                    id.decode(), verb.decode(), reason.decode(), actions.decode(), decisions.decode(), trace.decode()
                )
                for id, verb, reason, actions, decisions, trace in _rows(delivery, 6)
            ],
        )

    def drop_actions(self, root: str, *, ids: Iterable[str]) -> int:
        """Close open actions whose ends are in the log already."""
        reply = self._drop_actions([root], [*ids])
        value: int = int(reply)
        return value

    def due_approvals(self, root: str, *, most: int, random: str) -> list[str]:
        """Conversations with an action whose deadline has passed, as many as asked for, from a random one on."""
        reply = self._due_approvals([root], [most, random])
        return [value.decode() for value in reply]

    def empty_outbox(self, root: str, *, entries: Iterable[bytes]) -> int:
        """Take entries out of an outbox that were queued."""
        reply = self._empty_outbox([root], [*entries])
        value: int = int(reply)
        return value

    def end_idempotency_claim(
        self, root: str, *, key: str, token: str, span: int, outcome: str, word: str, content_type: str, body: str
    ) -> Literal["ended", "late"]:
        """End an attempt: its response is kept, or the record may be claimed again, or the key is free."""
        reply = self._end_idempotency_claim([root], [key, token, span, outcome, word, content_type, body])
        match reply if isinstance(reply, list) else [reply]:
            case [b"ended"]:
                return "ended"
            case [b"late"]:
                return "late"
            case _:
                raise UnknownReply("end_idempotency_claim", reply)

    def find_access_key(self, root: str, *, digest: str) -> FindAccessKey.Reply | None:
        """The key of a hash, unless it was revoked or has expired."""
        reply = self._find_access_key([root], [digest])
        if reply is None:
            return None
        id, name, scopes, left = reply
        return FindAccessKey.Reply(
            id.decode(), name.decode(), scopes.decode(), None if left is None else Micros(int(left))
        )

    def find_events(self, root: str, *, ids: Iterable[str]) -> list[int | None] | None:
        """Which events a log has, without their bytes."""
        reply = self._find_events([root], [*ids])
        if reply is None:
            return None
        return [None if value is None else int(value) for value in reply]

    def get_events(
        self, root: str, *, most_bytes: int, ids: Iterable[str]
    ) -> GetEvents.Found | Literal["too_long"] | None:
        """Events by id."""
        reply = self._get_events([root], [most_bytes, *ids])
        if reply is None:
            return None
        match reply if isinstance(reply, list) else [reply]:
            case [b"found", *events]:
                return GetEvents.Found([value for value in events])
            case [b"too_long"]:
                return "too_long"
            case _:
                raise UnknownReply("get_events", reply)

    def get_final_event(self, root: str) -> list[bytes] | None:
        """The event that holds the agent's final response."""
        reply = self._get_final_event([root], [])
        if reply is None:
            return None
        return [value for value in reply]

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
        """Let a key join a sandbox that it started, or any sandbox if it may, and audit that once."""
        reply = self._join_sandbox(
            [root], [sandbox, key, "1" if may_join_any else "", id, conversation, actor, reason, time, kept]
        )
        if reply is None:
            return None
        match reply if isinstance(reply, list) else [reply]:
            case [b"joined"]:
                return "joined"
            case [b"foreign"]:
                return "foreign"
            case _:
                raise UnknownReply("join_sandbox", reply)

    def list_access_keys(self, root: str) -> list[ListAccessKeys.Row]:
        """All keys, the newest first, without what they are looked up by."""
        reply = self._list_access_keys([root], [])
        return [
            ListAccessKeys.Row(
                id.decode(),
                name.decode(),
                scopes.decode(),
                Micros(int(created_at)),
                None if expires_at is None else Micros(int(expires_at)),
                None if used_at is None else Micros(int(used_at)),
            )
            for id, name, scopes, created_at, expires_at, used_at in _rows(reply, 6)
        ]

    def list_decisions(self, root: str) -> list[ListDecisions.Row] | None:
        """The actions that were approved, and that the conversation has gone on with, and that are not observed yet, in log order."""
        reply = self._list_decisions([root], [])
        if reply is None:
            return None
        return [
            ListDecisions.Row(id.decode(), decision.decode(), None if arguments is None else arguments.decode())
            for id, decision, arguments in _rows(reply, 3)
        ]

    def list_destinations(
        self, root: str, *, most: int, only: str, cursor: int | None = None, cursor_member: str
    ) -> ListDestinations.Reply:
        """A page of what waits for a decision, of all sandboxes or of one, the longest wait first."""
        reply = self._list_destinations([root], [most, only, "" if cursor is None else cursor, cursor_member])
        following, items = reply
        return ListDestinations.Reply(
            [ListDestinations.Following(Micros(int(since)), member.decode()) for since, member in _rows(following, 2)],
            [
                ListDestinations.Item(sandbox.decode(), conversation.decode(), item.decode())
                for sandbox, conversation, item in _rows(items, 3)
            ],
        )

    def list_pending(self, root: str, *, after: int, most_bytes: int) -> list[ListPending.Row] | None:
        """The pending actions, in log order, as many as fit."""
        reply = self._list_pending([root], [after, most_bytes])
        if reply is None:
            return None
        return [ListPending.Row(int(seq), since.decode(), event) for seq, since, event in _rows(reply, 3)]

    def list_rules(self, root: str, *, ids: Iterable[str]) -> ListRules.Reply:
        """Approval rules with their uses, and the version of all rules."""
        reply = self._list_rules([root], [*ids])
        version, rules = reply
        return ListRules.Reply(version, [ListRules.Rule(rule.decode(), use.decode()) for rule, use in _rows(rules, 2)])

    def live_access_keys(self, root: str, *, ids: Iterable[str]) -> list[str]:
        """Which of some keys have neither been revoked nor expired."""
        reply = self._live_access_keys([root], [*ids])
        return [value.decode() for value in reply]

    def locate_event(self, root: str, *, id: str) -> LocateEvent.Found | Literal["unknown"] | None:
        """The position of an event in the order (time, seq)."""
        reply = self._locate_event([root], [id])
        if reply is None:
            return None
        match reply if isinstance(reply, list) else [reply]:
            case [b"found", at, seq]:
                return LocateEvent.Found(float(at), int(seq))
            case [b"unknown"]:
                return "unknown"
            case _:
                raise UnknownReply("locate_event", reply)

    def make_access_key(
        self, root: str, *, id: str, digest: str, name: str, scopes: str, expires_at: int | None = None, most: int
    ) -> MakeAccessKey.Made | Literal["full", "past"]:
        """Keep a key by its hash, once per id."""
        reply = self._make_access_key(
            [root], [id, digest, name, scopes, "" if expires_at is None else expires_at, most]
        )
        match reply if isinstance(reply, list) else [reply]:
            case [b"made", created_at]:
                return MakeAccessKey.Made(Micros(int(created_at)))
            case [b"full"]:
                return "full"
            case [b"past"]:
                return "past"
            case _:
                raise UnknownReply("make_access_key", reply)

    def make_rule(
        self, root: str, *, id: str, rule: str, expires_at: int | None = None, max_uses: int | None = None, most: int
    ) -> MakeRule.Made | Literal["full", "past", "revoked"]:
        """Keep an approval rule, once per id."""
        reply = self._make_rule(
            [root], [id, rule, "" if expires_at is None else expires_at, "" if max_uses is None else max_uses, most]
        )
        match reply if isinstance(reply, list) else [reply]:
            case [b"made", rule_]:
                return MakeRule.Made(rule_.decode())
            case [b"full"]:
                return "full"
            case [b"past"]:
                return "past"
            case [b"revoked"]:
                return "revoked"
            case _:
                raise UnknownReply("make_rule", reply)

    def make_ticket(self, root: str, *, digest: str, content: str, span: int, about: str) -> None:
        """Keep a ticket by its hash for a while."""
        self._make_ticket([root], [digest, content, span, about])

    def note_approvals(
        self,
        root: str,
        *,
        conversation: str,
        revision: int,
        part: str,
        number: int,
        kept: int,
        most: int,
        pending: Collection[tuple[str, int, str, bytes]],
        entries: Iterable[tuple[int, int, str, str, bytes, bytes]],
    ) -> Literal["noted", "late"]:
        """Bring the index of all approvals up to date with one conversation."""
        reply = self._note_approvals(
            [root],
            [
                conversation,
                revision,
                part,
                number,
                kept,
                most,
                len(pending),
                *chain.from_iterable(pending),
                *chain.from_iterable(entries),
            ],
        )
        match reply if isinstance(reply, list) else [reply]:
            case [b"noted"]:
                return "noted"
            case [b"late"]:
                return "late"
            case _:
                raise UnknownReply("note_approvals", reply)

    def note_destinations(
        self, root: str, *, kept: int, most: int, entries: Iterable[tuple[str, str, int, str, str, str, str, str]]
    ) -> None:
        """Index entries of the audit of destinations, and tell the stream of the inbox and the outbox of them."""
        self._note_destinations([root], [kept, most, *chain.from_iterable(entries)])

    def open_delivery(
        self, root: str, *, entry: str, token: str, lease: int, host_span: int, start_span: int, check_span: int
    ) -> OpenDelivery.Reply:
        """Note a delivery before its decision, so that a supervisor finds it after a kill of the worker, and take the lease of its agent unless another delivery has it."""
        reply = self._open_delivery([root], [entry, token, lease, host_span, start_span, check_span])
        taken, lease_end, status, url, key = reply
        return OpenDelivery.Reply(
            taken in (1, b"1"), Micros(int(lease_end)), status.decode(), url.decode(), key.decode()
        )

    def open_targets(
        self, root: str, *, kept: int, again: bool, targets: Iterable[tuple[str, str]]
    ) -> list[OpenTargets.Row]:
        """Note the targets of a supervisor, and forget those that no supervisor has any more: of each, all messages are older than their time."""
        reply = self._open_targets([root], [kept, "1" if again else "", *chain.from_iterable(targets)])
        return [OpenTargets.Row(name.decode(), int(messages)) for name, messages in _rows(reply, 2)]

    def page_audit(
        self, root: str, *, order: str, most: int, since: str, before: str, at: int | None = None, member: str
    ) -> list[PageAudit.Row]:
        """One page of the places of all audit entries, in the order of their times."""
        reply = self._page_audit([root], [order, most, since, before, "" if at is None else at, member])
        return [PageAudit.Row(member.decode(), float(at)) for member, at in _rows(reply, 2)]

    def page_events(
        self, root: str, *, filter: EventFilter, order: str, most: int, cursor_at: str, cursor_seq: str, most_bytes: int
    ) -> list[bytes] | None:
        """The events of one page, in the order (time, seq) or its reverse, from a cursor on."""
        reply = self._page_events([root], [*filter, order, most, cursor_at, cursor_seq, most_bytes])
        if reply is None:
            return None
        return [value for value in reply]

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
        """One page of the index of pending actions, from a cursor on, by when they began to wait."""
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
        following, items = reply
        return PagePendingActions.Reply(
            [
                PagePendingActions.Following(Micros(int(at)), member.decode(), int(seq))
                for at, member, seq in _rows(following, 3)
            ],
            [
                PagePendingActions.Item(member.decode(), Micros(int(at)), item.decode())
                for member, at, item in _rows(items, 3)
            ],
        )

    def queue_notifications(
        self, root: str, *, most: int, most_marks: int, names: str, words: Iterable[str | bytes]
    ) -> list[int]:
        """Queue messages for every target, each message once per id."""
        reply = self._queue_notifications([root], [most, most_marks, names, *words])
        return [int(value) for value in reply]

    def read_approvals(self, root: str, *, after: int, most: int) -> ReadApprovals.Reply:
        """What waits in a conversation, and the end of its audit, as one moment has them."""
        reply = self._read_approvals([root], [after, most])
        there, revision, title, tags, sandbox, capabilities, audited, audit, pending = reply
        return ReadApprovals.Reply(
            there.decode(),
            int(revision),
            title.decode(),
            tags.decode(),
            sandbox.decode(),
            capabilities.decode(),
            int(audited),
            [value for value in audit],
            [ReadApprovals.Pending(id.decode(), record.decode()) for id, record in _rows(pending, 2)],
        )

    def read_changes(self, root: str, *, after: str, most: int, most_bytes: int) -> ReadChanges.Reply:
        """The changes of the inbox after an id, as many as fit, and what the stream still holds."""
        reply = self._read_changes([root], [after, most, most_bytes])
        held, first, last, changes = reply
        return ReadChanges.Reply(
            int(held),
            first.decode(),
            last.decode(),
            [ReadChanges.Change(id.decode(), fields) for id, fields in _rows(changes, 2)],
        )

    def read_delivery(self, root: str) -> ReadDelivery.Reply | None:
        """The decision that a conversation's agent may not have received."""
        reply = self._read_delivery([root], [])
        if reply is None:
            return None
        status, id, verb, reason, actions, decisions, trace = reply
        return ReadDelivery.Reply(
            status.decode(),
            id.decode(),
            verb.decode(),
            reason.decode(),
            actions.decode(),
            decisions.decode(),
            trace.decode(),
        )

    def read_events(self, root: str, *, most_bytes: int, seqs: Iterable[int]) -> list[bytes] | None:
        """Events by seq, as many as fit into a page."""
        reply = self._read_events([root], [most_bytes, *seqs])
        if reply is None:
            return None
        return [value for value in reply]

    def read_link(self, root: str, *, id: str) -> ReadLink.Reply:
        """The use of a one-time link, and the time."""
        reply = self._read_link([root], [id])
        now, decision, at = reply
        return ReadLink.Reply(Micros(int(now)), decision.decode(), None if at is None else Micros(int(at)))

    def read_spending(self, root: str, *, sandbox: str) -> ReadSpending.Reply | None:
        """What a sandbox has spent on models, what the sandboxes of its key have today, and all today, in UTC."""
        reply = self._read_spending([root], [sandbox])
        if reply is None:
            return None
        (
            owner,
            today,
            conversation_nanos,
            conversation_tokens,
            conversation_unpriced,
            conversation_model,
            conversation_allowed_nanos,
            conversation_allowed_tokens,
            key_nanos,
            key_tokens,
            key_unpriced,
            key_model,
            key_allowed_nanos,
            key_allowed_tokens,
            day_nanos,
            day_tokens,
            day_unpriced,
            day_model,
            day_allowed_nanos,
            day_allowed_tokens,
        ) = reply
        return ReadSpending.Reply(
            owner.decode(),
            int(today),
            Spent(
                int(conversation_nanos),
                int(conversation_tokens),
                int(conversation_unpriced),
                conversation_model.decode(),
                int(conversation_allowed_nanos),
                int(conversation_allowed_tokens),
            ),
            Spent(
                int(key_nanos),
                int(key_tokens),
                int(key_unpriced),
                key_model.decode(),
                int(key_allowed_nanos),
                int(key_allowed_tokens),
            ),
            Spent(
                int(day_nanos),
                int(day_tokens),
                int(day_unpriced),
                day_model.decode(),
                int(day_allowed_nanos),
                int(day_allowed_tokens),
            ),
        )

    def read_targets(self, root: str) -> list[ReadTargets.Row]:
        """The queue of every target that a supervisor has had."""
        reply = self._read_targets([root], [])
        return [
            ReadTargets.Row(id.decode(), name.decode(), int(queued), None if oldest is None else oldest.decode(), state)
            for id, name, queued, oldest, state in _rows(reply, 5)
        ]

    def record_destination(
        self, root: str, *, sandbox: str, name: str, port: int, outcome: str, sent: int, received: int, most: int
    ) -> bool:
        """Count what a sandbox has reached, or was refused, by name and port."""
        reply = self._record_destination([root], [sandbox, name, port, outcome, sent, received, most])
        value: bool = reply in (1, b"1")
        return value

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
        """Count a call of a model that a budget refuses, and ask a person for as much once more: once for each budget and its owner."""
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
        outcome, unnoted = reply
        return RefuseCall.Reply(outcome.decode(), int(unnoted))

    def renew_delivery(self, root: str, *, entry: str, token: str, lease: int) -> bool:
        """Renew the lease of an agent."""
        reply = self._renew_delivery([root], [entry, token, lease])
        value: bool = reply in (1, b"1")
        return value

    def renew_notification(self, root: str, *, target: str, token: str, span: int) -> bool:
        """Renew the lease of a target."""
        reply = self._renew_notification([root], [target, token, span])
        value: bool = reply in (1, b"1")
        return value

    def reopen_actions(
        self, root: str, *, time: str, expiry: int, actions: Iterable[tuple[str, int, str]]
    ) -> int | None:
        """Make the open actions those that an agent waits for: after a restart it may wait again for actions that were decided, and no longer for others."""
        reply = self._reopen_actions([root], [time, expiry, *chain.from_iterable(actions)])
        if reply is None:
            return None
        value: int = int(reply)
        return value

    def return_rule_uses(self, root: str, *, uses: Iterable[tuple[str, str]]) -> int:
        """Count uses as not made, of actions that were decided by other means."""
        reply = self._return_rule_uses([root], [*chain.from_iterable(uses)])
        value: int = int(reply)
        return value

    def revoke_access_key(self, root: str, *, id: str, request: str) -> bool:
        """Forget a key, which opens nothing from now on."""
        reply = self._revoke_access_key([root], [id, request])
        value: bool = reply in (1, b"1")
        return value

    def revoke_destination_rule(self, root: str, *, id: str, time: str, kept: int, actor: str, request: str) -> bool:
        """Forget a rule for a destination: it decides no connection that is asked for after this."""
        reply = self._revoke_destination_rule([root], [id, time, kept, actor, request])
        value: bool = reply in (1, b"1")
        return value

    def revoke_rule(self, root: str, *, id: str, request: str) -> bool:
        """Forget an approval rule: from now on no claim of it is granted."""
        reply = self._revoke_rule([root], [id, request])
        value: bool = reply in (1, b"1")
        return value

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
        """Keep a rule for a destination, once per id."""
        reply = self._rule_destination([root], [time, kept, actor, id, name, port, decision, maker, most])
        match reply if isinstance(reply, list) else [reply]:
            case [b"made", rule]:
                return RuleDestination.Made(rule.decode())
            case [b"known", id_]:
                return RuleDestination.Known(id_.decode())
            case [b"full"]:
                return "full"
            case [b"revoked"]:
                return "revoked"
            case _:
                raise UnknownReply("rule_destination", reply)

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
        match reply if isinstance(reply, list) else [reply]:
            case [
                b"sent",
                state_revision,
                state_status,
                state_created_at,
                state_updated_at,
                state_groups,
                state_title,
                state_approvals,
            ]:
                return SendMessage.Sent(
                    LogState(
                        int(state_revision),
                        state_status.decode(),
                        state_created_at.decode(),
                        state_updated_at.decode(),
                        state_groups.decode(),
                        state_title.decode(),
                        state_approvals in (1, b"1"),
                    )
                )
            case [
                b"early",
                state_revision,
                state_status,
                state_created_at,
                state_updated_at,
                state_groups,
                state_title,
                state_approvals,
                earliest,
            ]:
                return SendMessage.Early(
                    LogState(
                        int(state_revision),
                        state_status.decode(),
                        state_created_at.decode(),
                        state_updated_at.decode(),
                        state_groups.decode(),
                        state_title.decode(),
                        state_approvals in (1, b"1"),
                    ),
                    Micros(int(earliest)),
                )
            case [
                b"forbidden",
                state_revision,
                state_status,
                state_created_at,
                state_updated_at,
                state_groups,
                state_title,
                state_approvals,
            ]:
                return SendMessage.Forbidden(
                    LogState(
                        int(state_revision),
                        state_status.decode(),
                        state_created_at.decode(),
                        state_updated_at.decode(),
                        state_groups.decode(),
                        state_title.decode(),
                        state_approvals in (1, b"1"),
                    )
                )
            case [
                b"too_long",
                state_revision,
                state_status,
                state_created_at,
                state_updated_at,
                state_groups,
                state_title,
                state_approvals,
            ]:
                return SendMessage.TooLong(
                    LogState(
                        int(state_revision),
                        state_status.decode(),
                        state_created_at.decode(),
                        state_updated_at.decode(),
                        state_groups.decode(),
                        state_title.decode(),
                        state_approvals in (1, b"1"),
                    )
                )
            case _:
                raise UnknownReply("send_message", reply)

    def settle_delivery(self, root: str, *, id: str) -> bool:
        """Forget a decision that the agent has received, or never will."""
        reply = self._settle_delivery([root], [id])
        value: bool = reply in (1, b"1")
        return value

    def take_link(
        self, root: str, *, id: str, ends: int, decision: str
    ) -> TakeLink.First | TakeLink.Again | TakeLink.Other | Literal["past"]:
        """Use a one-time link for a decision."""
        reply = self._take_link([root], [id, ends, decision])
        match reply if isinstance(reply, list) else [reply]:
            case [b"first", decision_, at]:
                return TakeLink.First(decision_.decode(), Micros(int(at)))
            case [b"again", decision_, at]:
                return TakeLink.Again(decision_.decode(), Micros(int(at)))
            case [b"other", decision_, at]:
                return TakeLink.Other(decision_.decode(), Micros(int(at)))
            case [b"past"]:
                return "past"
            case _:
                raise UnknownReply("take_link", reply)

    def take_ticket(self, root: str, *, digest: str, request: str, about: str) -> str | None:
        """What a ticket stands for, to one request alone."""
        reply = self._take_ticket([root], [digest, request, about])
        if reply is None:
            return None
        value: str = reply.decode()
        return value
