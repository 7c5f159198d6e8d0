"""Conversations: their state, their events, their lists and copies."""

from redis import Redis

from core.bounds import Bounds
from store.conversations.app_conversations import AppConversations
from store.conversations.chats import Chats
from store.conversations.cold import Cold
from store.conversations.conversations import Conversations
from store.conversations.copies import Exports, Forks
from store.conversations.lists import ConversationList, ConversationPages
from store.conversations.message_search import MessageSearch
from store.conversations.queued_messages import QueuedMessages
from store.link.secrets import Sealer
from store.listing import Listing
from store.log.text import MessageText
from store.sandboxes import SandboxWing
from store.sandboxes.start_tasks import StartTasks
from store.scripts import Scripts


class ConversationWing(Conversations):
    """All conversations, and by name what belongs to them."""

    def __init__(
        self,
        redis: "Redis",
        scripts: Scripts,
        listing: Listing,
        text: MessageText,
        sealer: Sealer,
        sandboxes: SandboxWing,
        start_tasks: StartTasks,
        cold: Cold,
        bounds: Bounds,
    ) -> None:
        super().__init__(redis, scripts, listing, sealer, sandboxes.places, bounds.audit_days)
        self.cold = cold
        self.pages = ConversationPages(redis, scripts, listing, self.get_each)
        self.summaries = ConversationList(redis, scripts, listing)
        self.message_search = MessageSearch(redis, scripts, listing, text)
        self.exports = Exports(scripts, listing, self, bounds)
        self.forks = Forks(scripts, listing, self)
        self.in_sandboxes = AppConversations(self, listing, sandboxes)
        self.chats = Chats(scripts)
        self.queued_messages = QueuedMessages(scripts, start_tasks, self)
