"""What becomes of the conversations in a sandbox when its agent server ends, and when the next one answers.

An end pauses what ran. After a restart each conversation is settled, see `settlement.py`. Every step may be repeated: a
supervisor may be killed at any moment. Source: docs/wire.md, 11.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from uuid import NAMESPACE_OID, uuid5

import wire
from agents.labels import tell
from agents.link import AgentServer, AgentUnreachable
from store import Store
from store.conversations.cold import StillCold
from store.errors import ConversationNotFound, NotItsSandbox
from store.link.stamps import Stamp
from store.sandboxes.sandbox_record import Sandbox
from supervisor.settlement import Settlement
from wire import ConversationId

log = logging.getLogger("supervisor")


class Recovery:
    """The conversations of sandboxes whose processes end and start. Any number of threads may use it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def interrupted(self, sandbox: Sandbox, code: str, detail: str) -> None:
        """Tell every conversation in a sandbox that its agent server ended without being asked, once per start.

        A run is paused; a conversation that waits for a decision goes on to wait. Raises only UNAVAILABLE.
        """
        self._note_end(sandbox, "interrupted", {"code": code, "detail": detail})

    def stopped(self, sandbox: Sandbox) -> None:
        """Pause the runs in a sandbox whose processes were ended on purpose. Raises only UNAVAILABLE."""
        self._note_end(sandbox, "stopped", {})

    def _note_end(self, sandbox: Sandbox, how: str, error: dict[str, str]) -> None:
        for state in self._store.app_conversations.each_in(sandbox.id):
            prefix = str(uuid5(NAMESPACE_OID, f"{sandbox.id} {sandbox.start} {state['id']} {how}"))[:24]
            with _one_of_several():
                identity = ConversationId(state["id"])
                self._store.conversations.interrupt(identity, sandbox.id, Stamp(wire.now(), prefix), error)

    def settle(self, sandbox: Sandbox, agent: AgentServer, *, resume_runs: bool) -> None:
        """Settle every conversation in a sandbox with the agent server that has just been started there.

        A start is settled once: a call about an agent server that has worked since, and was only paused, does nothing.
        resume_runs: a run that was interrupted goes on. Raises AgentUnreachable, after which a repeat goes on where
        this call has ended, and UNAVAILABLE.
        """
        if self._store.sandboxes.settled_start(sandbox.id) == sandbox.start:
            return
        for state in self._store.app_conversations.each_in(sandbox.id):
            with _one_of_several():
                Settlement(self._store, sandbox, agent, ConversationId(state["id"])).settle(resume_runs=resume_runs)
        self._store.sandboxes.note_settled(sandbox.id, sandbox.start)

    def tell_labels(self, sandbox: Sandbox, agent: AgentServer) -> None:
        """Tell the agent the titles and tags that clients have set while it did not run. Raises only UNAVAILABLE."""
        with suppress(AgentUnreachable):
            for state in self._store.app_conversations.each_in(sandbox.id):
                tell(self._store, agent, state)


@contextmanager
def _one_of_several() -> Iterator[None]:
    """One conversation that was deleted meanwhile, or whose log stays in the archive, delays no other of its sandbox.

    Nothing ran in a cold conversation, and nothing waits: there is nothing to pause, and its next use compares it.
    """
    try:
        yield
    except StillCold as error:
        log.warning("%s (%s)", error, error.__cause__)
    except (ConversationNotFound, NotItsSandbox):
        pass
