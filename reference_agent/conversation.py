"""The reference agent in one conversation. `api.py` serves it.

A mind turns messages into actions. An action is executed once the policy or a person allows it. A request decides any
number of pending actions atomically. A rejected action is closed at once. An approved or edited one stays open until
the last action is decided. The state keeps each decision, so a kill neither loses nor repeats a decision.
"""

import json
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from core.cuts import beginning
from reference_agent import delegation, events
from reference_agent.events import Event, parts
from reference_agent.log import DiskError, Log, StepState, moved, taken_up, usage
from reference_agent.loops import HINT, loop_in
from reference_agent.mind import Conflict, Mind, Response, Unwanted
from reference_agent.shell import ShellTerminal
from reference_agent.toolbox import Toolbox
from reference_agent.tools import MCP, RISKS, TOOLS, BadCall, Tools, read_call

SUPERSEDED = "Superseded by a new user message."
#: The error of an action that a kill of the agent server interrupted.
UNKNOWN = "The agent server ended while this command ran. It is unknown whether it took effect. It is not repeated."
#: The error of an action that was open at the target of a return.
TURNED_BACK = "The conversation returned to a moment before this action. Propose it again if it is needed."
#: The error of an action during which the agent itself failed.
FAILED = "The agent failed during this action. It is unknown whether it took effect. It is not repeated."
#: The message to a person if the model does not leave a loop.
STUCK = "The agent was stopped because it repeats itself: {words}. Send a message that says how to continue."
Decision = dict[str, Any]  #: `action_id`; `decision`: approve, reject or edit; `reason` or `arguments`


def holds(policy: dict[str, Any], actions: list[Event]) -> bool:
    """Return whether the actions of one response wait together. A lone finish or wait for output never waits."""
    match actions:
        case [] | [{"action": {"kind": "FinishAction"} | {"kind": "TerminalAction", "command": "", "reset": False}}]:
            return False
        case [{"tool_name": "finish"} as report] if delegation.task_of(report):
            return False
    if policy.get("kind") != "ConfirmRisky":
        return policy.get("kind") != "NeverConfirm"
    threshold, holds_unknown = policy.get("threshold", "HIGH"), policy.get("confirm_unknown") is not False
    held = RISKS[RISKS.index(threshold) :] if threshold in RISKS else RISKS
    risks = {action["security_risk"] for action in actions}
    return bool(risks & {*held}) or (holds_unknown and bool(risks - {*RISKS}))


class Stale(Conflict):
    """Decisions about actions that do not wait. The message names the actions."""

    def __init__(self, action_ids: list[str]) -> None:
        super().__init__(f"These actions are unknown, or decided already: {beginning(', '.join(action_ids), 500)}")


def read_decisions(given: Any, reason: str) -> list[Decision]:
    """Parse the decisions of a request. reason: default of a rejection. Raises ValueError."""
    if not isinstance(given, list) or not given or not all(isinstance(one, dict) for one in given):
        raise ValueError("decisions should be a list of objects, at least one")
    read = [_decision(one, reason) for one in given]
    if len({one["action_id"] for one in read}) < len(read):
        raise ValueError("decisions should name each action once")
    return read


def decided(log: Log, decisions: list[Decision], rest: str = "idle") -> tuple[StepState, list[Event]]:
    """Return the state and the events after decisions. rest: the status if all were rejected. Raises Stale."""
    state = log.state
    new = [one for one in decisions if not _is_repeat(log, one)]
    waiting = undecided(state)
    if stale := [one["action_id"] for one in new if one["action_id"] not in waiting]:
        raise Stale(stale)
    reasons = {one["action_id"]: one["reason"] for one in new if one["decision"] == "reject"}
    kept = {one["action_id"]: one for one in new if one["decision"] != "reject"}
    still_open = [action_id for action_id in state.open if action_id not in reasons]
    state = state._replace(open=still_open, decided={**state.decided, **kept})
    # Write the rejections first. An agent that stops waiting without them would appear to go on by itself.
    step = [events.rejection(log.known(action_id), reason) for action_id, reason in reasons.items()]
    if new and not undecided(state):
        state = moved(state, "running" if state.ready else rest, step)
    return state, step


