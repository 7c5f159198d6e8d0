"""Handles the end of a sandbox's processes: a restart, PAUSED, ERROR or deletion, and the effects on its conversations.

An end pauses running conversations. After a restart each conversation is settled: the agent server's own log is
compared with ours, and its status is copied. An action in flight is closed as unknown, here and at the agent, so that
no agent repeats an action unknowingly. A conversation that its agent server has forgotten gets an event that says so.
Every step may be repeated, because a supervisor may be killed at any moment. Source: docs/wire.md, 12.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any
from uuid import NAMESPACE_OID, uuid4, uuid5

from agents.client import RUN, AgentRefused, AgentServer, AgentUnreachable
from agents.commands import tell
from core import wire
from core.cuts import last_lines
from core.wire import EXECUTION_STATUSES, ConversationId, ReceivedEvent, own_event, plain, read_event
from runtimes import Handle, Observation, Runtime, RuntimeCallFailed
from settings.egress import Service, secrets_inside
from settings.specs import Spec
from store import Store
from store.approvals.effects import CLOSING_KINDS, closes, finish_message, reject_claim
from store.conversations.cold import StillCold
from store.errors import ConversationNotFound, LogDamaged, NotItsSandbox, Outdated, SecretsRefused
from store.link.attempts import Stamp
from store.sandboxes.sandboxes import LONGEST_RESTART, Sandbox
from store.sandboxes.start_tasks import FINISHED
from supervisor.agent_log import LogMark, catch_up, posted_of
from telemetry import traces

log = logging.getLogger("supervisor")

#: Temporary statuses of an agent server's response: the caller retries.
_TEMPORARY = (401, 408, 429, 502, 503, 504)

#: Statuses of a response of an agent server without a log.
_NO_LOG = (404, 405, 501)

#: Statuses of a conversation in which its agent may run again.
_RESUMABLE = ("idle", "paused", "error", "stuck")

#: Number of newest actions, and of events of a kind after an action, that are searched for actions in flight.
_NEXT = 100

IN_FLIGHT = (
    "The agent server ended while this action was in flight: the action may have had its effect, a part of it or none. "
    "Check that before repeating it."
)

#: Code of the event about a run that should have resumed automatically and did not.
NOT_RESUMED = "RunNotResumed"

FORGOTTEN = (
    "The agent server does not know this conversation any more: what the agent remembered of it is gone. Its events "
    "and the files of its sandbox are kept. A message, or POST /api/conversations/{id}/run, starts the agent again in "
    "the same files, with the settings of the sandbox's spec."
)


#: Last lines of a log: in the detail of a sandbox whose processes ended, and stored as its log.
_DETAIL_LINES, _KEPT_LINES = 20, 1000

#: Window in which crashes of a sandbox are counted, and delay of its first restart, in seconds.
_CRASH_SPAN, _FIRST_RESTART = 600.0, 0.5

#: Codes of the events that report the end of an agent server. Source: docs/wire.md.
RESTARTED, ENDED = "AgentServerRestarted", "AgentServerEnded"

#: Details of a sandbox without processes: stopped, and failed.
KEPT = "its processes have ended, its files are kept, and it starts again when it is used or resumed"
RESUMABLE = "Its files are kept: a resume starts it again"


class Settlement:
    """A conversation, after a start of its sandbox's processes."""

    def __init__(
        self,
        store: Store,
        sandbox: Sandbox,
        agent: AgentServer,
        conversation_id: ConversationId,
        services: Iterable[Service] = (),
    ) -> None:
        """services: of the sandbox's spec."""
        self._store = store
        self._services = tuple(services)
        self._sandbox = sandbox
        self._agent = agent
        self._id = conversation_id

    def settle(self, *, resume_runs: bool | None) -> None:
        """Settle the conversation, once per start. Raises AgentUnreachable, ConversationNotFound and NotItsSandbox.

        resume_runs: as in the spec.
        """
        state = self._store.conversations.get(self._id)
        mark, interrupted = LogMark.of(state), bool(state["interrupted"])
        try:
            if mark.start != self._sandbox.start:
                goes_on = resume_runs is True or (resume_runs is None and self._was_told_to_go_on(state))
                mark = self._restore(mark) if self._is_known() else self._forget(state, mark)
                interrupted = interrupted and goes_on and not mark.forgotten
                mark = mark._replace(
                    start=self._sandbox.start,
                    resumed=_last_message(self._store, self._id) if interrupted else mark.resumed,
                )
                self._store.conversations.note_recovery(self._id, mark, interrupted=interrupted)
            if interrupted:
                self._run_again(mark)
        except AgentRefused as refusal:
            if refusal.status in _TEMPORARY:
                raise AgentUnreachable(str(refusal)) from refusal
            log.warning("conversation %s is not settled: %s", self._id, refusal)
            detail = f"The agent server did not restore this conversation. {refusal}. Its events are kept."
            self._append(self._error("ConversationNotRestored", detail))
            mark = mark._replace(start=self._sandbox.start)
            self._store.conversations.note_recovery(self._id, mark, interrupted=False)

    def _is_known(self) -> bool:
        try:
            self._agent.state(self._id)
        except AgentRefused as refusal:
            if refusal.status == 404:
                return False
            raise
        return True

    def _was_told_to_go_on(self, state: Mapping[str, Any]) -> bool:
        """Return whether the event of the agent server's end announced that the run resumes automatically."""
        if not state["interrupted"]:
            return False
        raws, _ = self._store.events.search(self._id, kind="ConversationErrorEvent", descending=True, limit=_NEXT)
        ends = (one for one in map(read_event, raws) if one.fields.get("code") in (RESTARTED, ENDED))
        return any(one.fields.get("goes_on") is True for one in islice(ends, 1))

    def _run_again(self, mark: LogMark) -> None:
        """Resume an interrupted run. A repeat approves nothing: an agent that waits by then is left alone."""
        if self._agent.state(self._id).get("execution_status") in _RESUMABLE:
            try:
                self._agent.post(self._id, "run", RUN, repeatable=False)
            except AgentRefused as refusal:
                log.warning("conversation %s does not run again by itself: %s", self._id, refusal)
                words = f"The run does not go on by itself: {refusal}. Send a message or resume it to go on"
                self._append(self._error(NOT_RESUMED, words))
        self._store.conversations.note_recovery(self._id, mark, interrupted=False)

    def _restore(self, mark: LogMark) -> LogMark:
        self._send_secrets()
        mark = self._catch_up(mark)
        posted, status = self._posted_and_status()
        if status == "running":  # the agent server has just started: nothing runs
            status = "paused"
        unfinished = self._unfinished()
        waits = status == "waiting_for_confirmation"
        if unfinished and not (waits and self._wait(unfinished)):
            mark = self._close_in_flight(mark)
            posted, closed = self._posted_and_status()
            if waits:  # it no longer waits
                status = closed
        self._say_what_was_in_flight()
        if not waits:
            self._store.approvals.confirmations.reopen(self._id, [])
        if status in EXECUTION_STATUSES:
            self._set_status(status, posted)
        return mark

    def _posted_and_status(self) -> tuple[int, Any]:
        """Read the number of events that the agent has posted, and then its status."""
        posted = posted_of(self._store.conversations.get(self._id))
        return posted, self._agent.state(self._id).get("execution_status")

    def _send_secrets(self) -> None:
        """Send the agent its secrets again, because it may have kept them only in memory."""
        try:
            if secrets := self._store.conversations.secrets_of(self._id):
                body = {"secrets": secrets_inside(secrets, self._services)}
                self._agent.post(self._id, "secrets", body, repeatable=True)
        except (SecretsRefused, AgentRefused) as refusal:
            log.warning("conversation %s: its agent gets no secrets: %s", self._id, refusal)

    def _catch_up(self, mark: LogMark) -> LogMark:
        try:
            caught_up, _ = catch_up(self._store, self._agent, self._id, self._sandbox.id, mark)
            return caught_up
        except AgentRefused as refusal:
            if refusal.status not in _NO_LOG:
                raise
            log.warning("conversation %s: its agent has no log to compare with: %s", self._id, refusal)
            return mark

    def _wait(self, actions: list[ReceivedEvent]) -> bool:
        """Return whether a waiting agent has not begun these actions. If so, reopen the undecided actions.

        After a kill the published agent server reports to wait for actions that it had begun: it writes its status to
        its file after a step, and the change to its log before. A decision to accept that it has not begun is delivered
        again.
        """
        kind = "ConversationStateUpdateEvent"
        raws, _ = self._store.events.search(self._id, kind=kind, since=actions[0].at, descending=True, limit=_NEXT)
        changes = [read_event(raw).fields for raw in raws]
        statuses = [change.get("value") for change in changes if change.get("key") == "execution_status"]
        last = next((one for one in statuses if one in ("running", "waiting_for_confirmation")), None)
        if last == "running":
            return False
        delivery = self._store.approvals.deliveries.get(self._id)
        decided = delivery.actions if delivery else []
        self._store.approvals.confirmations.reopen(self._id, [action for action in actions if action.id not in decided])
        return True

    def _close_in_flight(self, mark: LogMark) -> LogMark:
        """Have the agent close actions that it may have begun, and close here the actions that it does not know.

        Otherwise the agent would execute unfinished actions in its next run. If the agent knows an action and leaves it
        open, it has not begun it: the action was approved, and the next run executes it.
        """
        if delivery := self._store.approvals.deliveries.get(self._id):  # the agent received it
            self._store.approvals.deliveries.settle(self._id, delivery)
        self._store.sandboxes.echoes.expect(self._id, [reject_claim(action.id) for action in self._unfinished()])
        try:
            self._agent.decide(self._id, accept=False, reason=IN_FLIGHT)
        except AgentRefused as refusal:
            log.warning("conversation %s: its agent does not close the actions in flight: %s", self._id, refusal)
        mark = self._catch_up(mark)
        self._close([one for one in self._unfinished() if not self._agent.has_event(self._id, one.id)], IN_FLIGHT)
        self._store.approvals.confirmations.reopen(self._id, [])
        return mark

    def _say_what_was_in_flight(self) -> None:
        """Append an event about the actions that were closed as in flight.

        A retry after any failure appends it only once.
        """
        closed = [action for action in self._newest() if _tells_of_flight(self._end_of(action))]
        if closed:
            tools = ", ".join(str(action.fields.get("tool_name")) for action in closed)
            identity = str(uuid5(NAMESPACE_OID, f"{self._sandbox.id} {self._id} in flight: {closed[0].id}"))
            members = {"code": "ActionInterrupted", "detail": f"{IN_FLIGHT} Tools: {tools}"}
            self._append(own_event(identity, "ConversationErrorEvent", wire.now(), **members))

    def forget(self) -> None:
        """Settle a conversation that its running agent server has forgotten. Raises the errors of `settle`."""
        state = self._store.conversations.get(self._id)
        mark = self._forget(state, LogMark.of(state))
        self._store.conversations.note_recovery(self._id, mark._replace(start=self._sandbox.start), interrupted=False)

    def _forget(self, state: dict[str, Any], mark: LogMark) -> LogMark:
        """Report once that the conversation is forgotten, close open actions, and pause."""
        [task] = self._store.start_tasks.get_many([state["app"].get("start_id") or ""])
        if task is not None and task.status not in FINISHED:
            return mark  # its start is still running, after which the agent server knows it
        posted = posted_of(state)
        if not (mark.forgotten and mark.posted == posted):
            self._append(self._error("ConversationForgotten", FORGOTTEN.replace("{id}", self._id)))
        self._close(self._unfinished(), IN_FLIGHT)
        self._store.approvals.confirmations.reopen(self._id, [])
        if delivery := self._store.approvals.deliveries.get(self._id):
            self._store.approvals.deliveries.settle(self._id, delivery)
        self._set_status("paused", posted)
        return LogMark(posted=posted, forgotten=True)

    def _newest(self) -> list[ReceivedEvent]:
        """Return the actions of the agent's last response and all open actions, in order.

        An agent takes no further step while an action of its last response is unfinished.
        """
        raws, _ = self._store.events.search(self._id, kind="ActionEvent", descending=True, limit=_NEXT)
        newest = [read_event(raw) for raw in raws]
        group = newest[0].fields.get("llm_response_id") if newest else None
        found = {one.id: one for one in newest[:1]}
        found |= {one.id: one for one in newest if group and one.fields.get("llm_response_id") == group}
        for event_id in self._store.approvals.confirmations.open_ids(self._id):
            if event_id not in found:
                found[event_id] = read_event(self._store.events.get(self._id, event_id))
        return sorted(found.values(), key=lambda one: one.at)

    def _unfinished(self) -> list[ReceivedEvent]:
        """Return the newest actions without a result."""
        executable = [
            one for one in self._newest() if one.fields.get("action") is not None and finish_message(one.fields) is None
        ]
        return [one for one in executable if self._end_of(one) is None]

    def _end_of(self, action: ReceivedEvent) -> ReceivedEvent | None:
        """Return the event that ended an action; None if there is none."""
        for kind in CLOSING_KINDS:
            raws, _ = self._store.events.search(self._id, kind=kind, since=action.at, limit=_NEXT)
            for event in map(read_event, raws):
                if closes(event, action):
                    return event
        return None

    def _close(self, actions: list[ReceivedEvent], reason: str) -> None:
        """Append an error for each action's tool call, which ends the action."""
        for action in actions:
            tool = {name: str(action.fields.get(name) or "") for name in ("tool_name", "tool_call_id")}
            identity = self._derived(f"closes {action.id}")
            at = max(wire.now(), action.at)
            self._append(own_event(identity, "AgentErrorEvent", at, "agent", **tool, error=reason))

    def _set_status(self, status: str, posted: int) -> None:
        """Append a state event, unless the conversation has that status.

        posted: number of the agent's events when the status was read. If the agent has posted more since, its own
        events have the later status.
        """
        if self._store.conversations.get(self._id)["execution_status"] != status:
            members = {"key": "execution_status", "value": status}
            with suppress(Outdated):
                self._append(own_event(str(uuid4()), "ConversationStateUpdateEvent", wire.now(), **members), posted)

    def _error(self, code: str, detail: str) -> ReceivedEvent:
        """Make an event that the conversation gets once per start."""
        members = {"code": code, "detail": detail}
        return own_event(self._derived(code), "ConversationErrorEvent", wire.now(), **members)

    def _derived(self, what: str) -> str:
        return str(uuid5(NAMESPACE_OID, f"{self._sandbox.id} {self._sandbox.start} {self._id} {what}"))

    def _append(self, event: ReceivedEvent, posted: int | None = None) -> None:
        self._store.events.append(self._id, [event], sandbox_id=self._sandbox.id, made_here=True, posted=posted)


