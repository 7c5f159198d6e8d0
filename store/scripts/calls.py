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


class CreateStartTask:
    """Replies of `create_start_task.lua`."""

    class Created(NamedTuple):
        found: list[bytes]

    class Exists(NamedTuple):
        found: list[bytes]

    class Full(NamedTuple):
        unfinished: int


class GetEvents:
    """Replies of `get_events.lua`."""

    class Found(NamedTuple):
        events: list[bytes | None]


class LocateEvent:
    """Replies of `locate_event.lua`."""

    class Found(NamedTuple):
        at: float
        seq: int


class OpenSandbox:
    """Replies of `open_sandbox.lua`."""

    class Opened(NamedTuple):
        id: str

    class TooFast(NamedTuple):
        left: int


class OwnSandboxes:
    """Replies of `own_sandboxes.lua`."""

    class Reply(NamedTuple):
        running: list[str]
        paused: list[str]


class PageSandboxes:
    """Replies of `page_sandboxes.lua`."""

    class Reply(NamedTuple):
        at: Micros
        found: list[list[bytes]]


class ReadSandboxes:
    """Replies of `read_sandboxes.lua`."""

    class Reply(NamedTuple):
        at: Micros
        found: list[list[bytes]]


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
        ending: str | None


class TakePlace:
    """Replies of `take_place.lua`."""

    class Full(NamedTuple):
        places: int


class UseSandbox:
    """Replies of `use_sandbox.lua`."""

    class Reply(NamedTuple):
        at: Micros
        fields: list[bytes]


