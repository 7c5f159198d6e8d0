"""The mind of an ACP agent in any order of questions, decisions, cancellations, deaths and restarts.

Promise: nothing is granted that was not decided, nothing is granted twice, a request has one outcome, an option is
chosen by its kind, and no request stays open once nothing works on it.

The program is a model in this process, and the worker is a greenlet: the machine says when each of them goes on, so
that a decision comes before or after a death is noticed. There is no clock and no further thread. The log is on a
disk, and a kill comes before or after one of its steps is written.
"""

import itertools
import tempfile
import threading
from pathlib import Path
from types import SimpleNamespace
from uuid import uuid4

import pytest
from greenlet import getcurrent, greenlet
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from reference_agent.acp import conversation as mind
from reference_agent.acp.agents import AcpAgent
from reference_agent.acp.client import CANCELLED, AcpSession, AgentEnded, AgentError
from reference_agent.conversation import Stale
from reference_agent.events import RESULTS
from reference_agent.log import AgentWebhooks, DiskError, Hidden, Journal, Log
from tests.chance import often

pytestmark = pytest.mark.faults("kills an agent server, in a model, in many orders")

AGENT = AcpAgent("scripted", "Scripted", ("scripted",), mode="careful")
ALWAYS, NEVER = {"kind": "AlwaysConfirm"}, {"kind": "NeverConfirm"}
KINDS = ["allow_always", "allow_once", "reject_once", "reject_always"]
TEXT = [{"type": "text", "text": "go on"}]

PLACES = st.integers(0, 99)


class AgentKilled(BaseException):
    """The agent server is killed: no code of its own sees that."""


class FaultyJournal(Journal):
    """A journal whose process is killed before or after its next step is written, or whose disk refuses that step."""

    fault = ""

    def append(self, events, state):
        if self.fault == "killed before":
            raise AgentKilled
        if self.fault == "refused":
            self.fault = ""
            raise DiskError("write to", Path("one"), OSError(28, "No space left on device"))
        super().append(events, state)
        if self.fault == "killed after":
            raise AgentKilled


class WorkerGreenlet(greenlet):
    """Stands in for a thread: the machine lets it go on."""

    of: "AcpMachine"

    def __init__(self, target, daemon):
        super().__init__(target)
        assert daemon

    def start(self):
        self.of.workers.append(self)


class Request:
    """A request for permission, and what its program was told."""

    def __init__(self, program: "Program", name: str, call_id: str, kinds: list[str], policy: dict) -> None:
        self.program, self.name, self.call_id, self.kinds, self.policy = program, name, call_id, kinds, policy
        self.outcomes: list[dict] = []
        self.action_id = ""  #: "": it was refused before an action opened
        self.has_ended = False  #: its program has carried it out, or has given it up

    @property
    def kind(self) -> str:
        """The kind of the option that was chosen; "" without an outcome."""
        if not self.outcomes:
            return ""
        chosen = self.outcomes[0]
        return self.kinds[int(chosen["optionId"])] if chosen["outcome"] == "selected" else "cancelled"

    @property
    def is_granted(self) -> bool:
        return self.kind.startswith("allow")


class Program:
    """A process with the methods of `client.AcpProcess`. An answer counts while it lives, the first one alone."""

    of: "AcpMachine"

    def __init__(self, _command, _folder, _environment, listener):
        self.listener, self.name, self.reads_images = listener, "scripted 1", False
        self.can_load = self.of.can_load
        self.has_ended = threading.Event()
        self.requests: dict[int, Request] = {}
        self.ending: str | None = None
        self.is_prompting = self.is_cancelled = False
        self.of.programs.append(self)

    @property
    def lives(self):
        return not self.has_ended.is_set()

    def _wait(self):
        getcurrent().parent.switch()
        if not self.lives:
            raise AgentEnded("The agent's program was killed by signal 9.")

    def start(self):
        self._wait()

    def begin(self, _meta):
        self._wait()
        return self._session(f"session-{uuid4()}")

    def load(self, session_id, _meta):
        self._wait()
        if self.of.forgets:
            raise AgentError("The agent refuses: no such session")
        return self._session(session_id)

    def _session(self, identity):
        return AcpSession(identity, {"modes": {"availableModes": [{"id": "careful"}]}})

    def set_mode(self, mode):
        assert mode == "careful"

    def begin_turn(self):
        self.is_cancelled = False

    def prompt(self, _blocks, _is_waiting):
        self.ending, self.is_prompting = None, True
        try:
            while self.ending is None and not self.is_cancelled:
                self._wait()
            self._wait()
            return {"stopReason": self.ending or "cancelled"}
        finally:
            self.is_prompting = False

    def cancel(self):
        self.is_cancelled = True
        for token in self.requests:
            self._settle(token, CANCELLED)

    def answer(self, token, outcome):
        self._settle(token, outcome)

    def _settle(self, token, outcome):
        request = self.requests[token]
        if self.lives and not request.outcomes:
            request.outcomes.append(outcome)

    def end(self, _fault=""):
        self.has_ended.set()


