"""The errors of the store.

StoreError
├── ConversationNotFound
│   └── NotStartedHere
├── EventNotFound
├── EventsTooLong
├── UnknownCursor
├── BeyondTheEnd
├── IllegalMove
├── TooManyPending
├── TooManyKinds
├── ReasonTooLong
├── SandboxNotFound
├── SandboxRefuses
├── TooManySandboxes
├── TooManyStopped
├── TooManyConversations
├── TooManyStarts
├── NotDoneYet
├── NoSupervisor
├── ArchiveUnreadable
├── ArchiveRefused
├── ArchiveTooLarge
├── ArchivesBusy
├── ArchiveFailed
├── NotItsSandbox
├── IdInUse
├── SecretsRefused
├── NeedsApproval
├── KeyUnreadable
├── TooManyFollowers
├── FellBehind
├── NewerData
└── Stopping
Beside what raises them stand those of `attempts.py`, `idempotency.py` and `quotas.py`.

UNAVAILABLE            errors of redis-py while Redis cannot serve a request; the request itself is right
"""

import redis.exceptions
from redis.connection import DefaultParser


class StoreError(Exception):
    """A request that the store cannot fulfil; the message is for the client."""


class ConversationNotFound(StoreError):
    """There is no conversation of that id."""

    def __init__(self) -> None:
        super().__init__("Conversation not found")


class NotStartedHere(ConversationNotFound):
    """A sandbox posts about a conversation that no start task has put into it."""

    def __init__(self) -> None:
        StoreError.__init__(
            self,
            "Conversation not found: a sandbox posts to the conversations that were started in it, and may report "
            "children of those",
        )


class EventNotFound(StoreError):
    """The conversation has no event of that id."""

    def __init__(self) -> None:
        super().__init__("Event not found")


class EventsTooLong(StoreError):
    """The events of a batch of ids have more bytes together than one response may have."""

    def __init__(self, most: int) -> None:
        super().__init__(f"These events have more than {most} bytes together: ask for fewer ids at once")


class UnknownCursor(StoreError):
    """The cursor of a page names an event that the conversation does not have."""

    def __init__(self) -> None:
        super().__init__("Unknown cursor: page_id must be a next_page_id of this conversation")


class BeyondTheEnd(StoreError):
    """A follower's cursor lies after the last event: the client has followed an earlier conversation of that id."""

    def __init__(self, last: int) -> None:
        super().__init__(f"The last event of this conversation has seq {last}")


class IllegalMove(StoreError):
    """The status of the conversation refuses a verb."""

    def __init__(self, verb: str, status: str) -> None:
        super().__init__(f"Cannot {verb}: the conversation is {status}")


class TooManyPending(StoreError):
    """A batch would make more actions wait than the settings allow."""

    def __init__(self, most: int) -> None:
        super().__init__(
            f"At most {most} actions of a conversation may wait for a decision (MAX_PENDING_ACTIONS): "
            "none of these events was appended"
        )


class TooManyKinds(StoreError):
    """A batch would bring more pairs of kind and source than the settings allow."""

    def __init__(self, most: int) -> None:
        super().__init__(
            f"The events of a conversation should have at most {most} pairs of kind and source (MAX_EVENT_KINDS): "
            "none of these was appended"
        )


class ReasonTooLong(StoreError):
    """The reason of a rejection is longer than the settings allow."""

    def __init__(self, most: int) -> None:
        super().__init__(f"A reason should have at most {most} bytes of UTF-8 (MAX_REASON_BYTES)")


class SandboxNotFound(StoreError):
    """There is no sandbox of that id."""

    def __init__(self) -> None:
        super().__init__("Sandbox not found")


class SandboxRefuses(StoreError):
    """The status of the sandbox refuses a verb."""

    def __init__(self, verb: str, status: str) -> None:
        super().__init__(f"Cannot {verb}: the sandbox is {status}")


class TooManySandboxes(StoreError):
    """The number of running sandboxes has reached its cap."""

    def __init__(self, number: int, most: int) -> None:
        super().__init__(f"{number} sandboxes run and {most} may: pause or delete one first")


class TooManyStopped(StoreError):
    """The number of sandboxes that are kept and do not run has reached its cap."""

    def __init__(self, number: int, most: int) -> None:
        super().__init__(
            f"{number} sandboxes are kept that do not run, and {most} may be (MAX_STOPPED): delete one first"
        )


class TooManyConversations(StoreError):
    """A sandbox has as many conversations as the settings allow."""

    def __init__(self, number: int, most: int) -> None:
        super().__init__(
            f"The sandbox has {number} conversations, those that start included, and {most} may be in one "
            "(MAX_CONVERSATIONS_PER_SANDBOX): delete one first"
        )