def undecided(state: StepState) -> list[str]:
    waits = state.status == "waiting_for_confirmation"
    return [action_id for action_id in state.ready if waits and action_id not in state.decided]


def as_decided(action: Event, state: StepState, tools: Tools = TOOLS) -> Event:
    """Return an action as it is executed, with a person's edited arguments. Raises BadCall."""
    decision = state.decided.get(action["id"], {})
    if decision.get("decision") != "edit":
        return action
    arguments = decision["arguments"]
    if action["action"]["kind"] == f"{MCP}Action" and isinstance(arguments.get("data"), dict):
        arguments = arguments["data"]  # as shown to people
    try:
        details, _ = read_call(action["tool_name"], json.dumps(arguments), tools)
    except BadCall as error:
        raise BadCall(f"A person has edited the arguments, and they are invalid. {error}") from None
    return {**action, "action": details, "edited": arguments}


def _decision(given: dict[str, Any], reason: str) -> Decision:
    decision = {"action_id": given.get("action_id"), "decision": given.get("decision")}
    match decision:
        case {"action_id": str(), "decision": "approve"}:
            return decision
        case {"action_id": str(), "decision": "edit"} if isinstance(given.get("arguments"), dict):
            return {**decision, "arguments": given["arguments"]}
        case {"action_id": str(), "decision": "edit"}:
            raise ValueError("arguments of an edit should be an object")
        case {"action_id": str(), "decision": "reject"}:
            reason = reason if given.get("reason") is None else given["reason"]
            if isinstance(reason, str):
                return {**decision, "reason": reason}
            raise ValueError("reason should be a string")
    raise ValueError("A decision should have an action_id, and approve, reject or edit as its decision")


def _is_repeat(log: Log, decision: Decision) -> bool:
    """Return whether this decision is a retry: a kill may have lost the response to the first request."""
    action_id = decision["action_id"]
    if decision["decision"] != "reject":
        return log.state.decided.get(action_id) == decision
    return any(one["kind"] == "UserRejectObservation" and one["action_id"] == action_id for one in reversed(log.events))


