"""Conversations: create once, read, delete."""

import json
from typing import Any
from uuid import uuid4

from redis import Redis

from store.confirmations import held_risks
from store.errors import ConversationNotFound
from store.keys import ConversationKeys, pair
from store.scripts import Scripts
from store.stamps import Stamp
from store.text import record
from wire import ConversationId, user_message

#: fields of the hash that are JSON
_JSON_FIELDS = ("confirmation_policy", "title", "tags", "stats", "info")


class Conversations:
    """The state of all conversations."""

    def __init__(self, redis: "Redis", scripts: Scripts) -> None:
        self._redis = redis
        self._scripts = scripts

    def create(
        self,
        conversation_id: ConversationId,
        *,
        confirmation_policy: dict[str, Any] | None = None,
        title: str | None = None,
        tags: dict[str, str] | None = None,
        initial_message: list[dict[str, Any]] | None = None,
        **info: Any,
    ) -> bool:
        """Make a conversation unless the id is taken; True if this call made it, also when it was repeated.

        confirmation_policy is that of docs/wire.md, 4; initial_message is the content of a first
        user message, which starts a run; info is kept as given.
        """
        policy = confirmation_policy or {"kind": "NeverConfirm"}
        stamp = Stamp.now()
        first: tuple[str | bytes, ...] = ("", "", "", "")
        if initial_message is not None:
            event = user_message(initial_message, stamp.at)
            first = (event.id, pair(event.kind, event.source), event.raw, record(event))
        fields: dict[str, str | int] = {
            "id": conversation_id,
            "seq": 0,
            "execution_status": "idle",
            "confirmation_policy": json.dumps(policy),
            "held": held_risks(policy),
            "title": json.dumps(title),
            "tags": json.dumps(tags or {}),
            "stats": "{}",
            "info": json.dumps(info),
            "created_at": stamp.utc_time,
            "updated_at": stamp.utc_time,
            "text_chunk": 0,
        }
        args: list[Any] = [str(uuid4()), stamp.id_prefix, stamp.event_time, stamp.at, stamp.utc_time, *first]
        for name, value in fields.items():
            args += (name, value)
        reply = self._scripts.create_conversation([ConversationKeys(conversation_id).root], args)
        return bool(reply == b"created")

    def get(self, conversation_id: ConversationId) -> dict[str, Any]:
        """The state of a conversation. Raises ConversationNotFound."""
        stored: Any = self._redis.hgetall(ConversationKeys(conversation_id).root)
        if not stored:
            raise ConversationNotFound
        state: dict[str, Any] = {name.decode(): value.decode() for name, value in stored.items()}
        for name in _JSON_FIELDS:
            state[name] = json.loads(state[name])
        return {**state.pop("info"), **state}

    def delete(self, conversation_id: ConversationId) -> None:
        """Remove a conversation and everything of it. Raises ConversationNotFound."""
        reply = self._scripts.delete_conversation([ConversationKeys(conversation_id).root], [str(uuid4())])
        if reply is None:
            raise ConversationNotFound
