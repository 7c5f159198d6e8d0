"""A conversation whose agent is a program that speaks ACP.

A message is a prompt; the agent works until its turn ends. A permission request opens an action. If the policy holds
the action, the agent waits for the decision. Otherwise the request is answered at once. The state records each
decision before the agent gets it.

Guarantee: the agent proceeds only after a decision in the log, or under a policy that holds nothing. A request that
nobody can decide any more is answered `cancelled`, and its action is closed with the reason.

Limitation: an action without a permission request is known only after it happened. Its summary says so.
"""

import sys
import threading
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from reference_agent import events
from reference_agent.acp import permissions, updates
from reference_agent.acp.agents import AcpAgent, refusal
from reference_agent.acp.client import AcpProcess, AcpSession, AgentEnded, AgentError, Outcome
from reference_agent.acp.permissions import CANCELLED, text
from reference_agent.acp.updates import Delta, PromptTurn
from reference_agent.conversation import SUPERSEDED, Decision, decided, holds, undecided
from reference_agent.events import Event
from reference_agent.log import DiskError, Log, StepState, moved, usage
from reference_agent.mind import Conflict

#: Decision features of this agent. ACP has no edited arguments.
CAPABILITIES = ["decide_each"]

#: Maximum number of open actions. Further requests are refused.
MOST_OPEN = 64

#: Maximum number of consecutive rejection reasons without a message, because an agent may repeat its request.
MOST_REASONS = 3

#: Number of decisions about closed actions that are kept, because a server retries a request whose response was lost.
_KEPT_DECISIONS = 200

#: Marks a tool call whose end is in the log.
_CLOSED = "_closed"

#: Seconds between two streamed parts of a message.
_SHOWN_EVERY = 0.1

#: The prompt of a run without a message, after an interrupted turn.
GO_ON = "Go on with what you were doing. Your last turn was interrupted."

#: Reasons without information.
_NO_REASONS = ("", SUPERSEDED, "User rejected the action.")

#: Errors of actions that nobody can decide any more, or whose result is unknown.
ENDED = "The agent ended before it got a decision. The action was not permitted."
INTERRUPTED = "The run was interrupted before a decision. The action was not permitted."
WITHDRAWN = "The agent no longer waits for this decision. The action was not permitted."
BYPASSED = "The agent reports that it executed this action without waiting for the decision."
UNKNOWN = "The agent ended before it reported the result. It is unknown whether this took effect. It is not repeated."
UNREPORTED = "The agent's turn ended without a result of this action."

#: Errors of actions that nobody can approve.
NO_OPTION = "The agent offers no permission for this call alone, only a lasting one. It was refused."
TOO_MANY = f"More than {MOST_OPEN} actions are open. This one was refused."
TOO_LONG = "This call is too long to be shown, so nobody can approve it. It was refused."

#: The error of a run whose agent has no model. A program of ACP_COMMAND finds its own.
NO_MODEL = (
    "{title} needs a model: start the server with LLM_MODEL=… and LLM_API_KEY=…, and with LLM_BASE_URL=… if it is not "
    "OpenAI's. The endpoint has to speak {wire}."
)

#: How to continue after an error.
_NEXT = "Send a message to start it again."

#: Stop reasons that end a run with an error, and its sentence.
_STOPS = {
    "refusal": "The agent refuses to go on. Send another message.",
    "max_tokens": "The agent's model has reached its maximum number of tokens. Send a message to go on.",
    "max_turn_requests": "The agent has reached its maximum number of requests in one turn. Send a message to go on.",
}


