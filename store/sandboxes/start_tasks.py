"""Start tasks of app conversations: they outlive their request, and a driver with a lease brings each to its end.

A finished start task is forgotten after START_TASK_DAYS. Beside one of a client's own agent lies the sealed body, while
it is unfinished.

A client may end a start until it is READY (`end`, `end_of`): it is ERROR then, as any other that failed. Its driver may
be between two steps, wherever it is killed or stopped: so a supervisor first bars the start task (`bury`) from making a
conversation, taking a place, a warm sandbox or one of its own, and removes what is there afterwards.

The body of a request that starts an agent of its own holds the key of its model: it is sealed, and never shown. It is
kept twice: with the start task until that is finished, and with the conversation until its
deletion, for a later start at an agent server that has forgotten the conversation. The start task's is an object of
`body`, as the client sent it, and `headers`, those that the agent server gets with it. The conversation's is the body
without `initial_message`, which is sent once, and without `secrets`, which the conversation has.
"""

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple
from uuid import uuid4

from core.access import Joiner
from core.wire import ConversationId, Micros
from settings.limits import SandboxLimits
from store.errors import (
    UNREADABLE,
    ConversationNotFound,
    SecretsRefused,
    StartIsReady,
    StartTaskNotFound,
    StoreFull,
    TooManyStarts,
)
from store.keys import ConversationKeys, SandboxKeys, StartKeys, claimed_key
from store.link.attempts import is_finished, minted, minted_text
from store.link.commands import Redis
from store.link.secrets import Sealer
from store.record import Record, pairs
from store.sandboxes.sandboxes import Places, Sandboxes, SandboxId, random_text
from store.scripts import Scripts
from store.scripts.calls import CreateStartTask
from telemetry import traces
from telemetry.meter import Meter

_log = logging.getLogger(__name__)

#: members of a body that a later start does not repeat
_ONCE = ("initial_message", "secrets")


#: the statuses in which a start task is finished, for good. Source: the app-server wire
FINISHED = ("READY", "ERROR")

#: seconds after which another driver may claim a start task: an unfinished one (its lease), a failed one to clear away
LEASE, CLEARING = 5.0, 30.0

#: seconds after which the first of those that wait for a place is tried again
_PLACE_POLL = 0.5

#: how often an unforeseen error may end the drive of a start task
MOST_ATTEMPTS = 3

_NEVER_ENDED = f"An unforeseen error ended each of {MOST_ATTEMPTS} attempts: see the supervisor's log"
_UNREAD = "Its record cannot be read: see the supervisor's log"
_FORGOTTEN = "No supervisor runs that could go on with it"

#: detail of one that a client has ended
ENDED = "Ended by a DELETE"

_NO_JOINER = Joiner("")

#: seconds for which a driver, or the repeat of a request, may be late
_LATE = 86_400


class StartBodies:
    """The sealed bodies of conversations."""

    def __init__(self, redis: Redis, sealer: Sealer) -> None:
        self._redis = redis
        self._sealer = sealer

    def sealed(self, conversation_id: ConversationId, body: Mapping[str, object]) -> bytes:
        """What a conversation keeps of the body that starts its agent. Raises SecretsRefused."""
        kept = {name: value for name, value in body.items() if name not in _ONCE}
        return self._sealer.seal_body(conversation_id, kept)

    def of(self, conversation_id: ConversationId) -> Mapping[str, object] | None:
        """The body that started the agent of a conversation; None where it brought none. Raises SecretsRefused."""
        sealed = self._redis.get(ConversationKeys(conversation_id).start)
        return self._sealer.open_body(conversation_id, sealed) if sealed else None


