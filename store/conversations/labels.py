"""Titles and tags that clients have set and that the agents of conversations may not have. See `agents/labels.py`."""

from store.keys import ConversationKeys
from store.scripts import Scripts
from wire import ConversationId


class Labels:
    """The titles and tags that are due at agents; `labels_due` of a conversation's state names the latest change."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    def settle(self, conversation_id: ConversationId, due: str) -> None:
        """Note that the agent has what was due; a change since then stays due."""
        self._scripts.settle_labels([ConversationKeys(conversation_id).root], [due])
