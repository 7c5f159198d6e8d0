"""Which conversation gave the last answer of a chat.

A chat client sends all messages again with every call, and most cannot send the id of a conversation. So what was said
up to an answer stands for the conversation that gave it, to the key that was given it, for a week. Only the first words
that follow the answer take it: who goes back in a chat and says something else begins another conversation.
"""

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from core.wire import ConversationId
from store.keys import chat_root
from store.log.text import texts
from store.scripts import Scripts

#: seconds for which an answer is remembered
_SECONDS = 7 * 86_400


class Chats:
    """The chats of all keys."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    def remember(self, owner: str, said: Sequence[Mapping[str, Any]], conversation_id: ConversationId) -> None:
        """Note which conversation gave the last message of a chat.

        owner: id of the key; "" without one. said: all messages, with `role` and `content`. One round trip.
        """
        self._scripts.remember_chat([chat_root(_digest(owner, said))], [conversation_id, _SECONDS * 1000])

    def take(
        self, owner: str, said: Sequence[Mapping[str, Any]], words: Sequence[Mapping[str, Any]]
    ) -> ConversationId | None:
        """The conversation that gave the last message of a chat, for the words that follow; None: there is none, or
        other words have followed. It may be deleted. One round trip."""
        found = self._scripts.take_chat([chat_root(_digest(owner, said))], [_digest(owner, words)])
        return ConversationId(found.decode()) if found else None


def _digest(owner: str, said: Sequence[Mapping[str, Any]]) -> str:
    """Of a chat as one key sees it; clients may change the blanks of a text, and their instructions with every call."""
    spoken = [
        [one["role"], " ".join(" ".join(texts(one["content"])).split()), _images(one["content"])]
        for one in said
        if one["role"] in ("user", "assistant")
    ]
    return sha256(json.dumps([owner, *spoken]).encode()).hexdigest()


def _images(content: Any) -> list[Any]:
    return [part["image_urls"] for part in content if isinstance(part, dict) and "image_urls" in part]
