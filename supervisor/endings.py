"""How the processes of a sandbox end, and what follows: a restart, PAUSED, ERROR, or its deletion; and what becomes of
its conversations.

An end pauses what ran. After a restart each conversation is settled: the agent server's own log is compared with ours,
and its status becomes ours. An action that was in flight is closed as unknown, here and at the agent: no agent repeats
an action without being told. A conversation that its agent server has forgotten says so.

Every step may be repeated: a supervisor may be killed at any moment. Source: docs/wire.md, 12.
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
from core.wire import EXECUTION_STATUSES, ConversationId, Event, own_event, plain, read_event
from runtimes import Handle, Observation, Runtime, RuntimeFailure
from settings.egress import Service, secrets_inside
from settings.specs import Spec
from store import Store
from store.approvals.effects import CLOSING_KINDS, closes, finish_message, reject_claim
from store.conversations.cold import StillCold
from store.errors import ConversationNotFound, LogDamaged, NotItsSandbox, Outdated, SecretsRefused
from store.link.attempts import Stamp
from store.sandboxes.sandboxes import LONGEST_RESTART, Sandbox
from store.sandboxes.start_tasks import FINISHED
from supervisor.agent_log import Mark, catch_up, posted_of
from telemetry import traces

log = logging.getLogger("supervisor")

#: statuses of an agent server's response that say nothing about the conversation: the caller retries
_TEMPORARY = (401, 408, 429, 502, 503, 504)

#: statuses of a response of an agent server that has no log to compare with
_NO_LOG = (404, 405, 501)

#: statuses of a conversation in which its agent may run again
_RESUMABLE = ("idle", "paused", "error", "stuck")

#: newest actions, and events of one kind after an action, among which those in flight and their ends are searched
_NEXT = 100

IN_FLIGHT = (
    "The agent server ended while this action was in flight: the action may have had its effect, a part of it or none. "
    "Check that before repeating it."
)

#: code of the event about a run that was to go on by itself, and does not
NOT_RESUMED = "RunNotResumed"

FORGOTTEN = (
    "The agent server does not know this conversation any more: what the agent remembered of it is gone. Its events "
    "and the files of its sandbox are kept. A message, or POST /api/conversations/{id}/run, starts the agent again in "
    "the same files, with the settings of the sandbox's spec."
)


#: last lines of a log: in the detail of a sandbox whose processes ended, and kept as its log
_DETAIL_LINES, _KEPT_LINES = 20, 1000

#: seconds in which the crashes of a sandbox are counted; seconds before its first restart
_CRASH_SPAN, _FIRST_RESTART = 600.0, 0.5

#: codes of the events by which a conversation learns that its agent server ended. Source: docs/wire.md
RESTARTED, ENDED = "AgentServerRestarted", "AgentServerEnded"

#: what is said of a sandbox without processes: of one that rests, and of one that failed
KEPT = "its processes have ended, its files are kept, and it starts again when it is used or resumed"
RESUMABLE = "Its files are kept: a resume starts it again"


class Settlement:
    """One conversation, after one start of its sandbox's processes."""

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
        """Settle the conversation, once per start. resume_runs: as the spec has it.

        Raises AgentUnreachable, ConversationNotFound and NotItsSandbox.
        """
        state = self._store.conversations.get(self._id)
        mark, interrupted = Mark.of(state), bool(state["interrupted"])
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
        """Whether the conversation was told, as its agent server ended, that its run goes on by itself."""
        if not state["interrupted"]:
            return False
        raws, _ = self._store.events.search(self._id, kind="ConversationErrorEvent", descending=True, limit=_NEXT)
        ends = (one for one in map(read_event, raws) if one.fields.get("code") in (RESTARTED, ENDED))
        return any(one.fields.get("goes_on") is True for one in islice(ends, 1))

    def _run_again(self, mark: Mark) -> None:
        """Run what was interrupted. A repeat approves nothing: an agent that waits by then is left alone."""
        if self._agent.state(self._id).get("execution_status") in _RESUMABLE:
            try:
                self._agent.post(self._id, "run", RUN, repeatable=False)
            except AgentRefused as refusal:
                log.warning("conversation %s does not run again by itself: %s", self._id, refusal)
                words = f"The run does not go on by itself: {refusal}. Send a message or resume it to go on"
                self._append(self._error(NOT_RESUMED, words))
        self._store.conversations.note_recovery(self._id, mark, interrupted=False)

    # an agent server that knows the conversation

    def _restore(self, mark: Mark) -> Mark:
        self._send_secrets()
        mark = self._catch_up(mark)
        posted, status = self._posted_and_status()
        if status == "running":  # of an agent server that has just been started: nothing runs there
            status = "paused"
        unfinished = self._unfinished()
        waits = status == "waiting_for_confirmation"
        if unfinished and not (waits and self._wait(unfinished)):
            mark = self._close_in_flight(mark)
            posted, closed = self._posted_and_status()
            if waits:  # it does so no longer
                status = closed
        self._say_what_was_in_flight()
        if not waits:
            self._store.approvals.confirmations.reopen(self._id, [])
        if status in EXECUTION_STATUSES:
            self._set_status(status, posted)
        return mark

    def _posted_and_status(self) -> tuple[int, Any]:
        """Read how many events the agent has posted, and then its status."""
        posted = posted_of(self._store.conversations.get(self._id))
        return posted, self._agent.state(self._id).get("execution_status")

    def _send_secrets(self) -> None:
        """Send the agent its secrets again: it may have kept them in memory alone."""
        try:
            if secrets := self._store.conversations.secrets_of(self._id):
                body = {"secrets": secrets_inside(secrets, self._services)}
                self._agent.post(self._id, "secrets", body, repeatable=True)
        except (SecretsRefused, AgentRefused) as refusal:
            log.warning("conversation %s: its agent gets no secrets: %s", self._id, refusal)

    def _catch_up(self, mark: Mark) -> Mark:
        try:
            caught_up, _ = catch_up(self._store, self._agent, self._id, self._sandbox.id, mark)
            return caught_up
        except AgentRefused as refusal:
            if refusal.status not in _NO_LOG:
                raise
            log.warning("conversation %s: its agent has no log to compare with: %s", self._id, refusal)
            return mark

    def _wait(self, actions: list[Event]) -> bool:
        """Whether an agent that reports to wait has not begun these actions; then those that nobody decided are open.

        The published agent server reports to wait, after a kill, for actions that it had begun: it writes its status to
        its file after a step, and the change to its log before. An acceptance that it has not begun is delivered again.
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

    def _close_in_flight(self, mark: Mark) -> Mark:
        """Have the agent close actions that it may have begun, and close here those that it does not know.

        An agent that found them unfinished would execute them in its next run. One that knows an action and keeps it
        open after this has not begun it: the action was approved, and the next run executes it.
        """
        if delivery := self._store.approvals.deliveries.get(self._id):  # it was received
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
        """Append an event about the actions that were closed as in flight, once, whatever cut an earlier try off."""
        closed = [action for action in self._newest() if _tells_of_flight(self._end_of(action))]
        if closed:
            tools = ", ".join(str(action.fields.get("tool_name")) for action in closed)
            identity = str(uuid5(NAMESPACE_OID, f"{self._sandbox.id} {self._id} in flight: {closed[0].id}"))
            members = {"code": "ActionInterrupted", "detail": f"{IN_FLIGHT} Tools: {tools}"}
            self._append(own_event(identity, "ConversationErrorEvent", wire.now(), **members))

    # an agent server that has forgotten the conversation

    def forget(self) -> None:
        """Settle a conversation that its agent server has forgotten while it lives. Raises as `settle`."""
        state = self._store.conversations.get(self._id)
        mark = self._forget(state, Mark.of(state))
        self._store.conversations.note_recovery(self._id, mark._replace(start=self._sandbox.start), interrupted=False)

    def _forget(self, state: dict[str, Any], mark: Mark) -> Mark:
        """Say so, once; close what was open; pause."""
        [task] = self._store.start_tasks.get_many([state["app"].get("start_id") or ""])
        if task is not None and task.status not in FINISHED:
            return mark  # its start goes on, and the agent server will know it then
        posted = posted_of(state)
        if not (mark.forgotten and mark.posted == posted):
            self._append(self._error("ConversationForgotten", FORGOTTEN.replace("{id}", self._id)))
        self._close(self._unfinished(), IN_FLIGHT)
        self._store.approvals.confirmations.reopen(self._id, [])
        if delivery := self._store.approvals.deliveries.get(self._id):
            self._store.approvals.deliveries.settle(self._id, delivery)
        self._set_status("paused", posted)
        return Mark(posted=posted, forgotten=True)

    # our log

    def _newest(self) -> list[Event]:
        """The actions of the agent's last response, and those that are open, in their order.

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

    def _unfinished(self) -> list[Event]:
        """Those of the newest actions that nothing has ended."""
        executable = [
            one for one in self._newest() if one.fields.get("action") is not None and finish_message(one.fields) is None
        ]
        return [one for one in executable if self._end_of(one) is None]

    def _end_of(self, action: Event) -> Event | None:
        """The event that ended an action; None if nothing has."""
        for kind in CLOSING_KINDS:
            raws, _ = self._store.events.search(self._id, kind=kind, since=action.at, limit=_NEXT)
            for event in map(read_event, raws):
                if closes(event, action):
                    return event
        return None

    def _close(self, actions: list[Event], reason: str) -> None:
        """Append an error of each action's tool call, which ends the action."""
        for action in actions:
            tool = {name: str(action.fields.get(name) or "") for name in ("tool_name", "tool_call_id")}
            identity = self._derived(f"closes {action.id}")
            at = max(wire.now(), action.at)
            self._append(own_event(identity, "AgentErrorEvent", at, "agent", **tool, error=reason))

    def _set_status(self, status: str, posted: int) -> None:
        """Append a state event, unless the conversation has that status.

        posted: the number of the agent's events when the status was read. An agent that has posted more since has gone
        on: its own events have the later status.
        """
        if self._store.conversations.get(self._id)["execution_status"] != status:
            members = {"key": "execution_status", "value": status}
            with suppress(Outdated):
                self._append(own_event(str(uuid4()), "ConversationStateUpdateEvent", wire.now(), **members), posted)

    def _error(self, code: str, detail: str) -> Event:
        """An event that the conversation gets once per start."""
        members = {"code": code, "detail": detail}
        return own_event(self._derived(code), "ConversationErrorEvent", wire.now(), **members)

    def _derived(self, what: str) -> str:
        return str(uuid5(NAMESPACE_OID, f"{self._sandbox.id} {self._sandbox.start} {self._id} {what}"))

    def _append(self, event: Event, posted: int | None = None) -> None:
        self._store.events.append(self._id, [event], sandbox_id=self._sandbox.id, made_here=True, posted=posted)


