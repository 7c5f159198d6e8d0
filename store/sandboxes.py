"""Sandboxes: what clients want of them, what supervisors see of them. All of them lie in one slot.

Workers write what is wanted and supervisors what they see, each by one script; `_sandbox.lua` has the state machine.
"""

import json
import secrets
import string
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, NamedTuple, NewType
from uuid import uuid4

from redis import Redis

import wire
from store.errors import NoSupervisor, SandboxNotFound, SandboxRefuses, TooManySandboxes
from store.keys import SandboxKeys
from store.scripts import Scripts
from wire import Micros

SandboxId = NewType("SandboxId", str)

#: seconds between two notes that a sandbox is in use, and between two looks at an answer that is waited for
_TOUCH, _LOOK = 1.0, 0.02

#: seconds that a supervisor may take to answer with a log, and that a start waits for one to begin
_LOG_PATIENCE, _HOST_PATIENCE = 3.0, 3.0

_DIGITS = string.digits + string.ascii_letters


@dataclass(frozen=True, slots=True)
class Limits:
    """What the settings say of sandboxes. Times are in seconds."""

    most: int
    pause_idlest: bool
    host_seconds: float
    start_seconds: float


class Sandbox(NamedTuple):
    """One sandbox as it is. Times are in µs; the handle is its runtime's."""

    id: SandboxId
    spec_id: str
    status: str
    wanted: str
    host: str
    session_api_key: str
    created_at: Micros
    starting_at: Micros
    active_at: Micros
    handle: dict[str, Any] | None
    agent_url: str
    urls: list[dict[str, Any]]
    detail: str
    log: str


