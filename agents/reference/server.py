"""The conversations of one reference agent server; each is loaded from its folder when it is first asked for."""

import threading
import time
from pathlib import Path
from typing import Any
from uuid import UUID

from agents.reference.conversation import Conversation
from agents.reference.events import now
from agents.reference.journal import DiskError, Journal
from agents.reference.log import Log
from agents.reference.webhooks import Webhooks


class Server:
    """The state of one process. Every method raises DiskError."""

    def __init__(self, key: str, folder: Path, webhooks: Webhooks) -> None:
        """folder: that of all conversations, each in a folder that is named by its id in 32 hex digits."""
        self.key = key
        self.started = self.used = time.monotonic()
        self._folder = folder
        self._webhooks = webhooks
        self._loaded: dict[UUID, Conversation] = {}
        self._lock = threading.RLock()

    def works(self) -> bool:
        with self._lock:
            return any(conversation.is_running for conversation in self._loaded.values())

    def find(self, identity: UUID) -> Conversation | None:
        """A conversation; None if there is none of that id."""
        with self._lock:
            return self._loaded.get(identity) or self._load(identity, {})

    def start(self, identity: UUID, given: dict[str, Any], secrets: dict[str, str]) -> tuple[Conversation, bool]:
        """The conversation of that id, and whether it is new."""
        with self._lock:
            if known := self.find(identity):
                return known, False
            journal = self._journal(identity)
            journal.create({"id": str(identity), "created_at": now(), **given})
            try:
                new = self._load(identity, secrets)
            except DiskError:
                journal.remove()
                raise
            assert new is not None
            return new, True

    def delete(self, identity: UUID) -> bool:
        """Remove a conversation with its folder; False if there is none of that id."""
        with self._lock:
            if conversation := self.find(identity):
                conversation.delete()
                del self._loaded[identity]
            return conversation is not None

    def _load(self, identity: UUID, secrets: dict[str, str]) -> Conversation | None:
        journal = self._journal(identity)
        kept = journal.load()
        if kept is None:
            return None
        conversation = Conversation(Log(kept, journal, self._webhooks), secrets)
        if kept.state is None:
            conversation.begin()
        else:
            conversation.close_what_was_cut_short()
        self._loaded[identity] = conversation
        return conversation

    def _journal(self, identity: UUID) -> Journal:
        return Journal(self._folder / identity.hex)
