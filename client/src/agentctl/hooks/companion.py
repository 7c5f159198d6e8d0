"""The process that a hook of Codex leaves behind: the inbox and the terminal ask at the same time."""

import os
import shlex
import threading
import time
from contextlib import suppress
from typing import Any

from agentctl.hooks.agents import HookedAgent, InboxVerdict, Json
from agentctl.hooks.asking import A_DAY, InboxRequest, request_of, verdict_of
from agentctl.hooks.behind import is_left_behind
from agentctl.hooks.codex import CodexSession
from agentctl.hooks.settings import PATIENCE
from agentctl.hooks.wire import Away, RequestRefused, ServerConnection

#: Seconds for Codex to show its question after the hook has ended.
_QUESTION = 20.0

#: Seconds after an answer at the terminal within which a refusal shows; a call that goes on was allowed.
_REFUSAL = 1.0

#: Seconds between looks at what has been resolved.
_LOOK = 0.2


def leave_behind(
    session: CodexSession, server: ServerConnection, values: Json, agent: HookedAgent, event: Json
) -> None:
    """Return at once in this process; the one that it leaves behind asks the inbox beside the terminal."""
    if not is_left_behind():
        return
    with suppress(OSError, ValueError):  # the terminal has the question
        Companion(session, server, values, agent, event).run()
    os._exit(0)


class Companion:
    """Asks the inbox for the call of one event, wherever the session asks for it."""

    def __init__(
        self, session: CodexSession, server: ServerConnection, values: Json, agent: HookedAgent, event: Json
    ) -> None:
        self._session, self._server, self._values = session, server, values
        self._agent, self._event = agent, event
        self._thread = str(event["session_id"])
        self._open: dict[Any, tuple[str, InboxRequest]] = {}  #: by the id of a question: its item, and the request
        self._answered: set[Any] = set()
        self._resolved: dict[Any, float] = {}  #: questions that the terminal answered, and when
        self._sending = threading.Lock()

    def run(self) -> None:
        """Serve the questions of the call until each is answered. Raises OSError."""
        self._session.send(id=3, method="thread/resume", params={"threadId": self._thread})
        deadline, has_asked = time.monotonic() + _QUESTION, False
        last = time.monotonic() + A_DAY  # Codex keeps a question whose terminal was closed
        try:
            while (now := time.monotonic()) < last and (self._open or (not has_asked and now < deadline)):
                if message := self._session.receive(time.monotonic() + _LOOK):
                    self._hear(message)
                has_asked = has_asked or bool(self._open)
                now = time.monotonic()
                for question, since in list(self._resolved.items()):
                    if now > since + _REFUSAL:
                        self._end(question, "allowed")
        except OSError:
            for question in list(self._open):
                self._end(question, "withdrawn")
            raise

    def _hear(self, message: Json) -> None:
        method, params = str(message.get("method", "")), message.get("params") or {}
        if params.get("threadId") != self._thread:
            return
        if method.endswith("/requestApproval") and self._is_ours(method, params):
            self._ask(message["id"], params)
        elif method == "serverRequest/resolved" and (question := params.get("requestId")) in self._open:
            if question in self._answered:
                del self._open[question]
            else:
                self._resolved[question] = time.monotonic()
        elif method == "item/completed":
            item = params.get("item") or {}
            for question, (identity, _) in list(self._open.items()):
                if identity == item.get("id"):
                    self._end(question, "refused" if item.get("status") == "declined" else "allowed")
        elif method == "turn/completed":
            for question in list(self._open):
                self._end(question, "refused")

    def _is_ours(self, method: str, params: Json) -> bool:
        """Return whether a question is for the call of the event."""
        arguments = self._event.get("tool_input") or {}
        command = arguments.get("command") if isinstance(arguments, dict) else None
        if not method.startswith("item/commandExecution/"):
            return self._event.get("tool_name") != "Bash"
        if not isinstance(command, str) or not isinstance(params.get("command"), str):
            return True
        try:
            words = shlex.split(params["command"])
        except ValueError:
            words = []
        return params["command"] == command or words[-1:] == [command]

    def _ask(self, number: Any, params: Json) -> None:
        question = self._agent.question(self._event)
        if number in self._open or question is None:
            return
        body = request_of(self._agent, self._event, question, "races", A_DAY)
        # Companions of equal calls share a request: it has the name of the question.
        once = f"codex-{self._thread}-{params.get('itemId')}-{params.get('startedAtMs')}"
        server = ServerConnection(self._server.url, str(self._values.get("key") or ""))
        asking = InboxRequest(server, body, once, float(self._values.get("patience") or PATIENCE))
        self._open[number] = (str(params.get("itemId")), asking)
        threading.Thread(target=self._await, args=(number, params, asking), daemon=True).start()

    def _await(self, number: Any, params: Json, asking: InboxRequest) -> None:
        try:
            state = asking.answer(time.monotonic() + A_DAY)
            verdict = verdict_of(self._agent, state) if state else None
        except (Away, RequestRefused) as error:  # the terminal alone, unless the inbox is required
            verdict = InboxVerdict(False, str(error)) if self._values.get("require") else None
        if verdict is None or number in self._resolved:
            return
        self._answered.add(number)
        with self._sending:
            if not verdict.allows:  # a refusal has no reason: the agent reads it as the person's next words
                words = {"type": "text", "text": f"This call was refused in the inbox: {verdict.reason}"}
                turn = {"threadId": self._thread, "expectedTurnId": params.get("turnId"), "input": [words]}
                self._session.send(id=4, method="turn/steer", params=turn)
            self._session.send(id=number, result={"decision": "accept" if verdict.allows else "decline"})

    def _end(self, question: Any, outcome: str) -> None:
        self._resolved.pop(question, None)
        _, asking = self._open.pop(question)
        if question not in self._answered:
            asking.close(outcome)