class Calls:
    """Every script as a method."""

    _adopt_workspace: Sends
    _advance_start_task: Sends
    _append_events: Sends
    _ask_sandbox: Sends
    _await_place: Sends
    _beat_host: Sends
    _begin_sandbox: Sends
    _bury_start: Sends
    _check_sandbox: Sends
    _claim_checks: Sends
    _claim_failed_start_task: Sends
    _claim_sandbox: Sends
    _claim_start_task: Sends
    _claim_warm_sandbox: Sends
    _clear_start_task: Sends
    _close_check: Sends
    _close_transfer: Sends
    _count_events: Sends
    _count_hosts: Sends
    _count_over_time: Sends
    _create_start_task: Sends
    _cursor_before: Sends
    _declare_warm_pools: Sends
    _discard_warm_sandbox: Sends
    _end_start_task: Sends
    _expect_echoes: Sends
    _expire_sandboxes: Sends
    _expire_workspaces: Sends
    _fill_warm_pool: Sends
    _find_events: Sends
    _finish_start_task: Sends
    _forget_echo: Sends
    _forget_start_task: Sends
    _get_events: Sends
    _get_final_event: Sends
    _leave_place: Sends
    _leave_place_queue: Sends
    _locate_event: Sends
    _name_workspace: Sends
    _note_comparison: Sends
    _open_sandbox: Sends
    _open_transfer: Sends
    _own_sandboxes: Sends
    _page_events: Sends
    _page_sandboxes: Sends
    _page_start_tasks: Sends
    _read_events: Sends
    _read_sandboxes: Sends
    _read_start_tasks: Sends
    _release_host: Sends
    _rename_host: Sends
    _renew_start_task: Sends
    _report_sandbox: Sends
    _return_workspace: Sends
    _send_chunk: Sends
    _send_message: Sends
    _start_sandbox: Sends
    _stop_sandbox: Sends
    _take_chunk: Sends
    _take_place: Sends
    _use_sandbox: Sends

    def adopt_workspace(self, root: str, *, owner: str, spec: str, start: str, gives_way: bool) -> str | None:
        """Bind the workspace sandbox of a key to a start task of that key, so that what was uploaded is there."""
        reply = self._adopt_workspace([root], [owner, spec, start, "1" if gives_way else ""])
        if reply is None:
            return None
        value: str = reply.decode()
        return value

    def advance_start_task(self, root: str, *, id: str, lease: str, span: int, fields: Iterable[str | bytes]) -> bool:
        """Write the progress of an unfinished start task, and renew its lease."""
        reply = self._advance_start_task([root], [id, lease, span, *fields])
        value: bool = reply in (1, b"1")
        return value

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

    def await_place(
        self, root: str, *, id: str, lease: str, again: int, most: int, detail: str
    ) -> Literal["waits", "over"] | None:
        """Have a start task wait for the place of a sandbox, behind those that were created before it."""
        reply = self._await_place([root], [id, lease, again, most, detail])
        if reply is None:
            return None
        match reply if isinstance(reply, list) else [reply]:
            case [b"waits"]:
                return "waits"
            case [b"over"]:
                return "over"
            case _:
                raise UnknownReply("await_place", reply)

    def beat_host(self, root: str, *, host: str, supervisor: str, spans: Spans) -> Literal["alive", "taken"]:
        """Write the heartbeat of a host's supervisor, and mark the sandboxes of lost hosts."""
        reply = self._beat_host([root], [host, supervisor, *spans])
        match reply if isinstance(reply, list) else [reply]:
            case [b"alive"]:
                return "alive"
            case [b"taken"]:
                return "taken"
            case _:
                raise UnknownReply("beat_host", reply)

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
        """Number a start of a sandbox's processes, which has two keys of its own: the processes of an earlier start, should any live, can post nothing."""
        reply = self._begin_sandbox(
            [root], [id, host, supervisor, agent_key, hook_hash, runtime, session_hash, folder, hidden]
        )
        if reply is None:
            return None
        match reply if isinstance(reply, list) else [reply]:
            case [b"begun"]:
                return "begun"
            case [b"passed"]:
                return "passed"
            case [b"taken"]:
                return "taken"
            case _:
                raise UnknownReply("begin_sandbox", reply)

    def bury_start(self, root: str, *, id: str, late: int) -> None:
        """Let a start task that has ended make nothing more below a root: no conversation, or no use of a sandbox."""
        self._bury_start([root], [id, late])

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

    def claim_failed_start_task(self, root: str, *, span: int) -> list[bytes] | None:
        """Take a failed start task, to remove its conversation and sandbox."""
        reply = self._claim_failed_start_task([root], [span])
        if reply is None:
            return None
        value: list[bytes] = reply
        return value

    def claim_sandbox(self, root: str, *, host: str, most: int) -> str | None:
        """Give a host the sandbox that has waited longest for one, unless the cap of running sandboxes is reached."""
        reply = self._claim_sandbox([root], [host, most])
        if reply is None:
            return None
        value: str = reply.decode()
        return value

    def claim_start_task(
        self, root: str, *, lease: str, span: int, most: int, detail: str, kept: int
    ) -> list[bytes] | None:
        """Take the lease of an unfinished start task without a driver."""
        reply = self._claim_start_task([root], [lease, span, most, detail, kept])
        if reply is None:
            return None
        value: list[bytes] = reply
        return value

    def claim_warm_sandbox(
        self, root: str, *, spec: str, version: str, start: str, host_span: int, gives_way: bool, owner: str
    ) -> str | None:
        """Bind the warm sandbox of a spec that has waited longest to a start task, as far as one runs on a living host."""
        reply = self._claim_warm_sandbox([root], [spec, version, start, host_span, "1" if gives_way else "", owner])
        if reply is None:
            return None
        value: str = reply.decode()
        return value

    def clear_start_task(self, root: str, *, id: str, late: int) -> bool:
        """Note that a driver has removed all that a failed start task had made."""
        reply = self._clear_start_task([root], [id, late])
        value: bool = reply in (1, b"1")
        return value

    def close_check(self, root: str, *, entry: str | bytes, lease_end: int, again: int | None = None) -> bool:
        """End a comparison: the conversation is due again later, or not until something happens in it."""
        reply = self._close_check([root], [entry, lease_end, "" if again is None else again])
        value: bool = reply in (1, b"1")
        return value

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
        value: int = int(reply)
        return value

    def count_hosts(self, root: str, *, host_span: int) -> int:
        """The number of hosts with a recent heartbeat."""
        reply = self._count_hosts([root], [host_span])
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

    def create_start_task(
        self,
        root: str,
        *,
        id: str,
        conversation: str,
        most: int,
        asked: str,
        body: bytes,
        fields: Iterable[str | bytes],
    ) -> CreateStartTask.Created | CreateStartTask.Exists | CreateStartTask.Full | Literal["gone"]:
        """Create a start task, once per id."""
        reply = self._create_start_task([root], [id, conversation, most, asked, body, *fields])
        match reply if isinstance(reply, list) else [reply]:
            case [b"created", found]:
                return CreateStartTask.Created(found)
            case [b"exists", found]:
                return CreateStartTask.Exists(found)
            case [b"full", unfinished]:
                return CreateStartTask.Full(int(unfinished))
            case [b"gone"]:
                return "gone"
            case _:
                raise UnknownReply("create_start_task", reply)

    def cursor_before(self, root: str, *, since: int) -> int | None:
        """The block of the log before which every event is earlier than a time."""
        reply = self._cursor_before([root], [since])
        if reply is None:
            return None
        value: int = int(reply)
        return value

    def declare_warm_pools(self, root: str, *, pools: Iterable[tuple[str, str, int]]) -> None:
        """Say how many warm sandboxes each spec keeps, of which version."""
        self._declare_warm_pools([root], [*chain.from_iterable(pools)])

    def discard_warm_sandbox(self, root: str, *, id: str, failed: bool) -> bool:
        """End a warm sandbox, unless it is bound by now."""
        reply = self._discard_warm_sandbox([root], [id, "1" if failed else ""])
        value: bool = reply in (1, b"1")
        return value

    def end_start_task(
        self, root: str, *, id: str, conversation: str, children: bool, detail: str, failure: str
    ) -> list[str]:
        """End an unfinished start task, or every one of a conversation, also of its children, as ERROR, for good."""
        reply = self._end_start_task([root], [id, conversation, "1" if children else "", detail, failure])
        value: list[str] = [value.decode() for value in reply]
        return value

    def expect_echoes(self, root: str, *, at: int, token: str, claims: Iterable[str]) -> int | None:
        """Note claims that an agent may make, each once."""
        reply = self._expect_echoes([root], [at, token, *claims])
        if reply is None:
            return None
        value: int = int(reply)
        return value

    def expire_sandboxes(self, root: str, *, kept: int, passed: int) -> int:
        """Ask for the deletion of sandboxes that failed long ago."""
        reply = self._expire_sandboxes([root], [kept, passed])
        value: int = int(reply)
        return value

    def expire_workspaces(self, root: str, *, unused: int) -> int:
        """Ask for the deletion of workspace sandboxes that nobody has used for long."""
        reply = self._expire_workspaces([root], [unused])
        value: int = int(reply)
        return value

    def fill_warm_pool(
        self, root: str, *, spec: str, version: str, id: str, files_key: str, most_running: int
    ) -> Literal["added", "full", "waits", "other", "undeclared"]:
        """Add one warm sandbox to the pool of a spec that lacks one."""
        reply = self._fill_warm_pool([root], [spec, version, id, files_key, most_running])
        match reply if isinstance(reply, list) else [reply]:
            case [b"added"]:
                return "added"
            case [b"full"]:
                return "full"
            case [b"waits"]:
                return "waits"
            case [b"other"]:
                return "other"
            case [b"undeclared"]:
                return "undeclared"
            case _:
                raise UnknownReply("fill_warm_pool", reply)

    def find_events(self, root: str, *, ids: Iterable[str]) -> list[int | None] | None:
        """Which events a log has, without their bytes."""
        reply = self._find_events([root], [*ids])
        if reply is None:
            return None
        value: list[int | None] = [None if value is None else int(value) for value in reply]
        return value

    def finish_start_task(self, root: str, *, id: str, lease: str, status: str, detail: str) -> bool:
        """End a start task as READY or ERROR, which is final."""
        reply = self._finish_start_task([root], [id, lease, status, detail])
        value: bool = reply in (1, b"1")
        return value

    def forget_echo(self, root: str, *, claim: str, token: str) -> bool:
        """Expect a claim of an agent no longer."""
        reply = self._forget_echo([root], [claim, token])
        value: bool = reply in (1, b"1")
        return value

    def forget_start_task(self, root: str, *, id: str, late: int) -> None:
        """Remove a start task in any status."""
        self._forget_start_task([root], [id, late])

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
        value: list[bytes] = [value for value in reply]
        return value

    def leave_place(self, root: str, *, sandbox: str, conversation: str, made: bool) -> bool:
        """Free the place in a sandbox that was taken for a conversation which is not made."""
        reply = self._leave_place([root], [sandbox, conversation, "1" if made else ""])
        value: bool = reply in (1, b"1")
        return value

    def leave_place_queue(self, root: str, *, id: str, lease: str) -> bool:
        """Note that a start task has found a place."""
        reply = self._leave_place_queue([root], [id, lease])
        value: bool = reply in (1, b"1")
        return value

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

    def name_workspace(self, root: str, *, owner: str, fresh: str, host_span: int) -> str | None:
        """The workspace sandbox of a key, which its calls reach before it has a conversation."""
        reply = self._name_workspace([root], [owner, fresh, host_span])
        if reply is None:
            return None
        value: str = reply.decode()
        return value

    def note_comparison(self, root: str, *, before: str, after: str, ended: bool) -> bool | None:
        """Keep how far the log of a conversation was compared with that of its agent, which lives, unless another comparison or a settlement has kept its own since."""
        reply = self._note_comparison([root], [before, after, "1" if ended else ""])
        if reply is None:
            return None
        value: bool = reply in (1, b"1")
        return value

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
        """The sandbox of a hook key."""
        reply = self._open_sandbox(
            [root], [hash, conversation, check_span, brought, most_bytes, most_in_window, window]
        )
        if reply is None:
            return None
        match reply if isinstance(reply, list) else [reply]:
            case [b"opened", id]:
                return OpenSandbox.Opened(id.decode())
            case [b"too much"]:
                return "too much"
            case [b"too fast", left]:
                return OpenSandbox.TooFast(int(left))
            case _:
                raise UnknownReply("open_sandbox", reply)

    def open_transfer(self, root: str, *, id: str, kept: int) -> None:
        """Begin a stream of chunks."""
        self._open_transfer([root], [id, kept])

    def own_sandboxes(self, root: str, *, owner: str) -> OwnSandboxes.Reply:
        """The sandboxes that run or are paused, are bound and were started by a key."""
        reply = self._own_sandboxes([root], [owner])
        running, paused = reply
        return OwnSandboxes.Reply([value.decode() for value in running], [value.decode() for value in paused])

    def page_events(
        self, root: str, *, filter: EventFilter, order: str, most: int, cursor_at: str, cursor_seq: str, most_bytes: int
    ) -> list[bytes] | None:
        """The events of one page, in the order (time, seq) or its reverse, from a cursor on."""
        reply = self._page_events([root], [*filter, order, most, cursor_at, cursor_seq, most_bytes])
        if reply is None:
            return None
        value: list[bytes] = [value for value in reply]
        return value

    def page_sandboxes(
        self, root: str, *, spans: Spans, status: str, spec: str, most: int, first_at: int | None = None, first_id: str
    ) -> PageSandboxes.Reply:
        """One page of the sandboxes, the newest first, after the sandboxes of lost hosts are marked MISSING."""
        reply = self._page_sandboxes(
            [root], [*spans, status, spec, most, "" if first_at is None else first_at, first_id]
        )
        at, *found = reply
        return PageSandboxes.Reply(Micros(int(at)), [value for value in found])

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
        """One page of all start tasks or of one conversation's, after those without a supervisor have failed."""
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
        value: list[list[bytes]] = [value for value in reply]
        return value

    def read_events(self, root: str, *, most_bytes: int, seqs: Iterable[int]) -> list[bytes] | None:
        """Events by seq, as many as fit into a page."""
        reply = self._read_events([root], [most_bytes, *seqs])
        if reply is None:
            return None
        value: list[bytes] = [value for value in reply]
        return value

    def read_sandboxes(self, root: str, *, spans: Spans, host: str, ids: Iterable[str]) -> ReadSandboxes.Reply:
        """Sandboxes by id, or all of one host, after the sandboxes of lost hosts are marked MISSING."""
        reply = self._read_sandboxes([root], [*spans, host, *ids])
        at, *found = reply
        return ReadSandboxes.Reply(Micros(int(at)), [value for value in found])

    def read_start_tasks(self, root: str, *, span: int, detail: str, ids: Iterable[str]) -> list[list[bytes]]:
        """Start tasks by id, after those without a supervisor have failed."""
        reply = self._read_start_tasks([root], [span, detail, *ids])
        value: list[list[bytes]] = [value for value in reply]
        return value

    def release_host(self, root: str, *, host: str, supervisor: str) -> Literal["released", "taken"]:
        """Release the host of a supervisor that ends, so that another one need not wait for the end of the lease."""
        reply = self._release_host([root], [host, supervisor])
        match reply if isinstance(reply, list) else [reply]:
            case [b"released"]:
                return "released"
            case [b"taken"]:
                return "taken"
            case _:
                raise UnknownReply("release_host", reply)

    def rename_host(self, root: str, *, host: str, name: str) -> int:
        """Give the sandboxes of a host to another name, of a store that was moved."""
        reply = self._rename_host([root], [host, name])
        value: int = int(reply)
        return value

    def renew_start_task(self, root: str, *, id: str, lease: str, span: int, counter: str) -> bool:
        """Renew the lease of an unfinished start task."""
        reply = self._renew_start_task([root], [id, lease, span, counter])
        value: bool = reply in (1, b"1")
        return value

    def report_sandbox(
        self, root: str, *, id: str, host: str, supervisor: str, status: str, log: str, fields: Iterable[str | bytes]
    ) -> Literal["noted", "passed", "taken"] | None:
        """Write the observed state of a sandbox of the host."""
        reply = self._report_sandbox([root], [id, host, supervisor, status, log, *fields])
        if reply is None:
            return None
        match reply if isinstance(reply, list) else [reply]:
            case [b"noted"]:
                return "noted"
            case [b"passed"]:
                return "passed"
            case [b"taken"]:
                return "taken"
            case _:
                raise UnknownReply("report_sandbox", reply)

    def return_workspace(self, root: str, *, id: str, start: str) -> bool:
        """Give a workspace sandbox back to its key, as the start task that has adopted it failed."""
        reply = self._return_workspace([root], [id, start])
        value: bool = reply in (1, b"1")
        return value

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
        match reply if isinstance(reply, list) else [reply]:
            case [b"started", at, fields]:
                return StartSandbox.Started(Micros(int(at)), fields)
            case [b"exists", at, fields]:
                return StartSandbox.Exists(Micros(int(at)), fields)
            case [b"full", running]:
                return StartSandbox.Full(int(running))
            case [b"kept", stopped]:
                return StartSandbox.Kept(int(stopped))
            case [b"no host"]:
                return "no host"
            case [b"gone"]:
                return "gone"
            case _:
                raise UnknownReply("start_sandbox", reply)

    def stop_sandbox(
        self, root: str, *, id: str, host: str, supervisor: str, seen: str, detail: str, log: str, resumes: bool
    ) -> Literal["noted", "taken"] | None:
        """Note that the processes of a sandbox have ended and its files are kept."""
        reply = self._stop_sandbox([root], [id, host, supervisor, seen, detail, log, "1" if resumes else ""])
        if reply is None:
            return None
        match reply if isinstance(reply, list) else [reply]:
            case [b"noted"]:
                return "noted"
            case [b"taken"]:
                return "taken"
            case _:
                raise UnknownReply("stop_sandbox", reply)

    def take_chunk(self, root: str, *, id: str, kept: int, number: int) -> TakeChunk.Reply | None:
        """Read a chunk of a stream."""
        reply = self._take_chunk([root], [id, kept, number])
        if reply is None:
            return None
        chunk, ending = reply
        return TakeChunk.Reply(chunk, None if ending is None else ending.decode())

    def take_place(
        self, root: str, *, sandbox: str, conversation: str, most: int, made: bool, start: str
    ) -> TakePlace.Full | Literal["taken", "had"] | None:
        """Give a conversation its place in a sandbox, once per conversation, as far as the sandbox has room."""
        reply = self._take_place([root], [sandbox, conversation, most, "1" if made else "", start])
        if reply is None:
            return None
        match reply if isinstance(reply, list) else [reply]:
            case [b"taken"]:
                return "taken"
            case [b"had"]:
                return "had"
            case [b"full", places]:
                return TakePlace.Full(int(places))
            case _:
                raise UnknownReply("take_place", reply)

    def use_sandbox(self, root: str, *, id: str, spans: Spans) -> UseSandbox.Reply | None:
        """Read a sandbox and note that it is in use, at most once a second: a warm one is bound."""
        reply = self._use_sandbox([root], [id, *spans])
        if reply is None:
            return None
        at, fields = reply
        return UseSandbox.Reply(Micros(int(at)), fields)
