"""Sandboxes: the desired state and the observed state of each. All sandboxes lie in one slot.

Workers write the desired state and supervisors the observed one, each by one script; `_sandbox.lua` has the state
machine.
"""

import json
import logging
import math
import secrets
import string
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Annotated, Any, NewType

from core.cuts import head_and_tail, last_lines
from core.wire import ConversationId, Micros
from settings.limits import SandboxLimits
from store.errors import (
    UNREADABLE,
    KeyUnreadable,
    NoSupervisor,
    NotDoneYet,
    SandboxNotFound,
    SandboxPostedTooMuch,
    SandboxPostsTooFast,
    SandboxRefuses,
    TooManyConversations,
    TooManySandboxes,
    TooManyStopped,
)
from store.keys import SandboxKeys
from store.link.attempts import is_finished, minted_text
from store.link.commands import Redis
from store.link.secrets import Sealer
from store.link.signals import answer, answered
from store.record import BESIDE, Record, pairs
from store.scripts import Scripts
from store.scripts.calls import AskSandbox, OpenSandbox, Spans, StartSandbox, TakePlace, TurnBackSandbox
from telemetry import traces

_log = logging.getLogger(__name__)

SandboxId = NewType("SandboxId", str)

#: most seconds that a restart waits for after a crash
LONGEST_RESTART = 30.0

#: most characters of the detail
MOST_DETAIL = 8 * 1024

_NEVER = Micros(0)

_DIGITS = string.digits + string.ascii_letters


#: seconds between two polls while a method waits; between the first two for a pause, of which each wait is a bit longer
_POLL, _FIRST_POLL, _GROWTH = 0.02, 0.003, 1.25

#: seconds that a supervisor may take to send a log, and that a start waits for a supervisor
_LOG_TIMEOUT, _HOST_TIMEOUT = 3.0, 3.0

#: µs between a webhook, or a command to the agent, and the comparison (`checks.py`)
CHECK_SPAN = 3_000_000

