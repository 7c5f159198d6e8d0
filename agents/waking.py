"""Whether the agent server of a sandbox can be reached, and how a use of a paused one wakes it."""

import time
from collections.abc import Callable

import httpx

from agents.client import AgentRefused, AgentServer, AgentUnreachable
from agents.places import after_making_room
from core.wire import ConversationId
from store import Store
from store.errors import KeyUnreadable, NeedsApproval, SandboxNotFound, SandboxRefuses
from store.sandboxes.sandboxes import Sandbox, SandboxId

#: seconds between two polls of a sandbox that is waking
_POLL = 0.05

#: statuses that a use of the sandbox waits through
WAKING = ("PAUSED", "STARTING")


class NotReachable(Exception):
    """The sandbox of a conversation does not run; status is the sandbox's, MISSING for one that was deleted."""

    def __init__(self, sandbox_id: str, status: str, *, waited: float = 0, is_gone: bool = False) -> None:
        """waited: seconds in which the sandbox was to wake. is_gone: it was deleted, and never runs again."""
        resume = f": POST /api/v1/sandboxes/{sandbox_id}/resume first"
        lost = "" if is_gone else ": its host, which has its files, does not answer. Try again shortly"
        hints = {"PAUSED": resume, "ERROR": resume, "STARTING": ": try again shortly", "MISSING": lost}
        hint = f" after {waited:g} s: try again shortly" if waited else hints.get(status, "")
        super().__init__(f"The sandbox is {status}{hint}")
        self.status, self.is_gone = status, is_gone
        #: whether a later try may succeed by itself: it still wakes, or its host may come back
        self.is_passing = waited > 0 or (status == "MISSING" and not is_gone)
        #: whether what cannot be sent yet is kept, however long: until it wakes, or its host is back
        self.is_awaited = status in (*WAKING, "MISSING") and not is_gone

    @classmethod
    def of(cls, sandbox_id: str, sandbox: Sandbox | None, *, waited: float = 0) -> "NotReachable":
        """Of the sandbox as it was read; None: there is no such sandbox."""
        return cls(sandbox_id, sandbox.status if sandbox else "MISSING", waited=waited, is_gone=sandbox is None)


def ask_to_wake(store: Store, sandbox_id: SandboxId) -> None:
    """Ask for the resume of a sandbox. Raises NotReachable of one that cannot be resumed, and TooManySandboxes."""
    try:
        after_making_room(store, lambda: store.sandboxes.ask(sandbox_id, "resume"))
    except (SandboxNotFound, SandboxRefuses):
        raise NotReachable.of(sandbox_id, store.sandboxes.use(sandbox_id)) from None


def wake(store: Store, sandbox_id: SandboxId, seconds: float) -> Sandbox:
    """The sandbox once it runs. One that is PAUSED, or becomes so, is resumed first, within so many seconds.

    ERROR is not woken: a person should read why it failed. Raises NotReachable, TooManySandboxes.
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
    """Ask an agent server whether an action is pending that it has not posted yet. Raises NeedsApproval if one is."""
    try:
        status = agent.state(conversation_id).get("execution_status")
    except AgentRefused as refusal:
        if refusal.status != 404:  # else it has forgotten the conversation, and what waited
            raise
    else:
        if status == "waiting_for_confirmation":
            raise NeedsApproval


def agent_server(client: httpx.Client, url: str, read_key: Callable[[], str]) -> AgentServer:
    """The agent server of a URL. Raises AgentUnreachable where its key cannot be unsealed."""
    try:
        return AgentServer(client, url, read_key())
    except KeyUnreadable as error:
        raise AgentUnreachable(str(error)) from None


def woken_agent(store: Store, client: httpx.Client, sandbox_id: SandboxId, seconds: float = 0) -> AgentServer:
    """The agent server of a sandbox, woken in so many seconds; the call counts as a use. Raises NotReachable."""
    sandbox = wake(store, sandbox_id, seconds)
    return agent_server(client, sandbox.agent_url, lambda: sandbox.session_api_key)
