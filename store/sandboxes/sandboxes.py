"""Sandboxes with their desired and observed states. All sandboxes share a slot.

Workers write the desired state and supervisors the observed one, each with a script. `_sandbox.lua` has the state
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
from store.record import BESIDE, HashRecord, pairs
from store.scripts import Scripts
from store.scripts.calls import AskSandbox, OpenSandbox, Spans, StartSandbox, TakePlace, TurnBackSandbox
from telemetry import traces

_log = logging.getLogger(__name__)

SandboxId = NewType("SandboxId", str)

#: Maximum delay of a restart after a crash, in seconds.
LONGEST_RESTART = 30.0

#: Maximum length of the detail, in characters.
MOST_DETAIL = 8 * 1024

_NEVER = Micros(0)

_DIGITS = string.digits + string.ascii_letters


#: Seconds between two polls. A poll for a pause begins with the second number, and grows by the third.
_POLL, _FIRST_POLL, _GROWTH = 0.02, 0.003, 1.25

#: Timeout for a supervisor's log, and for a live supervisor at a start, in seconds.
_LOG_TIMEOUT, _HOST_TIMEOUT = 3.0, 3.0

#: µs from a webhook, or a command to the agent, to the comparison (`checks.py`).
CHECK_SPAN = 3_000_000

#: Maximum size of the stored log of a sandbox without processes, in bytes.
MOST_LOG_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox(HashRecord):
    """A sandbox as it was read. Times are in µs by Redis' clock. The handle is its runtime's.

    A sandbox without a handle has no processes, but has files if it was started before.
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
    start: int = 0  #: number of its last start of processes; 0 before the first
    created_at: Micros
    starting_at: Micros
    changed_at: Micros  #: time of its last change of status
    active_at: Micros
    runtime: str = ""  #: name of the runtime that has its files; empty before its first start
    folder: str = ""  #: id of the host's folder that has its files; empty: none
    working_dir: str = ""  #: absolute path of its agent's folder, as `pwd` last printed it
    linked_dir: str = ""  #: another path of that folder, if it contains a symlink; empty: none
    handle: dict[str, Any] | None = None
    agent_url: str
    urls: list[dict[str, object]] = field(default_factory=list)
    detail: str  #: at most 8 KiB
    disk_bytes: int | None = None  #: size of its files, as last measured
    memory_bytes: int | None = None  #: memory of its processes, as last measured while it ran
    cpu_cores: float | None = None  #: CPU use of its processes, likewise
    crashes: list[Micros] = field(default_factory=list)  #: times of its crashes, as far as `restarts` counts them
    start_after: Micros = _NEVER  #: time before which it does not start again: the backoff after a crash
    resumes: bool = False  #: it ran when its server stopped, and RESUME_SANDBOXES starts it again
    gives_way: bool = False  #: it may be paused for others while it is idle; see `agents/places.py`
    warm: str = ""  #: version of its spec until its first use, see `start_tasks.py`; empty: it is bound
    source: dict[str, Any] | None = None  #: source of the files for its first start; null: none
    back: dict[str, Any] | None = None  #: pending return of a conversation's files, see `turn_back`
    owner: str = ""  #: id of the key that started it; empty: none
    leaving: bool = False  #: it is being deleted: lists omit it, and nobody gets its key
    strays: dict[str, object] | None = None  #: `count` and `newest` of conversations that only its agent server has
    adopted: str = ""  #: id of the start task that adopted it from its key's workspace; empty: none
    trace: str = ""  #: W3C traceparent of the request for its start; empty: none, or the start has ended
    seen_at: Micros = field(compare=False, metadata=BESIDE)  #: time of the reading, to which ages are measured
    sealer: Sealer = field(repr=False, compare=False, metadata=BESIDE)

    @property
    def is_delayed(self) -> bool:
        """Return whether its next start waits for the end of a backoff.

        A clock that stepped back does not prolong it.
        """
        return 0 < self.start_after - self.seen_at <= LONGEST_RESTART * 1e6

    @property
    def session_api_key(self) -> str:
        """Return the key for its agent server, which clients and this server use. Each start has a new one.

        Raises KeyUnreadable.
        """
        return self.sealer.open_key(self.id, self.agent_key)

    @property
    def files_key(self) -> str:
        """Return the key with which its agent server seals what it writes to files. It never changes.

        Raises KeyUnreadable.
        """
        return self.sealer.open_key(self.id, self.sealed_files_key)

    @property
    def hidden(self) -> list[str]:
        """Return the secrets of its processes, which are masked in their texts. Raises KeyUnreadable."""
        more = json.loads(self.sealer.open_key(self.id, self.sealed_hidden) or "[]")
        return [self.session_api_key, self.files_key, *more]

    @property
    def shown_key(self) -> str | None:
        """Return the session key for clients; None unless the sandbox is RUNNING, bound, and the key can be read.

        None also while it is being deleted.
        """
        if self.status != "RUNNING" or self.warm or self.leaving:
            return None
        try:
            return self.session_api_key
        except KeyUnreadable:
            return None

    @property
    def isolated_by(self) -> dict[str, object] | None:
        """Return the isolation of its processes as reported by its runtime; None without processes."""
        return (self.handle or {}).get("isolation")

    @property
    def egress_url(self) -> str:
        """Return the URL of its egress proxy as seen from inside; empty without a proxy or processes."""
        return str((self.handle or {}).get("egress_url", ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxUpkeep(HashRecord):
    """Fields of a sandbox that no list shows."""

    key = Sandbox.key
    session_hash: str = ""  #: SHA-256 of its session key
    settled: int = 0  #: the start after which its conversations were settled
    posted_bytes: int = 0  #: bytes posted by its webhooks
    window_bytes: int = 0  #: bytes posted in the window of the rate limit
    window_ends: Micros = _NEVER


def read_sandbox(fields: list[bytes], now: Micros, sealer: Sealer) -> Sandbox:
    """Read a sandbox from the names and values of its hash. A missing field has its default."""
    found = pairs(fields)
    found[b"changed_at"] = found.get(b"changed_at") or found[b"created_at"]
    sandbox = Sandbox.read(found, seen_at=now, sealer=sealer)
    if not sandbox.working_dir and (known := (sandbox.handle or {}).get("working_dir")):
        return replace(sandbox, working_dir=known)
    return sandbox


def shortened(detail: str) -> str:
    """Truncate a detail to MOST_DETAIL characters: its beginning, which has the reason, and its last lines."""
    return head_and_tail(detail, MOST_DETAIL)


def random_text(length: int) -> str:
    """Return random letters and digits, of nearly six bits each."""
    return "".join(secrets.choice(_DIGITS) for _ in range(length))


def key_hash(key: str) -> str:
    """Return the hash under which a key is looked up."""
    return sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


class Sandboxes:
    """All sandboxes of all hosts. Redis' clock measures every age, whatever the callers' clocks say."""

    def __init__(self, redis: Redis, scripts: Scripts, limits: SandboxLimits, sealer: Sealer) -> None:
        self._redis = redis
        self._scripts = scripts
        self._sealer = sealer
        self.limits = limits
        self._spans = Spans(*limits.spans)
        self._keep = round(limits.keep_failed_days * 86_400e6)
        self._looked_at = 0  #: number of ERROR sandboxes, the oldest first, that `expire_failed` has checked

    # desired state: called by workers

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
        """Request a sandbox, once per id. It is STARTING until its agent server responds.

        source: of its files. host: to run on; empty: any. gives_way: see `agents/places.py`. owner: id of the key that
        starts it. start_id: start task that it is for. Waits briefly for a supervisor, because the server may have just
        started.

        Raises NoSupervisor, TooManySandboxes, TooManyStopped, SecretsRefused, and SandboxNotFound for a deleted id or
        an ended start task.
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
        """Wait briefly for a supervisor, because the server may have just started. Raises NoSupervisor."""
        deadline = time.monotonic() + _HOST_TIMEOUT
        while not self._scripts.count_hosts(SandboxKeys.root, host_span=self._spans.host):
            _wait_for_a_host(deadline)

    def ask(self, sandbox_id: SandboxId, verb: str, *, wait: float = 0) -> None:
        """Pause, rest, resume or delete a sandbox, as defined in `_sandbox.lua`.

        wait: seconds in which the supervisor must have paused or deleted it; 0, or a resume: do not wait. Raises
        SandboxNotFound, SandboxRefuses, TooManySandboxes, and NotDoneYet for a pause or a deletion that takes longer.
        """
        self._ask(sandbox_id, verb)
        if wait and verb == "delete":
            self._wait_for_deletion(sandbox_id, wait)
        elif wait and verb == "pause":
            self._wait_for_pause(sandbox_id, wait)

    def turn_back(self, sandbox_id: SandboxId, back: dict[str, Any]) -> None:
        """Request that a running sandbox restores a conversation's files and starts its processes again.

        back: `id`, of the return; `conversation`; `folder`, as its runtime knows it; `event_id` and `seq`, of the event
        to which it returns; `last` and `events`, as in `runtimes.shadow.TurnBack`. The supervisor sets it to null when
        it is done. After a failure it has `id` and `failed`, a sentence. Raises SandboxNotFound, SandboxRefuses.
        """
        reply = self._scripts.turn_back_sandbox(SandboxKeys.root, id=sandbox_id, back=json.dumps(back))
        match reply:
            case None:
                raise SandboxNotFound
            case TurnBackSandbox.Refused(status):
                raise SandboxRefuses("turn back", status)

    def make_way(self, sandbox: Sandbox) -> None:
        """Pause a sandbox that is unused since it was read, unless there is room for another one by now.

        Raises SandboxNotFound, and SandboxRefuses for a sandbox that is in use or does not run.
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
        """Return a sandbox, None for an unknown id. The call counts as a use, which ends its idleness.

        One round trip.
        """
        reply = self._scripts.use_sandbox(SandboxKeys.root, id=sandbox_id, spans=self._spans)
        return None if reply is None else self._read(reply.fields, reply.at)

    def of_hook_key(self, key: str, conversation_id: str = "", size: int = 0) -> SandboxId | None:
        """Return the sandbox whose webhooks bear a key. The call counts as a use of it. One round trip.

        None for an unknown key: also the key of an earlier start, or of a sandbox that is ERROR, being deleted or gone.
        conversation_id: of the webhook; it becomes due for comparison with its agent. size: of the webhook's body, in
        bytes. Raises SandboxPostedTooMuch, SandboxPostsTooFast; the caller must not read the body then.
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
        """Return the sandbox whose agent server a key opens; None as `of_hook_key`. Not a use of it. One round trip."""
        stored = self._redis.hget(SandboxKeys.by_key, f"session {key_hash(key)}")
        return SandboxId(stored.decode()) if stored else None

    def settled_start(self, sandbox_id: SandboxId) -> int:
        """Return the start after which the conversations of a sandbox were last settled; 0: never."""
        stored = self._redis.hget(SandboxKeys.box(sandbox_id), "settled")
        return int(stored or 0)

    def note_settled(self, sandbox_id: SandboxId, start: int) -> None:
        """Record that the conversations of a sandbox are settled after a start of its processes."""
        self._scripts.keep_fields(SandboxKeys.box(sandbox_id), fields=SandboxUpkeep.fields_of(settled=start))

    # reading

    def get(self, sandbox_id: SandboxId) -> Sandbox:
        """Return a sandbox. Raises SandboxNotFound."""
        [sandbox] = self.get_many([sandbox_id])
        if sandbox is None:
            raise SandboxNotFound
        return sandbox

    def get_many(self, sandbox_ids: Sequence[SandboxId]) -> list[Sandbox | None]:
        """Return sandboxes in the order of the ids, None for an unknown id. One round trip."""
        if not sandbox_ids:
            return []
        reply = self._scripts.read_sandboxes(SandboxKeys.root, spans=self._spans, host="", ids=sandbox_ids)
        return [self._read(fields, reply.at) if b"status" in fields[::2] else None for fields in reply.found]

    def listed(self, sandbox_ids: Sequence[SandboxId]) -> list[Sandbox | None]:
        """Return sandboxes as `get_many`, but None also for those that are being deleted."""
        return [None if sandbox is None or sandbox.leaving else sandbox for sandbox in self.get_many(sandbox_ids)]

    def owned_by(self, owner: str) -> tuple[list[SandboxId], list[SandboxId]]:
        """Return the bound sandboxes that a key has started: the running and the paused ones. One round trip."""
        owned = self._scripts.own_sandboxes(SandboxKeys.root, owner=owner)
        return [SandboxId(one) for one in owned.running], [SandboxId(one) for one in owned.paused]

    def search(
        self, *, status: str | None, spec_id: str | None, limit: int, start: tuple[Micros, SandboxId] | None
    ) -> tuple[list[Sandbox], tuple[Micros, SandboxId] | None]:
        """Return a page, the newest first, and the next page's cursor: time and id of its first sandbox.

        One round trip. Sandboxes that are being deleted are omitted.
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
        """Return the number of sandboxes that run, start or are about to stop, and their maximum. One round trip."""
        with self._redis.pipeline(transaction=False) as pipe:
            for status in ("STARTING", "RUNNING"):
                pipe.zcard(f"{SandboxKeys.created}:{status}")
            return {"running": sum(pipe.execute()), "most": self.limits.max_sandboxes}

    def log(self, sandbox_id: SandboxId, tail: int) -> str:
        """Return the last lines that a sandbox printed. Raises SandboxNotFound, HostSilent."""
        sandbox = self.get(sandbox_id)
        if sandbox.status == "ERROR" or sandbox.handle is None:
            kept = self._redis.get(SandboxKeys.log(sandbox_id))
            return last_lines((kept or b"").decode(), tail)
        return answered(self._redis, _LOG_TIMEOUT, "log", sandbox_id, tail=tail).decode()

    # observed state: called by supervisors

    def beat(self, host: str, supervisor: str) -> bool:
        """Record a supervisor's heartbeat; False if another one holds the host's lease.

        Marks lost sandboxes MISSING.
        """
        reply = self._scripts.beat_host(SandboxKeys.root, host=host, supervisor=supervisor, spans=self._spans)
        return reply == "alive"

    def release(self, host: str, supervisor: str) -> None:
        """Release the lease of a host if this supervisor holds it, so that another one may take it at once."""
        self._scripts.release_host(SandboxKeys.root, host=host, supervisor=supervisor)

    def rename_host(self, host: str, name: str) -> int:
        """Move the sandboxes of a host to another name, drop its lease, and return their number.

        No supervisor may run.
        """
        return self._scripts.rename_host(SandboxKeys.root, host=host, name=name)

    def claim(self, host: str) -> SandboxId | None:
        """Assign the sandbox that has waited longest to a host."""
        claimed = self._scripts.claim_sandbox(SandboxKeys.root, host=host, most=self.limits.max_sandboxes)
        return SandboxId(claimed) if claimed else None

    def of_host(self, host: str) -> list[Sandbox]:
        """Return every sandbox of a host. One round trip."""
        return self.seen_on(host)[1]

    def seen_on(self, host: str) -> tuple[Micros, list[Sandbox]]:
        """Return the time of Redis' clock, and every sandbox of a host. One round trip."""
        reply = self._scripts.read_sandboxes(SandboxKeys.root, spans=self._spans, host=host, ids=())
        return reply.at, [one for fields in reply.found if (one := self._read_of_host(fields, reply.at, host))]

    def _read_of_host(self, fields: list[bytes], now: Micros, host: str) -> Sandbox | None:
        """Read a sandbox; None if it is unknown, or its record is corrupt: the other sandboxes must not wait for it."""
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
        """Write the observed state. Status "GONE" removes the record. log: last lines of ended processes.

        False if the status cannot follow, the sandbox is not that host's, or another supervisor holds the host's lease.
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
        """Number a start of processes, make its two keys, and return the hook key.

        The caller must give the hook key to the processes: Redis has its hash for look-ups, and the sealed key for
        masking. If the caller is killed before, the next start gets a new number. folder: id of the host's folder that
        has the sandbox's files. hidden: other secrets in the processes' environment.

        None if the sandbox is not to run, is not that host's, or another supervisor holds the host's lease. Raises
        SecretsRefused.
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
        """Record that a sandbox's processes have ended and its files are kept. It is PAUSED until it is used.

        sandbox: as its supervisor saw it; if a client has asked for a resume since, it is STARTING. log: its last
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

        Each call checks 100 of them, and continues where the last call of this process ended.
        """
        if self._keep:
            self._looked_at = self._scripts.expire_sandboxes(SandboxKeys.root, kept=self._keep, passed=self._looked_at)

    def removals(self, host: str, folder: str = "") -> list[tuple[str, SandboxId]]:
        """Return the sandboxes that were deleted while their host was lost, each with its runtime's name.

        folder: only sandboxes with files in that folder of the host, or without files.
        """
        found = self._redis.smembers(SandboxKeys.removals(host))
        words = [member.decode(errors="surrogateescape").split(" ", 2) for member in found]
        parts = [(*one, "", "")[:3] for one in words]
        return [(runtime, SandboxId(identity)) for runtime, identity, of in parts if of in ("", folder)]

    def removed(self, host: str, runtime: str, sandbox_id: SandboxId, folder: str = "") -> None:
        """Record that a host has removed one of its `removals`, or has given up."""
        words = f"{runtime} {sandbox_id}" if sandbox_id else runtime
        members = [words, f"{words} {folder}"] if folder else [words]
        self._redis.srem(SandboxKeys.removals(host), *(one.encode(errors="surrogateescape") for one in members))

    def send_log(self, reply: str, text: str) -> None:
        """Send a log to the worker that requested it."""
        answer(self._redis, reply, text.encode())


def _wait_for_a_host(deadline: float) -> None:
    if time.monotonic() > deadline:
        raise NoSupervisor
    time.sleep(_POLL)


def _last(log: str) -> str:
    """Truncate a log to its last MOST_LOG_BYTES, below a line with the number of missing bytes."""
    raw = log.encode()
    if len(raw) <= MOST_LOG_BYTES:
        return log
    end = raw[-MOST_LOG_BYTES + 100 :]
    end = end[end.find(b"\n") + 1 :]
    missing = raw.removesuffix(end).count(b"\n")
    return last_lines(end.decode(errors="ignore"), len(end) + 1, missing=missing or None)


class Places:
    """The places of all sandboxes. A sandbox that does not exist has no limit, as nothing can start there."""

    def __init__(self, redis: Redis, scripts: Scripts, most: int) -> None:
        self._redis = redis
        self._scripts = scripts
        self._most = most

    def take(self, sandbox_id: str, conversation_id: ConversationId, *, made: bool, start_id: str = "") -> bool:
        """Take a conversation's place; True if this call took it. One round trip. Raises TooManyConversations.

        made: the conversation is created now and keeps the place until its deletion; otherwise the place expires after
        an hour. start_id: start task that makes it; an ended start task takes no place.
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
        """Return the ids of conversations in a sandbox, including those that start there, and of those deleted in it.

        One round trip. The settings limit the first set, MOST_TOMBSTONES the second.
        """
        with self._redis.pipeline(transaction=False) as pipe:
            pipe.zrange(SandboxKeys.places(sandbox_id), 0, -1)
            pipe.zrange(SandboxKeys.gone(sandbox_id), 0, -1)
            present, gone = ({one.decode() for one in ids} for ids in pipe.execute())
        return present, gone - present

    def is_deleted(self, sandbox_id: SandboxId, conversation_id: ConversationId) -> bool:
        """Return whether a sandbox has a tombstone of a conversation. One round trip."""
        return self._redis.zscore(SandboxKeys.gone(sandbox_id), conversation_id) is not None

    def leave(self, sandbox_id: str, conversation_id: ConversationId, *, made: bool = False) -> None:
        """Free a conversation's place unless the conversation exists. made: it exists, in another sandbox."""
        self._scripts.leave_place(SandboxKeys.root, sandbox=sandbox_id, conversation=conversation_id, made=made)
