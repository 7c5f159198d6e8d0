"""Checks whether a sandbox's agent server is reachable, and resumes a paused sandbox for a use."""

import time
from collections.abc import Callable

import httpx

from agents.client import AgentRefused, AgentServer, AgentUnreachable
from agents.places import after_making_room
from core.wire import ConversationId
from store import Store
from store.errors import KeyUnreadable, NeedsApproval, SandboxNotFound, SandboxRefuses
from store.sandboxes.sandboxes import Sandbox, SandboxId

#: Interval in seconds between two polls of a resuming sandbox.
_POLL = 0.05

#: Transient statuses: callers wait for the next one.
WAKING = ("PAUSED", "STARTING")


class NotReachable(Exception):
    """Raised if the sandbox of a conversation does not run. status: the sandbox's; MISSING if it was deleted."""

    def __init__(self, sandbox_id: str, status: str, *, waited: float = 0, is_gone: bool = False) -> None:
        """waited: maximum wait for the sandbox, in seconds. is_gone: it was deleted."""
        resume = f": POST /api/v1/sandboxes/{sandbox_id}/resume first"
        lost = "" if is_gone else ": its host, which has its files, does not answer. Try again shortly"
        hints = {"PAUSED": resume, "ERROR": resume, "STARTING": ": try again shortly", "MISSING": lost}
        hint = f" after {waited:g} s: try again shortly" if waited else hints.get(status, "")
        super().__init__(f"The sandbox is {status}{hint}")
        self.status, self.is_gone = status, is_gone
        #: A retry may succeed: the sandbox is resuming, or its host may come back.
        self.is_passing = waited > 0 or (status == "MISSING" and not is_gone)
        #: Pending messages are kept, however long the sandbox takes.
        self.is_awaited = status in (*WAKING, "MISSING") and not is_gone

    @classmethod
    def of(cls, sandbox_id: str, sandbox: Sandbox | None, *, waited: float = 0) -> "NotReachable":
        """Make the error for a sandbox; None: there is no such sandbox."""
        return cls(sandbox_id, sandbox.status if sandbox else "MISSING", waited=waited, is_gone=sandbox is None)


def ask_to_wake(store: Store, sandbox_id: SandboxId) -> None:
    """Resume a sandbox. Raises NotReachable if that is impossible, and TooManySandboxes."""
    try:
        after_making_room(store, lambda: store.sandboxes.ask(sandbox_id, "resume"))
    except (SandboxNotFound, SandboxRefuses):
        raise NotReachable.of(sandbox_id, store.sandboxes.use(sandbox_id)) from None


def wake(store: Store, sandbox_id: SandboxId, seconds: float) -> Sandbox:
    """Return the sandbox once it runs. A PAUSED sandbox is resumed, within a timeout in seconds.

    A sandbox in ERROR is not resumed, because a person should read the reason. Raises NotReachable, TooManySandboxes.
    """
    deadline = time.monotonic() + seconds
    sandbox = store.sandboxes.use(sandbox_id)
    if sandbox is not None and sandbox.wanted == "paused" and sandbox.status in ("PAUSED", "RUNNING") and seconds:
        ask_to_wake(store, sandbox_id)
        sandbox = store.sandboxes.use(sandbox_id)
    while sandbox is not None and sandbox.status == "STARTING" and time.monotonic() < deadline:
        time.sleep(_POLL)
        sandbox = store.sandboxes.use(sandbox_id)
    if sandbox is None or sandbox.status != "RUNNING":
        waited = seconds if sandbox is not None and sandbox.status in WAKING else 0
        raise NotReachable.of(sandbox_id, sandbox, waited=waited)
    return sandbox


def require_none_waits(agent: AgentServer, conversation_id: ConversationId) -> None:
    """Raise NeedsApproval if the agent server has a pending action that it has not posted yet."""
    try:
        status = agent.state(conversation_id).get("execution_status")
    except AgentRefused as refusal:
        if refusal.status != 404:  # 404: it has forgotten the conversation and its actions
            raise
    else:
        if status == "waiting_for_confirmation":
            raise NeedsApproval


def agent_server(client: httpx.Client, url: str, read_key: Callable[[], str]) -> AgentServer:
    """Make the client of an agent server. Raises AgentUnreachable if its key cannot be unsealed."""
    try:
        return AgentServer(client, url, read_key())
    except KeyUnreadable as error:
        raise AgentUnreachable(str(error)) from None


def woken_agent(store: Store, client: httpx.Client, sandbox_id: SandboxId, seconds: float = 0) -> AgentServer:
    """Return a sandbox's agent server, resumed within `seconds`. Counts as a use. Raises NotReachable."""
    sandbox = wake(store, sandbox_id, seconds)
    return agent_server(client, sandbox.agent_url, lambda: sandbox.session_api_key)
