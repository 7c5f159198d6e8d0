"""Starts of app conversations: tasks that outlive their request, each driven by whoever holds its lease."""

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple
from uuid import uuid4

from redis import Redis

import wire
from store.keys import StartKeys
from store.sandboxes import Sandboxes
from store.scripts import Scripts
from store.secrets import Sealer
from wire import ConversationId, Micros

#: the statuses in which a start has ended. Source: the app-server wire
FINISHED = ("READY", "ERROR")

#: seconds after which the start of a driver that says nothing is another's
LEASE = 5.0

#: starts that are read at once: more than the longest page, so that one that changes meanwhile is on no page twice
_PAGE = 200


class StartTask(NamedTuple):
    """One start. conversation_id is the one that it will have. Times in µs."""

    id: str
    status: str
    detail: str
    conversation_id: ConversationId
    sandbox_id: str
    own_sandbox: bool  #: whether it was started for this, and ends with its failure
    agent_server_url: str
    request: dict[str, Any]
    created_at: Micros
    updated_at: Micros

    @property
    def app_conversation_id(self) -> ConversationId | None:
        """The conversation that has come to be; None before READY."""
        return self.conversation_id if self.status == "READY" else None


class StartTasks:
    """All starts."""

    def __init__(self, redis: "Redis", scripts: Scripts, sealer: Sealer, sandboxes: Sandboxes) -> None:
        self._redis = redis
        self._scripts = scripts
        self._sealer = sealer
        self._sandboxes = sandboxes

    def create(self, request: dict[str, Any], *, echo: dict[str, Any]) -> StartTask:
        """Note a start; a driver takes it. echo is what clients are shown of the request.

        Raises NoSupervisor, SecretsRefused.
        """
        self._sandboxes.require_host()
        identity, now = uuid4().hex, wire.now()
        conversation_id = ConversationId(request.get("conversation_id") or str(uuid4()))
        sealed = self._sealer.seal(conversation_id, request.pop("secrets", None) or {})
        fields: dict[str, str] = {
            "id": identity,
            "status": "WORKING",
            "detail": "",
            "conversation_id": conversation_id,
            "sandbox_id": "",
            "own_sandbox": "",
            "agent_server_url": "",
            "request": json.dumps(request),
            "echo": json.dumps(echo),
            "secrets": json.dumps({name: value.decode() for name, value in sealed.items()}),
            "created_at": str(now),
            "updated_at": str(now),
        }
        with self._redis.pipeline(transaction=False) as pipe:
            pipe.hset(StartKeys.task(identity), mapping=dict[Any, Any](fields))
            pipe.zadd(StartKeys.index("created"), {identity: now})
            pipe.zadd(StartKeys.index("updated"), {identity: now})
            pipe.zadd(StartKeys.due, {identity: now})
            pipe.execute()
        self._redis.publish(StartKeys.signal, identity)  # a cluster's pipeline takes none
        return _start({name.encode(): str(value).encode() for name, value in fields.items()}, "echo")

    def get_many(self, ids: Sequence[str]) -> list[StartTask | None]:
        """Starts as clients see them, in the order of the ids, None for an id that is unknown."""
        self._fail_the_forgotten()
        return [_start(stored, "echo") if stored else None for stored in self._read(ids)]

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
        """One page by time of creation or last change, and the place where the next one begins."""
        found: list[StartTask] = []
        for place, task in self._matching(by, descending, conversation_id, since, start):
            if len(found) == limit:
                return found, place
            found.append(task)
        return found, None

    def count(self, *, conversation_id: ConversationId | None = None, since: Micros | None = None) -> int:
        """How many starts there are: one look, unless a conversation's are asked for."""
        if conversation_id is None:
            return int(self._redis.zcount(StartKeys.index("created"), "-inf" if since is None else since, "+inf"))
        return sum(1 for _ in self._matching("created", True, conversation_id, since, None))

    def forget(self, start_id: str) -> None:
        """Remove a start."""
        with self._redis.pipeline(transaction=False) as pipe:
            for index in (StartKeys.index("created"), StartKeys.index("updated"), StartKeys.due):
                pipe.zrem(index, start_id)
            pipe.delete(StartKeys.task(start_id))
            pipe.execute()

    # what drivers do

    def claim(self) -> tuple[StartTask, str] | None:
        """Take a start that nobody drives, and the lease that shows it; None if there is none."""
        lease, now = str(uuid4()), wire.now()
        identity = self._scripts.claim_start([StartKeys.root], [lease, now, now + round(LEASE * 1e6)])
        [stored] = self._read([identity.decode()]) if identity else [{}]
        return (_start(stored, "request"), lease) if stored else None

    def advance(self, start_id: str, lease: str, **fields: Any) -> bool:
        """Write what is reached and prolong the lease; False when the start is another's by now."""
        finished = fields.get("status") in FINISHED
        words = [word for name, value in fields.items() for word in (name, str(value))]
        now = wire.now()
        args = [start_id, lease, now, "" if finished else now + round(LEASE * 1e6), *words]
        return bool(self._scripts.advance_start([StartKeys.root], args))

    def secrets_of(self, start: StartTask) -> dict[str, Any]:
        """The secrets that came with the request."""
        stored: Any = self._redis.hget(StartKeys.task(start.id), "secrets")
        return self._sealer.open(start.conversation_id, json.loads(stored or b"{}"))

    def _fail_the_forgotten(self) -> None:
        """What no supervisor does any more, whoever reads does: no start is unfinished for ever."""
        forgotten = wire.now() - round(self._sandboxes.limits.start_seconds * 1e6)
        if self._redis.zcount(StartKeys.due, "-inf", forgotten):
            self._scripts.fail_starts(
                [StartKeys.root], [forgotten, wire.now(), "No supervisor runs that could go on with it"]
            )

    def _read(self, ids: Sequence[str]) -> list[dict[bytes, bytes]]:
        with self._redis.pipeline(transaction=False) as pipe:
            for identity in ids:
                pipe.hgetall(StartKeys.task(identity))
            return pipe.execute() if ids else []

    def _matching(
        self,
        by: str,
        descending: bool,
        conversation_id: ConversationId | None,
        since: Micros | None,
        start: tuple[Micros, str] | None,
    ) -> Iterator[tuple[tuple[Micros, str], StartTask]]:
        """What passes, from a place on, each with its place; read a page at a time."""
        # No start changes before it is made: `since` bounds either index.
        least: Any = "-inf" if since is None else since
        most: Any = "+inf"
        if start and descending:
            most = start[0]
        elif start:
            least = start[0] if since is None else max(since, start[0])
        offset = 0
        while True:
            stored: Any = self._redis.zrange(
                StartKeys.index(by),
                *((most, least) if descending else (least, most)),
                desc=descending,
                byscore=True,
                offset=offset,
                num=_PAGE,
                withscores=True,
            )
            places = [(Micros(int(at)), identity.decode()) for identity, at in stored]
            for place, task in zip(places, self.get_many([identity for _, identity in places]), strict=True):
                if start and (place > start if descending else place < start):
                    continue
                if task is None or conversation_id not in (None, task.conversation_id):
                    continue
                if since is None or task.created_at >= since:
                    yield place, task
            if len(stored) < _PAGE:
                return
            offset += _PAGE


def _start(stored: dict[bytes, bytes], request: str) -> StartTask:
    words = {name.decode(): value.decode() for name, value in stored.items()}
    texts = ("id", "status", "detail", "sandbox_id", "agent_server_url")
    return StartTask(
        **{name: words[name] for name in texts},
        conversation_id=ConversationId(words["conversation_id"]),
        own_sandbox=bool(words["own_sandbox"]),
        request=json.loads(words[request]),
        created_at=Micros(int(words["created_at"])),
        updated_at=Micros(int(words["updated_at"])),
    )
