"""Deadlines of pending actions: who sets them, and what rejects an expired action.

`confirmation_seconds` is the lifetime of a pending action: a conversation's own value, else its sandbox spec's, else
the setting. A start copies the spec's value into the conversation, so that the script that opens an action needs no
spec. A null in a change copies it again. See docs/approvals.md.

`ExpiryDriver` runs in every worker and supervisor, also in one that stands by. It needs no lease, because the script of
the conversation decides once. Guarantee: while a worker or a supervisor lives and the store is available, an action is
rejected within a second after its deadline. While the store is unavailable nothing expires; the next poll after that
rejects it.
"""

import logging
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from agents.commands import Commands
from core.access import Principal
from core.wire import ConversationId
from settings.specs import Specs
from store import Store
from store.approvals.inbox import MOST_DUE
from store.errors import UNAVAILABLE, ConversationNotFound, NeedsApproval, NewerData
from store.sandboxes.sandboxes import SandboxId

log = logging.getLogger("expiry")

#: Interval between two polls, in seconds.
_POLL = 0.2

#: Number of conversations that a process decides at once.
_AT_ONCE = 8


class DeadlineNeedsApproval(NeedsApproval):
    """Raised if the deadline of pending actions was changed without the right to reject actions."""

    def __str__(self) -> str:
        return "confirmation_seconds decides when actions are rejected: that needs a key with the scope approve"


def with_deadline(
    store: Store, specs: Specs, principal: Principal, conversation_id: ConversationId, changes: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the changes with a null deadline replaced by the spec's; None if only the setting has a value.

    A pending action keeps its deadline. Raises DeadlineNeedsApproval, and ConversationNotFound for a null.
    """
    if "confirmation_seconds" not in changes:
        return dict(changes)
    if not principal.may("approve"):
        raise DeadlineNeedsApproval
    seconds = changes["confirmation_seconds"]
    sandbox_id = store.conversations.sandbox_of(conversation_id) if seconds is None else None
    if sandbox_id:
        [sandbox] = store.sandboxes.get_many([SandboxId(sandbox_id)])
        spec = specs.find(sandbox.spec_id) if sandbox else None
        seconds = spec.confirmation_seconds if spec else None
    return {**changes, "confirmation_seconds": seconds}


class ExpiryDriver:
    """Rejects expired actions, until its process ends."""

    def __init__(self, store: Store, commands: Commands) -> None:
        self._store = store
        self._commands = commands
        self._fails = False

    def run(self, stop: threading.Event) -> None:
        """Poll until `stop` is set."""
        more = False
        with ThreadPoolExecutor(_AT_ONCE, "expiry") as pool:
            while not stop.wait(0 if more else _POLL):
                try:
                    self._store.data_version.ensure()
                    more = self.expire_due(pool)
                except NewerData:  # the process serves nothing, and reports why
                    more = False
                except Exception as error:
                    self._log("the poll for what expires", error)
                    more = False

    def expire_due(self, pool: ThreadPoolExecutor) -> bool:
        """Reject expired actions, of many conversations at once. Return whether more may be due.

        Failures are due again. Requests of sandboxes for destinations expire here too.
        """
        self._store.destinations.close_over()
        due = self._store.approvals.checks.due()
        if not due:
            self._fails = False
        are_done = list(pool.map(self._expire, due))
        return len(due) == MOST_DUE and any(are_done)

    def _expire(self, conversation_id: ConversationId) -> bool:
        """Return whether the conversation is no longer due."""
        try:
            try:
                self._commands.expire(conversation_id)
            except ConversationNotFound:
                log.debug("conversation %s was deleted before it was due", conversation_id)
            self._store.approvals.rule_decisions.refresh(conversation_id)
        except Exception as error:
            self._log(f"the rejection of what has expired in conversation {conversation_id}", error)
            return False
        self._fails = False
        return True

    def _log(self, what: str, error: Exception) -> None:
        """Log a failure, but only the first of consecutive failures."""
        is_known, self._fails = self._fails, True
        if is_known:
            return
        if isinstance(error, UNAVAILABLE):
            log.warning("the store does not answer: %s", error)
        else:
            log.error("%s failed", what, exc_info=error)
