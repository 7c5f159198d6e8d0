"""`agentctl hook NAME`: reads an agent's event, asks the inbox, and prints the answer in the agent's form."""

import json
import os
import select
import signal
import sys
import time
from typing import Any, NoReturn

from agentctl.hooks import codex, settings
from agentctl.hooks.agents import AGENTS, Agent, Json, Question, Report, Verdict, event_of, session_of
from agentctl.hooks.away import has_told, heard, missed
from agentctl.hooks.wire import Away, Refused, Server

#: Seconds of a lease, and of the long poll that renews it.
LEASE, POLL = 20, 10

#: Seconds for which a hook that races with the terminal waits; less than the timeout that is installed.
A_DAY = 86_000

#: Seconds between attempts to reach a server, and for which a hook that goes first, or a report, tries.
_PAUSE, _BRIEF = 1.0, 2.0

#: Seconds between looks at whether the agent is still there.
_WATCH = 1.0

#: Maximum number of bytes of an event.
_EVENT_BYTES = 16 << 20

_REQUESTS = "/api/v1/permission-requests"


class Ended(BaseException):
    """The agent takes no answer any more: a signal, or its next line, says so."""

    def __init__(self, outcome: str) -> None:
        self.outcome = outcome


class Asking:
    """One request in the inbox, from its first attempt to its end."""

    def __init__(self, server: Server, body: Json, once: str, seconds: float) -> None:
        self.server, self._body, self._once, self._seconds = server, body, once, seconds
        self._round, self.id = 0, ""

    def begin(self) -> Json:
        """Open the request. Try again after a lost connection. Raises Away and Refused."""
        deadline = time.monotonic() + self._seconds
        while True:
            try:
                state = self.server.call("POST", _REQUESTS, self._body, once=f"{self._once}-{self._round}")
            except Away:
                if time.monotonic() + _PAUSE > deadline:
                    raise
                time.sleep(_PAUSE)
            else:
                heard()
                self.id = state["id"]
                return state

    def answer(self, deadline: float) -> Json | None:
        """Return the state once it is no longer pending; None at the deadline of time.monotonic().

        A request whose lease ended while the server was away is asked again. Raises Away and Refused of `begin`.
        """
        state, is_lost = self.begin(), False
        while True:
            if state["state"] == "withdrawn" and (state.get("by") or {}).get("kind") == "lease":
                self._round += 1
                state = self.begin()
            if state["state"] != "pending":
                return state
            if time.monotonic() > deadline:
                return None
            try:
                wait = max(0.0, min(float(POLL), deadline - time.monotonic()))
                state = self.server.call("GET", f"{_REQUESTS}/{self.id}?wait={wait:.0f}", waits=wait)
                is_lost = False
            except Away:
                if is_lost:
                    time.sleep(_PAUSE)
                is_lost = True

    def close(self, outcome: str) -> None:
        """Tell what became of it at the terminal. An outcome that comes too late changes nothing."""
        self.server = self.server.again()  # the other one may be in the middle of a response
        try:
            if not self.id:
                self._seconds = 0.0
                self.begin()
            self.server.call("POST", f"{_REQUESTS}/{self.id}/outcome", {"outcome": outcome, "by": "terminal"})
        except (Away, Refused):
            pass  # the lease ends it


def verdict_of(agent: Agent, state: Json) -> Verdict | None:
    """Return the answer of the inbox; None where it has none, or where the terminal gave it."""
    if (state.get("by") or {}).get("kind") == "terminal":
        return None
    if state["state"] == "approved":
        arguments = state.get("arguments") if state.get("decision") == "edit" else None
        if arguments is not None and not agent.edits:
            words = (
                f"The inbox approved other arguments. Call the tool again with exactly these: {json.dumps(arguments)}"
            )
            return Verdict(False, words)
        return Verdict(True, "", arguments)
    if state["state"] == "rejected":
        return Verdict(False, state.get("reason") or "Refused in the inbox")
    return None


def request_of(agent: Agent, event: Json, question: Question, order: str, seconds: float) -> Json:
    """Return the body of a permission request."""
    return {
        **who(agent, event),
        "tool_name": question.tool,
        "arguments": question.arguments,
        "complete": question.is_whole,
        "kind": question.kind,
        "order": order,
        "can_edit": agent.edits,
        "lease_seconds": LEASE,
        "expires_in": max(1, round(seconds)),
    }


def alive(server: Server) -> None:
    """Return where the server answers and takes the key. Raises Away."""
    try:
        server.call("GET", f"{_REQUESTS}/none")
    except Refused as error:
        if error.status not in (404, 422):
            raise Away(f"{server.url} refuses the key of the hook: {error}") from None


def who(agent: Agent, event: Json) -> Json:
    """Return the members that name an agent and its session."""
    return {"agent": {"name": agent.name}, "session": session_of(event)}