class TooManyStarts(StoreError):
    """As many app conversations start as the settings allow."""

    def __init__(self, number: int, most: int) -> None:
        super().__init__(
            f"{number} starts of app conversations are under way, and {most} may be (MAX_STARTS): try again later"
        )


class NotDoneYet(StoreError):
    """A pause or a deletion of a sandbox takes longer than a request waits; the supervisor goes on with it."""

    def __init__(self, done: str, reason: str) -> None:
        super().__init__(f"The sandbox is not {done} yet; this goes on. {reason}".strip())


class NoSupervisor(StoreError):
    """No supervisor has a recent heartbeat, so no sandbox would start."""

    def __init__(self) -> None:
        super().__init__("No supervisor runs that could do this; try again shortly")


class ArchiveUnreadable(StoreError):
    """An uploaded archive is none, or is not whole."""


class ArchiveRefused(StoreError):
    """An uploaded archive has a member that no sandbox gets."""


class ArchiveTooLarge(StoreError):
    """An uploaded archive has more bytes or more members than it may have."""


class ArchivesBusy(StoreError):
    """The host packs or unpacks as many archives as it may at once."""


class ArchiveFailed(StoreError):
    """An archive cannot be packed, unpacked or sent to its end."""


class NotItsSandbox(StoreError):
    """The sandbox that posts is not the sandbox of the conversation."""

    def __init__(self) -> None:
        super().__init__("Authorization must be `Bearer` and the hook key of the conversation's sandbox")


class IdInUse(StoreError):
    """A conversation of that id exists."""

    def __init__(self) -> None:
        super().__init__("A conversation of that id exists")


class SecretsRefused(StoreError):
    """There is no key to seal secrets with."""

    def __init__(self) -> None:
        super().__init__("Secrets cannot be kept: the server has no SECRET_KEY")


class NeedsApproval(StoreError):
    """A message or a run would answer pending actions, and its sender may not answer them."""

    def __init__(self) -> None:
        super().__init__("Actions wait for a decision, which this would take: that needs a key with the scope approve")


class KeyUnreadable(StoreError):
    """The keys of a sandbox were sealed with another SECRET_KEY than this process has."""

    def __init__(self, sandbox_id: str) -> None:
        super().__init__(
            f"The keys of the sandbox {sandbox_id} cannot be read: another SECRET_KEY has sealed them. "
            "SECRET_KEY may have that key too, after a comma"
        )


class TooManyFollowers(StoreError):
    """This process has as many followers as its settings allow."""

    def __init__(self) -> None:
        super().__init__("Too many connections follow conversations here; try again shortly")


class FellBehind(StoreError):
    """A follower took no events for so long that the ring dropped them; the log still has them."""

    def __init__(self) -> None:
        super().__init__("Too slow: connect again from the last event received")


class NewerData(StoreError):
    """The stored data are of a version that this code does not know."""

    def __init__(self, found: int, known: int) -> None:
        words = f"The stored data are of version {found} and this server knows version {known}"
        super().__init__(f"{words}: run a newer release of it")


class Stopping(StoreError):
    """This process ends: its followers must connect again."""

    def __init__(self) -> None:
        super().__init__("The server is stopping: connect again")


class TemporaryRefusal(redis.exceptions.ResponseError):
    """Redis refuses a command for now; the command itself is right."""


#: MISCONF: Redis cannot write its file. BUSY: a script runs for too long. NOREPLICAS: too few replicas are connected.
#: redis-py gives these codes no class of their own; its parser takes the class of an error from this table.
DefaultParser.EXCEPTION_CLASSES.update(dict.fromkeys(("MISCONF", "BUSY", "NOREPLICAS"), TemporaryRefusal))

#: Redis cannot be reached, does not answer in time, or refuses for now. A request gets 503; a supervisor retries.
UNAVAILABLE: tuple[type[Exception], ...] = (
    redis.exceptions.ConnectionError,  # also: LOADING, authentication, no free connection in the pool
    redis.exceptions.TimeoutError,
    redis.exceptions.ReadOnlyError,
    redis.exceptions.OutOfMemoryError,
    TemporaryRefusal,
    redis.exceptions.ExecAbortError,  # a transaction that Redis refused as a whole, at its EXEC
    redis.exceptions.ClusterError,  # also: the cluster is down, or a command was sent from node to node too often
    redis.exceptions.RedisClusterException,  # no node of the cluster is reached, or a slot has no node
    redis.exceptions.AskError,  # the slot moves to another node, and a transaction needs all of it on one
    redis.exceptions.TryAgainError,
)
