"""A permission request in the inbox, from its first attempt to its end."""

import json
import time

from agentctl.hooks.agents import HookedAgent, InboxVerdict, Json, Question, session_of
from agentctl.hooks.away import heard
from agentctl.hooks.wire import Away, RequestRefused, ServerConnection

#: Seconds of a lease, and of the long poll that renews it.
LEASE, POLL = 20, 10

#: Seconds for which a hook that races with the terminal waits; less than the timeout that is installed.
A_DAY = 86_000

#: Seconds between attempts to reach a server.
_PAUSE = 1.0

REQUESTS = "/api/v1/permission-requests"


class InboxRequest:
    """One request in the inbox, from its first attempt to its end."""

    def __init__(self, server: ServerConnection, body: Json, once: str, seconds: float) -> None:
        self.server, self._body, self._once, self._seconds = server, body, once, seconds
        self._round, self.id = 0, ""

    def begin(self) -> Json:
        """Open the request. Try again after a lost connection. Raises Away and RequestRefused."""
        deadline = time.monotonic() + self._seconds
        while True:
            try:
                state = self.server.call("POST", REQUESTS, self._body, once=f"{self._once}-{self._round}")
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

        A request whose lease ended while the server was away is asked again. Raises Away and RequestRefused of `begin`.
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
                state = self.server.call("GET", f"{REQUESTS}/{self.id}?wait={wait:.0f}", waits=wait)
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
            self.server.call("POST", f"{REQUESTS}/{self.id}/outcome", {"outcome": outcome, "by": "terminal"})
        except (Away, RequestRefused):
            pass  # the lease ends it


def verdict_of(agent: HookedAgent, state: Json) -> InboxVerdict | None:
    """Return the answer of the inbox; None where it has none, or where the terminal gave it."""
    if (state.get("by") or {}).get("kind") == "terminal":
        return None
    if state["state"] == "approved":
        arguments = state.get("arguments") if state.get("decision") == "edit" else None
        if arguments is not None and not agent.edits:
            words = (
                f"The inbox approved other arguments. Call the tool again with exactly these: {json.dumps(arguments)}"
            )
            return InboxVerdict(False, words)
        return InboxVerdict(True, "", arguments)
    if state["state"] == "rejected":
        return InboxVerdict(False, state.get("reason") or "Refused in the inbox")
    return None


def request_of(agent: HookedAgent, event: Json, question: Question, order: str, seconds: float) -> Json:
    """Return the body of a permission request."""
    return {
        **who(agent, event),
        "tool_name": question.tool,
        "arguments": question.arguments,
        "complete": question.is_whole,
        "kind": question.kind,
        "order": order,
        "lease_seconds": LEASE,
        "expires_in": max(1, round(seconds)),
    }


def alive(server: ServerConnection) -> None:
    """Return where the server answers and takes the key. Raises Away."""
    try:
        server.call("GET", f"{REQUESTS}/none")
    except RequestRefused as error:
        if error.status in (401, 403):
            raise Away(
                f"{server.url} refuses the key of the hook: {error}. Repeat `agentctl hook install NAME`"
            ) from None
        if error.status not in (404, 422):
            raise Away(str(error)) from None


def who(agent: HookedAgent, event: Json) -> Json:
    """Return the members that name an agent and its session."""
    return {"agent": {"name": agent.name, "can_edit": agent.edits}, "session": session_of(event)}
