"""Drives start tasks of app conversations, each by one thread that holds its lease.

Every step may be repeated: the next driver of a start task begins again, and finds the earlier driver's steps done.
"""

import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from agents.commands import Commands
from agents.link import AgentRefused, AgentUnreachable
from agents.reach import NotReachable
from agents.room import with_room
from redaction import without_secrets_of
from specs import Spec, SpecNotFound, Specs
from store import Store
from store.errors import (
    UNAVAILABLE,
    ConversationNotFound,
    SandboxNotFound,
    SandboxRefuses,
    SecretsRefused,
    StoreError,
)
from store.link import traces
from store.sandboxes.sandbox_record import Sandbox, SandboxId, random_text
from store.sandboxes.start_tasks import LEASE, MOST_ATTEMPTS, StartTask
from supervisor.failures import CannotStart, ParentRefused, failure_of
from supervisor.new_conversations import INHERITED, new_conversation
from supervisor.renewal import renewed
from supervisor.warm import pool_of
from wire import ConversationId

log = logging.getLogger("supervisor")

#: statuses without work here: the agent prepares a repository. Clients expect them. Source: the app-server wire
_PASSED = ("PREPARING_REPOSITORY", "RUNNING_SETUP_SCRIPT", "SETTING_UP_GIT_HOOKS", "SETTING_UP_SKILLS")

#: seconds between two polls of a sandbox that is starting
_POLL = 0.1

#: most conversations in one shared sandbox. Source: the app-server wire
MOST_SHARING = 20

#: warm sandboxes that a start task tries whose agent servers do not answer, before it starts one of its own
MOST_DEAD = 3


class LeaseLost(Exception):
    """Another driver has the start task by now, or it is finished or gone."""