def main(name: str) -> int:
    """Handle one event of an agent. Returns the exit code."""
    agent = AGENTS[name]
    line = sys.stdin.buffer.readline(_EVENT_BYTES) if name == "opencode" else sys.stdin.buffer.read(_EVENT_BYTES)
    try:
        event = json.loads(line)
        if not isinstance(event, dict):
            raise TypeError
    except (ValueError, TypeError):
        print(f"agentctl hook {name} reads an event of the agent on standard input", file=sys.stderr)
        return 1
    try:
        values = settings.read()
        if not values.get("url"):
            raise settings.BadSettings(f"{settings.path()} names no server. Run: agentctl hook install {name}")
    except settings.BadSettings as error:
        question = agent.question(event)
        return _without(agent, event, question, str(error), is_required=False) if question else 0
    server = Server(values["url"], values.get("key", ""))
    if question := agent.question(event):
        return _ask(name, server, values, event, question)
    if report := agent.report(event):
        _tell(agent, server, event, report)
    elif name == "opencode" and event_of(event) == "gate":
        print(json.dumps({"reply": "once"}))  # our plugin refuses whatever has no answer
    return 0


def _ask(name: str, server: Server, values: Json, event: Json, question: Question) -> int:
    agent = AGENTS[name]
    is_required = bool(values.get("require")) or question.kind == "gate"
    if name == "codex" and question.kind == "permission" and (session := codex.joined(event)):
        try:
            alive(server)
        except Away as error:
            return _without(agent, event, question, str(error), is_required=is_required)
        codex.leave_behind(session, server, values, agent, event)
        return 0
    is_patient = agent.races or question.kind == "gate"
    patience = float(values.get("patience") or settings.PATIENCE)
    seconds = float(A_DAY) if is_patient else patience
    order = "races" if agent.races and question.kind == "permission" else "first"
    body = request_of(agent, event, question, order, seconds)
    asking = Asking(server, body, os.urandom(16).hex(), patience if is_patient and not has_told() else _BRIEF)
    try:
        _heed(name)
        state = asking.answer(time.monotonic() + seconds + POLL)
        _ignore()
    except Ended as end:
        _ignore()
        asking.close(end.outcome)
        return 0
    except Refused as error:
        return _without(agent, event, question, f"The inbox refuses: {error}", is_required=is_required)
    except Away as error:
        return _without(agent, event, question, str(error), is_required=is_required)
    verdict = verdict_of(agent, state) if state else None
    if verdict is None and question.kind == "gate" and (not state or state["state"] != "approved"):
        verdict = Verdict(False, "Nobody has answered in the inbox")
    if verdict is not None:
        print(json.dumps(agent.form(question, verdict)), flush=True)
    if name == "opencode":
        os._exit(0)  # its thread still reads
    return 0


def _without(agent: Agent, event: Json, question: Question, words: str, *, is_required: bool) -> int:
    """Answer without the inbox: nothing, so that the terminal asks; a refusal where the inbox is required."""
    is_new = missed(session_of(event)["id"])
    if is_required:
        print(json.dumps(agent.form(question, Verdict(False, f"The inbox is required and cannot be asked. {words}"))))
    elif is_new:
        sentence = f"The inbox is not asked, so this terminal alone decides. {words}"
        if agent.notice:
            print(json.dumps({agent.notice: sentence}))
        print(sentence, file=sys.stderr)
    sys.stdout.flush()
    return 0


def _tell(agent: Agent, server: Server, event: Json, report: Report) -> None:
    """Report what an agent tells besides. It is lost where the server is away: nobody waits for it."""
    if has_told() or (report.kind == "prompt" and not report.text):
        return
    body: Json = {**who(agent, event), "kind": report.kind, "text": report.text}
    if report.kind == "call":
        body |= {"tool_name": report.tool, "arguments": report.arguments or {}}
        body |= {"result": report.result, "is_error": report.is_error}
    try:
        server.call("POST", f"{_REQUESTS}/reports", body)
    except Refused as error:
        print(f"The inbox refuses a report: {error}", file=sys.stderr)
    except Away as error:
        if missed(session_of(event)["id"]):
            print(str(error), file=sys.stderr)


def _heed(name: str) -> None:
    """Raise Ended when the agent takes no answer any more."""
    parent, output = os.getppid(), select.poll()
    output.register(1, 0)

    def ended(number: int, _: object) -> None:
        # Agents end their hook by SIGTERM when a person says no. Whoever is killed says nothing: its pipe closes.
        if number == signal.SIGTERM:
            raise Ended("refused")
        if number != signal.SIGALRM or os.getppid() != parent or output.poll(0):
            raise Ended("withdrawn")

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM):
        signal.signal(number, ended)
    signal.setitimer(signal.ITIMER_REAL, _WATCH, _WATCH)
    if name == "opencode":
        _read_on()


def _read_on() -> None:
    """Wait beside the question for our plugin's next line, {"replied": "once" | "always" | "reject"}, or its end."""
    import threading

    said = ["withdrawn"]

    def read() -> None:
        if line := sys.stdin.buffer.readline(4096):
            said[0] = "refused" if json.loads(line).get("replied") == "reject" else "allowed"
        os.kill(os.getpid(), signal.SIGUSR1)

    def ended(*_: Any) -> NoReturn:
        raise Ended(said[0])

    signal.signal(signal.SIGUSR1, ended)
    threading.Thread(target=read, daemon=True).start()


def _ignore() -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
