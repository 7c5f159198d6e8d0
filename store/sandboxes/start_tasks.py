"""Start tasks of app conversations. They outlive their request, and a driver with a lease brings each to its end.

A finished start task is deleted after START_TASK_DAYS. An unfinished start task of a client's own agent also has a
sealed body.

A client may end a start until it is READY (`end`, `end_of`). It is then ERROR, like any other failure. Its driver may
be between two steps, or may be killed or stopped there. A supervisor therefore first bars the start task (`bury`) from
creating a conversation, taking a place, or getting a sandbox. Then it removes what the start task has created.

The body of a request that starts a client's own agent holds the key of its model, so it is sealed and never shown. It
is stored twice: with the start task until that is finished, and with the conversation until its deletion. The latter
serves a later start at an agent server that has lost the conversation. The start task's object has `body`, as the
client sent it, and `headers`, which the agent server gets with it. The conversation's object is the body without
`initial_message`, which is sent once, and without `secrets`, which the conversation has.
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
from store.record import HashRecord, pairs
from store.sandboxes.sandboxes import Places, Sandboxes, SandboxId, random_text
from store.scripts import Scripts
from store.scripts.calls import CreateStartTask
from telemetry import traces
from telemetry.meter import Meter

_log = logging.getLogger(__name__)

#: Members of a body that a later start omits.
_ONCE = ("initial_message", "secrets")


#: Final statuses of a start task. Source: the app-server wire
FINISHED = ("READY", "ERROR")

#: Seconds after which another driver may claim a start task: an unfinished one (its lease), or a failed one to clean
#: up.
LEASE, CLEARING = 5.0, 30.0

#: Seconds after which the first start task that waits for a place is retried.
_PLACE_POLL = 0.5

#: Maximum number of unforeseen errors of a start task.
MOST_ATTEMPTS = 3

_NEVER_ENDED = f"An unforeseen error ended each of {MOST_ATTEMPTS} attempts: see the supervisor's log"
_UNREAD = "Its record cannot be read: see the supervisor's log"
_FORGOTTEN = "No supervisor is running to continue it"

#: Detail of a start task that a client has ended.
ENDED = "Ended by a DELETE"

_NO_JOINER = Joiner("")

#: Maximum delay of a driver, or of a request's repeat, in seconds.
_LATE = 86_400


class StartBodies:
    def __init__(self, redis: Redis, sealer: Sealer) -> None:
        self._redis = redis
        self._sealer = sealer

    def sealed(self, conversation_id: ConversationId, body: Mapping[str, object]) -> bytes:
        """Seal the part of a body that a conversation keeps. Raises SecretsRefused."""
        kept = {name: value for name, value in body.items() if name not in _ONCE}
        return self._sealer.seal_body(conversation_id, kept)

    def of(self, conversation_id: ConversationId) -> Mapping[str, object] | None:
        """Return the body that started the agent of a conversation; None if there was none. Raises SecretsRefused."""
        sealed = self._redis.get(ConversationKeys(conversation_id).start)
        return self._sealer.open_body(conversation_id, sealed) if sealed else None


class Failure(NamedTuple):
    """The response to requests that wait for a start task: HTTP status, JSON detail, and whether they may retry."""

    status: int
    detail: Any
    is_passing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTask(HashRecord):
    """A start task. Times in µs by Redis' clock."""

    key = StartKeys.task("ID")
    id: str
    status: str
    detail: str
    conversation_id: ConversationId  #: id of the conversation that it creates
    sandbox_id: str
    own_sandbox: bool  #: the sandbox was started for it, and is deleted if it fails
    agent_server_url: str
    request: dict[str, Any]  #: without its secrets
    attempts: int = 0  #: number of unforeseen errors
    created_at: Micros
    updated_at: Micros
    failure: Failure | None = None  #: of an ERROR: response to the requests that wait for it
    waits: int = 0  #: number of delays because its sandbox could not be reached
    trace: str = ""  #: W3C traceparent of its request; empty: not traced
    owner: str = ""  #: id of the requesting key, which also owns a sandbox that is started for it
    joiner: Joiner = _NO_JOINER  #: the requesting key at that time: name, address, and whether it may join any sandbox
    waiting_at: Micros | None = None  #: since when it waits for a place; None: it does not
    is_ended: Annotated[bool, "ended"] = False  #: a client has ended it
    failed_in: str = ""  #: of an ERROR: its status before

    @property
    def waits_for_place(self) -> bool:
        """Return whether it waits for a place, because MAX_SANDBOXES are running."""
        return self.waiting_at is not None

    @property
    def app_conversation_id(self) -> ConversationId | None:
        """Return the id of the created conversation; None before READY."""
        return self.conversation_id if self.status == "READY" else None


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTaskUpkeep(HashRecord):
    """Fields of a start task that only its driver and the scripts use."""

    key = StartTask.key
    echo: Mapping[str, object]  #: part of the request that clients see
    secrets: dict[str, str] | None = None  #: sealed; removed when it is finished
    lease: str = ""  #: id of the current lease
    parent_id: str = ""  #: id of the conversation that will be the parent
    asked: str = ""  #: id of the request, if it was made once for its conversation


