"""The bodies of requests that start an agent of their own, which hold the key of its model: sealed, and never shown.

A body is kept twice: with the start task until that is finished (`start_tasks.py`), and with the conversation until its
deletion, for a later start at an agent server that has forgotten the conversation. The start task's is an object of
`body`, as the client sent it, and `headers`, those that the agent server gets with it. The conversation's is the body
without `initial_message`, which is sent once, and without `secrets`, which the conversation has.
"""

from collections.abc import Mapping
from typing import Any

from redis import Redis

from store.keys import ConversationKeys
from store.link.secrets import Sealer
from wire import ConversationId

#: members of a body that a later start does not repeat
_ONCE = ("initial_message", "secrets")


class StartBodies:
    """The sealed bodies of conversations."""

    def __init__(self, redis: "Redis", sealer: Sealer) -> None:
        self._redis = redis
        self._sealer = sealer

    def sealed(self, conversation_id: ConversationId, body: Mapping[str, Any]) -> bytes:
        """What a conversation keeps of the body that starts its agent. Raises SecretsRefused."""
        kept = {name: value for name, value in body.items() if name not in _ONCE}
        return self._sealer.seal_body(conversation_id, kept)

    def of(self, conversation_id: ConversationId) -> dict[str, Any] | None:
        """The body that started the agent of a conversation; None where it brought none. Raises SecretsRefused."""
        sealed: Any = self._redis.get(ConversationKeys(conversation_id).start)
        return self._sealer.open_body(conversation_id, sealed) if sealed else None
