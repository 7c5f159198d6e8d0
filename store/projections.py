"""What other keys have of a conversation: its entry in the listing, and what waits in it in the index of approvals.

A script that changes a conversation brings them up to date itself where it can (`scripts/_follow.lua`). Its reply says
what it leaves, and its caller does that before the change is acknowledged.
"""

import json
from typing import Protocol, TypeVar

from core.wire import ConversationId
from store.errors import ConversationNotFound
from store.listing import Listing
from store.scripts.calls import LogState


class Refresh(Protocol):
    """What brings the index up to date with a conversation."""

    def refresh(self, conversation_id: ConversationId) -> None: ...


class Reply(Protocol):
    """A reply of a script that writes a conversation."""

    @property
    def state(self) -> LogState: ...


Replied = TypeVar("Replied", bound=Reply)


class Projections:
    """Brings the listing and the index up to date with a conversation."""

    def __init__(self, listing: Listing, approvals: Refresh) -> None:
        """approvals: the index, or the rules that decide before it."""
        self._listing = listing
        self._approvals = approvals

    def settled(self, conversation_id: ConversationId, reply: Replied | None) -> Replied:
        """Do what a script leaves, and return its reply. Raises ConversationNotFound where there is none."""
        if reply is None:
            raise ConversationNotFound
        self.settle(conversation_id, reply.state)
        return reply

    def settle(self, conversation_id: ConversationId, state: LogState) -> None:
        """Do what a script leaves by the state that it has replied with.

        Nothing is left where one server has all keys, unless a rule may decide what waits. In a cluster one round trip,
        and three more where approvals have changed or an action waits.
        """
        if not state.listed:
            times = state.created_at, state.updated_at
            title = json.loads(state.title)
            self._listing.note(conversation_id, state.revision, state.status, *times, state.groups, title)
        if state.approvals:
            self.refresh(conversation_id)

    def refresh(self, conversation_id: ConversationId) -> None:
        """Bring the index up to date with a conversation."""
        self._approvals.refresh(conversation_id)
