"""Conversations: their state, events, lists and copies."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from core.wire import ConversationId
from settings.limits import ConversationLimits
from store.approvals.decisions import ReadQuorum
from store.conversations.cold import Cold
from store.conversations.conversations import AppConversations, Conversations
from store.conversations.copies import Exports, Forks
from store.conversations.lists import ConversationList, ConversationPages
from store.conversations.message_search import MessageSearch
from store.conversations.queued_messages import QueuedMessages
from store.keys import chat_root
from store.link.commands import Redis
from store.link.secrets import Sealer
from store.listing import Listing
from store.log.text import MessageText, texts
from store.projections import Projections
from store.record import HashRecord
from store.sandboxes import SandboxWing
from store.sandboxes.start_tasks import StartTasks
from store.scripts import Scripts

#: Seconds for which the last answer of a chat is remembered.
_SECONDS = 7 * 86_400


class ConversationWing(Conversations):
    """All conversations, and the stores of what belongs to them."""

    def __init__(
        self,
        redis: Redis,
        scripts: Scripts,
        listing: Listing,
        projections: Projections,
        text: MessageText,
        sealer: Sealer,
        sandboxes: SandboxWing,
        start_tasks: StartTasks,
        cold: Cold,
        bounds: ConversationLimits,
        quorum: ReadQuorum,
    ) -> None:
        """quorum: reads which actions several people must approve."""
        super().__init__(redis, scripts, listing, projections, sealer, sandboxes.places, bounds.audit_days, quorum)
        self.cold = cold
        self.pages = ConversationPages(redis, listing, self.get_each)
        self.summaries = ConversationList(redis, listing)
        self.message_search = MessageSearch(redis, scripts, listing, text)
        self.exports = Exports(scripts, projections, self, bounds)
        self.forks = Forks(scripts, projections, self)
        self.in_sandboxes = AppConversations(self, listing, sandboxes)
        self.chats = Chats(scripts)
        self.queued_messages = QueuedMessages(scripts, start_tasks, self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatAnswer(HashRecord):
    """The last answer of a chat."""

    key = chat_root("SHA-256")
    conversation: str  #: id of the conversation that gave it; empty: several did
    words: str = ""  #: digest of the messages that followed it


class Chats:
    """Maps the last answer of a chat to its conversation, for each key.

    A chat client sends all messages again with every call, and most clients cannot send the id of a conversation. So
    the messages up to an answer identify the conversation, for a week and for the key that received the answer. Only
    the first messages that follow an answer continue its conversation. Others, after a person has gone back in a chat,
    begin a new one.
    """

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    def remember(self, owner: str, said: Sequence[Mapping[str, object]], conversation_id: ConversationId) -> None:
        """Record which conversation gave the last message of a chat. One round trip.

        owner: id of the key; "" without one. said: all messages, with `role` and `content`.
        """
        self._scripts.remember_chat(chat_root(_digest(owner, said)), conversation=conversation_id, span=_SECONDS * 1000)

    def take(
        self, owner: str, said: Sequence[Mapping[str, object]], words: Sequence[Mapping[str, object]]
    ) -> ConversationId | None:
        """Return the conversation that gave the last message of a chat, for the messages that follow it.

        One round trip. None if it is unknown, or if other messages have followed. The conversation may have been
        deleted.
        """
        found = self._scripts.take_chat(chat_root(_digest(owner, said)), words=_digest(owner, words))
        return ConversationId(found) if found else None


def _digest(owner: str, said: Sequence[Mapping[str, object]]) -> str:
    """Digest a chat of a key. Clients may change white space, and the instructions with every call."""
    spoken = [
        [one["role"], " ".join(" ".join(texts(one["content"])).split()), _images(one["content"])]
        for one in said
        if one["role"] in ("user", "assistant")
    ]
    return sha256(json.dumps([owner, *spoken]).encode()).hexdigest()


def _images(content: Any) -> list[Any]:
    return [part["image_urls"] for part in content if isinstance(part, dict) and "image_urls" in part]
