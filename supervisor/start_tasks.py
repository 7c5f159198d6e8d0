"""Drives start tasks of app conversations, each in a thread that holds its lease.

Every step may be repeated: the next driver of a start task starts over, and finds the completed steps.

The response to a request that waited for a failed start:

| cause                                                    | status                        |
|----------------------------------------------------------|-------------------------------|
| the agent server refuses the body with 404, 422 or 429   | the same; its detail with 422 |
| no place became free in time (MAX_SANDBOXES)             | 429, with `Retry-After`       |
| the maximum number of conversations in a sandbox         | 429                           |
| the request's parent is invalid                          | 422, which names the member   |
| the key may not join the sandbox, or was revoked         | 403                           |
| a conversation of that id exists                         | 409; the request looks again  |
| a client ended the start, or deleted its conversation    | 410                           |
| the sandbox did not start in time                        | 503                           |
| anything else                                            | 502                           |
"""

import json
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple
from uuid import NAMESPACE_OID, UUID, uuid5

from agents.client import AgentRefused, AgentUnreachable, detail_of
from agents.commands import Commands
from agents.deletions import tell_agent
from agents.joins import JoinRefused, join, policy_of_start, require_join, require_live, require_start
from agents.model_addresses import within_reach
from agents.modes import start_fault
from agents.places import after_making_room
from agents.repositories import clone
from agents.starts import (
    asked_dir,
    conversation_request,
    in_workspace,
    movable,
    own_request,
    template_of,
    title_of_message,
    working_folder,
)
from agents.waking import NotReachable
from core.cuts import beginning
from core.masking import Mask, without_inputs, without_secrets_of
from core.modes import mode_named
from core.repositories import clone_host
from core.scopes import Origin, folder_name, repository_name
from core.wire import ConversationId, Seq, now, one_line, own_event
from settings.egress import secrets_inside
from settings.specs import Spec, SpecNotFound, Specs
from store import Store
from store.errors import (
    UNAVAILABLE,
    ConversationNotFound,
    NoSupervisor,
    SandboxNotFound,
    SandboxRefuses,
    SecretsRefused,
    StoreError,
    TooManyConversations,
    TooManySandboxes,
    TooManyStopped,
)
from store.sandboxes.sandboxes import Sandbox, SandboxId, random_text
from store.sandboxes.start_tasks import LEASE, MOST_ATTEMPTS, Failure, StartTask
from supervisor.endings import RESUMABLE
from supervisor.forks import agents_request, copy_log
from supervisor.presence import LeaseLost, Silences, renewed
from supervisor.upkeep import pool_of
from telemetry import traces

log = logging.getLogger("supervisor")

#: Statuses by which an agent server refuses the body.
_PASSED_ON = (404, 422, 429)

#: Maximum size of a detail that is passed on, in bytes.
_MOST_BYTES = 64 * 1024


#: Members of the request that default to the parent's, and members that an app conversation stores.
INHERITED = ("selected_repository", "selected_branch", "git_provider", "llm_model")
_APP_FIELDS = (*INHERITED, "trigger", "pr_number", "public", "parent_conversation_id", "goes_on_when_allowed")

#: Maximum number of characters of the detail of a READY start.
_LONGEST_DETAIL = 4000

#: Statuses without work here, which clients expect. Source: the app-server wire.
_PASSED = ("RUNNING_SETUP_SCRIPT", "SETTING_UP_GIT_HOOKS", "SETTING_UP_SKILLS")

#: Interval in seconds between two polls of a starting sandbox.
_POLL = 0.1

#: Maximum number of conversations in a shared sandbox. Source: the app-server wire.
MOST_SHARING = 20

#: Number of unresponsive warm sandboxes that a start task tries before it starts its own.
MOST_DEAD = 3

#: Delay in seconds between two attempts while a sandbox is temporarily unreachable, and maximum number of attempts. The
#: product is an hour, independent of clocks.
WAIT, MOST_WAITS = 5.0, 720

#: Maximum number of conversations that a supervisor starts at once in a sandbox, whose agent server may be slow.
MOST_OF_ONE = 16

#: Longest time in seconds between two polls that counts.
_MOST_APART = 5.0


