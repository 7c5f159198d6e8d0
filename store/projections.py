"""Projections of a conversation in other keys: its entry in the listing, and its pending actions in the inbox.

A script that changes a conversation updates them itself where it can (`scripts/_follow.lua`). Its reply says what
remains, and its caller does that before the change is acknowledged.
"""

import json
from typing import Protocol, TypeVar

from core.wire import ConversationId
from store.errors import ConversationNotFound
from store.listing import Listing
from store.scripts.calls import LogState


class Refresh(Protocol):
    """Updates the index for a conversation."""

    def refresh(self, conversation_id: ConversationId) -> None: ...


class WriteReply(Protocol):
    """The reply of a script that writes a conversation."""

    @property
    def state(self) -> LogState: ...


Replied = TypeVar("Replied", bound=WriteReply)


class Projections:
    """Updates the listing and the index for a conversation."""

    def __init__(self, listing: Listing, approvals: Refresh) -> None:
        """approvals: the index, or the rules that decide before it."""
        self._listing = listing
        self._approvals = approvals

    def settled(self, conversation_id: ConversationId, reply: Replied | None) -> Replied:
        """Do what a script left to do, and return its reply. Raises ConversationNotFound if there is none."""
        if reply is None:
            raise ConversationNotFound
        self.settle(conversation_id, reply.state)
        return reply

    def settle(self, conversation_id: ConversationId, state: LogState) -> None:
        """Do what a script left to do, according to the state in its reply.

        Nothing remains if one server has all keys, unless a rule may decide pending actions. In a cluster one round
        trip, and three more if approvals have changed or an action waits.
        """
        if not state.listed:
            times = state.created_at, state.updated_at
            title = json.loads(state.title)
            self._listing.note(conversation_id, state.revision, state.status, *times, state.groups, title)
        if state.approvals:
            self.refresh(conversation_id)

    def refresh(self, conversation_id: ConversationId) -> None:
        self._approvals.refresh(conversation_id)