def _tells_of_flight(end: ReceivedEvent | None) -> bool:
    return end is not None and IN_FLIGHT in (end.fields.get("rejection_reason"), end.fields.get("error"))


class Recovery:
    """The conversations of sandboxes whose processes end and start. Thread-safe."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def interrupted(self, sandbox: Sandbox, code: str, detail: str, *, resume_runs: bool | None = False) -> None:
        """Report to every conversation in a sandbox that its agent server ended unexpectedly, once per start.

        A run is paused; a conversation that waits for a decision keeps waiting. resume_runs: as in the spec. Raises
        only UNAVAILABLE.
        """

        def error(state: Mapping[str, Any]) -> dict[str, Any]:
            if code == RESTARTED and state["execution_status"] == "running":
                return {"code": code, **_told_of_run(self._store, state, detail, resume_runs)}
            return {"code": code, "detail": detail}

        self._note_end(sandbox, "interrupted", error)

    def stopped(self, sandbox: Sandbox) -> None:
        """Pause the runs in a sandbox whose processes were ended on purpose. Raises only UNAVAILABLE."""
        self._note_end(sandbox, "stopped", lambda _state: {})

    def _note_end(self, sandbox: Sandbox, how: str, error: Callable[[Mapping[str, Any]], dict[str, Any]]) -> None:
        for state in self._store.conversations.in_sandboxes.each_in(sandbox.id):
            prefix = str(uuid5(NAMESPACE_OID, f"{sandbox.id} {sandbox.start} {state['id']} {how}"))[:24]
            with _one_of_several():
                identity = ConversationId(state["id"])
                self._store.conversations.interrupt(identity, sandbox.id, Stamp(wire.now(), prefix), error(state))

    def settle(
        self, sandbox: Sandbox, agent: AgentServer, *, resume_runs: bool | None, services: Iterable[Service] = ()
    ) -> None:
        """Settle every conversation in a sandbox after its agent server has started.

        A start is settled once: a call after a mere pause does nothing. resume_runs, services: as in the sandbox's
        spec. Raises AgentUnreachable, after which a repeat continues, and UNAVAILABLE.
        """
        if self._store.sandboxes.settled_start(sandbox.id) == sandbox.start:
            return
        for state in self._store.conversations.in_sandboxes.each_in(sandbox.id):
            with _one_of_several():
                identity = ConversationId(state["id"])
                Settlement(self._store, sandbox, agent, identity, services).settle(resume_runs=resume_runs)
        self._store.sandboxes.note_settled(sandbox.id, sandbox.start)

    def tell_labels(self, sandbox: Sandbox, agent: AgentServer) -> None:
        """Send the agent titles and tags that clients set while it did not run. Raises only UNAVAILABLE."""
        with suppress(AgentUnreachable):
            for state in self._store.conversations.in_sandboxes.each_in(sandbox.id):
                tell(self._store, agent, state)


def _last_message(store: Store, identity: ConversationId) -> str:
    """Return the id of a user's last message in a conversation; a dash if there is none."""
    raws, _ = store.events.search(identity, kind="MessageEvent", source="user", descending=True, limit=1)
    return read_event(raws[0]).id if raws else "-"


