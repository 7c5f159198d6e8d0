"""Rejects pending actions whose deadline has passed: in every worker and in every supervisor, also one that stands by.

No lease: each tries, and the script of the conversation decides once. Guarantee: while one worker or one supervisor
lives and the store answers, an action is rejected within a second after its deadline. Nothing expires while the store
is away; what was due then is rejected at the next poll.
"""

import logging
import threading
from concurrent.futures import ThreadPoolExecutor

from agents.commands import Commands
from store import Store
from store.approvals.approval_checks import MOST_DUE
from store.errors import UNAVAILABLE, ConversationNotFound, NewerData
from wire import ConversationId

log = logging.getLogger("expiry")

#: seconds between two polls for what is due
_POLL = 0.2

#: conversations that one process decides at once
_AT_ONCE = 8


class ExpiryDriver:
    """Rejects what is due, until its process ends."""

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
                except NewerData:
                    return  # the process serves nothing, and says why
                except Exception as error:
                    self._log("the poll for what expires", error)
                    more = False

    def expire_due(self, pool: ThreadPoolExecutor) -> bool:
        """Reject what is due, of many conversations at once. Whether more may be due; a failed one is due again."""
        due = self._store.approval_checks.due()
        if not due:
            self._fails = False
        are_done = list(pool.map(self._expire, due))
        return len(due) == MOST_DUE and any(are_done)

    def _expire(self, conversation_id: ConversationId) -> bool:
        """Whether the conversation is no longer due."""
        try:
            try:
                self._commands.expire(conversation_id)
            except ConversationNotFound:
                log.debug("conversation %s was deleted before it was due", conversation_id)
            self._store.inbox.settle(conversation_id)
        except Exception as error:
            self._log(f"the rejection of what has expired in conversation {conversation_id}", error)
            return False
        self._fails = False
        return True

    def _log(self, what: str, error: Exception) -> None:
        """Log a failure, and of many in a row the first."""
        is_known, self._fails = self._fails, True
        if is_known:
            return
        if isinstance(error, UNAVAILABLE):
            log.warning("the store does not answer: %s", error)
        else:
            log.error("%s failed", what, exc_info=error)