class Failure(NamedTuple):
    """What a request gets that waited for a start task: an HTTP status, a detail of JSON, whether it may try again."""

    status: int
    detail: Any
    is_passing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTask(Record):
    """One start task. Times in µs by Redis' clock."""

    key = StartKeys.task("ID")
    id: str
    status: str
    detail: str
    conversation_id: ConversationId  #: of the conversation that it makes
    sandbox_id: str
    own_sandbox: bool  #: the sandbox was started for this, and ends with its failure
    agent_server_url: str
    request: dict[str, Any]  #: without its secrets
    attempts: int = 0  #: how often an unforeseen error ended its drive
    created_at: Micros
    updated_at: Micros
    failure: Failure | None = None  #: what a request gets that waited for an ERROR
    waits: int = 0  #: how often it was put off, as its sandbox could not be reached
    trace: str = ""  #: W3C traceparent of its request; empty where that was not traced
    owner: str = ""  #: id of the key that asked for it, whose the sandbox is that is started for it
    joiner: Joiner = _NO_JOINER  #: that key, as it was when it asked: name, address, and whether it joins any sandbox
    waiting_at: Micros | None = None  #: since when it waits for a place; only while it does
    is_ended: Annotated[bool, "ended"] = False  #: a client has ended it
    failed_in: str = ""  #: of an ERROR: the status before

    @property
    def waits_for_place(self) -> bool:
        """Whether MAX_SANDBOXES run, so that it goes on when a place becomes free."""
        return self.waiting_at is not None

    @property
    def app_conversation_id(self) -> ConversationId | None:
        """The conversation that has come to be; None before READY."""
        return self.conversation_id if self.status == "READY" else None


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTaskUpkeep(Record):
    """Fields of a start task that its driver and the scripts alone use."""

    key = StartTask.key
    echo: Mapping[str, object]  #: the part of the request that clients see
    secrets: dict[str, str] | None = None  #: sealed; only while it is unfinished
    lease: str = ""  #: id of the last one
    parent_id: str = ""  #: of the conversation that its own will be a child of
    asked: str = ""  #: id of the request, where it was made once for its conversation


