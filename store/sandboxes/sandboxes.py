"""Sandboxes: the desired state and the observed state of each. All sandboxes lie in one slot.

Workers write the desired state and supervisors the observed one, each by one script; `_sandbox.lua` has the state
machine.
"""

import json
import time
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from redis import Redis

from store.errors import NoSupervisor, NotDoneYet, SandboxNotFound, SandboxRefuses, TooManySandboxes, TooManyStopped
from store.keys import SandboxKeys
from store.link import traces
from store.link.attempts import is_finished, minted_text
from store.link.secrets import Sealer
from store.link.wakeups import ask_supervisors
from store.sandboxes.checks import CHECK_SPAN
from store.sandboxes.sandbox_record import Limits, Sandbox, SandboxId, key_hash, random_text, read_sandbox, shortened
from store.scripts import Scripts
from wire import Micros

#: seconds between two polls while a method waits; between the first two for a pause, of which each wait is a bit longer
_POLL, _FIRST_POLL, _GROWTH = 0.02, 0.003, 1.25

#: seconds that a supervisor may take to send a log, and that a start waits for a supervisor
_LOG_TIMEOUT, _HOST_TIMEOUT = 3.0, 3.0

#: most bytes of the log that are kept of a sandbox without processes
MOST_LOG_BYTES = 256 * 1024