def _told_of_run(store: Store, state: Mapping[str, Any], detail: str, resume_runs: bool | None) -> dict[str, Any]:
    """Return the members of the event for a run whose agent server crashed: the detail, and whether the run resumes.

    A run resumes only if nothing waits for a person, and once per message, because the run may have caused the crash.
    """
    goes_on, words = resume_runs is True, "The run is paused: send a message or resume it to go on"
    if resume_runs is None and (state["confirmation_policy"] or {}).get("kind") == "NeverConfirm":
        goes_on = LogMark.of(state).resumed != _last_message(store, ConversationId(state["id"]))
        words = (
            "The run stays paused: it has gone on by itself once since the last message. Send a message or resume it "
            "to go on"
        )
    reason, line, tail = detail.partition("\n")
    words = "The run goes on by itself" if goes_on else words
    told = {"detail": f"{reason.rstrip('.')}. {words}{line}{tail}"}
    return {**told, "goes_on": True} if goes_on else told


@contextmanager
def _one_of_several() -> Iterator[None]:
    """Let no conversation that is deleted, cold or damaged delay the others of its sandbox.

    A cold conversation has no run and no pending action, so it needs no pause. Its next use compares it.
    """
    try:
        yield
    except (StillCold, LogDamaged) as error:
        log.warning("%s (%s)", error, error.__cause__)
    except (ConversationNotFound, NotItsSandbox):
        pass