def _tells_of_flight(end: Event | None) -> bool:
    return end is not None and IN_FLIGHT in (end.fields.get("rejection_reason"), end.fields.get("error"))


class Recovery:
    """The conversations of sandboxes whose processes end and start. Any number of threads may use it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def interrupted(self, sandbox: Sandbox, code: str, detail: str, *, resume_runs: bool | None = False) -> None:
        """Tell every conversation in a sandbox that its agent server ended without being asked, once per start.

        A run is paused; a conversation that waits for a decision keeps waiting. resume_runs: as the spec has it.
        Raises only UNAVAILABLE.
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
        """Settle every conversation in a sandbox with the agent server that has just been started there.

        A start is settled once: a call about an agent server that has worked since, and was only paused, does nothing.
        resume_runs and services: as the sandbox's spec has them. Raises AgentUnreachable, after
        which a repeat goes on where this call has ended, and UNAVAILABLE.
        """
        if self._store.sandboxes.settled_start(sandbox.id) == sandbox.start:
            return
        for state in self._store.conversations.in_sandboxes.each_in(sandbox.id):
            with _one_of_several():
                identity = ConversationId(state["id"])
                Settlement(self._store, sandbox, agent, identity, services).settle(resume_runs=resume_runs)
        self._store.sandboxes.note_settled(sandbox.id, sandbox.start)

    def tell_labels(self, sandbox: Sandbox, agent: AgentServer) -> None:
        """Tell the agent the titles and tags that clients have set while it did not run. Raises only UNAVAILABLE."""
        with suppress(AgentUnreachable):
            for state in self._store.conversations.in_sandboxes.each_in(sandbox.id):
                tell(self._store, agent, state)


