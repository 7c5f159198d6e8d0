"""Room for conversations in sandboxes: each has a place from its start to its deletion, and a sandbox has so many."""

from store.errors import TooManyConversations
from store.keys import SandboxKeys
from store.scripts import Scripts
from wire import ConversationId


class Places:
    """The places of all sandboxes. A sandbox that does not exist has no bound: nothing comes of what starts there."""

    def __init__(self, scripts: Scripts, most: int) -> None:
        self._scripts = scripts
        self._most = most

    def take(self, sandbox_id: str, conversation_id: ConversationId, *, made: bool) -> bool:
        """Take a conversation's place; True if this call took it. One round trip. Raises TooManyConversations.

        made: the conversation is made now, and has the place until its deletion; otherwise it has it for an hour.
        """
        args = [sandbox_id, conversation_id, self._most, "1" if made else ""]
        match self._scripts.take_place([SandboxKeys.root], args):
            case ("full", number):
                raise TooManyConversations(number, self._most)
            case reply:
                return reply == ("taken",)

    def leave(self, sandbox_id: str, conversation_id: ConversationId, *, made: bool = False) -> None:
        """Free the place of a conversation that is not made. made: it counts as such, and is another sandbox's."""
        self._scripts.leave_place([SandboxKeys.root], [sandbox_id, conversation_id, "1" if made else ""])