class Sandboxes:
    """All sandboxes of all hosts. Every age is measured by Redis' clock, whatever the callers' clocks say."""

    def __init__(self, redis: "Redis", scripts: Scripts, limits: Limits, sealer: Sealer) -> None:
        self._redis = redis
        self._scripts = scripts
        self._sealer = sealer
        self.limits = limits
        self._spans = limits.spans
        self._room = [limits.most, "pause" if limits.pause_idlest else "refuse"]
        self._keep = round(limits.keep_failed_days * 86_400e6)

    # the desired state: workers

    def start(
        self,
        spec_id: str,
        sandbox_id: SandboxId | None = None,
        *,
        source: dict[str, Any] | None = None,
        host: str = "",
        gives_way: bool = False,
    ) -> Sandbox:
        """Ask for a sandbox, once per id; it is STARTING until its agent server responds.

        source: where its files come from. host: the one that has it; empty: any. gives_way: see `agents/room.py`. Waits
        a little for a supervisor, as when the server has just begun. Raises NoSupervisor, TooManySandboxes,
        TooManyStopped, SecretsRefused, and SandboxNotFound of the repeat of a finished request whose sandbox was
        deleted since.
        """
        identity = sandbox_id or SandboxId(minted_text("sandbox"))
        if is_finished():
            return self.get(identity)
        files_key = self._sealer.seal_key(identity, random_text(43))
        args = [identity, spec_id, *self._room, self._spans[0], self.limits.most_stopped]
        args += [files_key, json.dumps(source), host, "1" if gives_way else "", traces.traceparent()]
        deadline = time.monotonic() + _HOST_TIMEOUT
        while (reply := self._scripts.start_sandbox([SandboxKeys.root], args)) == ("no host",):
            _wait_for_a_host(deadline)
        match reply:
            case ("full", number):
                raise TooManySandboxes(number, self.limits.most)
            case ("kept", number):
                raise TooManyStopped(number, self.limits.most_stopped)
            case (_, now, fields):
                return self._read(fields, now)
        raise AssertionError(f"start_sandbox replied {reply!r}")

    def _read(self, fields: list[bytes], now: bytes) -> Sandbox:
        return read_sandbox(fields, now, self._sealer)

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
        args = [sandbox_id, verb, *self._room, self._spans[0], traces.traceparent()]
        reply = self._scripts.ask_sandbox([SandboxKeys.root], args)
        if reply is None:
            raise SandboxNotFound
        outcome, status, number = reply
        if outcome == "lost":
            raise SandboxRefuses(verb, f"MISSING, and its host {status}, which has its files, does not answer")
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
        """A sandbox; the call counts as a use, so it is not idle. None for an id that is unknown. One round trip."""
        reply = self._scripts.use_sandbox([SandboxKeys.root], [sandbox_id, *self._spans])
        return None if reply is None else self._read(reply[1], reply[0])

    def of_hook_key(self, key: str, conversation_id: str = "") -> SandboxId | None:
        """The sandbox whose webhooks bear a key; the call counts as a use of it. One round trip.

        conversation_id: the one that the webhook is about, which is compared with its agent soon.

        The key of a sandbox that is ERROR, being deleted or gone is unknown, and so is that of an earlier start: None.
        """
        stored = self._scripts.open_sandbox([SandboxKeys.root], [key_hash(key), conversation_id, CHECK_SPAN])
        return SandboxId(stored.decode()) if stored else None

    def of_session_key(self, key: str) -> SandboxId | None:
        """The sandbox whose agent server a key opens; None as `of_hook_key`, and no use is noted. One round trip."""
        stored: Any = self._redis.hget(SandboxKeys.by_key, f"session {key_hash(key)}")
        return SandboxId(stored.decode()) if stored else None

    def settled_start(self, sandbox_id: SandboxId) -> int:
        """The start after which the conversations of a sandbox were settled last; 0: never."""
        stored: Any = self._redis.hget(SandboxKeys.box(sandbox_id), "settled")
        return int(stored or 0)

    def note_settled(self, sandbox_id: SandboxId, start: int) -> None:
        """Note that the conversations of a sandbox are settled after a start of its processes."""
        self._scripts.note_settled([SandboxKeys.root], [sandbox_id, start])

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
        return [self._read(fields, now) if b"status" in fields[::2] else None for fields in found]

    def search(
        self, *, status: str | None, spec_id: str | None, limit: int, start: tuple[Micros, SandboxId] | None
    ) -> tuple[list[Sandbox], tuple[Micros, SandboxId] | None]:
        """One page, newest first, and the cursor of the next one: time and id of its first sandbox. One round trip."""
        args = [*self._spans, status or "", spec_id or "", limit + 1, *(start or ("", ""))]
        now, *found = self._scripts.page_sandboxes([SandboxKeys.root], args)
        page = [self._read(fields, now) for fields in found]
        return page[:limit], (page[limit].created_at, page[limit].id) if len(page) > limit else None

    def log(self, sandbox_id: SandboxId, tail: int) -> str:
        """The last lines that a sandbox printed. Raises SandboxNotFound, NoSupervisor."""
        sandbox = self.get(sandbox_id)
        if sandbox.status == "ERROR" or sandbox.handle is None:
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
        return [self._read(fields, now) for fields in found if b"status" in fields[::2]]

    def report(
        self, sandbox_id: SandboxId, host: str, supervisor: str, status: str = "", *, log: str = "", **fields: Any
    ) -> bool:
        """Write the observed state; status "GONE" removes the record, log has the last lines of ended processes.

        False if the status cannot follow, if the sandbox is not that host's, or if another one speaks for the host.
        """
        if "detail" in fields:
            fields["detail"] = shortened(fields["detail"])
        words = [word for name, value in fields.items() for word in (name, _stored(value))]
        args = [sandbox_id, host, supervisor, status, _last(log), *words]
        return self._scripts.report_sandbox([SandboxKeys.root], args) == ("noted",)

    def begin(self, sandbox_id: SandboxId, host: str, supervisor: str, runtime: str) -> str | None:
        """Number a start of processes in a runtime, and give it two keys of its own. Returns the hook key.

        The hook key is kept as its hash alone: only the caller has it, and must give it to the processes. A caller that
        is killed before leaves a number that no process has, and the next one begins again.
        None if the sandbox is not to run, not that host's, or if another supervisor speaks for the host.
        Raises SecretsRefused.
        """
        hook_key, session_key = random_text(43), random_text(43)
        sealed, hashes = self._sealer.seal_key(sandbox_id, session_key), [key_hash(hook_key), key_hash(session_key)]
        args = [sandbox_id, host, supervisor, sealed, hashes[0], runtime, hashes[1]]
        return hook_key if self._scripts.begin_sandbox([SandboxKeys.root], args) == ("begun",) else None

    def stopped(self, sandbox: Sandbox, supervisor: str, detail: str, *, log: str = "", resumes: bool = False) -> bool:
        """Note that the processes of a sandbox have ended and its files are kept: it is PAUSED until it is used.

        sandbox: as its supervisor saw it; where a client has asked for a resume since, it is STARTING. log: its last
        lines. resumes: RESUME_SANDBOXES starts it again. False as `report`.
        """
        args = [sandbox.id, sandbox.host, supervisor, sandbox.wanted, shortened(detail), _last(log), int(resumes)]
        return self._scripts.stop_sandbox([SandboxKeys.root], args) == ("noted",)

    def expire_failed(self) -> None:
        """Delete sandboxes that have been ERROR for longer than `Limits.keep_failed_days`, at most 100 per call."""
        if self._keep:
            self._scripts.expire_sandboxes([SandboxKeys.root], [self._keep])

    def removals(self, host: str) -> list[tuple[str, SandboxId]]:
        """Sandboxes that were deleted while their host was lost, each after the name of its runtime."""
        found: Any = self._redis.smembers(SandboxKeys.removals(host))
        pairs = [member.decode().split(" ", 1) for member in found]
        return [(runtime, SandboxId(identity)) for runtime, identity in pairs]

    def removed(self, host: str, runtime: str, sandbox_id: SandboxId) -> None:
        """Note that a host has removed one of its `removals`."""
        self._redis.srem(SandboxKeys.removals(host), f"{runtime} {sandbox_id}")

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


def _last(log: str) -> str:
    return log.encode()[-MOST_LOG_BYTES:].decode(errors="ignore")


def _stored(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
