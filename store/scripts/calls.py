"""The scripts as methods: arguments have names, replies have types. Made by docs/make.py from the heads.

An outcome with data is a class of the script's namespace; an outcome without is its word.
"""

from collections.abc import Iterable
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


class Spans(NamedTuple):
    host: int
    start: int


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


class ClaimChecks:
    """Replies of `claim_checks.lua`."""

    class Reply(NamedTuple):
        lease_end: Micros
        entries: list[bytes]


class CloseTransfer:
    """Replies of `close_transfer.lua`."""

    class Reply(NamedTuple):
        sent: str | None
        received: str | None


class CountOverTime:
    """Replies of `count_over_time.lua`."""

    class Reply(NamedTuple):
        since: str
        before: str
        next: str
        numbers: Any


class GetEvents:
    """Replies of `get_events.lua`."""

    class Found(NamedTuple):
        events: list[bytes | None]


class LocateEvent:
    """Replies of `locate_event.lua`."""

    class Found(NamedTuple):
        at: float
        seq: int


class SendChunk:
    """Replies of `send_chunk.lua`."""

    class Closed(NamedTuple):
        ending: str


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


class TakeChunk:
    """Replies of `take_chunk.lua`."""

    class Reply(NamedTuple):
        chunk: bytes | None
        ending: str | None


class Calls:
    """Every script as a method."""

    _append_events: Sends
    _ask_sandbox: Sends
    _check_sandbox: Sends
    _claim_checks: Sends
    _close_check: Sends
    _close_transfer: Sends
    _count_events: Sends
    _count_over_time: Sends
    _cursor_before: Sends
    _expect_echoes: Sends
    _find_events: Sends
    _forget_echo: Sends
    _get_events: Sends
    _get_final_event: Sends
    _locate_event: Sends
    _note_comparison: Sends
    _open_transfer: Sends
    _page_events: Sends
    _read_events: Sends
    _send_chunk: Sends
    _send_message: Sends
    _take_chunk: Sends

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

    def check_sandbox(self, root: str, *, id: str) -> None:
        """Have every conversation of a sandbox compared with its agent at once."""
        self._check_sandbox([root], [id])

    def claim_checks(self, root: str, *, host: str, lease: int, most: int, spans: Spans) -> ClaimChecks.Reply | None:
        """Take conversations that are due to be compared with their agents, those due for longest first: of the sandboxes of a host, of those whose host is lost, and of those that are gone."""
        reply = self._claim_checks([root], [host, lease, most, *spans])
        if reply is None:
            return None
        lease_end, *entries = reply
        return ClaimChecks.Reply(Micros(int(lease_end)), [value for value in entries])

    def close_check(self, root: str, *, entry: str | bytes, lease_end: int, again: int | None = None) -> bool:
        """End a comparison: the conversation is due again later, or not until something happens in it."""
        reply = self._close_check([root], [entry, lease_end, "" if again is None else again])
        return reply in (1, b"1")

    def close_transfer(self, root: str, *, id: str, kept: int, side: str, ending: str) -> CloseTransfer.Reply | None:
        """Note how one side ended a stream, unless it has done so already."""
        reply = self._close_transfer([root], [id, kept, side, ending])
        if reply is None:
            return None
        sent, received = reply
        return CloseTransfer.Reply(
            None if sent is None else sent.decode(), None if received is None else received.decode()
        )

    def count_events(self, root: str, *, filter: EventFilter) -> int | None:
        """The number of events that pass a filter."""
        reply = self._count_events([root], [*filter])
        if reply is None:
            return None
        return int(reply)

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
        return int(reply)

    def expect_echoes(self, root: str, *, at: int, token: str, claims: Iterable[str]) -> int | None:
        """Note claims that an agent may make, each once."""
        reply = self._expect_echoes([root], [at, token, *claims])
        if reply is None:
            return None
        return int(reply)

    def find_events(self, root: str, *, ids: Iterable[str]) -> list[int | None] | None:
        """Which events a log has, without their bytes."""
        reply = self._find_events([root], [*ids])
        if reply is None:
            return None
        return [None if value is None else int(value) for value in reply]

    def forget_echo(self, root: str, *, claim: str, token: str) -> bool:
        """Expect a claim of an agent no longer."""
        reply = self._forget_echo([root], [claim, token])
        return reply in (1, b"1")

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

    def note_comparison(self, root: str, *, before: str, after: str, ended: bool) -> bool | None:
        """Keep how far the log of a conversation was compared with that of its agent, which lives, unless another comparison or a settlement has kept its own since."""
        reply = self._note_comparison([root], [before, after, "1" if ended else ""])
        if reply is None:
            return None
        return reply in (1, b"1")

    def open_transfer(self, root: str, *, id: str, kept: int) -> None:
        """Begin a stream of chunks."""
        self._open_transfer([root], [id, kept])

    def page_events(
        self, root: str, *, filter: EventFilter, order: str, most: int, cursor_at: str, cursor_seq: str, most_bytes: int
    ) -> list[bytes] | None:
        """The events of one page, in the order (time, seq) or its reverse, from a cursor on."""
        reply = self._page_events([root], [*filter, order, most, cursor_at, cursor_seq, most_bytes])
        if reply is None:
            return None
        return [value for value in reply]

    def read_events(self, root: str, *, most_bytes: int, seqs: Iterable[int]) -> list[bytes] | None:
        """Events by seq, as many as fit into a page."""
        reply = self._read_events([root], [most_bytes, *seqs])
        if reply is None:
            return None
        return [value for value in reply]

    def send_chunk(
        self, root: str, *, id: str, kept: int, number: int, most: int, chunk: bytes
    ) -> SendChunk.Closed | Literal["sent", "full"] | None:
        """Add the next chunk of a stream, if there is room for one more."""
        reply = self._send_chunk([root], [id, kept, number, most, chunk])
        if reply is None:
            return None
        match reply if isinstance(reply, list) else [reply]:
            case [b"sent"]:
                return "sent"
            case [b"full"]:
                return "full"
            case [b"closed", ending]:
                return SendChunk.Closed(ending.decode())
            case _:
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

    def take_chunk(self, root: str, *, id: str, kept: int, number: int) -> TakeChunk.Reply | None:
        """Read a chunk of a stream."""
        reply = self._take_chunk([root], [id, kept, number])
        if reply is None:
            return None
        chunk, ending = reply
        return TakeChunk.Reply(chunk, None if ending is None else ending.decode())
