"""What the store raises.

StoreError
├── ConversationNotFound
├── EventNotFound
└── UnknownCursor
UNAVAILABLE            what redis-py raises when no answer is to be had: nothing is wrong with the request
"""

import redis.exceptions


class StoreError(Exception):
    """A request that the store cannot fulfil; the message is for the client."""


class ConversationNotFound(StoreError):
    """There is no conversation of that id."""

    def __init__(self) -> None:
        super().__init__("Conversation not found")


class EventNotFound(StoreError):
    """The conversation has no event of that id."""

    def __init__(self) -> None:
        super().__init__("Event not found")


class UnknownCursor(StoreError):
    """A page was asked for from an event that the conversation does not have."""

    def __init__(self) -> None:
        super().__init__("Unknown cursor: page_id must be a next_page_id of this conversation")


#: Redis cannot be reached, is too slow, still loading, full, a read-only replica, or its cluster is down.
UNAVAILABLE: tuple[type[Exception], ...] = (
    redis.exceptions.ConnectionError,  # also: busy loading, authentication, no free connection in the pool
    redis.exceptions.TimeoutError,
    redis.exceptions.ReadOnlyError,
    redis.exceptions.OutOfMemoryError,
    redis.exceptions.ClusterError,
    redis.exceptions.ClusterDownError,
    redis.exceptions.MasterDownError,
    redis.exceptions.TryAgainError,
)