class AgentConversation:
    """One conversation and its worker thread. It resumes after the last step of its log.

    A method raises DiskError if it cannot write its step. Then nothing has happened, except that a pause takes effect.
    """

    def __init__(self, log: Log, mind: Mind, terminal: ShellTerminal, tools: Toolbox, secrets: dict[str, str]) -> None:
        self.log, self._mind, self._terminal, self._tools, self._secrets = log, mind, terminal, tools, secrets
        log.hide(*secrets.values())
        self._lock = threading.RLock()
        self._worker: threading.Thread | None = None
        self._is_thinking, self._responses = False, 0  # of this run

    @property
    def is_running(self) -> bool:
        return self.log.state.status == "running"

    def begin(self) -> None:
        """Report the conversation, and add the message of the start request."""
        self.log.post_info()
        beginning = self._mind.beginning()
        if message := self.log.start["initial_message"]:
            self.send(message["content"], message["run"], beginning)
        elif beginning:
            self.log.step(self.log.state, beginning)

    def close_what_was_cut_short(self) -> None:
        """Pause a run that a kill interrupted, and close its action."""
        state, step = self._cut_short(UNKNOWN)
        if state.status == "running":
            state = moved(state, "paused", step)
        if step:
            with suppress(DiskError):
                self.log.record(state, step)
        with suppress(DiskError):
            if note := self.log.returned():
                self._turn_back(note)
        if folder := self.log.state.mind.get("folder"):
            self._terminal.resume(folder)

    def _cut_short(self, words: str) -> tuple[StepState, list[Event]]:
        """Return the state without the interrupted action, and the event that closes it."""
        state = self.log.state
        if not state.started:
            return state, []
        return state._replace(open=state.open[1:], started=False), [events.failure(self.log.first_open(), words)]

    def _turn_back(self, note: dict[str, str]) -> None:
        """Resume from an earlier event, whose files are restored. Later events stay in the log, but are left behind."""
        value = {name: note[name] for name in ("event_id", "left_event_id")}
        step = [events.change(events.RETURNED, value) | {"id": note["id"]}]
        so_far = events.way([*self.log.events, *step])
        step += [events.failure(action, TURNED_BACK) for action in events.open_actions(so_far)]
        here = {"folder": str(self._terminal.folder)}
        state = taken_up(so_far, self.log.state.policy)._replace(stats=self.log.state.stats, mind=here)
        if self.log.state.status != "idle":
            state = moved(state, "idle", step)
        self.log.record(state, step)

    def send(self, content: list[Event], run: bool, beginning: list[Event] | None = None) -> None:
        """Add a user's message. It rejects the pending actions and never approves them."""
        with self._lock:
            state, step = self.log.state, beginning or list[Event]()
            if state.status == "waiting_for_confirmation":
                state, step = self._rejected(SUPERSEDED)
            message = events.message("user", content) | self._tools.added_to(content)
            step.append(message)
            state = state._replace(unanswered=[*state.unanswered, message["id"]])
            if state.status in ("finished", "stuck"):
                state = moved(state, "idle", step)
            if run and state.status != "running":
                state = moved(state, "running", step)
            self.log.step(state, step)
            self._work_if_running()

    def run(self, *, accepts: bool = True) -> bool:
        """Start a run, which approves pending actions. False during a run, or without `accepts` if an action waits."""
        with self._lock:
            if self.is_running or (undecided(self.log.state) and not accepts):
                return False
            self._move("running")
            self._work_if_running()
            return True

    def stop(self, *, at_once: bool) -> None:
        """Pause after the current command or response. at_once: kill the command and drop the response."""
        with self._lock:
            if self.log.state.status in ("idle", "running"):
                if at_once:
                    self._terminal.kill()
                    self._tools.stop()
                    self._drop_response()
                step = [events.event("InterruptEvent" if at_once else "PauseEvent", "user")]
                self.log.record(moved(self.log.state, "paused", step), step)

    def decide(self, accept: bool, reason: str) -> None:
        with self._lock:
            waits = self.log.state.status == "waiting_for_confirmation"
            if waits and accept:
                self.run()
            elif waits:
                self.log.step(*self._rejected(reason))
                self._work_if_running()

    def decide_each(self, decisions: list[Decision]) -> None:
        """Apply single decisions atomically. The run resumes once the last action is decided. Raises Stale."""
        with self._lock:
            state, step = decided(self.log, decisions)
            if step or state != self.log.state:
                self.log.step(state, step)
                self._work_if_running()

    def ask(self, question: str) -> str:
        """Ask the mind a side question, also during a run. Raises Conflict and ModelError."""
        return self._mind.answer(question, *self._own())

    def condense(self) -> None:
        """Summarize the older steps. Raises Conflict and ModelError."""
        so_far, state = self._own()
        if state.status == "running":
            raise Conflict("The agent is running. Pause it first.")
        if (response := self._mind.condense(so_far, state)) is None:
            raise Conflict("There is nothing to summarize yet.")
        with self._lock:
            if self.is_running:
                raise Conflict("The agent has started to run meanwhile. Pause it first.")
            step = [events.event("CondensationRequest", "environment"), *response.events]
            step.append(events.change("stats", usage(response.stats or {})))
            self.log.step(self.log.state._replace(stats=response.stats or {}), step)

    def set_policy(self, policy: dict[str, Any]) -> None:
        with self._lock:
            self.log.step(self.log.state._replace(policy=policy), [events.change("confirmation_policy", policy)])

    def keep(self, secrets: dict[str, str]) -> None:
        with self._lock:
            self._secrets = self._secrets | secrets
            self.log.hide(*secrets.values())

    def delete(self) -> None:
        with self._lock:
            self.log.remove()
            self._drop_response()
            self.end()

    def end(self) -> None:
        """End its shell and its MCP servers on shutdown of the agent server."""
        self._tools.close()
        self._terminal.end()

    def _own(self) -> tuple[list[Event], StepState]:
        """Return the events and the state of the conversation itself, also during a sub-task."""
        with self._lock:
            return delegation.own(self.log.way), self.log.state._replace(task={})

    def _seen(self) -> list[Event]:
        """Return the events for the mind: those of the current sub-task, or of the conversation itself."""
        if task := self.log.state.task:
            return delegation.seen(self.log.way, self._decided(task["id"]))
        return delegation.own(self.log.way)

    def _decided(self, action_id: str) -> Event:
        return as_decided(self.log.known(action_id), self.log.state, self._tools.known())

    def _rejected(self, reason: str) -> tuple[StepState, list[Event]]:
        """Return the state and the events after a rejection of the undecided actions. Approved actions stay open."""
        rejections = [{"action_id": one, "decision": "reject", "reason": reason} for one in undecided(self.log.state)]
        return decided(self.log, rejections)

    def _move(self, status: str) -> None:
        step = list[Event]()
        self.log.step(moved(self.log.state, status, step), step)

    def _work_if_running(self) -> None:
        if self.is_running and self._worker is None:
            self._responses = 0
            self._worker = threading.Thread(target=self._work, daemon=True)
            self._worker.start()

    @property
    def _is_wanted(self) -> bool:
        """Return whether the current thread is still the worker."""
        return self._worker is threading.current_thread()

    def _drop_response(self) -> None:
        if self._is_thinking:
            self._worker, self._is_thinking = None, False

    def _work(self) -> None:
        try:
            while task := self._next():
                task()
        except Unwanted:
            pass
        except DiskError as error:
            print(f"{error}. The run stops.", file=sys.stderr)
            self._end_run("paused")
        except Exception as error:  # a conversation must not stay running without a thread
            traceback.print_exc()
            self._end_run("error", events.error(type(error).__name__, "The agent failed. See the sandbox's log."))

    def _end_run(self, status: str, *ending: Event) -> None:
        with self._lock:
            if self._is_wanted:
                self._worker, self._is_thinking = None, False
                if self.is_running:
                    state, step = self._cut_short(FAILED)
                    step += ending
                    with suppress(DiskError):
                        self.log.record(moved(state, status, step), step)
                    self.log.post_info()

    def _next(self) -> Callable[[], None] | None:
        """Return the next operation, to be called without the lock; None if the agent must stop."""
        with self._lock:
            while self._is_wanted and self.is_running:
                if self.log.state.ready:
                    return self._begin_action()
                state, seen = self.log.state, self._seen()
                if why := self._end_of_task(seen):
                    self.log.step(*self._without_task(state, why, is_error=True))
                elif not state.task and not self._mind.has_to_respond(seen, state):
                    self._move("finished")
                elif self._responses and self._is_in_loop(seen):
                    pass
                elif self._responses < self.log.most_responses:
                    self._responses, self._is_thinking = self._responses + 1, True
                    return partial(self._respond, seen, state)
                else:
                    most = f"{self._responses} responses (max_iterations)"
                    words = f"The agent stopped after {most}. Send a message for {self._responses} more."
                    step = [events.error("MaxIterationsReached", words)]
                    self.log.step(moved(self.log.state, "error", step), step)
            if self._is_wanted:
                self._worker = None
            return None

    def _is_in_loop(self, seen: list[Event]) -> bool:
        """Return whether the agent repeats itself. First give the model a hint, then end the run or the sub-task."""
        loop = loop_in(seen) if self.log.start.get("stuck_detection", True) else None
        if loop is None:
            return False
        state, step = self.log.state, [events.message("environment", parts(HINT.format(words=loop.words)))]
        if state.task:
            step[0]["llm_response_id"] = f"{state.task['id']}/hint"
        if loop.is_told and state.task:
            state, step = self._without_task(state, delegation.STUCK.format(words=loop.words), is_error=True)
        elif loop.is_told:
            step = [events.error("AgentStuck", STUCK.format(words=loop.words))]
            state = moved(state, "stuck", step)
        self.log.step(state, step)
        return True

    def _end_of_task(self, seen: list[Event]) -> str:
        """Return why the current sub-task has to end; "" if it goes on or there is none."""
        state = self.log.state
        if not state.task:
            return ""
        return delegation.OVERTAKEN if state.unanswered else delegation.end_of(state.task, seen, state.stats)

    def _without_task(self, state: StepState, report: str, *, is_error: bool = False) -> tuple[StepState, list[Event]]:
        """Return the state without the current sub-task, which has no open action, and the sub-task's result."""
        report_members = {"content": parts(report), "is_error": is_error, "tool_name": "delegate"}
        result = events.observation(self._decided(state.task["id"]), report_members)
        return state._replace(open=state.open[1:], task={}), [result]

    def _respond(self, so_far: list[Event], state: StepState) -> None:
        self._tools.connect(again=bool(state.unanswered))
        response = self._mind.respond(so_far, state, self._show)
        with self._lock:
            if not self._is_wanted:
                raise Unwanted
            self._is_thinking = False
            failed = [events.message("environment", parts(one)) for one in self._tools.failures()]
            self._take(response._replace(events=[*failed, *response.events]))

    def _take(self, response: Response) -> None:
        """Append a response. Its actions wait if the policy says so."""
        actions = [event for event in response.events if event["kind"] == "ActionEvent" and event["action"]]
        notes = [one for one in actions if one["action"]["kind"] in ("ThinkAction", "TaskTrackerAction")]
        noted = {one["id"]: events.observation(one, self._tools.observe(one)) for one in notes}
        state, step = self.log.state, [each for one in response.events for each in (one, noted.get(one["id"])) if each]
        actions = [one for one in actions if one["id"] not in noted]
        unanswered = [message for message in state.unanswered if message not in response.answered]
        kept = {action_id: one for action_id, one in state.decided.items() if action_id in state.open}
        state = state._replace(unanswered=unanswered, open=[*(one["id"] for one in actions), *state.open], decided=kept)
        if response.stats:
            state = state._replace(stats=response.stats)
            step.append(events.change("stats", usage(response.stats)))
        if response.error:
            step.append(events.error(*response.error))
            state = moved(state, "error", step)
        elif holds(state.policy, actions):
            state = moved(state, "waiting_for_confirmation", step)
        self.log.step(state, step)

    def _show(self, text: str, reasoning: str) -> None:
        """Stream a part of a response. Raises Unwanted."""
        if not self._is_wanted:
            raise Unwanted
        members = {name: part for name, part in (("content", text), ("reasoning_content", reasoning)) if part}
        if members and not self.log.state.task:  # a helper's text is not for the user
            self.log.show(events.event("StreamingDeltaEvent", "agent", **members))

    def _begin_action(self) -> Callable[[], None] | None:
        """Begin to execute the first open action. A step written before prevents a second execution after a kill."""
        state = self.log.state
        try:
            action = as_decided(self.log.first_open(), state, self._tools.known(state.task))
        except BadCall as error:
            self.log.step(state._replace(started=True), [])
            return partial(self._close, events.failure(self.log.first_open(), str(error)))
        if action["tool_name"] == "delegate":
            self.log.begin(action, state._replace(task=delegation.begun(action, state.stats)))
            return self._next()
        self.log.begin(action, state._replace(started=True))
        if action["action"]["kind"] != "TerminalAction":
            return lambda: self._close(events.observation(action, self._tools.observe(action)))
        if refused := self._terminal.start(action["action"], self._secrets):
            return partial(self._close, events.observation(action, refused))
        return partial(self._finish_command, action)

    def _finish_command(self, action: Event) -> None:
        def show(tail: str, size: int) -> None:
            members = {"action_id": action["id"], "text": self.log.mask.text(tail, is_output=True), "size": size}
            self.log.show(events.event("CommandOutputEvent", "environment", **members))

        self._close(events.observation(action, self._terminal.finish(action["action"], self.log.mask, show)))

    def _close(self, result: Event) -> None:
        with self._lock:
            state = self.log.state
            if result["tool_name"] == "terminal":
                state = state._replace(mind={**state.mind, "folder": str(self._terminal.folder)})
            if state.status != "deleting":
                self._tools.add_instructions(self.log.first_open(), result)
                state, step = state._replace(open=state.open[1:], started=False), [result]
                if state.task and (result["kind"], result["tool_name"]) == ("ObservationEvent", "finish"):
                    state, more = self._without_task(state, events.text_of(result["observation"]["content"]))
                    step += more
                self.log.record(state, step)