class StartDriver:
    """Drives start tasks. Any number of threads may use it."""

    def __init__(self, store: Store, commands: Commands, specs: Specs, *, shared: bool, start_seconds: float) -> None:
        self._store = store
        self._commands = commands
        self._specs = specs
        self._shared = shared
        self._start_seconds = start_seconds

    def drive(self, start: StartTask, lease: str) -> None:
        """Bring a start task to READY or ERROR. An unforeseen error is logged and retried, each time later.

        Raises what redis-py raises while Redis is not available: the lease ends, and a supervisor claims it again.
        """
        with traces.continued(start.trace, "start_conversation", {"gen_ai.conversation.id": start.conversation_id}):
            self._attempt(start, lease)

    def _attempt(self, start: StartTask, lease: str) -> None:
        try:
            # An agent that loads its tools takes longer than one lease.
            with renewed(partial(self._store.start_tasks.renew, start.id, lease), LEASE):
                self._drive(start, lease)
        except LeaseLost as error:
            traces.fail(type(error).__name__)
            log.info("start task %s: another driver has it, or it is finished", start.id)
            self._clear_after_the_end(start.id)
        except UNAVAILABLE:
            raise
        except (CannotStart, StoreError, SpecNotFound, NotReachable, AgentUnreachable, AgentRefused) as error:
            self._fail(start, lease, error)
        except Exception as error:
            traces.fail(type(error).__name__)
            log.exception("start task %s: attempt %d of %d", start.id, start.attempts, MOST_ATTEMPTS)
            backoff = LEASE * 2**start.attempts if start.attempts < MOST_ATTEMPTS else 0
            self._store.start_tasks.postpone(start.id, lease, backoff)

    def clear_failed(self) -> None:
        """Remove the conversations and sandboxes that failed start tasks have left, one start task after the other."""
        while failed := self._store.start_tasks.claim_failed():
            self._clear(failed)

    def _drive(self, start: StartTask, lease: str) -> None:
        if self._is_taken(start):  # before a sandbox is started for nothing
            raise CannotStart(f"A conversation of the id {start.conversation_id} exists", 409)
        request = self._with_parent(start.request)
        start = self._with_sandbox(start, lease, request)
        sandbox = self._running(start)
        for status in _PASSED:
            self._advance(start, lease, status=status)
        self._advance(start, lease, status="STARTING_CONVERSATION", agent_server_url=sandbox.agent_url)
        new = new_conversation(self._store, start, request, sandbox, self._specs.get(sandbox.spec_id))
        self._store.conversations.create(start.conversation_id, **new.kept)
        if not self._is_its(start):
            raise CannotStart(f"A conversation of the id {start.conversation_id} exists", 409)
        self._commands.agent_in(sandbox.id).start(new.body, self._start_seconds, new.headers)
        if not self._store.start_tasks.finish(start.id, lease, "READY"):
            raise LeaseLost

    def _with_parent(self, request: dict[str, Any]) -> dict[str, Any]:
        parent_id = request.get("parent_conversation_id")
        if not parent_id:
            return request
        try:
            parent = self._store.app_conversations.get(ConversationId(parent_id))
        except ConversationNotFound:
            raise ParentRefused(f"There is no conversation {parent_id} that could be the parent") from None
        inherited = {"sandbox_id": parent["sandbox_id"]} | {name: parent["app"].get(name) for name in INHERITED}
        return inherited | {name: value for name, value in request.items() if value is not None}

    def _with_sandbox(self, start: StartTask, lease: str, request: Mapping[str, Any]) -> StartTask:
        """Choose the sandbox, or name a new one before it is started, so that a second driver starts no second one."""
        warm = None
        if not start.sandbox_id:
            spec = self._specs.get(request.get("sandbox_spec_id"))
            chosen = request.get("sandbox_id") or (self._shared and self._with_room(spec.id))
            warm = None if chosen else self._warm_one(spec, start, gives_way="kept" in request)
            identity = chosen or warm or f"{start.id[:10]}{random_text(12)}"
            start = start._replace(sandbox_id=identity, own_sandbox=not chosen)
            own = "1" if start.own_sandbox else ""
            status = "WAITING_FOR_SANDBOX"
            self._advance(start, lease, status=status, sandbox_id=start.sandbox_id, own_sandbox=own)
        if start.own_sandbox and not warm:
            spec_id, gives_way = self._specs.get(request.get("sandbox_spec_id")).id, "kept" in request
            identity = SandboxId(start.sandbox_id)
            with_room(self._store, lambda: self._store.sandboxes.start(spec_id, identity, gives_way=gives_way))
        return start

    def _warm_one(self, spec: Spec, start: StartTask, *, gives_way: bool) -> SandboxId | None:
        """A warm sandbox whose agent server answers, bound to the start task; one that does not answer is deleted."""
        for _ in range(MOST_DEAD if spec.warm else 0):
            identity = self._store.warm.claim(pool_of(spec), start.id, gives_way=gives_way)
            if identity is None:
                return None
            with suppress(NotReachable, AgentUnreachable):
                if self._commands.agent_in(identity).is_alive():
                    return identity
            with suppress(SandboxNotFound, SandboxRefuses):
                self._store.sandboxes.ask(identity, "delete")
        return None

    def _with_room(self, spec_id: str) -> str | None:
        """The running sandbox of a spec with the fewest conversations, if one has room."""
        running, _ = self._store.sandboxes.search(status="RUNNING", spec_id=spec_id, limit=100, start=None)
        numbers = [
            (self._store.app_conversations.in_sandbox(one.id), one.id)
            for one in running
            if one.wanted == "running" and not one.warm
        ]
        number, identity = min(numbers, default=(MOST_SHARING, None))
        return identity if number < MOST_SHARING else None

    def _running(self, start: StartTask) -> Sandbox:
        """Wait until the sandbox runs; resume a paused sandbox."""
        identity = SandboxId(start.sandbox_id)
        deadline = time.monotonic() + 2 * self._start_seconds
        while time.monotonic() < deadline:
            try:
                sandbox = self._store.sandboxes.get(identity)
            except SandboxNotFound:
                raise CannotStart(f"Sandbox not found: {identity}") from None
            if sandbox.status == "RUNNING" and sandbox.wanted == "running":
                return sandbox
            if sandbox.status == "PAUSED":
                with_room(self._store, lambda: self._store.sandboxes.ask(identity, "resume"))
            if sandbox.status in ("ERROR", "MISSING") or sandbox.wanted == "deleted":
                raise CannotStart(f"The sandbox {identity} is {sandbox.status}: {sandbox.detail or 'no reason known'}")
            time.sleep(_POLL)
        raise CannotStart(f"The sandbox {identity} did not run in time", 503)

    def _is_taken(self, start: StartTask) -> bool:
        """Whether the id of the conversation is that of another one."""
        with suppress(ConversationNotFound):
            return not self._is_its(start)
        return False

    def _is_its(self, start: StartTask) -> bool:
        """Whether this start task created the conversation. Raises ConversationNotFound."""
        app = self._store.conversations.get(start.conversation_id)["app"] or {}
        return bool(app.get("start_id") == start.id)

    def _advance(self, start: StartTask, lease: str, **fields: str) -> None:
        if not self._store.start_tasks.advance(start.id, lease, **fields):
            raise LeaseLost

    def _fail(self, start: StartTask, lease: str, error: Exception) -> None:
        """Write the failure of a start task first, and only then remove what it created: a READY one stays."""
        traces.fail(type(error).__name__)
        body = None if isinstance(error, SecretsRefused) else self._store.start_tasks.body_of(start)
        reason = without_secrets_of(body, str(error) or type(error).__name__)
        if self._store.start_tasks.fail(start, lease, reason, failure_of(error, reason, body)):
            log.warning("start task %s: %s", start.id, reason)
            self.clear_failed()

    def _clear_after_the_end(self, start_id: str) -> None:
        """Remove what this driver created after another driver had failed the start task and cleared it away."""
        [known] = self._store.start_tasks.get_many([start_id])
        if known is not None and known.status == "ERROR":
            self._clear(known)

    def _clear(self, failed: StartTask) -> None:
        """Remove the conversation of a failed start task, and its own sandbox if no other conversation is in it."""
        with suppress(ConversationNotFound):
            if self._is_its(failed):
                self._store.conversations.delete(failed.conversation_id)
        claimed = None if failed.sandbox_id else self._store.warm.claimed_by(failed.id)
        sandbox_id = SandboxId(failed.sandbox_id or claimed or failed.request.get("sandbox_id") or "")
        self._store.places.leave(sandbox_id, failed.conversation_id)
        if (failed.own_sandbox or claimed) and not self._store.app_conversations.in_sandbox(sandbox_id):
            with suppress(SandboxNotFound, SandboxRefuses):
                self._store.sandboxes.ask(sandbox_id, "delete")
        self._store.start_tasks.cleared(failed.id)