class AcpConversation:
    """One conversation, its worker thread, and the process of its agent. See `Conversation` for its methods.

    A method raises DiskError if it cannot write its step.
    """

    def __init__(
        self,
        log: Log,
        agent: AcpAgent,
        folder: Path,
        environment: Mapping[str, str],
        secrets: dict[str, str],
    ) -> None:
        """agent: with the model's name and address. An agent that needs a model and has none does not run."""
        self.log = log
        log.capabilities = CAPABILITIES
        log.hide(*secrets.values())
        self._agent, self._folder, self._secrets = agent, folder, secrets
        self._environment = {**environment, **agent.environment}
        self._lock = threading.RLock()
        self._worker: threading.Thread | None = None
        self._program: AcpProcess | None = None
        self._turn: PromptTurn | None = None
        self._is_cancelled = False  # the current turn
        self._goes_on = False  # whether a run without a message prompts the agent
        self._requests: dict[str, tuple[int, Any]] = {}  # token and options of a waiting request, by action
        self._actions: dict[str, str] = {}  # the open action, by the agent's call id
        self._shown: dict[str, Any] = {}  # the arguments that were shown, by action
        self._known_calls = {event.get("tool_call_id") for event in log.events}
        self._unshown, self._shown_at = Delta(), 0.0

    @property
    def is_running(self) -> bool:
        return self.log.state.status == "running"

    def begin(self) -> None:
        self.log.post_info()
        if message := self.log.start["initial_message"]:
            self.send(message["content"], message["run"])

    def close_what_was_cut_short(self) -> None:
        """Close the actions of an earlier process. None was permitted without a decision."""
        state = self.log.state
        step = self._closed(state, ENDED, UNKNOWN)
        state = state._replace(open=[], started=False)
        if state.status in ("running", "waiting_for_confirmation"):
            state = moved(state, "paused", step)
        if step:
            with suppress(DiskError):
                self.log.record(state, step)

    def send(self, content: list[Event], run: bool) -> None:
        """Add a user's message. It rejects the pending actions, and ends the turn that waits for them."""
        with self._lock:
            state, step = self.log.state, list[Event]()
            waited = state.status == "waiting_for_confirmation"
            if waited:
                rejections = [_rejection(one, SUPERSEDED) for one in undecided(state)]
                state, step = decided(self.log, rejections, rest="running")
            message = events.message("user", content)
            step.append(message)
            mind = {**state.mind, "told": 0, "reasons": []}
            state = state._replace(unanswered=[*state.unanswered, message["id"]], mind=mind)
            if state.status in ("finished", "stuck") or (waited and not run):
                state = moved(state, "idle", step)
            if run and state.status != "running":
                state = moved(state, "running", step)
            self.log.step(state, step)
            if waited:
                self._cancel()
            self._work_if_running()

    def run(self, *, accepts: bool = True) -> bool:
        """Start a run, or approve pending actions. False during a run, or without `accepts` if an action waits."""
        with self._lock:
            waiting = undecided(self.log.state)
            if self.is_running or (waiting and not accepts):
                return False
            if waiting:
                self._decide([{"action_id": one, "decision": "approve"} for one in waiting])
            else:
                self._goes_on = True
                self._move("running")
            self._work_if_running()
            return True

    def stop(self, *, at_once: bool) -> None:
        """End the agent's turn. Only an interrupt ends a turn that waits for a decision."""
        with self._lock:
            state = self.log.state
            waiting = undecided(state)
            if state.status in ("idle", "running") or (at_once and waiting):
                step = [events.failure(self.log.known(one), INTERRUPTED) for one in waiting]
                state = state._replace(open=[one for one in state.open if one not in waiting])
                step.append(events.event("InterruptEvent" if at_once else "PauseEvent", "user"))
                self._cancel()
                self.log.record(moved(state, "paused", step), step)

    def decide(self, accept: bool, reason: str) -> None:
        with self._lock:
            if waiting := undecided(self.log.state):
                approvals: list[Decision] = [{"action_id": one, "decision": "approve"} for one in waiting]
                self._decide(approvals if accept else [_rejection(one, reason) for one in waiting])

    def decide_each(self, decisions: list[Decision]) -> None:
        """Apply single decisions atomically. Raises Stale, and ValueError for an edit."""
        if any(one["decision"] == "edit" for one in decisions):
            raise ValueError(f"{self._agent.title} takes no edited arguments: reject the action, and say what to do.")
        with self._lock:
            self._decide(decisions)

    def ask(self, _question: str) -> str:
        raise Conflict(f"{self._agent.title} answers only in the conversation: send a message.")

    def condense(self) -> None:
        raise Conflict(f"{self._agent.title} shortens its conversations by itself.")

    def set_policy(self, policy: dict[str, Any]) -> None:
        """Raises Conflict if the policy cannot hold this agent."""
        if fault := refusal(self._agent, policy):
            raise Conflict(fault)
        with self._lock:
            self.log.step(self.log.state._replace(policy=policy), [events.change("confirmation_policy", policy)])

    def keep(self, secrets: dict[str, str]) -> None:
        """Add secrets to the environment of the agent's next process. They are kept only in memory."""
        with self._lock:
            self._secrets = self._secrets | secrets
            self.log.hide(*secrets.values())

    def delete(self) -> None:
        with self._lock:
            self.log.remove()
            self._requests.clear()
            if self._program:
                self._program.end("The conversation was deleted.")

    def end(self) -> None:
        """End the agent's program on shutdown of the agent server."""
        if self._program:
            self._program.end("The agent server ended.")

    # Reports and requests of the agent. These methods run in the thread of its process.

    def on_update(self, update: dict[str, Any]) -> None:
        with self._lock:
            try:
                self._take(update)
            except DiskError as error:
                self._fail(error)

    def on_request(self, token: int, call: dict[str, Any], options: Any) -> Outcome | None:
        with self._lock:
            if self._turn is None or self._is_cancelled or not self._is_active:
                return CANCELLED
            try:
                return self._asked(self._turn, token, call, options)
            except DiskError as error:
                self._fail(error)
                return CANCELLED

    @property
    def _is_active(self) -> bool:
        return self.log.state.status in ("running", "waiting_for_confirmation")

    def _fail(self, error: DiskError) -> None:
        """End the process, because its further actions could not be logged."""
        print(f"{error}. The run stops.", file=sys.stderr)
        if self._program:
            self._program.end(str(error))

    def _take(self, update: dict[str, Any]) -> None:
        if update.get("sessionUpdate") == "current_mode_update":
            self._check_mode(text(update.get("currentModeId")))
        if (turn := self._turn) is None:
            return
        done, delta = turn.read(update)
        if done:
            self.log.step(self.log.state, done)
        if delta:
            self._show(delta)
        identity = text(update.get("toolCallId"))
        if (call := turn.calls.get(identity)) and call.get("status") in updates.ENDED and not call.get(_CLOSED):
            call[_CLOSED] = True
            self._close(turn, identity, call)

    def _check_mode(self, mode: str) -> None:
        """Log that the agent left the mode in which it asks. The next session sets the mode again."""
        if self._agent.mode and mode != self._agent.mode:
            words = f"The agent has changed its mode from {self._agent.mode} to {mode}, in which it may not ask."
            self.log.step(self.log.state, [events.error("AgentModeChanged", words)])

    def _asked(self, turn: PromptTurn, token: int, update: dict[str, Any], options: Any) -> Outcome | None:
        """Open the action of a request. Return the outcome if no person decides."""
        identity = text(update.get("toolCallId")) or updates.fresh("call")
        call = turn.merge(identity, update)
        call.pop(_CLOSED, None)  # a repeated request for an ended call is a new action
        seen, state = permissions.shown(call, self._folder), self.log.state
        before, thought, reasoning = turn.take_thought()
        action = updates.proposal(self._call_id(identity), seen, "", {"thought": thought, **reasoning})
        step = [*before, action]
        if fault := self._refused(state, seen.action, options):
            self.log.step(state, [*step, events.failure(action, fault)])
            return permissions.outcome(options, approve=False)
        state = state._replace(open=[*state.open, action["id"]])
        waits = holds(state.policy, [action])
        if not waits:
            approved = {"action_id": action["id"], "decision": "approve"}
            state = state._replace(decided={**state.decided, action["id"]: approved})
        elif state.status == "running":
            state = moved(state, "waiting_for_confirmation", step)
        self.log.step(state, step)
        self._actions[identity], self._shown[action["id"]] = action["id"], call.get("rawInput")
        if not waits:
            return permissions.outcome(options, approve=True)
        self._requests[action["id"]] = token, options
        return None

    def _refused(self, state: StepState, action: Event, options: Any) -> str:
        if not permissions.can_allow(options):
            return NO_OPTION
        if permissions.is_too_long(action):
            return TOO_LONG
        return TOO_MANY if len(state.open) >= MOST_OPEN else ""

    def _call_id(self, identity: str) -> str:
        """Return a unique tool call id: agents count from 1 in each session."""
        call_id = identity if identity not in self._known_calls and len(identity) <= 64 else updates.fresh("call")
        self._known_calls.add(call_id)
        return call_id

    def _close(self, turn: PromptTurn, identity: str, call: dict[str, Any]) -> None:
        """Log the end of a tool call: of an open action, or of an action without permission or request."""
        state, action_id = self.log.state, self._actions.get(identity, "")
        if action_id not in state.open:
            if not action_id or call["status"] == "completed":
                prefix = updates.FORBIDDEN if action_id else updates.UNASKED
                before, thought, reasoning = turn.take_thought()
                members = {"thought": thought, **reasoning}
                seen = permissions.shown(call, self._folder)
                action = updates.proposal(self._call_id(identity), seen, prefix, members)
                self.log.step(state, [*before, action, updates.result(action, call)])
            return
        action, waiting = self.log.known(action_id), undecided(state)
        state = state._replace(open=[one for one in state.open if one != action_id])
        step = [self._result(action, call, BYPASSED if action_id in waiting else "")]
        if action_id in waiting:
            if call["status"] == "failed":
                step = [events.failure(action, WITHDRAWN)]
            if not undecided(state):
                state = moved(state, "running", step)
        self.log.step(state, step)
        self._shown.pop(action_id, None)
        if request := self._requests.pop(action_id, None):
            self._answer(request[0], CANCELLED)

    def _result(self, action: Event, call: dict[str, Any], notice: str) -> Event:
        """Return the observation of an action, after a notice and a warning about arguments that were not shown."""
        seen, notices = updates.result(action, call), [notice] if notice else []
        if others := updates.other_arguments(self._shown.get(action["id"]), call.get("rawInput"), self._folder):
            notices.append(f"The agent reports other arguments than those that it asked about: {others}")
        parts = [part for one in notices for part in events.parts(one)]
        seen["observation"]["content"] = [*parts, *seen["observation"]["content"]]
        return seen

    def _show(self, delta: Delta) -> None:
        whole = Delta(self._unshown.text + delta.text, self._unshown.thought + delta.thought)
        self._unshown = whole
        if time.monotonic() - self._shown_at > _SHOWN_EVERY:
            parts = {"content": whole.text or None, "reasoning_content": whole.thought or None}
            members = {name: part for name, part in parts.items() if part}
            self.log.show(events.event("StreamingDeltaEvent", "agent", **members))
            self._unshown, self._shown_at = Delta(), time.monotonic()

    # Decisions. The caller holds the lock.

    def _decide(self, decisions: list[Decision]) -> None:
        """Log decisions, then answer the requests. Raises Stale."""
        state, step = decided(self.log, decisions, rest="running")
        if not step and state == self.log.state:
            return
        answered = [one for one in decisions if one["action_id"] in self._requests]
        reasons = [
            one["reason"] for one in answered if one["decision"] == "reject" and one["reason"] not in _NO_REASONS
        ]
        if reasons and state.mind.get("told", 0) < MOST_REASONS:
            state = state._replace(mind={**state.mind, "reasons": [*state.mind.get("reasons", []), *reasons]})
        self.log.step(state, step)
        for one in answered:
            token, options = self._requests.pop(one["action_id"])
            self._answer(token, permissions.outcome(options, approve=one["decision"] == "approve"))

    def _answer(self, token: int, outcome: Outcome) -> None:
        if self._program:
            self._program.answer(token, outcome)

    def _cancel(self) -> None:
        """End the current turn: reply `cancelled` to all the agent's requests."""
        self._requests.clear()
        if self._turn and self._program:
            self._is_cancelled = True
            self._program.cancel()

    def _move(self, status: str) -> None:
        step = list[Event]()
        self.log.step(moved(self.log.state, status, step), step)

    # The worker thread.

    def _work_if_running(self) -> None:
        if self._is_active and self._worker is None:
            self._worker = threading.Thread(target=self._work, daemon=True)
            self._worker.start()

    def _work(self) -> None:
        try:
            while self._has_work():
                program = self._ready()
                if blocks := self._begin_turn(program):
                    self._run_turn(program, blocks)
        except DiskError as error:
            print(f"{error}. The run stops.", file=sys.stderr)
            self._end_run("paused")
        except AgentError as error:
            self._end_run("error", events.error("AgentStartError", f"{error} {_NEXT}"))
        except Exception as error:  # a conversation must not stay running without a thread
            traceback.print_exc()
            self._end_run("error", events.error(type(error).__name__, "The agent failed. See the sandbox's log."))

    def _has_work(self) -> bool:
        """Return whether the run goes on. If not, the worker ends."""
        with self._lock:
            state = self.log.state
            if self.is_running:
                if state.unanswered or state.mind.get("reasons") or (self._goes_on and state.mind.get("cut")):
                    return True
                self._move("finished")
            self._worker, self._goes_on = None, False
            return False

    def _ready(self) -> AcpProcess:
        """Return the process, with a session in the mode that asks. Raises AgentError."""
        if self._program and self._program.is_there():
            return self._program
        if fault := refusal(self._agent, self.log.state.policy):
            raise AgentError(fault)
        if self._agent.needs_model:
            raise AgentError(NO_MODEL.format(title=self._agent.title, wire=self._agent.wire))
        environment = {**self._environment, **dict(filter(_is_variable, self._secrets.items()))}
        if home := environment.get("HOME"):
            with suppress(OSError):  # the agent reports what is missing
                Path(home).mkdir(parents=True, exist_ok=True)
        program = AcpProcess(self._agent.command, self._folder, environment, self)
        try:
            program.start()
            session, words = self._session(program, text(self.log.state.mind.get("session")))
            self._set_mode(program, session)
            with self._lock:
                step = [events.error("AgentSessionNotLoaded", words)] if words else []
                mind = {**self.log.state.mind, "session": session.id, "program": program.name}
                mind["spent"] = self.log.state.stats.get("accumulated_cost", 0.0)
                self.log.step(self.log.state._replace(mind=mind), step)
                self._program = program
        except (AgentError, DiskError):  # also after a deletion of the conversation
            program.end()
            raise
        return program

    def _session(self, program: AcpProcess, known: str) -> tuple[AcpSession, str]:
        """Load the session of an earlier process, or create one. Return a notice if the session was lost."""
        if not known:
            return program.begin(self._agent.meta), ""
        lost = "A new session began: the agent does not remember what came before."
        if not program.can_load:
            return program.begin(
                self._agent.meta
            ), f"{self._agent.title} cannot load a session of an earlier process. {lost}"
        try:
            return program.load(known, self._agent.meta), ""
        except AgentEnded:
            raise
        except AgentError as error:
            return program.begin(self._agent.meta), f"The agent could not load its session. {error} {lost}"

    def _set_mode(self, program: AcpProcess, session: AcpSession) -> None:
        """Set the mode in which the agent asks. Raises AgentError if the policy needs a mode and the agent lacks it."""
        mode = self._agent.mode
        if not mode:
            return
        modes = session.response.get("modes")
        listed = modes.get("availableModes") if isinstance(modes, dict) else None
        names = [one.get("id") for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
        if mode in names:
            program.set_mode(mode)
        elif option := _option(session.response, "mode", mode):
            program.set_option(option, mode)
        elif self.log.state.policy.get("kind") != "NeverConfirm":
            offered = ", ".join(map(str, names)) or "none"
            raise AgentError(f"The agent has no mode {mode}, in which it asks. Its modes: {offered}.")

    def _begin_turn(self, program: AcpProcess) -> list[dict[str, Any]]:
        """Return the next prompt; empty if the run is over. Each message is sent to the agent once."""
        with self._lock:
            if not self.is_running:
                return []
            state = self.log.state
            content = [part for one in state.unanswered for part in self.log.known(one)["llm_message"]["content"]]
            for reason in [] if state.unanswered else state.mind.get("reasons", []):
                content += events.parts(f"I rejected a call of yours, for this reason: {reason}")
            told = 0 if state.unanswered else state.mind.get("told", 0) + 1
            mind = {**state.mind, "reasons": [], "told": told, "cut": True}
            self.log.step(state._replace(unanswered=[], mind=mind), [])
            self._turn, self._is_cancelled, self._goes_on = PromptTurn(), False, False
            program.begin_turn()
            self._actions.clear()
            return updates.prompt_of(content or events.parts(GO_ON), images=program.reads_images)

    def _run_turn(self, program: AcpProcess, blocks: list[dict[str, Any]]) -> None:
        told: dict[str, Any] = {}
        ending: Event | None = None
        try:
            told = program.prompt(blocks, lambda: bool(self._requests))
        except AgentEnded as error:
            ending = events.error("AgentEnded", f"{error} {_NEXT}")
        except AgentError as error:
            ending = events.error("AgentError", f"{error} Send a message to try again.")
        with self._lock:
            self._end_turn(told, ending)

    def _end_turn(self, response: dict[str, Any], ending: Event | None) -> None:
        turn, state = self._turn or PromptTurn(), self.log.state
        self._turn = None
        for token, _ in self._requests.values():  # a live agent may await the response in its next turn
            self._answer(token, CANCELLED)
        self._requests.clear()
        step = turn.flushed()
        step += self._closed(state, ENDED, UNKNOWN) if ending else self._closed(state, WITHDRAWN, UNREPORTED)
        kept = dict([*state.decided.items()][-_KEPT_DECISIONS:])
        reason = text(response.get("stopReason"))
        cut = ending is not None or reason in ("cancelled", "")
        state = state._replace(open=[], decided=kept, mind={**state.mind, "cut": cut})
        stats = updates.stats_of(
            state.stats, response.get("usage"), turn.usage, self._agent.title, state.mind.get("spent", 0.0)
        )
        if stats != state.stats:
            state = state._replace(stats=stats)
            step.append(events.change("stats", usage(stats)))
        if ending is None and reason in _STOPS:
            ending = events.error("AgentStopped", _STOPS[reason])
        if self._is_active:
            state = self._after(state, ending, reason, step)
        self._shown.clear()
        if state.status != "deleting":
            self.log.record(state, step)

    def _after(self, state: StepState, ending: Event | None, reason: str, step: list[Event]) -> StepState:
        """Return the state of a run after a turn, and add the events of the change to the step."""
        if ending and not (self._is_cancelled and (state.unanswered or self._goes_on)):
            step.append(ending)
            return moved(state, "error", step)
        if state.unanswered or state.mind.get("reasons") or self._goes_on:
            return state if state.status == "running" else moved(state, "running", step)
        return moved(state, "idle" if reason == "cancelled" else "finished", step)

    def _end_run(self, status: str, *step: Event) -> None:
        """End the run of this thread, even if the step cannot be written."""
        with self._lock:
            self._worker = self._turn = None
            self._requests.clear()
            if self._program:
                self._program.end()
            if self._is_active:
                ending = [*self._closed(self.log.state, ENDED, UNKNOWN), *step]
                with suppress(DiskError):
                    self.log.record(moved(self.log.state._replace(open=[]), status, ending), ending)
                self.log.post_info()

    def _closed(self, state: StepState, waiting: str, permitted: str) -> list[Event]:
        """Return an error for each open action: `waiting` if it is undecided, otherwise `permitted`."""
        of = undecided(state)
        return [events.failure(self.log.known(one), waiting if one in of else permitted) for one in state.open]


def _rejection(action_id: str, reason: str) -> Decision:
    return {"action_id": action_id, "decision": "reject", "reason": reason}


def _is_variable(secret: tuple[str, str]) -> bool:
    name, value = secret
    return bool(name) and "=" not in name and "\0" not in name + value


def _option(response: dict[str, Any], category: str, value: str) -> str:
    """Return the id of a session setting by category and possible value; "" if there is none."""
    options = response.get("configOptions")
    for one in options if isinstance(options, list) else []:
        if isinstance(one, dict) and one.get("category") == category and value in _values(one.get("options")):
            return text(one.get("id"))
    return ""


def _values(options: Any) -> list[Any]:
    """Return the values of a setting, with those inside of groups."""
    listed = [one for one in options if isinstance(one, dict)] if isinstance(options, list) else []
    nested = [value for one in listed for value in _values(one.get("options"))]
    return [one["value"] for one in listed if "value" in one] + nested
