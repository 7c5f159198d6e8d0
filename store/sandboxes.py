"""Sandboxes: the desired state and the observed state of each. All sandboxes lie in one slot.

Workers write the desired state and supervisors the observed one, each by one script; `_sandbox.lua` has the state
machine.
"""

import json
import secrets
import string
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, NewType
from uuid import uuid4

from redis import Redis

from store.errors import NoSupervisor, NotDoneYet, SandboxNotFound, SandboxRefuses, TooManySandboxes
from store.keys import SandboxKeys
from store.scripts import Scripts
from store.wakeups import ask_supervisors
from wire import Micros

SandboxId = NewType("SandboxId", str)

#: seconds between two polls while a method waits
_POLL = 0.02

#: seconds that a supervisor may take to send a log, and that a start waits for a supervisor
_LOG_TIMEOUT, _HOST_TIMEOUT = 3.0, 3.0

#: most bytes of the log, and most characters of the detail, that are kept of a failed sandbox
MOST_LOG_BYTES, MOST_DETAIL = 256 * 1024, 8 * 1024

_DIGITS = string.digits + string.ascii_letters


@dataclass(frozen=True, slots=True)
class Limits:
    """The settings of sandboxes and of start tasks. Times are in seconds or days, as their names say."""

    most: int
    pause_idlest: bool
    host_seconds: float
    start_seconds: float
    start_task_days: float = 36_500.0

    @property
    def spans(self) -> list[int]:
        """µs after which a host is lost, and a sandbox that no host takes has failed."""
        return [round(self.host_seconds * 1e6), round(self.start_seconds * 1e6)]


@dataclass(frozen=True, slots=True)
class Sandbox:
    """One sandbox at the time of its reading. Times are in µs by Redis' clock; the handle is its runtime's."""

    id: SandboxId
    spec_id: str
    status: str
    wanted: str
    host: str
    session_api_key: str = field(repr=False)
    created_at: Micros
    starting_at: Micros
    active_at: Micros
    handle: dict[str, Any] | None
    agent_url: str
    urls: list[dict[str, Any]]
    detail: str
    source: dict[str, Any] | None  #: where its first files come from: {sandbox: id} or {archive: transfer, format}
    seen_at: Micros = field(compare=False)  #: the time of the reading, which its ages are measured to


