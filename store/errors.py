"""What the store raises.

StoreError
├── ConversationNotFound
├── EventNotFound
├── EventsTooLong
├── UnknownCursor
├── BeyondTheEnd
├── IllegalMove
├── SandboxNotFound
├── SandboxRefuses
├── TooManySandboxes
├── NoSupervisor
├── NotItsSandbox
├── IdInUse
├── SecretsRefused
├── TooManyFollowers
├── FellBehind
└── Stopping
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


class EventsTooLong(StoreError):
    """The events of a batch of ids have more bytes together than one response may have."""

    def __init__(self, most: int) -> None:
        super().__init__(f"These events have more than {most} bytes together: ask for fewer ids at once")


class UnknownCursor(StoreError):
    """A page was asked for from an event that the conversation does not have."""

    def __init__(self) -> None:
        super().__init__("Unknown cursor: page_id must be a next_page_id of this conversation")


class BeyondTheEnd(StoreError):
    """A place to follow from lies behind the last event: the client has followed another conversation of that id."""

    def __init__(self, last: int) -> None:
        super().__init__(f"The last event of this conversation has seq {last}")


class IllegalMove(StoreError):
    """The status of the conversation refuses a verb."""

    def __init__(self, verb: str, status: str) -> None:
        super().__init__(f"Cannot {verb}: the conversation is {status}")


class SandboxNotFound(StoreError):
    """There is no sandbox of that id."""

    def __init__(self) -> None:
        super().__init__("Sandbox not found")


class SandboxRefuses(StoreError):
    """The status of the sandbox refuses a verb."""

    def __init__(self, verb: str, status: str) -> None:
        super().__init__(f"Cannot {verb}: the sandbox is {status}")


class TooManySandboxes(StoreError):
    """As many sandboxes run as may."""

    def __init__(self, number: int, most: int) -> None:
        super().__init__(f"{number} sandboxes run and {most} may: pause or delete one first")


class NoSupervisor(StoreError):
    """No supervisor says that it lives: nobody would start a sandbox."""

    def __init__(self) -> None:
        super().__init__("No supervisor runs that could do this; try again shortly")


class NotItsSandbox(StoreError):
    """Who sends events is not the sandbox that the conversation lives in."""

    def __init__(self) -> None:
        super().__init__("X-Session-API-Key must be that of the conversation's sandbox")


class IdInUse(StoreError):
    """A conversation of that id exists."""

    def __init__(self) -> None:
        super().__init__("A conversation of that id exists")


class SecretsRefused(StoreError):
    """There is no key to seal secrets with."""

    def __init__(self) -> None:
        super().__init__("Secrets cannot be kept: the server has no SECRET_KEY")


class TooManyFollowers(StoreError):
    """This process has as many followers as its settings allow."""

    def __init__(self) -> None:
        super().__init__("Too many connections follow conversations here; try again shortly")


class FellBehind(StoreError):
    """A follower did not take events for so long that they are no longer kept for it; the log still has them."""

    def __init__(self) -> None:
        super().__init__("Too slow: connect again from the last event received")


class Stopping(StoreError):
    """This process ends: its followers must go elsewhere."""

    def __init__(self) -> None:
        super().__init__("The server is stopping: connect again")


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