class StartTasks:
    """All start tasks. Leases and due times are decided by Redis' clock, never by the callers' clocks."""

    def __init__(
        self,
        redis: Redis,
        scripts: Scripts,
        sealer: Sealer,
        sandboxes: Sandboxes,
        places: Places,
        meter: Meter,
    ) -> None:
        self._redis = redis
        self._scripts = scripts
        self._sealer = sealer
        self._sandboxes = sandboxes
        self._places = places
        self._meter = meter
        self.bodies = StartBodies(redis, sealer)
        #: µs without a supervisor after which a read fails a start task
        self._span = in_micros(sandboxes.limits.sandbox_start_seconds)

    def create(
        self, request: dict[str, Any], *, echo: dict[str, Any], owner: str = "", joiner: Joiner | None = None
    ) -> StartTask:
        """Create a start task; a driver claims it. echo is the part of the request that clients see.

        owner: id of the key that asks. joiner: that key, which a join by this start names in the audit.

        Raises NoSupervisor, SecretsRefused, TooManyStarts, TooManyConversations, StoreFull, and ConversationNotFound of
        a repeat whose conversation was deleted since. Two round trips, in a sandbox three.
        """
        identity = minted("start").hex
        conversation_id = ConversationId(request.get("conversation_id") or str(minted("conversation")))
        if is_finished():
            return self._again(identity)
        self._sandboxes.require_host()
        sandbox_id: str | None = request.get("sandbox_id")
        took = sandbox_id is not None and self._places.take(sandbox_id, conversation_id, made=False)
        try:
            return self._create(identity, conversation_id, request, echo, owner, joiner)
        except (TooManyStarts, SecretsRefused, ConversationNotFound, StoreFull):
            if took and sandbox_id:
                self._places.leave(sandbox_id, conversation_id)
            raise

    def create_beside_none(
        self, request: dict[str, Any], *, echo: dict[str, Any], owner: str = "", joiner: Joiner | None = None
    ) -> tuple[StartTask, bool]:
        """As `create`, of a request that names its conversation and no sandbox: where a start of that conversation is
        under way, that one; and whether this call created it."""
        self._sandboxes.require_host()
        identity = minted("start").hex
        conversation_id = ConversationId(request["conversation_id"])
        start = self._create(identity, conversation_id, request, echo, owner, joiner, asked=identity)
        return start, start.id == identity

    def create_once(
        self,
        conversation_id: ConversationId,
        request: dict[str, object],
        body: Mapping[str, object],
        *,
        echo: dict[str, object],
        owner: str = "",
        joiner: Joiner | None = None,
    ) -> tuple[StartTask, bool]:
        """Create the start task of a conversation, or find the one under way; and whether this call created it.

        body: what the agent server gets, kept sealed. One that has failed does not count, but a repeat of a request
        whose start was ended, or whose conversation was deleted, starts nothing. Raises as `create`.
        """
        self._sandboxes.require_host()
        sealed = self._sealer.seal_body(conversation_id, body)
        identity, asked = uuid4().hex, minted("start").hex
        start = self._create(identity, conversation_id, request, echo, owner, joiner, body=sealed, asked=asked)
        return start, start.id == identity

    def _create(
        self,
        identity: str,
        conversation_id: ConversationId,
        request: dict[str, Any],
        echo: Mapping[str, object],
        owner: str,
        joiner: Joiner | None,
        *,
        body: bytes = b"",
        asked: str = "",
    ) -> StartTask:
        sealed = self._sealer.seal(conversation_id, request.pop("secrets", None) or {})
        upkeep = StartTaskUpkeep.fields_of(
            echo=echo,
            secrets={name: value.decode() for name, value in sealed.items()},
            parent_id=request.get("parent_conversation_id") or "",
        )
        joins = (joiner or Joiner(owner))[1:]
        fields = StartTask.fields_of(request=request, owner=owner, joiner=joins, **traces.kept()) | upkeep
        most = self._sandboxes.limits.max_starts
        reply = self._scripts.create_start_task(
            StartKeys.root,
            id=identity,
            conversation=conversation_id,
            most=most,
            asked=asked,
            body=body,
            fields=fields,
        )
        match reply:
            case CreateStartTask.Created(found) | CreateStartTask.Exists(found):
                return _start_task(found, "echo")
            case CreateStartTask.Full(unfinished):
                raise TooManyStarts(unfinished, most)
            case "gone":
                raise ConversationNotFound

    def _again(self, start_id: str) -> StartTask:
        """The start task of an earlier attempt. Raises ConversationNotFound where it went with its conversation."""
        [start] = self.get_many([start_id])
        if start is None:
            raise ConversationNotFound
        return start

    def get_many(self, ids: Sequence[str]) -> list[StartTask | None]:
        """Start tasks as clients see them, in the order of the ids, None for an unknown id. One round trip."""
        found = self._scripts.read_start_tasks(StartKeys.root, span=self._span, detail=_FORGOTTEN, ids=ids)
        return [_start_task(fields, "echo") if fields else None for fields in found]

    def search(
        self,
        *,
        by: str,
        descending: bool,
        limit: int,
        conversation_id: ConversationId | None = None,
        since: Micros | None = None,
        start: tuple[Micros, str] | None = None,
    ) -> tuple[list[StartTask], tuple[Micros, str] | None]:
        """One page by time of creation or last change, and the cursor of the next one: time and id of its first.

        One round trip, whatever the number of start tasks.
        """
        first_at, first_id = start or (None, "")
        found = self._scripts.page_start_tasks(
            StartKeys.root,
            span=self._span,
            detail=_FORGOTTEN,
            by=by,
            conversation=conversation_id or "",
            descending=descending,
            since=since,
            most=limit + 1,
            first_at=first_at,
            first_id=first_id,
        )
        page = [_start_task(fields, "echo") for fields in found]
        if len(page) <= limit:
            return page, None
        following = page[limit]
        return page[:limit], (following.created_at if by == "created" else following.updated_at, following.id)

    def count(self, *, conversation_id: ConversationId | None = None, since: Micros | None = None) -> int:
        """The number of start tasks. One round trip, whatever their number."""
        return self._redis.zcount(StartKeys.created(conversation_id), "-inf" if since is None else since, "+inf")

    def forget(self, start_id: str) -> None:
        """Remove a start task."""
        self._scripts.forget_start_task(StartKeys.root, id=start_id, late=_LATE)

    def end(self, start_id: str) -> StartTask:
        """End a start task as ERROR, for good, and return it; one that has failed by itself stays as it is.

        Its driver makes nothing more, and a supervisor removes what it has made. Raises StartTaskNotFound and
        StartIsReady.
        """
        self._end(start_id=start_id)
        [start] = self.get_many([start_id])
        if start is None:
            raise StartTaskNotFound
        if start.app_conversation_id:
            raise StartIsReady(start.app_conversation_id)
        return start

    def end_of(self, conversation_id: ConversationId, *, with_children: bool = False) -> set[str]:
        """End every start task of a conversation that is under way, as `end`; returns their ids.

        with_children: also those whose conversations would be its children.
        """
        return self._end(conversation_id=conversation_id, with_children=with_children)

    def _end(self, *, start_id: str = "", conversation_id: str = "", with_children: bool = False) -> set[str]:
        ended = self._scripts.end_start_task(
            StartKeys.root,
            id=start_id,
            conversation=conversation_id,
            children=with_children,
            detail=ENDED,
            failure=json.dumps(Failure(410, ENDED)),
        )
        return set(ended)

    # what drivers do

    def claim(self) -> tuple[StartTask, str] | None:
        """Take an unfinished start task without a driver, and its new lease; None if there is none.

        A start task that failed MOST_ATTEMPTS times ends instead; one whose driver was stopped or killed goes on. Each
        call also forgets a few old finished ones.
        """
        kept = in_micros(self._sandboxes.limits.start_task_days * 86400)
        while True:
            lease = str(uuid4())
            fields = self._scripts.claim_start_task(
                StartKeys.root,
                lease=lease,
                span=in_micros(LEASE),
                most=MOST_ATTEMPTS,
                detail=_NEVER_ENDED,
                kept=kept,
            )
            if not fields:
                return None
            try:
                return _start_task(fields, "request"), lease
            except UNREADABLE as error:
                identity = _id_of(fields)
                _log.error("start task %s: its record cannot be read, so it ends: %r", identity, error)
                self.finish(identity, lease, "ERROR", _UNREAD)

    def claim_failed(self) -> StartTask | None:
        """Take a failed start task that may have left a sandbox or a conversation; None if there is none."""
        while fields := self._scripts.claim_failed_start_task(StartKeys.root, span=in_micros(CLEARING)):
            try:
                return _start_task(fields, "request")
            except UNREADABLE as error:
                identity = _id_of(fields)
                _log.error("start task %s: what it left stays: its record cannot be read: %r", identity, error)
                self.cleared(identity)
        return None

    def bury(self, start: StartTask) -> None:
        """Let a start task that has ended make nothing more: its driver may be between two steps. Two round trips."""
        for root in (ConversationKeys(start.conversation_id).root, SandboxKeys.root):
            self._scripts.bury_start(root, id=start.id, late=_LATE)

    def cleared(self, start_id: str, *, late: float = 0) -> None:
        """Note that a driver has removed all that a failed start task had created.

        late: seconds after its end in which an agent may still begin with it: until then it is cleared again.
        """
        self._scripts.clear_start_task(StartKeys.root, id=start_id, late=in_micros(late))

    def renew(self, start_id: str, lease: str) -> bool:
        """Renew the lease of an unfinished start task; False when it is another driver's, finished or gone."""
        return self.postpone(start_id, lease, LEASE, counter="")

    def postpone(self, start_id: str, lease: str, seconds: float, *, counter: str) -> bool:
        """Make an unfinished start task due again after so many seconds; False as `renew`.

        counter: the field of the start task that counts it: attempts, or waits.
        """
        return self._scripts.renew_start_task(
            StartKeys.root, id=start_id, lease=lease, span=in_micros(seconds), counter=counter
        )

    def advance(self, start_id: str, lease: str, **fields: object) -> bool:
        """Write the progress of an unfinished start task, and renew its lease; False as `renew`."""
        return self._scripts.advance_start_task(
            StartKeys.root, id=start_id, lease=lease, span=in_micros(LEASE), fields=StartTask.fields_of(**fields)
        )

    def first_waiting(self) -> str | None:
        """The start task that gets the next place of a sandbox; None: none waits for one. One round trip."""
        found = self._redis.zrange(StartKeys.waiting, 0, 0)
        return found[0].decode() if found else None

    def await_place(self, start_id: str, lease: str, detail: str) -> Literal["waits", "over"] | None:
        """Have a start task wait for a place, in the order of their creation: another driver tries it when one is free.

        Returns "waits"; "over": it has waited for PLACE_SECONDS; None as `renew` is False.
        """
        return self._scripts.await_place(
            StartKeys.root,
            id=start_id,
            lease=lease,
            again=in_micros(_PLACE_POLL),
            most=in_micros(self._sandboxes.limits.place_seconds),
            detail=detail,
        )

    def found_place(self, start_id: str, lease: str) -> bool:
        """Note that a start task waits no longer, and have the next one be tried at once; False as `renew`."""
        return self._scripts.leave_place_queue(StartKeys.root, id=start_id, lease=lease)

    def sandboxes_under_way(self) -> set[str]:
        """The sandboxes in which conversations begin; a start that waits for a place counts for none.

        Two round trips, and one field of each start task that is under way.
        """
        with self._redis.pipeline(transaction=False) as pipe:
            pipe.zrange(StartKeys.due, 0, -1)
            pipe.zrange(StartKeys.waiting, 0, -1)
            due, waiting = pipe.execute()
            for identity in set(due) - set(waiting):
                pipe.hget(StartKeys.task(identity.decode()), "sandbox_id")
            return {found.decode() for found in pipe.execute() if found}

    def fail(self, start: StartTask, lease: str, detail: str, failure: Failure) -> bool:
        """End a start task as ERROR, with what the requests get that wait for it; False as `renew`."""
        is_mine = self.advance(start.id, lease, failure=failure)
        return is_mine and self.finish(start.id, lease, "ERROR", detail)

    def finish(self, start_id: str, lease: str, status: str, detail: str = "") -> bool:
        """End a start task as READY or ERROR, for good; False as `renew`. A repeat is True and changes nothing."""
        is_mine = self._scripts.finish_start_task(
            StartKeys.root, id=start_id, lease=lease, status=status, detail=detail
        )
        if is_mine:
            self._meter.count_start(status)
        return is_mine

    def secrets_of(self, start: StartTask) -> dict[str, object]:
        """The secrets that came with the request; none once the start task is finished."""
        stored = self._redis.hget(StartKeys.task(start.id), "secrets")
        return self._sealer.open(start.conversation_id, json.loads(stored or b"{}"))

    def body_of(self, start: StartTask) -> dict[str, Any] | None:
        """The body that came with the request; None of an app conversation's, and once the start task is finished."""
        sealed = self._redis.get(StartKeys.body(start.id))
        return self._sealer.open_body(start.conversation_id, sealed) if sealed else None