class CannotStart(Exception):
    """Raised to fail the start task. The message is for the client."""

    def __init__(self, message: str, status: int = 502) -> None:
        super().__init__(message)
        self.status = status


class NoPlace(CannotStart):
    """Raised if no place became free for a start's sandbox in time."""


class ParentRefused(CannotStart):
    """Raised if the request's parent is invalid."""

    def __init__(self, message: str) -> None:
        super().__init__(message, 422)


def failure_of(error: Exception, reason: str, clean: Callable[[Any], Any]) -> Failure:
    """Return the response to a request that waited for a failed start.

    clean: masks the start's secrets in text of its agent server.
    """
    match error:
        case AgentRefused(status=status) if status in _PASSED_ON:
            detail = _agents_detail(error.body) if status == 422 else reason
            return Failure(status, clean(detail or reason))
        case TooManySandboxes() | NoPlace():
            return Failure(429, reason, is_passing=True)
        case TooManyStopped() | TooManyConversations():
            return Failure(429, reason)
        case ParentRefused():
            return Failure(422, [{"type": "value_error", "loc": ["body", "parent_conversation_id"], "msg": reason}])
        case JoinRefused():
            return Failure(403, reason)
        case CannotStart(status=status):
            return Failure(status, reason)
    return Failure(502, reason)


def _agents_detail(raw: bytes) -> Any:
    """Return the `detail` of an agent server's refusal; None if it has none, or if it is too long."""
    try:
        detail = json.loads(raw)["detail"] if len(raw) <= _MOST_BYTES else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return without_inputs(detail)


class NewConversation(NamedTuple):
    """A conversation to create. body, headers: for the agent server. kept: the arguments of `Conversations.create`."""

    body: dict[str, Any]
    headers: dict[str, str]
    kept: dict[str, Any]
    told: tuple[str, ...] = ()  #: notices about replacements in the request


def new_conversation(
    store: Store, start: StartTask, request: Mapping[str, Any], sandbox: Sandbox, spec: Spec
) -> NewConversation:
    """Build the request from the client's body, if there is one, else from the app conversation.

    Raises SecretsRefused.
    """
    secrets, given = store.start_tasks.secrets_of(start), store.start_tasks.body_of(start)
    if given is None:
        template = template_of(spec, sandbox, request.get("llm_model"))
        new = _of_app(start, request, template, spec.working_dir, secrets)
    else:
        folder, asked = working_folder(sandbox, spec), asked_dir(given["body"])
        if sandbox.adopted == start.id:
            given = {**given, "body": in_workspace(given["body"], folder)}
        new = _of_client(start, request, given, folder)
        reached, told = within_reach(new.body, spec, sandbox.egress_url)
        new = new._replace(body=reached, told=tuple(told))
        new.kept["asked_dir"] = asked
        new.kept["origin"] = Origin(start.owner, folder=folder_name(asked))
        kept = movable(given["body"], folder)
        new.kept["start_body"] = store.start_tasks.bodies.sealed(start.conversation_id, kept)
    if not new.kept.get("title"):  # its events are masked, and so must be titles derived from them
        hidden = {"body": given and given["body"], "secrets": secrets}
        words = without_secrets_of(hidden, title_of_message(new.kept.get("initial_message")))
        new.kept["title"] = words or (f"Conversation {start.conversation_id[:5]}" if given is None else None)
    if "secrets" in new.body:
        new.body["secrets"] = secrets_inside(new.body["secrets"], spec.services)
    common: dict[str, Any] = {"secrets": secrets, "sandbox_id": sandbox.id}
    if new.kept.get("confirmation_seconds") is None:
        common["confirmation_seconds"] = spec.confirmation_seconds
    return new._replace(kept={**new.kept, **common})