class StartTasks:
    """All start tasks. Redis' clock decides leases and due times, never the callers' clocks."""

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
        """Create a start task, which a driver will claim. echo: the part of the request that clients see.

        owner: id of the requesting key. joiner: that key, named in the audit if this start joins a sandbox.

        Raises NoSupervisor, SecretsRefused, TooManyStarts, TooManyConversations, StoreFull, and ConversationNotFound
        for a repeat whose conversation has been deleted. Two round trips, in a sandbox three.
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
        """Create a start task, or return the unfinished one of its conversation; and whether this call created it.

        Like `create`, for a request that names its conversation and no sandbox.
        """
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
        """Create the start task of a conversation, or return the unfinished one; and whether this call created it.

        body: what the agent server gets, stored sealed. A failed start task is replaced. A repeated request whose start
        was ended, or whose conversation was deleted, starts nothing. Raises as `create`.
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
        """Return the start task of an earlier attempt.

        Raises ConversationNotFound if it was deleted with its conversation.
        """
        [start] = self.get_many([start_id])
        if start is None:
            raise ConversationNotFound
        return start

    def get_many(self, ids: Sequence[str]) -> list[StartTask | None]:
        """Return start tasks as clients see them, in the order of the ids, None for an unknown id. One round trip."""
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
        """Return a page by time of creation or last change, and the next cursor: time and id of its first start task.

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
        """Return the number of start tasks. One round trip, whatever their number."""
        return self._redis.zcount(StartKeys.created(conversation_id), "-inf" if since is None else since, "+inf")

    def forget(self, start_id: str) -> None:
        self._scripts.forget_start_task(StartKeys.root, id=start_id, late=_LATE)

    def end(self, start_id: str) -> StartTask:
        """End a start task as ERROR, for good, and return it. A failed start task stays as it is.

        Its driver creates nothing more, and a supervisor removes what it has created. Raises StartTaskNotFound,
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
        """End every unfinished start task of a conversation, as `end`, and return their ids.

        with_children: also those of its future children.
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

    # called by drivers

    def claim(self) -> tuple[StartTask, str] | None:
        """Claim an unfinished start task without a driver, and return it with its new lease; None if there is none.

        A start task that failed MOST_ATTEMPTS times ends instead. One whose driver was stopped or killed continues.
        Each call also deletes a few old finished start tasks.
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
        """Claim a failed start task that may have left a sandbox or a conversation; None if there is none."""
        while fields := self._scripts.claim_failed_start_task(StartKeys.root, span=in_micros(CLEARING)):
            try:
                return _start_task(fields, "request")
            except UNREADABLE as error:
                identity = _id_of(fields)
                _log.error("start task %s: what it left stays: its record cannot be read: %r", identity, error)
                self.cleared(identity)
        return None

    def bury(self, start: StartTask) -> None:
        """Bar an ended start task from creating anything, because its driver may be between two steps.

        Two round trips.
        """
        for root in (ConversationKeys(start.conversation_id).root, SandboxKeys.root):
            self._scripts.bury_start(root, id=start.id, late=_LATE)

    def cleared(self, start_id: str, *, late: float = 0) -> None:
        """Record that a driver has removed everything that a failed start task had created.

        late: seconds after its end in which an agent may still start; until then it is cleaned up again.
        """
        self._scripts.clear_start_task(StartKeys.root, id=start_id, late=in_micros(late))

    def renew(self, start_id: str, lease: str) -> bool:
        """Renew the lease of an unfinished start task; False if another driver has it, or it is finished or gone."""
        return self.postpone(start_id, lease, LEASE, counter="")

    def postpone(self, start_id: str, lease: str, seconds: float, *, counter: str) -> bool:
        """Make an unfinished start task due again after some seconds; False as `renew`.

        counter: the field of the start task to increment: attempts, or waits.
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
        """Return the start task that gets the next free place of a sandbox, or None. One round trip."""
        found = self._redis.zrange(StartKeys.waiting, 0, 0)
        return found[0].decode() if found else None

    def await_place(self, start_id: str, lease: str, detail: str) -> Literal["waits", "over"] | None:
        """Queue a start task for a place, in the order of their creation.

        Another driver retries it when a place is free. Returns "waits"; "over" if it has waited for PLACE_SECONDS; None
        where `renew` is False.
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
        """Remove a start task from the queue for places, and make the next one due at once; False as `renew`."""
        return self._scripts.leave_place_queue(StartKeys.root, id=start_id, lease=lease)

    def sandboxes_under_way(self) -> set[str]:
        """Return the sandboxes in which conversations are starting, without start tasks that wait for a place.

        Two round trips, and one field of each unfinished start task.
        """
        with self._redis.pipeline(transaction=False) as pipe:
            pipe.zrange(StartKeys.due, 0, -1)
            pipe.zrange(StartKeys.waiting, 0, -1)
            due, waiting = pipe.execute()
            for identity in set(due) - set(waiting):
                pipe.hget(StartKeys.task(identity.decode()), "sandbox_id")
            return {found.decode() for found in pipe.execute() if found}

    def fail(self, start: StartTask, lease: str, detail: str, failure: Failure) -> bool:
        """End a start task as ERROR, with the response to the requests that wait for it; False as `renew`."""
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
        """Return the secrets of the request; empty once the start task is finished."""
        stored = self._redis.hget(StartKeys.task(start.id), "secrets")
        return self._sealer.open(start.conversation_id, json.loads(stored or b"{}"))

    def body_of(self, start: StartTask) -> dict[str, Any] | None:
        """Return the body of the request; None for an app conversation, and once the start task is finished."""
        sealed = self._redis.get(StartKeys.body(start.id))
        return self._sealer.open_body(start.conversation_id, sealed) if sealed else None