class Sandboxes:
    """All sandboxes of all hosts. Every age is measured by Redis' clock, whatever the callers' clocks say."""

    def __init__(self, redis: "Redis", scripts: Scripts, limits: Limits) -> None:
        self._redis = redis
        self._scripts = scripts
        self.limits = limits
        self._spans = limits.spans
        self._room = [limits.most, "pause" if limits.pause_idlest else "refuse"]

    # the desired state: workers

    def start(
        self,
        spec_id: str,
        sandbox_id: SandboxId | None = None,
        *,
        source: dict[str, Any] | None = None,
        host: str = "",
    ) -> Sandbox:
        """Ask for a sandbox, once per id; it is STARTING until its agent server responds.

        source: where its first files come from. host: the one that must take it.
        Waits a little for a supervisor, as when the server has just begun. Raises NoSupervisor, TooManySandboxes.
        """
        identity, key = sandbox_id or SandboxId(random_text(22)), random_text(43)
        origin = json.dumps(source) if source else ""
        args = [identity, spec_id, key, key_hash(key), *self._room, self._spans[0], origin, host]
        deadline = time.monotonic() + _HOST_TIMEOUT
        while (reply := self._scripts.start_sandbox([SandboxKeys.root], args)) == ("no host",):
            _wait_for_a_host(deadline)
        match reply:
            case ("full", number):
                raise TooManySandboxes(number, self.limits.most)
            case (_, now, fields):
                return _sandbox(fields, now)
        raise AssertionError(f"start_sandbox replied {reply!r}")

    def require_host(self) -> None:
        """Wait a little for a supervisor, as when the server has just begun. Raises NoSupervisor."""
        deadline = time.monotonic() + _HOST_TIMEOUT
        while not self._scripts.count_hosts([SandboxKeys.root], self._spans[:1]):
            _wait_for_a_host(deadline)

    def ask(self, sandbox_id: SandboxId, verb: str, *, wait: float = 0) -> None:
        """Pause, resume or delete, as `_sandbox.lua` has it.

        wait: seconds in which the supervisor must have paused or deleted it; a resume is not waited for. Without, the
        request alone is noted. Raises SandboxNotFound, SandboxRefuses, TooManySandboxes and, of a pause or a deletion
        that takes longer and goes on, NotDoneYet.
        """
        reply = self._scripts.ask_sandbox([SandboxKeys.root], [sandbox_id, verb, *self._room])
        if reply is None:
            raise SandboxNotFound
        outcome, status, number = reply
        if outcome == "refused":
            raise SandboxRefuses(verb, status)
        if outcome == "full":
            raise TooManySandboxes(number, self.limits.most)
        if wait and verb == "delete":
            self._wait_for_deletion(sandbox_id, wait)
        elif wait and verb == "pause":
            self._wait_for_pause(sandbox_id, wait)

    def _wait_for_deletion(self, sandbox_id: SandboxId, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (sandbox := self.get_many([sandbox_id])[0]) is not None:
            if time.monotonic() > deadline:
                raise NotDoneYet("deleted", sandbox.detail)
            time.sleep(_POLL)

    def _wait_for_pause(self, sandbox_id: SandboxId, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (sandbox := self.get(sandbox_id)).status != "PAUSED":
            if sandbox.status != "RUNNING":  # it ended, or its host was lost
                raise SandboxRefuses("pause", sandbox.status)
            if sandbox.wanted != "paused":
                raise SandboxRefuses("pause", "being deleted" if sandbox.wanted == "deleted" else "being resumed")
            if time.monotonic() > deadline:
                raise NotDoneYet("paused", sandbox.detail)
            time.sleep(_POLL)

    def use(self, sandbox_id: SandboxId) -> Sandbox | None:
        """A sandbox; the call counts as a use, so it is not idle. None for an id that is unknown. One round trip."""
        reply = self._scripts.use_sandbox([SandboxKeys.root], [sandbox_id, *self._spans])
        return None if reply is None else _sandbox(reply[1], reply[0])

    def of_key(self, session_api_key: str) -> SandboxId | None:
        """The sandbox of a session key; the call counts as a use of it. One round trip.

        The key of a sandbox that is ERROR, being deleted or gone is unknown: None.
        """
        stored = self._scripts.open_sandbox([SandboxKeys.root], [key_hash(session_api_key)])
        return SandboxId(stored.decode()) if stored else None

    # reading

    def get(self, sandbox_id: SandboxId) -> Sandbox:
        """Raises SandboxNotFound."""
        [sandbox] = self.get_many([sandbox_id])
        if sandbox is None:
            raise SandboxNotFound
        return sandbox

    def get_many(self, sandbox_ids: Sequence[SandboxId]) -> list[Sandbox | None]:
        """Sandboxes in the order of the ids, None for an id that is unknown. One round trip."""
        args = [*self._spans, "", *sandbox_ids]
        if not sandbox_ids:
            return []
        now, *found = self._scripts.read_sandboxes([SandboxKeys.root], args)
        return [_sandbox(fields, now) if b"status" in fields[::2] else None for fields in found]

    def search(
        self, *, status: str | None, spec_id: str | None, limit: int, start: tuple[Micros, SandboxId] | None
    ) -> tuple[list[Sandbox], tuple[Micros, SandboxId] | None]:
        """One page, newest first, and the cursor of the next one: time and id of its first sandbox. One round trip."""
        args = [*self._spans, status or "", spec_id or "", limit + 1, *(start or ("", ""))]
        now, *found = self._scripts.page_sandboxes([SandboxKeys.root], args)
        page = [_sandbox(fields, now) for fields in found]
        return page[:limit], (page[limit].created_at, page[limit].id) if len(page) > limit else None

    def log(self, sandbox_id: SandboxId, tail: int) -> str:
        """The last lines that a sandbox printed. Raises SandboxNotFound, NoSupervisor."""
        sandbox = self.get(sandbox_id)
        if sandbox.status == "ERROR" or not sandbox.host:
            kept: Any = self._redis.get(SandboxKeys.log(sandbox_id))
            return "\n".join((kept or b"").decode().splitlines()[-tail:])
        reply = SandboxKeys.reply(str(uuid4()))
        ask_supervisors(self._redis, "log", sandbox_id, tail=tail, reply=reply)
        deadline = time.monotonic() + _LOG_TIMEOUT
        while time.monotonic() < deadline:
            text: Any = self._redis.lpop(reply)
            if text is not None:
                return str(text.decode())
            time.sleep(_POLL)
        raise NoSupervisor

    # the observed state: supervisors

    def beat(self, host: str, supervisor: str) -> bool:
        """Write a supervisor's heartbeat; False if another one speaks for the host. Marks lost sandboxes MISSING."""
        args = [host, supervisor, *self._spans]
        return self._scripts.beat_host([SandboxKeys.root], args) == ("alive",)

    def release(self, host: str, supervisor: str) -> None:
        """Release a host, if this supervisor speaks for it: another one may take it at once."""
        self._scripts.release_host([SandboxKeys.root], [host, supervisor])

    def claim(self, host: str) -> SandboxId | None:
        """Take the sandbox that has waited longest for a host."""
        claimed = self._scripts.claim_sandbox([SandboxKeys.root], [host, self.limits.most])
        return SandboxId(claimed.decode()) if claimed else None

    def of_host(self, host: str) -> list[Sandbox]:
        """Every sandbox that a host holds. One round trip."""
        now, *found = self._scripts.read_sandboxes([SandboxKeys.root], [*self._spans, host])
        return [_sandbox(fields, now) for fields in found if b"status" in fields[::2]]

    def report(
        self, sandbox_id: SandboxId, host: str, supervisor: str, status: str = "", *, log: str = "", **fields: Any
    ) -> bool:
        """Write the observed state; status "GONE" removes the record, log has the last lines of a failed sandbox.

        False if the status cannot follow, if the sandbox is not that host's, or if another one speaks for the host.
        """
        if "detail" in fields:
            fields["detail"] = _shortened(fields["detail"])
        words = [word for name, value in fields.items() for word in (name, _stored(value))]
        last = log.encode()[-MOST_LOG_BYTES:].decode(errors="ignore")
        args = [sandbox_id, host, supervisor, status, last, *words]
        return self._scripts.report_sandbox([SandboxKeys.root], args) == ("noted",)

    def send_log(self, reply: str, text: str) -> None:
        """Send a log to the worker that asked for it."""
        with self._redis.pipeline() as pipe:
            pipe.rpush(reply, text)
            pipe.expire(reply, 10)
            pipe.execute()


def _wait_for_a_host(deadline: float) -> None:
    if time.monotonic() > deadline:
        raise NoSupervisor
    time.sleep(_POLL)


def _stored(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _shortened(detail: str) -> str:
    """A detail with its reason, which stands first, and its last lines."""
    half = MOST_DETAIL // 2 - 2
    return detail if len(detail) <= MOST_DETAIL else f"{detail[:half]}\n…\n{detail[-half:]}"


def _sandbox(fields: list[bytes], now: bytes) -> Sandbox:
    words = {name.decode(): value.decode() for name, value in zip(fields[::2], fields[1::2], strict=True)}
    texts = ("id", "spec_id", "status", "wanted", "host", "session_api_key", "agent_url", "detail")
    values: dict[str, Any] = {name: words[name] for name in texts}
    values |= {name: int(words[name]) for name in ("created_at", "starting_at", "active_at")}
    handle, urls = json.loads(words["handle"] or "null"), json.loads(words.get("urls") or "[]")
    source = json.loads(words.get("source") or "null")
    return Sandbox(**values, handle=handle, urls=urls, source=source, seen_at=Micros(int(now)))


def random_text(length: int) -> str:
    """Random letters and digits, of nearly six bits each."""
    return "".join(secrets.choice(_DIGITS) for _ in range(length))


def key_hash(session_api_key: str) -> str:
    """The hash under which a session key is looked up."""
    return sha256(session_api_key.encode("utf-8", "surrogatepass")).hexdigest()