@dataclass(frozen=True)
class SandboxHost:
    """The settings of a host for its sandboxes. Times are in seconds."""

    id: str
    supervisor: str  #: the holder of its lease
    url_host: str
    webhook_base_url: str
    start_seconds: float
    allowed_origins: tuple[str, ...] = ()  #: origins of web pages that may use the agent servers
    folder: str = ""  #: id of the folder with the sandboxes' files, if their runtime stores files there

    def lacks(self, sandbox: Sandbox) -> bool:
        """Return whether another folder has a sandbox's files, that of an earlier supervisor with this host's name."""
        return sandbox.folder not in ("", self.folder)


class Endings:
    """Ends the processes of a sandbox. Threads may use it for different sandboxes at the same time."""

    def __init__(self, store: Store, runtimes: Mapping[str, Runtime], host: SandboxHost, recovery: Recovery) -> None:
        """runtimes: by their names in specs."""
        self._store = store
        self._runtimes = runtimes
        self._host = host
        self._recovery = recovery

    def over(self, sandbox: Sandbox, reason: str) -> None:
        """Stop a sandbox at the end of its lifetime, and report that to its conversations. Raises RuntimeCallFailed."""
        detail = f"{reason}: {KEPT}"
        self._recovery.interrupted(sandbox, ENDED, detail)
        self.stop(sandbox, detail)

    def settle(self, sandbox: Sandbox, spec: Spec, seen: Observation) -> None:
        """Handle an end of a sandbox's processes that no client requested."""
        how = seen.detail or "how is not known"
        if self.discarded(sandbox, f"The sandbox ended: {how}"):
            return
        if sandbox.wanted == "paused" or seen.by_order:
            text = self._cleared(sandbox, f"The sandbox ended: {how}")
            detail = f"Its processes ended ({how}): {KEPT}"
            self._stopped(sandbox, detail, text, resumes=sandbox.wanted == "running")
            return
        crashes = [at for at in sandbox.crashes if sandbox.seen_at - at < _CRASH_SPAN * 1e6]
        if sandbox.start <= 1 and sandbox.status == "STARTING":
            self.fail(sandbox, f"The agent ended while it started ({how}). {RESUMABLE}")
        elif len(crashes) >= spec.restarts:
            times = f" It crashed {len(crashes) + 1} times in ten minutes." if crashes else ""
            self.fail(sandbox, f"The sandbox ended: {how}.{times} {RESUMABLE}")
        else:
            delay = min(_FIRST_RESTART * 2 ** len(crashes), LONGEST_RESTART)
            text = self._cleared(sandbox, f"The sandbox ended: {how}")
            reason = f"The sandbox ended: {how}. It is started again (restart {len(crashes) + 1} of {spec.restarts})"
            detail = f"{plain(reason)}\n{_tail(text)}".strip()
            self._recovery.interrupted(sandbox, RESTARTED, detail, resume_runs=spec.resume_runs)
            log.warning("sandbox %s: %s", sandbox.id, reason)
            start_after = str(sandbox.seen_at + round(delay * 1e6))
            fields = {"crashes": [*crashes, sandbox.seen_at], "start_after": start_after, "starting_at": start_after}
            self.report(sandbox, "STARTING", detail=detail, log=text, handle=None, **fields)

    def stop(self, sandbox: Sandbox, detail: str, *, resumes: bool = False) -> None:
        """End the processes of a sandbox and keep its files. It is PAUSED until its use. Raises RuntimeCallFailed."""
        self._stopped(sandbox, detail, self.clear(sandbox), resumes=resumes)

    def _stopped(self, sandbox: Sandbox, detail: str, text: str, *, resumes: bool) -> None:
        self._recovery.stopped(sandbox)
        self._store.sandboxes.stopped(sandbox, self._host.supervisor, plain(detail), log=text, resumes=resumes)

    def clear(self, sandbox: Sandbox) -> str:
        """End a sandbox's remaining processes. Return the last lines of their output, with secrets masked.

        Raises RuntimeCallFailed.
        """
        if sandbox.handle is None:
            return ""
        handle = Handle(sandbox.handle)
        runtime = self._runtimes[handle["runtime"]]
        text = runtime.logs(handle, _KEPT_LINES)
        runtime.stop(handle)
        text = runtime.logs(handle, _KEPT_LINES) or text  # stopping a container deletes its log
        return self._store.masks.in_sandbox(sandbox.id).text(text, is_output=True)

    def fail(self, sandbox: Sandbox, reason: str) -> None:
        """End a sandbox's processes, keep its files and the end of its log, and report the failure.

        Raises RuntimeCallFailed. A warm sandbox is deleted instead. A sandbox that keeps its handle still has processes
        to end.
        """
        if self.discarded(sandbox, reason):
            return
        log.warning("sandbox %s: %s", sandbox.id, reason)
        self._failed(sandbox, reason, self._cleared(sandbox, reason), handle=None)

    def _cleared(self, sandbox: Sandbox, reason: str) -> str:
        """Do `clear`, with its errors. If the processes may still run, the sandbox becomes ERROR."""
        try:
            return self.clear(sandbox)
        except Exception as failure:
            self._failed(sandbox, f"{reason}. Its remaining processes cannot be ended: {failure}", "")
            raise

    def _failed(self, sandbox: Sandbox, reason: str, text: str, **cleared: None) -> None:
        detail = f"{plain(reason)}\n{_tail(text)}".strip()
        self.report(sandbox, "ERROR", detail=detail, log=text, **cleared, **ended_start_fields(sandbox, "ERROR"))
        self._recovery.interrupted(sandbox, ENDED, detail)

    def discarded(self, sandbox: Sandbox, failure: str = "") -> bool:
        """Delete a warm sandbox that is unneeded or has failed. Return false if it is bound."""
        if not sandbox.warm or not self._store.sandboxes.warm.discard(sandbox.id, failed=bool(failure)):
            return False
        if failure:
            log.warning("warm sandbox %s: %s. Another one is started after a backoff", sandbox.id, failure)
        return True

    def remove(self, sandbox: Sandbox) -> None:
        """Delete a sandbox: first its processes and files, then its entry in the store. Raises RuntimeCallFailed."""
        if sandbox.runtime:
            self._runtimes[sandbox.runtime].remove(sandbox.id)
        self.report(sandbox, "GONE")

    def end_all(self) -> None:
        """End all sandboxes of this host in parallel. Each becomes PAUSED; warm sandboxes are deleted."""
        ours = [one for one in self._store.sandboxes.of_host(self._host.id) if not self._host.lacks(one)]
        living = [one for one in ours if one.handle and one.status != "ERROR"]
        with ThreadPoolExecutor(max(1, len(living))) as pool:
            list(pool.map(self._end_with_supervisor, living))

    def _end_with_supervisor(self, sandbox: Sandbox) -> None:
        detail = f"It ended with its server: {KEPT}"
        try:
            if self.discarded(sandbox):
                self.remove(sandbox)
            else:
                self.stop(sandbox, detail, resumes=sandbox.wanted == "running")
        except Exception as error:  # continue with the others
            trace = not isinstance(error, RuntimeCallFailed)
            log.warning("sandbox %s: %s", sandbox.id, error, exc_info=error if trace else None)

    def report(self, sandbox: Sandbox, status: str, **fields: Any) -> bool:
        """Report the observed state of a sandbox with `Sandboxes.report`, with secrets masked in its detail."""
        if detail := fields.get("detail"):
            fields["detail"] = self._store.masks.in_sandbox(sandbox.id).text(detail)
        return self._store.sandboxes.report(sandbox.id, self._host.id, self._host.supervisor, status, **fields)


def ended_start_fields(sandbox: Sandbox, error: str = "") -> dict[str, str]:
    """Record the span of a finished start. Return the fields that a report adds, which clear the stored trace."""
    traces.note(sandbox.trace, "start_sandbox", {"agent_server.sandbox": sandbox.id}, sandbox.starting_at, error)
    return {"trace": ""} if sandbox.trace else {}


def _tail(text: str) -> str:
    return last_lines(plain(text), _DETAIL_LINES)