def _last_message(store: Store, identity: ConversationId) -> str:
    """The id of a conversation's last message of a user; a dash for one that has none."""
    raws, _ = store.events.search(identity, kind="MessageEvent", source="user", descending=True, limit=1)
    return read_event(raws[0]).id if raws else "-"


def _told_of_run(store: Store, state: Mapping[str, Any], detail: str, resume_runs: bool | None) -> dict[str, Any]:
    """What is told of a run whose agent server has crashed: the detail, and whether it goes on by itself.

    Only a run in which nothing waits for a person goes on, and once a message: the crash may be its own work.
    """
    goes_on, words = resume_runs is True, "The run is paused: send a message or resume it to go on"
    if resume_runs is None and (state["confirmation_policy"] or {}).get("kind") == "NeverConfirm":
        goes_on = Mark.of(state).resumed != _last_message(store, ConversationId(state["id"]))
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
    """One conversation that was deleted meanwhile, whose log stays in cold storage or has lost events, delays no other
    of its sandbox.

    Nothing ran in a cold conversation, and nothing waits: there is nothing to pause, and its next use compares it.
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
    allowed_origins: tuple[str, ...] = ()  #: of web pages that may use the agent servers
    folder: str = ""  #: id of the folder that its sandboxes' files are in, where their runtime has them there

    def lacks(self, sandbox: Sandbox) -> bool:
        """Whether another folder has a sandbox's files: that of an earlier supervisor of this host's name."""
        return sandbox.folder not in ("", self.folder)


class Endings:
    """Ends the processes of one sandbox per call. Any number of threads may use it, each for another sandbox."""

    def __init__(self, store: Store, runtimes: Mapping[str, Runtime], host: SandboxHost, recovery: Recovery) -> None:
        """runtimes: by their names in specs."""
        self._store = store
        self._runtimes = runtimes
        self._host = host
        self._recovery = recovery

    def over(self, sandbox: Sandbox, reason: str) -> None:
        """Stop a sandbox whose time is over; its conversations are told. Raises RuntimeFailure."""
        detail = f"{reason}: {KEPT}"
        self._recovery.interrupted(sandbox, ENDED, detail)
        self.stop(sandbox, detail)

    def settle(self, sandbox: Sandbox, spec: Spec, seen: Observation) -> None:
        """Decide what follows the end of a sandbox's processes that no client asked for."""
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
        """End the processes of a sandbox and keep its files; it is PAUSED until it is used. Raises RuntimeFailure."""
        self._stopped(sandbox, detail, self.clear(sandbox), resumes=resumes)

    def _stopped(self, sandbox: Sandbox, detail: str, text: str, *, resumes: bool) -> None:
        self._recovery.stopped(sandbox)
        self._store.sandboxes.stopped(sandbox, self._host.supervisor, plain(detail), log=text, resumes=resumes)

    def clear(self, sandbox: Sandbox) -> str:
        """End what is left of a sandbox's processes; the last lines that they printed, without the secrets there.

        Raises RuntimeFailure.
        """
        if sandbox.handle is None:
            return ""
        handle = Handle(sandbox.handle)
        runtime = self._runtimes[handle["runtime"]]
        text = runtime.logs(handle, _KEPT_LINES)
        runtime.stop(handle)
        text = runtime.logs(handle, _KEPT_LINES) or text  # a container takes its log with it
        return self._store.masks.in_sandbox(sandbox.id).text(text, is_output=True)

    def fail(self, sandbox: Sandbox, reason: str) -> None:
        """End a sandbox's processes, keep its files and the last lines of its log, and report why it failed.

        A sandbox that keeps its handle is not cleared away yet; a warm one is deleted instead. Raises RuntimeFailure.
        """
        if self.discarded(sandbox, reason):
            return
        log.warning("sandbox %s: %s", sandbox.id, reason)
        self._failed(sandbox, reason, self._cleared(sandbox, reason), handle=None)

    def _cleared(self, sandbox: Sandbox, reason: str) -> str:
        """As `clear`; a sandbox whose processes are not shown to have ended becomes ERROR. Raises likewise."""
        try:
            return self.clear(sandbox)
        except Exception as failure:
            self._failed(sandbox, f"{reason}. What is left of it cannot be ended: {failure}", "")
            raise

    def _failed(self, sandbox: Sandbox, reason: str, text: str, **cleared: None) -> None:
        detail = f"{plain(reason)}\n{_tail(text)}".strip()
        self.report(sandbox, "ERROR", detail=detail, log=text, **cleared, **ended_start_fields(sandbox, "ERROR"))
        self._recovery.interrupted(sandbox, ENDED, detail)

    def discarded(self, sandbox: Sandbox, failure: str = "") -> bool:
        """Have a warm sandbox deleted that is not needed, or has failed; False if it is bound."""
        if not sandbox.warm or not self._store.sandboxes.warm.discard(sandbox.id, failed=bool(failure)):
            return False
        if failure:
            log.warning("warm sandbox %s: %s. Another one is started after a backoff", sandbox.id, failure)
        return True

    def remove(self, sandbox: Sandbox) -> None:
        """Delete a sandbox: first its processes and files, then its entry in the store. Raises RuntimeFailure."""
        if sandbox.runtime:
            self._runtimes[sandbox.runtime].remove(sandbox.id)
        self.report(sandbox, "GONE")

    def end_all(self) -> None:
        """End the processes of every sandbox of this host, all at once: each is PAUSED after that, a warm one gone."""
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
        except Exception as error:  # the others are still to end
            trace = not isinstance(error, RuntimeFailure)
            log.warning("sandbox %s: %s", sandbox.id, error, exc_info=error if trace else None)

    def report(self, sandbox: Sandbox, status: str, **fields: Any) -> bool:
        """Report the observed state of a sandbox, as `Sandboxes.report`; its detail shows no secrets."""
        if detail := fields.get("detail"):
            fields["detail"] = self._store.masks.in_sandbox(sandbox.id).text(detail)
        return self._store.sandboxes.report(sandbox.id, self._host.id, self._host.supervisor, status, **fields)


def ended_start_fields(sandbox: Sandbox, error: str = "") -> dict[str, str]:
    """The fields that a report adds at the end of a start, whose trace gets its span here and is kept no longer."""
    traces.note(sandbox.trace, "start_sandbox", {"agent_server.sandbox": sandbox.id}, sandbox.starting_at, error)
    return {"trace": ""} if sandbox.trace else {}


def _tail(text: str) -> str:
    return last_lines(plain(text), _DETAIL_LINES)