class AcpMachine(RuleBasedStateMachine):
    """People, a program, and the process of the agent server."""

    def __init__(self):
        super().__init__()
        WorkerGreenlet.of = Program.of = self
        self.folder = tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
        self.workers: list[WorkerGreenlet] = []
        self.programs: list[Program] = []
        self.requests: list[Request] = []
        self.numbers = itertools.count(1)
        self.decided: dict[str, set[bool]] = {}  #: by action what people have said: True approves
        self.can_load = self.forgets = False
        start = {"id": str(uuid4()), "created_at": "2026-11-28T00:00:00", "initial_message": None}
        start |= {"confirmation_policy": ALWAYS, "agent": {}, "workspace": None, "title": None, "tags": {}}
        FaultyJournal(Path(self.folder.name) / "one").create(start)
        self.load()
        self.conversation.begin()

    # The process of the agent server

    def load(self):
        """Start the agent server: its conversation goes on from the disk."""
        self.journal = FaultyJournal(Path(self.folder.name) / "one")
        kept = self.journal.load()
        log = Log(kept, self.journal, AgentWebhooks("", {}), Hidden())
        self.conversation = mind.AcpConversation(log, AGENT, Path(self.folder.name), {}, {})
        if kept.state is not None:
            self.conversation.close_what_was_cut_short()

    def restart(self):
        """Kill the agent server and what it has started, and start it again."""
        for program in self.programs:
            program.end()
        for worker in self.workers:
            worker.throw()
        self.workers = []
        self.load()

    def do(self, deed, *given, **named):
        """Call the conversation. A kill in between is a restart. Returns Killed or DiskError where there was one."""
        try:
            return deed(*given, **named)
        except AgentKilled:
            self.restart()
            return AgentKilled
        except DiskError:
            return DiskError

    # What people do

    @property
    def waiting(self):
        return mind.undecided(self.conversation.log.state)

    def note(self, action_ids, accept, done):
        """Note what people have decided, unless the disk has refused it. done: the result of the call."""
        for one in action_ids if done is not DiskError else ():
            self.decided.setdefault(one, set()).add(accept)

    @rule(run=st.booleans())
    def send_a_message(self, run):
        waiting = self.waiting
        self.note(waiting, False, self.do(self.conversation.send, TEXT, run))

    @rule(accepts=st.booleans())
    def start_a_run(self, accepts):
        waiting, was_running = self.waiting, self.conversation.is_running
        done = self.do(self.conversation.run, accepts=accepts)
        if accepts:
            self.note(waiting, True, done)
        if isinstance(done, bool):
            assert done is not (was_running or bool(waiting and not accepts))

    @rule(at_once=st.booleans())
    def stop(self, at_once):
        self.do(self.conversation.stop, at_once=at_once)

    @rule(place=PLACES, accept=st.booleans(), is_stale=st.booleans())
    def decide(self, place, accept, is_stale):
        """Decide about an action that waits, or (is_stale) about any: servers repeat what got no response."""
        known = [one.action_id for one in self.requests if one.action_id] if is_stale else self.waiting
        if not known:
            return
        action_id = known[place % len(known)]
        decision = {"action_id": action_id, "decision": "approve" if accept else "reject"}
        if not accept:
            decision["reason"] = "not today"
        was_waiting = action_id in self.waiting
        try:
            done = self.do(self.conversation.decide_each, [decision])
        except Stale:
            assert not was_waiting
        else:
            by_policy = self.request(action_id).policy == NEVER
            assert was_waiting or done is DiskError or by_policy or accept in self.decided.get(action_id, ())
            self.note([action_id] if was_waiting else [], accept, done)

    @rule(accept=st.booleans())
    def decide_all(self, accept):
        waiting = self.waiting
        self.note(waiting, accept, self.do(self.conversation.decide, accept, "not today"))

    @rule(policy=st.sampled_from([ALWAYS, ALWAYS, NEVER]))
    def set_the_policy(self, policy):
        self.do(self.conversation.set_policy, policy)

    # What the program does

    @property
    def program(self):
        return next((one for one in reversed(self.programs) if one.lives), None)

    def request(self, action_id):
        return next(one for one in self.requests if one.action_id == action_id)

    @rule(kinds=st.permutations(KINDS), repeats=st.booleans(), place=PLACES)
    def the_program_asks(self, kinds, repeats, place):
        """repeats: by the id of an earlier call of it, as agents do that count from 1."""
        if not (program := self.program):
            return
        number = next(self.numbers)
        asked = [*program.requests.values()]
        call_id = asked[place % len(asked)].call_id if repeats and asked else f"call_{number}"
        request = Request(program, f"echo {number}", call_id, kinds, self.conversation.log.state.policy)
        program.requests[number] = request
        self.requests.append(request)
        call = {"toolCallId": call_id, "title": request.name, "rawInput": {"command": request.name}}
        options = [{"optionId": str(place), "name": "?", "kind": kind} for place, kind in enumerate(kinds)]
        outcome = self.do(program.listener.on_request, number, call, options)
        outcome = outcome if isinstance(outcome, dict) else None
        opened = [one["id"] for one in self.conversation.log.events if one.get("summary") == request.name]
        request.action_id = opened[0] if opened else ""
        if outcome:
            request.outcomes.append(outcome)

    @rule(place=PLACES, reports=st.booleans())
    def the_program_carries_out_what_was_granted(self, place, reports):
        granted = [one for one in self.requests if one.is_granted and one.program.lives and not one.has_ended]
        if granted:
            request = granted[place % len(granted)]
            request.has_ended = True
            if reports:
                self.report(request, "completed")

    @rule(place=PLACES)
    def the_program_gives_a_request_up(self, place):
        open_ones = [one for one in self.requests if not one.outcomes and one.program.lives and not one.has_ended]
        if open_ones:
            request = open_ones[place % len(open_ones)]
            request.has_ended = True
            self.report(request, "failed")

    def report(self, request, status):
        update = {"sessionUpdate": "tool_call_update", "toolCallId": request.call_id, "status": status}
        self.do(request.program.listener.on_update, update)

    @rule(reason=st.sampled_from(["end_turn", "cancelled", "refusal"]))
    def the_program_ends_its_turn(self, reason):
        if self.program and self.program.is_prompting:
            self.program.ending = reason

    @rule(can_load=st.booleans(), forgets=st.booleans())
    def the_program_dies(self, can_load, forgets):
        """can_load, forgets: whether the next process can load a session, and has lost this one."""
        self.can_load, self.forgets = can_load, forgets
        if self.program:
            self.program.end()

    # What the agent server does

    @rule()
    def the_worker_goes_on(self):
        for worker in [one for one in self.workers if not one.dead]:
            self.do(worker.switch)

    @rule()
    def the_worker_goes_on_as_far_as_it_can(self):
        for _ in range(6):
            self.the_worker_goes_on()

    @rule()
    def the_agent_server_is_killed(self):
        self.restart()

    @rule(fault=st.sampled_from(["killed before", "killed after", "refused"]))
    def the_next_step_fails(self, fault):
        self.journal.fault = fault

    # Promises

    def ends(self):
        """By the id of its tool call, how often each action was closed."""
        events = self.conversation.log.events
        ends = {one["tool_call_id"]: 0 for one in events if one["kind"] == "ActionEvent"}
        for one in events:
            if one["kind"] in RESULTS:
                ends[one["tool_call_id"]] += 1
        return ends

    @invariant()
    def nothing_is_granted_that_was_not_decided(self):
        for one in self.requests:
            if one.is_granted:
                assert one.action_id
                assert one.kind == "allow_once"
                assert self.decided.get(one.action_id, {one.policy == NEVER}) == {True}

    @invariant()
    def a_request_has_one_decision_and_an_action_one_end(self):
        assert all(len(said) == 1 for said in self.decided.values())
        assert all(number <= 1 for number in self.ends().values())
        assert all(len(one.outcomes) <= 1 for one in self.requests)

    @invariant()
    def what_is_open_is_asked_by_a_program_that_a_worker_waits_for(self):
        state = self.conversation.log.state
        works = any(not one.dead for one in self.workers)
        assert sum(one.lives for one in self.programs) <= 1
        assert works or not state.open
        assert works or state.status not in ("running", "waiting_for_confirmation")
        for one in self.requests:
            is_asked = one.program.lives and not one.outcomes
            assert not is_asked or one.action_id in state.open

    def teardown(self):
        """The last program dies, and then nothing is open, whatever came before."""
        self.journal.fault = ""
        for _ in range(10):
            for program in self.programs:
                program.end()
            self.the_worker_goes_on()
        try:
            self.a_request_has_one_decision_and_an_action_one_end()
            self.what_is_open_is_asked_by_a_program_that_a_worker_waits_for()
            assert not self.conversation.log.state.open
            self.restart()
            assert all(number == 1 for number in self.ends().values())
        finally:
            for worker in self.workers:
                worker.throw()
            self.folder.cleanup()


@pytest.fixture
def without_processes(monkeypatch):
    """The mind with workers and programs that the machine drives."""
    monkeypatch.setattr(mind, "threading", SimpleNamespace(Thread=WorkerGreenlet, RLock=threading.RLock))
    monkeypatch.setattr(mind, "AcpProcess", Program)


def test_nothing_is_granted_undecided_or_twice_and_no_request_stays_open_in_any_order(without_processes):
    run_state_machine_as_test(
        AcpMachine,
        settings=settings(
            max_examples=often(40, 1000),
            stateful_step_count=often(40, 60),
            deadline=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
        ),
    )
