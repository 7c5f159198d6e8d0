"""Conversations: their state, their events, their lists and copies."""

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
from store.record import Record
from store.sandboxes import SandboxWing
from store.sandboxes.start_tasks import StartTasks
from store.scripts import Scripts

#: seconds for which an answer is remembered
_SECONDS = 7 * 86_400


class ConversationWing(Conversations):
    """All conversations, and by name what belongs to them."""

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
        """quorum: reads what several people must approve."""
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
class Chat(Record):
    """The last answer of a chat."""

    key = chat_root("SHA-256")
    conversation: str  #: that gave it; empty: several conversations gave it
    words: str = ""  #: digest of the words that followed it


class Chats:
    """Which conversation gave the last answer of a chat, for the chats of all keys.

    A chat client sends all messages again with every call, and most cannot send the id of a conversation. So what was
    said up to an answer stands for the conversation that gave it, to the key that was given it, for a week. Only the
    first words that follow the answer take it: if a person goes back in a chat and says something else, another
    conversation begins.
    """

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    def remember(self, owner: str, said: Sequence[Mapping[str, object]], conversation_id: ConversationId) -> None:
        """Note which conversation gave the last message of a chat.

        owner: id of the key; "" without one. said: all messages, with `role` and `content`. One round trip.
        """
        self._scripts.remember_chat(chat_root(_digest(owner, said)), conversation=conversation_id, span=_SECONDS * 1000)

    def take(
        self, owner: str, said: Sequence[Mapping[str, object]], words: Sequence[Mapping[str, object]]
    ) -> ConversationId | None:
        """The conversation that gave the last message of a chat, for the words that follow; None: there is none, or
        other words have followed. It may be deleted. One round trip."""
        found = self._scripts.take_chat(chat_root(_digest(owner, said)), words=_digest(owner, words))
        return ConversationId(found) if found else None


def _digest(owner: str, said: Sequence[Mapping[str, object]]) -> str:
    """Of a chat as one key sees it; clients may change the blanks of a text, and their instructions with every call."""
    spoken = [
        [one["role"], " ".join(" ".join(texts(one["content"])).split()), _images(one["content"])]
        for one in said
        if one["role"] in ("user", "assistant")
    ]
    return sha256(json.dumps([owner, *spoken]).encode()).hexdigest()


def _images(content: Any) -> list[Any]:
    return [part["image_urls"] for part in content if isinstance(part, dict) and "image_urls" in part]
