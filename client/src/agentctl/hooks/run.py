"""`agentctl hook NAME`: reads an agent's event, asks the inbox, and prints the answer in the agent's form."""

import json
import os
import select
import signal
import sys
import threading
import time
from typing import Any, NoReturn

from agentctl.hooks import companion, kept, settings
from agentctl.hooks.agents import AGENTS, HookedAgent, HookReport, InboxVerdict, Json, Question, event_of, session_of
from agentctl.hooks.asking import A_DAY, POLL, InboxRequest, alive, request_of, verdict_of, who
from agentctl.hooks.away import has_told, missed
from agentctl.hooks.codex import joined
from agentctl.hooks.wire import Away, RequestRefused, ServerConnection

#: Seconds for which a hook that goes first tries to reach the server.
_BRIEF = 2.0

#: Seconds between looks at whether the agent is still there.
_WATCH = 1.0

#: Maximum number of bytes of an event.
_EVENT_BYTES = 16 << 20


class Ended(BaseException):
    """The agent takes no answer any more: a signal, or its next line, says so."""

    def __init__(self, outcome: str) -> None:
        self.outcome = outcome


def main(name: str, *, is_gate: bool = False) -> int:
    """Handle one event of an agent. is_gate: its questions are gates. Returns the exit code."""
    agent = AGENTS[name]
    line = sys.stdin.buffer.readline(_EVENT_BYTES) if name == "opencode" else sys.stdin.buffer.read(_EVENT_BYTES)
    try:
        event = json.loads(line)
        if not isinstance(event, dict):
            raise TypeError
    except (ValueError, TypeError):
        print(f"agentctl hook {name} reads an event of the agent on standard input", file=sys.stderr)
        return 1
    question = agent.question(event)
    if question and is_gate:
        question = question._replace(kind="gate")
    try:
        values = settings.read()
        if not values.get("url"):
            raise settings.BadSettings(f"{settings.path()} names no server. Run: agentctl hook install {name}")
    except settings.BadSettings as error:
        return _without(agent, event, question, str(error), is_required=question.kind == "gate") if question else 0
    server = ServerConnection(values["url"], values.get("key", ""))
    if question:
        return _ask(name, server, values, event, question)
    if report := agent.report(event):
        _tell(agent, server, event, report)
    elif name == "opencode" and event_of(event) == "gate":
        print(json.dumps({"reply": "once"}))  # our plugin refuses whatever has no answer
    return 0


def _ask(name: str, server: ServerConnection, values: Json, event: Json, question: Question) -> int:
    agent = AGENTS[name]
    is_required = bool(values.get("require")) or question.kind == "gate"
    if name == "codex" and question.kind == "permission" and (session := joined(event)):
        try:
            alive(server)
        except Away as error:
            return _without(agent, event, question, str(error), is_required=is_required)
        companion.leave_behind(session, server, values, agent, event)
        return 0
    is_patient = agent.races or question.kind == "gate"
    patience = float(values.get("patience") or settings.PATIENCE)
    seconds = float(A_DAY) if is_patient else patience
    order = "races" if agent.races and question.kind == "permission" else "first"
    body = request_of(agent, event, question, order, seconds)
    asking = InboxRequest(server, body, os.urandom(16).hex(), patience if is_patient and not has_told() else _BRIEF)
    try:
        _heed(name)
        state = asking.answer(time.monotonic() + seconds + POLL)
        _ignore()
    except Ended as end:
        _ignore()
        asking.close(end.outcome)
        return 0
    except RequestRefused as error:
        return _without(agent, event, question, f"The inbox refuses: {error}", is_required=is_required)
    except Away as error:
        return _without(agent, event, question, str(error), is_required=is_required)
    verdict = verdict_of(agent, state) if state else None
    if verdict is None and question.kind == "gate":
        verdict = InboxVerdict(False, "Nobody has answered in the inbox")
    if verdict is not None:
        print(json.dumps(agent.form(question, verdict)), flush=True)
    if name == "opencode":
        os._exit(0)  # its thread still reads
    return 0


def _without(agent: HookedAgent, event: Json, question: Question, words: str, *, is_required: bool) -> int:
    """Answer without the inbox: nothing, so that the terminal asks; a refusal where the inbox is required."""
    is_new = missed(session_of(event)["id"])
    if is_required:
        print(
            json.dumps(agent.form(question, InboxVerdict(False, f"The inbox is required and cannot be asked. {words}")))
        )
    elif is_new:
        sentence = f"The inbox is not asked, so this terminal alone decides. {words}"
        if agent.notice:
            print(json.dumps({agent.notice: sentence}))
        print(sentence, file=sys.stderr)
    sys.stdout.flush()
    return 0


def _tell(agent: HookedAgent, server: ServerConnection, event: Json, report: HookReport) -> None:
    """Report what an agent tells besides. Where the server is away, what ran is kept for it and the rest is lost."""
    if report.kind == "prompt" and not report.text:
        return
    body: Json = {**who(agent, event), "kind": report.kind, "text": report.text}
    if report.kind == "call":
        body |= {"tool_name": report.tool, "arguments": report.arguments or {}}
        body |= {"result": report.result, "is_error": report.is_error}
    once, is_away = os.urandom(16).hex(), has_told()
    try:
        if not is_away:
            server.call("POST", kept.REPORTS, body, once=once)
    except RequestRefused as error:
        print(f"The inbox refuses a report: {error}", file=sys.stderr)
    except Away as error:
        is_away = True
        if missed(session_of(event)["id"]):
            print(str(error), file=sys.stderr)
    if is_away and report.kind == "call":
        kept.keep(body, once)
    kept.send_behind(server)


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
