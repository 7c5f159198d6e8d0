"""Answers to pending actions that the agent of a sandbox has not heard yet: decided once, delivered until it has."""

import json
from typing import Any, NamedTuple

from redis import Redis

import wire
from store.confirmations import Confirmations
from store.keys import ANSWERS, ConversationKeys
from store.scripts import Scripts
from store.stamps import Stamp
from wire import ConversationId, Micros

#: seconds until an answer of which nothing is heard is tried again, and until it is seen what one has led to
PATIENCE, MOMENT = 5.0, 1.0


class Answer(NamedTuple):
    """A decision. id is that of the request that made it; actions are the ids that it answers."""

    id: str
    accept: bool
    at: Micros
    reason: str
    actions: list[str]


class Answers:
    """All answers under way."""

    def __init__(self, redis: "Redis", scripts: Scripts, confirmations: Confirmations) -> None:
        self._redis = redis
        self._scripts = scripts
        self._confirmations = confirmations

    def decide(self, conversation_id: ConversationId, *, accept: bool, reason: str) -> tuple[bool, Answer | None]:
        """Accept or reject what waits: whether this is the answer that took effect, and what the agent must hear.

        What is decided is due before it is: a worker that is killed in between leaves it to the drivers.
        Raises ConversationNotFound.
        """
        stamp = Stamp.now()
        self._due_in(conversation_id, PATIENCE)
        won = self._confirmations.answer(conversation_id, accept=accept, reason=reason, stamp=stamp)
        return won, self.get(conversation_id) if won else None

    def get(self, conversation_id: ConversationId) -> Answer | None:
        """The answer that a conversation's agent has not heard yet."""
        stored: Any = self._redis.hget(ConversationKeys(conversation_id).root, "answer")
        if stored is None:
            return None
        identity, verb, at, reason, actions = stored.decode().split("\n")
        return Answer(identity, verb == "accept", Micros(int(at)), json.loads(reason), json.loads(actions))

    def settle(self, conversation_id: ConversationId, answer: Answer) -> None:
        """The agent has heard it, or never will."""
        self._scripts.settle_answer([ConversationKeys(conversation_id).root], [answer.id])
        self._redis.zrem(ANSWERS, conversation_id)

    def look_again(self, conversation_id: ConversationId) -> None:
        """Have a driver look in a moment whether the agent has moved."""
        self._due_in(conversation_id, MOMENT)

    def claim(self) -> ConversationId | None:
        """A conversation whose answer is due; it is due again a little later, should its driver die."""
        while due := self._next_due():
            if self.get(due) is not None:
                self._due_in(due, PATIENCE)
                return due
            self._redis.zrem(ANSWERS, due)
        return None

    def _next_due(self) -> ConversationId | None:
        stored: Any = self._redis.zrangebyscore(ANSWERS, "-inf", wire.now(), start=0, num=1)
        return ConversationId(stored[0].decode()) if stored else None

    def _due_in(self, conversation_id: ConversationId, seconds: float) -> None:
        self._redis.zadd(ANSWERS, {conversation_id: wire.now() + round(seconds * 1e6)})