def _of_app(
    start: StartTask,
    request: Mapping[str, Any],
    template: Mapping[str, Any],
    working_dir: str,
    secrets: dict[str, Any],
) -> NewConversation:
    identity = start.conversation_id
    body = conversation_request(identity, request, template, working_dir)
    mode = mode_named(request["approval_mode"]) if request.get("approval_mode") else None
    if mode:
        body["confirmation_policy"] = dict(mode.policy)
    app = {name: request[name] for name in (*_APP_FIELDS, "started_from") if request.get(name) is not None}
    kept = {
        "title": request.get("title"),
        "tags": request.get("tags"),
        "confirmation_policy": body.get("confirmation_policy"),
        "approves_inside": mode is not None and mode.approves_inside,
        "confirmation_seconds": request.get("confirmation_seconds"),
        "workspace": body["workspace"],
        "app": {"llm_model": _model(body), "start_id": start.id, "started_by": start.owner} | app,
        "initial_message": (body.get("initial_message") or {}).get("content"),
        "origin": Origin(start.owner, repository_name(request.get("selected_repository"), request.get("git_provider"))),
    }
    return NewConversation(body | ({"secrets": secrets} if secrets else {}), {}, kept)


def _of_client(start: StartTask, request: Mapping[str, Any], given: dict[str, Any], folder: str) -> NewConversation:
    """Build the conversation from a client's body. folder: the sandbox's working folder.

    The request contains the visible part of the body, without its secrets.
    """
    body = own_request(start.conversation_id, given["body"], folder)
    kept, parent_id = dict(request["kept"]), request.get("parent_conversation_id")
    if isinstance(body.get("workspace"), dict):
        kept["workspace"] = {**(kept.get("workspace") or {}), "working_dir": body["workspace"]["working_dir"]}
    kept["app"] = {"llm_model": _model(body), "start_id": start.id, "started_by": start.owner}
    kept["app"] |= {"parent_conversation_id": parent_id} if parent_id else {}
    kept["app"] |= {"started_from": request["started_from"]} if request.get("started_from") else {}
    return NewConversation(body, given["headers"], kept)


def _model(body: Mapping[str, Any]) -> str | None:
    """Return the model of the agent in a body; None if there is none."""
    agent = body.get("agent") or body.get("agent_settings")
    llm = agent.get("llm") if isinstance(agent, dict) else None
    model = llm.get("model") if isinstance(llm, dict) else None
    return model if isinstance(model, str) else None


class MustWait(Exception):
    """Raised if an earlier start task waits for a place."""


class CloneWaits(Exception):
    """Raised if the clone of a start needs a destination that waits for a decision."""


class SandboxBusy(Exception):
    """Raised if the sandbox is already starting its maximum number of conversations."""