def in_micros(seconds: float) -> int:
    """A number of seconds in µs, as the scripts take them."""
    return round(seconds * 1e6)


def _id_of(fields: list[bytes]) -> str:
    """The id of a start task of which nothing else can be read."""
    return pairs(fields).get(b"id", b"").decode(errors="replace")


def _start_task(fields: list[bytes], request: str) -> StartTask:
    """request: the field to read, the driver's `request` or the clients' `echo`."""
    found = pairs(fields)
    return StartTask.read(
        found,
        request=json.loads(found[request.encode()]),
        failure=_failure(found) if found[b"status"] == b"ERROR" else None,
        joiner=Joiner(found.get(b"owner", b"").decode(), *json.loads(found.get(b"joiner", b"[]"))),
    )


def _failure(found: Mapping[bytes, bytes]) -> Failure:
    """Of an ERROR: as its driver has it, else by what ended it."""
    if b"failure" in found:
        return Failure(*json.loads(found[b"failure"]))
    detail = found[b"detail"].decode()
    return Failure(503 if detail == _FORGOTTEN else 502, detail)


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmPool(Record):
    """The state of the pool of a spec."""

    key = f"{SandboxKeys.root}:pool:SPEC"
    version: str  #: of the spec
    most: int  #: sandboxes that are kept
    failures: int = 0  #: in a row
    after: int = 0  #: µs after which one may be started again