#: most bytes of the log that are kept of a sandbox without processes
MOST_LOG_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox(Record):
    """One sandbox at the time of its reading. Times are in µs by Redis' clock; the handle is its runtime's.

    A sandbox without a handle has no processes: only its files, if it was started before.
    """

    key = SandboxKeys.box("ID")
    id: SandboxId
    spec_id: str
    status: str
    wanted: str  #: `running`, `paused` or `deleted`
    host: str
    agent_key: str = field(default="", repr=False)  #: session key, sealed; empty before its first start
    sealed_files_key: Annotated[str, "files_key"] = field(default="", repr=False)  #: sealed
    sealed_hidden: Annotated[str, "hidden"] = field(default="", repr=False)  #: sealed JSON, see `hidden`
    hook_hash: str = ""  #: SHA-256 of its hook key; empty before its first start
    start: int = 0  #: number of its last start of processes, 0 before the first
    created_at: Micros
    starting_at: Micros
    changed_at: Micros  #: its last change of status
    active_at: Micros
    runtime: str = ""  #: name of the runtime that has its files; empty before its first start
    folder: str = ""  #: id of the host's folder that has them; empty: they are in none
    working_dir: str = ""  #: absolute path of its agent's folder, as `pwd` printed it last
    linked_dir: str = ""  #: another path of that folder, where a symlink is in the way; empty: there is none
    handle: dict[str, Any] | None = None
    agent_url: str
    urls: list[dict[str, object]] = field(default_factory=list)
    detail: str  #: at most 8 KiB
    disk_bytes: int | None = None  #: of its files, as measured last
    memory_bytes: int | None = None  #: of its processes, as measured last while it ran
    cpu_cores: float | None = None  #: that its processes used, likewise
    crashes: list[Micros] = field(default_factory=list)  #: when its processes crashed, as far as `restarts` counts them
    start_after: Micros = _NEVER  #: its next start waits for that time: the backoff after a crash
    resumes: bool = False  #: it ran when its server ended: RESUME_SANDBOXES starts it again
    gives_way: bool = False  #: it pauses while it is idle, for others too; see `agents/places.py`
    warm: str = ""  #: version of its spec while it waits for its first use, see `start_tasks.py`; empty: it is bound
    source: dict[str, Any] | None = None  #: where the files of its first start come from; null: it starts with none
    back: dict[str, Any] | None = None  #: the return of a conversation's files that is to be made, see `turn_back`
    owner: str = ""  #: id of the key that started it; empty: nobody's
    leaving: bool = False  #: it is being deleted: lists have it no longer, and its key is shown to nobody
    strays: dict[str, object] | None = None  #: `count` and `newest` of what its agent server alone has
    adopted: str = ""  #: id of the start task that took it from the workspace of its key; empty: none did
    trace: str = ""  #: W3C traceparent of the request that asked for its start; empty: none, or the start has ended
    seen_at: Micros = field(compare=False, metadata=BESIDE)  #: the time of the reading, which its ages are measured to
    sealer: Sealer = field(repr=False, compare=False, metadata=BESIDE)

    @property
    def is_delayed(self) -> bool:
        """Whether its next start waits for the end of a backoff. A clock that stepped back since prolongs none."""
        return 0 < self.start_after - self.seen_at <= LONGEST_RESTART * 1e6

    @property
    def session_api_key(self) -> str:
        """What clients and this server show its agent server; each start has another one. Raises KeyUnreadable."""
        return self.sealer.open_key(self.id, self.agent_key)

    @property
    def files_key(self) -> str:
        """Seals what its agent server writes to its files; stays for the sandbox's life. Raises KeyUnreadable."""
        return self.sealer.open_key(self.id, self.sealed_files_key)

    @property
    def hidden(self) -> list[str]:
        """The secrets in the environment of its processes, which no text of theirs shows. Raises KeyUnreadable."""
        more = json.loads(self.sealer.open_key(self.id, self.sealed_hidden) or "[]")
        return [self.session_api_key, self.files_key, *more]

    @property
    def shown_key(self) -> str | None:
        """The session key as clients see it: None unless the sandbox is RUNNING, bound, and the key can be read.

        None too of one that is being deleted.
        """
        if self.status != "RUNNING" or self.warm or self.leaving:
            return None
        try:
            return self.session_api_key
        except KeyUnreadable:
            return None

    @property
    def isolated_by(self) -> dict[str, object] | None:
        """What isolates its processes, as its runtime says; None while it has none."""
        return (self.handle or {}).get("isolation")

    @property
    def egress_url(self) -> str:
        """The URL of its way out by name, as it sees it; empty: it has none, or no processes."""
        return str((self.handle or {}).get("egress_url", ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxUpkeep(Record):
    """Fields of a sandbox that no listing shows."""

    key = Sandbox.key
    session_hash: str = ""  #: SHA-256 of its session key
    settled: int = 0  #: the start after which its conversations were settled
    posted_bytes: int = 0  #: bytes that its webhooks have brought
    window_bytes: int = 0  #: bytes that they have brought in the window of the rate limit
    window_ends: Micros = _NEVER


def read_sandbox(fields: list[bytes], now: Micros, sealer: Sealer) -> Sandbox:
    """A sandbox from the names and values of its hash. A field that was never written has its default."""
    found = pairs(fields)
    found[b"changed_at"] = found.get(b"changed_at") or found[b"created_at"]
    sandbox = Sandbox.read(found, seen_at=now, sealer=sealer)
    if not sandbox.working_dir and (known := (sandbox.handle or {}).get("working_dir")):
        return replace(sandbox, working_dir=known)
    return sandbox


def shortened(detail: str) -> str:
    """A detail with its reason, which stands first, and its last lines: at most MOST_DETAIL characters."""
    return head_and_tail(detail, MOST_DETAIL)


def random_text(length: int) -> str:
    """Random letters and digits, of nearly six bits each."""
    return "".join(secrets.choice(_DIGITS) for _ in range(length))


def key_hash(key: str) -> str:
    """The hash under which a hook key is looked up."""
    return sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


class Sandboxes:
    """All sandboxes of all hosts. Every age is measured by Redis' clock, whatever the callers' clocks say."""

    def __init__(self, redis: Redis, scripts: Scripts, limits: SandboxLimits, sealer: Sealer) -> None:
        self._redis = redis
        self._scripts = scripts
        self._sealer = sealer
        self.limits = limits
        self._spans = Spans(*limits.spans)
        self._keep = round(limits.keep_failed_days * 86_400e6)
        self._looked_at = 0  #: how many of those in ERROR, the oldest first, `expire_failed` has looked at

    # the desired state: workers

    def start(
        self,
        spec_id: str,
        sandbox_id: SandboxId | None = None,
        *,
        source: dict[str, Any] | None = None,
        host: str = "",
        gives_way: bool = False,
        owner: str = "",
        start_id: str = "",
    ) -> Sandbox:
        """Ask for a sandbox, once per id; it is STARTING until its agent server responds.

        source: where its files come from. host: the one that has it; empty: any. gives_way: see `agents/places.py`.
        owner: id of the key that starts it. start_id: of the start task that it is for. Waits a little for a
        supervisor, as when the server has just begun. Raises NoSupervisor, TooManySandboxes, TooManyStopped,
        SecretsRefused, and SandboxNotFound of an id that was removed, or of a start task that has ended.
        """
        identity = sandbox_id or SandboxId(minted_text("sandbox"))
        if is_finished():
            return self.get(identity)
        files_key = self._sealer.seal_key(identity, random_text(43))
        deadline = time.monotonic() + _HOST_TIMEOUT
        while True:
            reply = self._scripts.start_sandbox(
                SandboxKeys.root,
                id=identity,
                spec=spec_id,
                most=self.limits.max_sandboxes,
                host_span=self._spans.host,
                most_stopped=self.limits.max_stopped,
                files_key=files_key,
                source=json.dumps(source),
                host=host,
                gives_way=gives_way,
                trace=traces.traceparent(),
                owner=owner,
                start=start_id,
            )
            match reply:
                case StartSandbox.Started(now, fields) | StartSandbox.Exists(now, fields):
                    return self._read(fields, now)
                case StartSandbox.Full(running):
                    raise TooManySandboxes(running, self.limits.max_sandboxes)
                case StartSandbox.Kept(stopped):
                    raise TooManyStopped(stopped, self.limits.max_stopped)
                case "gone":
                    raise SandboxNotFound
                case "no host":
                    _wait_for_a_host(deadline)

    def _read(self, fields: list[bytes], now: Micros) -> Sandbox:
        return read_sandbox(fields, now, self._sealer)

    def require_host(self) -> None:
        """Wait a little for a supervisor, as when the server has just begun. Raises NoSupervisor."""
        deadline = time.monotonic() + _HOST_TIMEOUT
        while not self._scripts.count_hosts(SandboxKeys.root, host_span=self._spans.host):
            _wait_for_a_host(deadline)

    def ask(self, sandbox_id: SandboxId, verb: str, *, wait: float = 0) -> None:
        """Pause, rest, resume or delete, as `_sandbox.lua` has it.

        wait: seconds in which the supervisor must have paused or deleted it; a resume is not waited for. Without, the
        request alone is noted. Raises SandboxNotFound, SandboxRefuses, TooManySandboxes and, of a pause or a deletion
        that takes longer and goes on, NotDoneYet.
        """
        self._ask(sandbox_id, verb)
        if wait and verb == "delete":
            self._wait_for_deletion(sandbox_id, wait)
        elif wait and verb == "pause":
            self._wait_for_pause(sandbox_id, wait)

    def turn_back(self, sandbox_id: SandboxId, back: dict[str, Any]) -> None:
        """Have the supervisor of a running sandbox bring a conversation's files back, and start its processes again.

        back: `id`, of the return; `conversation`; `folder`, as its runtime knows it; `event_id` and `seq`, of the event
        to which it returns; `last` and `events`, as `runtimes.shadow.TurnBack` has them. It is null once that is done;
        after a failure it has `id` and `failed`, a sentence. Raises SandboxNotFound, SandboxRefuses.
        """
        reply = self._scripts.turn_back_sandbox(SandboxKeys.root, id=sandbox_id, back=json.dumps(back))
        match reply:
            case None:
                raise SandboxNotFound
            case TurnBackSandbox.Refused(status):
                raise SandboxRefuses("turn back", status)

    def make_way(self, sandbox: Sandbox) -> None:
        """Pause a sandbox that nobody has used since it was read, unless there is room by now for another one.

        Raises SandboxNotFound, and SandboxRefuses of one that is in use or does not run.
        """
        self._ask(sandbox.id, "yield", sandbox.active_at)

    def _ask(self, sandbox_id: SandboxId, verb: str, used_at: int = 0) -> None:
        reply = self._scripts.ask_sandbox(
            SandboxKeys.root,
            id=sandbox_id,
            verb=verb,
            most=self.limits.max_sandboxes,
            host_span=self._spans.host,
            trace=traces.traceparent(),
            used_at=used_at,
        )
        match reply:
            case None:
                raise SandboxNotFound
            case AskSandbox.Lost(host):
                raise SandboxRefuses(verb, f"on the host {host}, which has its files and does not answer")
            case AskSandbox.Refused(status):
                raise SandboxRefuses(verb, status)
            case AskSandbox.Full(running):
                raise TooManySandboxes(running, self.limits.max_sandboxes)

    def _wait_for_deletion(self, sandbox_id: SandboxId, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (sandbox := self.get_many([sandbox_id])[0]) is not None:
            if time.monotonic() > deadline:
                raise NotDoneYet("deleted", sandbox.detail)
            time.sleep(_POLL)

    def _wait_for_pause(self, sandbox_id: SandboxId, seconds: float) -> None:
        deadline, poll = time.monotonic() + seconds, _FIRST_POLL
        while (sandbox := self.get(sandbox_id)).status != "PAUSED":
            if sandbox.status != "RUNNING":  # it ended, or its host was lost
                raise SandboxRefuses("pause", sandbox.status)
            if sandbox.wanted != "paused":
                raise SandboxRefuses("pause", "being deleted" if sandbox.wanted == "deleted" else "being resumed")
            if time.monotonic() > deadline:
                raise NotDoneYet("paused", sandbox.detail)
            time.sleep(poll)
            poll = min(_GROWTH * poll, _POLL)

    def use(self, sandbox_id: SandboxId) -> Sandbox | None:
        """A sandbox; the call counts as a use, so it is not idle. None for an unknown id. One round trip."""
        reply = self._scripts.use_sandbox(SandboxKeys.root, id=sandbox_id, spans=self._spans)
        return None if reply is None else self._read(reply.fields, reply.at)

    def of_hook_key(self, key: str, conversation_id: str = "", size: int = 0) -> SandboxId | None:
        """The sandbox whose webhooks bear a key; the call counts as a use of it. One round trip.

        conversation_id: the one that the webhook is about, which is compared with its agent soon. size: bytes of the
        webhook's body. Raises SandboxPostedTooMuch, SandboxPostsTooFast: such a body is not to be read.

        The key of a sandbox that is ERROR, being deleted or gone is unknown, and so is that of an earlier start: None.
        """
        most_bytes, most_in_window, window = self.limits.posting
        reply = self._scripts.open_sandbox(
            SandboxKeys.root,
            hash=key_hash(key),
            conversation=conversation_id,
            check_span=CHECK_SPAN,
            brought=size,
            most_bytes=most_bytes,
            most_in_window=most_in_window,
            window=window,
        )
        match reply:
            case None:
                return None
            case "too much":
                raise SandboxPostedTooMuch(self.limits.max_sandbox_bytes)
            case OpenSandbox.TooFast(left):
                raise SandboxPostsTooFast(self.limits.rate_limit_hook_bytes, math.ceil(left / 1e6))
            case OpenSandbox.Opened(identity):
                return SandboxId(identity)

    def of_session_key(self, key: str) -> SandboxId | None:
        """The sandbox whose agent server a key opens; None as `of_hook_key`, and no use is noted. One round trip."""
        stored = self._redis.hget(SandboxKeys.by_key, f"session {key_hash(key)}")
        return SandboxId(stored.decode()) if stored else None

    def settled_start(self, sandbox_id: SandboxId) -> int:
        """The start after which the conversations of a sandbox were settled last; 0: never."""
        stored = self._redis.hget(SandboxKeys.box(sandbox_id), "settled")
        return int(stored or 0)

    def note_settled(self, sandbox_id: SandboxId, start: int) -> None:
        """Note that the conversations of a sandbox are settled after a start of its processes."""
        self._scripts.keep_fields(SandboxKeys.box(sandbox_id), fields=SandboxUpkeep.fields_of(settled=start))

    # reading

    def get(self, sandbox_id: SandboxId) -> Sandbox:
        """Raises SandboxNotFound."""
        [sandbox] = self.get_many([sandbox_id])
        if sandbox is None:
            raise SandboxNotFound
        return sandbox

    def get_many(self, sandbox_ids: Sequence[SandboxId]) -> list[Sandbox | None]:
        """Sandboxes in the order of the ids, None for an unknown id. One round trip."""
        if not sandbox_ids:
            return []
        reply = self._scripts.read_sandboxes(SandboxKeys.root, spans=self._spans, host="", ids=sandbox_ids)
        return [self._read(fields, reply.at) if b"status" in fields[::2] else None for fields in reply.found]

    def listed(self, sandbox_ids: Sequence[SandboxId]) -> list[Sandbox | None]:
        """As `get_many`, but None also for those that lists have no longer, as they are being deleted."""
        return [None if sandbox is None or sandbox.leaving else sandbox for sandbox in self.get_many(sandbox_ids)]

    def owned_by(self, owner: str) -> tuple[list[SandboxId], list[SandboxId]]:
        """The bound sandboxes that a key of that id has started: the running and the paused ones. One round trip."""
        owned = self._scripts.own_sandboxes(SandboxKeys.root, owner=owner)
        return [SandboxId(one) for one in owned.running], [SandboxId(one) for one in owned.paused]

    def search(
        self, *, status: str | None, spec_id: str | None, limit: int, start: tuple[Micros, SandboxId] | None
    ) -> tuple[list[Sandbox], tuple[Micros, SandboxId] | None]:
        """One page, newest first, without those that are being deleted, and the next page's cursor. One round trip.

        The cursor is time and id of the first sandbox there.
        """
        first_at, first_id = start or (None, "")
        reply = self._scripts.page_sandboxes(
            SandboxKeys.root,
            spans=self._spans,
            status=status or "",
            spec=spec_id or "",
            most=limit + 1,
            first_at=first_at,
            first_id=first_id,
        )
        page = [self._read(fields, reply.at) for fields in reply.found]
        return page[:limit], (page[limit].created_at, page[limit].id) if len(page) > limit else None

    def places_taken(self) -> dict[str, int]:
        """The number of sandboxes that run, start, or are about to stop, and the most that may. One round trip."""
        with self._redis.pipeline(transaction=False) as pipe:
            for status in ("STARTING", "RUNNING"):
                pipe.zcard(f"{SandboxKeys.created}:{status}")
            return {"running": sum(pipe.execute()), "most": self.limits.max_sandboxes}

    def log(self, sandbox_id: SandboxId, tail: int) -> str:
        """The last lines that a sandbox printed. Raises SandboxNotFound, HostSilent."""
        sandbox = self.get(sandbox_id)
        if sandbox.status == "ERROR" or sandbox.handle is None:
            kept = self._redis.get(SandboxKeys.log(sandbox_id))
            return last_lines((kept or b"").decode(), tail)
        return answered(self._redis, _LOG_TIMEOUT, "log", sandbox_id, tail=tail).decode()

    # the observed state: supervisors

    def beat(self, host: str, supervisor: str) -> bool:
        """Write a supervisor's heartbeat; False if another one holds the host's lease. Marks lost sandboxes MISSING."""
        reply = self._scripts.beat_host(SandboxKeys.root, host=host, supervisor=supervisor, spans=self._spans)
        return reply == "alive"

    def release(self, host: str, supervisor: str) -> None:
        """Release a host, if this supervisor holds its lease: another one may take it at once."""
        self._scripts.release_host(SandboxKeys.root, host=host, supervisor=supervisor)

    def rename_host(self, host: str, name: str) -> int:
        """Give the sandboxes of a host to another name, and drop its lease; their number. No supervisor may run."""
        return self._scripts.rename_host(SandboxKeys.root, host=host, name=name)

    def claim(self, host: str) -> SandboxId | None:
        """Assign the sandbox that has waited longest to a host."""
        claimed = self._scripts.claim_sandbox(SandboxKeys.root, host=host, most=self.limits.max_sandboxes)
        return SandboxId(claimed) if claimed else None

    def of_host(self, host: str) -> list[Sandbox]:
        """Every sandbox that a host holds. One round trip."""
        return self.seen_on(host)[1]

    def seen_on(self, host: str) -> tuple[Micros, list[Sandbox]]:
        """The time by Redis' clock, and every sandbox that a host holds then. One round trip."""
        reply = self._scripts.read_sandboxes(SandboxKeys.root, spans=self._spans, host=host, ids=())
        return reply.at, [one for fields in reply.found if (one := self._read_of_host(fields, reply.at, host))]

    def _read_of_host(self, fields: list[bytes], now: Micros, host: str) -> Sandbox | None:
        """A sandbox; None of an unknown one, and of one whose record cannot be read: the others do not wait for it."""
        if b"status" not in fields[::2]:
            return None
        try:
            return self._read(fields, now)
        except UNREADABLE as error:
            identity = pairs(fields).get(b"id", b"")
            _log.error("a sandbox of host %s cannot be read, and is left alone: %r: %r", host, identity, error)
            return None

    def report(
        self, sandbox_id: SandboxId, host: str, supervisor: str, status: str = "", *, log: str = "", **fields: Any
    ) -> bool:
        """Write the observed state; status "GONE" removes the record, log has the last lines of ended processes.

        False if the status cannot follow, if the sandbox is not that host's, or if another one holds the host's lease.
        """
        if "detail" in fields:
            fields["detail"] = shortened(fields["detail"])
        reply = self._scripts.report_sandbox(
            SandboxKeys.root,
            id=sandbox_id,
            host=host,
            supervisor=supervisor,
            status=status,
            log=_last(log),
            fields=Sandbox.fields_of(**fields),
        )
        return reply == "noted"

    def begin(
        self,
        sandbox_id: SandboxId,
        host: str,
        supervisor: str,
        runtime: str,
        folder: str = "",
        hidden: Iterable[str] = (),
    ) -> str | None:
        """Number a start of processes, and make its two keys. Returns the hook key.

        The caller must give the hook key to the processes; here it is looked up by its hash, and kept sealed for what
        is masked alone. A caller that is killed before leaves a number that no process has, and the next one begins
        again. folder: id of the host's folder that has the sandbox's files. hidden: the other secrets of the processes'
        environment.
        None if the sandbox is not to run, not that host's, or if another supervisor holds the lease of the host.
        Raises SecretsRefused.
        """
        hook_key, session_key = random_text(43), random_text(43)
        reply = self._scripts.begin_sandbox(
            SandboxKeys.root,
            id=sandbox_id,
            host=host,
            supervisor=supervisor,
            agent_key=self._sealer.seal_key(sandbox_id, session_key),
            hook_hash=key_hash(hook_key),
            runtime=runtime,
            session_hash=key_hash(session_key),
            folder=folder,
            hidden=self._sealer.seal_key(sandbox_id, json.dumps([hook_key, *hidden])),
        )
        return hook_key if reply == "begun" else None

    def stopped(self, sandbox: Sandbox, supervisor: str, detail: str, *, log: str = "", resumes: bool = False) -> bool:
        """Note that a sandbox's processes have ended and its files are kept: it is PAUSED until it is used.

        sandbox: as its supervisor saw it; where a client has asked for a resume since, it is STARTING. log: its last
        lines. resumes: RESUME_SANDBOXES starts it again. False as `report`.
        """
        reply = self._scripts.stop_sandbox(
            SandboxKeys.root,
            id=sandbox.id,
            host=sandbox.host,
            supervisor=supervisor,
            seen=sandbox.wanted,
            detail=shortened(detail),
            log=_last(log),
            resumes=resumes,
        )
        return reply == "noted"

    def expire_failed(self) -> None:
        """Delete sandboxes that have been ERROR for longer than `SandboxLimits.keep_failed_days`.

        Each call looks at 100 of those in ERROR, and goes on where the last one of this process ended.
        """
        if self._keep:
            self._looked_at = self._scripts.expire_sandboxes(SandboxKeys.root, kept=self._keep, passed=self._looked_at)

    def removals(self, host: str, folder: str = "") -> list[tuple[str, SandboxId]]:
        """Sandboxes that were deleted while their host was lost, each after the name of its runtime: those whose files
        are in that folder of the host, or in none."""
        found = self._redis.smembers(SandboxKeys.removals(host))
        words = [member.decode(errors="surrogateescape").split(" ", 2) for member in found]
        parts = [(*one, "", "")[:3] for one in words]
        return [(runtime, SandboxId(identity)) for runtime, identity, of in parts if of in ("", folder)]

    def removed(self, host: str, runtime: str, sandbox_id: SandboxId, folder: str = "") -> None:
        """Note that a host has removed one of its `removals`, or gives it up."""
        words = f"{runtime} {sandbox_id}" if sandbox_id else runtime
        members = [words, f"{words} {folder}"] if folder else [words]
        self._redis.srem(SandboxKeys.removals(host), *(one.encode(errors="surrogateescape") for one in members))

    def send_log(self, reply: str, text: str) -> None:
        """Send a log to the worker that asked for it."""
        answer(self._redis, reply, text.encode())


def _wait_for_a_host(deadline: float) -> None:
    if time.monotonic() > deadline:
        raise NoSupervisor
    time.sleep(_POLL)


def _last(log: str) -> str:
    """The end of a log, in MOST_LOG_BYTES, below a line that counts what is missing."""
    raw = log.encode()
    if len(raw) <= MOST_LOG_BYTES:
        return log
    end = raw[-MOST_LOG_BYTES + 100 :]
    end = end[end.find(b"\n") + 1 :]
    missing = raw.removesuffix(end).count(b"\n")
    return last_lines(end.decode(errors="ignore"), len(end) + 1, missing=missing or None)


class Places:
    """The places of all sandboxes. A sandbox that does not exist has no bound: nothing comes of what starts there."""

    def __init__(self, redis: Redis, scripts: Scripts, most: int) -> None:
        self._redis = redis
        self._scripts = scripts
        self._most = most

    def take(self, sandbox_id: str, conversation_id: ConversationId, *, made: bool, start_id: str = "") -> bool:
        """Take a conversation's place; True if this call took it. One round trip. Raises TooManyConversations.

        made: the conversation is made now, and has the place until its deletion; otherwise it has it for an hour.
        start_id: of the start task that makes it; one that has ended takes none.
        """
        reply = self._scripts.take_place(
            SandboxKeys.root,
            sandbox=sandbox_id,
            conversation=conversation_id,
            most=self._most,
            made=made,
            start=start_id,
        )
        if isinstance(reply, TakePlace.Full):
            raise TooManyConversations(reply.places, self._most)
        return reply == "taken"

    def known(self, sandbox_id: SandboxId) -> tuple[set[str], set[str]]:
        """Ids of the conversations in a sandbox, also of those that start there; and of those that were deleted in it.

        One round trip. The settings bound the first, MOST_TOMBSTONES the second.
        """
        with self._redis.pipeline(transaction=False) as pipe:
            pipe.zrange(SandboxKeys.places(sandbox_id), 0, -1)
            pipe.zrange(SandboxKeys.gone(sandbox_id), 0, -1)
            present, gone = ({one.decode() for one in ids} for ids in pipe.execute())
        return present, gone - present

    def is_deleted(self, sandbox_id: SandboxId, conversation_id: ConversationId) -> bool:
        """Whether a sandbox has a tombstone of a conversation. One round trip."""
        return self._redis.zscore(SandboxKeys.gone(sandbox_id), conversation_id) is not None

    def leave(self, sandbox_id: str, conversation_id: ConversationId, *, made: bool = False) -> None:
        """Free the place of a conversation that is not made. made: it counts as such, and is another sandbox's."""
        self._scripts.leave_place(SandboxKeys.root, sandbox=sandbox_id, conversation=conversation_id, made=made)