class Sandboxes:
    """All sandboxes of all hosts."""

    def __init__(self, redis: "Redis", scripts: Scripts, limits: Limits) -> None:
        self._redis = redis
        self._scripts = scripts
        self.limits = limits
        self._touched: dict[SandboxId, float] = {}

    # what clients want

    def start(self, spec_id: str, sandbox_id: SandboxId | None = None) -> Sandbox:
        """Have a sandbox started, once per id; it is STARTING until its agent server answers.

        Raises NoSupervisor, TooManySandboxes.
        """
        identity, key = sandbox_id or SandboxId(random_text(22)), random_text(43)
        most, policy = self.limits.most, "pause" if self.limits.pause_idlest else "refuse"
        args = [identity, spec_id, key, key_hash(key), wire.now(), most, policy]
        self.require_host()
        outcome, number = self._scripts.start_sandbox([SandboxKeys.root], args)
        if outcome == b"full":
            raise TooManySandboxes(number, most)
        return self.get(identity)

    def require_host(self) -> None:
        """Wait a little for a supervisor, as when the server has just begun. Raises NoSupervisor."""
        deadline = time.monotonic() + _HOST_PATIENCE
        while not self._redis.zcount(SandboxKeys.hosts, self._oldest_beat(), "+inf"):
            if time.monotonic() > deadline:
                raise NoSupervisor
            time.sleep(_LOOK)

    def ask(self, sandbox_id: SandboxId, verb: str, *, wait: float = 0) -> None:
        """Pause, resume or delete, as `_sandbox.lua` has it; waits so many seconds for a supervisor to see to it.

        A resume is not waited for. Raises SandboxNotFound, SandboxRefuses, TooManySandboxes.
        """
        most, policy = self.limits.most, "pause" if self.limits.pause_idlest else "refuse"
        reply = self._scripts.ask_sandbox([SandboxKeys.root], [sandbox_id, verb, wire.now(), most, policy])
        if reply is None:
            raise SandboxNotFound
        outcome, status, number = reply
        if outcome == b"refused":
            raise SandboxRefuses(verb, status.decode())
        if outcome == b"full":
            raise TooManySandboxes(number, most)
        reached: dict[str, Callable[[Sandbox | None], bool]] = {
            "pause": lambda sandbox: sandbox is None or sandbox.status != "RUNNING" or sandbox.wanted != "paused",
            "delete": lambda sandbox: sandbox is None,
        }
        if verb in reached:
            self.wait_until(sandbox_id, reached[verb], wait)

    def wait_until(self, sandbox_id: SandboxId, reached: Callable[[Sandbox | None], bool], seconds: float) -> None:
        """Wait until a sandbox (None: there is none) is as it should be, or for that long."""
        deadline = time.monotonic() + seconds
        while not reached(self.get_many([sandbox_id])[0]) and time.monotonic() < deadline:
            time.sleep(_LOOK)

    def touch(self, sandbox_id: SandboxId) -> None:
        """Note that a sandbox is in use: it is not idle."""
        now = time.monotonic()
        if now - self._touched.get(sandbox_id, -_TOUCH) < _TOUCH:
            return
        if len(self._touched) > 10_000:
            self._touched.clear()
        self._touched[sandbox_id] = now
        box = SandboxKeys.box(sandbox_id)
        if self._redis.hexists(box, "id"):
            self._redis.hset(box, "active_at", str(wire.now()))

    # what there is

    def get(self, sandbox_id: SandboxId) -> Sandbox:
        """Raises SandboxNotFound."""
        [sandbox] = self.get_many([sandbox_id])
        if sandbox is None:
            raise SandboxNotFound
        return sandbox

    def get_many(self, sandbox_ids: Sequence[SandboxId]) -> list[Sandbox | None]:
        """Sandboxes in the order of the ids, None for an id that is unknown."""
        self._look_after_the_lost()
        with self._redis.pipeline(transaction=False) as pipe:
            for sandbox_id in sandbox_ids:
                pipe.hgetall(SandboxKeys.box(sandbox_id))
            replies: list[Any] = pipe.execute() if sandbox_ids else []
        return [_sandbox(stored) if b"status" in stored else None for stored in replies]

    def search(
        self, *, status: str | None, spec_id: str | None, limit: int, start: tuple[Micros, SandboxId] | None
    ) -> tuple[list[Sandbox], tuple[Micros, SandboxId] | None]:
        """One page, newest first, and the place where the next one begins."""
        self._look_after_the_lost()
        index = SandboxKeys.created(status)
        stored: Any = self._redis.zrange(index, 0, -1, desc=True, withscores=True)
        places = [(Micros(int(at)), SandboxId(identity.decode())) for identity, at in stored]
        found: list[Sandbox] = []
        for place, sandbox in zip(places, self.get_many([identity for _, identity in places]), strict=True):
            if sandbox is None or (start and place > start) or spec_id not in (None, sandbox.spec_id):
                continue
            if len(found) == limit:
                return found, place
            found.append(sandbox)
        return found, None

    def of_key(self, session_api_key: str) -> SandboxId | None:
        """The sandbox of a session key."""
        stored: Any = self._redis.hget(SandboxKeys.by_key, key_hash(session_api_key))
        return SandboxId(stored.decode()) if stored else None

    def log(self, sandbox_id: SandboxId, tail: int) -> str:
        """The last lines that a sandbox printed. Raises SandboxNotFound, NoSupervisor."""
        sandbox = self.get(sandbox_id)
        if sandbox.status == "ERROR" or not sandbox.host:
            return "\n".join(sandbox.log.splitlines()[-tail:])
        reply = SandboxKeys.reply(str(uuid4()))
        self._redis.publish(SandboxKeys.signal, json.dumps({"log": sandbox_id, "tail": tail, "reply": reply}))
        deadline = time.monotonic() + _LOG_PATIENCE
        while time.monotonic() < deadline:
            text: Any = self._redis.lpop(reply)
            if text is not None:
                return str(text.decode())
            time.sleep(_LOOK)
        raise NoSupervisor

    # what supervisors see

    def beat(self, host: str, supervisor: str) -> bool:
        """Say that a host's supervisor lives; False if another one speaks for the host. Cares for lost hosts."""
        waiting = wire.now() - round(self.limits.start_seconds * 1e6)
        args = [host, supervisor, wire.now(), self._oldest_beat(), waiting]
        return bool(self._scripts.beat_host([SandboxKeys.root], args) == b"alive")

    def release(self, host: str, supervisor: str) -> None:
        """Give a host up, if this supervisor speaks for it: another one may speak for it at once."""
        self._scripts.release_host([SandboxKeys.root], [host, supervisor])

    def claim(self, host: str) -> SandboxId | None:
        """Take the sandbox that has waited longest for a host."""
        claimed = self._scripts.claim_sandbox([SandboxKeys.root], [host, self.limits.most])
        return SandboxId(claimed.decode()) if claimed else None

    def of_host(self, host: str) -> list[Sandbox]:
        """Every sandbox that a host holds."""
        stored: Any = self._redis.smembers(SandboxKeys.of_host(host))
        found = self.get_many([SandboxId(identity.decode()) for identity in stored])
        return [sandbox for sandbox in found if sandbox is not None]

    def report(self, sandbox_id: SandboxId, host: str, status: str = "", **fields: Any) -> bool:
        """Write what a supervisor sees; status "GONE" is the end. False if it is no longer possible, or not its."""
        words = [word for name, value in fields.items() for word in (name, _stored(value))]
        outcome = self._scripts.report_sandbox([SandboxKeys.root], [sandbox_id, host, status, wire.now(), *words])
        return bool(outcome == b"noted")

    def answer(self, reply: str, text: str) -> None:
        """Answer a request for a log."""
        with self._redis.pipeline() as pipe:
            pipe.rpush(reply, text)
            pipe.expire(reply, 10)
            pipe.execute()

    def _oldest_beat(self) -> int:
        return wire.now() - round(self.limits.host_seconds * 1e6)

    def _look_after_the_lost(self) -> None:
        """What no supervisor does any more, whoever reads does: the sandboxes of lost hosts are MISSING."""
        with self._redis.pipeline(transaction=False) as pipe:
            pipe.zcount(SandboxKeys.hosts, "-inf", self._oldest_beat())
            pipe.zcount(SandboxKeys.unclaimed, "-inf", wire.now() - round(self.limits.start_seconds * 1e6))
            lost, waiting = pipe.execute()
        if lost or waiting:
            self.beat("", "")


def _stored(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _sandbox(stored: dict[bytes, bytes]) -> Sandbox:
    words = {name.decode(): value.decode() for name, value in stored.items()}
    times = {name: Micros(int(words[name])) for name in ("created_at", "starting_at", "active_at")}
    handle, urls = json.loads(words["handle"] or "null"), json.loads(words.get("urls") or "[]")
    texts = ("id", "spec_id", "status", "wanted", "host", "session_api_key", "agent_url", "detail", "log")
    return Sandbox(**{name: words[name] for name in texts}, **times, handle=handle, urls=urls)  # type: ignore[arg-type]


def random_text(length: int) -> str:
    """Random letters and digits, of nearly six bits each."""
    return "".join(secrets.choice(_DIGITS) for _ in range(length))


def key_hash(session_api_key: str) -> str:
    """How a session key is looked up."""
    return sha256(session_api_key.encode("utf-8", "surrogatepass")).hexdigest()