class Pool(NamedTuple):
    """What a spec keeps warm. most: sandboxes of all hosts together."""

    spec_id: str
    version: str
    most: int


class WarmSandboxes:
    """The pools of all specs: a spec with `warm = N` keeps N sandboxes, which run before anybody needs them.

    A warm sandbox is a sandbox like any other, without a conversation: it counts for MAX_SANDBOXES, and its processes
    have no secret but its own keys, which nobody is shown. The first use binds it for good: the claim of a start task,
    a conversation that is started in it, a pause, a resume. Until then its end loses nothing, so one that is too
    old, too many, failed or in the way of a start is deleted, and its pool is filled again. Fields and keys:
    `store/keys.toml`.

    Each method takes one round trip; what a script decides is decided for all hosts.
    """

    def __init__(self, redis: Redis, scripts: Scripts, limits: SandboxLimits, sealer: Sealer) -> None:
        self._redis = redis
        self._scripts = scripts
        self._limits = limits
        self._sealer = sealer

    def declare(self, pools: Iterable[Pool]) -> None:
        """Say what is kept warm from now on, whatever was said before; the warm sandboxes of other specs end."""
        self._scripts.declare_warm_pools(SandboxKeys.root, pools=(pool for pool in pools if pool.most))

    def fill(self, pool: Pool) -> Literal["added", "full", "waits", "other", "undeclared"]:
        """Start one warm sandbox where one is missing, and end those of other versions.

        Returns "added"; "full"; "waits" for a backoff, for room or for a host; "other": another version was declared
        since; "undeclared". Raises SecretsRefused.
        """
        identity = SandboxId(minted_text("sandbox"))
        return self._scripts.fill_warm_pool(
            SandboxKeys.root,
            spec=pool.spec_id,
            version=pool.version,
            id=identity,
            files_key=self._sealer.seal_key(identity, random_text(43)),
            most_running=self._limits.max_sandboxes,
        )

    def claim(self, pool: Pool, start_id: str, *, gives_way: bool = False, owner: str = "") -> SandboxId | None:
        """Bind a warm sandbox that is RUNNING to a start task, which gets the same one again; None: there is none.

        gives_way: see `agents/places.py`. owner: id of the key that starts the conversation.
        """
        claimed = self._scripts.claim_warm_sandbox(
            SandboxKeys.root,
            spec=pool.spec_id,
            version=pool.version,
            start=start_id,
            host_span=self._limits.spans[0],
            gives_way=gives_way,
            owner=owner,
        )
        return SandboxId(claimed) if claimed else None

    def claimed_by(self, start_id: str) -> SandboxId | None:
        """The sandbox that a start task has claimed in the last hour; it may be gone."""
        stored = self._redis.get(claimed_key(start_id))
        return SandboxId(stored.decode()) if stored else None

    def discard(self, sandbox_id: SandboxId, *, failed: bool = False) -> bool:
        """Have a warm sandbox deleted by its supervisor; False if it is bound by now, or gone.

        failed: its processes failed, so its pool starts no other one for a while.
        """
        return self._scripts.discard_warm_sandbox(SandboxKeys.root, id=sandbox_id, failed=failed)