class StartDriver:
    """Drives start tasks. Thread-safe."""

    def __init__(self, store: Store, commands: Commands, specs: Specs, *, shared: bool, start_seconds: float) -> None:
        self._store = store
        self._commands = commands
        self._specs = specs
        self._shared = shared
        self._start_seconds = start_seconds
        self._lock = threading.Lock()  #: guards `_in`
        self._in: Counter[str] = Counter()  #: number of running start tasks by sandbox

    def drive(self, start: StartTask, lease: str) -> None:
        """Bring a start task to READY or ERROR. An unforeseen error is logged and retried with backoff.

        Raises the errors of redis-py while Redis is unavailable. Then the lease expires, and a supervisor claims it
        again.
        """
        with traces.continued(start.trace, "start_conversation", {"gen_ai.conversation.id": start.conversation_id}):
            self._attempt(start, lease)

    def _attempt(self, start: StartTask, lease: str) -> None:
        try:
            self._try(start, lease)
        except UNAVAILABLE:
            raise
        except Exception as error:  # also a failure to store the outcome
            traces.fail(type(error).__name__)
            attempt = start.attempts + 1
            log.exception("start task %s: attempt %d of %d", start.id, attempt, MOST_ATTEMPTS)
            backoff = LEASE * 2**attempt if attempt < MOST_ATTEMPTS else 0
            self._store.start_tasks.postpone(start.id, lease, backoff, counter="attempts")

    def _try(self, start: StartTask, lease: str) -> None:
        """Drive a start task to its end, or postpone it. Raises one of UNAVAILABLE, and unforeseen errors."""
        try:
            # An agent that loads its tools takes longer than a lease.
            with renewed(partial(self._store.start_tasks.renew, start.id, lease), LEASE) as presence:
                self._drive(start, lease)
        except LeaseLost as error:
            traces.fail(type(error).__name__)
            log.info("start task %s: another driver has it, or it is finished", start.id)
            self._clear_after_the_end(start.id)
        except UNAVAILABLE:  # includes a Redis without memory, which is also a StoreError
            raise
        except (SandboxBusy, CloneWaits) as error:
            self._put_off(start, lease, str(error))
        except (TooManySandboxes, MustWait) as error:
            self._await_place(start, lease, error)
        except (
            CannotStart,
            JoinRefused,
            StoreError,
            SpecNotFound,
            NotReachable,
            AgentUnreachable,
            AgentRefused,
        ) as error:
            has_ended = isinstance(error, AgentUnreachable) and error.has_ended
            was_away = isinstance(error, AgentUnreachable) and presence.was_away()
            if _may_pass(error) or was_away or (has_ended and not start.waits):
                self._put_off(start, lease, self._clean_of(start)(str(error)))
            elif has_ended:
                again = f"The conversation {start.conversation_id} was not started, in two tries: start it again"
                self._fail(start, lease, CannotStart(f"{error}. {again}, or read the log of its sandbox"))
            else:
                self._fail(start, lease, error)

    def _put_off(self, start: StartTask, lease: str, reason: str) -> None:
        """Postpone a start task, because its obstacle may pass. After an hour it fails."""
        if start.waits >= MOST_WAITS:
            self._fail(start, lease, CannotStart(reason, 503))
        elif self._store.start_tasks.advance(start.id, lease, detail=reason):
            self._store.start_tasks.postpone(start.id, lease, WAIT, counter="waits")

    def _await_place(self, start: StartTask, lease: str, refusal: Exception) -> None:
        """Postpone a start task until a place is free.

        It fails after PLACE_SECONDS, or at once with SANDBOX_OVERFLOW=refuse.
        """
        limits = self._store.sandboxes.limits
        if not limits.pauses_idlest:
            self._fail(start, lease, refusal)
            return
        most = limits.max_sandboxes
        taken = f"{most} of {most} sandboxes are running (MAX_SANDBOXES), and earlier starts wait too"
        taken = refusal.taken if isinstance(refusal, TooManySandboxes) else taken
        seconds = f"{limits.place_seconds:g} s (PLACE_SECONDS)"
        detail = f"Waiting for a place: {taken}. This start waits for at most {seconds}"
        if self._store.start_tasks.await_place(start.id, lease, detail) == "over":
            reason = f"No place became free within {seconds}: {taken}. "
            reason += "Pause or delete a sandbox, or raise MAX_SANDBOXES, then start again"
            self._fail(start, lease, NoPlace(reason, 429))

    def clear_failed(self) -> None:
        """Remove the conversations and sandboxes of failed start tasks, one start task after the other."""
        while failed := self._store.start_tasks.claim_failed():
            try:
                self._clear(failed)
            except UNAVAILABLE:
                raise
            except Exception:  # it is retried until it is forgotten, and later tasks do not wait
                log.exception("start task %s: its leftovers cannot be removed", failed.id)

    def _drive(self, start: StartTask, lease: str) -> None:
        if self._is_taken(start):  # before a sandbox is started in vain
            raise CannotStart(f"A conversation of the id {start.conversation_id} exists", 409)
        require_live(self._store, start.joiner)
        request = self._with_parent(start.request)
        start = self._with_sandbox(start, lease, request)
        with self._turn_in(start.sandbox_id):
            self._join(start, request)  # before a paused sandbox is resumed
            not_done = self._begin(start, lease, request, self._running(start, lease))
        if not self._store.start_tasks.finish(start.id, lease, "READY", not_done):
            raise LeaseLost

    @contextmanager
    def _turn_in(self, sandbox_id: str) -> Iterator[None]:
        """Limit the threads for a sandbox, because starts in other sandboxes need theirs. Raises SandboxBusy."""
        with self._lock:
            if self._in[sandbox_id] >= MOST_OF_ONE:
                raise SandboxBusy(
                    f"{MOST_OF_ONE} conversations already begin in the sandbox {sandbox_id}, the most allowed at once"
                )
            self._in[sandbox_id] += 1
        try:
            yield
        finally:
            with self._lock:
                self._in[sandbox_id] -= 1
                if not self._in[sandbox_id]:
                    del self._in[sandbox_id]

    def _begin(self, start: StartTask, lease: str, request: Mapping[str, Any], sandbox: Sandbox) -> str:
        """Create the conversation, and start it at the agent server of its sandbox. Return what was not done."""
        self._join(start, request)  # the start may have waited long for its sandbox
        spec, not_done = self._specs.get(sandbox.spec_id), ""
        if (mode := request.get("approval_mode")) and (fault := start_fault(spec, sandbox, mode_named(mode))):
            raise CannotStart(fault, 409)
        self._advance(start, lease, status="PREPARING_REPOSITORY")
        if request.get("selected_repository"):
            not_done = self._clone(start, request, sandbox, working_folder(sandbox, spec))
            self._join(start, request)  # a clone may take minutes
            if not_done:
                request = {**request, "selected_repository": None, "selected_branch": None}
        for status in _PASSED:
            self._advance(start, lease, status=status)
        url = sandbox.agent_url
        self._advance(start, lease, status="STARTING_CONVERSATION", agent_server_url=url, detail="")
        if fork := request.get("fork"):
            copy_log(self._store, start, fork, sandbox)
            self._store.sandboxes.files.record(sandbox.id, start.conversation_id, Seq(0))
            body = agents_request(self._store, start.conversation_id, sandbox, spec)
            self._commands.agent_in(sandbox.id).start(body, self._start_seconds)
            return ""
        new = new_conversation(self._store, start, request, sandbox, spec)
        self._store.conversations.create(start.conversation_id, **new.kept, owner=start.joiner.name)
        if not self._is_its(start):
            raise CannotStart(f"A conversation of the id {start.conversation_id} exists", 409)
        self._tell_of_failed(start, request, sandbox)
        self._store.sandboxes.files.record(sandbox.id, start.conversation_id, Seq(0))
        ignored = self._commands.agent_in(sandbox.id).start(new.body, self._start_seconds, new.headers)
        self._store.sandboxes.use(sandbox.id)  # the start may take long, and the agent reports later that it runs
        if not_read := request.get("ignored"):
            ignored = [*ignored, f"The start of an app conversation ignores {', '.join(not_read)}."]
        told = self._clean_of(start)(" ".join(filter(None, [not_done, *new.told, *ignored])))
        detail = beginning(one_line(told), _LONGEST_DETAIL)
        if detail:
            log.warning("start task %s is READY, but: %s", start.id, detail)
        return detail

    def _clone(self, start: StartTask, request: Mapping[str, Any], sandbox: Sandbox, folder: str) -> str:
        """Clone the repository of a start. Return why the parent's repository was not cloned; empty if it was.

        Raises CannotStart if the request's own repository was not cloned, and CloneWaits while a destination of the
        clone is pending.
        """
        self._require_decided(start, request)
        agent = self._commands.agent_in(sandbox.id)
        fault = clone(agent, folder, start.conversation_id, request)
        if not fault:
            return ""
        self._require_decided(start, request)
        if start.request.get("selected_repository"):
            raise CannotStart(fault)
        return fault

    def _require_decided(self, start: StartTask, request: Mapping[str, Any]) -> None:
        """Raise CloneWaits if a destination of the clone waits for a decision.

        In a start's own sandbox any destination counts; in another sandbox only the host of the repository.
        """
        repository = request["selected_repository"]
        host = clone_host(repository, request.get("git_provider"))
        for one in self._store.destinations.waiting(start.sandbox_id):
            if not one.budget and (start.own_sandbox or one.name == host):
                place = f"{one.name}:{one.port}"
                raise CloneWaits(
                    f"The repository {repository} is not cloned yet: {place} waits for your decision in the inbox"
                )

    def _tell_of_failed(self, start: StartTask, request: Mapping[str, Any], sandbox: Sandbox) -> None:
        """Append an event, once, about the repository that an earlier start could not clone and this start omits."""
        if not request.get("failed_start_id") or request.get("selected_repository"):
            return
        [failed] = self._store.start_tasks.get_many([UUID(request["failed_start_id"]).hex])
        if failed is None or failed.status != "ERROR" or not failed.request.get("selected_repository"):
            return
        reason, repository = one_line(failed.detail).rstrip("."), failed.request["selected_repository"]
        lacking = "it" if repository in reason else f"the repository {repository}"
        detail = f"{beginning(reason, _LONGEST_DETAIL)}. This conversation started without {lacking}."
        identity = str(uuid5(NAMESPACE_OID, f"{start.id} started without its repository"))
        code = "StartedWithoutRepository"
        event = own_event(identity, "ConversationErrorEvent", now(), code=code, detail=detail)
        self._store.events.append(start.conversation_id, [event], sandbox_id=sandbox.id, made_here=True)

    def _join(self, start: StartTask, request: Mapping[str, Any]) -> None:
        """Check that the key of a start may act in its sandbox now, and audit that once. Raises JoinRefused.

        The check holds when the start acts, after any wait. Only the driver knows the sandbox of a parent, or of a
        setting that shares sandboxes.
        """
        if start.own_sandbox:
            require_live(self._store, start.joiner)
            return
        require_start(self._store, self._specs, start.joiner, start.request, start.conversation_id)
        [sandbox] = self._store.sandboxes.get_many([SandboxId(start.sandbox_id)])
        if sandbox is None:
            raise CannotStart(f"Sandbox not found: {start.sandbox_id}")
        named = [name for name in ("sandbox_id", "parent_conversation_id") if start.request.get(name)]
        policy = policy_of_start(self._specs, sandbox, request)
        facts = {"conversation_id": start.conversation_id, "join_id": start.id}
        reason = f"Starts a conversation in sandbox {sandbox.id} (start task {start.id})."
        join(self._store, start.joiner, sandbox, (named or ["sandbox_id"])[0], policy, **facts, reason=reason)

    def _with_parent(self, request: dict[str, Any]) -> dict[str, Any]:
        parent_id = request.get("parent_conversation_id")
        if not parent_id:
            return request
        try:
            parent = self._store.conversations.in_sandboxes.get(ConversationId(parent_id))
        except ConversationNotFound:
            raise ParentRefused(f"There is no conversation {parent_id} that could be the parent") from None
        inherited = {"sandbox_id": parent["sandbox_id"]} | {name: parent["app"].get(name) for name in INHERITED}
        return inherited | {name: value for name, value in request.items() if value is not None}

    def _with_sandbox(self, start: StartTask, lease: str, request: Mapping[str, Any]) -> StartTask:
        """Choose the sandbox, or store the id of a new one before its start, so a second driver starts no other."""
        ready, fork = None, request.get("fork")
        if not start.sandbox_id:
            spec, gives_way = self._specs.get(request.get("sandbox_spec_id")), "kept" in request
            chosen = request.get("sandbox_id")
            if not chosen and not fork and start.owner:
                ready = self._workspace(spec, start, gives_way=gives_way)
            if not chosen and not fork and not ready:
                chosen = self._shared and self._with_room(spec, start, request)
                ready = None if chosen else self._warm_one(spec, start, gives_way=gives_way)
            identity = chosen or ready or f"{start.id[:10]}{random_text(12)}"
            start = replace(start, sandbox_id=identity, own_sandbox=not chosen)
            status = "WAITING_FOR_SANDBOX"
            self._advance(start, lease, status=status, sandbox_id=identity, own_sandbox=start.own_sandbox)
        if start.own_sandbox and not ready:
            spec_id, gives_way = self._specs.get(request.get("sandbox_spec_id")).id, "kept" in request
            identity = SandboxId(start.sandbox_id)
            self._with_place(
                start,
                lease,
                identity,
                lambda: self._store.sandboxes.start(
                    spec_id,
                    identity,
                    source=fork["files"] if fork else None,
                    host=fork["host"] if fork else "",
                    gives_way=gives_way,
                    owner=start.owner,
                    start_id=start.id,
                ),
            )
        return start

    def _with_place(self, start: StartTask, lease: str, sandbox_id: SandboxId, ask: Callable[[], object]) -> None:
        """Start or resume a sandbox when it is the start task's turn.

        Raises MustWait, and TooManySandboxes without a place.
        """
        first = self._store.start_tasks.first_waiting()
        if first not in (None, start.id) and not self._runs(sandbox_id):
            raise MustWait
        after_making_room(self._store, ask)
        if first is not None and not self._store.start_tasks.found_place(start.id, lease):
            raise LeaseLost

    def _runs(self, sandbox_id: SandboxId) -> bool:
        """Return whether a sandbox has a place, because an earlier driver started it."""
        [sandbox] = self._store.sandboxes.get_many([sandbox_id])
        return sandbox is not None and sandbox.wanted == "running"

    def _workspace(self, spec: Spec, start: StartTask, *, gives_way: bool) -> SandboxId | None:
        """Return the workspace sandbox of a start's key; None if it is unresponsive.

        An unresponsive sandbox stays the key's, because it has files, but no start must wait for it forever.
        """
        workspaces = self._store.sandboxes.workspaces
        identity = workspaces.adopt(start.owner, spec.id, start.id, gives_way=gives_way)
        if identity is None:
            return None
        with suppress(AgentUnreachable):
            try:
                if self._commands.agent_in(identity).is_alive():
                    return identity
            except NotReachable:  # it starts, or is paused: the start waits for it, or resumes it
                return identity
        workspaces.give_back(identity, start.id)
        return None

    def _warm_one(self, spec: Spec, start: StartTask, *, gives_way: bool) -> SandboxId | None:
        """Bind a responsive warm sandbox to the start task, and delete unresponsive ones. None if there is none."""
        for _ in range(MOST_DEAD if spec.warm else 0):
            identity = self._store.sandboxes.warm.claim(pool_of(spec), start.id, gives_way=gives_way, owner=start.owner)
            if identity is None:
                return None
            with suppress(NotReachable, AgentUnreachable):
                if self._commands.agent_in(identity).is_alive():
                    return identity
            with suppress(SandboxNotFound, SandboxRefuses):
                self._store.sandboxes.ask(identity, "delete")
        return None

    def _with_room(self, spec: Spec, start: StartTask, request: Mapping[str, Any]) -> str | None:
        """Return the key's running sandbox with the fewest conversations, if the start may join it and it has room."""
        mine, _ = self._store.sandboxes.owned_by(start.owner)
        running = [one for one in self._store.sandboxes.get_many(mine) if one and self._fits(one, spec, start, request)]
        numbers = [(self._store.conversations.in_sandboxes.in_sandbox(one.id), one.id) for one in running]
        number, identity = min(numbers, default=(MOST_SHARING, None))
        return identity if number < MOST_SHARING else None

    def _fits(self, sandbox: Sandbox, spec: Spec, start: StartTask, request: Mapping[str, Any]) -> bool:
        if sandbox.spec_id != spec.id:
            return False
        with suppress(JoinRefused):
            policy = policy_of_start(self._specs, sandbox, request)
            require_join(self._store, start.joiner, sandbox, "sandbox_id", policy, start.conversation_id)
            return True
        return False

    def _running(self, start: StartTask, lease: str) -> Sandbox:
        """Wait until the sandbox runs, and resume a paused one. Time without this supervisor does not count."""
        identity, silences = SandboxId(start.sandbox_id), Silences(_MOST_APART)
        while True:
            try:
                sandbox = self._store.sandboxes.get(identity)
            except SandboxNotFound:
                raise CannotStart(f"Sandbox not found: {identity}") from None
            if sandbox.status == "RUNNING" and sandbox.wanted == "running":
                return sandbox
            if sandbox.status == "PAUSED":
                if not self._store.start_tasks.renew(start.id, lease):
                    raise LeaseLost
                self._with_place(start, lease, identity, lambda: self._store.sandboxes.ask(identity, "resume"))
            if sandbox.wanted == "deleted":
                raise CannotStart(f"The sandbox {identity} was deleted before the conversation began")
            if sandbox.status == "ERROR":
                detail = sandbox.detail or "no reason known"
                if start.own_sandbox:  # it is deleted with the start
                    raise CannotStart(detail.replace(f" {RESUMABLE}", ""))
                raise CannotStart(f"The sandbox {identity} is {sandbox.status}: {detail}")
            if sandbox.status == "MISSING":  # its host may come back
                raise NotReachable.of(identity, sandbox)
            if silences.found(identity, sandbox.seen_at) > 2 * self._start_seconds:
                raise CannotStart(f"The sandbox {identity} did not run in time", 503)
            time.sleep(_POLL)

    def _is_taken(self, start: StartTask) -> bool:
        """Return whether another conversation has the id."""
        with suppress(ConversationNotFound):
            return not self._is_its(start)
        return False

    def _is_its(self, start: StartTask) -> bool:
        """Return whether this start task created the conversation. Raises ConversationNotFound."""
        app = self._store.conversations.get(start.conversation_id)["app"] or {}
        return bool(app.get("start_id") == start.id)

    def _advance(self, start: StartTask, lease: str, **fields: Any) -> None:
        if not self._store.start_tasks.advance(start.id, lease, **fields):
            raise LeaseLost

    def _fail(self, start: StartTask, lease: str, error: Exception) -> None:
        """Store the failure of a start task before removing what it created, because a READY start keeps it."""
        traces.fail(type(error).__name__)
        clean = self._clean_of(start)
        if isinstance(error, AgentRefused) and error.body:
            error = AgentRefused(error.status, detail_of(error.body, clean), error.body)
        reason = clean(str(error) or type(error).__name__)
        if self._store.start_tasks.fail(start, lease, reason, failure_of(error, reason, clean)):
            log.warning("start task %s: %s", start.id, reason)
            self.clear_failed()
        else:
            self._clear_after_the_end(start.id)

    def _clean_of(self, start: StartTask) -> Callable[[Any], Any]:
        """Return a function that masks a start's and its sandbox's secrets in JSON of an agent server.

        A failed start keeps its detail for days, and other keys can read it.
        """
        hidden: dict[str, Any] = {}
        with suppress(SecretsRefused):  # sealed by another SECRET_KEY: no agent server got them
            hidden["body"] = self._store.start_tasks.body_of(start)
            hidden["secrets"] = self._store.start_tasks.secrets_of(start)
        [known] = self._store.start_tasks.get_many([start.id])  # it may have a sandbox by now
        mask = self._store.masks.in_sandbox(SandboxId(known.sandbox_id)) if known and known.sandbox_id else Mask()
        return lambda said: mask.value(without_secrets_of(hidden, said))

    def _clear_after_the_end(self, start_id: str) -> None:
        """Remove what this driver created after the start task had ended or failed and was cleared."""
        [known] = self._store.start_tasks.get_many([start_id])
        if known is not None and known.status == "ERROR":
            self._clear(known)

    def _clear(self, failed: StartTask) -> None:
        """Remove the conversation of a failed start task, and its own sandbox if it is empty.

        First it stops the start for good. In a sandbox that stays, an agent server may still start the conversation for
        a killed driver. So the deletion is repeated for as long as a start may take.
        """
        self._store.start_tasks.bury(failed)
        identity, reached_agent, is_anothers = failed.conversation_id, bool(failed.agent_server_url), False
        with suppress(ConversationNotFound):
            is_anothers = not self._is_its(failed)
            if not is_anothers:
                self._store.conversations.delete(identity)
        claimed = None if failed.sandbox_id else self._store.sandboxes.warm.claimed_by(failed.id)
        sandbox_id = SandboxId(failed.sandbox_id or claimed or failed.request.get("sandbox_id") or "")
        self._store.sandboxes.places.leave(sandbox_id, identity, made=reached_agent and not is_anothers)
        late = 0.0
        is_own = failed.own_sandbox or claimed
        is_empty = is_own and not self._store.conversations.in_sandboxes.in_sandbox(sandbox_id)
        if is_empty and not self._store.sandboxes.workspaces.give_back(sandbox_id, failed.id):
            with suppress(SandboxNotFound, SandboxRefuses):
                self._store.sandboxes.ask(sandbox_id, "delete")
        elif reached_agent and not is_anothers:
            tell_agent(self._commands, identity, sandbox_id)
            late = self._start_seconds if failed.is_ended else 0.0
        self._store.start_tasks.cleared(failed.id, late=late)


def _may_pass(error: Exception) -> bool:
    """Return whether the obstacle of a start task may pass by itself."""
    if isinstance(error, NotReachable):
        return error.is_awaited
    return isinstance(error, NoSupervisor)