def in_micros(seconds: float) -> int:
    """Convert seconds to µs, the unit of the scripts."""
    return round(seconds * 1e6)


def _id_of(fields: list[bytes]) -> str:
    """Return the id of a start task whose record is corrupt."""
    return pairs(fields).get(b"id", b"").decode(errors="replace")


def _start_task(fields: list[bytes], request: str) -> StartTask:
    """Read a start task. request: the field to read, the driver's `request` or the clients' `echo`."""
    found = pairs(fields)
    return StartTask.read(
        found,
        request=json.loads(found[request.encode()]),
        failure=_failure(found) if found[b"status"] == b"ERROR" else None,
        joiner=Joiner(found.get(b"owner", b"").decode(), *json.loads(found.get(b"joiner", b"[]"))),
    )


def _failure(found: Mapping[bytes, bytes]) -> Failure:
    """Return the failure of an ERROR: as stored by its driver, or derived from its detail."""
    if b"failure" in found:
        return Failure(*json.loads(found[b"failure"]))
    detail = found[b"detail"].decode()
    return Failure(503 if detail == _FORGOTTEN else 502, detail)


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmPool(HashRecord):
    """The state of a spec's pool."""

    key = f"{SandboxKeys.root}:pool:SPEC"
    version: str  #: version of the spec
    most: int  #: number of sandboxes that are kept
    failures: int = 0  #: number of consecutive failures
    after: int = 0  #: time in µs before which none may be started


class Pool(NamedTuple):
    """The warm sandboxes that a spec keeps. most: number on all hosts together."""

    spec_id: str
    version: str
    most: int


class WarmSandboxes:
    """The pools of all specs: a spec with `warm = N` keeps N running sandboxes in reserve.

    A warm sandbox is a normal sandbox without a conversation. It counts towards MAX_SANDBOXES. Its processes have no
    secret except its own keys, which nobody is shown. The first use binds it for good: the claim of a start task, a
    conversation that is started in it, a pause, a resume. Until then its end loses nothing. So a warm sandbox that is
    too old, too many, failed or in the way of a start is deleted, and its pool is filled again. Fields and keys:
    `store/keys.toml`.

    Each method takes one round trip. A script's decision holds for all hosts.
    """

    def __init__(self, redis: Redis, scripts: Scripts, limits: SandboxLimits, sealer: Sealer) -> None:
        self._redis = redis
        self._scripts = scripts
        self._limits = limits
        self._sealer = sealer

    def declare(self, pools: Iterable[Pool]) -> None:
        """Declare the pools, replacing earlier declarations. The warm sandboxes of other specs end."""
        self._scripts.declare_warm_pools(SandboxKeys.root, pools=(pool for pool in pools if pool.most))

    def fill(self, pool: Pool) -> Literal["added", "full", "waits", "other", "undeclared"]:
        """Start a warm sandbox if one is missing, and end those of other versions.

        Returns "added"; "full"; "waits" for a backoff, for room or for a host; "other": another version has been
        declared; "undeclared". Raises SecretsRefused.
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
        """Bind a RUNNING warm sandbox to a start task. A repeat returns it again. None: there is none.

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
        """Return the sandbox that a start task has claimed in the last hour. It may be gone."""
        stored = self._redis.get(claimed_key(start_id))
        return SandboxId(stored.decode()) if stored else None

    def discard(self, sandbox_id: SandboxId, *, failed: bool = False) -> bool:
        """Have a warm sandbox deleted by its supervisor; False if it is bound by now, or gone.

        failed: its processes failed, so its pool waits for a backoff.
        """
        return self._scripts.discard_warm_sandbox(SandboxKeys.root, id=sandbox_id, failed=failed)
